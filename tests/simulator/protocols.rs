//! The shipped protocol blueprints under random orders, random time and crashes at any place. The roles are the
//! product's, all other agents are functions of their views, and the test drives the kernel directly.
//!
//! If time passes only while no call is under way, every order, crash and outage leads to the same outcome. If time
//! passes at any moment, the invariants hold.

mod handoff;
mod negotiation;
mod room;
mod workflow;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use patchboard_agents::config::{Config, Environment};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_faults::random::Random;
use patchboard_kernel::admission::{self, Admission, WaitingCall};
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::board::{
    Board, Cancellation, Effects, Input, NewBoard, Proposal, ProposalSource, ReplyBody, RequestDeferral, Step,
};
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::{BoardId, InvocationId, Seq, Timestamp, WorkerName};
use patchboard_kernel::record::{Answer, Record};
use patchboard_kernel::replay;
use patchboard_lint::source::Source;
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{Agent as _, Call};
use serde_json::Value;

use crate::plans::Shared;

/// Maximum number of inputs to a board; more mean that it never ends.
const INPUTS_MAX: usize = 5_000;

/// A protocol to play.
struct Protocol {
    blueprint: Blueprint,
    request: Value,
    /// Agents that are no roles of this project: each returns a patch or an envelope.
    seats: Box<dyn Fn(&Call) -> Value>,
    /// Answer of a person to a question.
    person: Box<dyn Fn(&str) -> String>,
    /// Signals to the board, each sent once, at any time.
    signals: Vec<(String, Value)>,
    /// Compiled plan of its blueprint.
    plans: Shared,
}

/// Permitted disturbances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum World {
    /// One answer at a time, the oldest first.
    Calm,
    /// Any order, with occasional crashes; time passes only while no call is under way.
    Crashing,
    /// Like [`World::Crashing`], with time that passes at any moment.
    Hasty,
    /// Like [`World::Crashing`], with occasional outages of the model provider.
    Away,
}

/// The longest outage: two days.
const AWAY_MAX_MS: u64 = 2 * 24 * 60 * 60 * 1000;

/// Patience of every call.
const PATIENCE_MS: u64 = 365 * 24 * 60 * 60 * 1000;

/// A board that is played.
struct Play<'p> {
    protocol: &'p Protocol,
    environment: Environment,
    world: World,
    seed: u64,
    random: Random,
    board: Board,
    records: Vec<Record>,
    calls: BTreeMap<(InvocationId, u32), Call>,
    now: Timestamp,
    crashes: u64,
    /// Requests that the provider did not take.
    deferrals: u64,
    /// Number of signals sent.
    sent: usize,
}

/// Returns the shipped blueprint of this name with these changes, and its fragments.
fn shipped(name: &str, changes: &[(&str, &str)]) -> Source {
    let mut text = shipped_text(name).expect("it is shipped");
    for (from, to) in changes {
        assert!(text.contains(from), "{from:?} is not in the blueprint");
        text = text.replace(from, to);
    }
    with_fragments(Source::read(name, &text).expect("it can be read"))
}

/// Resolves the shipped fragments that a blueprint includes.
fn with_fragments(source: Source) -> Source {
    let mut texts = shipped_text;
    patchboard_protocols::resolve(source, &mut texts).unwrap_or_else(|findings| panic!("{findings:?}"))
}

fn shipped_text(name: &str) -> Result<String, String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../blueprints");
    std::fs::read_to_string(directory.join(name)).map_err(|error| error.to_string())
}

/// Compiles the source to a blueprint, with models in place of scripts.
fn blueprint(source: &Source) -> Blueprint {
    let report = patchboard_protocols::check(source);
    let blueprint = report.blueprint.unwrap_or_else(|| panic!("{:?}", report.findings));
    let mut value = serde_json::to_value(&blueprint).expect("a blueprint is JSON");
    for worker in value["workers"].as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
        if worker["agent"] == "script" {
            worker["agent"] = "llm".into();
            worker.as_object_mut().map(|worker| worker.remove("script"));
        }
    }
    serde_json::from_value(value).expect("a blueprint")
}

/// Plays a board of a protocol until it ends.
fn play(protocol: &Protocol, world: World, seed: u64) -> Play<'_> {
    let genesis = NewBoard {
        salt: Salt([2; 32]),
        ..NewBoard::new(BoardId::from("protocol"), protocol.blueprint.clone(), protocol.request.clone(), Timestamp(0))
    };
    let (mut board, mut first) = Board::create(genesis, &protocol.plans).expect("the request fits");
    board.admit(Timestamp(0), &mut first, &mut admission::admit_all);
    let mut play = Play {
        protocol,
        environment: Environment::from_process(),
        world,
        seed,
        random: Random::new(seed),
        board,
        records: Vec::new(),
        calls: BTreeMap::new(),
        now: Timestamp(0),
        crashes: 0,
        deferrals: 0,
        sent: 0,
    };
    play.take(first);
    play.run();
    replay::replay(&play.records, None, &PLANS).expect("the run follows from its records");
    play
}

/// Admits a call after its wait is over.
fn waited(now: Timestamp) -> impl FnMut(&Board, &WaitingCall) -> Option<Admission> {
    move |_, call| {
        let is_over = call.wait.as_ref().is_none_or(|wait| wait.not_before <= now);
        is_over.then(Admission::default)
    }
}

impl Play<'_> {
    fn take(&mut self, step: Step) {
        self.records.extend(step.records);
        let Effects { calls, cancellations, .. } = step.effects;
        for call in calls {
            self.calls.insert((call.invocation, call.attempt), Call::new(call, None));
        }
        for Cancellation { invocation, attempt, .. } in cancellations {
            self.calls.remove(&(invocation, attempt));
        }
    }

    fn give(&mut self, input: Input) {
        let mut step = self.board.step(self.now, input);
        self.board.admit(self.now, &mut step, &mut waited(self.now));
        self.take(step);
    }

    /// Returns the end of the first wait for the provider.
    fn provider_is_asked_at(&self) -> Option<Timestamp> {
        let waits = self.board.awaiting_admission().into_iter().filter_map(|call| call.wait);
        waits.map(|wait| wait.not_before).min()
    }

    /// Makes the calls that have waited long enough.
    fn ask_again(&mut self) {
        let now = self.now;
        let is_over = |call: &WaitingCall| call.wait.as_ref().is_some_and(|wait| wait.not_before <= now);
        while let Some(call) = self.board.awaiting_admission().into_iter().find(is_over) {
            let (invocation, attempt) = (call.invocation, call.attempt);
            self.give(Input::Admit { invocation, attempt, admission: Admission::default() });
        }
    }

    fn run(&mut self) {
        for _ in 0..INPUTS_MAX {
            if self.world != World::Calm && self.random.percent(8) {
                self.crash();
            }
            let questions: Vec<Seq> = self.board.pending().keys().copied().collect();
            let wake_at = self.board.wake_at().into_iter().chain(self.provider_is_asked_at()).min();
            let is_hasty = self.world == World::Hasty && self.random.percent(20) && self.may_be_late();
            let sends_early = self.world != World::Calm && self.random.percent(20);
            if (sends_early || self.is_at_rest()) && self.send_signal() {
                continue;
            }
            match (self.calls.is_empty() && questions.is_empty(), wake_at) {
                (false, Some(at)) if is_hasty => self.wait(at),
                (false, _) => self.answer_one(&questions),
                (true, Some(at)) => self.wait(at),
                (true, None) => return,
            }
        }
        panic!("SEED={}: the board never comes to rest", self.seed);
    }

    /// Returns true if no call under way is the last attempt of its invocation. A worker that is late each time has
    /// failed.
    fn may_be_late(&self) -> bool {
        let open = self.board.scheduler().open();
        self.calls.values().all(|call| {
            let attempts = open.get(&call.invocation).map_or(0, |open| open.counted_attempts());
            attempts < call.worker_config().limits.attempts
        })
    }

    fn is_at_rest(&self) -> bool {
        let is_waiting = self.board.wake_at().is_some() || self.provider_is_asked_at().is_some();
        self.calls.is_empty() && self.board.pending().is_empty() && !is_waiting
    }

    /// Sends the next signal, if one is left.
    fn send_signal(&mut self) -> bool {
        let Some((name, value)) = self.protocol.signals.get(self.sent).cloned() else { return false };
        self.sent += 1;
        self.now = self.now.plus_ms(1);
        self.give(Input::Signal { name, value, key: None });
        true
    }

    fn wait(&mut self, at: Timestamp) {
        self.now = self.now.max(at);
        self.give(Input::Tick);
        self.ask_again();
    }

    /// Draws a call or a question, and answers it.
    fn answer_one(&mut self, questions: &[Seq]) {
        let chosen = match self.world {
            World::Calm => 0,
            World::Crashing | World::Hasty | World::Away => self.random.index(self.calls.len() + questions.len()),
        };
        let Some(call) = self.calls.values().nth(chosen).cloned() else {
            self.person(questions[chosen - self.calls.len()]);
            return;
        };
        self.calls.remove(&(call.invocation, call.attempt));
        self.now = self.now.plus_ms(1);
        let is_of_model = call.worker_config().agent == AgentKind::Llm;
        if self.world == World::Away && is_of_model && self.random.percent(25) {
            self.defer(&call);
            return;
        }
        let input = match self.reply(&call) {
            Ok(text) => Input::Propose(Proposal {
                from: ProposalSource::Attempt { invocation: call.invocation, attempt: call.attempt },
                worker: call.worker.clone(),
                reply: ReplyBody::Text(text),
                usage: None,
                raw: None,
            }),
            Err((code, message)) => {
                panic!("SEED={}: {} cannot answer: {code}: {message}", self.seed, call.worker)
            }
        };
        // An answer may arrive twice.
        if self.world != World::Calm && self.random.percent(5) {
            self.give(input.clone());
        }
        self.give(input);
    }

    /// Defers a call: the provider does not take it.
    fn defer(&mut self, call: &Call) {
        self.deferrals += 1;
        let longest = *self.random.pick(&[1_000, 60_000, AWAY_MAX_MS]);
        let reasons: Vec<_> = DeferralReason::ALL.iter().filter(|reason| !reason.needs_operator()).collect();
        let not_taken = RequestDeferral {
            reason: **self.random.pick(&reasons),
            wait_ms: 1 + self.random.below(longest),
            patience_ms: PATIENCE_MS,
            is_served_elsewhere: false,
            message: "the provider is away".to_owned(),
        };
        self.give(Input::Defer {
            invocation: call.invocation,
            attempt: call.attempt,
            usage: None,
            deferral: not_taken,
        });
    }

    fn reply(&self, call: &Call) -> Result<String, (String, String)> {
        if !matches!(call.worker_config().agent, AgentKind::Builtin(_)) {
            return Ok((self.protocol.seats)(call).to_string());
        }
        // Roles that use a clock get the simulated time.
        let seats = AgentRegistry::new(Config::default(), &self.environment, InlinePrograms::Denied)
            .with_fixed_time(self.now, Path::new("/nowhere"));
        let answered = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        match answered.block_on(seats.call(call)) {
            Ok(reply) => Ok(reply.text),
            Err(failure) => Err((failure.code.as_str().to_owned(), failure.message)),
        }
    }

    /// Answers a question to a person.
    fn person(&mut self, of: Seq) {
        let question = self.board.pending()[&of].clone();
        let asked = question.clarify.as_ref().map(|clarify| (self.protocol.person)(&clarify.question));
        let by: WorkerName = question.approver.clone();
        let digest = question.digest;
        self.now = self.now.plus_ms(1);
        self.give(Input::Answer(Answer { of, by, digest, agrees: true, reason: None, text: asked }));
    }

    /// Crashes the process, and recovers the board from its journal.
    fn crash(&mut self) {
        let mut board = self.first();
        for record in &self.records[1..] {
            board.fold(record).expect("the journal is enough");
        }
        self.board = board;
        self.calls.clear();
        self.crashes += 1;
        let epoch = self.board.epoch() + 1;
        self.give(Input::take_over(epoch, format!("{epoch}")));
    }

    /// Returns the board after its first record.
    fn first(&self) -> Board {
        Board::from_created(&self.records[0], &self.protocol.plans).expect("it can be read")
    }

    /// Returns the document.
    fn state(&self) -> Value {
        self.board.state().root().to_value()
    }
}

/// Picks one of several words.
fn one(random: &mut Random, of: &[&'static str]) -> &'static str {
    of[random.index(of.len())]
}

/// Returns a value that a call shows; null if there is none.
fn shown(shown: &Arc<CallContext>, place: &str) -> Value {
    let place = jsonptr::PointerBuf::parse(place).expect("a place");
    let node = shown.value_at(&place).expect("it is shown wholly");
    node.map_or(Value::Null, patchboard_kernel::tree::Node::to_value)
}

/// Plays a protocol in each world. All worlds but the hasty one must lead to the outcome of the calm one, and `holds`
/// checks every end. Returns the counts.
fn in_all_worlds(
    protocol: &Protocol,
    seeds: u64,
    outcome: impl Fn(&Play<'_>) -> Value,
    holds: impl Fn(&Play<'_>),
) -> Played {
    let calm = play(protocol, World::Calm, 0);
    holds(&calm);
    let expected = outcome(&calm);
    let mut played = Played { boards: 3 * seeds + 1, ..Played::default() };
    for seed in 0..seeds {
        for world in [World::Crashing, World::Hasty, World::Away] {
            let play = play(protocol, world, seed);
            holds(&play);
            if world != World::Hasty {
                assert_eq!(outcome(&play), expected, "SEED={seed}: a world of {world:?} came to something else");
            }
            played.crashes += play.crashes;
            played.deferrals += play.deferrals;
        }
    }
    played
}

/// Counts of the boards, crashes and deferrals.
#[derive(Clone, Copy, Default, Debug)]
struct Played {
    boards: u64,
    crashes: u64,
    deferrals: u64,
}

impl Played {
    fn add(&mut self, other: Self) {
        self.boards += other.boards;
        self.crashes += other.crashes;
        self.deferrals += other.deferrals;
    }

    /// Asserts that there were enough crashes and deferrals.
    fn is_enough(self, crashes: u64) {
        assert!(self.crashes > crashes, "too few crashes to tell: {self:?}");
        assert!(self.deferrals > 0, "the provider was never away: {self:?}");
    }
}
