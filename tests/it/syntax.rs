//! Proves that text other than strict JSON is rejected at a board's `syntax` stage, recorded verbatim, and without
//! effect.

use patchboard_kernel::board::{Board, Input, Outcome, Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::{Body, Record};
use patchboard_kernel::rejection::Stage;
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use patchboard_tests::boards;
use serde_json::{Value, json};

use crate::shared;

/// Board that receives texts as replies of a worker that may write anything below `/notes`.
struct Fed {
    board: Board,
    records: Vec<Record>,
}

impl Fed {
    fn new() -> Self {
        let blueprint = json!({
            "blueprint": 1,
            "name": "fed",
            "state": {"schema": {"type": "object"}, "initial": {"notes": {}}},
            "workers": {"writer": {
                "agent": "script",
                "script": [[]],
                "writes": [{"path": "/notes/**", "ops": ["add", "replace"]}],
                "patch": {"max_bytes": 10_000_000},
            }},
        });
        let (board, step) = boards::of(blueprint);
        Self { board, records: step.records }
    }

    fn reply(&mut self, text: &str) -> Outcome {
        let from = ProposalSource::Direct { key: None, base: None };
        let reply = ReplyBody::Text(text.to_owned());
        let proposal = Proposal { from, worker: "writer".into(), reply, usage: None, raw: None };
        let step = self.board.step(Timestamp(0), Input::Propose(proposal));
        self.records.extend(step.records);
        step.outcome.expect("a proposal has an outcome")
    }

    /// Checks that the text is rejected at `syntax`, and that the journal holds it verbatim.
    fn refuse(&mut self, name: &str, text: &str) {
        let before = self.board.state().digest();
        let outcome = self.reply(text);
        let Outcome::Rejected { rejection, .. } = outcome else { panic!("{name} was {outcome:?}") };
        assert_eq!(rejection.stage, Stage::Syntax, "{name}");
        assert_eq!(self.board.state().digest(), before, "{name} changed the state");
        let last = self.records.last().expect("it was recorded").body().expect("it can be read");
        let Body::Rejected(rejected) = last else { panic!("{name} was recorded as {:?}", last.kind()) };
        assert_eq!(rejected.reply, text, "{name} was not recorded as it came");
    }
}

#[test]
fn malformed_model_output_is_rejected_at_the_syntax_stage() {
    let Some(directory) = shared::find("vectors/malformed-llm-json") else { return };
    let mut fed = Fed::new();
    let mut refused = 0;
    for file in shared::files_in(&directory) {
        let text = std::fs::read_to_string(&file).expect("the vectors are text");
        let cases: Vec<Value> = serde_json::from_str(&text).expect("the vectors are arrays");
        for case in cases.iter().filter(|case| case["strict_json_valid"] == json!(false)) {
            fed.refuse(&case["id"].to_string(), case["input"].as_str().expect("an input is text"));
            refused += 1;
        }
    }
    replay::replay(&fed.records, None, &PLANS).expect("the rejections can be derived again");
    shared::ran("malformed-llm-json through the syntax stage", refused, 400);
}

#[test]
fn invalid_json_texts_are_rejected_at_the_syntax_stage() {
    let Some(directory) = shared::find("vectors/JSONTestSuite/test_parsing") else { return };
    let mut fed = Fed::new();
    let mut refused = 0;
    for file in shared::files_in(&directory) {
        let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
        // Agents return text: invalid UTF-8 is rejected earlier, by the reader of bytes (see `vectors`).
        let text = String::from_utf8(std::fs::read(&file).expect("the vectors can be read"));
        if let (true, Ok(text)) = (name.starts_with("n_"), text) {
            fed.refuse(&name, &text);
            refused += 1;
        }
    }
    shared::ran("JSONTestSuite through the syntax stage", refused, 60);
}

#[test]
fn essential_faults_of_replies_are_rejected_each_with_its_code() {
    let mut fed = Fed::new();
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    let cases = [
        ("I suggest the following patch:", "invalid_json"),
        ("```json\n[]\n```", "invalid_json"),
        ("[{'op':'add'}]", "invalid_json"),
        ("[{\"op\":\"add\",\"path\":\"/notes/a\",\"value\":1},]", "invalid_json"),
        ("[] []", "invalid_json"),
        ("[{\"op\":\"add\",\"path\":\"/notes/a\",\"value\":1,\"value\":2}]", "duplicate_key"),
        ("[{\"op\":\"add\",\"path\":\"/notes/a\",\"value\":1e999}]", "number_out_of_range"),
        (deep.as_str(), "too_deep"),
        ("{\"op\":\"add\",\"path\":\"/notes/a\",\"value\":1}", "not_a_patch"),
        ("[{\"op\":\"add\",\"path\":\"/notes/a\"}]", "not_a_patch"),
        ("[{\"op\":\"merge\",\"path\":\"/notes/a\",\"value\":1}]", "unknown_op"),
        ("[{\"op\":\"add\",\"path\":\"notes/a\",\"value\":1}]", "bad_pointer"),
    ];
    for (text, code) in cases {
        fed.refuse(code, text);
        let Some(Body::Rejected(rejected)) = fed.records.last().and_then(|record| record.body().ok()) else {
            unreachable!("`refuse` has looked at it")
        };
        assert_eq!(rejected.code.as_str(), code, "{text}");
    }
}

#[test]
fn strings_that_break_programs_survive_the_journal_unchanged() {
    let Some(file) = shared::find("vectors/naughty-strings/blns-even.json") else { return };
    let text = std::fs::read_to_string(file).expect("the vectors are text");
    let strings: Vec<String> = serde_json::from_str(&text).expect("the vectors are strings");
    let mut fed = Fed::new();
    let mut kept = 0;
    for (index, string) in strings.iter().enumerate() {
        let key = string.replace('~', "~0").replace('/', "~1");
        let patch = json!([
            {"op": "add", "path": format!("/notes/value-{index}"), "value": string},
            {"op": "add", "path": format!("/notes/{key}"), "value": index},
        ]);
        let outcome = fed.reply(&patch.to_string());
        assert!(matches!(outcome, Outcome::Committed { .. }), "{string:?} was {outcome:?}");
        kept += 1;
    }
    let recovered = Board::recover(&fed.records, &PLANS).expect("the journal is enough");
    for (index, string) in strings.iter().enumerate() {
        let notes = &recovered.state().root()["notes"].to_value();
        assert_eq!(notes[format!("value-{index}")], json!(string));
        assert!(notes.get(string).is_some(), "the member {string:?} was lost");
    }
    replay::replay(&fed.records, None, &PLANS).expect("the run can be derived again");
    shared::ran("naughty strings through a board", kept, 200);
}
