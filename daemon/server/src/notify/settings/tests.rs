//! Tables of the configuration, valid and invalid.

use super::*;

fn parse(text: &str) -> Result<Option<Settings>, String> {
    let env = [("SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), ("WRONG", "whsec_%")];
    Settings::parse(text, Path::new("/etc/patchboard"), &env.into_iter().collect())
}

fn settings(text: &str) -> Settings {
    parse(text).expect("a good table").expect("a table")
}

#[test]
fn a_table_is_read_with_its_defaults() {
    let both = settings("[notify]\nwebhook = \"https://h/x\"\nprogram = [\"./page.py\", \"-q\"]\n");
    assert_eq!(both.topics, TOPICS);
    assert_eq!(both.provider_after, PROVIDER_AFTER);
    let names: Vec<&str> = both.receivers.iter().map(Receiver::kind).collect();
    assert_eq!(names, ["webhook", "program"]);
    assert!(format!("{both:?}").contains("/etc/patchboard/./page.py"), "{both:?}");
    let some = "[notify]\nprogram = [\"page\"]\non = [\"stopped\"]\nprovider_after = \"1m\"\ntimeout = \"2s\"";
    let some = settings(some);
    assert_eq!((some.topics, some.provider_after.as_ms()), (vec![Topic::Stopped], 60_000));
    assert_eq!(
        (both.heads, settings("[notify]\nprogram = [\"p\"]\nheads = \"1h\"").heads),
        (None, Some(Duration::from_secs(3600)))
    );
    assert!(parse("[serve]\nlisten = 1\n").expect("another's table").is_none());
}

#[test]
fn an_invalid_table_is_rejected_with_its_line() {
    let hook = "[serve]\n[notify]\nwebhook = \"http://localhost/x\"\n";
    for (text, line, word) in [
        ("[serve]\n\n[notify]\n".to_owned(), "line 3", "neither a webhook nor a program"),
        (format!("{hook}secret_env = \"ABSENT\""), "line 4", "ABSENT is not set"),
        (format!("{hook}secret_env = \"WRONG\""), "line 4", "no base64"),
        (format!("{hook}on = [\n\"question\",\n\"sometimes\"]"), "line 6", "sometimes"),
        (format!("{hook}on = []"), "line 4", "empty"),
        (format!("{hook}timeout = \"0s\""), "line 4", "above zero"),
        (format!("{hook}timeout = \"1d\""), "line 4", "10 minutes"),
        (format!("{hook}heads = \"0s\""), "line 4", "at least 1s"),
        (format!("{hook}provider_after = 5"), "line 4", "provider_after"),
        (format!("{hook}webhok = \"x\""), "line 4", "webhok"),
        ("[notify]\nwebhook = \"ftp://h\"".to_owned(), "line 2", "http://"),
        ("[notify]\nwebhook = \"http://u:p@h\"".to_owned(), "line 2", "credentials"),
        ("[notify]\nwebhook = \"hook\"".to_owned(), "line 2", "not an address"),
        ("[notify]\nprogram = []".to_owned(), "line 2", "begins with its name"),
        ("[notify]\nprogram = [\"p\"]\nsecret_env = \"SECRET\"".to_owned(), "line 3", "webhook"),
    ] {
        let why = parse(&text).expect_err(&text);
        assert!(why.contains(line) && why.contains(word), "{text}: {why}");
    }
}

#[test]
fn plain_http_to_another_machine_is_warned_of_unless_it_is_signed() {
    for (text, warnings) in [
        ("webhook = \"http://ops.example/x\"", 1),
        ("webhook = \"http://ops.example/x\"\nsecret_env = \"SECRET\"", 0),
        ("webhook = \"http://127.0.0.1:1/x\"", 0),
        ("webhook = \"http://[::1]:1/x\"", 0),
        ("webhook = \"https://ops.example/x\"", 0),
    ] {
        assert_eq!(settings(&format!("[notify]\n{text}")).warnings.len(), warnings, "{text}");
    }
}
