//! Runs of a program that prints a key, and its failures.

use super::*;

fn sh(script: &str) -> Keys {
    Keys::new(None, &["sh", "-c", script].map(str::to_owned))
}

async fn key(keys: &Keys, refused: Option<&str>) -> Result<Option<String>, KeyError> {
    let refused = refused.map(SecretString::from);
    keys.get(refused.as_ref()).await.map(|key| key.map(|key| key.expose_secret().to_owned()))
}

#[tokio::test]
async fn a_program_runs_once_for_all_callers_and_again_after_a_refusal() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("runs").display().to_string();
    let keys = sh(&format!("echo >> {file}; echo \" key-$(wc -l < {file}) \""));
    let (one, other) = tokio::join!(key(&keys, None), key(&keys, None));
    assert_eq!((one, other), (Ok(Some("key-1".into())), Ok(Some("key-1".into()))));
    assert_eq!(key(&keys, Some("another")).await, Ok(Some("key-1".into())));
    assert_eq!(key(&keys, Some("key-1")).await, Ok(Some("key-2".into())));
    let issued: Vec<String> = keys.secrets().iter().map(|key| key.expose_secret().to_owned()).collect();
    assert_eq!(issued, ["key-1", "key-2"]);
    assert_eq!(key(&Keys::new(Some("k".into()), &[]), Some("k")).await, Ok(Some("k".into())));
}

#[tokio::test]
async fn a_program_without_a_key_says_why_and_not_what_it_printed() {
    for (script, words, may_pass) in [
        ("echo hush; exit 3", "exit status: 3", true),
        ("true", "printed nothing", false),
        ("printf '\\377hush'", "else than text", false),
        ("yes hush", "more than", false),
    ] {
        let no_key = key(&sh(script), None).await.expect_err(script);
        let why = no_key.to_string();
        assert!(why.contains(words) && !why.contains("hush"), "{why}");
        assert_eq!(no_key.is_transient, may_pass, "{why}");
    }
    let why = key(&Keys::new(None, &["/no/such/program".to_owned()]), None).await.expect_err("there is none");
    assert!(why.to_string().contains("cannot be started") && !why.is_transient, "{why}");
}
