//! `patchboard check`.

use crate::sandbox::{NOTES, Sandbox};

#[test]
fn a_sound_blueprint_passes() {
    let ran = Sandbox::new().run(&["check", "notes.yaml"]).expect_exit(0);
    assert_eq!(ran.stdout, "1 blueprint: 0 errors, 0 warnings: ok\n");
    assert_eq!(ran.stderr, "");
}

#[test]
fn every_finding_points_at_its_line_and_says_how_to_mend_it() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.yaml", NOTES.replace("run: checker", "run: chekcer").replace("path: /answer", "path: /anwser"));
    let ran = sandbox.run(&["check", "bad.yaml"]).expect_exit(2);
    let line = 1 + NOTES.lines().position(|line| line.contains("run: checker")).expect("a line names the worker");
    for part in [
        "error[undeclared_worker]: ".to_owned(),
        format!("--> bad.yaml:{line}:"),
        format!("{line} |   - {{name: check, trigger: {{op: add, path: /notes/*}}, run: chekcer}}"),
        "Did you mean `checker`?".to_owned(),
        "error[unknown_path]: ".to_owned(),
        "1 blueprint: 2 errors, 0 warnings: refused".to_owned(),
    ] {
        assert!(ran.stdout.contains(&part), "{part:?} is not in:\n{}", ran.stdout);
    }
    assert!(!ran.stdout.contains('\u{1b}'), "no colours where no terminal reads: {:?}", ran.stdout);
}

#[test]
fn a_report_that_is_full_says_so() {
    let sandbox = Sandbox::new();
    let models: String = (0..120).map(|number| format!("  m{number}: {number}\n")).collect();
    sandbox.write("many.yaml", format!("{NOTES}models:\n{models}"));
    let ran = sandbox.run(&["check", "many.yaml"]).expect_exit(2);
    assert!(ran.stderr.contains("these are the first 100 findings on many.yaml"), "{}", ran.stderr);
    let few = sandbox.run(&["check", "notes.yaml"]).expect_exit(0);
    assert!(!few.stderr.contains("these are the first"), "{}", few.stderr);
}

#[test]
fn findings_are_reported_as_one_json_value() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.yaml", NOTES.replace("run: checker", "run: chekcer"));
    let found = sandbox.run(&["check", "notes.yaml", "bad.yaml", "--output", "json"]).expect_exit(2).json();
    assert_eq!((&found["ok"], &found["errors"]), (&false.into(), &1.into()));
    let finding = &found["findings"][0];
    assert_eq!(finding["code"], "undeclared_worker");
    assert_eq!(finding["severity"], "error");
    assert_eq!(finding["file"], "bad.yaml");
    assert_eq!(finding["pointer"], "/rules/1/run");
    assert!(finding["line"].is_u64() && finding["column"].is_u64(), "{finding}");
}

#[test]
fn a_configuration_that_is_named_is_read_and_no_value_of_it_is_repeated() {
    let sandbox = Sandbox::new();
    let text = |line: &str| format!("[models.default]\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n{line}\n");
    sandbox.write("good.toml", text("context = 4096"));
    sandbox.run(&["check", "notes.yaml", "--config", "good.toml"]).expect_exit(0);
    for (line, words) in [
        ("api_key = \"sk-s3cret\"", "bad.toml: line 4, column 1: unknown field `api_key`"),
        ("api_key_env = \"sk-s3cret\"", "bad.toml: line 4, column 15: api_key_env: this is the name"),
        ("[serve]\nlisten_at = \"sk-s3cret\"", "bad.toml: line 5, column 1: unknown field `listen_at`"),
        ("[retention]\nendet = \"sk-s3cret\"", "bad.toml: line 5, column 1: unknown field `endet`"),
        ("[notify]\nwebhok = \"sk-s3cret\"", "bad.toml: line 5, column 1: unknown field `webhok`"),
    ] {
        sandbox.write("bad.toml", text(line));
        let ran = sandbox.run(&["check", "notes.yaml", "--config", "bad.toml", "--output", "json"]);
        assert!(!ran.stderr.contains("s3cret") && !ran.stdout.contains("s3cret"), "{}", ran.stderr);
        assert_eq!(ran.error()["code"], "bad_config");
        assert!(ran.expect_exit(2).stderr.contains(words));
    }
}

#[test]
fn warnings_pass_unless_they_are_denied() {
    let sandbox = Sandbox::new();
    sandbox.write("endless.yaml", NOTES.replace("done: {when: has(state.answer)}\n", ""));
    let ran = sandbox.run(&["check", "endless.yaml"]).expect_exit(0);
    assert!(ran.stdout.contains("warning[no_done]"), "{}", ran.stdout);
    sandbox.run(&["check", "--deny-warnings", "endless.yaml"]).expect_exit(2);
}

#[test]
fn opaque_places_are_listed_with_what_bounds_them_and_who_writes_there() {
    let sandbox = Sandbox::new();
    let array = "        type: array\n";
    let across = "        contains: {required: [text]}\n        minContains: 0\n        type: array\n";
    let growing = NOTES.replace(array, across);
    assert_ne!(growing, NOTES);
    sandbox.write("bounded.yaml", growing.replace(across, &format!("{across}        maxItems: 9\n")));
    sandbox.write("growing.yaml", growing);
    let plain = sandbox.run(&["check", "--costs", "notes.yaml"]).expect_exit(0);
    assert_eq!(plain.stdout, "1 blueprint: 0 errors, 0 warnings: ok\n");
    let line = 1 + NOTES.lines().position(|line| line == "        type: array").expect("a line says it is an array");
    let because = "a write under `/notes` runs `contains` again on the whole of `/notes`";
    let bounded = sandbox.run(&["check", "--costs", "bounded.yaml"]).expect_exit(0);
    assert!(bounded.stdout.starts_with(&format!("bounded.yaml:{line}:")), "{}", bounded.stdout);
    assert!(bounded.stdout.contains(&format!("{because}; it goes through no collection")), "{}", bounded.stdout);
    let growing = sandbox.run(&["check", "--costs", "growing.yaml"]).expect_exit(0);
    assert!(growing.stdout.contains(&format!("{because}; nothing bounds its size")), "{}", growing.stdout);

    let whole = NOTES.replace(
        "    type: object\n    properties:\n      request",
        "    unevaluatedProperties: false\n    type: object\n    properties:\n      request",
    );
    assert_ne!(whole, NOTES);
    sandbox.write("whole.yaml", whole);
    let whole = sandbox.run(&["check", "--costs", "whole.yaml"]).expect_exit(0);
    let because = "a write under the document validates the whole of the document because of `unevaluatedProperties`";
    assert!(whole.stdout.contains(because), "{}", whole.stdout);

    let files = ["check", "--costs", "--output", "json", "bounded.yaml", "growing.yaml"];
    let costs = sandbox.run(&files).expect_exit(0).json()["costs"].clone();
    assert_eq!(costs.as_array().map(Vec::len), Some(2), "{costs}");
    assert_eq!((&costs[0]["file"], &costs[0]["grows"]), (&"bounded.yaml".into(), &serde_json::Value::Null));
    assert_eq!((&costs[1]["file"], &costs[1]["grows"]), (&"growing.yaml".into(), &"/notes".into()));
    assert_eq!(costs[0]["pointer"], "/state/schema/properties/notes/contains");
    assert!(costs[0]["writers"].as_array().is_some_and(|writers| !writers.is_empty()), "{costs}");
}

/// A worker that reads documents through a small view.
const READER: &str = include_str!("../reading.yaml");

#[test]
fn a_run_and_its_log_count_the_calls_that_show_too_little_and_name_the_worst() {
    let sandbox = Sandbox::new();
    let bound = READER
        .replace("blueprint: 1", "blueprint: 2")
        .replace("reads: [/request/documents]", "reads: [\"/request/documents/{document}\"]")
        .replace("{op: add, path: /answer, value: ok}", "")
        .replace("trigger: start", "trigger: {start: \"/request/documents/{document}\"}");
    sandbox.write("reading.yaml", bound);
    let documents: Vec<String> = [400, 10, 900, 500].map(|words| "word ".repeat(words)).into();
    sandbox.write("request.json", serde_json::json!({"documents": documents}).to_string());
    let ran = sandbox.run(&["run", "reading.yaml", "--request", "@request.json"]).expect_exit(4);
    let sentence = "2 more calls of researcher showed too little; the largest: researcher does not see all of /request/documents/2";
    assert!(ran.stderr.contains(sentence), "{}", ran.stderr);
    let logged = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
    assert!(logged.contains(sentence), "{logged}");
}

#[test]
fn view_shortages_are_reported_by_check_run_and_log() {
    let sandbox = Sandbox::new();
    sandbox.write("reading.yaml", READER);
    let documents = vec!["word ".repeat(560); 5];
    sandbox.write("request.json", serde_json::json!({"documents": documents}).to_string());
    let sentence = "researcher sees 0 of 5 parts of /request/documents: all need up to 14,016 characters beside the rest, \
                    view.budget is 1,500";
    let found = sandbox.run(&["check", "reading.yaml", "--request", "@request.json"]).expect_exit(0);
    let line = 1 + READER.lines().position(|line| line.contains("budget")).expect("a line sets the budget");
    for part in ["warning[view_shortage]: ", sentence, &format!("--> reading.yaml:{line}:")] {
        assert!(found.stdout.contains(part), "{part:?} is not in:\n{}", found.stdout);
    }
    sandbox.run(&["check", "reading.yaml", "--request", "@request.json", "--deny-warnings"]).expect_exit(2);

    let ran = sandbox.run(&["run", "reading.yaml", "--request", "@request.json"]).expect_exit(0);
    assert_eq!(ran.stderr.matches(sentence).count(), 1, "{}", ran.stderr);
    let logged = sandbox.run(&["log", "last"]).expect_exit(0);
    assert_eq!(logged.stdout.matches(sentence).count(), 1, "{}", logged.stdout);
    let ran =
        sandbox.run(&["run", "reading.yaml", "--request", "@request.json", "--output", "json"]).expect_exit(0).json();
    assert_eq!((&ran["unshown"][0]["worker"], &ran["unshown"][0]["of"]), (&"researcher".into(), &5.into()), "{ran}");

    // Without an explicit budget, the view budget follows from the model and fits ordinary documents.
    sandbox.write("reading.yaml", READER.replace("    view: {budget: 1500}\n", ""));
    let found = sandbox.run(&["check", "reading.yaml", "--request", "@request.json"]).expect_exit(0);
    assert_eq!(found.stdout, "1 blueprint: 0 errors, 0 warnings: ok\n");
    let ran = sandbox.run(&["run", "reading.yaml", "--request", "@request.json"]).expect_exit(0);
    assert!(!ran.stderr.contains("not shown"), "{}", ran.stderr);
    // With a small model context it does not fit.
    let model = "[models.default]\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\ncontext = 4096\n";
    sandbox.write("small.toml", model);
    sandbox.write(
        "reading.yaml",
        READER
            .replace("    view: {budget: 1500}\n", "")
            .replace("agent: script", "agent: llm")
            .replace("    script: [[{op: add, path: /answer, value: ok}]]\n", ""),
    );
    let small = ["check", "reading.yaml", "--request", "@request.json", "--config", "small.toml"];
    let found = sandbox.run(&small).expect_exit(0);
    assert!(
        found.stdout.contains("view.budget is 4,608") && found.stdout.contains("larger context"),
        "{}",
        found.stdout
    );
    // `check` rejects an invalid request as `run` does.
    let refused = sandbox.run(&["check", "reading.yaml", "--request", "{\"documents\": 3}"]).expect_exit(2);
    assert!(refused.stderr.contains("/documents: must be of type array"), "{}", refused.stderr);
}

#[test]
fn a_text_that_is_no_blueprint_and_a_file_that_is_not_there_are_findings() {
    let sandbox = Sandbox::new();
    sandbox.write("broken.yaml", "blueprint: 1\nname: [\n");
    assert!(sandbox.run(&["check", "broken.yaml"]).expect_exit(2).stdout.contains("error[yaml_syntax]"));
    let wrong = NOTES.replace("run: checker", "run: nobody");
    sandbox.write("wrong.yaml", wrong);
    let found = sandbox.run(&["check", "notes.yaml", "missing.yaml", "wrong.yaml", "--output", "json"]).expect_exit(2);
    assert_eq!(found.stderr, "");
    let found = found.json();
    assert_eq!((&found["ok"], &found["errors"]), (&false.into(), &2.into()));
    assert_eq!(found["findings"][0]["code"], "blueprint_unreadable");
    assert_eq!(found["findings"][0]["file"], "missing.yaml");
    assert_eq!(found["findings"][1]["file"], "wrong.yaml", "the files after it are checked, too");
    let text = sandbox.run(&["check", "missing.yaml", "notes.yaml"]).expect_exit(2).stdout;
    assert!(text.contains("error[blueprint_unreadable]: missing.yaml cannot be read"), "{text}");
    assert!(text.contains("2 blueprints: 1 error, 0 warnings: refused"), "{text}");
}

#[test]
fn fragments_are_read_from_below_the_blueprints_directory_only() {
    let sandbox = Sandbox::new();
    let rules = "  - {name: begin, trigger: start, run: writer}\n";
    sandbox.write("in/parts/begin.yaml", format!("rules:\n{rules}"));
    sandbox.write("outside.yaml", format!("rules:\n{rules}"));
    let blueprint = NOTES.replace(rules, "");
    sandbox.write("in/good.yaml", format!("{blueprint}use: [parts/begin.yaml]\n"));
    sandbox.run(&["check", "in/good.yaml", "--deny-warnings"]).expect_exit(0);
    let absolute = sandbox.path().join("outside.yaml");
    for path in ["../outside.yaml", absolute.to_str().expect("the path is text")] {
        sandbox.write("in/escaping.yaml", format!("{blueprint}use: [{path}]\n"));
        let ran = sandbox.run(&["check", "in/escaping.yaml"]).expect_exit(2);
        assert!(ran.stdout.contains("error[fragment_unreadable]"), "{path}: {}", ran.stdout);
    }
}

#[test]
#[cfg(unix)]
fn a_link_does_not_lead_a_fragment_out_of_the_directory() {
    let sandbox = Sandbox::new();
    sandbox.write("outside.yaml", "rules: []\n");
    sandbox.write("in/escaping.yaml", format!("{NOTES}use: [inside.yaml]\n"));
    std::os::unix::fs::symlink("../outside.yaml", sandbox.path().join("in/inside.yaml")).expect("a link can be made");
    let ran = sandbox.run(&["check", "in/escaping.yaml"]).expect_exit(2);
    assert!(ran.stdout.contains("error[fragment_unreadable]"), "{}", ran.stdout);
}

#[test]
fn a_finding_in_a_fragment_shows_the_fragments_line() {
    let sandbox = Sandbox::new();
    sandbox.write("in/part.yaml", "rules:\n  - {name: more, trigger: start, run: nobody}\n");
    sandbox.write("in/main.yaml", format!("{NOTES}use: [part.yaml]\n"));
    let ran = sandbox.run(&["check", "in/main.yaml"]).expect_exit(2);
    assert!(ran.stdout.contains("--> in/part.yaml:2:"), "{}", ran.stdout);
    assert!(ran.stdout.contains("2 |   - {name: more, trigger: start, run: nobody}"), "{}", ran.stdout);
}

#[test]
fn codes_are_listed_and_explained() {
    let sandbox = Sandbox::new();
    let listed = sandbox.run(&["check", "--codes", "--output", "json"]).expect_exit(0).lines();
    assert!(listed.len() > 20, "{} codes", listed.len());
    for entry in &listed {
        let code = entry["code"].as_str().expect("a code is text");
        let explained = sandbox.run(&["check", "--explain", code]).expect_exit(0).stdout;
        let meaning = entry["meaning"].as_str().expect("a meaning is text");
        assert!(explained.contains(meaning), "{code}: {explained}");
    }
    assert_eq!(
        sandbox.run(&["check", "--explain", "nothing", "--output=json"]).expect_exit(2).error()["code"],
        "unknown_code"
    );
}

#[test]
fn a_blueprint_cannot_reach_the_terminal_through_a_finding() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.yaml", NOTES.replace("run: checker", r#"run: "chek\e[2J\u009b31m\u202ecer""#));
    let ran = sandbox.run(&["check", "bad.yaml"]).expect_exit(2);
    let acts = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
    assert!(!ran.stdout.chars().any(|c| acts(&c)), "{:?}", ran.stdout);
}

#[test]
fn a_wrong_command_line_is_reported_with_exit_2() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["check"]).expect_exit(2);
    assert!(ran.stderr.contains("Usage: patchboard check"), "{}", ran.stderr);
    let ran = sandbox.run(&["--output", "json", "check", "--nonsense"]).expect_exit(2);
    assert_eq!(ran.error()["code"], "usage");
}

#[test]
fn every_command_explains_itself_with_examples() {
    let sandbox = Sandbox::new();
    let commands = [
        "check", "run", "pipe", "boards", "resume", "signal", "approve", "deny", "log", "state", "view", "why",
        "replay", "verify", "export",
    ];
    let overview = sandbox.run(&["--help"]).expect_exit(0).stdout;
    for command in commands {
        assert!(overview.contains(&format!("\n  {command} ")), "{command} is not in the overview:\n{overview}");
        let help = sandbox.run(&[command, "--help"]).expect_exit(0).stdout;
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let promised = match command {
            "export" => "texts of views and prompts are not in it",
            "run" | "resume" | "signal" => "OPENAI_API_KEY is not sent there unless --api-key-env says so",
            _ => "",
        };
        assert!(words.contains(promised), "{help}");
        assert!(help.contains("Examples:") && help.contains(&format!("patchboard {command}")), "{help}");
    }
}

#[test]
fn schemas_are_printed_and_standard_input_serves_as_a_file() {
    let sandbox = Sandbox::new();
    for (arguments, member) in [(&["schema"][..], "workers"), (&["schema", "department"], "promises")] {
        let schema: serde_json::Value = sandbox.run(arguments).expect_exit(0).json();
        assert!(schema["$schema"].is_string() && schema["properties"].is_object(), "{member}: {schema}");
    }
    let ran = sandbox.run_with(&["check", "-"], NOTES).expect_exit(0);
    assert_eq!(ran.stdout, "1 blueprint: 0 errors, 0 warnings: ok\n");
    let ran = sandbox.run_with(&["check", "-"], NOTES.replace("run: checker", "run: chekcer")).expect_exit(2);
    assert!(ran.stdout.contains("undeclared_worker") && ran.stdout.contains("--> -:"), "{}", ran.stdout);
    for command in ["run", "check"] {
        let twice = sandbox.run_with(&[command, "-", "--request", "@-", "--output", "json"], NOTES).expect_exit(2);
        assert!(
            twice.error()["message"].as_str().is_some_and(|message| message.contains("named twice")),
            "{}",
            twice.stderr
        );
    }
    for request in ["@-", "-"] {
        let ran = sandbox
            .run_with(&["run", "notes.yaml", "--request", request, "--output", "json"], r#"{"topic": "x"}"#)
            .expect_exit(0)
            .json();
        assert_eq!(ran["state"]["request"]["topic"], "x");
    }
    let ran = sandbox
        .run_with(&["run", "-", "--request", r#"{"topic": "x"}"#, "--output", "json"], NOTES)
        .expect_exit(0)
        .json();
    assert_eq!(ran["end"], "done");
    let refused = sandbox.run_with(&["run", "notes.yaml", "--request", "@-"], "{").expect_exit(2);
    assert!(refused.stderr.contains("standard input is no acceptable JSON"), "{}", refused.stderr);
}
