//! Secrets are masked however they are written; other values stay.

use super::*;

#[test]
fn a_secret_is_hidden_however_it_is_written() {
    let key = "sk/Zq8+Wm7=Lk6Jh5Xx";
    let encoded = base64::engine::general_purpose::STANDARD.encode(key);
    for text in [key, "sk%2FZq8%2BWm7%3DLk6Jh5Xx", &encoded] {
        let hidden = mask_secret(format!("<{text}>"), key);
        assert_eq!(hidden.trim_end_matches(['=', '>']), "<***");
    }
    assert_eq!(mask_secret("abcd and YWJjZA".to_owned(), "abcd"), "*** and YWJjZA");
    for (text, expected) in [
        ("key sk/Zq8+Wm7=Lk6J**, and", "key ***, and"),
        ("SK/ZQ8+WM7=LK6JH5XX", "***"),
        ("sk/Zq8+Wm7=", "sk/Zq8+Wm7="),
        ("sk/Zq8+Wm7=L\u{e9}", "***\u{e9}"),
    ] {
        assert_eq!(mask_secret(text.to_owned(), key), expected);
    }
}

fn access(model: &str) -> Credentials {
    let model: Model = toml::from_str(&format!("url = \"http://h\"\nmodel = \"m\"\n{model}")).expect("a model");
    let variables = [("KEY", "sk-live-0123456789"), ("ID", "an id of sixteen bytes")];
    let variables = variables.map(|(name, value)| (name.to_owned(), SecretString::from(value)));
    Credentials::new(&model, &variables.into_iter().collect()).expect("access")
}

#[test]
fn values_that_are_no_secrets_stay_in_replies() {
    let access = access(
        "headers = { Origin = \"https://www.acme.example\", x-project = \"research-assistant\", x-retries = \"1\", Session-Name = \"code-review-pipeline\", Accept-Encoding = \"gzip, deflate, br, zstd\" }",
    );
    for reply in [
        "see https://www.acme.example/a",
        "a research-associate, a research-assistant",
        "1 or 11",
        "code-review-pipeline, code-review-",
    ] {
        assert_eq!(access.without_keys(reply), None, "{reply}");
    }
}

#[test]
fn secrets_of_headers_and_query_are_hidden_in_replies() {
    let access = access(
        "api_key_env = \"KEY\"\nheaders = { Authorization = \"Bearer k/9876543210-abcdef\", x-id = { env = \"ID\" } }\n\
         query = { code = \"short\", api-token = \"to\\\"ken-0123456789\" }",
    );
    for (reply, expected) in [
        ("sk-live-0123456789", "***"),
        ("SK-LIVE-012345...", "***"),
        ("k/9876543210-abcdef", "***"),
        ("k\\/9876543210-abcdef", "***"),
        ("Bearer k/9876543210-abcdef", "***"),
        ("an id of sixteen bytes", "***"),
        ("to\"ken-0123456789", "***"),
        (r#""to\"ken-0123456789""#, "\"***\""),
    ] {
        assert_eq!(access.without_keys(reply).as_deref(), Some(expected), "{reply}");
    }
    // A word that shares only the prefix is masked only for a secret by name.
    assert_eq!(access.without_keys("k/9876543210-ab...").as_deref(), Some("***"));
    assert_eq!(access.without_keys("an id of sixteen"), None);
    assert_eq!(access.without_keys("short"), None);
}
