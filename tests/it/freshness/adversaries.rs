//! Runs writers that invalidate each other: each reads what all of them write, and writes again after each commit.
//!
//! Without reservations the slower one would be rejected forever. With them every writer reaches its number of commits
//! within a few attempts, in every order of the answers.

use std::collections::BTreeMap;

use json_patch::PatchOperation as Op;
use patchboard_kernel::blueprint::{Blueprint, Freshness};
use patchboard_kernel::board::{Board, Call, Input, NewBoard, Proposal, ProposalSource, ReplyBody, Step};
use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp, WorkerName};
use patchboard_kernel::record::{Body, Record};
use patchboard_kernel::rejection::Code;
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

use super::history::History;
use super::oracle::{Oracle, Question, Shown};
use super::place::Place;
use patchboard_faults::random::Random;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Maximum stale rejections of one invocation, per other writer. After waiting for a reservation, a writer may find the
/// place changed again by its former holder.
const REFUSALS_PER_RIVAL: u32 = 2;

struct Pending {
    invocation: InvocationId,
    attempt: u32,
    worker: WorkerName,
    patch: Value,
}

struct Duel {
    board: Board,
    now: Timestamp,
    pending: Vec<Pending>,
    records: Vec<Record>,
    /// Rejections by invocation.
    refusals: BTreeMap<InvocationId, u32>,
    attempts: u32,
    given_up: u32,
    /// Number of times that only the clock advanced.
    waits: u32,
}

/// Outcome of a game.
#[derive(Debug)]
struct Played {
    commits: Vec<u64>,
    attempts: u32,
    refusals_max: u32,
    waits: u32,
}

fn blueprint(writers: usize, goals: &[u64]) -> Blueprint {
    let names = &NAMES[..writers];
    let reads: Vec<String> = names.iter().map(|name| format!("/{name}")).collect();
    let workers: BTreeMap<&str, Value> = names
        .iter()
        .map(|name| {
            let worker = json!({
                "agent": "script", "script": [[]], "reads": reads,
                "writes": [{"path": format!("/{name}"), "ops": ["replace"]}],
            });
            (*name, worker)
        })
        .collect();
    let begin = names.iter().map(|name| json!({"name": format!("begin-{name}"), "trigger": "start", "run": name}));
    let again = names.iter().zip(goals).map(|(name, goal)| {
        json!({
            "name": format!("again-{name}"), "trigger": {"op": "replace", "path": format!("/{name}")},
            "when": format!("value < {goal}"), "run": name,
        })
    });
    let rules: Vec<Value> = begin.chain(again).collect();
    let initial: BTreeMap<&str, u64> = names.iter().map(|name| (*name, 0)).collect();
    let value = json!({
        "blueprint": 1, "name": "adversaries", "workers": workers, "rules": rules,
        "state": {"schema": {"type": "object"}, "initial": initial},
    });
    serde_json::from_value(value).expect("the blueprint is one")
}

impl Duel {
    /// Plays until no work is left; `choose` selects the next of the pending answers.
    fn play(writers: usize, goals: &[u64], choose: &mut dyn FnMut(&[Pending]) -> usize) -> (Played, Self) {
        let genesis = NewBoard {
            salt: Salt([5; 32]),
            ..NewBoard::new(BoardId::from("adversaries"), blueprint(writers, goals), Value::Null, Timestamp(0))
        };
        let (board, step) = Board::create(genesis, &PLANS).expect("the board can be made");
        let mut duel = Self {
            board,
            now: Timestamp(0),
            pending: Vec::new(),
            records: Vec::new(),
            refusals: BTreeMap::new(),
            attempts: 0,
            given_up: 0,
            waits: 0,
        };
        duel.settle(step);
        for _ in 0..1000 {
            duel.now = duel.now.plus_ms(10);
            if !duel.pending.is_empty() {
                let next = choose(&duel.pending);
                let Pending { invocation, attempt, worker, patch } = duel.pending.remove(next);
                let from = ProposalSource::Attempt { invocation, attempt };
                let reply = ReplyBody::Json(patch);
                let step =
                    duel.board.step(duel.now, Input::Propose(Proposal { from, worker, reply, usage: None, raw: None }));
                duel.settle(step);
            } else if let Some(at) = duel.board.wake_at().filter(|_| !duel.board.scheduler().open().is_empty()) {
                duel.waits += 1;
                duel.now = at;
                let step = duel.board.step(at, Input::Tick);
                duel.settle(step);
            } else {
                break;
            }
        }
        let document = duel.board.state().root().to_value();
        let played = Played {
            commits: NAMES[..writers].iter().map(|name| document[*name].as_u64().expect("it counts")).collect(),
            attempts: duel.attempts,
            refusals_max: duel.refusals.values().copied().max().unwrap_or(0),
            waits: duel.waits,
        };
        (played, duel)
    }

    fn settle(&mut self, step: Step) {
        for record in &step.records {
            if let Ok(Body::Rejected(rejected)) = record.body() {
                let attempt = rejected.by.attempt.as_ref().expect("nobody proposes directly");
                *self.refusals.entry(attempt.invocation).or_default() += 1;
                self.given_up += u32::from(rejected.is_final);
            }
        }
        self.records.extend(step.records);
        for Call { invocation, attempt, worker, .. } in step.effects.calls {
            self.attempts += 1;
            let value = self.board.state().root()[worker.as_str()].to_value().as_u64().expect("it counts") + 1;
            let patch = json!([{"op": "replace", "path": format!("/{worker}"), "value": value}]);
            self.pending.push(Pending { invocation, attempt, worker, patch });
        }
    }
}

/// Checks that every writer reached its goal, within the bound.
fn check(writers: usize, goals: &[u64], played: &Played, duel: &Duel, how: &str) {
    assert_eq!(played.commits, goals, "{how}: {played:?}");
    assert_eq!(duel.given_up, 0, "{how}: {played:?}");
    let rivals = u32::try_from(writers - 1).expect("few");
    let bound = REFUSALS_PER_RIVAL * rivals;
    assert!(played.refusals_max <= bound, "{how}: an invocation was refused more than {bound} times: {played:?}");
    let commits = u32::try_from(goals.iter().sum::<u64>()).expect("few");
    assert!(played.attempts <= commits * (1 + bound), "{how}: {played:?}");
}

fn check_replay(duel: &Duel, how: &str) {
    let replayed =
        replay::replay(&duel.records, None, &PLANS).unwrap_or_else(|difference| panic!("{how}: {difference}"));
    assert_eq!(replayed.board.head(), duel.board.head(), "{how}");
    assert_eq!(replayed.board.reservations(), duel.board.reservations(), "{how}");
}

/// Plays every possible order of the answers, depth first.
fn explore(writers: usize, goals: &[u64], runs_max: usize) -> (usize, u32, u32) {
    let mut order: Vec<usize> = Vec::new();
    let (mut runs, mut attempts_max, mut refusals_max) = (0, 0, 0);
    loop {
        let mut widths = Vec::new();
        let (played, duel) = Duel::play(writers, goals, &mut |pending| {
            let choice = order.get(widths.len()).copied().unwrap_or(0);
            widths.push(pending.len());
            choice
        });
        let how = format!("order {order:?}");
        check(writers, goals, &played, &duel, &how);
        if runs % 16 == 0 {
            check_replay(&duel, &how);
        }
        runs += 1;
        assert!(runs <= runs_max, "more orders than were expected");
        attempts_max = attempts_max.max(played.attempts);
        refusals_max = refusals_max.max(played.refusals_max);
        // Advances to the next order: changes the last choice that has an alternative.
        order.resize(widths.len(), 0);
        let Some(last) = (0..order.len()).rev().find(|place| order[*place] + 1 < widths[*place]) else {
            return (runs, attempts_max, refusals_max);
        };
        order[last] += 1;
        order.truncate(last + 1);
    }
}

#[test]
fn two_writers_that_invalidate_each_other_finish_whatever_the_order() {
    let (runs, attempts, refusals) = explore(2, &[3, 3], 2_000);
    eprintln!(
        "adversaries: {runs} orders of two writers, at most {attempts} attempts for 6 commits, {refusals} refusals of one"
    );
    assert!(runs > 20, "there are more orders than {runs}");
    assert!(refusals > 0, "they never met");
}

#[test]
fn three_writers_finish_whatever_the_order() {
    let (runs, attempts, refusals) = explore(3, &[1, 1, 1], 2_000);
    eprintln!(
        "adversaries: {runs} orders of three writers, at most {attempts} attempts for 3 commits, {refusals} refusals of one"
    );
    assert!(refusals > 0, "they never met");
}

#[test]
fn writers_that_invalidate_each_other_finish_in_random_orders() {
    let only = std::env::var("FRESHNESS_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let (mut attempts, mut refusals, mut waits) = (0, 0, 0);
    for seed in only.map_or(0..1000, |seed| seed..seed + 1) {
        let mut random = Random::new(seed);
        let writers = if seed % 5 == 4 { 3 } else { 2 };
        let goals = &[2, 2, 2][..writers];
        let (played, duel) = Duel::play(writers, goals, &mut |pending| {
            usize::try_from(random.below(pending.len() as u64)).expect("few wait")
        });
        let how = format!("SEED={seed}");
        check(writers, goals, &played, &duel, &how);
        if seed % 10 == 0 {
            check_replay(&duel, &how);
        }
        attempts = attempts.max(played.attempts);
        refusals = refusals.max(played.refusals_max);
        waits += played.waits;
    }
    eprintln!(
        "adversaries: 1,000 random orders, 200 of them of three writers: at most {attempts} attempts, {refusals} refusals of one, {waits} waits for time"
    );
}

/// Returns the worst order: before each answer of another writer, `a` has changed the values that it read.
fn a_before_each() -> impl FnMut(&[Pending]) -> usize {
    let mut is_turn_of_a = false;
    move |pending| {
        is_turn_of_a = !is_turn_of_a;
        let is_next = |pending: &Pending| (pending.worker.as_str() == "a") == is_turn_of_a;
        pending.iter().position(is_next).unwrap_or(0)
    }
}

#[test]
fn a_slower_writer_commits_only_by_reservations() {
    for writers in [2, 3] {
        let goals = &[12, 2, 2][..writers];
        let (played, duel) = Duel::play(writers, goals, &mut a_before_each());
        check(writers, goals, &played, &duel, "a before each");
        check_replay(&duel, "a before each");
        // Counted only while `a` still had work to do.
        let order = duel.records.iter().filter_map(|record| match record.body() {
            Ok(Body::Committed(committed)) => Some(committed.by.worker.to_string()),
            _ => None,
        });
        let order: Vec<String> = order.collect();
        let first_of_b = order.iter().position(|worker| worker == "b").expect("b has its commits");
        assert!(first_of_b <= 2, "b waited for {first_of_b} commits: {order:?}");
        eprintln!("adversaries: a before each of {writers}: {played:?}, commits of {}", order.join(" "));
    }
    // Plays this order without reservations, by the oracle: `b` is rejected for as long as `a` continues.
    let mut oracle = Oracle::new(History::new(json!({"a": 0, "b": 0})));
    let patch = |name: &str, value: u64| -> Vec<Op> {
        let patch = json!([{"op": "replace", "path": format!("/{name}"), "value": value}]);
        serde_json::from_value(patch).expect("it is a patch")
    };
    for round in 1..=100 {
        let shown = Shown {
            base: oracle.history.version(),
            reads: vec![Place::parse("/a"), Place::parse("/b")],
            members: Vec::new(),
        };
        let ask = |oracle: &Oracle, ops: &[Op]| {
            oracle.judge(&Question {
                mode: Freshness::Reads,
                asked: Some((1, &shown)),
                may_read: &|_| true,
                ops,
                conflicts: 8,
                at: 0,
            })
        };
        let (of_a, of_b) = (patch("a", round), patch("b", round));
        assert!(ask(&oracle, &of_a).is_empty(), "a is first");
        oracle.history.commit(round, "a", &of_a);
        let findings = ask(&oracle, &of_b);
        assert!(findings.iter().any(|finding| finding.code == Code::StaleRead), "b would be refused in round {round}");
    }
}
