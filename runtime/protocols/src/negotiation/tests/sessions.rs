//! Whole negotiations: messages as input, kept events as output.

use serde_json::{Value, json};

use super::super::*;
use patchboard_kernel::id::Timestamp;

/// Negotiation between `a` and `b`; `e` evaluates their drafts.
struct Play {
    session: Session,
    seats: Participants,
    now: i64,
}

const TOPIC: &str = "delivery";

impl Play {
    fn new(setup: Value) -> Self {
        let name = |name: &str| vec![name.to_owned()];
        let seats =
            Participants { by: "n".to_owned(), parties: vec!["a".to_owned(), "b".to_owned()], evaluators: name("e") };
        let setup = serde_json::from_value(setup).expect("a setup");
        Self { session: Session { setup, ..Session::default() }, seats, now: 0 }
    }

    fn opened(setup: Value) -> Self {
        let mut play = Self::new(setup);
        play.look(&AdvanceInput::default());
        play
    }

    /// Processes the state, appends the resulting events as a board would, and checks that nothing remains to be done.
    fn look(&mut self, woken: &AdvanceInput) -> Option<Question> {
        let asked =
            OpenRequest { topic: Some(TOPIC.to_owned()), corr: Some("c-1".to_owned()), ..OpenRequest::default() };
        let woken = AdvanceInput { now: Timestamp(self.now), ..woken.clone() };
        let step = advance(&self.session, &self.seats, &asked, &woken).expect("it can be played");
        assert!(step.additions.is_empty() || step.ask.is_none());
        let mut board = json!({"negotiation": self.session});
        let ops: Vec<Value> = step.additions.iter().map(|added| added.op("/negotiation")).collect();
        let patch: json_patch::Patch = serde_json::from_value(json!(ops)).expect("a patch");
        json_patch::patch(&mut board, &patch).expect("it applies");
        self.session = serde_json::from_value(board["negotiation"].clone()).expect("a negotiation");
        let again = advance(&self.session, &self.seats, &asked, &AdvanceInput { answers: Vec::new(), ..woken });
        let again = again.expect("it can be played");
        assert_eq!(again.additions, [], "once is enough");
        again.ask
    }

    fn say(&mut self, event: Value) -> Option<Question> {
        self.session.events.push(event);
        self.look(&AdvanceInput::default())
    }

    fn draft(&mut self, from: &str, value: Value) -> Option<Question> {
        let kind = if self.session.versions.is_empty() { "propose" } else { "counter" };
        self.say(json!({"kind": kind, "ts": 0, "from": from, "ct": "application/json", "payload": value}))
    }

    fn evaluate(&mut self, score: f64) -> Option<Question> {
        self.say(json!({"kind": "evaluate", "ts": 0, "from": "e", "score": score, "notes": "well"}))
    }

    fn last(&self) -> &Value {
        self.session.events.last().expect("something was said")
    }

    fn decision(&self) -> &DecisionReport {
        match self.session.reports.last() {
            Some(Report::Decision(decision)) => decision,
            other => panic!("no decision: {other:?}"),
        }
    }

    fn refused(&self) -> Vec<NegotiationCode> {
        self.session.refused.iter().map(|refused| refused.code).collect()
    }

    fn turn(&self) -> (usize, &str) {
        let round = self.session.rounds.last().expect("a round");
        (round.n, &round.turn)
    }
}

fn priced() -> Value {
    json!({
        "schema": {"type": "object", "required": ["price"], "properties": {"price": {"type": "integer"}}},
        "examples": [{"name": "positive", "expr": "draft.price > 0"}],
    })
}

#[test]
fn it_is_opened_with_a_policy_for_all_to_see() {
    let mut setup = priced();
    setup["preferences"] = json!({"a": {"max_rounds": 3}, "b": {"hitl": "PauseOnFinalAccept"}});
    let play = Play::opened(setup);
    let policy = json!(Policy { max_rounds: 3, hitl: Hitl::PauseOnFinalAccept, ..Policy::default() });
    let [open, begun] = play.session.events.as_slice() else { panic!("{:?}", play.session.events) };
    assert_eq!((&open["kind"], &open["topic"], &open["corr"]), (&json!("open"), &json!(TOPIC), &json!("c-1")));
    assert_eq!((&begun["negotiation_id"], &begun["corr"], &begun["policy"]), (&json!("c-1"), &json!("c-1"), &policy));
    assert_eq!(json!(play.session.policy)["policy"], policy);
    assert_eq!(play.turn(), (1, "a"));
}

#[test]
fn a_profile_is_chosen_by_name_and_an_unknown_one_ends_it() {
    let setup = json!({"profiles": {"quick": {"policy": {"max_rounds": 2}}}});
    let opened = |profile: &str| {
        let mut play = Play::new(setup.clone());
        play.say(json!({"kind": "open", "ts": 0, "topic": "t", "corr": "x", "profile": profile}));
        play
    };
    let quick = opened("quick");
    let effective = quick.session.policy.as_ref().expect("a policy");
    assert_eq!((effective.policy.max_rounds, effective.profile.as_deref()), (2, Some("quick")));
    let unknown = opened("slow");
    assert_eq!(
        (&unknown.last()["kind"], &unknown.last()["reason"]),
        (&json!("abort"), &json!("negotiation_unknown_profile"))
    );
    assert_eq!(unknown.session.rounds, []);
    let decision = unknown.decision();
    assert_eq!((decision.round, decision.stop_reason), (0, Some(StopReason::UnknownProfile)));
}

#[test]
fn drafts_go_to_and_fro_until_one_is_good_enough() {
    let mut play = Play::opened(priced());
    play.draft("a", json!({"price": 100}));
    assert_eq!(play.session.versions.len(), 1);
    play.evaluate(0.2);
    assert_eq!(play.turn(), (2, "b"));
    play.now = 500;
    play.draft("b", json!({"price": 80}));
    assert_eq!(
        json!(play.session.diffs[0]),
        json!({"from": 1, "to": 2,
        "delta": {"magnitude": 1.0, "changed_paths": ["/price"]}, "patch": [{"op": "replace", "path": "/price", "value": 80}]})
    );
    play.evaluate(0.9);
    let decision = play.decision();
    assert_eq!((decision.outcome, decision.stop_reason), (Outcome::Accepted, Some(StopReason::ThresholdMet)));
    assert_eq!((decision.decided_by, decision.scores.as_slice()), (DecidedBy::Consensus, &[0.6, 0.95][..]));
    let last = play.last();
    assert_eq!((&last["kind"], &last["by"], &last["corr"]), (&json!("decide"), &json!("n"), &json!("c-1")));
    assert_eq!(decode(last["result_b64"].as_str().expect("a text")).as_deref(), Ok(&b"{\"price\":80}"[..]));
    // Later events are rejected.
    play.draft("a", json!({"price": 1}));
    assert_eq!(play.refused(), [NegotiationCode::Ended]);
}

#[test]
fn every_round_that_goes_on_has_a_decision_of_its_own() {
    let mut play = Play::opened(priced());
    play.draft("a", json!({"price": 100}));
    play.evaluate(0.2);
    let Some(Report::Decision(first)) = play.session.reports.last() else { panic!("{:?}", play.session.reports) };
    assert_eq!((first.round, first.outcome, first.stop_reason), (1, Outcome::Continue, None));
    assert_eq!((first.decided_by, first.scores.as_slice()), (DecidedBy::Policy, &[0.6][..]));
    assert_eq!(first.rationale, "round 1 has a score of 0.6, 0.8 is enough, and nothing ends it");
    assert_eq!(json!(first)["stop_reason"], Value::Null, "it is said that there is none");
    play.draft("b", json!({"price": 80}));
    play.evaluate(0.9);
    let decided = |report: &Report| match report {
        Report::Decision(decision) => Some((decision.round, decision.outcome)),
        Report::Evaluation(_) | Report::Person(_) => None,
    };
    let decided: Vec<(usize, Outcome)> = play.session.reports.iter().filter_map(decided).collect();
    assert_eq!(decided, [(1, Outcome::Continue), (2, Outcome::Accepted)]);
}

#[test]
fn small_changes_continue_while_the_score_improves() {
    let mut play = Play::opened(json!({}));
    let items = |last: usize| json!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, last]);
    for (round, score) in [(1, 0.1), (2, 0.2), (3, 0.3)] {
        let turn = play.turn().1.to_owned();
        play.draft(&turn, items(round));
        play.evaluate(score);
        assert_eq!(play.turn().0, round + 1, "it gets better");
    }
    let turn = play.turn().1.to_owned();
    play.draft(&turn, items(4));
    play.evaluate(0.3);
    assert_eq!((play.decision().round, play.decision().stop_reason), (4, Some(StopReason::NoProgress)));
}

#[test]
fn messages_of_another_negotiation_are_rejected() {
    let mut play = Play::opened(priced());
    let draft = |corr: &str| {
        let payload = json!({"price": 1});
        json!({"kind": "propose", "ts": 0, "from": "a", "ct": "application/json", "payload": payload, "corr": corr})
    };
    play.say(draft("c-2"));
    assert_eq!((play.refused(), play.turn()), (vec![NegotiationCode::OtherCorr], (1, "a")));
    assert!(play.session.refused[0].again, "its author makes another one");
    play.say(draft("c-1"));
    let evaluation =
        |corr: &str| json!({"kind": "evaluate", "ts": 0, "from": "e", "score": 0.1, "notes": "", "corr": corr});
    play.say(evaluation("c-2"));
    assert_eq!(play.refused(), [NegotiationCode::OtherCorr; 2]);
    play.say(evaluation("c-1"));
    assert_eq!(play.turn(), (2, "b"));
    // A draft without `corr` belongs to the current negotiation.
    play.draft("b", json!({"price": 2}));
    assert_eq!((play.session.versions.len(), play.refused().len()), (2, 2));
}

#[test]
fn parties_evaluators_and_asked_persons_may_abort_with_a_reported_reason() {
    for (from, decided_by) in [("b", DecidedBy::Party), ("e", DecidedBy::Party), ("p", DecidedBy::Hitl)] {
        let mut play = Play::opened(priced());
        play.draft("a", json!({"price": 1}));
        play.say(json!({"kind": "abort", "ts": 0, "from": from, "reason": "no budget"}));
        let decision = play.decision();
        assert_eq!((decision.outcome, decision.stop_reason), (Outcome::Aborted, Some(StopReason::Withdrawn)));
        assert_eq!((decision.round, decision.decided_by), (1, decided_by));
        assert_eq!(decision.rationale, format!("{from} has ended it: no budget"));
        assert_eq!(play.last()["reason"], "no budget", "nothing is said after it");
    }
}

#[test]
fn an_invalid_draft_learns_why_and_takes_no_round() {
    let mut play = Play::opened(priced());
    play.draft("a", json!({"price": "much"}));
    play.draft("a", json!({"price": -1}));
    play.say(json!({"kind": "counter", "ts": 0, "from": "a", "ct": "application/json", "payload_b64": "?"}));
    assert_eq!(
        play.refused(),
        [NegotiationCode::InvalidDraft, NegotiationCode::InvalidDraft, NegotiationCode::BadPayload]
    );
    let first = &play.session.refused[0];
    assert!(first.again && first.problems.iter().any(|problem| problem.starts_with("schema: /price")), "{first:?}");
    assert_eq!(play.session.refused[1].problems, ["positive: it is not so that draft.price > 0"]);
    assert_eq!((play.turn(), play.session.versions.len()), ((1, "a"), 0));
    play.draft("a", json!({"price": 7}));
    assert_eq!((play.turn(), play.session.versions.len()), ((1, "a"), 1));
    play.evaluate(1.0);
    assert_eq!(play.decision().round, 1);
}

#[test]
fn too_many_invalid_drafts_in_a_round_end_it() {
    let mut play = Play::opened(priced());
    for _ in 0..5 {
        play.draft("a", json!({}));
    }
    assert_eq!(play.decision().stop_reason, Some(StopReason::InvalidDrafts));
    assert_eq!(play.last()["reason"], "invalid_drafts");
}

#[test]
fn failed_optional_examples_lower_the_score() {
    let mut setup = priced();
    setup["policy"] = json!({"scoring": {"require_examples_pass": false, "llm_weight": 0.5}});
    let mut play = Play::opened(setup);
    play.draft("a", json!({"price": -1}));
    play.evaluate(1.0);
    let Some(Report::Evaluation(judgement)) = play.session.reports.first() else { panic!("no evaluation") };
    assert_eq!((judgement.deterministic, judgement.confidence, judgement.score), (Some(0.5), Some(1.0), 0.75));
    assert_eq!(play.turn(), (2, "b"));
}

#[test]
fn out_of_turn_and_unrequested_messages_are_rejected() {
    let mut play = Play::opened(priced());
    play.draft("b", json!({"price": 1}));
    play.evaluate(1.0);
    play.draft("a", json!({"price": 1}));
    play.draft("a", json!({"price": 2}));
    let evaluation = |from: &str, score: f64| json!({"kind": "evaluate", "ts": 0, "from": from, "score": score});
    play.seats.evaluators.push("f".to_owned());
    play.say(evaluation("b", 1.0));
    play.say(evaluation("e", 1.5));
    play.say(evaluation("e", 0.5));
    play.say(evaluation("e", 1.0));
    play.say(json!({"kind": "haggle"}));
    play.say(json!({"kind": "policy", "ts": 0, "negotiation_id": "c-1", "policy": {"max_rounds": 100}}));
    use NegotiationCode::{BadEvent, BadScore, NoDraft, NotEvaluator, OutOfTurn, PolicyAlreadySet, Repeated};
    let expected = [OutOfTurn, NoDraft, OutOfTurn, NotEvaluator, BadScore, Repeated, BadEvent, PolicyAlreadySet];
    assert_eq!(play.refused(), expected);
    assert!(play.session.refused.iter().all(|refused| !refused.again), "nobody is to make another draft");
    assert_eq!((play.session.versions.len(), play.session.reports.len()), (1, 0), "one is still to evaluate it");
    play.say(evaluation("f", 0.7));
    let Some(Report::Evaluation(judgement)) = play.session.reports.first() else { panic!("no evaluation") };
    assert_eq!((judgement.evaluations.len(), judgement.confidence), (2, Some(0.6)));
}

#[test]
fn an_expired_round_ends_the_negotiation_whatever_the_clock_says() {
    let mut play = Play::opened(priced());
    play.draft("a", json!({"price": 1}));
    play.now = -5;
    let late = |round| AdvanceInput { timed_out: Some(round), ..AdvanceInput::default() };
    play.look(&late(2));
    assert_eq!(play.last()["kind"], "propose", "another round's time is not this one's");
    play.look(&late(1));
    assert_eq!((play.decision().stop_reason, &play.last()["reason"]), (Some(StopReason::Timeout), &json!("timeout")));
}

#[test]
fn a_person_is_asked_between_rounds_and_their_word_is_kept() {
    let mut setup = priced();
    setup["policy"] = json!({"hitl": "PauseBetweenRounds"});
    let said = |question: &Question, text: &str| AdvanceInput {
        answers: vec![Answer { question: question.text.clone(), by: "p".to_owned(), text: text.to_owned() }],
        ..AdvanceInput::default()
    };
    let mut play = Play::opened(setup.clone());
    play.draft("a", json!({"price": 1}));
    let first = play.evaluate(0.1).expect("a question");
    assert_eq!(first.choices, ["accept", "continue", "stop"]);
    assert!(first.text.contains("delivery") && first.text.contains("0.55; 0.8"), "{}", first.text);
    assert_eq!(play.look(&said(&first, "continue")), None);
    assert_eq!(play.turn(), (2, "b"));
    play.draft("b", json!({"price": 2}));
    let second = play.evaluate(0.2).expect("a question");
    // An answer about the first round does not apply to the second.
    assert_eq!(play.look(&said(&first, "accept")).as_ref(), Some(&second));
    play.look(&said(&second, "accept"));
    let decision = play.decision();
    assert_eq!((decision.decided_by, decision.stop_reason), (DecidedBy::Hitl, Some(StopReason::Hitl)));
    assert_eq!(play.last()["kind"], "decide");
    let words: Vec<HumanChoice> = play
        .session
        .reports
        .iter()
        .filter_map(|report| match report {
            Report::Person(word) => Some(word.said),
            Report::Evaluation(_) | Report::Decision(_) => None,
        })
        .collect();
    assert_eq!(words, [HumanChoice::Continue, HumanChoice::Accept]);

    let mut silent = Play::opened(setup);
    silent.draft("a", json!({"price": 1}));
    silent.evaluate(1.0).expect("a question");
    silent.look(&AdvanceInput { is_unanswered: true, ..AdvanceInput::default() });
    assert_eq!((silent.decision().outcome, silent.decision().stop_reason), (Outcome::Aborted, Some(StopReason::Hitl)));
}

#[test]
fn scores_that_go_up_and_down_end_it() {
    let mut play = Play::opened(json!({"policy": {"oscillation_limit": 1, "scoring": {"llm_weight": 1}}}));
    for (at, score) in [0.1, 0.4, 0.2, 0.5].into_iter().enumerate() {
        let (_, turn) = play.turn();
        let turn = turn.to_owned();
        play.draft(&turn, json!({"n": at}));
        play.evaluate(score);
    }
    assert_eq!(play.decision().stop_reason, Some(StopReason::Oscillation));
    assert_eq!(play.decision().rationale, "scores turned 2 times, more than 1");
}

#[test]
fn tokens_are_what_is_said_and_at_least_what_is_there() {
    let mut play = Play::opened(json!({"policy": {"token_budget_per_round": 50}}));
    play.draft("a", json!("x".repeat(100)));
    assert_eq!(play.last()["kind"], "propose");
    play.say(json!({"kind": "evaluate", "ts": 0, "from": "e", "score": 0.1, "notes": "", "tokens": 40}));
    assert_eq!(play.decision().stop_reason, Some(StopReason::Budget));
}

#[test]
fn unrequested_messages_leave_the_token_budget_unchanged() {
    let mut play = Play::opened(json!({"policy": {"token_budget_per_round": 50}}));
    for _ in 0..3 {
        play.draft("b", json!("x".repeat(1000)));
    }
    play.say(json!({"kind": "evaluate", "ts": 0, "from": "x", "score": 1, "notes": "y".repeat(1000)}));
    play.draft("a", json!("x"));
    play.evaluate(0.1);
    assert_eq!((play.turn(), play.refused().len()), ((2, "b"), 4));
}

#[test]
fn there_is_room_for_the_end() {
    let mut play = Play::opened(priced());
    let strange = json!({"kind": "evaluate", "ts": 0, "from": "x", "score": 1});
    play.session.events.resize(EVENTS_MAX - 3, strange.clone());
    play.look(&AdvanceInput::default());
    assert_eq!(play.last(), &strange);
    play.say(strange);
    assert_eq!(play.decision().stop_reason, Some(StopReason::TooManyEvents));
    assert!(play.session.events.len() < EVENTS_MAX);
}

#[test]
fn an_invalid_setup_is_rejected() {
    let refused = |setup: Value| {
        let play = Play::new(setup);
        let asked = OpenRequest { topic: Some(TOPIC.to_owned()), ..OpenRequest::default() };
        advance(&play.session, &play.seats, &asked, &AdvanceInput::default()).expect_err("it cannot be meant")
    };
    for setup in [
        json!({"policy": {"max_rounds": 0}}),
        json!({"schema": {"type": 7}}),
        json!({"examples": [{"name": "x", "expr": "draft +"}]}),
    ] {
        assert_eq!(refused(setup.clone()).code, NegotiationCode::BadSetup, "{setup}");
    }
    let mut empty = Play::new(json!({}));
    empty.seats.parties.clear();
    let found = advance(&empty.session, &empty.seats, &OpenRequest::default(), &AdvanceInput::default());
    assert_eq!(found.expect_err("nobody").code, NegotiationCode::BadSetup);
}
