//! Handoffs: routing, rejection, acceptance and escalation; the previous owner is rejected from the transfer on.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use patchboard_protocols::handoff::{HandoffState, check_transition};
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, shipped};

const REQUEST: &str = r#"{"ticket": "Why was I charged in March?"}"#;

/// Returns a sandbox with the shipped blueprint and these replacements.
fn changed(changes: &[(&str, &str)]) -> Sandbox {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path().join("fragments")).expect("it can be made");
    let shipped = |name: &str| std::fs::read_to_string(shipped(name)).expect("it is there");
    sandbox.write("fragments/handoff.yaml", shipped("fragments/handoff.yaml"));
    let mut text = shipped("handoff.yaml");
    for (from, to) in changes {
        assert!(text.contains(from), "{from:?} is not in the blueprint");
        text = text.replace(from, to);
    }
    sandbox.write("handoff.yaml", text);
    sandbox
}

const RUN: [&str; 6] = ["--output", "json", "run", "handoff.yaml", "--request", REQUEST];

fn log(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.run(&["log", "last", "--output", "json"]).expect_exit(0).lines()
}

fn of_kind<'r>(records: &'r [Value], kind: &str) -> Vec<&'r Value> {
    records.iter().filter(|record| record["kind"] == kind).collect()
}

#[test]
fn a_ticket_goes_to_the_next_who_can_once_one_refuses() {
    let sandbox = changed(&[]);
    let checked = sandbox.run(&["check", "--deny-warnings", "handoff.yaml"]).expect_exit(0).stdout;
    assert!(checked.contains("0 errors, 0 warnings"), "{checked}");
    let ran = sandbox.run(&RUN).expect_exit(0).json();
    let state = &ran["state"];
    assert_eq!(state["tasks"]["ticket"]["owner"], "cyd");
    assert_eq!(state["tasks"]["ticket"]["answer"], "The contract had ended: the invoice of March is cancelled.");
    let (first, second) = (&state["handoffs"]["h1"], &state["handoffs"]["h1.2"]);
    assert_eq!((&first["state"], &first["to"]), (&json!("REJECTED"), &json!("bob")));
    assert_eq!(first["rejection"], json!({"by": "bob", "reason": "That contract is none of mine."}));
    assert_eq!((&second["state"], &second["to"]), (&json!("COMPLETED"), &json!("cyd")));
    assert_eq!((&second["tried"], &second["first"], &second["attempt"]), (&json!(["bob"]), &json!("h1"), &json!(2)));
    assert_eq!(second["context"], first["context"], "what is known of it goes with it");
    for command in ["replay", "verify"] {
        sandbox.run(&[command, "last"]).expect_exit(0);
    }
    let view = sandbox.run(&["view", "last", "ada"]).expect_exit(0).stdout;
    assert!(view.contains("only where this is true of /tasks/*: self.owner == worker"), "{view}");
}

#[test]
fn a_former_owner_is_rejected_after_its_handoff() {
    // The change of owner also triggers ada, who still tries to answer the ticket. Ada's call runs before the new owner
    // gets a slot.
    let sandbox = changed(&[
        ("\nrules:\n", "\nconcurrency: 1\nrules:\n"),
        (
            "              state: PENDING\n",
            "              state: PENDING\n      - [{op: add, path: /tasks/ticket/answer, value: I am still at it.}]\n",
        ),
        (
            "  - {name: go-on,",
            "  - {name: still, trigger: {op: replace, path: /tasks/*/owner}, run: ada, urgent: true}\n  - {name: go-on,",
        ),
    ]);
    let ran = sandbox.run(&RUN).expect_exit(0).json();
    assert_eq!(ran["state"]["tasks"]["ticket"]["answer"], "The contract had ended: the invoice of March is cancelled.");
    let records = log(&sandbox);
    let refused = of_kind(&records, "rejected");
    assert!(!refused.is_empty());
    for record in refused {
        let text = record.to_string();
        assert!(text.contains("condition_not_met") && text.contains("self.owner == worker"), "{text}");
        assert!(text.contains("\"ada\""), "{text}");
    }
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

/// Returns the number of the only pending question of a run, and the question.
fn question(ran: &Value) -> (String, Value) {
    assert_eq!(ran["questions"].as_array().map(Vec::len), Some(1), "{ran}");
    (ran["questions"][0]["seq"].to_string(), ran["questions"][0]["clarify"].clone())
}

#[test]
fn an_unanswered_handoff_is_retried_and_then_put_to_a_person() {
    let sandbox = changed(&[
        ("timeout_ms: 600000", "timeout_ms: 150"),
        (
            "    script:\n      - - {op: replace, path: /handoffs/h1/state, value: REJECTED}\n        - {op: add, path: /handoffs/h1/rejection, value: {by: bob, reason: That contract is none of mine.}}\n",
            "    pass: true\n    script: [{pass: I do not answer.}]\n",
        ),
        ("path: /handoffs/h1.2/state", "path: /handoffs/h1.4/state"),
    ]);
    let ran = sandbox.run(&RUN).expect_exit(5).json();
    let handoffs = &ran["state"]["handoffs"];
    for id in ["h1", "h1.2", "h1.3"] {
        assert_eq!((&handoffs[id]["state"], &handoffs[id]["to"]), (&json!("EXPIRED"), &json!("bob")), "{id}");
    }
    assert!(handoffs.get("h1.4").is_none(), "two retries are two: {handoffs}");
    let (seq, asked) = question(&ran);
    assert_eq!(asked["choices"], json!(["bob", "cyd", "give it back"]), "ada hands over, and cannot be asked");
    let text = asked["question"].as_str().expect("a text");
    assert!(
        text.contains("asked for 3 times and not answered in time") && text.contains("It is about an invoice."),
        "{text}"
    );
    let done = sandbox.run(&["--output", "json", "answer", "last", &seq, "--text", "cyd"]).expect_exit(0).json();
    assert_eq!(done["state"]["tasks"]["ticket"]["owner"], "cyd");
    assert_eq!(done["state"]["handoffs"]["h1.4"]["state"], "COMPLETED");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_handoff_without_a_capable_agent_is_returned_on_a_ruling() {
    let again =
        "              state: PENDING\n      - [{op: add, path: /tasks/ticket/answer, value: Then I do it myself.}]\n";
    let sandbox = changed(&[
        ("capabilities_required: [billing]", "capabilities_required: [law]"),
        ("              state: PENDING\n", again),
    ]);
    let ran = sandbox.run(&RUN).expect_exit(5).json();
    assert_eq!(ran["state"]["handoffs"]["h1"].get("to"), None);
    let (seq, asked) = question(&ran);
    assert_eq!(asked["choices"], json!(["give it back"]), "nobody knows the law");
    let done =
        sandbox.run(&["--output", "json", "answer", "last", &seq, "--text", "give it back"]).expect_exit(0).json();
    let handoff = &done["state"]["handoffs"]["h1"];
    assert_eq!((&handoff["state"], &handoff["returned"]), (&json!("REJECTED"), &json!("ada")));
    assert_eq!(handoff["rejection"]["by"], "person");
    assert_eq!(
        done["state"]["tasks"]["ticket"],
        json!({
            "owner": "ada", "answer": "Then I do it myself.", "notes": ["The invoice of March names a contract that has ended."],
        })
    );
}

#[test]
fn handoffs_rejected_by_every_agent_or_invalid_are_returned() {
    let again =
        "              state: PENDING\n      - [{op: add, path: /tasks/ticket/answer, value: Then I do it myself.}]\n";
    let refuses = "      - - {op: replace, path: /handoffs/h1.2/state, value: REJECTED}\n        - {op: add, path: /handoffs/h1.2/rejection, value: {by: cyd, reason: Neither is it mine.}}\n";
    let accepts = "      - [{op: replace, path: /handoffs/h1.2/state, value: ACCEPTED}]\n";
    let sandbox = changed(&[("              state: PENDING\n", again), (accepts, refuses)]);
    let ran = sandbox.run(&RUN).expect_exit(5).json();
    let (seq, asked) = question(&ran);
    assert_eq!(asked["choices"], json!(["bob", "cyd", "give it back"]));
    let text = asked["question"].as_str().expect("a text");
    assert!(text.contains("the last one said: Neither is it mine."), "{text}");
    let done =
        sandbox.run(&["--output", "json", "answer", "last", &seq, "--text", "give it back"]).expect_exit(0).json();
    let last = &done["state"]["handoffs"]["h1.2"];
    assert_eq!((&last["returned"], &last["rejection"]["by"]), (&json!("ada"), &json!("cyd")));
    assert_eq!(done["state"]["tasks"]["ticket"]["answer"], "Then I do it myself.");

    // A request without a reason goes to no agent, and the role's rejection says why.
    let silent = ("reason: It is about an invoice.", "reason: \" \"");
    let sandbox = changed(&[("              state: PENDING\n", again), silent]);
    let done = sandbox.run(&RUN).expect_exit(0).json();
    let only = &done["state"]["handoffs"]["h1"];
    assert_eq!((&only["state"], &only["returned"], only.get("to")), (&json!("REJECTED"), &json!("ada"), None));
    assert_eq!(only["rejection"]["by"], "handoffs");
    assert_eq!(done["state"]["tasks"]["ticket"]["answer"], "Then I do it myself.");
}

#[test]
fn a_question_is_asked_whatever_the_reasons_and_however_many_could_take_it() {
    // The longest allowed reason, and more capable agents than a question may list; none of them is the requested one.
    let reason = format!("reason: {}", "long ".repeat(700));
    let agents: String = (0..20).map(|n| format!(", a{n}: [law]")).collect();
    let workers: String =
        (0..20).map(|n| format!("  a{n}: {{agent: script, group: agents, script: [[]]}}\n")).collect();
    let sandbox = changed(&[
        ("reason: It is about an invoice.", &reason),
        ("capabilities_required: [billing]", "capabilities_required: [law]"),
        ("to_agent: \"\"", "to_agent: nobody"),
        ("cyd: [billing, contracts]}", &format!("cyd: [billing, contracts]{agents}}}")),
        ("\nrules:\n", &format!("\n{workers}\nrules:\n")),
    ]);
    let (_, asked) = question(&sandbox.run(&RUN).expect_exit(5).json());
    let (text, choices) = (asked["question"].as_str().expect("a text"), asked["choices"].as_array().expect("choices"));
    assert!(text.contains("long long") && text.chars().count() < 2000, "{text}");
    assert_eq!((choices.len(), choices.last()), (16, Some(&json!("give it back"))));
}

#[test]
fn a_piece_of_work_is_handed_over_once_at_a_time() {
    let also = "              state: PENDING\n          - op: add\n            path: /handoffs/h2\n            value: {request_id: h2, from_agent: ada, to_agent: cyd, reason: To be sure., timeout_ms: 600000, context: {content_type: text/plain, content: \"\"}, task: ticket, state: PENDING}\n      - {pass: It is under way.}\n";
    let sandbox = changed(&[
        ("              state: PENDING\n", also),
        ("path: /handoffs/h1.2/state", "path: /handoffs/h2/state"),
        (
            "    description: Answers what can be answered at once.\n",
            "    description: Answers what can be answered at once.\n    pass: true\n",
        ),
    ]);
    let ran = sandbox.run(&RUN).expect_exit(0).json();
    let (first, second) = (&ran["state"]["handoffs"]["h1"], &ran["state"]["handoffs"]["h2"]);
    // The role finds the other request open when it reads the first.
    assert_eq!((&first["state"], &first["returned"]), (&json!("REJECTED"), &json!("ada")), "{ran}");
    let reason = first["rejection"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("being handed over already, by `h2`"), "{reason}");
    assert_eq!((&second["state"], &second["to"]), (&json!("COMPLETED"), &json!("cyd")), "{ran}");
}

#[test]
fn a_handoff_assigned_by_a_person_is_returned_while_another_is_pending() {
    // Every agent rejects the first request, so a person is asked. Meanwhile its owner asks for a capability that no
    // agent has, so a second question is pending.
    let also = "              state: PENDING\n      - - op: add\n          path: /handoffs/h2\n          value: {request_id: h2, from_agent: ada, reason: To be sure., capabilities_required: [law], timeout_ms: 600000, context: {content_type: text/plain, content: \"\"}, task: ticket, state: PENDING}\n      - {pass: It is mine still.}\n      - [{op: add, path: /tasks/ticket/answer, value: Then I do it myself.}]\n";
    let refuses = "      - - {op: replace, path: /handoffs/h1.2/state, value: REJECTED}\n        - {op: add, path: /handoffs/h1.2/rejection, value: {by: cyd, reason: Neither is it mine.}}\n";
    let sandbox = changed(&[
        ("              state: PENDING\n", also),
        ("      - [{op: replace, path: /handoffs/h1.2/state, value: ACCEPTED}]\n", refuses),
        (
            "    description: Answers what can be answered at once.\n",
            "    description: Answers what can be answered at once.\n    pass: true\n",
        ),
        ("\nrules:\n", "\nrules:\n  - {name: more, trigger: manual, run: ada}\n"),
    ]);
    let (first, _) = question(&sandbox.run(&RUN).expect_exit(5).json());
    let ran = sandbox.run(&["--output", "json", "signal", "last", "more"]).expect_exit(5).json();
    assert_eq!(ran["state"]["handoffs"]["h2"]["state"], "PENDING", "the first is over, as nobody takes it: {ran}");
    let ran = sandbox.run(&["--output", "json", "answer", "last", &first, "--text", "bob"]).expect_exit(5).json();
    let handoffs = &ran["state"]["handoffs"];
    assert!(handoffs.get("h1.3").is_none(), "it is not handed over twice at once: {handoffs}");
    assert_eq!(handoffs["h1.2"]["returned"], "ada", "{handoffs}");
    let (second, _) = question(&ran);
    let done =
        sandbox.run(&["--output", "json", "answer", "last", &second, "--text", "give it back"]).expect_exit(0).json();
    assert_eq!(done["state"]["handoffs"]["h2"]["returned"], "ada", "{done}");
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_request_for_what_is_anothers_by_then_is_given_back() {
    // In the same patch, the requester also gives the task away without a handoff.
    let gives = "              state: PENDING\n          - {op: replace, path: /tasks/ticket/owner, value: cyd}\n      - {pass: It is not mine.}\n";
    let sandbox = changed(&[
        ("              state: PENDING\n", gives),
        (
            "    description: Answers what can be answered at once.\n",
            "    description: Answers what can be answered at once.\n    pass: true\n",
        ),
        (
            "        value: {$ref: \"#/$defs/handoff-request\", properties: {from_agent: {const: ada}}}\n",
            "        value: {$ref: \"#/$defs/handoff-request\", properties: {from_agent: {const: ada}}}\n      - {path: /tasks/*/owner, ops: [replace]}\n",
        ),
        ("      - [{op: replace, path: /handoffs/h1.2/state, value: ACCEPTED}]\n", ""),
        // The new owner works on the task once the request is closed.
        (
            "trigger: {op: replace, path: /tasks/*/owner}, run: {group: agents, at: \"\"}",
            "trigger: {op: add, path: /handoffs/*/returned}, run: cyd",
        ),
    ]);
    let done = sandbox.run(&RUN).expect_exit(0).json();
    let only = &done["state"]["handoffs"]["h1"];
    assert_eq!(
        (&only["state"], &only["returned"], only.get("to")),
        (&json!("REJECTED"), &json!("ada"), None),
        "{done}"
    );
    let rejection = json!({"by": "handoffs", "reason": "`ticket` is not the work of `ada` any more"});
    assert_eq!(only["rejection"], rejection);
    sandbox.run(&["replay", "last"]).expect_exit(0);
}

#[test]
fn a_run_that_is_killed_anywhere_comes_to_the_same_end() {
    let whole = changed(&[]).run(&RUN).expect_exit(0).json();
    let mut kills = 0;
    for lines in [2, 4, 6, 8, 10, 13, 16] {
        let sandbox = changed(&[]);
        let mut child = sandbox
            .command(&["run", "handoff.yaml", "--request", REQUEST])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be run");
        let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
        let heard = stderr.by_ref().take(lines).filter(Result::is_ok).count();
        child.kill().expect("it can be killed");
        let killed = child.wait().expect("it ends").code().is_none();
        kills += u32::from(killed && heard == lines);
        let boards = sandbox.run(&["--output", "json", "boards"]).expect_exit(0).lines();
        // The kill may come before the board exists, or after it is done.
        let Some(board) = boards.first() else { continue };
        if board["status"] != "done" {
            sandbox.run(&["resume", "last"]).expect_exit(0);
        }
        let state = sandbox.run(&["--output", "json", "state", "last"]).expect_exit(0).json();
        let state = state.get("state").unwrap_or(&state);
        assert_eq!(*state, whole["state"], "killed after {lines} lines");
        let records = log(&sandbox);
        assert_eq!(of_kind(&records, "committed").len(), 7, "nothing is done twice: killed after {lines} lines");
        for command in ["replay", "verify"] {
            sandbox.run(&[command, "last"]).expect_exit(0);
        }
    }
    assert!(kills > 0, "no run was killed before its end");
}

/// Returns a handoff from `ada` to `bob` in a state.
fn handoff_in(state: HandoffState) -> Value {
    let mut handoff = json!({
        "request_id": "h", "from_agent": "ada", "reason": "r", "timeout_ms": 1000, "task": "w", "to": "bob", "state": state,
        "context": {"content_type": "text/plain", "content": "c"},
    });
    if state == HandoffState::Rejected {
        handoff["rejection"] = json!({"by": "bob", "reason": "no"});
    }
    handoff
}

/// Judges a worker's move of a handoff from one state to another, with every field that the move requires.
fn moved(sandbox: &Sandbox, worker: &str, from: HandoffState, to: HandoffState) -> Value {
    let owner = if from == HandoffState::Completed { "bob" } else { "ada" };
    let document = json!({
        "request": {"ticket": "x"},
        "agents": {"ada": [], "bob": [], "cyd": []},
        "tasks": {"w": {"owner": owner, "notes": []}},
        "handoffs": {"h": handoff_in(from)},
    });
    sandbox.write("now.json", document.to_string());
    let mut patch = vec![json!({"op": "replace", "path": "/handoffs/h/state", "value": to})];
    if from != to && to == HandoffState::Rejected {
        let rejection = json!({"by": worker, "reason": "no"});
        patch.push(json!({"op": "add", "path": "/handoffs/h/rejection", "value": rejection}));
    }
    if from != to && to == HandoffState::Completed && worker != "bob" {
        patch.push(json!({"op": "replace", "path": "/tasks/w/owner", "value": "bob"}));
    }
    if from != to && from == HandoffState::Rejected && worker == "anyone" {
        patch.push(json!({"op": "remove", "path": "/handoffs/h/rejection"}));
    }
    let line = json!({"worker": worker, "patch": patch}).to_string();
    sandbox.run_with(&["kernel", "handoff.yaml", "--state", "now.json"], line).expect_exit(0).json()
}

#[test]
fn a_board_makes_exactly_the_moves_of_the_table() {
    // The extra worker holds every grant, so only the invariants can reject its moves.
    let anyone = "workers:\n  anyone:\n    agent: remote\n    writes:\n      - {path: /handoffs/*/state, ops: [replace]}\n      \
                  - {path: /handoffs/*/rejection, ops: [add, remove]}\n      - {path: /tasks/*/owner, ops: [replace]}\n";
    let sandbox = changed(&[("workers:\n", anyone)]);
    let mut committed = 0;
    for from in HandoffState::ALL {
        for to in HandoffState::ALL {
            let is_legal = check_transition(*from, *to).is_ok();
            let answer = moved(&sandbox, "anyone", *from, *to);
            let expected = match (is_legal, from == to) {
                (true, _) => "committed",
                (false, true) => "no_op",
                (false, false) => "rejected",
            };
            assert_eq!(answer["outcome"], expected, "{from} to {to}: {answer}");
            if expected == "rejected" {
                assert_eq!(answer["code"], "invariant_violated", "{from} to {to}: {answer}");
                assert_eq!(answer["violations"][0]["rule"], "handoff-moves", "{from} to {to}: {answer}");
            }
            // Workers with seats can make their own moves; other moves are rejected with a reason.
            for (worker, own) in [
                ("bob", [HandoffState::Accepted, HandoffState::Rejected].as_slice()),
                ("handoffs", &[HandoffState::Rejected, HandoffState::Expired, HandoffState::Completed]),
                ("ada", &[]),
            ] {
                let answer = moved(&sandbox, worker, *from, *to);
                let expected = if is_legal && own.contains(to) { "committed" } else { "rejected" };
                assert_eq!(answer["outcome"], expected, "{worker}, {from} to {to}: {answer}");
                assert!(expected == "committed" || answer["code"].is_string(), "{answer}");
                committed += u32::from(expected == "committed");
            }
        }
    }
    assert_eq!(committed, 5, "bob accepts and refuses; the role refuses, lets expire and completes");
}

#[test]
fn handoffs_of_foreign_tasks_or_to_incapable_agents_are_rejected() {
    let sandbox = changed(&[]);
    let judged = |document: &Value, worker: &str, patch: &Value| {
        sandbox.write("now.json", document.to_string());
        let line = json!({"worker": worker, "patch": patch}).to_string();
        sandbox.run_with(&["kernel", "handoff.yaml", "--state", "now.json"], line).expect_exit(0).json()
    };
    let board = |owner: &str, handoffs: Value| {
        json!({
            "request": {"ticket": "x"}, "agents": {"ada": [], "bob": ["billing"], "cyd": []},
            "tasks": {"w": {"owner": owner, "notes": []}}, "handoffs": handoffs,
        })
    };
    let mut asked = handoff_in(HandoffState::Pending);
    asked.as_object_mut().expect("an object").remove("to");
    let ask = |handoff: &Value| json!([{"op": "add", "path": "/handoffs/h", "value": handoff}]);
    let answer = judged(&board("ada", json!({})), "ada", &ask(&asked));
    assert_eq!(answer["outcome"], "committed", "{answer}");
    let answer = judged(&board("cyd", json!({})), "ada", &ask(&asked));
    assert_eq!(answer["violations"][0]["rule"], "handoff-of-own-work", "{answer}");
    // A wrong requester, a mismatched id, and fields that only an answer may set.
    for (member, value, code) in [
        ("from_agent", json!("bob"), "value_not_granted"),
        ("request_id", json!("other"), "invariant_violated"),
        ("to", json!("bob"), "value_not_granted"),
        ("state", json!("ACCEPTED"), "value_not_granted"),
        ("timeout_ms", json!(0), "value_not_granted"),
    ] {
        let mut other = asked.clone();
        other[member] = value;
        let answer = judged(&board("ada", json!({})), "ada", &ask(&other));
        assert_eq!(answer["code"], code, "{member}: {answer}");
    }
    let accept = json!([{"op": "replace", "path": "/handoffs/h/state", "value": "ACCEPTED"}]);
    let mut needs = handoff_in(HandoffState::Pending);
    needs["capabilities_required"] = json!(["contracts"]);
    let answer = judged(&board("ada", json!({"h": needs})), "bob", &accept);
    assert_eq!(answer["violations"][0]["rule"], "handoff-to-the-able", "{answer}");
    let answer = judged(&board("ada", json!({"h": handoff_in(HandoffState::Pending)})), "cyd", &accept);
    assert_eq!(answer["code"], "condition_not_met", "only who was asked answers: {answer}");
    // The task was given to another worker meanwhile.
    let answer = judged(&board("cyd", json!({"h": handoff_in(HandoffState::Pending)})), "bob", &accept);
    assert_eq!(answer["violations"][0]["rule"], "handoff-of-own-work", "{answer}");
    let complete = json!([{"op": "replace", "path": "/handoffs/h/state", "value": "COMPLETED"}]);
    let answer = judged(&board("ada", json!({"h": handoff_in(HandoffState::Accepted)})), "handoffs", &complete);
    assert_eq!(answer["violations"][0]["rule"], "handoff-transferred", "{answer}");
}
