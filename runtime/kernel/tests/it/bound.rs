//! Workers with bound paths see and write only the element that triggered them.

use std::collections::BTreeMap;

use crate::played::Played;
use patchboard_kernel::ablation::{Component, Mode};
use patchboard_kernel::bindings::Bindings;
use patchboard_kernel::board::{Input, Outcome, Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::record::{Answer, Body, Cause, Kind};
use patchboard_kernel::rejection::{Code, Stage};
use patchboard_protocols::PLANS;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns a blueprint with a collection of notes, a writer, and a checker that is triggered once per note.
fn notes(collection: Value, checker: Value) -> Value {
    let mut seat = json!({"agent": "llm", "role": "Check it.",
        "reads": ["/notes/{note}", "/topic"], "writes": [{"path": "/notes/{note}/status", "ops": ["replace"]}]});
    seat.as_object_mut().expect("an object").extend(checker.as_object().expect("members").clone());
    json!({
        "blueprint": 2, "concurrency": 100,
        "state": {"schema": {"properties": {
            "topic": {"type": "string"},
            "notes": {"type": ["array", "object"], "items": {"$ref": "#/$defs/note"}, "additionalProperties": {"$ref": "#/$defs/note"}},
        }, "$defs": {"note": {"type": "object", "properties": {"text": {"type": "string"}, "status": {"enum": ["draft", "checked"]}}}}},
            "initial": {"topic": "birds", "notes": collection}},
        "workers": {"writer": {"agent": "script", "script": [[]], "writes": [{"path": "/notes/*"}, {"path": "/notes"}]}, "checker": seat},
        "rules": [{"name": "check", "trigger": {"op": "add", "path": "/notes/{note}"}, "run": "checker"}],
    })
}

fn note(n: usize) -> Value {
    json!({"text": format!("text {n} of the notes"), "status": "draft"})
}

fn add(played: &mut Played, name: &str, n: usize) {
    let path = format!("/notes/{name}");
    let reply = match name {
        // A name that looks like a pattern is written together with its object.
        "*" | "**" => {
            let mut notes = played.board.state().root()["notes"].to_value();
            notes[name] = note(n);
            json!([{"op": "replace", "path": "/notes", "value": notes}])
        }
        _ => json!([{"op": "add", "path": path, "value": note(n)}]),
    };
    assert!(matches!(played.direct("writer", &reply.to_string()), Outcome::Committed { .. }));
}

fn check(path: &str) -> Value {
    json!([{"op": "replace", "path": path, "value": "checked"}])
}

fn refused(outcome: Outcome) -> (Stage, Code) {
    match outcome {
        Outcome::Rejected { rejection, .. } => (rejection.stage, rejection.code),
        other => panic!("it was {other:?}"),
    }
}

#[test]
fn an_invocation_sees_its_trigger_and_the_value_of_the_name() {
    let mut played = Played::new(notes(json!([]), json!({})));
    (0..3).for_each(|n| add(&mut played, "-", n));
    assert_eq!(played.calls.len(), 3);
    let systems: Vec<&str> = played.prompts.iter().map(|(_, prompt, _)| prompt.system.as_str()).collect();
    assert!(systems.windows(2).all(|two| two[0] == two[1]), "the instructions are the same for all");
    assert!(systems[0].contains("says what {note} stands for;"), "{}", systems[0]);
    for (n, (_, prompt, shown)) in played.prompts.iter().enumerate() {
        let view = &prompt.user;
        assert!(view.contains("/notes/{note}/status: replace\n"), "the contract is told as a template: {view}");
        assert!(view.contains(&format!("Here {{note}} is {n}.\n")), "{view}");
        for other in 0..3 {
            assert_eq!(view.contains(&format!("text {other} of")), other == n, "{view}");
        }
        assert_eq!(shown.worker_plan().bound().get("note"), Some(n.to_string().as_str()));
    }
    played.holds();
}

#[test]
fn writes_tests_and_requests_beside_the_bound_element_are_rejected() {
    let mut played = Played::new(notes(json!([]), json!({"limits": {"attempts": 9}})));
    (0..3).for_each(|n| add(&mut played, "-", n));
    for reply in [
        check("/notes/1/status"),
        json!([{"op": "test", "path": "/notes/1/text", "value": "x"}, {"op": "replace", "path": "/notes/0/status", "value": "checked"}]),
        json!({"patch": [], "expand": ["/notes/2"]}),
        json!({"patch": [], "expand": ["/notes"]}).clone(),
        check("/notes/{other}/status"),
    ] {
        let is_whole = reply["expand"] == json!(["/notes"]);
        let outcome = played.answer(reply.clone(), None);
        match is_whole {
            // A part of the value may be read.
            true => assert!(matches!(outcome, Outcome::Expanded { .. })),
            false => assert_eq!(refused(outcome).0, Stage::Authorization, "{reply}"),
        }
        let last = played.calls.pop().expect("it is asked again");
        played.calls.insert(0, last);
        assert!(!played.view().contains("text 1") && !played.view().contains("text 2"), "{}", played.view());
    }
    assert!(matches!(played.answer(check("/notes/0/status"), None), Outcome::Committed { .. }));
    played.holds();
}

#[test]
fn invocations_of_one_worker_do_not_disturb_each_other() {
    let mut played = Played::new(notes(json!([]), json!({})));
    (0..100).for_each(|n| add(&mut played, "-", n));
    assert_eq!(played.calls.len(), 100);
    for n in 0..100 {
        assert!(matches!(played.answer(check(&format!("/notes/{n}/status")), None), Outcome::Committed { .. }));
    }
    assert_eq!((played.count(Kind::Rejected), played.count(Kind::Invoked)), (0, 100));
    played.holds();
}

#[test]
fn a_reply_may_have_the_name_where_its_token_belongs_and_is_known_again_by_its_words() {
    let mut played = Played::new(notes(json!({}), json!({})));
    add(&mut played, "a~1b", 0);
    add(&mut played, "c", 1);
    let (invocation, attempt, worker) = played.calls[0].clone();
    let words = check("/notes/{note}/status");
    assert!(matches!(played.answer(words.clone(), None), Outcome::Committed { .. }));
    assert_eq!(played.board.state().root().to_value()["notes"]["a/b"]["status"], "checked");
    let Some(Body::Committed(committed)) = played.bodies().filter(|body| body.author().is_some()).last() else {
        panic!("it was committed")
    };
    assert_eq!(committed.patch, check("/notes/a~1b/status"), "the journal says what was written");
    assert_eq!(committed.written, Some(words.to_string()), "and what the agent wrote");
    let again = Proposal {
        from: ProposalSource::Attempt { invocation, attempt },
        worker: worker.as_str().into(),
        reply: ReplyBody::Text(words.to_string()),
        usage: None,
        raw: None,
    };
    let outcome = played.give(Input::Propose(again.clone())).outcome;
    assert!(matches!(outcome, Some(Outcome::Duplicate(_))), "{outcome:?}");
    // A board recovered from the records alone recognises the repetition, too.
    let mut recovered =
        patchboard_kernel::board::Board::recover(&played.records, &PLANS).expect("the journal is enough");
    let outcome = recovered.step_ungated(patchboard_kernel::id::Timestamp(1000), Input::Propose(again)).outcome;
    assert!(matches!(outcome, Some(Outcome::Duplicate(_))), "{outcome:?}");

    // An expansion request that uses a bound name.
    let asks = json!({"patch": [], "expand": ["/notes/{note}/text", "/notes/c/text"]});
    let (invocation, attempt, worker) = played.calls[0].clone();
    assert!(matches!(played.answer(asks.clone(), None), Outcome::Expanded { .. }));
    let again = Proposal {
        from: ProposalSource::Attempt { invocation, attempt },
        worker: worker.as_str().into(),
        reply: ReplyBody::Json(asks),
        usage: None,
        raw: None,
    };
    let outcome = played.give(Input::Propose(again)).outcome;
    assert!(matches!(outcome, Some(Outcome::Duplicate(_))), "{outcome:?}");
    let expands = played.bodies().filter_map(|body| match body {
        Body::Scheduled(scheduled) if !scheduled.expand.is_empty() => Some(scheduled.expand),
        _ => None,
    });
    assert_eq!(expands.collect::<Vec<_>>(), [["/notes/c/text".into()]], "each place once");
    let refused_words = check("/notes/{note}/nothing");
    assert_eq!(refused(played.answer(refused_words, None)).1, Code::PathNotGranted);
    played.holds();
}

#[test]
fn a_rejection_is_reported_only_for_its_own_element() {
    let mut played = Played::new(notes(json!([]), json!({"limits": {"attempts": 3}})));
    (0..2).for_each(|n| add(&mut played, "-", n));
    let wrong = json!([{"op": "replace", "path": "/notes/{note}/status", "value": "wrong"}]);
    assert_eq!(refused(played.answer(wrong.clone(), None)).0, Stage::Schema);
    assert!(played.view().contains("## Refused before\n- schema"), "{}", played.view());
    assert!(played.view().contains("Here {note} is 0."), "{}", played.view());
    assert_eq!(refused(played.answer(wrong, None)).0, Stage::Schema);
    assert!(played.view().contains("Here {note} is 1."), "{}", played.view());
    assert_eq!(played.view().matches("- schema").count(), 1, "{}", played.view());
    // A successful call removes its own feedback, and only that.
    assert!(matches!(played.answer(check("/notes/0/status"), None), Outcome::Committed { .. }));
    let broken = json!([{"op": "replace", "path": "/notes/{note}/status", "value": "worse"}]);
    assert_eq!(refused(played.answer(broken, None)).0, Stage::Schema);
    assert_eq!(played.view().matches("- schema").count(), 2, "{}", played.view());
    played.holds();
}

#[test]
fn without_an_invocation_a_name_covers_nothing() {
    let mut played = Played::new(notes(json!({"{note}": note(0)}), json!({})));
    for path in ["/notes/{note}/status", "/notes/0/status", "/notes/*/status"] {
        let rejection = played.rejection("checker", check(path));
        assert_eq!(rejection.code, Code::PathNotGranted, "{path}");
    }
    let unbound = played.board.worker_plan(&"checker".into(), &Bindings::default()).expect("a worker");
    let view = played.board.preview(&unbound);
    assert!(!view.text.contains("text 0") && !view.text.contains("Here"), "{}", view.text);
    add(&mut played, "n", 7);
    let bindings = Bindings::from_pairs([("note", "n".to_owned()), ("other", "x".to_owned())]);
    let bound = played.board.worker_plan(&"checker".into(), &bindings).expect("a worker");
    let view = played.board.preview(&bound);
    assert!(view.text.contains("text 7") && view.text.contains("Here {note} is n."), "{}", view.text);
}

#[test]
fn names_in_braces_are_names_like_others_in_format_1() {
    let mut blueprint = notes(json!({"{note}": note(0)}), json!({}));
    blueprint["blueprint"] = json!(1);
    let mut played = Played::new(blueprint);
    add(&mut played, "other", 1);
    assert_eq!(played.calls.len(), 0, "the trigger waits for the member `{{note}}`");
    let reply = check("/notes/{note}/status").to_string();
    assert!(matches!(played.direct("checker", &reply), Outcome::Committed { .. }));
    played.holds();
}

#[test]
fn an_element_of_any_name_is_bound_as_it_is() {
    let long = "x".repeat(2000);
    for name in ["*", "**", "-", "{x}", "{note}", "", " ", "\"q\"", "a~1b", "\u{1f980}", &long] {
        let mut played = Played::new(notes(json!({}), json!({})));
        add(&mut played, name, 3);
        add(&mut played, "other", 4);
        let (_, prompt, shown) = &played.prompts[0];
        let decoded = name.replace("~1", "/");
        assert_eq!(shown.worker_plan().bound().get("note"), Some(decoded.as_str()));
        let view = &prompt.user;
        assert!(view.contains("text 3") && !view.contains("text 4") && view.contains("Here {note} is "), "{view}");
        let form = patchboard_kernel::reply_schema::ReplySchema::for_call(shown).expect("a form").schema.to_string();
        assert!(form.contains("/notes/{note}/status") && !form.contains("other"), "{form}");
        assert!(matches!(played.answer(check("/notes/{note}/status"), None), Outcome::Committed { .. }), "{name}");
        let notes = played.board.state().root().to_value()["notes"].clone();
        assert_eq!(
            (&notes[decoded.as_str()]["status"], &notes["other"]["status"]),
            (&json!("checked"), &json!("draft"))
        );
        played.holds();
    }
}

#[test]
fn the_form_of_a_reply_is_the_same_for_all_elements() {
    let mut played = Played::new(notes(json!([]), json!({})));
    (0..3).for_each(|n| add(&mut played, "-", n));
    let forms = played
        .prompts
        .iter()
        .map(|(_, _, shown)| patchboard_kernel::reply_schema::ReplySchema::for_call(shown).expect("a form"));
    let forms: Vec<_> = forms.collect();
    assert!(forms.windows(2).all(|two| two[0] == two[1]), "{forms:?}");
    let schema = jsonschema::validator_for(&forms[0].schema).expect("a schema");
    assert!(schema.is_valid(&json!({"patch": check("/notes/{note}/status")})), "{:?}", forms[0].schema);
    assert!(!schema.is_valid(&json!({"patch": check("/notes/1/status")})));
}

#[test]
fn workers_of_elements_that_are_right_already_stop_nothing() {
    let mut blueprint = notes(json!([]), json!({}));
    blueprint["rules"]
        .as_array_mut()
        .expect("rules")
        .push(json!({"name": "end", "trigger": {"after": ["check"]}, "run": "last"}));
    blueprint["workers"]["last"] = json!({"agent": "llm", "writes": [{"path": "/topic", "ops": ["replace"]}]});
    let mut played = Played::new(blueprint.clone());
    (0..5).for_each(|n| add(&mut played, "-", n));
    for _ in 0..5 {
        assert!(matches!(played.answer(json!([]), None), Outcome::NoOp { .. }));
    }
    assert_eq!((played.count(Kind::Breaker), played.calls.len()), (0, 1), "the join fires");
    played.holds();
    // Each call is rejected once, and correct at its second attempt.
    let mut played = Played::new(blueprint);
    (0..9).for_each(|n| add(&mut played, "-", n));
    for _ in 0..9 {
        assert_eq!(refused(played.answer(check("/topic"), None)).0, Stage::Authorization);
    }
    for _ in 0..9 {
        assert!(matches!(played.answer(check("/notes/{note}/status"), None), Outcome::Committed { .. }));
    }
    assert_eq!((played.count(Kind::Breaker), played.calls.len()), (0, 1));
    played.holds();
}

/// Returns a blueprint in which items are written and reviewed. Rejected items are written again while rounds are left.
fn rounds() -> Value {
    let items: serde_json::Map<String, Value> = ('a'..='h').map(|name| (name.to_string(), json!({}))).collect();
    json!({
        "blueprint": 2, "concurrency": 3,
        "state": {"schema": {}, "initial": {"items": items}},
        "workers": {
            "writer": {"agent": "llm", "reads": ["/items/{item}"], "writes": [{"path": "/items/{item}"}]},
            "reviewer": {"agent": "llm", "reads": ["/items/{item}"], "writes": [{"path": "/items/{item}/status", "ops": ["replace"]}]},
        },
        "rules": [
            {"name": "write", "trigger": {"start": "/items/{item}"}, "run": "writer"},
            {"name": "review", "trigger": {"op": "replace", "path": "/items/{item}"}, "run": "reviewer"},
            {"name": "again", "trigger": {"op": "replace", "path": "/items/{item}/status"},
             "when": "value == 'refused' && state.items[bound.item].round < 5", "run": "writer"},
        ],
    })
}

/// Plays [`rounds`]. `written` maps a writer's round to the next one; reviewers reject the items in `refused`.
fn review(played: &mut Played, written: impl Fn(u64) -> u64, refused: &str) {
    for _ in 0..200 {
        if played.calls.is_empty() {
            return;
        }
        let (worker, _, shown) = played.prompts.remove(0);
        let item = shown.worker_plan().bound().get("item").expect("it is bound").to_owned();
        let round = played.board.state().root()["items"][item.as_str()].to_value()["round"].as_u64().unwrap_or(0);
        let status = if refused.contains(&item) { "refused" } else { "accepted" };
        let reply = match worker.as_str() {
            "writer" => {
                json!([{"op": "replace", "path": "/items/{item}", "value": {"round": written(round), "status": "draft"}}])
            }
            _ => json!([{"op": "replace", "path": "/items/{item}/status", "value": status}]),
        };
        played.answer(reply, None);
    }
}

#[test]
fn an_element_that_others_have_worked_on_is_no_circle_and_neither_are_many_elements() {
    let mut played = Played::new(rounds());
    review(&mut played, |round| round + 1, "abc");
    let rounds: Vec<Value> =
        ["a", "c", "d"].iter().map(|item| played.board.state().root()["items"][*item].to_value()).collect();
    let done = |round: u64, status: &str| json!({"round": round, "status": status});
    assert_eq!(rounds, [done(5, "refused"), done(5, "refused"), done(1, "accepted")]);
    assert_eq!(played.count(Kind::Breaker), 0);
    played.holds();
    // An element that is written with the same value again and again is a cycle.
    let mut played = Played::new(rounds_of_one());
    review(&mut played, |_| 1, "b");
    let breakers = played.records.iter().filter(|record| record.kind == Kind::Breaker).count();
    assert_eq!((breakers, played.board.ended().map(|ended| ended.cause)), (1, Some(Cause::Cycles)));
    played.holds();
}

/// Returns [`rounds`] without parallel calls.
fn rounds_of_one() -> Value {
    let mut blueprint = rounds();
    blueprint["concurrency"] = json!(1);
    blueprint
}

#[test]
fn pointers_in_unreadable_parts_of_a_trigger_are_ignored() {
    let reads = json!({"reads": ["/notes/{note}/text", "/topic", "/secret/*"], "writes": []});
    let mut blueprint = notes(json!({}), reads);
    blueprint["state"]["initial"]["secret"] = json!({"a": 1});
    blueprint["state"]["schema"]["$defs"]["note"]["properties"]["status"] = json!({"type": "string"});
    let mut played = Played::new(blueprint);
    let value = json!({"text": "t", "status": "/secret/a"});
    played.direct("writer", &json!([{"op": "add", "path": "/notes/x", "value": value}]).to_string());
    assert!(!played.view().contains("Named by what woke you"), "{}", played.view());
    assert!(played.view().contains("because /notes/x is new"), "{}", played.view());
    played.holds();
}

#[test]
fn a_rejection_names_only_the_bound_element() {
    let mut blueprint = notes(json!({"other": note(1)}), json!({"limits": {"attempts": 9}}));
    blueprint["invariants"] = json!([{"name": "one-checked", "for": "/notes/*",
        "expr": "self.status != 'checked' || state.topic == 'checked'"},
        {"name": "few", "for": "/notes/*", "expr": "size(before) == 0 || !(state.notes.x.status == 'checked')"}]);
    blueprint["invariants"].as_array_mut().expect("invariants").remove(1);
    let mut played = Played::new(blueprint);
    add(&mut played, "x", 3);
    let outcome = played.answer(check("/notes/other/status"), None);
    assert_eq!(refused(outcome).0, Stage::Authorization);
    let gone = json!([{"op": "replace", "path": "/notes/{note}/status", "value": "checked"}]);
    assert_eq!(refused(played.answer(gone, None)).0, Stage::Invariant);
    assert!(!played.view().contains("/notes/other\""), "{}", played.view());
    played.holds();
}

#[test]
fn an_element_that_is_gone_is_said_to_be() {
    let mut blueprint = notes(json!({}), json!({}));
    blueprint["rules"][0]["delay"] = json!("5ms");
    blueprint["workers"]["writer"]["writes"] = json!([{"path": "/notes/*", "ops": ["add", "remove"]}]);
    let mut played = Played::new(blueprint);
    add(&mut played, "a", 0);
    played.direct("writer", r#"[{"op": "remove", "path": "/notes/a"}]"#);
    played.now += 10;
    played.give(Input::Tick);
    assert!(played.view().contains("because /notes/a is new; it is gone by now."), "{}", played.view());
    assert_eq!(played.prompts[0].2.trigger()["gone"], true);
    let Outcome::Rejected { rejection, .. } = played.answer(check("/notes/{note}/status"), None) else {
        panic!("there is nothing to write to")
    };
    assert!(!format!("{rejection:?}").contains("members"), "{rejection:?}");
    played.holds();
}

#[test]
fn a_condition_that_hides_an_element_hides_its_name() {
    let reads = json!({"reads": [{"path": "/notes/{note}", "where": "self.text == 'open'"}],
        "writes": [{"path": "/topic", "ops": ["replace"]}]});
    let mut played = Played::new(notes(json!({}), reads));
    add(&mut played, "secret", 0);
    let (_, prompt, shown) = &played.prompts[0];
    assert!(!prompt.user.contains("secret") && !shown.trigger().to_string().contains("secret"), "{}", prompt.user);
    let open = json!([{"op": "add", "path": "/notes/public", "value": {"text": "open", "status": "draft"}}]);
    played.direct("writer", &open.to_string());
    assert!(played.view().contains("Here {note} is public."), "{}", played.view());
    played.holds();
}

#[test]
fn a_person_agrees_to_what_was_written_with_a_name() {
    let writes = json!({"writes": [{"path": "/notes/{note}/status", "ops": ["replace"], "approval": {"by": "boss"}}]});
    let mut blueprint = notes(json!([]), writes);
    blueprint["workers"]["boss"] = json!({"agent": "human"});
    let mut played = Played::new(blueprint);
    (0..2).for_each(|n| add(&mut played, "-", n));
    let Outcome::AwaitingApproval { seq, .. } = played.answer(check("/notes/{note}/status"), None) else {
        panic!("a person is asked")
    };
    let pending = played.board.pending()[&seq].clone();
    assert_eq!(pending.patch, check("/notes/0/status"));
    let answer = Input::Answer(Answer {
        of: seq,
        by: "boss".into(),
        digest: pending.digest,
        agrees: true,
        reason: None,
        text: None,
    });
    let outcome = played.give(answer).outcome;
    assert!(matches!(outcome, Some(Outcome::Committed { .. })), "{outcome:?}");
    played.holds();
}

#[test]
fn a_board_of_any_mode_plays_bound_workers() {
    let reply = json!([{"op": "test", "path": "/notes/0/text", "value": note(0)["text"]},
        {"op": "replace", "path": "/notes/{note}/status", "value": "checked"}]);
    let mut played = Played::in_mode(Mode::without([Component::Contracts]), notes(json!([]), json!({})));
    add(&mut played, "-", 0);
    assert!(matches!(played.answer(reply, None), Outcome::Committed { .. }), "it reads its element");
    played.holds();
    // If replies are not patches, they contain no bound names.
    for (mode, words) in [
        (Mode::Structured {}, json!({"/notes/0/status": "checked"}).to_string()),
        (Mode::Plain {}, "It is right.\nset /notes/0/status: \"checked\"".to_owned()),
    ] {
        let mut played = Played::in_mode(mode, notes(json!([]), json!({})));
        add(&mut played, "-", 0);
        let (_, prompt, _) = &played.prompts[0];
        assert!(
            !prompt.system.contains("{note}") && !prompt.user.contains("/{note}"),
            "{}{}",
            prompt.system,
            prompt.user
        );
        assert!(prompt.user.contains("/notes/0/status"), "{}", prompt.user);
        assert!(matches!(played.says(&words), Outcome::Committed { .. }));
        played.holds();
    }
}

#[test]
fn a_signal_binds_what_it_carries() {
    let mut blueprint = notes(json!({"a": note(0), "b": note(1)}), json!({}));
    blueprint["rules"] = json!([
        {"name": "look", "trigger": {"signal": "look"}, "bind": {"note": "/id"}, "run": "checker"},
        {"name": "redo", "trigger": "manual", "bind": {"note": ""}, "run": "checker", "when": "bound.note != 'b'"},
    ]);
    let mut played = Played::new(blueprint);
    let signal = |name: &str, value: Value| Input::Signal { name: name.into(), value, key: None };
    played.give(signal("look", json!({"id": "b"})));
    assert!(played.view().contains("text 1") && !played.view().contains("text 0"), "{}", played.view());
    assert!(matches!(played.answer(check("/notes/{note}/status"), None), Outcome::Committed { .. }));
    for value in [json!({}), json!({"id": null}), json!({"id": -1}), json!({"id": ["b"]}), json!("b")] {
        played.give(signal("look", value));
    }
    assert_eq!((played.calls.len(), played.count(Kind::Skipped)), (0, 5));
    played.give(signal("redo", json!("b")));
    assert_eq!(played.calls.len(), 0, "the condition knows what is bound");
    played.give(signal("redo", json!("a")));
    assert!(played.view().contains("text 0"), "{}", played.view());
    played.give(signal("look", json!({"id": 17})));
    assert!(played.view().contains("Here {note} is 17."), "{}", played.view());
    played.holds();
}

#[test]
fn conditions_of_grants_know_what_is_bound() {
    let writes = json!([{"path": "/notes/{note}/status", "ops": ["replace"],
        "where": {"of": "/notes/{note}", "expr": "self.text != '' && bound.note == 'a'"}}]);
    let mut played = Played::new(notes(json!({}), json!({"writes": writes, "limits": {"attempts": 1}})));
    add(&mut played, "b", 0);
    add(&mut played, "a", 1);
    assert_eq!(refused(played.answer(check("/notes/b/status"), None)).1, Code::ConditionNotMet);
    assert!(matches!(played.answer(check("/notes/a/status"), None), Outcome::Committed { .. }));
    played.holds();
}

#[test]
fn follow_ups_and_retries_keep_their_bound_element() {
    let mut blueprint = notes(json!([]), json!({"limits": {"attempts": 1}}));
    blueprint["rules"][0]["delay"] = json!("5ms");
    let mut played = Played::new(blueprint);
    (0..2).for_each(|n| add(&mut played, "-", n));
    played.now += 10;
    played.give(Input::Tick);
    assert_eq!(played.calls.len(), 2, "a delayed invocation keeps what it was about");
    assert!(played.view().contains("Here {note} is 1."));
    assert_eq!(refused(played.answer(json!("no patch"), None)).0, Stage::Syntax);
    assert!(matches!(played.answer(json!({"expand": ["/topic"]}), None), Outcome::Expanded { .. }));
    assert!(played.view().contains("Here {note} is 1."));
    assert!(matches!(played.answer(check("/notes/{note}/status"), None), Outcome::Committed { .. }));
    played.give(Input::Retry(patchboard_kernel::record::Retried::default()));
    assert!(played.view().contains("Here {note} is 0.") && played.view().contains("text 0"), "{}", played.view());
    assert!(matches!(played.answer(check("/notes/{note}/status"), None), Outcome::Committed { .. }));
    played.holds();
}

/// Random collection of a random blueprint.
#[derive(Clone, Debug)]
struct Scene {
    is_array: bool,
    depth: usize,
    elements: usize,
    freshness: &'static str,
    concurrency: u32,
    order: Vec<usize>,
}

fn scene() -> impl Strategy<Value = Scene> {
    let freshness = prop_oneof![Just("none"), Just("target"), Just("reads"), Just("members")];
    (any::<bool>(), 1..4_usize, 1..12_usize, freshness, 1..9_u32, proptest::collection::vec(0..8_usize, 40)).prop_map(
        |(is_array, depth, elements, freshness, concurrency, order)| Scene {
            is_array,
            depth,
            elements,
            freshness,
            concurrency,
            order,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Holds for any collection, depth and order of answers. An invocation that is bound to an element is never
    /// rejected because of another, and is shown only its own element.
    #[test]
    fn bound_invocations_of_different_elements_all_commit(scene in scene()) {
        let Scene { is_array, depth, elements, freshness, concurrency, order } = scene;
        let above: String = (0..depth).map(|n| format!("/l{n}")).collect();
        let mut initial = if is_array { json!([]) } else { json!({}) };
        for n in (0..depth).rev() {
            initial = json!({format!("l{n}"): initial});
        }
        let append = if is_array { format!("{above}/-") } else { format!("{above}/*") };
        let mut played = Played::new(json!({
            "blueprint": 2, "concurrency": concurrency, "state": {"schema": {}, "initial": initial},
            "workers": {
                "writer": {"agent": "script", "script": [[]], "writes": [{"path": append, "ops": ["add"]}]},
                "mapper": {"agent": "llm", "freshness": freshness, "reads": [format!("{above}/{{it}}")],
                    "writes": [{"path": format!("{above}/{{it}}/done"), "ops": ["add"]}]},
            },
            "rules": [{"name": "map", "trigger": {"op": "add", "path": format!("{above}/{{it}}")}, "run": "mapper"}],
        }));
        for n in 0..elements {
            let name = if is_array { "-".to_owned() } else { format!("k{n}") };
            let reply = json!([{"op": "add", "path": format!("{above}/{name}"), "value": {"text": format!("<{n}>")}}]);
            let outcome = played.direct("writer", &reply.to_string());
            let is_committed = matches!(outcome, Outcome::Committed { .. });
            prop_assert!(is_committed);
        }
        let mut order = order.into_iter();
        let mut answered = 0;
        while !played.calls.is_empty() {
            let place = order.next().unwrap_or_default() % played.calls.len();
            let call = played.calls.remove(place);
            played.calls.insert(0, call);
            let reply = json!([{"op": "add", "path": format!("{above}/{{it}}/done"), "value": true}]);
            let outcome = played.answer(reply, None);
            let is_committed = matches!(outcome, Outcome::Committed { .. });
            prop_assert!(is_committed, "{outcome:?}");
            answered += 1;
        }
        prop_assert_eq!(answered, elements);
        let mut seen = BTreeMap::new();
        for (_, prompt, shown) in &played.prompts {
            let it = shown.worker_plan().bound().get("it").expect("it is bound").to_owned();
            let of: Vec<usize> = (0..elements).filter(|n| prompt.user.contains(&format!("<{n}>"))).collect();
            prop_assert_eq!(of.len(), 1);
            prop_assert!(seen.insert(it, of[0]).is_none());
        }
        played.holds();
    }
}

#[test]
fn a_call_says_what_woke_it_with_as_much_of_the_value_as_its_view_shows() {
    let triggers =
        |played: &Played| -> Vec<Value> { played.prompts.iter().map(|(_, _, shown)| shown.trigger()).collect() };
    let mut played = Played::new(notes(json!([]), json!({})));
    add(&mut played, "-", 0);
    assert_eq!(
        triggers(&played),
        [
            json!({"kind": "event", "rule": "check", "op": "add", "path": "/notes/0", "bound": {"note": "0"}, "version": 1,
            "value": note(0)})
        ]
    );

    // If the worker may read a part of the value, it is given that part, and the place is named.
    let reads = json!({"reads": ["/notes/*/status"], "writes": [{"path": "/notes/*/status", "ops": ["replace"]}]});
    let mut played = Played::new(notes(json!({}), reads.clone()));
    add(&mut played, "a", 0);
    assert_eq!(
        triggers(&played),
        [json!({"kind": "event", "rule": "check", "op": "add", "path": "/notes/a", "version": 1,
            "value": {"status": "draft"}, "partial": true})]
    );
    assert!(played.view().contains("You were woken by rule check, because /notes/a is new."), "{}", played.view());

    // The value is omitted if the view has no room for it, or the worker may read none of it.
    let small = json!({"view": {"budget": 700}});
    let mut played = Played::new(notes(json!({}), small));
    let long = json!([{"op": "add", "path": "/notes/a", "value": {"text": "x".repeat(1000), "status": "draft"}}]);
    played.direct("writer", &long.to_string());
    let trigger = triggers(&played).remove(0);
    assert_eq!((&trigger["partial"], &trigger["value"]["text"]), (&json!(true), &Value::Null), "{trigger}");
    let mut played = Played::new(notes(json!({}), json!({"reads": ["/topic"], "writes": []})));
    add(&mut played, "a", 0);
    assert_eq!(triggers(&played), [json!({"kind": "event", "rule": "check", "op": "add", "version": 1})]);

    // A removed element is named, and has no value.
    let mut blueprint = notes(json!({"a": note(0)}), json!({}));
    blueprint["rules"][0]["trigger"] = json!({"op": "remove", "path": "/notes/{note}"});
    blueprint["workers"]["writer"]["writes"] = json!([{"path": "/notes/*", "ops": ["remove"]}]);
    let mut played = Played::new(blueprint);
    played.direct("writer", r#"[{"op": "remove", "path": "/notes/a"}]"#);
    assert_eq!(
        triggers(&played),
        [
            json!({"kind": "event", "rule": "check", "op": "remove", "path": "/notes/a", "bound": {"note": "a"}, "version": 1})
        ]
    );

    // A signal carries its value.
    let mut blueprint = notes(json!({"a": note(0)}), json!({}));
    blueprint["rules"] =
        json!([{"name": "look", "trigger": {"signal": "look"}, "bind": {"note": "/id"}, "run": "checker"}]);
    let mut played = Played::new(blueprint);
    played.give(Input::Signal { name: "look".into(), value: json!({"id": "a"}), key: None });
    assert_eq!(
        triggers(&played),
        [json!({"kind": "signal", "rule": "look", "name": "look", "bound": {"note": "a"}, "value": {"id": "a"}})]
    );
    let rehearsal = played.board.dry_run(&"checker".into(), None, &Bindings::default()).expect("a worker");
    assert_eq!(rehearsal.context.trigger(), json!({"kind": "preview"}));
}

#[test]
fn a_board_that_was_restored_goes_on_as_the_one_that_was_stored() {
    let mut blueprint = notes(json!([]), json!({}));
    blueprint["workers"]["last"] = json!({"agent": "llm", "writes": [{"path": "/topic", "ops": ["replace"]}]});
    let join = json!({"name": "end", "trigger": {"settled": ["check"]}, "run": "last"});
    blueprint["rules"].as_array_mut().expect("rules").push(join);
    let mut played = Played::new(blueprint);
    (0..3).for_each(|n| add(&mut played, "-", n));
    let wrong = json!([{"op": "replace", "path": "/notes/{note}/status", "value": "wrong"}]);
    assert_eq!(refused(played.answer(wrong, None)).0, Stage::Schema);
    let mut restored = crate::snapshot::restored(&played.board, &played.records);
    let calls = played.calls.clone();
    for (nth, (invocation, attempt, worker)) in calls.into_iter().enumerate() {
        let path = format!("/notes/{{note}}/{}", if nth == 0 { "nothing" } else { "status" });
        let proposal = Proposal {
            from: ProposalSource::Attempt { invocation, attempt },
            worker: worker.as_str().into(),
            reply: ReplyBody::Text(check(&path).to_string()),
            usage: None,
            raw: None,
        };
        played.calls.remove(0);
        let step = played.give(Input::Propose(proposal.clone()));
        let now = patchboard_kernel::id::Timestamp(played.now);
        let again = restored.step_ungated(now, Input::Propose(proposal));
        assert_eq!((&step.records, &step.outcome), (&again.records, &again.outcome));
    }
    assert_eq!(restored.snapshot_digest(), played.board.snapshot_digest());
    played.holds();
}

#[test]
fn a_border_needs_the_names_of_its_places_bound() {
    let inner = json!({"blueprint": 1, "name": "inner", "done": {"when": "has(state.verdict)"},
        "request": {"type": "object", "properties": {"note": {}}, "additionalProperties": false},
        "state": {"schema": {"properties": {"request": true, "verdict": {"type": "string"}}}},
        "workers": {"w": {"agent": "script", "script": [[]], "writes": [{"path": "/verdict"}]}},
        "rules": [{"name": "go", "trigger": "start", "run": "w"}]});
    let outer = |writes: &str, output: &str, trigger: Value| {
        let mut blueprint = notes(
            json!({"a": note(0)}),
            json!({"agent": "board", "reads": ["/notes"],
            "writes": [{"path": writes, "ops": ["add", "replace"]}],
            "board": {"of": "inner", "input": {"note": "/notes/{note}"}, "output": {output: "/verdict"}}}),
        );
        blueprint["name"] = json!("outer");
        blueprint["boards"] = json!({"inner": inner});
        blueprint["rules"][0]["trigger"] = trigger;
        blueprint["workers"].as_object_mut().expect("workers").remove("writer");
        blueprint["done"] = json!({"when": "false || state.topic == ''"});
        let report = patchboard_protocols::check_value(blueprint);
        let errors = report.findings.into_iter().filter(|finding| finding.severity == patchboard_lint::Severity::Error);
        errors.map(|finding| finding.code).collect::<Vec<_>>()
    };
    let each = || json!({"start": "/notes/{note}"});
    assert_eq!(outer("/notes/{note}/text", "/notes/{note}/text", each()), Vec::<&str>::new());
    assert_eq!(outer("/notes/{note}/text", "/notes/{note}/text", json!("start")), ["unbound_name"]);
    for output in ["/notes/{nope}/text", "/notes/a/text", "/notes/*/text"] {
        let found = outer("/notes/{note}/text", output, each());
        assert!(found.contains(&"bad_board"), "{output}: {found:?}");
    }
    // A grant for any element also covers the bound name.
    assert_eq!(outer("/notes/*/text", "/notes/{note}/text", each()), Vec::<&str>::new());
}
