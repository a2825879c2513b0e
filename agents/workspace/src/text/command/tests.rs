//! Commands as editors write them, and messages about wrong arguments.

use serde_json::json;

use super::*;

fn parsed(arguments: Value) -> Result<Command, String> {
    Command::parse(arguments).map_err(|error| {
        assert_eq!(error.code, EditCode::BadArguments);
        error.message
    })
}

fn path(name: &str) -> FilePath {
    FilePath::parse(name).expect("a name")
}

#[test]
fn commands_are_read_as_editors_write_them() {
    let basis = |intent: Option<&str>| EditBasis { intent: intent.map(str::to_owned), version: None };
    let edit = |edit, intent| Command::Edit { path: path("a.py"), edit, basis: basis(intent) };
    let insert = || EditCommand::Insert { insert_line: 0, insert_text: "x\n".to_owned() };
    let cases = [
        (json!({"command": "view", "path": "a.py"}), Command::View { path: path("a.py"), range: None, columns: None }),
        (
            json!({"command": "view", "path": "./a.py", "view_range": [3, -1], "file_text": null}),
            Command::View { path: path("a.py"), range: Some((3, None)), columns: None },
        ),
        (
            json!({"command": "view", "path": "a.py", "view_range": [3, 9]}),
            Command::View { path: path("a.py"), range: Some((3, Some(9))), columns: None },
        ),
        (
            json!({"command": "view", "path": "a.py", "view_range": [3, 3], "view_columns": [2001, -1]}),
            Command::View { path: path("a.py"), range: Some((3, Some(3))), columns: Some((2001, None)) },
        ),
        (json!({"command": "view", "path": "."}), Command::List { path: None }),
        (
            json!({"command": "view", "file_path": "a.py", "offset": 3, "limit": 7}),
            Command::View { path: path("a.py"), range: Some((3, Some(9))), columns: None },
        ),
        (
            json!({"command": "view", "file_path": "a.py", "offset": 3}),
            Command::View { path: path("a.py"), range: Some((3, None)), columns: None },
        ),
        (
            json!({"command": "create", "file_path": "a.py", "content": "x\n", "intent": "why"}),
            edit(EditCommand::Create { file_text: "x\n".to_owned() }, Some("why")),
        ),
        (
            json!({
                "command": "str_replace", "file_path": "a.py", "old_string": "x", "new_string": "y", "replace_all": false,
            }),
            edit(EditCommand::StrReplace { old_str: "x".to_owned(), new_str: "y".to_owned() }, None),
        ),
        (json!({"command": "list", "path": "src/"}), Command::List { path: Some(path("src")) }),
        (
            json!({"command": "search", "pattern": "def ", "regex": true}),
            Command::Search { path: None, pattern: "def ".to_owned(), is_regex: true },
        ),
        (
            json!({"command": "create", "path": "a.py", "file_text": "x\n", "intent": "why"}),
            edit(EditCommand::Create { file_text: "x\n".to_owned() }, Some("why")),
        ),
        (
            json!({"command": "str_replace", "path": "a.py", "old_str": "x"}),
            edit(EditCommand::StrReplace { old_str: "x".to_owned(), new_str: String::new() }, None),
        ),
        (json!({"command": "insert", "path": "a.py", "insert_line": 0, "insert_text": "x\n"}), edit(insert(), None)),
        (json!({"command": "insert", "path": "a.py", "insert_line": 0, "new_str": "x\n"}), edit(insert(), None)),
        (json!({"command": "delete", "path": "a.py", "intent": "old"}), edit(EditCommand::Delete, Some("old"))),
        (
            json!({"command": "rename", "path": "a.py", "new_path": "b.py", "version": 4}),
            Command::Rename {
                path: path("a.py"),
                to: path("b.py"),
                basis: EditBasis { intent: None, version: Some(4) },
            },
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(parsed(arguments.clone()), Ok(expected), "{arguments}");
    }
}

#[test]
fn invalid_arguments_are_explained_in_words() {
    let cases = [
        (json!("view"), "invalid type"),
        (json!({"path": "a"}), "there is no `command`"),
        (json!({"command": "undo_edit", "path": "a"}), "unknown variant `undo_edit`, expected one of `view`, `list`"),
        (json!({"command": "view", "path": "a", "folder": 1}), "cannot be used: unknown field `folder`."),
        (json!({"command": "create", "path": "a"}), "`create` needs `file_text`"),
        (json!({"command": "create", "file_text": "a"}), "`create` needs `path`"),
        (json!({"command": "delete", "path": "../a"}), "no `.` and no `..`"),
        (json!({"command": "delete", "path": "/a"}), "relative to the directory"),
        (json!({"command": "insert", "path": "a", "insert_line": -1, "insert_text": ""}), "invalid value"),
        (json!({"command": "insert", "path": "a", "insert_line": 1}), "`insert` needs `insert_text`"),
        (json!({"command": "insert", "path": "a", "insert_line": 1, "insert_text": "", "new_str": ""}), "not both"),
        (json!({"command": "view", "path": "a", "view_range": [3]}), "`view_range`"),
        (json!({"command": "view", "path": "a", "view_range": [3, 2]}), "`view_range`"),
        (json!({"command": "view", "path": "a", "view_range": [0, -1]}), "`view_range`"),
        (json!({"command": "view", "path": "a", "old_str": "x"}), "does not take `old_str`"),
        (json!({"command": "rename", "path": "a", "new_path": "a"}), "are the same"),
        (json!({"command": "view", "path": "a", "view_columns": [1, 2]}), "those of one line"),
        (json!({"command": "view", "path": "a", "view_range": [1, 2], "view_columns": [1, 2]}), "those of one line"),
        (json!({"command": "str_replace", "path": "a", "old_str": "x", "replace_all": true}), "no `replace_all`"),
        (json!({"command": "view", "path": "a", "offset": 3, "limit": 0}), "`view_range`"),
        (json!({"command": "view", "path": "a", "view_range": [1, 2], "limit": 3}), "does not take `limit`"),
        (json!({"command": "view", "path": "a", "file_path": "b"}), "duplicate field"),
    ];
    for (arguments, expected) in cases {
        let message = parsed(arguments.clone()).expect_err("refused");
        assert!(message.contains(expected), "{arguments}: {message}");
    }
}

#[test]
fn an_overlong_intent_is_rejected_rather_than_cut() {
    let delete = |intent: &str| Command::parse(json!({"command": "delete", "path": "a", "intent": intent}));
    // White space is one blank, whatever it was.
    assert!(delete(&format!("{}\n  {}", "x".repeat(100), "y".repeat(99))).is_ok());
    let error = delete(&"x".repeat(201)).expect_err("refused");
    assert_eq!(error.code, EditCode::IntentTooLong);
    assert!(error.message.contains("201") && error.message.contains("200"), "{error}");
}

#[test]
fn the_schema_describes_every_argument_and_takes_what_is_read() {
    let schema = schema();
    let arguments = schema["properties"].as_object().expect("arguments");
    assert_eq!(arguments.len(), 14);
    for (name, argument) in arguments {
        assert!(argument["description"].as_str().is_some_and(|text| text.len() > 10), "{name}: {argument}");
        assert!(argument["type"].is_string(), "{name}: {argument}");
    }
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(arguments["command"]["enum"].as_array().map(Vec::len), Some(8));
}
