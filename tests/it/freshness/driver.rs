//! Drives one board on a virtual clock, with its workers' answers in random order; the oracle checks every decision.

use std::collections::BTreeMap;

use patchboard_kernel::blueprint::{Blueprint, Freshness};
use patchboard_kernel::board::{Board, Call, Input, NewBoard, Outcome, Proposal, ProposalSource, ReplyBody, Step};
use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp};
use patchboard_kernel::record::{Body, Record};
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

use super::check::{self, Checked, Figures};
use super::history::History;
use super::oracle::{Oracle, Question};
use super::patches;
use super::place::Place;
use patchboard_faults::random::Random;

/// Maximum steps of one round; more mean that it is stuck.
const STEPS_MAX: usize = 400;

/// A worker of the simulated boards.
pub(super) struct Seat {
    pub(super) name: &'static str,
    pub(super) mode: Freshness,
    pub(super) reads: &'static [&'static str],
    pub(super) budget: u32,
    /// Number of conflicts at which its invocations are given up.
    pub(super) conflicts: u32,
}

const ALL: &[&str] = &["/items", "/grid", "/large", "/conf"];
const SOME: &[&str] = &["/items", "/grid", "/conf"];

/// Workers with every freshness mode that read everything, parts or elements. Some budgets are so small that a view has
/// summaries.
pub(super) const SEATS: &[Seat] = &[
    Seat { name: "whole", mode: Freshness::Reads, reads: ALL, budget: 20_000, conflicts: 4 },
    Seat { name: "counter", mode: Freshness::Members, reads: SOME, budget: 20_000, conflicts: 4 },
    Seat {
        name: "parts",
        mode: Freshness::Reads,
        reads: &["/items/*/a", "/conf/x", "/grid/*"],
        budget: 20_000,
        conflicts: 4,
    },
    Seat { name: "elements", mode: Freshness::Reads, reads: &["/items/*", "/conf/y"], budget: 20_000, conflicts: 4 },
    Seat { name: "few", mode: Freshness::Members, reads: &["/items/*/tags", "/conf"], budget: 20_000, conflicts: 4 },
    Seat { name: "aim", mode: Freshness::Target, reads: SOME, budget: 20_000, conflicts: 4 },
    Seat { name: "blind", mode: Freshness::Target, reads: &["/conf/z"], budget: 20_000, conflicts: 4 },
    Seat { name: "free", mode: Freshness::None, reads: SOME, budget: 20_000, conflicts: 4 },
    Seat { name: "narrow", mode: Freshness::Reads, reads: ALL, budget: 900, conflicts: 2 },
    Seat { name: "glance", mode: Freshness::Target, reads: ALL, budget: 800, conflicts: 2 },
];

impl Seat {
    pub(super) fn named(name: &str) -> &'static Self {
        SEATS.iter().find(|seat| seat.name == name).expect("the blueprint has these workers")
    }

    /// Returns true if the worker may read a place: one of its patterns matches it or a place above.
    pub(super) fn may_read(&self, place: &Place) -> bool {
        self.reads.iter().any(|pattern| {
            let pattern = Place::parse(pattern);
            let pairs = pattern.tokens().iter().zip(place.tokens());
            place.tokens().len() >= pattern.tokens().len()
                && pairs.into_iter().all(|(pattern, token)| pattern == "*" || pattern == token)
        })
    }
}

fn blueprint(random: &mut Random) -> Blueprint {
    let ops = json!(["add", "replace", "insert", "remove", "move", "copy"]);
    let worker = |seat: &Seat| {
        json!({
            "agent": "script",
            "script": [[]],
            "reads": seat.reads,
            "writes": [{"path": "/*/**", "ops": ops}],
            "view": {"budget": seat.budget},
            "freshness": seat.mode,
            "limits": {"attempts": 2, "invocations": 1_000_000, "timeout": "20s", "conflicts": seat.conflicts},
        })
    };
    let workers: BTreeMap<&str, Value> = SEATS.iter().map(|seat| (seat.name, worker(seat))).collect();
    let rules: Vec<Value> = SEATS
        .iter()
        .map(|seat| json!({"name": seat.name, "trigger": {"signal": seat.name}, "run": seat.name}))
        .collect();
    let never = json!({"limit": 1_000_000, "then": "stop_branch"});
    let value = json!({
        "blueprint": 1,
        "name": "freshness",
        "state": {"schema": {"type": "object"}, "initial": patches::document(random)},
        "workers": workers,
        "rules": rules,
        "circuit": {
            "rejections": never,
            "no_ops": never,
            "cycles": {"window": 2, "repeats": 1_000_000, "then": "stop_board"},
        },
        "limits": {"commits": 1_000_000, "wall": "1000d"},
        "concurrency": 6,
    });
    serde_json::from_value(value).expect("the blueprint is one")
}

/// Call that waits for its answer.
struct Pending {
    invocation: InvocationId,
    attempt: u32,
    worker: String,
    patch: Value,
    /// Set if the answer comes in a later round.
    is_late: bool,
}

pub(super) struct Driver {
    seed: u64,
    random: Random,
    trace: bool,
    board: Board,
    now: Timestamp,
    alarm: Option<Timestamp>,
    pending: Vec<Pending>,
    records: Vec<Record>,
    oracle: Oracle,
    checked: Checked,
    pub(super) figures: Figures,
}

impl Driver {
    pub(super) fn new(seed: u64, trace: bool) -> Self {
        let mut random = Random::new(seed);
        let genesis = NewBoard {
            salt: Salt([3; 32]),
            ..NewBoard::new(
                BoardId::from(format!("freshness-{seed}")),
                blueprint(&mut random),
                Value::Null,
                Timestamp(1_000_000),
            )
        };
        let (board, step) = Board::create(genesis, &PLANS).expect("the board can be made");
        let oracle = Oracle::new(History::new(board.state().root().to_value()));
        let mut driver = Self {
            seed,
            random,
            trace,
            board,
            now: Timestamp(1_000_000),
            alarm: None,
            pending: Vec::new(),
            records: Vec::new(),
            oracle,
            checked: Checked::default(),
            figures: Figures::default(),
        };
        driver.settle(step);
        driver
    }

    /// Runs `rounds` interleavings, answers all open calls, and replays the whole run.
    pub(super) fn run(&mut self, rounds: u64) {
        for _ in 0..rounds {
            self.round();
        }
        for pending in &mut self.pending {
            pending.is_late = false;
        }
        self.answer_all();
        let open = self.board.scheduler().open().len();
        assert_eq!(open, 0, "SEED={}: invocations wait for nothing", self.seed);
        let replayed =
            replay::replay(&self.records, None, &PLANS).unwrap_or_else(|error| panic!("SEED={}: {error}", self.seed));
        assert_eq!(replayed.board.head(), self.board.head(), "SEED={}: replay made another journal", self.seed);
    }

    /// Triggers a few workers at once, and delivers their answers in random order.
    fn round(&mut self) {
        self.figures.interleavings += 1;
        for _ in 0..=self.random.below(4) {
            let name = self.random.pick(SEATS).name;
            self.give(Input::Signal { name: name.to_owned(), value: Value::Null, key: None });
        }
        for pending in &mut self.pending {
            pending.is_late = self.random.percent(if pending.is_late { 50 } else { 8 });
        }
        self.answer_all();
        if self.random.below(200) == 0 {
            // Simulates a crash: a board recovered from the journal takes its place.
            self.figures.recoveries += 1;
            self.board =
                Board::recover(&self.records, &PLANS).unwrap_or_else(|error| panic!("SEED={}: {error}", self.seed));
        }
    }

    /// Delivers the answers that are not late in random order, and advances the clock for invocations that wait for it.
    fn answer_all(&mut self) {
        for _ in 0..STEPS_MAX {
            self.now = self.now.plus_ms(1 + self.random.below(1_500));
            if self.alarm.is_some_and(|alarm| alarm <= self.now) {
                self.ring();
                continue;
            }
            let due: Vec<usize> = (0..self.pending.len()).filter(|index| !self.pending[*index].is_late).collect();
            if !due.is_empty() {
                let index = *self.random.pick(&due);
                let pending = self.pending.remove(index);
                self.deliver(pending);
            } else if self.board.scheduler().open().values().any(|open| !open.calling) {
                self.now = self.alarm.unwrap_or_else(|| panic!("SEED={}: nothing will end the waiting", self.seed));
                self.ring();
            } else {
                return;
            }
        }
        panic!("SEED={}: a round does not end", self.seed);
    }

    fn ring(&mut self) {
        self.alarm = None;
        self.give(Input::Tick);
        if self.alarm.is_none() {
            self.alarm = self.board.wake_at();
        }
    }

    fn deliver(&mut self, pending: Pending) {
        let Pending { invocation, attempt, worker, patch, .. } = pending;
        if self.random.percent(3) {
            // An external caller proposes first.
            let document = self.oracle.history.now().clone();
            let name = self.random.pick(SEATS).name;
            let patch = patches::patch(&mut self.random, &document, &|place| Seat::named(name).may_read(place));
            let from = ProposalSource::Direct { key: None, base: None };
            self.propose(from, name, patch);
        }
        self.propose(ProposalSource::Attempt { invocation, attempt }, &worker, patch);
    }

    fn propose(&mut self, from: ProposalSource, worker: &str, patch: Value) {
        let seat = Seat::named(worker);
        let ops: Vec<json_patch::PatchOperation> = serde_json::from_value(patch.clone()).expect("it is a patch");
        let shown = match &from {
            ProposalSource::Attempt { invocation, attempt } => {
                let shown = self.oracle.shown.get(&(invocation.0, *attempt)).expect("it was invoked").clone();
                Some((invocation.0, shown))
            }
            ProposalSource::Direct { .. } => None,
        };
        let may_read = |place: &Place| seat.may_read(place);
        let question = Question {
            mode: seat.mode,
            asked: shown.as_ref().map(|(invocation, shown)| (*invocation, shown)),
            may_read: &may_read,
            ops: &ops,
            conflicts: seat.conflicts,
            at: self.now.0,
        };
        let input = Input::Propose(Proposal {
            from,
            worker: worker.into(),
            reply: ReplyBody::Json(patch.clone()),
            usage: None,
            raw: None,
        });
        if self.trace {
            eprintln!("{} {worker} {patch}", self.now.0);
        }
        let findings = self.oracle.judge(&question);
        let step = self.board.step_ungated(self.now, input);
        let outcome: &Outcome = step.outcome.as_ref().expect("a proposal has an outcome");
        let decision =
            check::Decision { seed: self.seed, question: &question, findings: &findings, outcome, step: &step };
        self.checked.decision(&self.oracle, &decision, &mut self.figures);
        self.settle(step);
    }

    fn give(&mut self, input: Input) {
        if self.trace {
            eprintln!("{} {input:?}", self.now.0);
        }
        let step = self.board.step_ungated(self.now, input);
        self.settle(step);
    }

    fn settle(&mut self, step: Step) {
        for record in &step.records {
            if self.trace {
                eprintln!("  {} {}", record.header, record.payload);
            }
            let body = record.body().expect("it was just made");
            self.checked.record(&self.oracle, record, body, self.seed, &mut self.figures);
            self.oracle.hear(record, body);
            if matches!(body, Body::Committed(_)) {
                let document = self.oracle.history.now();
                assert_eq!(self.board.state().root(), document, "SEED={}: another document", self.seed);
            }
        }
        self.records.extend(step.records);
        for Call { invocation, attempt, worker, .. } in step.effects.calls {
            let worker = worker.to_string();
            let seat = Seat::named(&worker);
            let document = self.oracle.history.now();
            let patch = patches::patch(&mut self.random, document, &|place| seat.may_read(place));
            self.pending.push(Pending { invocation, attempt, worker, patch, is_late: false });
        }
        self.alarm = step.effects.wake_at.or(self.alarm);
    }
}
