//! Boards with outages against the same boards without. Proves that outages do not change how a board ends.
//!
//! The seed's blueprint is changed so that the end does not depend on time or order, which an outage may change:
//! * no schedules, delays and groups: these variants of the simulator are left out ([`super::protocols`] has
//!   outages against delays and groups);
//! * no approvals, which expire; `wall` is long, since a rejected request takes time as well;
//! * freshness of targets only: others' commits are no conflicts, and each place has one writer at a time;
//! * no limit of tokens, invocations, conflicts or streaks: concurrent calls would compete for them;
//! * `restart: fresh`, since a lost call must not end an invocation.
//!
//! A reply is a function of worker, trigger, and the charged attempts of that trigger. Some triggers get wrong
//! replies at first, some always.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_faults::random::Random;
use patchboard_faults::simulation::{AppendOutcome, Delivery, GateDecision, SimulatedBoard, SimulationHooks};
use patchboard_kernel::admission::WaitingCall;
use patchboard_kernel::blueprint::AgentKind;
use patchboard_kernel::board::{Board, Call, Input, NewBoard, Proposal, ProposalSource, ReplyBody, Step};
use patchboard_kernel::digest::{Digest, Salt};
use patchboard_kernel::driver::Batch;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::mutants::{Mutant, activate};
use patchboard_kernel::record::{Body, Ended, PauseCause, Record, Trigger};
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

use super::cases;
use super::disk::Disk;
use super::journal::Journal;
use super::outages::Outages;
use super::plans::Shared;
use super::shrink::caught;
use super::world::blueprint;

/// Number of boards, each played twice, in the quick tier.
const BOARDS: u64 = 20;

/// Number of steps within which a board must end.
const STEPS_MAX: usize = 5_000;

/// Crashes of the writer in one run: more than eight lost calls would end an invocation.
const CRASHES_MAX: u64 = 6;

/// Worker, rule and place of a trigger.
type Occasion = (String, String, String);

/// End of a board, without times, order and calls that were lost.
#[derive(PartialEq, Debug)]
struct Outcome {
    ended: Option<Ended>,
    document: Value,
    digest: Digest,
    /// Charged attempts of each occasion, by how they ended.
    attempts: BTreeMap<Occasion, Vec<&'static str>>,
    tokens: u64,
    breaker_moves: usize,
}

/// Interruptions of all boards with outages.
#[derive(Default, Debug)]
struct Interruptions {
    outages: usize,
    deferrals: usize,
    held: usize,
    pauses: usize,
    crashes_in_outages: usize,
    ends: BTreeSet<&'static str>,
}

/// Workers of one run.
struct Steady {
    seed: u64,
    now: Timestamp,
    /// Latencies and crashes, which may differ between the runs.
    random: Random,
    outages: Outages,
    disk: Disk,
    journal: Journal,
    occasions: BTreeMap<InvocationId, Occasion>,
    charged: BTreeMap<Occasion, u64>,
    met: BTreeSet<usize>,
    held: usize,
    crashes: u64,
    crashes_in_outages: usize,
}

#[test]
fn boards_end_with_outages_as_without() {
    let mut seen = Interruptions::default();
    let boards = cases(BOARDS);
    for seed in 0..boards {
        compare(seed, &mut seen);
    }
    super::say(&format!("compared {boards} boards with the same boards without outages: {seen:?}"));
    let Interruptions { outages, deferrals, held, pauses, crashes_in_outages, ends } = &seen;
    let counts = [outages, deferrals, held, pauses, crashes_in_outages];
    assert!(counts.into_iter().all(|count| *count > 0), "not every interruption was seen: {seen:?}");
    assert_eq!(*ends, BTreeSet::from(["done", "gave_up"]), "boards ended otherwise than they may");
}

#[test]
fn an_outage_that_uses_up_attempts_is_found() {
    activate(Some(Mutant::DeferralCharged));
    let found = (0..2 * BOARDS).find_map(|seed| caught(|| compare(seed, &mut Interruptions::default())).err());
    activate(None);
    let message = found.expect("a board ends otherwise");
    assert!(message.contains("ended otherwise than without outages"), "{message}");
}

/// Plays a seed's board with and without its outages.
fn compare(seed: u64, seen: &mut Interruptions) {
    let genesis = genesis(seed);
    let plans = Shared::default();
    let outages = Outages::drawn(&mut Random::new(seed ^ 0x0a7a_6e01), genesis.at);
    let without = played(seed, &genesis, &plans, Outages::default(), None);
    let with = played(seed, &genesis, &plans, outages, Some(seen));
    assert_eq!(with, without, "SEED={seed}: the board ended otherwise than without outages");
    assert_eq!(with.breaker_moves, 0, "SEED={seed}: an outage moved a breaker");
    seen.ends.extend(with.ended.map(|ended| ended.cause.as_str()));
}

/// Plays a board to its end.
fn played(
    seed: u64,
    genesis: &NewBoard,
    plans: &Shared,
    outages: Outages,
    seen: Option<&mut Interruptions>,
) -> Outcome {
    let mut steady = Steady::new(seed, genesis.at, outages);
    let mut world = SimulatedBoard::new(genesis.clone(), plans, &mut steady).expect("the request fits");
    let mut steps = 0;
    while !world.is_over() {
        steps += 1;
        assert!(steps < STEPS_MAX, "SEED={seed}: the board neither ended nor waits for anything");
        if steady.crashes < CRASHES_MAX && steady.random.percent(3) {
            let is_written = world.is_writing() && steady.disk.outlives();
            recover(&mut world, is_written, &mut steady);
        }
        while world.has_failed() {
            recover(&mut world, false, &mut steady);
        }
        if !world.advance(&mut steady) && !world.is_over() {
            assert!(world.board().is_paused(), "SEED={seed}: the board waits for nothing");
            let now = world.now();
            // Some operators resume the board during the outage.
            let ends = steady.outages.at(now).map(|(_, outage)| outage.ends).filter(|_| steady.random.percent(80));
            world.submit_at(ends.unwrap_or(now), Input::Resume { key: None }, &mut steady);
        }
    }
    let records = world.records();
    steady.journal.recovered(world.board(), records);
    let replayed =
        replay::replay(records, None, &PLANS).unwrap_or_else(|difference| panic!("SEED={seed}: {difference}"));
    assert_eq!(replayed.board.snapshot_digest(), world.board().snapshot_digest(), "SEED={seed}: replay differs");
    if let Some(seen) = seen {
        seen.outages += steady.met.len();
        seen.held += steady.held;
        seen.crashes_in_outages += steady.crashes_in_outages;
        for body in bodies(records) {
            match body {
                Body::Deferred(_) => seen.deferrals += 1,
                Body::Paused(paused) => {
                    seen.pauses += usize::from(paused.cause == Some(PauseCause::ProviderUnavailable));
                }
                _ => {}
            }
        }
    }
    outcome(seed, world.board(), records)
}

/// Recovers the board from its journal, after a crash or a failed append.
fn recover(world: &mut SimulatedBoard, is_written: bool, steady: &mut Steady) {
    let loses = steady.random.percent(50);
    steady.crashes += 1;
    steady.crashes_in_outages += usize::from(steady.outages.at(world.now()).is_some());
    world.crash(loses, is_written, steady);
    let recovered = Board::recover(world.records(), &PLANS).expect("the journal is enough");
    steady.journal.recovered(&recovered, world.records());
    world.replace(recovered);
    let epoch = world.board().epoch() + 1;
    world.submit(Input::take_over(epoch, format!("writer-{epoch}")), steady);
}

fn genesis(seed: u64) -> NewBoard {
    let mut random = Random::new(seed);
    let mut value = serde_json::to_value(blueprint(&mut random)).expect("a blueprint is JSON");
    for (_, worker) in value["workers"].as_object_mut().into_iter().flatten() {
        if worker["agent"] != "human" {
            worker["freshness"] = json!("target");
            worker["limits"]["invocations"] = json!(100);
            worker["limits"].as_object_mut().map(|limits| limits.remove("tokens"));
        }
    }
    value["workers"]["doer"]["writes"][1] = json!({"path": "/notes/-", "ops": ["add"]});
    value["workers"]["checker"]["restart"] = json!("fresh");
    for streak in ["rejections", "no_ops", "crashes"] {
        value["circuit"][streak]["limit"] = json!(1000);
    }
    value["limits"] = json!({"commits": 500, "wall": "240h"});
    value["done"]["when"] =
        json!(format!("size(state.tasks) >= {} && state.tasks.all(t, t.checked)", tasks(seed).iter().sum::<u64>()));
    NewBoard {
        salt: Salt([7; 32]),
        ..NewBoard::new(
            BoardId::from(format!("steady-{seed}")),
            serde_json::from_value(value).expect("a blueprint"),
            json!({"goal": "all tasks, done and checked"}),
            Timestamp(1_000_000),
        )
    }
}

/// Returns the numbers of tasks that the planner adds at first, and after the first check.
fn tasks(seed: u64) -> [u64; 2] {
    let mut random = Random::new(seed ^ 0x7a5c);
    [1 + random.below(4), 1 + random.below(3)]
}

fn bodies(records: &[Record]) -> impl Iterator<Item = Body> {
    records.iter().map(|record| record.body().expect("a record can be read").clone())
}

/// Derives the outcome from the journal, and compares its tokens with the ledger.
fn outcome(seed: u64, board: &Board, records: &[Record]) -> Outcome {
    let mut occasions = BTreeMap::new();
    let mut reserved = BTreeMap::new();
    let mut attempts: BTreeMap<Occasion, Vec<&'static str>> = BTreeMap::new();
    let (mut tokens, mut lost, mut breaker_moves) = (0, 0, 0);
    for body in bodies(records) {
        let (by, end) = match body {
            Body::Scheduled(scheduled) => {
                let occasion = occasion(&scheduled);
                occasions.insert(scheduled.invocation, occasion);
                continue;
            }
            Body::Invoked(invoked) => {
                reserved.insert((invoked.invocation, invoked.attempt), invoked.reserved);
                continue;
            }
            Body::Breaker(_) => {
                breaker_moves += 1;
                continue;
            }
            Body::Committed(committed) => (committed.by, "committed"),
            Body::NoOp(no_op) => (no_op.by, "no_op"),
            Body::Rejected(rejected) => (rejected.by, rejected.code.as_str()),
            Body::Failed(failed) if failed.code == FailureCode::Lost => {
                let attempt = failed.by.attempt.expect("a call was lost");
                lost += reserved[&(attempt.invocation, attempt.number)];
                continue;
            }
            Body::Failed(failed) => (failed.by, failed.code.as_str()),
            _ => continue,
        };
        let attempt = by.attempt.expect("nothing is proposed without being asked for");
        tokens += by.usage.map_or(0, |usage| usage.prompt + usage.completion);
        attempts.entry(occasions[&attempt.invocation].clone()).or_default().push(end);
    }
    for (occasion, ends) in &attempts {
        let commits = ends.iter().filter(|end| **end == "committed").count();
        assert!(commits <= 1, "SEED={seed}: {occasion:?} was committed {commits} times");
    }
    let account = board.ledger().board();
    assert_eq!((account.spent, account.reserved), (tokens + lost, 0), "SEED={seed}: a deferral was charged");
    Outcome {
        ended: board.ended(),
        document: board.state().root().to_value(),
        digest: board.state().digest(),
        attempts,
        tokens,
        breaker_moves,
    }
}

fn occasion(scheduled: &patchboard_kernel::record::Scheduled) -> Occasion {
    let place = match &scheduled.trigger {
        Trigger::Event { path, .. } => path.clone(),
        _ => String::new(),
    };
    let rule = scheduled.rule.as_ref().map(ToString::to_string).unwrap_or_default();
    (scheduled.worker.to_string(), rule, place)
}

impl Steady {
    fn new(seed: u64, now: Timestamp, outages: Outages) -> Self {
        Self {
            seed,
            now,
            random: Random::new(seed ^ 0x57ea),
            outages,
            disk: Disk::new(seed),
            journal: Journal::new(seed),
            occasions: BTreeMap::new(),
            charged: BTreeMap::new(),
            met: BTreeSet::new(),
            held: 0,
            crashes: 0,
            crashes_in_outages: 0,
        }
    }

    /// Returns a generator for an occasion and its number of charged attempts: the same in every run.
    fn drawn(&self, occasion: &Occasion, charged: u64) -> Random {
        let (worker, rule, place) = occasion;
        let parts: Vec<u64> = format!("{worker} {rule} {place}").bytes().map(u64::from).chain([charged]).collect();
        Random::from_parts(self.seed, &parts)
    }

    /// Returns the answer to an attempt: a failure, a reply to reject, or the due reply.
    fn answer(&self, invocation: InvocationId, attempt: u32, is_model: bool) -> Input {
        let occasion = &self.occasions[&invocation];
        let charged = self.charged.get(occasion).copied().unwrap_or(0);
        let mut random = self.drawn(occasion, charged);
        let usage = Usage { prompt: random.below(2_000), completion: random.below(1_000), ..Usage::default() };
        let usage = is_model.then_some(usage);
        // All other invocations depend on the planner's, so it never fails for good.
        let mut nature = self.drawn(occasion, u64::MAX);
        let errs = match nature.below(20) {
            0 => occasion.0 != "planner",
            1..6 => charged == 0,
            _ => false,
        };
        if errs && random.percent(50) {
            let (code, message) = (FailureCode::Protocol, "not JSON".to_owned());
            return Input::AgentFailed { invocation, attempt, code, message, usage };
        }
        let patch = if errs { json!([{"op": "remove", "path": "/vault"}]) } else { self.patch(occasion) };
        let from = ProposalSource::Attempt { invocation, attempt };
        let (worker, reply) = (occasion.0.as_str().into(), ReplyBody::Json(patch));
        Input::Propose(Proposal { from, worker, reply, usage, raw: None })
    }

    fn patch(&self, (worker, rule, place): &Occasion) -> Value {
        let task = place.split('/').nth(2).unwrap_or_default();
        let [first, then] = tasks(self.seed);
        match worker.as_str() {
            "planner" => {
                let count = if rule == "begin" { first } else { then };
                let task = |index| json!({"title": format!("{rule} {index}"), "status": "open", "checked": false});
                (0..count).map(|index| json!({"op": "add", "path": "/tasks/-", "value": task(index)})).collect()
            }
            "doer" => {
                let is_quick = task.parse::<u64>().is_ok_and(|task| (task + self.seed).is_multiple_of(3));
                let status = if rule == "moved" || is_quick { "done" } else { "doing" };
                let mut patch =
                    vec![json!({"op": "replace", "path": format!("/tasks/{task}/status"), "value": status})];
                // One note only: the order of several would depend on time.
                if task == "0" && rule == "new-task" {
                    patch.push(json!({"op": "add", "path": "/notes/-", "value": "a note"}));
                }
                Value::Array(patch)
            }
            _ => json!([{"op": "replace", "path": format!("/tasks/{task}/checked"), "value": true}]),
        }
    }
}

impl SimulationHooks for Steady {
    fn admit(&mut self, at: Timestamp, call: &WaitingCall) -> GateDecision {
        let passage = self.outages.passage(at, call);
        self.held += usize::from(call.wait.is_none() && matches!(passage, GateDecision::After(_)));
        passage
    }

    fn on_call(&mut self, call: &Call, _: &Board) -> Vec<Delivery> {
        let (invocation, attempt) = (call.invocation, call.attempt);
        let after_ms = self.random.below(3_000);
        let is_model = call.context.worker_plan().worker.agent == AgentKind::Llm;
        let outage = self.outages.at(self.now).filter(|_| is_model);
        if let Some((index, outage)) = outage {
            self.met.insert(index);
            let not_taken = outage.not_taken(self.now.plus_ms(after_ms));
            return vec![Delivery {
                after_ms,
                input: Input::Defer { invocation, attempt, usage: None, deferral: not_taken },
            }];
        }
        vec![Delivery { after_ms, input: self.answer(invocation, attempt, is_model) }]
    }

    fn append_outcome(&mut self, _: &Batch) -> AppendOutcome {
        let fate = self.disk.append();
        // A slow disk must not let calls time out.
        AppendOutcome { after_ms: fate.after_ms.min(1_000), ..fate }
    }

    fn on_durable(&mut self, append: &Batch) {
        self.journal.wrote(append);
    }

    fn on_step(&mut self, at: Timestamp, _: Option<&Input>, step: &Step, _: &Board) {
        self.now = at;
        for body in bodies(&step.records) {
            let by = match body {
                Body::Scheduled(scheduled) => {
                    let occasion = occasion(&scheduled);
                    self.occasions.insert(scheduled.invocation, occasion);
                    continue;
                }
                Body::Rejected(rejected) => rejected.by,
                Body::Failed(failed) if failed.code != FailureCode::Lost => failed.by,
                _ => continue,
            };
            if let Some(occasion) = by.attempt.and_then(|attempt| self.occasions.get(&attempt.invocation)) {
                *self.charged.entry(occasion.clone()).or_default() += 1;
            }
        }
    }

    fn on_release(&mut self, released: &Step, _: &Board) {
        self.journal.released(released);
    }
}
