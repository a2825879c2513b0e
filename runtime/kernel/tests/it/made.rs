//! Replies that are not patches: the shell converts them into patches, and the journal keeps both.

use crate::played::Played;
use jsonptr::PointerBuf;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::bindings::Bindings;
use patchboard_kernel::board::{Input, Outcome, Proposal, ProposalSource, RememberedOutcome, ReplyBody};
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::record::{Answer, Body, Kind};
use patchboard_kernel::redaction::{self, Request};
use patchboard_kernel::rejection::{Code, Stage};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

const RAW: &str = "```\n{'output': 'It is 7.'}\n```";

fn members() -> Value {
    let writes =
        json!([{"path": "/board/public/-", "ops": ["add"], "value": {"properties": {"kind": {"const": "expertise"}}}}]);
    let expert = json!({"agent": "script", "reads": ["/board"], "writes": writes, "pass": true, "format": "expert"});
    let mut llm = expert.clone();
    llm["agent"] = json!("llm");
    llm["format"] = json!("critic");
    let mut asks = expert.clone();
    asks["writes"][0]["approval"] = json!({"by": "boss"});
    json!({
        "state": {"schema": {"type": "object"}, "initial": {"board": {"public": [], "rooms": {}}}},
        "workers": {"expert": expert, "critic": llm, "asks": asks, "boss": {"agent": "human"}},
        "rules": [
            {"name": "go", "trigger": {"signal": "go"}, "run": "expert"},
            {"name": "criticise", "trigger": {"signal": "criticise"}, "run": "critic"},
            {"name": "ask", "trigger": {"signal": "ask"}, "run": "asks"},
            {"name": "room", "trigger": {"op": "add", "path": "/board/rooms/*/agenda/*"}, "run": "critic"},
        ],
        "limits": {"wall": "20s"},
    })
}

fn wake(played: &mut Played, name: &str) {
    played.give(Input::Signal { name: name.into(), value: Value::Null, key: None });
}

fn message(kind: &str, text: &str) -> Value {
    json!({"patch": [{"op": "add", "path": "/board/public/-", "value": {"from": "expert", "kind": kind, "text": text}}]})
}

fn made(reply: &Value, of: &str) -> ReplyBody {
    ReplyBody::Derived { reply: reply.to_string(), source: of.to_owned() }
}

/// Answers the oldest call with a patch made from a text.
fn answer(played: &mut Played, reply: ReplyBody) -> (Proposal, Outcome) {
    let (invocation, attempt, worker) = played.calls.remove(0);
    let from = ProposalSource::Attempt { invocation, attempt };
    let proposal = Proposal { from, worker: worker.as_str().into(), reply, usage: None, raw: None };
    let outcome = played.give(Input::Propose(proposal.clone())).outcome.expect("an outcome");
    (proposal, outcome)
}

/// Returns the recorded original texts of replies, by kind of record.
fn written(played: &Played) -> Vec<(Kind, Option<String>)> {
    let of = |body: Body| match body {
        Body::Committed(it) => Some((Kind::Committed, it.written)),
        Body::NoOp(it) => Some((Kind::NoOp, it.written)),
        Body::Rejected(it) => Some((Kind::Rejected, it.written)),
        Body::Approval(it) => Some((Kind::Approval, it.written)),
        Body::Late(it) => Some((Kind::Late, Some(it.reply))),
        _ => None,
    };
    played.bodies().filter_map(of).collect()
}

#[test]
fn the_words_are_kept_with_what_became_of_them_and_a_replay_derives_both() {
    for mode in [Mode::default(), Mode::Plain {}] {
        let mut played = Played::in_mode(mode.clone(), members());
        let mut kept = Vec::new();
        for (signal, reply, kind) in [
            ("go", message("expertise", "It is 7."), Kind::Committed),
            ("go", json!({"pass": "nothing new"}), Kind::NoOp),
            ("go", message("critique", "It is 8."), Kind::Rejected),
            ("ask", message("expertise", "It is 9."), Kind::Approval),
        ] {
            played.calls.clear();
            wake(&mut played, signal);
            let (proposal, outcome) = answer(&mut played, made(&reply, RAW));
            // In plain mode the kernel adds its own message, and the original text is not kept.
            let is_kept = mode == Mode::default();
            let is_posted = kind == Kind::Committed && !is_kept;
            kept.push((kind, if is_kept { Some(RAW.to_owned()) } else { is_posted.then(|| reply.to_string()) }));
            assert_eq!(written(&played).last(), kept.last(), "{outcome:?}");
            if is_kept {
                // The text is repeated with different patches made from it.
                for again in [proposal.reply.clone(), ReplyBody::Text(RAW.to_owned()), made(&json!([]), RAW)] {
                    let again = Proposal { reply: again, ..proposal.clone() };
                    let outcome = played.give(Input::Propose(again)).outcome;
                    assert!(matches!(outcome, Some(Outcome::Duplicate(_))), "{outcome:?}");
                }
                let other = Proposal { reply: made(&reply, "other words"), ..proposal };
                let outcome = played.give(Input::Propose(other)).outcome;
                assert!(matches!(outcome, Some(Outcome::Rejected { .. })), "{outcome:?}");
                kept.push((Kind::Late, Some("other words".to_owned())));
            }
        }
        if let Some((of, question)) = played.board.pending().iter().next().map(|(seq, it)| (*seq, it.digest)) {
            let (by, reason) = ("boss".into(), None);
            let answer = Input::Answer(Answer { of, by, digest: question, agrees: true, reason, text: None });
            let outcome = played.give(answer).outcome;
            assert!(matches!(outcome, Some(Outcome::Committed { .. })), "{outcome:?}");
            assert_eq!(written(&played).last().map(|(kind, _)| *kind), Some(Kind::Committed));
        }
        played.holds();
    }
}

#[test]
fn a_reply_as_the_model_sent_it_is_kept_with_what_became_of_it_and_is_never_judged() {
    let mut played = Played::new(members());
    let mut kept = Vec::new();
    for (signal, reply, kind) in [
        ("go", message("expertise", "It is 7."), Kind::Committed),
        ("go", json!({"pass": "nothing new"}), Kind::NoOp),
        ("go", json!({"patch": [], "expand": ["/board"]}), Kind::Expanded),
        ("go", message("critique", "It is 8."), Kind::Rejected),
        ("ask", message("expertise", "It is 9."), Kind::Approval),
    ] {
        played.calls.clear();
        wake(&mut played, signal);
        let (invocation, attempt, worker) = played.calls.remove(0);
        let raw = Some(format!("<think>[{{\"op\": \"remove\", \"path\": \"\"}}]</think>```json\n{reply}\n```"));
        let propose = |worker: &str, raw| Proposal {
            from: ProposalSource::Attempt { invocation, attempt },
            worker: worker.into(),
            reply: ReplyBody::Text(reply.to_string()),
            usage: None,
            raw,
        };
        played.give(Input::Propose(propose("nobody", raw.clone())));
        played.give(Input::Propose(propose(&worker, raw.clone())));
        // A repeated reply is recognised in any wrapping.
        let outcome = played.give(Input::Propose(propose(&worker, None))).outcome;
        assert!(matches!(outcome, Some(Outcome::Duplicate(_))), "{outcome:?}");
        kept.extend([(Kind::Late, raw.clone()), (kind, raw)]);
    }
    let raw = |body: Body| match body {
        Body::Committed(it) => Some((Kind::Committed, it.raw)),
        Body::NoOp(it) => Some((Kind::NoOp, it.raw)),
        Body::Expanded(it) => Some((Kind::Expanded, it.raw)),
        Body::Rejected(it) => Some((Kind::Rejected, it.raw)),
        Body::Approval(it) => Some((Kind::Approval, it.raw)),
        Body::Late(it) => Some((Kind::Late, it.raw)),
        _ => None,
    };
    assert_eq!(played.bodies().filter_map(raw).collect::<Vec<_>>(), kept);
    played.holds();
}

#[test]
fn words_that_a_person_does_not_agree_to_are_kept_with_the_patch_that_was_made_of_them() {
    let mut played = Played::new(members());
    let reply = message("expertise", "It is 9.");
    for _ in 0..65 {
        wake(&mut played, "ask");
        answer(&mut played, made(&reply, RAW));
    }
    let (of, digest) = played.board.pending().iter().next().map(|(seq, it)| (*seq, it.digest)).expect("a question");
    let (by, reason) = ("boss".into(), None);
    played.give(Input::Answer(Answer { of, by, digest, agrees: false, reason, text: None }));
    // The other questions expire.
    played.now += 366 * 24 * 3_600_000;
    played.give(Input::Tick);
    let refused = played.bodies().filter_map(|body| match body {
        Body::Rejected(it) => Some((it.code, it.reply, it.written)),
        _ => None,
    });
    let refused: Vec<_> = refused.collect();
    for code in [Code::ApprovalLimit, Code::Denied, Code::ApprovalExpired] {
        assert!(refused.iter().any(|(refused, ..)| *refused == code), "{code}");
    }
    let patch = reply["patch"].to_string();
    for (code, reply, written) in refused {
        assert_eq!((&reply, written.as_deref()), (&patch, Some(RAW)), "{code}");
    }
    played.holds();
}

#[test]
fn an_unreadable_reply_is_rejected_in_terms_of_its_format() {
    let mut played = Played::new(members());
    wake(&mut played, "criticise");
    for reply in ["I am not sure.", "{\"critics\": []}", "7"] {
        let outcome = played.says(reply);
        let Outcome::Rejected { rejection, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(rejection.stage, Stage::Syntax);
        assert!(rejection.violations[0].message.contains("\"critic list\""), "{:?}", rejection.violations);
        assert!(rejection.violations[0].message.contains("cannot be read"));
    }
    played.holds();
    // A patch is accepted as well, and judged as usual.
    let mut played = Played::new(members());
    wake(&mut played, "go");
    let outcome = played.answer(message("critique", "no"), None);
    assert!(matches!(outcome, Outcome::Rejected { rejection, .. } if rejection.code == Code::ValueNotGranted));
    assert!(matches!(played.answer(message("expertise", "yes"), None), Outcome::Committed { .. }));
    assert_eq!(written(&played).last(), Some(&(Kind::Committed, None)));
    played.holds();
}

#[test]
fn a_worker_learns_of_its_form_and_of_nothing_else() {
    let mut played = Played::new(members());
    wake(&mut played, "criticise");
    let (instructions, view) = (played.instructions().to_owned(), played.view().to_owned());
    assert!(instructions.contains("{\"critic list\": [{\"wrong message\""), "{instructions}");
    assert!(instructions.contains("{\"pass\": \"no problem, waiting for more information\"}"), "{instructions}");
    for word in ["JSON Patch", "\"patch\"", "\"op\""] {
        assert!(!instructions.contains(word) && !view.contains(word), "{word}\n{instructions}\n{view}");
    }
    assert!(!view.contains("You may write"), "{view}");
    assert!(view.trim_end().ends_with("\"explanation\": \"...\"}]}."), "{view}");
    // The instructions differ in a room.
    let mut members = members();
    let rooms = json!({"path": "/board/rooms/*", "ops": ["add"]});
    members["workers"]["expert"]["writes"].as_array_mut().expect("an array").push(rooms);
    let mut played = Played::new(members);
    let room = json!({"members": ["critic"], "agenda": [{"who": "critic", "act": "discuss"}], "messages": []});
    played.direct("expert", &json!([{"op": "add", "path": "/board/rooms/a", "value": room}]).to_string());
    assert!(
        played.view().contains("Now say there what you think, and answer with {\"output\": \"...\"}."),
        "{}",
        played.view()
    );
}

#[test]
fn a_place_that_a_worker_may_not_read_does_not_decide_what_becomes_of_its_words() {
    for (members_of, woken_at) in [(json!(["critic"]), Some("/board/rooms/a/agenda/0")), (json!(["expert"]), None)] {
        let mut members = members();
        members["workers"]["critic"]["reads"] =
            json!(["/board/public", {"path": "/board/rooms/*", "where": "worker in self.members"}]);
        let rooms = json!({"path": "/board/rooms/*", "ops": ["add"]});
        members["workers"]["expert"]["writes"].as_array_mut().expect("an array").push(rooms);
        let mut played = Played::new(members);
        let room = json!({"members": members_of, "agenda": [{"who": "critic", "act": "discuss"}], "messages": []});
        played.direct("expert", &json!([{"op": "add", "path": "/board/rooms/a", "value": room}]).to_string());
        let (worker, _, shown) = played.prompts.last().expect("somebody is asked");
        assert_eq!((worker.as_str(), shown.trigger_place()), ("critic", woken_at));
        let invocation = played.board.invocation(played.calls[0].0).expect("it is under way").clone();
        let rehearsal = played
            .board
            .dry_run(&"critic".into(), Some(&invocation), &Bindings::default())
            .expect("the worker is there");
        assert_eq!(rehearsal.context.trigger_place(), woken_at);
        assert_eq!(played.view().contains("say there what you think"), woken_at.is_some(), "{}", played.view());
    }
}

#[test]
fn words_are_erased_with_what_was_made_of_them_however_short_it_is() {
    let mut played = Played::new(members());
    wake(&mut played, "go");
    let raw = "the final answer is boxed[7]";
    let reply =
        json!([{"op": "add", "path": "/board/public/-", "value": {"from": "e", "kind": "expertise", "text": "7"}}]);
    answer(&mut played, made(&reply, raw));
    wake(&mut played, "go");
    let (proposal, refused) =
        answer(&mut played, made(&message("critique", "x"), "boxed[7] is wrong, says Ada Lovelace"));
    assert!(matches!(refused, Outcome::Rejected { .. }));
    played.give(Input::Cancel);
    let place = PointerBuf::parse("/board/public/0/text").expect("a pointer");
    let request = Request { places: vec![place], ..Request::default() };
    let planned = redaction::plan(&played.board, &played.records, &mut |_| None, &request).expect("it is erased");
    assert!(planned.records.iter().all(|record| !record.payload.contains(raw)));
    assert!(planned.records.iter().any(|record| record.kind == Kind::Committed));
    let rejected = played.records.iter().find(|record| record.kind == Kind::Rejected).expect("there").seq;
    let request = Request { records: vec![rejected], ..Request::default() };
    let planned = redaction::plan(&played.board, &played.records, &mut |_| None, &request).expect("it is erased");
    assert!(planned.records.iter().all(|record| !record.payload.contains("Lovelace")));
    // The fingerprint that identifies a repetition remains.
    let mut records = played.records.clone();
    for changed in planned.records {
        let index = usize::try_from(changed.seq.0).expect("small");
        records[index] = changed;
    }
    let said = played.board.clone().step(Timestamp(played.now + 1), Input::Redact(planned.body));
    records.extend(said.records);
    let mut board = patchboard_kernel::board::Board::recover(&records, &PLANS).expect("it is recovered");
    let reply = ReplyBody::Text("boxed[7] is wrong, says Ada Lovelace".to_owned());
    let again = Proposal { reply, ..proposal };
    let outcome = board.step(Timestamp(99), Input::Propose(again)).outcome;
    assert!(matches!(outcome, Some(Outcome::Duplicate(RememberedOutcome::Rejected { .. }))), "{outcome:?}");
}
