//! Negotiations on boards: to an agreement, to each end without one, with a person's ruling, and across interruptions.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::{Value, json};

use crate::sandbox::{CommandResult, Sandbox, shipped};

/// Returns a directory with the shipped blueprint and these replacements.
fn changed(changes: &[(&str, &str)]) -> Sandbox {
    let sandbox = Sandbox::new();
    let mut blueprint = fs::read_to_string(shipped("negotiation.yaml")).expect("it is shipped");
    for (from, to) in changes {
        assert!(blueprint.contains(from), "{from:?} is not in the blueprint");
        blueprint = blueprint.replace(from, to);
    }
    sandbox.write("negotiation.yaml", blueprint);
    for fragment in ["fragments/negotiation.yaml", "fragments/artifacts.yaml"] {
        sandbox.write(fragment, fs::read(shipped(fragment)).expect("it is shipped"));
    }
    sandbox
}

fn run(sandbox: &Sandbox, preferences: &Value) -> CommandResult {
    let request = json!({"topic": "steel", "corr": "c-7", "preferences": {"seller": preferences}}).to_string();
    sandbox.run(&["--output", "json", "run", "negotiation.yaml", "--request", &request])
}

fn negotiation(ran: &Value) -> &Value {
    &ran["state"]["negotiation"]
}

/// Returns the kinds of the events, in order.
fn kinds(negotiation: &Value) -> Vec<&str> {
    let events = negotiation["events"].as_array().expect("there are events").iter();
    events.map(|event| event["kind"].as_str().expect("a kind")).collect()
}

/// Returns the decision in the last report.
fn decision(negotiation: &Value) -> &Value {
    let last = negotiation["reports"].as_array().and_then(|reports| reports.last()).expect("there are reports");
    assert_eq!(last["kind"], "decision", "{last}");
    last
}

#[track_caller]
fn aborts(ran: CommandResult, reason: &str) {
    let ran = ran.expect_exit(0).json();
    let negotiation = negotiation(&ran);
    let last = negotiation["events"].as_array().and_then(|events| events.last()).expect("there are events");
    assert_eq!((&last["kind"], &last["reason"], &last["corr"]), (&json!("abort"), &json!(reason), &json!("c-7")));
    assert_eq!(
        (&decision(negotiation)["outcome"], &decision(negotiation)["stop_reason"]),
        (&json!("aborted"), &json!(reason))
    );
}

#[test]
fn the_blueprint_is_without_a_finding() {
    let ran = Sandbox::new().run(&["check", "--deny-warnings", &shipped("negotiation.yaml")]).expect_exit(0);
    assert!(ran.stdout.contains("0 errors, 0 warnings: ok"), "{}", ran.stdout);
}

#[test]
fn drafts_go_to_and_fro_until_one_is_good_enough() {
    let sandbox = changed(&[]);
    let ran = run(&sandbox, &json!({"max_rounds": 3, "score_threshold": 0.1})).expect_exit(0).json();
    assert_eq!(ran["end"], "done");
    let negotiation = negotiation(&ran);
    let expected = ["open", "policy", "propose", "propose", "evaluate", "counter", "evaluate", "decide"];
    assert_eq!(kinds(negotiation), expected);
    let events = &negotiation["events"];
    assert_eq!(
        (&events[0]["topic"], &events[1]["corr"], &events[7]["corr"]),
        (&json!("steel"), &json!("c-7"), &json!("c-7"))
    );
    // Requested limits can make the policy stricter, not laxer.
    assert_eq!((&events[1]["policy"]["max_rounds"], &events[1]["policy"]["score_threshold"]), (&json!(3), &json!(0.8)));
    assert_eq!(negotiation["policy"]["policy"], events[1]["policy"]);
    // The invalid draft is rejected with a reason and takes no round.
    let refused = &negotiation["refused"];
    assert_eq!(
        (&refused[0]["event"], &refused[0]["round"], &refused[0]["code"]),
        (&json!(2), &json!(1), &json!("negotiation_invalid_draft"))
    );
    assert!(refused[0]["problems"][0].as_str().is_some_and(|why| why.contains("/price")), "{refused}");
    assert_eq!(negotiation["rounds"].as_array().map(Vec::len), Some(2));
    let versions = &negotiation["versions"];
    assert_eq!(
        (&versions[0]["content"], &versions[1]["content"]),
        (&json!({"price": 120, "days": 10}), &json!({"price": 90, "days": 12}))
    );
    assert_eq!(events[3]["payload_b64"], "eyJwcmljZSI6MTIwLCJkYXlzIjoxMH0=", "its bytes are as they came");
    let diff = &negotiation["diffs"][0];
    assert_eq!(
        (&diff["delta"]["magnitude"], &diff["delta"]["changed_paths"]),
        (&json!(1), &json!(["/days", "/price"]))
    );
    let evaluation = &negotiation["reports"][0];
    assert_eq!(
        (&evaluation["deterministic"], &evaluation["confidence"], &evaluation["score"]),
        (&json!(1), &json!(0.4), &json!(0.7))
    );
    let goes_on = &negotiation["reports"][1];
    assert_eq!(
        (&goes_on["kind"], &goes_on["outcome"], &goes_on["stop_reason"], &goes_on["scores"]),
        (&json!("decision"), &json!("continue"), &Value::Null, &json!([0.7]))
    );
    let decision = decision(negotiation);
    assert_eq!((&decision["stop_reason"], &decision["decided_by"]), (&json!("threshold_met"), &json!("consensus")));
    assert_eq!(events[7]["result_b64"], "eyJkYXlzIjoxMiwicHJpY2UiOjkwfQ==");
    for command in ["replay", "verify"] {
        sandbox.run(&[command, "last"]).expect_exit(0);
    }
    let why = sandbox.run(&["why", "last", "/negotiation/events/7"]).expect_exit(0).stdout;
    assert!(why.contains("negotiator"), "{why}");
}

#[test]
fn a_negotiation_may_be_longer_than_a_view_has_room_for() {
    let sandbox = changed(&[]);
    let fragment = fs::read_to_string(shipped("fragments/negotiation.yaml")).expect("it is shipped");
    let narrow = fragment.replace("view: &view {budget: 1000000}", "view: &view {budget: 4000}");
    assert_ne!(narrow, fragment);
    sandbox.write("fragments/negotiation.yaml", narrow);
    let ran = run(&sandbox, &json!({})).expect_exit(0).json();
    assert_eq!(decision(negotiation(&ran))["outcome"], "accepted");
    let widely = run(&changed(&[]), &json!({})).expect_exit(0).json();
    assert_eq!(kinds(negotiation(&ran)), kinds(negotiation(&widely)));
}

#[test]
fn foreign_and_out_of_order_messages_are_rejected() {
    for (change, code) in [
        (("kind: counter, ts: 4, from: buyer", "kind: counter, ts: 4, from: seller"), "value_not_granted"),
        (("kind: counter, ts: 4, from: buyer", "kind: evaluate, ts: 4, from: buyer"), "value_not_granted"),
        (
            ("kind: evaluate, ts: 3, from: arbiter, score: 0.4", "kind: evaluate, ts: 3, from: arbiter, score: 4"),
            "value_not_granted",
        ),
        (("kind: propose, ts: 1, from: seller", "kind: counter, ts: 1, from: seller"), "invariant_violated"),
    ] {
        let sandbox = changed(&[change]);
        run(&sandbox, &json!({"round_timeout_ms": 1000})).expect_exit(0);
        let log = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
        assert!(log.contains(code), "{change:?} is not refused with {code}: {log}");
    }
}

/// An opener with a profile, and a second evaluator.
const OTHERS: &str = r##"
  opener:
    agent: script
    script: [[{op: add, path: /negotiation/events/-, value: {kind: open, ts: now, topic: steel, corr: c-9, profile: careful, later: 1}}]]
    writes: [{path: /negotiation/events/-, ops: [add], value: {properties: {kind: {const: open}}}}]
  critic:
    agent: script
    group: evaluators
    script:
      - [{op: add, path: /negotiation/events/-, value: {kind: evaluate, ts: 3, from: critic, score: 0.2, notes: too slow}}]
      - [{op: add, path: /negotiation/events/-, value: {kind: evaluate, ts: 5, from: critic, score: 1, notes: better}}]
    reads: *board
    writes:
      - path: /negotiation/events/-
        ops: [add]
        value: {allOf: [{$ref: "#/$defs/negotiation-evaluation"}], properties: {from: {const: critic}}}

rules:
"##;

#[test]
fn the_opener_names_a_profile_and_every_evaluator_is_heard() {
    let sandbox =
        changed(&[("trigger: start, run: negotiator", "trigger: start, run: opener"), ("\nrules:\n", OTHERS)]);
    sandbox.run(&["check", "--deny-warnings", "negotiation.yaml"]).expect_exit(0);
    let ran = run(&sandbox, &json!({})).expect_exit(5).json();
    let events = &negotiation(&ran)["events"];
    assert_eq!(
        (&events[0]["later"], &events[1]["profile"], &events[1]["corr"]),
        (&json!(1), &json!("careful"), &json!("c-9"))
    );
    assert_eq!(events[1]["policy"]["max_rounds"], 8);
    let reports = negotiation(&ran)["reports"].as_array().expect("there are reports");
    let heard: Vec<usize> =
        reports.iter().filter_map(|report| report["evaluations"].as_array().map(Vec::len)).collect();
    assert_eq!(heard, [2, 2]);
    assert_eq!((&reports[0]["score"], &reports[2]["score"]), (&json!(0.65), &json!(0.975)));
    let done = answer(&sandbox, &asked(&ran), "accept").expect_exit(0).json();
    assert_eq!(decision(negotiation(&done))["stop_reason"], "threshold_met");

    let sandbox = changed(&[]);
    let request = r#"{"topic": "steel", "profile": "slow"}"#;
    let ran = sandbox.run(&["--output", "json", "run", "negotiation.yaml", "--request", request]).expect_exit(0).json();
    assert_eq!(negotiation(&ran)["events"][1]["reason"], "negotiation_unknown_profile");
}

#[test]
fn invalid_negotiation_settings_are_reported_before_the_start() {
    let sandbox = changed(&[("draft.days > 3 || draft.price >= 50", "draft.days > 3 || prise >= 50")]);
    let ran = run(&sandbox, &json!({})).expect_exit(4);
    assert!(ran.stderr.contains("not_configured") && ran.stderr.contains("what is fast is dear"), "{}", ran.stderr);
    assert_eq!(kinds(negotiation(&ran.json())), [""; 0]);
    // The policy in the request is validated before the run begins.
    let refused = run(&changed(&[]), &json!({"max_round": 1})).expect_exit(2);
    assert_eq!(refused.error()["code"], "bad_request");
    assert!(refused.stderr.contains("max_round"), "{}", refused.stderr);
    // `check` rejects the same mistake in the blueprint.
    let sandbox = changed(&[("max_rounds: 4", "max_round: 4")]);
    let found = sandbox.run(&["check", "negotiation.yaml"]).expect_exit(2).stdout;
    assert!(found.contains("max_round"), "{found}");
}

#[test]
fn it_ends_when_there_are_no_more_rounds() {
    aborts(run(&changed(&[]), &json!({"max_rounds": 1})), "max_rounds");
}

#[test]
fn it_ends_when_scores_go_up_and_down() {
    let evaluate = |score: f64| {
        format!(
            "      - [{{op: add, path: /negotiation/events/-, value: {{kind: evaluate, ts: 3, from: arbiter, score: {score}, notes: so}}}}]\n"
        )
    };
    let first = "      - [{op: add, path: /negotiation/events/-, value: {kind: evaluate, ts: 3, from: arbiter, score: 0.4, notes: good for the seller only}}]\n";
    let scores: String = [0.1, 0.4, 0.2].map(evaluate).concat();
    aborts(run(&changed(&[(first, &scores)]), &json!({"oscillation_limit": 0})), "oscillation");
}

#[test]
fn it_ends_when_drafts_are_hardly_different() {
    let same = [("payload: {price: 90, days: 12}", "payload: {price: 120, days: 10}")];
    aborts(run(&changed(&[same[0], ("score: 0.9", "score: 0.4")]), &json!({})), "no_progress");
}

#[test]
fn it_goes_on_when_drafts_are_hardly_different_and_better() {
    let same = [("payload: {price: 90, days: 12}", "payload: {price: 120, days: 10}")];
    let ran = run(&changed(&same), &json!({})).expect_exit(0).json();
    assert_eq!(decision(negotiation(&ran))["stop_reason"], "threshold_met");
    let better = [same[0], ("score: 0.9", "score: 0.5")];
    aborts(run(&changed(&better), &json!({"max_rounds": 2})), "max_rounds");
}

#[test]
fn a_party_ends_it_by_saying_so() {
    let counter = "{kind: counter, ts: 4, from: buyer, ct: application/json, payload: {price: 90, days: 12}}";
    let abort = "{kind: abort, ts: 4.5, from: buyer, reason: the yard is closed}";
    let ran = run(&changed(&[(counter, abort)]), &json!({})).expect_exit(0).json();
    assert_eq!(ran["end"], "done");
    let negotiation = negotiation(&ran);
    assert_eq!(kinds(negotiation).last(), Some(&"abort"));
    let decision = decision(negotiation);
    assert_eq!(
        (&decision["outcome"], &decision["stop_reason"], &decision["decided_by"]),
        (&json!("aborted"), &json!("withdrawn"), &json!("party"))
    );
    // A party cannot abort in another's name.
    let sandbox = changed(&[(counter, "{kind: abort, ts: 4, from: seller, reason: the yard is closed}")]);
    run(&sandbox, &json!({"round_timeout_ms": 1000})).expect_exit(0);
    let log = sandbox.run(&["log", "last"]).expect_exit(0).stdout;
    assert!(log.contains("value_not_granted"), "{log}");
}

#[test]
fn messages_of_another_negotiation_leave_the_round_unchanged() {
    let sandbox = changed(&[("ts: 2, from: seller,", "ts: 2, from: seller, corr: c-8,")]);
    let ran = run(&sandbox, &json!({"round_timeout_ms": 1000})).expect_exit(0).json();
    let negotiation = negotiation(&ran);
    let refused = &negotiation["refused"][1];
    assert_eq!((&refused["code"], &refused["round"]), (&json!("negotiation_other_corr"), &json!(1)));
    assert_eq!(negotiation["versions"], json!([]));
}

#[test]
fn it_ends_when_a_party_makes_nothing_but_invalid_drafts() {
    let sandbox = changed(&[("payload_b64: eyJwcmljZSI6MTIwLCJkYXlzIjoxMH0=", "payload: {price: 0, days: 1}")]);
    aborts(run(&sandbox, &json!({})), "invalid_drafts");
}

#[test]
fn it_ends_when_a_round_takes_too_long() {
    // Every attempt of the buyer fails.
    let counter = "      - [{op: add, path: /negotiation/events/-, value: {kind: counter, ts: 4, from: buyer, ct: application/json, payload: {price: 90, days: 12}}}]\n";
    let sandbox = changed(&[(counter, "      - {fail: crashed}\n")]);
    let ran = run(&sandbox, &json!({"round_timeout_ms": 1000})).expect_exit(0);
    aborts(ran, "timeout");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

/// Returns the number of the only question of a run.
fn asked(ran: &Value) -> String {
    let questions = ran["questions"].as_array().expect("there are questions");
    assert_eq!(questions.len(), 1, "{questions:?}");
    questions[0]["seq"].to_string()
}

fn answer(sandbox: &Sandbox, seq: &str, text: &str) -> CommandResult {
    sandbox.run(&["--output", "json", "answer", "last", seq, "--text", text])
}

#[test]
fn a_person_is_asked_between_rounds() {
    let sandbox = changed(&[]);
    let first = run(&sandbox, &json!({"hitl": "PauseBetweenRounds"})).expect_exit(5).json();
    assert_eq!(kinds(negotiation(&first)).last(), Some(&"evaluate"));
    let listed = sandbox.run(&["--output", "json", "inbox"]).expect_exit(0).json();
    let question = &listed["questions"][0]["clarify"];
    assert_eq!(question["choices"], json!(["accept", "continue", "stop"]));
    assert!(
        question["question"].as_str().is_some_and(|text| text.contains("Round 1") && text.contains("steel")),
        "{question}"
    );
    let shown = [
        "\nThe draft is of seller (application/json).",
        "\narbiter: score 0.4; notes: good for the seller only",
        "\nThe draft: {\"days\":10,\"price\":120}",
    ];
    let text = question["question"].as_str().expect("a text");
    assert!(text.ends_with(&shown.concat()), "whoever takes a draft is shown it: {text}");
    let refused = answer(&sandbox, &asked(&first), "perhaps").expect_exit(2).error();
    assert_eq!(refused["code"], "answer_not_offered");
    let second = answer(&sandbox, &asked(&first), "continue").expect_exit(5).json();
    assert_eq!(negotiation(&second)["rounds"].as_array().map(Vec::len), Some(2));
    let done = answer(&sandbox, &asked(&second), "accept").expect_exit(0).json();
    let decision = decision(negotiation(&done));
    assert_eq!((&decision["outcome"], &decision["decided_by"]), (&json!("accepted"), &json!("hitl")));
    let person = &negotiation(&done)["reports"][1];
    assert_eq!(
        (&person["kind"], &person["by"], &person["said"]),
        (&json!("person"), &json!("person"), &json!("continue"))
    );
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_person_can_stop_it_before_anything_is_taken() {
    let sandbox = changed(&[]);
    let ran = run(&sandbox, &json!({"hitl": "PauseOnFinalAccept"})).expect_exit(5).json();
    assert_eq!(
        negotiation(&ran)["rounds"].as_array().map(Vec::len),
        Some(2),
        "only what would be taken is asked about"
    );
    aborts(answer(&sandbox, &asked(&ran), "stop"), "hitl");
}

#[test]
fn a_person_who_does_not_answer_is_a_no() {
    let sandbox = changed(&[]);
    let fragment = fs::read_to_string(shipped("fragments/negotiation.yaml")).expect("it is shipped");
    sandbox.write("fragments/negotiation.yaml", fragment.replace("expires: 1d", "expires: 1s"));
    run(&sandbox, &json!({"hitl": "PauseOnFinalAccept"})).expect_exit(5);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    aborts(sandbox.run(&["--output", "json", "resume", "last"]), "hitl");
}

#[test]
fn it_comes_to_the_same_however_often_it_is_interrupted() {
    let summary = |negotiation: &Value| {
        let contents: Vec<&Value> =
            negotiation["versions"].as_array().expect("versions").iter().map(|version| &version["content"]).collect();
        (kinds(negotiation).join(" "), json!(contents), decision(negotiation).clone())
    };
    let whole = run(&changed(&[]), &json!({})).expect_exit(0).json();
    let request = json!({"topic": "steel", "corr": "c-7"}).to_string();
    let mut kills = 0;
    for step in [1, 3, 5, 7] {
        let sandbox = changed(&[]);
        for turn in 0..100 {
            let arguments: &[&str] = match turn {
                0 => &["run", "negotiation.yaml", "--request", &request],
                _ => &["resume", "last"],
            };
            let child =
                sandbox.command(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
            let mut child = child.expect("the binary can be run");
            let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
            // Kills the run after a certain number of lines, a few times.
            let mut lines = stderr.lines();
            let is_over = lines.by_ref().take(3 * step).count() < 3 * step || turn > 5;
            if !is_over {
                child.kill().expect("it can be killed");
                kills += 1;
            }
            lines.for_each(drop);
            let code = child.wait().expect("it ends").code();
            if code == Some(0) {
                break;
            }
            assert_eq!(code, None, "it ends well or is killed: turn {turn} of {step}");
        }
        let resumed = sandbox.run(&["--output", "json", "state", "last"]);
        let state = resumed.expect_exit(0).json();
        let found = state.get("negotiation").unwrap_or_else(|| &state["state"]["negotiation"]);
        assert_eq!(summary(found), summary(negotiation(&whole)), "interrupted after {} lines", 3 * step);
        sandbox.run(&["verify", "last"]).expect_exit(0);
        sandbox.run(&["replay", "last"]).expect_exit(0);
    }
    assert!(kills > 3, "{kills} times");
}

#[test]
fn a_round_lasts_no_longer_for_a_party_that_waits_for_its_provider() {
    let counter = json!({"kind": "counter", "ts": 4, "from": "buyer", "ct": "application/json", "payload": {"price": 90, "days": 12}});
    let patch = json!([{"op": "add", "path": "/negotiation/events/-", "value": counter}]).to_string();
    let away = ScriptedResponse::Say(503, "retry-after: 4\r\n", "away".into());
    let endpoint = Endpoint::new(vec![away, ScriptedResponse::answer(&patch, 100, 20)]);
    let sandbox = changed(&[
        ("  buyer:\n    agent: script\n", "  buyer:\n    agent: llm\n    role: Buy.\n"),
        (
            "    script:\n      - [{op: add, path: /negotiation/events/-, value: {kind: counter, ts: 4, from: buyer, \
             ct: application/json, payload: {price: 90, days: 12}}}]\n",
            "",
        ),
    ]);
    let request = json!({"topic": "steel", "preferences": {"buyer": {"round_timeout_ms": 2000}}}).to_string();
    let ran = ["run", "negotiation.yaml", "--request", &request, "--model-url", &endpoint.url, "--model", "m"];
    let ran = sandbox.run(&[&ran[..], &["--output", "json"]].concat()).expect_exit(0).json();
    let decision = decision(negotiation(&ran));
    assert_eq!((&decision["outcome"], &decision["stop_reason"]), (&json!("accepted"), &json!("threshold_met")));
    assert_eq!(endpoint.bodies().len(), 2);
    sandbox.run(&["replay", "last"]).expect_exit(0);
    // A slow party runs into the round's timeout.
    let endpoint = Endpoint::new(vec![ScriptedResponse::Hang]);
    let ran = ["run", "negotiation.yaml", "--request", &request, "--model-url", &endpoint.url, "--model", "m"];
    let ran = sandbox.run(&[&ran[..], &["--output", "json"]].concat()).expect_exit(0).json();
    assert_eq!(crate::negotiation::decision(negotiation(&ran))["stop_reason"], "timeout");
}
