//! Agents in one directory: real files, a real board, and the answers to each agent.

use std::sync::Arc;

use patchboard_kernel::files::Access;
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use patchboard_workshop::Workshop;
use patchboard_workspace::session::Session;
use serde_json::json;

const CODE: &str = "def one():\n    return 1\n\n\ndef two():\n    return 2\n\n\ndef three():\n    return 3\n";

#[tokio::test]
async fn viewed_files_can_be_edited_and_stale_readers_see_the_difference() {
    let shop = Workshop::open(2, &json!({}), &[("src/code.py", CODE), ("notes.txt", "hello\n")]).await;
    assert_eq!(shop.found, 2);
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    let result = ada.call(json!({"command": "view", "path": "src/code.py"})).await;
    assert!(
        result.text.contains("version 1, 10 lines") && result.text.contains("     2\t    return 1"),
        "{}",
        result.text
    );
    bob.call(json!({"command": "view", "path": "src/code.py"})).await;
    bob.call(json!({"command": "view", "path": "notes.txt"})).await;
    let result = ada
        .call(json!({"command": "str_replace", "path": "src/code.py", "old_str": "return 1", "new_str": "return 11", "intent": "eleven"}))
        .await;
    assert!(!result.is_error(), "{}", result.text);
    let text = shop.text("src/code.py").expect("a file");
    assert!(text.starts_with("def one():\n    # engineer_1: eleven\n    return 11\n"), "{text}");
    assert_eq!(shop.entry("src/code.py").expect("known").version, 2);

    // Bob's read set has the old version, which also blocks his edits of other files.
    let result = bob
        .call(json!({"command": "str_replace", "path": "notes.txt", "old_str": "hello", "new_str": "bye", "intent": "leave"}))
        .await;
    assert_eq!(result.code.as_deref(), Some("stale_read"), "{}", result.text);
    assert!(result.text.contains("+    return 11") && result.text.contains("by engineer_1: eleven"), "{}", result.text);
    let result = bob
        .call(json!({"command": "str_replace", "path": "notes.txt", "old_str": "hello", "new_str": "bye", "intent": "leave"}))
        .await;
    assert!(!result.is_error(), "what a refusal shows is read with it: {}", result.text);
    assert_eq!(shop.text("notes.txt").as_deref(), Some("bye\n"), "a text file has no comments");
    replay::replay(&shop.records(), None, &PLANS).expect("the run follows from its records");
}

#[tokio::test]
async fn functions_of_one_file_are_edited_side_by_side() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("code.py", CODE)]).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    ada.call(json!({"command": "view", "path": "code.py", "view_range": [1, 3]})).await;
    bob.call(json!({"command": "view", "path": "code.py", "view_range": [9, 10]})).await;
    let result = ada
        .call(json!({"command": "insert", "path": "code.py", "insert_line": 1, "insert_text": "    print(1)\n    print(2)\n", "intent": "log"}))
        .await;
    assert!(!result.is_error(), "{}", result.text);
    // Line 9 of Bob's view is line 11 now.
    let result = bob
        .call(json!({"command": "insert", "path": "code.py", "insert_line": 9, "insert_text": "    print(3)\n", "intent": "log"}))
        .await;
    assert!(!result.is_error(), "{}", result.text);
    let text = shop.text("code.py").expect("a file");
    assert_eq!(text.lines().nth(11), Some("    print(3)"), "{text}");
    assert!(text.contains("def three():\n    print(3)\n    return 3"), "{text}");
}

#[tokio::test]
async fn lines_come_where_their_author_meant_them_to_whatever_became_of_the_other_side() {
    let letters: String = ('a'..='t').map(|letter| format!("{letter}\n")).collect();
    let shop = Workshop::open(2, &json!({}), &[("a.txt", &letters)]).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    ada.call(json!({"command": "view", "path": "a.txt", "view_range": [3, 4]})).await;
    bob.call(json!({"command": "view", "path": "a.txt"})).await;
    let text = letters.replace("t\n", "T\n");
    bob.call(json!({"command": "create", "path": "a.txt", "file_text": text, "intent": "a version"})).await;
    ada.call(json!({"command": "view", "path": "a.txt", "view_range": [12, 14]})).await;
    // Line 11, `k`, is changed; lines 11 and 12 are now `c` and `d`.
    let text = format!("{}{}", "0\n".repeat(8), text.replace("k\n", "K\n"));
    let result = bob.call(json!({"command": "create", "path": "a.txt", "file_text": text, "intent": "another"})).await;
    assert!(!result.is_error(), "{}", result.text);
    // Of lines 11 and 12, Ada has read line 12, which is `l`.
    let insert =
        json!({"command": "insert", "path": "a.txt", "insert_line": 11, "insert_text": "new\n", "intent": "mine"});
    let result = ada.call(insert).await;
    assert!(!result.is_error(), "{}", result.text);
    let text = shop.text("a.txt").expect("a file");
    assert!(text.contains("K\nnew\nl\n"), "{text}");
}

#[tokio::test]
async fn external_writes_are_noticed_before_an_edit_is_accepted() {
    let shop = Workshop::open(1, &json!({}), &[("a.py", "a = 1\n"), ("b.py", "b = 1\n")]).await;
    let mut ada = shop.session(0);
    ada.call(json!({"command": "view", "path": "a.py"})).await;
    ada.call(json!({"command": "view", "path": "b.py"})).await;
    std::fs::write(shop.directory.path().join("b.py"), "b = 2\n").expect("written");
    let result =
        ada.call(json!({"command": "create", "path": "a.py", "file_text": "a = 3\n", "intent": "three"})).await;
    assert_eq!(result.code.as_deref(), Some("stale_read"), "{}", result.text);
    let known = shop.entry("b.py").expect("known");
    assert_eq!((known.version, known.writer.as_str()), (2, "external"));
    assert!(result.text.contains("-b = 1") && result.text.contains("+b = 2"), "{}", result.text);
    let result =
        ada.call(json!({"command": "create", "path": "a.py", "file_text": "a = 3\n", "intent": "three"})).await;
    assert!(!result.is_error(), "{}", result.text);
    std::fs::remove_file(shop.directory.path().join("b.py")).expect("gone");
    let result = ada.call(json!({"command": "rename", "path": "a.py", "new_path": "c.py", "intent": "c"})).await;
    assert_eq!(result.code.as_deref(), Some("stale_read"), "a file that is gone has changed: {}", result.text);
    let result = ada.call(json!({"command": "rename", "path": "a.py", "new_path": "c.py", "intent": "c"})).await;
    assert!(!result.is_error(), "{}", result.text);
    assert_eq!((shop.text("a.py"), shop.text("c.py").is_some()), (None, true));
    replay::replay(&shop.records(), None, &PLANS).expect("the run follows from its records");
}

#[tokio::test]
async fn a_workspace_is_taken_up_again_with_what_happened_meanwhile() {
    let shop = Workshop::open(1, &json!({}), &[("a.py", "a = 1\n")]).await;
    let mut ada = shop.session(0);
    ada.call(json!({"command": "view", "path": "a.py"})).await;
    ada.call(json!({"command": "create", "path": "a.py", "file_text": "a = 2\n", "intent": "two"})).await;
    std::fs::write(shop.directory.path().join("new.py"), "n = 1\n").expect("written");
    drop(ada);
    let shop = shop.crashed().await;
    assert_eq!(shop.found, 1);
    assert_eq!(shop.entry("a.py").expect("known").version, 2);
    let mut ada = shop.session(0);
    let result =
        ada.call(json!({"command": "create", "path": "a.py", "file_text": "a = 3\n", "intent": "three"})).await;
    assert_eq!(result.code.as_deref(), Some("file_exists"), "who begins anew has read nothing: {}", result.text);
    let result =
        ada.call(json!({"command": "create", "path": "a.py", "file_text": "a = 3\n", "intent": "three"})).await;
    assert!(!result.is_error(), "{}", result.text);
    assert_eq!(shop.text("a.py").as_deref(), Some("# engineer_1: three\na = 3\n"));
}

#[tokio::test]
async fn comments_are_accepted_beside_unread_lines() {
    const DECORATED: &str = "x = 1\n\n\n@cache\n@other(\n    1,\n)\ndef one(a,\n        b):\n    return 1\n";
    let shop = Workshop::open(2, &json!({}), &[("code.py", DECORATED)]).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    ada.call(json!({"command": "view", "path": "code.py", "view_range": [8, 9]})).await;
    let edit = |new: &str| json!({"command": "str_replace", "path": "code.py", "old_str": "def one(", "new_str": new, "intent": "signature"});
    let result = ada.call(edit("def two(")).await;
    assert!(!result.is_error(), "{}", result.text);
    let text = shop.text("code.py").expect("a file");
    assert!(text.contains("# engineer_1: signature\n@cache\n"), "above the decorators, which ada has not read: {text}");
    // Her next intent replaces the previous one, which she was not shown either.
    let edit = json!({"command": "str_replace", "path": "code.py", "old_str": "def two(", "new_str": "def three(", "intent": "renamed"});
    let result = ada.call(edit).await;
    assert!(!result.is_error(), "{}", result.text);
    let text = shop.text("code.py").expect("a file");
    assert!(text.contains("# engineer_1: renamed\n") && !text.contains("signature"), "{text}");
    // Another author's comment stays as long as the block below it.
    bob.call(json!({"command": "view", "path": "code.py"})).await;
    let result = bob.call(json!({"command": "str_replace", "path": "code.py", "old_str": "# engineer_1: renamed\n", "intent": "tidy"})).await;
    assert_eq!(result.code.as_deref(), Some("annotation_lost"), "{}", result.text);
    replay::replay(&shop.records(), None, &PLANS).expect("the run follows from its records");
}

#[tokio::test]
async fn annotations_belong_to_their_worker_before_its_first_edit() {
    let shop = Workshop::open(2, &json!({}), &[("a.py", "# engineer_2: one of one\na = 1\n")]).await;
    let mut ada = shop.session(0);
    ada.call(json!({"command": "view", "path": "a.py"})).await;
    let takes =
        json!({"command": "str_replace", "path": "a.py", "old_str": "# engineer_2: one of one\n", "intent": "tidy"});
    let result = ada.call(takes).await;
    assert_eq!(result.code.as_deref(), Some("annotation_lost"), "{}", result.text);
}

#[tokio::test]
async fn listing_a_missing_directory_and_an_edit_without_change_are_errors() {
    let shop = Workshop::open(2, &json!({}), &[("src/a.py", "a = 1\r\n")]).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    let result = ada.call(json!({"command": "list", "path": "lib"})).await;
    assert_eq!(result.code.as_deref(), Some("no_such_file"), "{}", result.text);
    assert!(ada.call(json!({"command": "list", "path": "src"})).await.text.contains("src/a.py"));
    let result = ada.call(json!({"command": "view", "path": "src/a.py"})).await;
    assert!(result.text.contains("lines end in CRLF"), "{}", result.text);
    bob.call(json!({"command": "view", "path": "src/a.py"})).await;
    let result =
        ada.call(json!({"command": "create", "path": "src/a.py", "file_text": "a = 1\n", "intent": "the same"})).await;
    assert_eq!(result.code.as_deref(), Some("no_change"), "{}", result.text);
    let result =
        bob.call(json!({"command": "create", "path": "src/a.py", "file_text": "a = 2\n", "intent": "two"})).await;
    assert!(!result.is_error(), "nobody has to read again: {}", result.text);
    assert!(shop.text("src/a.py").expect("a file").ends_with("a = 2\r\n"));
}

#[tokio::test]
async fn changes_that_were_not_shown_must_be_viewed_before_an_edit() {
    let lines: Vec<String> = (0..200).map(|n| format!("{}\n", "x".repeat(60 + n % 7))).collect();
    let text = lines.concat();
    let shop =
        Workshop::open(2, &json!({"payload": 2500, "presentation": "diff"}), &[("g.txt", &text), ("a.txt", "a\n")])
            .await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    for name in ["g.txt", "a.txt"] {
        ada.call(json!({"command": "view", "path": name})).await;
    }
    bob.call(json!({"command": "view", "path": "g.txt"})).await;
    let changed: Vec<String> =
        lines.iter().enumerate().map(|(n, line)| if n % 25 == 0 { format!("{n}\n") } else { line.clone() }).collect();
    let result = bob
        .call(json!({"command": "create", "path": "g.txt", "file_text": changed.concat(), "intent": "numbers"}))
        .await;
    assert!(!result.is_error(), "{}", result.text);
    let edit = json!({"command": "create", "path": "a.txt", "file_text": "b\n", "intent": "b"});
    for _ in 0..2 {
        let result = ada.call(edit.clone()).await;
        assert_eq!(result.code.as_deref(), Some("stale_read"), "not all of it was shown: {}", result.text);
        assert!(result.text.contains("view it again"), "{}", result.text);
    }
    ada.call(json!({"command": "view", "path": "g.txt"})).await;
    let result = ada.call(edit).await;
    assert!(!result.is_error(), "{}", result.text);
}

#[tokio::test]
async fn a_file_turned_unservable_leaves_other_files_editable() {
    let shop = Workshop::open(1, &json!({}), &[("a.txt", "a\n"), ("b.txt", "b\n")]).await;
    let mut ada = shop.session(0);
    for name in ["a.txt", "b.txt"] {
        ada.call(json!({"command": "view", "path": name})).await;
    }
    std::fs::write(shop.directory.path().join("b.txt"), b"\0binary").expect("written");
    let edit = json!({"command": "create", "path": "a.txt", "file_text": "c\n", "intent": "c"});
    let result = ada.call(edit.clone()).await;
    assert_eq!(result.code.as_deref(), Some("stale_read"), "{}", result.text);
    let result = ada.call(edit).await;
    assert!(!result.is_error(), "{}", result.text);
}

#[tokio::test]
async fn edit_results_reveal_nothing_of_unreadable_files() {
    let shop =
        Workshop::open(1, &json!({}), &[("pub/a.py", "a = 1\n"), ("secret/k.py", "PASSWORD = 'hunter2'\n")]).await;
    let mut author = shop.session(0).author().clone();
    let files = json!({"view": ["pub/**"], "edit": ["**"]});
    author.access = Access::compile(&serde_json::from_value(files).expect("access")).expect("patterns");
    let mut ada = Session::new(Arc::clone(&shop.workspace), author);
    for arguments in [
        json!({"command": "str_replace", "path": "secret/k.py", "old_str": "PASSWORD = ''", "intent": "x"}),
        json!({"command": "create", "path": "secret/k.py", "file_text": "", "intent": "x"}),
        json!({"command": "delete", "path": "secret/k.py", "intent": "x"}),
        json!({"command": "rename", "path": "secret/k.py", "new_path": "pub/k.py", "intent": "x"}),
        json!({"command": "rename", "path": "pub/a.py", "new_path": "secret/k.py", "intent": "x"}),
        json!({"command": "view", "path": "secret/k.py"}),
        json!({"command": "search", "pattern": "hunter"}),
    ] {
        let result = ada.call(arguments.clone()).await;
        assert!(
            !result.text.contains("hunter2") && !result.data.to_string().contains("hunter2"),
            "{arguments}: {}",
            result.text
        );
    }
    assert_eq!(shop.text("secret/k.py").as_deref(), Some("PASSWORD = 'hunter2'\n"));
}
