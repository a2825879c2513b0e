//! Messages about a file repeat none of its values.

use crate::config::Config;

#[test]
fn no_value_of_a_file_is_repeated() {
    let model = "[models.a]\nurl = \"http://h/v1\"\nmodel = \"m\"\n";
    for (lines, words) in [
        ("api_key = \"s3cret\"", "line 4, column 1: unknown field `api_key`"),
        ("api_key = \"s3cret\"", "api_key_env names the variable"),
        ("api_key_env = \"sk-s3cret\"", "line 4, column 15: api_key_env: this is the name of an environment variable"),
        (
            "api_key_command = \"s3cret\"",
            "line 4, column 19: api_key_command: invalid type: a text, expected a sequence",
        ),
        ("context = \"s3cret\\\", expected x\"", "line 4, column 11: context: invalid type: a text, expected u32"),
        ("api = \"sk-s3cret-0123456789\"", "line 4, column 7: api: unknown variant, expected"),
        ("headers = { x = { env = \"s3cret-1\" } }", "line 4, column 17: headers: expected a text"),
        ("s3cret", "line 4"),
        ("c3cretC3cretS3cretQ==", "line 4"),
        ("api_key_env = \"K\"\nabS3cretS3cretS3cretZ= 1", "line 5"),
        ("api_key_env = 5303473", "line 4, column 15: api_key_env: invalid type: an integer, expected a string"),
        ("api_key_env = 530.3473", "line 4, column 15: api_key_env: invalid type: a number, expected a string"),
        ("s3cretS3cretS3cretS3cret0 = 1", "line 4, column 1: unknown field `s3cr…`"),
        ("api_key_env = \"K\" s3cret", "line 4"),
        ("api_key_env = \"s3cret", "line 4"),
        ("api_key_env = \"\"\"\ns3cret=\"\"\"", "line 4, column 15: api_key_env: this is the name"),
        ("api_key_env = \"K\"\napi_key_env = \"s3cret\"", "line 5"),
        ("patience = \"s3cret\"", "line 4, column 12: patience: a time is a whole number"),
        ("extra_body = { key = \"s3cret\", at = 2020-01-01 }", "line 4"),
        ("fallback = [\"a\", 1] # s3cret", "line 4"),
        ("[models.b]\nurl = \"http://me:s3cret@h/v1\"\nmodel = \"m\"", "line 5, column 7: url: credentials"),
        ("[models.b]\nurl = \"http://h/v1?key=s3cret\"\nmodel = \"m\"", "line 5, column 7: url: the address"),
    ] {
        let error = Config::parse(&format!("{model}{lines}\n"), "p").expect_err("refused").to_string();
        let is_repeated = ["s3cret", "S3cret", "303"].iter().any(|secret| error.contains(secret));
        assert!(error.starts_with("p: line ") && error.contains(words) && !is_repeated, "{lines}: {error}");
    }
}
