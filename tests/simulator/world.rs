//! One simulated board: its blueprint, and the workers that answer its calls; the clock is that of
//! `patchboard_faults`.

use std::collections::BTreeMap;

use patchboard_faults::random::Random;
use patchboard_faults::simulation::{AppendOutcome, Delivery, GateDecision, SimulatedBoard, SimulationHooks};
use patchboard_kernel::ablation::{Component, Interface, Mode};
use patchboard_kernel::admission::{Admission, WaitingCall};
use patchboard_kernel::blueprint::{Action, AgentKind, Backlog, Blueprint, Streak};
use patchboard_kernel::board::{
    Board, Call, Input, NewBoard, Outcome, Proposal, ProposalSource, ReplyBody, RequestDeferral, Step,
};
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::digest::{Digest, Salt};
use patchboard_kernel::driver::Batch;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, IdempotencyKey, InvocationId, Seq, Timestamp, WorkerName};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{Answer, Ended, Record};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

use super::checks::Checks;
use super::disk::{Appends, Disk};
use super::operator::Operator;
use super::outages::Outages;
use super::seen::Met;
use super::shrink::{Event, History};
use super::stored::Stored;

/// Number of steps within which a board must end.
const STEPS_MAX: usize = 2400;

/// Number of attempts to move a stalled board on.
const STIRS_MAX: u64 = 12;

/// Maximum number of tasks.
pub(super) const TASKS_MAX: usize = 9;

pub(super) struct Simulation {
    seed: u64,
    world: SimulatedBoard,
    workers: Workers,
    operator: Operator,
    stored: Stored,
    /// True if the board is replaced now and then by its snapshot.
    restores: bool,
    /// Remaining attempts to move the board on when it stalls.
    stirs_left: u64,
    /// Draws the jumps of the clock; a separate generator, so that nothing else of a seed changes.
    jumps: Random,
}

/// Agents, persons and disk, with all checks.
struct Workers {
    random: Random,
    /// Draws the reported usage of calls; a separate generator, so that nothing else of a seed changes.
    meter: Random,
    /// Draws further calls within an attempt; a separate generator as well.
    loops: Random,
    /// Draws passes; a separate generator as well.
    passing: Random,
    /// Draws the requests that providers do not take; a separate generator as well.
    provider: Random,
    outages: Outages,
    met: Met,
    /// True if the workers rarely err, and do the next due task.
    is_careful: bool,
    mood: Mood,
    trace: bool,
    checks: Checks,
    disk: Disk,
    history: History,
}

/// Unusual habit of the workers of a board.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Usual,
    /// Agents crash often.
    Crashing,
    /// The doer does and undoes one task.
    Circling,
}

/// Three workers of unequal rights on a list of tasks, and a vault that no worker may read.
pub(super) fn blueprint(random: &mut Random) -> Blueprint {
    let mut note = json!({"path": "/notes/-", "ops": ["add"]});
    if random.percent(60) {
        note["approval"] = json!({"by": "boss", "expires": "30s"});
    }
    let workers = json!({
        "boss": {"agent": "human"},
        "planner": {
            "agent": if random.percent(50) { "llm" } else { "script" },
            "script": [[]],
            "reads": ["/request", "/tasks"],
            "writes": [{"path": "/tasks/-", "ops": ["add"], "value": {"properties": {"status": {"const": "open"}}}}],
            "limits": {"attempts": 3, "timeout": "10s", "invocations": 2 + random.below(4), "tokens": 20_000},
        },
        "doer": {
            "agent": "llm",
            "reads": ["/tasks/*/title", "/tasks/*/status"],
            "writes": [{"path": "/tasks/*/status", "ops": ["replace"]}, note],
            "limits": {"attempts": 2, "timeout": "10s", "invocations": 12},
            "clarify": {"by": "boss", "expires": "20s"},
        },
        "checker": {
            "agent": "command",
            "restart": if random.percent(50) { "fail" } else { "fresh" },
            "reads": ["/tasks/*/status"],
            "writes": [{"path": "/tasks/*/checked", "ops": ["replace"]}],
            "limits": {"attempts": 3, "timeout": "20s", "invocations": 12},
        },
    });
    let actions = [json!("stop_branch"), json!("reduce_view"), json!("stop_board"), json!({"wake": "planner"})];
    let value = json!({
        "blueprint": 1,
        "name": "simulated",
        "request": {"type": "object", "required": ["goal"]},
        "state": {
            "schema": {
                "type": "object",
                "required": ["tasks", "notes"],
                "properties": {
                    "request": true,
                    "vault": {"type": "string"},
                    "notes": {"type": "array", "items": {"type": "string", "maxLength": 40}},
                    "tasks": {
                        "type": "array",
                        "maxItems": TASKS_MAX,
                        "items": {
                            "type": "object",
                            "required": ["title", "status", "checked"],
                            "additionalProperties": false,
                            "properties": {
                                "title": {"type": "string"},
                                "status": {"enum": ["open", "doing", "done"]},
                                "checked": {"type": "boolean"},
                            },
                        },
                    },
                },
                "additionalProperties": false,
            },
            "initial": {"tasks": [], "notes": [], "vault": "nobody-may-read-this"},
        },
        "workers": workers,
        "rules": [
            {"name": "begin", "trigger": "start", "run": "planner"},
            {"name": "new-task", "trigger": {"op": "add", "path": "/tasks/*"}, "when": "value.status == 'open'",
             "run": "doer"},
            {"name": "moved", "trigger": {"op": "replace", "path": "/tasks/*/status"}, "when": "value != 'done'",
             "run": "doer"},
            {"name": "reopened", "trigger": {"op": "replace", "path": "/tasks/*/status"}, "when": "value == 'open'",
             "run": "checker"},
            {"name": "finished", "trigger": {"op": "replace", "path": "/tasks/*/status"}, "when": "value == 'done'",
             "run": "checker"},
            {"name": "odd", "trigger": {"op": "add", "path": "/notes/*"}, "when": "value.nothing == 1",
             "run": "planner"},
            {"name": "more", "trigger": {"signal": "more"}, "run": "planner"},
            {"name": "after-first-check", "trigger": {"after": ["finished"]}, "run": "planner"},
        ],
        "invariants": [
            {"name": "checked-means-done", "for": "/tasks/*", "expr": "!self.checked || self.status == 'done'"},
            {"name": "titles-stay", "expr": "size(state.tasks) >= size(before.tasks)"},
        ],
        "done": {"when": format!("size(state.tasks) >= {} && state.tasks.all(t, t.checked)", 3 + random.below(6))},
        "circuit": {
            "rejections": {"limit": 3, "then": random.pick(&actions)},
            "no_ops": {"limit": 2, "then": random.pick(&actions)},
            "crashes": {"limit": 1 + random.below(2), "then": random.pick(&actions)},
            "cycles": {"window": 8, "repeats": 2, "then": random.pick(&actions)},
            "budget": {"then": random.pick(&actions)},
            "cooldown": 2 + random.below(6),
        },
        "limits": {"commits": 10 + random.below(40), "tokens": 5_000 + random.below(60_000),
                   "wall": if random.percent(10) { "20s" } else { "5m" }},
        "concurrency": 1 + random.below(4),
    });
    serde_json::from_value(value).expect("the simulated blueprint is one")
}

/// Draws the mode: the usual one, or for some boards another. A separate generator keeps the other draws of a seed.
fn mode(seed: u64) -> Mode {
    let mut random = Random::new(seed ^ 0x0de5);
    match random.below(10) {
        0 => Mode::Plain {},
        1 => Mode::Structured {},
        2..5 => Mode::without(Component::ALL.iter().copied().filter(|_| random.percent(35))),
        _ => Mode::default(),
    }
}

/// Gives some rules budgets of their own. Drawn separately, like the mode.
fn with_rule_limits(mut blueprint: Blueprint, seed: u64) -> Blueprint {
    let mut random = Random::new(seed ^ 0x0b1d);
    for rule in &mut blueprint.rules {
        rule.limits.tokens = random.percent(12).then(|| 2_000 + random.below(15_000));
    }
    blueprint
}

/// Adds a rule that triggers some planners each minute. Drawn separately, like the mode.
fn with_schedule(mut blueprint: Blueprint, seed: u64) -> Blueprint {
    let mut random = Random::new(seed ^ 0xc407);
    if random.percent(15) {
        let rule = json!({"name": "minutely", "trigger": {"every": "* * * * *"}, "run": "planner"});
        blueprint.rules.push(serde_json::from_value(rule).expect("a rule"));
    }
    blueprint
}

/// Lets the checker look at unfinished tasks after a delay, on some boards. Drawn separately, like the mode.
fn with_delay(mut blueprint: Blueprint, seed: u64) -> Blueprint {
    let mut random = Random::new(seed ^ 0xde1a);
    if random.percent(25) {
        let trigger = json!({"op": "replace", "path": "/tasks/*/status"});
        let rule = json!({"name": "reminded", "trigger": trigger, "when": "value == 'doing'", "run": "checker", "delay": "15s"});
        blueprint.rules.push(serde_json::from_value(rule).expect("a rule"));
    }
    blueprint
}

/// Makes planner and checker a group, on some boards. A signal triggers the group, and notes name one member. Drawn
/// separately, like the mode.
fn with_group(mut blueprint: Blueprint, seed: u64) -> Blueprint {
    let mut random = Random::new(seed ^ 0x6e0b);
    if !random.percent(30) {
        return blueprint;
    }
    for (_, worker) in blueprint.workers.iter_mut().filter(|(name, _)| ["planner", "checker"].contains(&name.as_str()))
    {
        worker.group = Some("staff".into());
    }
    for rule in [
        json!({"name": "all-hands", "trigger": {"signal": "more"}, "run": {"group": "staff"}}),
        json!({"name": "named", "trigger": {"op": "add", "path": "/notes/*"}, "run": {"group": "staff", "at": ""}}),
    ] {
        blueprint.rules.push(serde_json::from_value(rule).expect("a rule"));
    }
    // Parse again, so that the group is resolved.
    serde_json::from_value(serde_json::to_value(blueprint).expect("a blueprint is JSON")).expect("a blueprint")
}

/// Lets the doer and the checker pass, on some boards, with an optional limit. Drawn separately, like the mode.
fn with_passing(mut blueprint: Blueprint, seed: u64) -> Blueprint {
    let mut random = Random::new(seed ^ 0x9a55);
    if random.percent(40) {
        for worker in ["doer", "checker"] {
            if let Some(worker) = blueprint.workers.get_mut(&WorkerName::from(worker)) {
                worker.pass = true;
            }
        }
        let actions = [Action::StopBranch, Action::ReduceView, Action::StopBoard, Action::Wake("planner".into())];
        let limit = 1 + u32::try_from(random.below(3)).expect("small");
        let streak = Streak { limit, then: random.pick(&actions).clone() };
        blueprint.circuit.passes = random.percent(75).then_some(streak);
    }
    blueprint
}

/// Leaves one worker out of the concurrency limit, on some boards. Drawn separately, like the mode.
fn with_unmetered(mut blueprint: Blueprint, seed: u64) -> Blueprint {
    let mut random = Random::new(seed ^ 0xe8e3);
    if random.percent(25) {
        let worker = random.pick(&["planner", "doer", "checker"]);
        if let Some(worker) = blueprint.workers.get_mut(&WorkerName::from(*worker)) {
            worker.limits.unmetered_concurrency = true;
        }
    }
    blueprint
}

/// Limits the backlog of tasks, on some boards. Drawn separately, like the mode.
fn with_backlog(mut blueprint: Blueprint, seed: u64) -> Blueprint {
    let mut random = Random::new(seed ^ 0xbac1);
    if random.percent(30) {
        let max = u32::try_from(1 + random.below(4)).expect("small");
        blueprint.backlog.insert("more".to_owned(), Backlog { at: "/tasks".to_owned(), max });
    }
    blueprint
}

/// Returns the genesis of the board of a seed.
pub(super) fn genesis(seed: u64) -> NewBoard {
    begun(seed).0
}

/// Like [`genesis`], with the generator after it.
fn begun(seed: u64) -> (NewBoard, Random) {
    let mut random = Random::new(seed);
    let variants =
        [with_rule_limits, with_schedule, with_delay, with_passing, with_group, with_unmetered, with_backlog];
    let genesis = NewBoard {
        mode: mode(seed),
        salt: Salt([7; 32]),
        ..NewBoard::new(
            BoardId::from(format!("simulated-{seed}")),
            variants.into_iter().fold(blueprint(&mut random), |blueprint, vary| vary(blueprint, seed)),
            json!({"goal": "three tasks, done and checked"}),
            Timestamp(1_000_000),
        )
    };
    (genesis, random)
}

impl Simulation {
    pub(super) fn new(seed: u64, trace: bool, history: History) -> Self {
        let (genesis, random) = begun(seed);
        // Separate generators, as for the mode.
        let is_careful = Random::new(seed ^ 0xca4e).percent(40);
        let mood = match Random::new(seed ^ 0x300d).below(20) {
            0 => Mood::Crashing,
            1 => Mood::Circling,
            _ => Mood::Usual,
        };
        let (checks, disk) = (Checks::new(seed), Disk::new(seed));
        let meter = Random::new(seed ^ 0x3e7e);
        let loops = Random::new(seed ^ 0x1009);
        let passing = Random::new(seed ^ 0x9a56);
        let provider = Random::new(seed ^ 0x9e1d);
        let (outages, met) = (Outages::of(seed, genesis.at), Met::default());
        let mut workers = Workers {
            random,
            meter,
            loops,
            passing,
            provider,
            outages,
            met,
            is_careful,
            mood,
            trace,
            checks,
            disk,
            history,
        };
        let world = SimulatedBoard::new(genesis, &PLANS, &mut workers).expect("the request fits");
        let (operator, stored) = (Operator::new(seed), Stored::new(seed));
        let jumps = Random::new(seed ^ 0x6a75_6d70);
        Self { seed, world, workers, operator, stored, restores: false, stirs_left: STIRS_MAX, jumps }
    }

    /// Simulates the same board, replaced by its snapshots at random moments.
    pub(super) fn restoring(seed: u64) -> Self {
        Self { restores: true, ..Self::new(seed, false, History::default()) }
    }

    pub(super) fn stored(&self) -> &Stored {
        &self.stored
    }

    pub(super) fn records(&self) -> &[Record] {
        self.world.records()
    }

    pub(super) const fn met(&self) -> &Met {
        &self.workers.met
    }

    pub(super) const fn appends(&self) -> Appends {
        self.workers.disk.appends
    }

    /// Runs until the board has ended and every answer under way has arrived.
    pub(super) fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            if self.world.is_over() && !self.retries() && !self.stirs() {
                break;
            }
            self.disturb();
            // A failed append ends the board's actors, and the calls under way are lost.
            while self.world.has_failed() {
                self.recover(true, None);
            }
            self.keep();
            if !self.world.advance(&mut self.workers) && !self.world.is_over() {
                if !self.world.board().is_paused() {
                    break;
                }
                self.resume();
            }
        }
        let board = self.world.board();
        let is_settled = !self.world.is_writing() && !self.world.has_failed();
        let has_ended = is_settled && board.ended().is_some();
        assert!(has_ended, "SEED={}: the board neither ended nor waits for anything", self.seed);
        self.workers.checks.at_the_end(board, self.world.records());
    }

    /// Resumes the board; during an outage mostly after its end.
    fn resume(&mut self) {
        let now = self.world.now();
        let ends = self.workers.outages.at(now).map(|(_, outage)| outage.ends);
        let at = ends.filter(|_| self.operator.waits()).unwrap_or(now);
        self.world.submit_at(at, Input::Resume { key: None }, &mut self.workers);
    }

    /// Retries an ended board. Returns false if the operator does not.
    fn retries(&mut self) -> bool {
        let Some(retried) = self.operator.retry_of(self.world.board()) else { return false };
        self.give(Input::Retry(retried));
        true
    }

    fn give(&mut self, input: Input) {
        self.world.submit(input, &mut self.workers);
    }

    /// Applies external events to the board, now and then.
    fn disturb(&mut self) {
        let outage = self.workers.outages.at(self.world.now());
        if outage.is_some_and(|(_, outage)| outage.exceeds_patience(self.world.now()))
            && self.operator.random.percent(10)
        {
            self.give(Input::Unavailable);
        }
        if self.workers.random.percent(2) {
            let token = self.token();
            self.give(Input::Signal { name: "more".into(), value: json!({"why": "because"}), key: token });
        }
        if self.workers.random.percent(1) {
            let (token, is_paused) = (self.token(), self.world.board().is_paused());
            self.give(if is_paused { Input::Resume { key: token } } else { Input::Pause { key: token } });
        }
        if self.workers.random.percent(1) {
            self.crash();
        }
        if self.jumps.below(1000) == 0 {
            let ms = 2000 + self.jumps.below(3_600_000);
            self.world.jump(ms, &mut self.workers);
        }
        if self.workers.random.below(1000) == 0 {
            let input = if self.workers.random.percent(50) { Input::Cancel } else { Input::Meltdown };
            self.give(input);
        }
        if self.workers.random.percent(2) {
            let workers = &mut self.workers;
            let worker = *workers.random.pick(&["planner", "doer", "checker", "nobody"]);
            let reply = workers.reply(worker, self.world.board());
            let token = self.token();
            self.propose(worker, reply, token);
        }
    }

    /// Draws an idempotency key, possibly a used one, or none.
    fn token(&mut self) -> Option<IdempotencyKey> {
        let random = &mut self.workers.random;
        random.percent(50).then(|| IdempotencyKey::from(format!("t{}", random.below(4))))
    }

    fn propose(&mut self, worker: &str, reply: ReplyBody, token: Option<IdempotencyKey>) {
        let from = ProposalSource::Direct { key: token, base: None };
        self.give(Input::Propose(Proposal { from, worker: worker.into(), reply, usage: None, raw: None }));
    }

    /// Tries to move a stalled board on. Returns false if there is no further try.
    fn stirs(&mut self) -> bool {
        let board = self.world.board();
        let is_final = board.ended().is_some_and(Ended::is_final);
        // A queue that waits for a breaker makes progress likelier.
        let percent = if board.scheduler().queue().is_empty() { 25 } else { 95 };
        if is_final || self.stirs_left == 0 || !self.workers.random.percent(percent) {
            return false;
        }
        self.stirs_left -= 1;
        let patch = *self.workers.random.pick(&["[]", r#"[{"op": "remove", "path": "/vault"}]"#]);
        self.propose("doer", ReplyBody::Text(patch.to_owned()), None);
        true
    }

    /// Crashes the process. Calls under way are lost, or answered to the new owner. Records being written may be lost
    /// as well.
    fn crash(&mut self) {
        let loses = self.workers.random.percent(50);
        let is_written = self.world.is_writing().then(|| self.workers.disk.outlives());
        self.recover(loses, is_written);
    }

    /// Recovers the board from the durable records, with a new owner.
    fn recover(&mut self, loses: bool, is_written: Option<bool>) {
        self.workers.history.borrow_mut().push(Event::Crashed(is_written));
        self.world.crash(loses, is_written.unwrap_or_default(), &mut self.workers);
        let recovered = Board::recover(self.world.records(), &PLANS).expect("the journal is enough");
        self.workers.checks.recovered(&recovered, self.world.records());
        self.stored.same(&recovered, self.world.records());
        self.world.replace(recovered);
        let epoch = self.world.board().epoch() + 1;
        self.give(Input::take_over(epoch, format!("writer-{epoch}")));
    }

    /// Stores the board now and then, and later lets the journal name the snapshot.
    fn keep(&mut self) {
        if self.world.is_writing() || self.world.has_failed() {
            return;
        }
        if let Some((of, digest)) = self.stored.due_to_name() {
            self.give(Input::Snapshot { of, digest });
        }
        if self.world.is_writing() || self.world.has_failed() {
            return;
        }
        if let Some(restored) = self.stored.consider(self.world.board(), self.world.records())
            && self.restores
        {
            self.workers.checks.restored(self.world.board(), &restored);
            self.world.replace(restored);
        }
    }
}

impl SimulationHooks for Workers {
    fn admit(&mut self, at: Timestamp, call: &WaitingCall) -> GateDecision {
        let passage = self.outages.passage(at, call);
        let is_held = call.wait.is_none() && passage != GateDecision::Now(Admission::default());
        self.met.held += u64::from(is_held);
        self.checks.asked_gate(call, &passage);
        passage
    }

    fn before_input(&mut self, at: Timestamp, input: &Input) {
        self.history.borrow_mut().push(Event::Given(at, Box::new(input.clone()), AppendOutcome::IMMEDIATE));
        if self.trace {
            eprintln!("{input:?}");
        }
    }

    fn append_outcome(&mut self, _: &Batch) -> AppendOutcome {
        let fate = self.disk.append();
        if let Some(Event::Given(_, _, given)) = self.history.borrow_mut().last_mut() {
            *given = fate;
        }
        if self.trace {
            eprintln!("  {fate:?}");
        }
        fate
    }

    fn on_durable(&mut self, append: &Batch) {
        if self.trace {
            for record in &append.records {
                eprintln!("  {} {}", record.header, record.payload);
            }
        }
        self.checks.wrote(append);
    }

    fn on_step(&mut self, at: Timestamp, input: Option<&Input>, step: &Step, board: &Board) {
        self.met.stepped(input, step);
        self.checks.stepped(at, input, step, board);
    }

    fn on_release(&mut self, released: &Step, _: &Board) {
        self.checks.released(released);
    }

    /// Decides how a call will be answered: well, wrongly, late, twice or never.
    fn on_call(&mut self, call: &Call, board: &Board) -> Vec<Delivery> {
        self.checks.called(call, board);
        let (invocation, attempt, worker) = (call.invocation, call.attempt, &call.worker);
        if self.errs(6) {
            return Vec::new();
        }
        let after_ms = match self.errs(10) {
            true => call.timeout_ms + self.random.below(5_000),
            false => self.random.below(3_000),
        };
        let input = if self.mood == Mood::Crashing && self.random.percent(60) {
            let (code, message) = (FailureCode::Crashed, "it crashed".into());
            Input::AgentFailed { invocation, attempt, code, message, usage: self.usage() }
        } else if self.errs(8) {
            let code = *self.random.pick(&[FailureCode::Crashed, FailureCode::Unreachable, FailureCode::Refused]);
            Input::AgentFailed { invocation, attempt, code, message: "it did not work".into(), usage: self.usage() }
        } else {
            let liar = self.errs(2);
            let worker = if liar { "nobody".into() } else { worker.clone() };
            let reply = match board.plan().workers.get(&worker).map(|seat| seat.interface) {
                None | Some(Interface::Patch) => {
                    let reply = self.reply(worker.as_str(), board);
                    self.passes(&worker, board).unwrap_or(reply)
                }
                Some(interface) => self.reply_without_patch(interface, &call.prompt.user),
            };
            let usage = self.usage();
            Input::Propose(Proposal {
                from: ProposalSource::Attempt { invocation, attempt },
                worker,
                reply,
                usage,
                raw: None,
            })
        };
        let is_gated = call.context.worker_plan().worker.agent == AgentKind::Llm;
        let since = board.scheduler().open().get(&invocation).map(|open| open.since);
        if let Some((index, outage)) = since.filter(|_| is_gated).and_then(|since| self.outages.at(since)) {
            self.met.outages.insert(index);
            let after_ms = after_ms.min(call.timeout_ms / 2);
            let not_taken = outage.not_taken(since.unwrap_or_default().plus_ms(after_ms));
            return self.sent(after_ms, Input::Defer { invocation, attempt, usage: None, deferral: not_taken }, None);
        }
        if is_gated && self.provider.percent(if self.is_careful { 3 } else { 10 }) {
            let mut deliveries = self.goes_on(invocation, attempt, after_ms);
            let input = Input::Defer { invocation, attempt, usage: None, deferral: self.not_taken() };
            deliveries.extend(self.sent(after_ms, input, None));
            return deliveries;
        }
        let again = self.random.percent(10).then(|| self.random.below(15_000));
        let mut deliveries = self.goes_on(invocation, attempt, after_ms);
        deliveries.extend(self.sent(after_ms, input, again));
        deliveries
    }

    /// Draws the answer of a person: in time or late, about this or another question, or none.
    fn answer_question(&mut self, of: Seq, board: &Board) -> Vec<Delivery> {
        if self.random.percent(10) {
            return Vec::new();
        }
        let Some(question) = board.pending().get(&of) else {
            // The board ended in the same step.
            assert!(board.ended().is_some_and(Ended::is_final), "record {of} asks nothing");
            return Vec::new();
        };
        let (mut by, mut digest) = (question.approver.clone(), question.digest);
        match self.random.below(10) {
            0 => by = "doer".into(),
            1 => digest = Digest([7; 32]),
            _ => {}
        }
        let agrees = self.random.percent(70);
        let reason = self.random.percent(50).then(|| "so be it".to_owned());
        let wrong = question.clarify.is_none() && self.meter.percent(2);
        let text = match &question.clarify {
            Some(clarify) if agrees => {
                let said = clarify.choices.first().cloned().unwrap_or_else(|| "whatever you like".to_owned());
                Some(if self.meter.percent(5) { String::new() } else { said })
            }
            Some(_) => None,
            None => wrong.then(|| "words that nobody asked for".to_owned()),
        };
        let input = Input::Answer(Answer { of, by, digest, agrees, reason, text });
        let again = self.random.percent(20).then(|| self.random.below(5_000));
        let after_ms = self.random.below(40_000);
        self.sent(after_ms, input, again)
    }
}

impl Workers {
    /// Returns true in `percent` of cases, and for careful workers in a tenth of those.
    fn errs(&mut self, percent: u64) -> bool {
        let errs = self.random.percent(percent);
        errs && (!self.is_careful || self.random.percent(10))
    }

    /// Draws the reason and the wait of a provider that takes no request: mostly seconds, sometimes longer than
    /// patience.
    fn not_taken(&mut self) -> RequestDeferral {
        let reason = *self.provider.pick(DeferralReason::ALL);
        let wait_ms = if self.provider.percent(10) { 86_400_000 } else { self.provider.below(40_000) };
        let patience_ms = *self.provider.pick(&[5_000, 60_000, 86_400_000]);
        let is_served_elsewhere = self.provider.percent(25);
        RequestDeferral { reason, wait_ms, patience_ms, is_served_elsewhere, message: "slow down".to_owned() }
    }

    /// Draws the reported usage of a call, if the provider reports any.
    fn usage(&mut self) -> Option<Usage> {
        let (prompt, completion) = (self.meter.below(2_500), self.meter.below(1_500));
        self.meter.percent(30).then_some(Usage { prompt, completion, ..Usage::default() })
    }

    /// Returns the calls that an attempt makes within `after_ms` milliseconds before it answers, or late ones after
    /// it.
    fn goes_on(&mut self, invocation: InvocationId, attempt: u32, after_ms: u64) -> Vec<Delivery> {
        let times = if self.loops.percent(25) { 1 + self.loops.below(3) } else { 0 };
        let call = |_| {
            let is_late = self.loops.percent(5);
            let after_ms = if is_late { after_ms + self.loops.below(2_000) } else { self.loops.below(after_ms + 1) };
            let (prompt, completion) = (self.loops.below(1_200), self.loops.below(600));
            let usage = self.loops.percent(80).then_some(Usage { prompt, completion, ..Usage::default() });
            let attempt = if self.loops.percent(4) { attempt + 1 } else { attempt };
            let most = if self.loops.percent(10) { 40_000 } else { 2_000 };
            let reserve = self.loops.below(most);
            Delivery { after_ms, input: Input::Continue { invocation, attempt, usage, reserve } }
        };
        (0..times).map(call).collect()
    }

    /// Returns deliveries of an input: once, or twice if `again` is given.
    fn sent(&self, after_ms: u64, input: Input, again: Option<u64>) -> Vec<Delivery> {
        let again = again.map(|later| Delivery { after_ms: after_ms + later, input: input.clone() });
        again.into_iter().chain([Delivery { after_ms, input }]).collect()
    }

    /// Draws the reply of a worker with an interface without patches: valid or invalid.
    fn reply_without_patch(&mut self, interface: Interface, view: &str) -> ReplyBody {
        if self.errs(15) {
            return ReplyBody::Text(
                (*self.random.pick(&["I think we should", "[]", "{\"tasks\": 3}", "/a/b: {"])).into(),
            );
        }
        let status = *self.random.pick(&["doing", "done", "done", "open", "finished"]);
        let task = json!({"title": "task", "status": "open", "checked": false});
        let index = self.random.below(3);
        match interface {
            Interface::Message => ReplyBody::Text(match self.random.below(4) {
                0 => format!("A task.\n/tasks/-: {task}"),
                1 => format!("/tasks/{index}/status: {status}\n/notes/-: so be it"),
                2 => "/tasks/0: null".into(),
                _ => "Let us see.".into(),
            }),
            Interface::Merge => ReplyBody::Json(match self.random.below(5) {
                0 => json!({"/tasks/-": task}),
                1 => json!({format!("/tasks/{index}/status"): status}),
                2 => json!({"notes": ["x".repeat(60)]}),
                3 => json!({"vault": null, "new": {"a": 1}}),
                _ => json!({}),
            }),
            Interface::Whole | Interface::Patch => {
                let shown = view.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
                let mut object = shown.filter(Value::is_object).unwrap_or(json!({}));
                match self.random.below(5) {
                    0 => drop(object.as_object_mut().expect("an object").remove("request")),
                    1 => object["notes"] = json!(["a note"]),
                    _ => match object.get_mut("tasks").and_then(Value::as_array_mut) {
                        Some(tasks) if self.random.percent(40) => tasks.push(task),
                        Some(tasks) => tasks.iter_mut().take(1).for_each(|task| task["status"] = json!(status)),
                        None => object["tasks"] = json!([task]),
                    },
                }
                ReplyBody::Json(object)
            }
        }
    }

    /// Draws a pass now and then: more often for workers that may pass, and sometimes together with a patch.
    fn passes(&mut self, worker: &WorkerName, board: &Board) -> Option<ReplyBody> {
        let may_pass = board.blueprint().workers.get(worker).is_some_and(|worker| worker.pass);
        let percent = if may_pass { 25 } else { 1 };
        let words = json!("not now");
        let forms = [
            json!({"pass": words}),
            json!({"pass": words}),
            json!({"patch": [], "pass": words}),
            json!({"patch": [{"op": "test", "path": "/tasks", "value": []}], "pass": words}),
        ];
        self.passing.percent(percent).then(|| ReplyBody::Json(self.passing.pick(&forms).clone()))
    }

    fn reply(&mut self, worker: &str, board: &Board) -> ReplyBody {
        let bad = [
            ReplyBody::Text("I think we should".into()),
            ReplyBody::Text("[{\"op\":\"add\",\"path\":\"/notes/-\",\"value\":1,\"value\":2}]".into()),
            ReplyBody::Json(json!([{"op": "replace", "path": "/vault", "value": "open"}])),
            ReplyBody::Json(json!([{"op": "test", "path": "/vault", "value": "guess"}])),
            ReplyBody::Json(json!([{"op": "remove", "path": "/tasks/0"}])),
            ReplyBody::Json(json!([{"op": "replace", "path": "", "value": {}}])),
            ReplyBody::Json(json!([{"op": "move", "from": "/tasks", "path": "/tasks/0"}])),
            ReplyBody::Json(json!([{"op": "replace", "path": "/tasks/0/status", "value": "finished"}])),
            ReplyBody::Json(json!([{"op": "replace", "path": "/tasks/9/status", "value": "done"}])),
            ReplyBody::Json(json!([{"op": "add", "path": "/notes/-", "value": "x".repeat(60)}])),
            ReplyBody::Json(json!({"patch": 3})),
            ReplyBody::Json(json!([])),
        ];
        if self.errs(25) {
            return self.random.pick(&bad).clone();
        }
        let tasks = board.state().root().child("tasks").map(|tasks| tasks.to_value());
        let tasks = tasks.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
        let is_next = |task: &Value| match worker {
            "doer" => task["status"] != "done",
            _ => task["status"] == "done" && task["checked"] == false,
        };
        let any = self.random.index(1 + tasks.len());
        let index = if self.is_careful { tasks.iter().position(is_next).unwrap_or(any) } else { any };
        let patch = match worker {
            "planner" => {
                let add = json!({"op": "add", "path": "/tasks/-",
                    "value": {"title": format!("task {any}"), "status": "open", "checked": false}});
                let count = if self.is_careful { 1 + self.random.index(3) } else { 1 };
                Value::Array(vec![add; count])
            }
            "doer" if self.mood == Mood::Circling && !tasks.is_empty() => {
                let status = if tasks[0]["status"] == "open" { "doing" } else { "open" };
                json!([{"op": "replace", "path": "/tasks/0/status", "value": status}])
            }
            "doer" => {
                let status = *self.random.pick(&["doing", "done", "done", "open"]);
                let mut patch =
                    vec![json!({"op": "replace", "path": format!("/tasks/{index}/status"), "value": status})];
                if self.random.percent(20) {
                    let names = board.plan().rules.iter().any(|rule| rule.selector.is_some()) && index % 3 != 0;
                    let note = if names { "checker".to_owned() } else { format!("note {index}") };
                    patch.push(json!({"op": "add", "path": "/notes/-", "value": note}));
                }
                Value::Array(patch)
            }
            _ => json!([{"op": "replace", "path": format!("/tasks/{index}/checked"), "value": true}]),
        };
        // Some replies request more, with a patch or without.
        let patch = match self.random.below(12) {
            0 => json!({"patch": patch, "expand": [format!("/tasks/{index}")]}),
            1 if index % 2 == 1 => json!({"expand": [format!("/tasks/{index}"), {"at": "/tasks", "from": index}]}),
            1 => json!({"expand": [format!("/tasks/{index}"), "/tasks"]}),
            _ => patch,
        };
        let reply = if self.random.percent(50) { ReplyBody::Json(patch) } else { ReplyBody::Text(patch.to_string()) };
        // Some replies ask a person, some of them without a person to ask.
        let asks = self.meter.percent(if worker == "doer" { 8 } else { 1 });
        if asks { ReplyBody::Json(self.question()) } else { reply }
    }

    /// Draws a question to a person, with choices or without.
    fn question(&mut self) -> Value {
        let choices = self.meter.percent(50).then(|| json!(["this", "that"]));
        json!({"clarify": {"question": "Which one?", "choices": choices.unwrap_or(json!([]))}})
    }
}

/// Counts the outcomes by kind, for tests that compare runs.
pub(super) fn tally(outcomes: &[Option<Outcome>]) -> BTreeMap<&'static str, usize> {
    let mut tally = BTreeMap::new();
    for outcome in outcomes.iter().flatten() {
        let name = match outcome {
            Outcome::Continued { .. } => "continued",
            Outcome::Committed { .. } => "committed",
            Outcome::NoOp { .. } => "no_op",
            Outcome::Expanded { .. } => "expanded",
            Outcome::AwaitingApproval { .. } => "awaiting_approval",
            Outcome::Answered { .. } => "answered",
            Outcome::RejectedUnrecorded(_) => "refused",
            Outcome::Rejected { .. } => "rejected",
            Outcome::Duplicate(_) => "duplicate",
        };
        *tally.entry(name).or_default() += 1;
    }
    tally
}
