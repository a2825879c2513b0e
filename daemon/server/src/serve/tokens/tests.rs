//! Tokens: validity, ends, keys, the audit log, files of earlier versions.

use std::path::Path;
use std::time::Duration;

use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::Principal;
use patchboard_storage::blocking::wait;

use super::{Action, AuditedAction, FILE, Failure, NewToken, Scope, TokenCreation, TokenStore};

fn wanted(lifetime: Option<&str>) -> NewToken<'static> {
    let lifetime = lifetime.map(|text| text.parse().expect("a time"));
    NewToken { name: "ci", scope: Scope::Read, lifetime, by: ann() }
}

fn ann() -> Principal {
    Principal::User { name: "ann".to_owned() }
}

/// Returns a data directory as an earlier version left it.
fn earlier() -> tempfile::TempDir {
    let data = "runtime/storage/tests/data/tokens.sql";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|root| root.join(data).is_file());
    let dump = std::fs::read_to_string(root.expect("the repository").join(data)).expect("a dump");
    let dir = tempfile::tempdir().expect("a directory");
    let file = rusqlite::Connection::open(dir.path().join(FILE)).expect("a file");
    file.execute_batch(&dump).expect("tables");
    dir
}

#[test]
fn keys_that_an_earlier_version_wrote_out_become_fingerprints_and_are_known() {
    let dir = earlier();
    for _ in 0..2 {
        let tokens = TokenStore::open(dir.path()).expect("they open");
        let key = tokens.secret.bind(&Scope::Admin, "plain key").idempotency_key();
        let again = wait(tokens.create_once(Some(key.as_str()), &wanted(None), Timestamp(6))).expect("readable");
        assert_eq!(again, TokenCreation::Existing(1));
        assert_ne!(tokens.secret.bind(&Scope::Read, "plain key").idempotency_key(), key);
        for file in std::fs::read_dir(dir.path()).expect("a directory") {
            let bytes = std::fs::read(file.expect("an entry").path()).expect("readable");
            assert!(!bytes.windows(9).any(|window| window == b"plain key"));
        }
    }
    let tokens = TokenStore::open(dir.path()).expect("they open");
    let key = tokens.secret.bind(&Scope::Admin, "plain key").idempotency_key();
    assert!(wait(tokens.delete(1, &ann(), Timestamp(7))).expect("writable"));
    let made = wait(tokens.create_once(Some(key.as_str()), &wanted(None), Timestamp(8))).expect("writable");
    assert!(matches!(made, TokenCreation::New(..)), "the key went with its token");
}

#[test]
fn tokens_and_the_audit_log_of_an_earlier_version_are_as_they_were() {
    let dir = earlier();
    let tokens = TokenStore::open(dir.path()).expect("they open");
    let key = tokens.secret.bind(&Scope::Admin, "key-one").idempotency_key();
    assert_eq!(key.as_str(), "key:d59d45635cf8b87f05f63075fa23f600");
    let admin = "pb_iD3zcEyiZOT4Z9rGB2b4WPEbkE6z1qoWJGcArzFfPis";
    let expiring = "pb_lkN9OPzbUkRfaUm8AbtekBjkzkY1T-cDlT716BB-KAk";
    let revoked = "pb_S9bOeIMRMFKAODhs7hXLs22PO5S7pRtzfE5Lz72SSNw";
    let deleted = "pb_hmWQ8wTN_akYVwoHd_jz5B6XxaJ3-gsvBjPWTqRS7jA";
    let number = |text, at| {
        let holder = wait(tokens.holder(text, Timestamp(at))).expect("readable");
        holder.map(|holder| (holder.id, holder.scope, holder.made_by))
    };
    assert_eq!(number(admin, 9000), Some((1, Scope::Admin, Some(ann()))));
    assert_eq!(number(expiring, 2005), Some((2, Scope::Read, Some(ann()))));
    assert_eq!([expiring, revoked, deleted].map(|text| number(text, 2006)), [None, None, None]);
    let listed: Vec<i64> = wait(tokens.list()).expect("readable").iter().map(|token| token.id).collect();
    assert_eq!(listed, [1, 2, 3, 5]);
    let entries = wait(tokens.audit_log(9, 9)).expect("readable");
    let entries: Vec<_> = entries.iter().map(|it| (it.id, it.action.as_str(), it.done)).collect();
    assert_eq!(entries, [(10, "board_archived", true), (11, "board_deleted", false)]);
    let made = wait(tokens.create(&wanted(None), Timestamp(14))).expect("writable");
    assert_eq!(made.0.id, 7, "numbers are not reused");
    assert_eq!(wait(tokens.audit_log(11, 9)).expect("readable")[0].id, 12);
}

#[test]
fn a_token_opens_until_it_is_revoked_and_its_text_is_in_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenStore::open(dir.path()).expect("they open");
    assert!(wait(tokens.is_empty(Timestamp(5))).expect("readable"));
    let (token, text) = wait(tokens.create(&wanted(None), Timestamp(5))).expect("made");
    assert_eq!(text.len(), 3 + 43);
    let opens =
        |tokens: &TokenStore, text: &str, at| wait(tokens.holder(text, Timestamp(at))).expect("readable").is_some();
    assert!(opens(&tokens, &text, 6) && !opens(&tokens, &text[..text.len() - 1], 6));
    for file in std::fs::read_dir(dir.path()).expect("a directory") {
        let bytes = std::fs::read(file.expect("an entry").path()).expect("readable");
        assert!(!bytes.windows(text.len()).any(|window| window == text.as_bytes()));
    }
    let again = TokenStore::open(dir.path()).expect("they open");
    assert_eq!(wait(again.list()).expect("readable"), std::slice::from_ref(&token));
    assert!(wait(again.revoke(token.id, &ann(), Timestamp(9))).expect("writable"));
    assert!(!wait(again.revoke(token.id, &ann(), Timestamp(10))).expect("writable"));
    assert!(!opens(&tokens, &text, 9) && !wait(tokens.is_valid(token.id, Timestamp(9))).expect("readable"));
    assert!(wait(tokens.is_empty(Timestamp(9))).expect("readable"));
}

#[test]
fn a_log_that_is_lost_brings_no_token_back_to_life() {
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenStore::open(dir.path()).expect("they open");
    let made = [(); 2].map(|()| wait(tokens.create(&wanted(None), Timestamp(5))).expect("made"));
    // The log is lost as a whole, while the process that wrote it still runs.
    let alone = tempfile::tempdir().expect("a directory");
    let opens = |text: &str| {
        std::fs::copy(dir.path().join(FILE), alone.path().join(FILE)).expect("copied");
        let left = TokenStore::open(alone.path()).expect("they open");
        wait(left.holder(text, Timestamp(6))).expect("readable").is_some()
    };
    assert!(wait(tokens.revoke(made[0].0.id, &ann(), Timestamp(6))).expect("writable"));
    assert!(!opens(&made[0].1) && opens(&made[1].1));
    assert!(wait(tokens.delete(made[1].0.id, &ann(), Timestamp(7))).expect("writable"));
    assert!(!opens(&made[1].1));
}

#[test]
fn a_token_ends_with_its_time_and_can_be_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenStore::open(dir.path()).expect("they open");
    let (token, text) = wait(tokens.create(&wanted(Some("2s")), Timestamp(5))).expect("made");
    assert_eq!(token.expires_at, Some(Timestamp(2005)));
    let holder = |at| wait(tokens.holder(&text, Timestamp(at))).expect("readable");
    assert_eq!(holder(2004).map(|holder| (holder.id, holder.expires_at)), Some((token.id, token.expires_at)));
    assert_eq!((holder(2005), wait(tokens.is_empty(Timestamp(2005))).expect("readable")), (None, true));
    assert!(!wait(tokens.revoke(token.id, &ann(), Timestamp(2005))).expect("writable"), "it has ended");
    assert!(
        wait(tokens.delete(token.id, &ann(), Timestamp(2006))).expect("writable")
            && !wait(tokens.delete(token.id, &ann(), Timestamp(2006))).expect("writable")
    );
    assert_eq!((holder(6), wait(tokens.list()).expect("readable")), (None, Vec::new()));
    let (next, _) = wait(tokens.create(&wanted(None), Timestamp(7))).expect("made");
    assert_ne!(next.id, token.id);
}

#[tokio::test]
async fn a_change_by_another_process_is_seen() {
    let dir = tempfile::tempdir().expect("a directory");
    let (here, there) = (TokenStore::open(dir.path()).expect("open"), TokenStore::open(dir.path()).expect("open"));
    let mut changes = here.changes();
    let changed = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        changes.mark_unchanged();
        there.create(&wanted(None), Timestamp(5)).await.expect("made");
        changes.changed().await.expect("the tokens are there");
    };
    tokio::select! {
        () = here.watch() => {}
        () = changed => {}
    }
}

#[test]
fn actions_name_their_callers_and_tokens_their_makers() {
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenStore::open(dir.path()).expect("they open");
    let (token, text) = wait(tokens.create(&wanted(None), Timestamp(5))).expect("made");
    let holder = wait(tokens.holder(&text, Timestamp(6))).expect("readable").expect("it opens");
    assert_eq!((&token.made_by, &holder.made_by), (&Some(ann()), &Some(ann())));
    let made_by = Some(Box::new(ann()));
    let by = Principal::Token { id: token.id, name: "ci".to_owned(), person: None, made_by };
    let archived = AuditedAction { action: Action::BoardArchived, subject: Some("b1"), by: Some(&by) };
    tokens.audited(&archived, Timestamp(7), || Ok::<_, Failure>(())).expect("done");
    let deleted = AuditedAction { action: Action::BoardDeleted, subject: Some("b2"), by: None };
    let failed = || Err::<(), _>(Failure::failed("archive_io", "no disk"));
    assert!(tokens.audited(&deleted, Timestamp(8), failed).is_err());
    assert!(wait(tokens.revoke(token.id, &by, Timestamp(9))).expect("writable"));
    assert!(!wait(tokens.delete(99, &by, Timestamp(9))).expect("writable"), "no entry, either");
    let entries: Vec<_> = wait(tokens.audit_log(0, 9)).expect("readable");
    let entries: Vec<_> =
        entries.iter().map(|it| (it.action.as_str(), it.subject.as_deref(), &it.principal, it.done)).collect();
    let id = token.id.to_string();
    assert_eq!(
        entries,
        [
            ("token_created", Some(id.as_str()), &Some(ann()), true),
            ("board_archived", Some("b1"), &Some(by.clone()), true),
            ("board_deleted", Some("b2"), &None, false),
            ("token_revoked", Some(id.as_str()), &Some(by.clone()), true),
        ]
    );
    assert_eq!(wait(tokens.audit_log(2, 1)).expect("readable").len(), 1);
}

#[test]
fn a_token_that_opens_nothing_is_not_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenStore::open(dir.path()).expect("they open");
    let refused = |wanted: &NewToken<'_>| wait(tokens.create(wanted, Timestamp(5))).is_err();
    for lifetime in ["0s", "0ms", "999999d"] {
        assert!(refused(&wanted(Some(lifetime))), "{lifetime}");
    }
    for scope in [
        "board:\0",
        "board:a b",
        "board:last",
        "seat:a\n/w",
        "seat:a/w\u{1b}",
        "person:\u{7}",
        "person:boss+read",
        "seat:a/b+person:x",
        "read+person: ",
    ] {
        let scope: Scope = scope.parse().expect("a scope");
        assert!(refused(&NewToken { scope: scope.clone(), ..wanted(None) }), "{scope:?}");
    }
    assert!(refused(&NewToken { name: &"x".repeat(201), ..wanted(None) }));
    assert_eq!(wait(tokens.list()).expect("readable"), []);
}

#[test]
fn a_key_makes_one_token() {
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenStore::open(dir.path()).expect("they open");
    let make = |key| wait(tokens.create_once(Some(key), &wanted(None), Timestamp(5))).expect("made");
    let TokenCreation::New(first, _) = make("one") else { panic!("it is new") };
    assert_eq!(make("one"), TokenCreation::Existing(first.id));
    assert!(matches!(make("two"), TokenCreation::New(..)));
    assert_eq!(wait(tokens.list()).expect("readable").len(), 2);
}
