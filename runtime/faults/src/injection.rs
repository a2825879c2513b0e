//! Injects one fault into one run: plays the workers, chooses the faulty call, and judges the outcome.

use std::collections::BTreeSet;

use patchboard_kernel::admission::{Admission, WaitingCall};
use patchboard_kernel::blueprint::AgentKind;
use patchboard_kernel::board::{
    Board, Call, Input, NewBoard, Proposal, ProposalSource, ReplyBody, RequestDeferral, Step,
};
use patchboard_kernel::deferral::{DeferralReason, PATIENCE_MS};
use patchboard_kernel::digest::Salt;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::plan::PlanSource;
use patchboard_kernel::record::{Body, Kind, Record};
use patchboard_kernel::replay;
use serde_json::{Value, json};

use crate::class::FaultClass;
use crate::corpus::Corpus;
use crate::random::Random;
use crate::scenario::{self, Scenario};
use crate::simulation::{Delivery, GateDecision, SimulatedBoard, SimulationHooks};
use crate::system::System;
use crate::verdict::{Facts, Verdict};
use crate::{corruption, instructions, reply_format};

/// Steps of a board after which it counts as stuck.
const STEPS_MAX: usize = 4_000;

/// Maximum number of other moments that are tried when the fault could not be injected.
const TRIES_MAX: u64 = 24;

/// Number of a worker's calls from which its first faulty one is drawn; later tries draw from fewer.
const HITS: u64 = 4;

/// Start time of every board.
const EPOCH: Timestamp = Timestamp(1_750_000_000_000);

/// Runs a board with one injected fault. The run is the same for all systems, as far as possible.
pub(crate) fn inject(
    class: FaultClass,
    system: System,
    scenario: &dyn Scenario,
    instance: u64,
    seed: u64,
    corpus: &Corpus,
    plans: &dyn PlanSource,
) -> (Verdict, Vec<Record>) {
    let workers = scenario::fault_candidates(scenario, class);
    for attempt in 0.. {
        // Every worker is equally likely to fail. If its call never happens, or offers no chance for the fault, another
        // is drawn.
        let mut random = Random::from_parts(seed, &[class as u64, instance, attempt]);
        let hit = FaultTarget { worker: random.pick::<&str>(&workers), nth: random.below(HITS >> attempt.min(2)) };
        let board = BoardId::from(format!("{class}-{}-{instance}", system.as_str()));
        let mut played = FaultRun::new(class, system, scenario, hit, random, corpus);
        let records = played.run(board, plans);
        if played.is_made() || attempt == TRIES_MAX {
            return played.judge(instance, records, plans);
        }
    }
    unreachable!("the last try returns")
}

/// Position of the first faulty call.
#[derive(Clone, Copy)]
struct FaultTarget<'a> {
    worker: &'a str,
    /// Number of correct calls before it.
    nth: u64,
}

/// Plays a board on which one worker fails.
struct FaultRun<'a> {
    class: FaultClass,
    system: System,
    scenario: &'a dyn Scenario,
    hit: FaultTarget<'a>,
    /// Calls so far of the faulty worker.
    of_worker: u64,
    random: Random,
    /// Randomness of reply times.
    pace: Random,
    corpus: &'a Corpus,
    /// Beginning of the planted text, as views show it.
    planted: Option<String>,
    request: Value,
    calls: u32,
    faults: u32,
    /// Time of the first fault.
    since: Option<Timestamp>,
    worker: Option<String>,
    kind: &'static str,
    /// True if the worker keeps failing.
    is_lasting: bool,
    /// True if other workers commit during a cycle, and the worker's other calls succeed.
    has_company: bool,
    /// Commits by others since the cycle began.
    beside: u32,
    /// Length of a cycle; 1 means that nothing changes.
    length: usize,
    /// True if the next attempt is slow, so that an old reply arrives during it.
    is_slow: bool,
    /// A call that is answered late, and the document that its view showed.
    slow: Option<(InvocationId, u32, Value)>,
    /// True if that document changed before the reply arrived.
    is_overtaken: bool,
    now: Timestamp,
    document: Value,
    /// Entries that were present while the document was correct, and must not be removed.
    lasting: BTreeSet<String>,
    is_ended: bool,
}

impl<'a> FaultRun<'a> {
    fn new(
        class: FaultClass,
        system: System,
        scenario: &'a dyn Scenario,
        hit: FaultTarget<'a>,
        mut random: Random,
        corpus: &'a Corpus,
    ) -> Self {
        let planted = (class == FaultClass::InjectedInstruction).then(|| corpus.instruction(&mut random));
        let request = scenario.request(&mut random, planted.as_deref());
        let length = 1 + random.index(6);
        let pace = Random::new(random.draw());
        Self {
            class,
            system,
            scenario,
            hit,
            of_worker: 0,
            pace,
            corpus,
            planted: planted.as_deref().map(beginning),
            request,
            calls: 0,
            faults: 0,
            since: None,
            worker: None,
            kind: "",
            is_lasting: matches!(class, FaultClass::Cycle) || random.percent(50),
            has_company: random.percent(50),
            beside: 0,
            length,
            is_slow: false,
            slow: None,
            is_overtaken: false,
            now: EPOCH,
            document: Value::Null,
            lasting: BTreeSet::new(),
            is_ended: false,
            random,
        }
    }

    /// Returns true if the intended fault was injected. One step is not a cycle yet, and a reply is stale only if its
    /// data changed.
    fn is_made(&self) -> bool {
        match self.class {
            FaultClass::NoFault => true,
            FaultClass::Cycle => self.faults > 1 && (!self.has_company || self.beside > 0),
            FaultClass::StaleRead => self.is_overtaken,
            _ => self.faults > 0,
        }
    }

    fn run(&mut self, board: BoardId, plans: &dyn PlanSource) -> Vec<Record> {
        let mut blueprint = self.scenario.blueprint().clone();
        // Calls run one at a time unless concurrency is the point, so that any wrong result is due to the fault.
        if !matches!(self.class, FaultClass::NoFault | FaultClass::StaleRead) {
            blueprint.concurrency = 1;
        }
        let (mode, salt) = (self.system.mode(), Salt::ZERO);
        let request = self.request.clone();
        let genesis = NewBoard { mode, salt, ..NewBoard::new(board, blueprint, request, EPOCH) };
        let mut world =
            SimulatedBoard::new(genesis, plans, self).expect("the request of a scenario fits its blueprint");
        for _ in 0..STEPS_MAX {
            if world.is_over() || !world.advance(self) {
                break;
            }
        }
        self.is_ended = world.is_over();
        world.records().to_vec()
    }

    fn judge(self, instance: u64, records: Vec<Record>, plans: &dyn PlanSource) -> (Verdict, Vec<Record>) {
        let tokens = self.scenario.blueprint().limits.tokens;
        let facts = Facts::from_records(&records, tokens, self.worker.as_deref(), self.since.unwrap_or(EPOCH));
        let mut wrongs = scenario::document_errors(self.scenario, &self.request, &self.document);
        let left: BTreeSet<String> = self.scenario.permanent_entries(&self.document).into_iter().collect();
        wrongs.extend(self.lasting.difference(&left).map(|one| format!("gone: {one}")));
        wrongs.truncate(5);
        let is_halted = match self.class {
            FaultClass::Cycle => self.is_ended && facts.is_stopped && self.document["status"] != "lost",
            _ => self.is_ended,
        };
        let is_made = self.is_made();
        let verdict = Verdict {
            class: self.class,
            system: self.system,
            scenario: self.scenario.name(),
            instance,
            worker: self.worker,
            kind: self.kind,
            is_made,
            faults: self.faults,
            is_done: wrongs.is_empty() && self.scenario.is_done(&self.document),
            wrongs,
            is_halted,
            overdrawn: facts.overdrawn,
            end: facts.end.filter(|_| self.is_ended),
            commits: facts.commits,
            rejected: facts.rejected,
            calls: self.calls,
            is_replayed: replay::replay(&records, None, plans).is_ok(),
        };
        (verdict, records)
    }

    fn should_fail(&mut self, call: &Call) -> bool {
        if self.faults == 0 {
            let is_it = call.worker.as_str() == self.hit.worker;
            let nth = self.of_worker;
            self.of_worker += u64::from(is_it);
            let is_reached = self.planted.as_ref().is_none_or(|begins| call.prompt.user.contains(begins.as_str()));
            return is_it && nth >= self.hit.nth && is_reached;
        }
        let is_same = self.worker.as_deref() == Some(call.worker.as_str());
        // During a cycle, calls that other events triggered are answered correctly.
        let is_woken_by_it = self.faults < 2
            || scenario::trigger_path(&call.prompt.user)
                .is_none_or(|place| !place.starts_with("/orders/") || place.ends_with("/status"));
        match self.class {
            FaultClass::Cycle => is_same && (!self.has_company || is_woken_by_it),
            FaultClass::AgentCrash | FaultClass::AgentHang => is_same && self.is_lasting,
            // A provider outage affects all workers.
            FaultClass::RateLimited | FaultClass::ProviderOutage => {
                call.context.worker_plan().worker.agent == AgentKind::Llm && self.faults < DEFERRALS_MAX
            }
            _ => false,
        }
    }

    /// Builds the deliveries of a faulty call; none if the call offers no chance for the fault.
    fn faulty_deliveries(&mut self, call: &Call, ops: &[Value], document: &Value) -> Option<Vec<Delivery>> {
        let interface = call.context.worker_plan().interface;
        let worker = call.worker.as_str();
        let (scenario, class) = (self.scenario, self.class);
        let random = &mut self.random;
        let after_ms = 100 + self.pace.below(2_000);
        let honest = reply_format::reply(interface, ops);
        let timeout = call.timeout_ms;
        let text = |text: String, after_ms: u64| reply(call, text, after_ms);
        let words = |ops: &[Value]| reply_format::reply(interface, ops);
        let said = |(kind, ops): (&'static str, Vec<Value>)| (kind, vec![text(words(&ops), after_ms)]);
        let (kind, deliveries) = match class {
            FaultClass::NoFault => return None,
            FaultClass::InvalidJson => match self.corpus.malformed(random) {
                Some(given) => ("given", vec![text(given, after_ms)]),
                None => {
                    let (kind, broken) = corruption::invalid_json(interface, ops, random);
                    (kind, vec![text(broken, after_ms)])
                }
            },
            FaultClass::BadPathOrType => said(corruption::bad_path_or_type(interface, ops.to_vec(), random)),
            FaultClass::UnauthorizedWrite => {
                let trespass = scenario.unauthorized_write(worker, document, random);
                // Alone, or hidden behind an allowed write.
                said(match random.percent(50) {
                    true => ("alone", trespass),
                    false => ("behind_a_due_write", [ops, &trespass].concat()),
                })
            }
            FaultClass::FalseClaim => said(("lie", scenario.false_claim(worker, document, random)?)),
            FaultClass::Cycle => {
                // Only a worker that can cycle can be caught in a cycle.
                let nth = self.faults as usize;
                let steps = scenario.cycle_step(worker, document, self.length.max(2), nth)?;
                said(match self.length {
                    1 => ("no_op", Vec::new()),
                    length => (PERIODS[length.min(6) - 2], steps),
                })
            }
            FaultClass::StaleRead => {
                self.slow = Some((call.invocation, call.attempt, document.clone()));
                ("slow", vec![text(honest, 8_000 + self.pace.below(30_000))])
            }
            FaultClass::DuplicateDelivery => {
                let copies = 1 + random.index(3);
                let mut deliveries = vec![text(honest.clone(), after_ms)];
                // Identical copies, or other content for the same attempt.
                let other = random.percent(40).then(|| words(&scenario.unauthorized_write(worker, document, random)));
                let kind = if other.is_some() { "with_another_content" } else { "the_same" };
                for _ in 0..copies {
                    let again = other.clone().unwrap_or_else(|| honest.clone());
                    deliveries.push(text(again, after_ms + self.pace.below(60_000)));
                }
                (kind, deliveries)
            }
            FaultClass::ReorderedReply => {
                self.is_slow = true;
                let (kind, after_ms) = if random.percent(50) {
                    ("while_the_next_is_under_way", timeout + 1_000)
                } else {
                    ("after_the_next", timeout + 3 * SLOW_MS)
                };
                (kind, vec![text(honest, after_ms)])
            }
            FaultClass::LateReply => ("late", vec![text(honest, timeout + 1_000 + self.pace.below(3_600_000))]),
            FaultClass::Oversized => said(corruption::oversized(interface, ops.to_vec(), random)),
            FaultClass::InjectedInstruction => said(instructions::obey(scenario, worker, document, ops, random)),
            FaultClass::AgentCrash => {
                (lasting(self.is_lasting), vec![fail(call, after_ms, FailureCode::Crashed, "it is gone")])
            }
            FaultClass::AgentHang => (lasting(self.is_lasting), Vec::new()),
            FaultClass::BudgetBurst => {
                let mut answer = text(honest, after_ms);
                if let Input::Propose(proposal) = &mut answer.input {
                    let limit = scenario.blueprint().limits.tokens;
                    let completion = limit / 4 + random.below(limit * 4);
                    proposal.usage = Some(Usage { prompt: 1_000, completion, ..Usage::default() });
                }
                ("many_tokens", vec![answer])
            }
            FaultClass::RateLimited => {
                let wait_ms = 100 + random.below(60_000);
                ("for_seconds", vec![defer(call, after_ms, DeferralReason::RateLimited, wait_ms)])
            }
            FaultClass::ProviderOutage => {
                let reasons = [DeferralReason::Unreachable, DeferralReason::Overloaded, DeferralReason::ModelLoading];
                let wait_ms = 60_000 + random.below(OUTAGE_MAX_MS / u64::from(DEFERRALS_MAX));
                ("for_hours", vec![defer(call, after_ms, *random.pick(&reasons), wait_ms)])
            }
            FaultClass::ProviderGarbage => {
                let (truncated, empty) = (("cut_off", FailureCode::Truncated), ("empty", FailureCode::Empty));
                let (kind, code) = *random.pick(&[truncated, empty, ("no_protocol", FailureCode::Protocol)]);
                (kind, vec![fail(call, after_ms, code, "no reply")])
            }
        };
        self.faults += 1;
        self.since.get_or_insert(self.now);
        self.kind = kind;
        self.worker.get_or_insert_with(|| worker.to_owned());
        Some(deliveries)
    }
}

/// Duration of an attempt during which an old reply arrives, in milliseconds.
const SLOW_MS: u64 = 5_000;

/// Interval between commits of others during a cycle, in milliseconds.
const BESIDE_MS: u64 = 1_500;

/// Maximum number of requests that a provider defers in a run.
const DEFERRALS_MAX: u32 = 4;

/// Maximum total outage of a provider in a run, in milliseconds, beside a minute per deferral; below the default
/// patience.
const OUTAGE_MAX_MS: u64 = 20 * 60 * 60 * 1000;

/// Names of cycles by their length, from 2.
const PERIODS: [&str; 5] = ["period_2", "period_3", "period_4", "period_5", "period_6"];

const fn lasting(is_lasting: bool) -> &'static str {
    if is_lasting { "always" } else { "once" }
}

/// Returns the beginning of a text as views show it: JSON-escaped, without the quotation marks.
fn beginning(text: &str) -> String {
    let begins: String = text.chars().take(60).collect();
    json!(begins.trim_end()).to_string().trim_matches('"').to_owned()
}

fn reply(call: &Call, text: String, after_ms: u64) -> Delivery {
    let (invocation, attempt, worker) = (call.invocation, call.attempt, call.worker.clone());
    let tokens = |chars: usize| (chars as u64).div_ceil(4);
    let prompt = tokens(call.prompt.system.len() + call.prompt.user.len());
    let usage = Some(Usage { prompt, completion: tokens(text.len()), ..Usage::default() });
    let from = ProposalSource::Attempt { invocation, attempt };
    let reply = ReplyBody::Text(text);
    Delivery { after_ms, input: Input::Propose(Proposal { from, worker, reply, usage, raw: None }) }
}

fn fail(call: &Call, after_ms: u64, code: FailureCode, message: &str) -> Delivery {
    let (invocation, attempt, message) = (call.invocation, call.attempt, message.to_owned());
    Delivery { after_ms, input: Input::AgentFailed { invocation, attempt, code, message, usage: None } }
}

fn defer(call: &Call, after_ms: u64, reason: DeferralReason, wait_ms: u64) -> Delivery {
    let (invocation, attempt) = (call.invocation, call.attempt);
    let message = "not now".to_owned();
    let not_taken = RequestDeferral { reason, wait_ms, patience_ms: PATIENCE_MS, is_served_elsewhere: false, message };
    Delivery { after_ms, input: Input::Defer { invocation, attempt, usage: None, deferral: not_taken } }
}

impl SimulationHooks for FaultRun<'_> {
    fn admit(&mut self, at: Timestamp, call: &WaitingCall) -> GateDecision {
        match call.wait.as_ref().map(|wait| wait.not_before).filter(|not_before| *not_before > at) {
            Some(not_before) => GateDecision::After(not_before.ms_since(at)),
            None => GateDecision::Now(Admission::default()),
        }
    }

    fn on_call(&mut self, call: &Call, board: &Board) -> Vec<Delivery> {
        let document = board.state().root().to_value();
        let ops = self.scenario.answer(call.worker.as_str(), scenario::trigger_path(&call.prompt.user), &document);
        let seat = call.context.worker_plan();
        self.calls += u32::from(seat.worker.agent == AgentKind::Llm);
        if self.should_fail(call)
            && let Some(deliveries) = self.faulty_deliveries(call, &ops, &document)
        {
            return deliveries;
        }
        let after_ms = match seat.worker.agent {
            AgentKind::Llm if std::mem::take(&mut self.is_slow) => SLOW_MS,
            AgentKind::Llm => 100 + self.pace.below(2_000),
            _ => 10,
        };
        let mut ops = ops;
        let later = match self.class {
            FaultClass::Cycle if self.has_company => self.scenario.split_off_later(call.worker.as_str(), &mut ops),
            _ => Vec::new(),
        };
        let mut deliveries = vec![reply(call, reply_format::reply(seat.interface, &ops), after_ms)];
        for (nth, op) in (1..).zip(later) {
            let from = ProposalSource::Direct { key: None, base: None };
            let reply = ReplyBody::Text(reply_format::reply(seat.interface, &[op]));
            let input = Input::Propose(Proposal { from, worker: call.worker.clone(), reply, usage: None, raw: None });
            deliveries.push(Delivery { after_ms: after_ms + nth * BESIDE_MS, input });
        }
        deliveries
    }

    fn on_step(&mut self, at: Timestamp, input: Option<&Input>, step: &Step, board: &Board) {
        self.now = at;
        if let (Some((invocation, attempt, shown)), Some(Input::Propose(proposal))) = (&self.slow, input)
            && proposal.from == (ProposalSource::Attempt { invocation: *invocation, attempt: *attempt })
        {
            self.is_overtaken |= *shown != self.document;
        }
        if self.faults > 0 {
            let of_others = step.records.iter().filter_map(|record| match record.body() {
                Ok(Body::Committed(body)) => {
                    Some(body.by.worker.as_str() != self.worker.as_deref().unwrap_or_default())
                }
                _ => None,
            });
            self.beside += of_others.filter(|is_another| *is_another).count() as u32;
        }
        if step.records.iter().any(|record| matches!(record.kind, Kind::Committed | Kind::Created)) {
            self.document = board.state().root().to_value();
            if scenario::document_errors(self.scenario, &self.request, &self.document).is_empty() {
                self.lasting.extend(self.scenario.permanent_entries(&self.document));
            }
        }
    }
}
