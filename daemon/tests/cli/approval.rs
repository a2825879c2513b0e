//! A board that asks a person waits with exit code 5, and resumes with the answer.

use serde_json::{Value, json};

use crate::sandbox::{CommandResult, NOTES, Sandbox};

/// Returns the board of the notes, where a person must approve each note and the writer's second reply differs.
fn asked() -> (Sandbox, CommandResult) {
    let sandbox = Sandbox::new();
    let blueprint = NOTES
        .replace("workers:\n", "workers:\n  boss: {agent: human}\n")
        .replace("{status: {const: draft}}}}]", "{status: {const: draft}}}, approval: {by: boss}}]")
        .replace("intent: \"one \\e[31mred note\"}", "intent: because}");
    sandbox.write("asked.yaml", blueprint);
    let ran = sandbox.run(&["--output", "json", "run", "asked.yaml", "--request", "{\"topic\": \"x\"}"]);
    (sandbox, ran)
}

/// Returns the number of the question that a run ended with.
fn asked_under(ran: &Value) -> String {
    ran["questions"][0]["seq"].to_string()
}

#[test]
fn without_a_number_the_questions_are_shown_and_nothing_is_answered() {
    let (sandbox, ran) = asked();
    let seq = asked_under(&ran.expect_exit(5).json());
    for command in ["approve", "deny"] {
        let shown = sandbox.run(&[command, "last"]).expect_exit(2);
        assert!(shown.stderr.contains("writer asks boss to agree") && shown.stderr.contains(&seq), "{}", shown.stderr);
        let error = sandbox.run(&["--output", "json", command, "last"]).expect_exit(2).error();
        assert_eq!((&error["code"], &error["questions"][0]["seq"].to_string()), (&json!("which_question"), &seq));
    }
    let log = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
    assert!(!log.contains("boss agrees") && !log.contains("does not agree"), "nobody has answered: {log}");
}

#[test]
fn a_board_waits_for_an_answer_and_goes_on_with_it() {
    let (sandbox, ran) = asked();
    let ran = ran.expect_exit(5);
    let waiting = ran.json();
    assert_eq!((&waiting["end"], &waiting["paused"]), (&Value::Null, &json!(false)));
    let question = &waiting["questions"][0];
    assert_eq!((&question["approver"], &question["intent"]), (&json!("boss"), &json!("because")));
    assert_eq!(question["patch"][0]["path"], "/notes/-");

    // `resume` repeats the question and the commands that answer it.
    let again = sandbox.run(&["resume", "last"]).expect_exit(5).stdout;
    let seq = question["seq"].to_string();
    assert!(again.contains("waiting for 1 answer") && again.contains("writer asks boss to agree"), "{again}");
    assert!(again.contains(&format!(" {seq}, or: patchboard deny ")), "{again}");

    let unknown = sandbox.run(&["--output", "json", "approve", "last", "999"]).expect_exit(2).error();
    assert_eq!((&unknown["code"], &unknown["questions"][0]["seq"]), (&json!("not_pending"), &question["seq"]));

    let done = sandbox.run(&["--output", "json", "approve", "last", &seq, "--reason", "fine"]).expect_exit(0).json();
    assert_eq!((&done["end"], &done["state"]["notes"][0]["text"]), (&json!("done"), &json!("first")));
    let log = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
    assert!(log.contains("boss agrees to") && log.contains(": fine"), "{log}");
    sandbox.run(&["replay", "last"]).expect_exit(0);
    sandbox.run(&["verify", "last"]).expect_exit(0);
    let why = sandbox.run(&["why", "last", "/notes/0/text"]).expect_exit(0).stdout;
    assert!(why.contains("boss agreed") && why.contains("fine"), "{why}");
    assert_eq!(sandbox.run(&["--output", "json", "approve", "last"]).expect_exit(2).error()["code"], "not_pending");
}

#[test]
fn approval_questions_show_invisible_characters() {
    let sandbox = Sandbox::new();
    let hidden = r#"intent: "be\u200Bcause\u202Eof\U000E0041\u2066it\u00AD\uFEFF""#;
    let blueprint = NOTES
        .replace("workers:\n", "workers:\n  boss: {agent: human}\n")
        .replace("{status: {const: draft}}}}]", "{status: {const: draft}}}, approval: {by: boss}}]")
        .replace("text: first", r#"text: "fi\u200Drst""#)
        .replace("intent: \"one \\e[31mred note\"", hidden);
    let file = "as\u{202e}ked\u{2066}.yaml";
    sandbox.write(file, blueprint);
    let run = sandbox.run(&["run", file, "--request", "{\"topic\": \"x\"}"]).expect_exit(5);
    let missing = sandbox.run(&["check", file, "no\u{2069}ne.yaml"]).expect_exit(2);
    let (inbox, approve) = (sandbox.run(&["inbox"]).expect_exit(0), sandbox.run(&["approve", "last"]).expect_exit(2));
    let is_hidden = |c: char| matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    for ran in [&run, &missing, &inbox, &approve] {
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!printed.contains(is_hidden), "{printed:?}");
    }
    let intent = "be<U+200B>cause<U+202E>of<U+E0041><U+2066>it<U+00AD><U+FEFF>";
    for text in [&run.stdout, &inbox.stdout, &approve.stderr] {
        assert!(text.contains(intent) && text.contains("fi\\u200drst"), "{text}");
    }
    assert!(missing.stdout.contains("no<U+2069>ne.yaml"), "{}{}", missing.stdout, missing.stderr);
    let asked = sandbox.run(&["inbox", "--output", "json"]).expect_exit(0);
    assert!(!asked.stdout.contains(is_hidden), "{}", asked.stdout);
    assert_eq!(asked.json()["questions"][0]["patch"][0]["value"]["text"], "fi\u{200d}rst", "the value is the same");
}

#[test]
fn a_denial_is_reported_to_the_worker_who_asks_again() {
    let (sandbox, ran) = asked();
    let ran = ran.expect_exit(5).json();
    let denied = sandbox
        .run(&["--output", "json", "deny", "last", &asked_under(&ran), "--reason", "too short", "--no-run"])
        .expect_exit(0)
        .json();
    assert_eq!(denied["outcome"], "rejected");
    let view = sandbox.run(&["view", "last", "writer"]).expect_exit(0).stdout;
    assert!(view.contains("approval/denied") && view.contains("boss does not agree: too short"), "{view}");
    // The script gives the same reply again, so the question is asked again.
    let ran = sandbox.run(&["--output", "json", "resume", "last"]).expect_exit(5).json();
    assert_eq!(ran["questions"].as_array().map(Vec::len), Some(1));
    let denied = sandbox.run(&["--output", "json", "deny", "last", &asked_under(&ran)]).expect_exit(4).json();
    assert_eq!(denied["cause"], "gave_up", "that was the last attempt");
}

#[test]
fn a_rejected_answer_leaves_the_journal_unchanged() {
    let (sandbox, _) = asked();
    let eyes = std::fs::read_to_string(sandbox.path().join("asked.yaml")).expect("a blueprint");
    sandbox.write("eyes.yaml", eyes.replace("approval: {by: boss}", "approval: {by: boss, four_eyes: true}"));
    let ran = sandbox.run(&["--output", "json", "run", "eyes.yaml", "--request", "{\"topic\": \"x\"}"]);
    let seq = asked_under(&ran.expect_exit(5).json());
    let log = || sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).stdout;
    let before = log();
    for no_run in [&["--no-run"][..], &[]] {
        let refused =
            sandbox.run(&[&["approve", "last", &seq, "--output", "json"], no_run].concat()).expect_exit(2).error();
        assert_eq!(refused["code"], "four_eyes", "{refused}");
        assert_eq!(log(), before);
    }
}

/// Returns the board of the notes; its writer first asks the boss about the note to write.
fn asking() -> (Sandbox, CommandResult) {
    let sandbox = Sandbox::new();
    let blueprint = NOTES
        .replace("workers:\n", "workers:\n  boss: {agent: human}\n")
        .replace("    role: Write notes.\n", "    role: Write notes.\n    clarify: {by: boss, expires: 1h}\n")
        .replace(
            "      - [{op: add, path: /notes/-, value: {text: bad, status: checked}}]\n",
            "      - {clarify: {question: \"Which\\e[31m one?\", choices: [first, second]}}\n",
        );
    sandbox.write("asking.yaml", blueprint);
    let ran = sandbox.run(&["--output", "json", "run", "asking.yaml", "--request", "{\"topic\": \"x\"}"]);
    (sandbox, ran)
}

#[test]
fn a_worker_asks_and_goes_on_with_the_answer() {
    let (sandbox, ran) = asking();
    let seq = asked_under(&ran.expect_exit(5).json());
    let listed = sandbox.run(&["--output", "json", "inbox"]).expect_exit(0).json();
    assert_eq!(listed["questions"][0]["clarify"]["choices"], json!(["first", "second"]));
    let shown = sandbox.run(&["inbox"]).expect_exit(0).stdout;
    assert!(shown.contains("writer asks boss") && shown.contains("(first, second)"), "{shown}");
    assert!(shown.contains(&format!(" {seq} --text TEXT")) && !shown.contains('\u{1b}'), "{shown}");

    // An invalid answer changes nothing.
    let refuses = |arguments: &[&str], code: &str| {
        let error = sandbox.run(&[&["--output", "json"], arguments].concat()).expect_exit(2).error();
        assert_eq!(error["code"], code, "{error}");
    };
    refuses(&["answer", "last"], "which_question");
    refuses(&["answer", "last", &seq], "answer_missing");
    refuses(&["answer", "last", &seq, "--text", "third"], "answer_not_offered");
    refuses(&["approve", "last", &seq], "answer_not_offered");
    let answered = sandbox.run(&["--output", "json", "answer", "last", &seq, "--text", "first", "--no-run"]);
    assert_eq!(answered.expect_exit(0).json()["outcome"], "answered");
    let done = sandbox.run(&["--output", "json", "resume", "last"]).expect_exit(0).json();
    assert_eq!((&done["end"], &done["state"]["notes"][0]["text"]), (&json!("done"), &json!("first")));
    let log = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
    assert!(log.contains("asks boss: Which") && log.contains("boss answers") && log.contains(": first"), "{log}");
    sandbox.run(&["replay", "last"]).expect_exit(0);
    sandbox.run(&["verify", "last"]).expect_exit(0);
    assert_eq!(sandbox.run(&["--output", "json", "inbox"]).expect_exit(0).json()["questions"], json!([]));
}
