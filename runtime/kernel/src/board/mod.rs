//! A board: one task's blueprint, state and all decisions so far.
//!
//! [`Board::step`] is the only way to change a board (SPEC section 1). A step decides one record after the other and
//! applies each before it decides the next; recovery applies the same records without deciding. So the journal alone is
//! enough to rebuild a board, by construction.
//!
//! * `types.rs`: inputs, and the results of a step;
//! * `decide.rs`: from an input to records;
//! * `feedback.rs`: rejections in later views;
//! * `rehearsal.rs`: dry run of a call and its reply, without a step;
//! * `apply.rs`: the effect of each record on the board, live and in recovery;
//! * `snapshot.rs`: encoding and restoring a whole board as stored parts.

mod admission;
mod apply;
mod backlog;
mod commits;
mod decide;
mod dedup;
mod dry_run;
mod feedback;
mod limits;
mod retry;
mod snapshot;
mod types;
mod undecided;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::{Map, Value};

use crate::bindings::Bindings;
use crate::blueprint::Blueprint;
use crate::breaker::{Branch, Breaker};
use crate::call_context::CallContext;
use crate::contract::Readable;
use crate::digest::{Digest, Hasher, sha256};
use crate::expand_request::ExpandRequest;
use crate::files::{FILES, FileCounters};
use crate::freshness::{self, ReadSet, Reservations};
use crate::id::{BoardId, RuleName, Seq, Timestamp, Version, WorkerName};
use crate::json;
use crate::ledger::Ledger;
use crate::mutants::{self, Mutant};
use crate::pipeline::{self, mask_recorded};
use crate::plan::{CompiledTrigger, Plan, PlanSource, UncachedPlans, WorkerPlan};
use crate::record::{
    Architect, Author, Body, Created, Ended, LimitOverrides, Parent, PauseCause, Principal, Record,
    SINCE_JOURNAL_LIMIT, SINCE_SALTED_TEXTS, WorkerLimitOverrides,
};
use crate::rejection::{Code, Violation};
use crate::rules::{ACTIVATIONS_MAX, INITIAL_PLACES_MAX};
use crate::scheduler::{IneffectiveInvocations, OpenInvocation, QueuedInvocation, Scheduler};
use crate::signal_payload::SignalPayload;
use crate::state::State;
use crate::tree::Node;
use crate::view::{self, Shortage, View};

pub use crate::pipeline::ReplyBody;
pub(crate) use apply::reply_digest;
pub use dry_run::DryRun;
pub use limits::{CallLimits, EffectiveLimits};
pub use retry::UnfinishedWork;
pub use snapshot::EncodedSnapshot;
pub use types::{
    Blob, BoardError, Effect, Input, NewBoard, Outcome, PendingQuestion, Proposal, ProposalSource, RememberedOutcome,
    RequestDeferral, Step,
};
pub use undecided::UndecidedRule;

use apply::ApplyContext;
use commits::CommitLog;
use dedup::Dedup;

/// Maximum number of a worker's own rejections in its view.
const FEEDBACK_MAX: usize = 3;
/// Maximum number of rejections that a board keeps of one worker, under all bindings.
const FEEDBACK_PER_WORKER_MAX: usize = 64;
/// Maximum number of other workers' rejections added to a view.
const OTHERS_FEEDBACK_MAX: usize = 2;

/// A board. A clone is a cheap copy at one moment: the document is shared, the rest is small.
#[derive(Clone)]
pub struct Board {
    id: BoardId,
    /// The invocation of another board that this nested board runs, if any.
    parent: Option<Parent>,
    /// The caller that started the board.
    creator: Option<Principal>,
    plan: Arc<Plan>,
    hasher: Hasher,
    state: State,
    /// Seq and hash of the last record.
    head: (Seq, Digest),
    epoch: u64,
    /// The journal format in force.
    format: u32,
    paused: bool,
    /// The reason for which the kernel paused the board, if it did.
    pause_cause: Option<PauseCause>,
    ended: Option<Ended>,
    /// Limits that an operator has raised.
    raised: LimitOverrides,
    raised_of_workers: BTreeMap<WorkerName, WorkerLimitOverrides>,
    /// Invocations that were given up, oldest first; bounded.
    given_up: VecDeque<QueuedInvocation>,
    /// Rules with given-up invocations that are no longer kept.
    forgotten_rules: BTreeSet<RuleName>,
    undecided: Vec<UndecidedRule>,
    /// First view of each worker that lacked room for all that the worker may read.
    shortages: Arc<BTreeMap<WorkerName, Shortage>>,
    /// Invocations of each branch that changed nothing, since its last commit or the last move of its breaker; bounded.
    ineffective: BTreeMap<Branch, IneffectiveInvocations>,
    scheduler: Scheduler,
    breaker: Breaker,
    ledger: Ledger,
    /// Set once a budget did not suffice.
    budget_exceeded: bool,
    /// Workers without invocations left.
    exhausted: BTreeSet<WorkerName>,
    /// Set once an invocation was given up.
    gave_up: bool,
    dedup: Dedup,
    /// Record and author of each version.
    commits: CommitLog,
    /// Counts of the workspace's files, if there is a workspace.
    files: FileCounters,
    /// Places reserved for workers that lost a conflict.
    reservations: Reservations,
    /// The last rejections of each worker since its last commit, oldest first.
    feedback: BTreeMap<WorkerName, VecDeque<(Seq, Value)>>,
    /// Proposals that wait for persons, by the number of the record with the question.
    pending: Arc<BTreeMap<Seq, PendingQuestion>>,
    /// Value of the last signal, for the invocations it triggers.
    signal: Option<SignalPayload>,
    /// The time of the last record; recorded time never goes back.
    last_at: Timestamp,
    /// Recorded running time, without pauses and downtime.
    running_ms: u64,
    /// Journal bytes that count against the limit: records since the format with the limit, and the views they name.
    journal_bytes: u64,
    /// Values of records before this one are redacted, so documents may lack the digests that records name.
    opaque_until: Seq,
    /// True if the document has the digest that the last commit names; false after a redaction of some of it.
    is_exact: bool,
}

impl Board {
    /// Creates a board; the step holds `created` and everything that starts at once.
    ///
    /// # Errors
    /// [`BoardError::BadBlueprint`]; [`BoardError::BadRequest`] if the request does not fit its schema, or the initial
    /// state with it breaks the state schema or an invariant.
    pub fn create(genesis: NewBoard, plans: &dyn PlanSource) -> Result<(Self, Step), BoardError> {
        Self::create_in_format(crate::record::FORMAT, genesis, plans)
    }

    /// Like [`Board::create`], in a given journal format.
    pub(crate) fn create_in_format(
        format: u32,
        genesis: NewBoard,
        plans: &dyn PlanSource,
    ) -> Result<(Self, Step), BoardError> {
        let NewBoard { board, mut blueprint, mode, architect, parent, mut request, salt, at, principal } = genesis;
        let founder = principal.and_then(|caller| caller.in_format(format));
        blueprint.fit_views(&|_| None);
        json::normalise(&mut request);
        let stored = serde_json::to_value(&blueprint).map_err(|error| BoardError::BadBlueprint(error.to_string()))?;
        let plan = plans.plan_for_format(blueprint, &mode, format).map_err(BoardError::BadBlueprint)?;
        let violations = plan.request.violations(&request, crate::rejection::VIOLATIONS_MAX);
        if !violations.is_empty() {
            return Err(BoardError::BadRequest(violations));
        }
        let hasher = Hasher::new(&salt);
        let state = State::new(&initial(&plan.blueprint, &request), &hasher);
        let plan = plan_for_request(plan, &state).map_err(BoardError::BadBlueprint)?;
        let mut violations = pipeline::check_initial(&plan, &state);
        violations.extend(check_initial_activations(&plan, &state));
        if !violations.is_empty() {
            return Err(BoardError::BadRequest(violations));
        }
        let created = Created {
            format,
            board: board.clone(),
            name: plan.blueprint.name.clone(),
            state: state.digest(),
            mode,
            blueprint: stored,
            request,
            salt,
            drawn: plan.blueprint.drawn_models(),
            architect: architect.clone(),
            parent,
        };
        let parent = created.parent.clone();
        let body = Body::Created(Box::new(created));
        let record = Record::seal_as(founder.as_ref(), crate::record::GENESIS, Seq(0), at, &body, &hasher);
        let mut made = Self {
            parent,
            creator: founder,
            ..Self::new(format, board, plan, hasher, state, &record, architect.as_ref())
        };
        let mut step = Step::default();
        step.records.push(record);
        made.start(at, &mut step);
        Ok((made, step))
    }

    /// Rebuilds a board from all its records, in order, without deciding anything.
    ///
    /// # Errors
    /// [`BoardError::BadRecord`] names the first record that cannot be read or does not fit the ones before.
    pub fn recover<'a>(records: impl IntoIterator<Item = &'a Record>) -> Result<Self, BoardError> {
        let mut records = records.into_iter();
        let first = records.next().ok_or_else(|| BoardError::bad(Seq(0), "the journal of the board is empty"))?;
        let mut board = Self::from_created(first, &UncachedPlans)?;
        let mut records = records.peekable();
        while let Some(record) = records.next() {
            if records.peek().is_none() && mutants::is_active(Mutant::SkipLastRecord) {
                break;
            }
            board.fold(record)?;
        }
        Ok(board)
    }

    /// Applies one stored record.
    ///
    /// # Errors
    /// [`BoardError::BadRecord`].
    pub fn fold(&mut self, record: &Record) -> Result<(), BoardError> {
        let bad = |message: String| BoardError::BadRecord { seq: record.seq, message };
        if record.seq != self.head.0.next() {
            return Err(bad(format!("its number does not follow {}", self.head.0)));
        }
        record.check_chain(self.head.1).map_err(|error| bad(error.to_string()))?;
        let body = record.body().map_err(|error| bad(error.to_string()))?;
        let principal = record.principal().map_err(|error| bad(error.to_string()))?;
        let mut beside = ApplyContext { principal, ..ApplyContext::default() };
        if let Some(erasure) = record.redaction_marker().map_err(|error| bad(error.to_string()))? {
            self.opaque_until = self.opaque_until.max(erasure.by);
            beside = ApplyContext { reply: erasure.reply, region: erasure.region, ..beside };
        }
        self.apply(record.seq, record.at, &body, beside).map_err(bad)?;
        self.count_journal_bytes(record, &body);
        self.head = (record.seq, record.hash);
        Ok(())
    }

    /// Builds the board of its `created` record alone; the caller folds the later records.
    ///
    /// # Errors
    /// [`BoardError::BadRecord`].
    pub fn from_created(record: &Record, plans: &dyn PlanSource) -> Result<Self, BoardError> {
        let bad = |message: String| BoardError::BadRecord { seq: record.seq, message };
        record.check_chain(crate::record::GENESIS).map_err(|error| bad(error.to_string()))?;
        let body = record.body().map_err(|error| bad(error.to_string()))?;
        let Body::Created(created) = body else { return Err(bad("a journal begins with created".to_owned())) };
        let blueprint = created.read_blueprint().map_err(bad)?;
        let plan = plans.plan_for_format(blueprint, &created.mode, created.format).map_err(bad)?;
        let hasher = Hasher::new(&created.salt);
        let state = State::new(&initial(&plan.blueprint, &created.request), &hasher);
        let plan = plan_for_request(plan, &state).map_err(bad)?;
        let is_exact = state.digest() == created.state;
        let erasure = record.redaction_marker().map_err(|error| bad(error.to_string()))?;
        if !is_exact && erasure.is_none() {
            return Err(bad("the initial state is not the one it names".to_owned()));
        }
        let opaque_until = erasure.map_or(Seq(0), |erasure| erasure.by);
        let format = created.format;
        let founder = record.principal().map_err(|error| bad(error.to_string()))?;
        let board = Self::new(format, created.board, plan, hasher, state, record, created.architect.as_ref());
        Ok(Self { parent: created.parent, creator: founder, opaque_until, is_exact, ..board })
    }

    fn new(
        format: u32,
        id: BoardId,
        plan: Arc<Plan>,
        hasher: Hasher,
        state: State,
        created: &Record,
        architect: Option<&Architect>,
    ) -> Self {
        let mut scheduler = Scheduler::default();
        scheduler.arm_schedules(&plan, created.at);
        let dedup = Dedup::new(&plan.blueprint.limits);
        let mut ledger = Ledger::default();
        if let Some(architect) = architect {
            ledger.charge(architect);
        }
        Self {
            id,
            parent: None,
            creator: None,
            plan,
            hasher,
            state,
            head: (created.seq, created.hash),
            epoch: 0,
            format,
            paused: false,
            pause_cause: None,
            ended: None,
            raised: LimitOverrides::default(),
            raised_of_workers: BTreeMap::new(),
            given_up: VecDeque::new(),
            forgotten_rules: BTreeSet::new(),
            undecided: Vec::new(),
            shortages: Arc::default(),
            ineffective: BTreeMap::new(),
            scheduler,
            breaker: Breaker::default(),
            ledger,
            budget_exceeded: false,
            exhausted: BTreeSet::new(),
            gave_up: false,
            dedup,
            commits: CommitLog::default(),
            files: FileCounters::default(),
            reservations: Reservations::default(),
            feedback: BTreeMap::new(),
            pending: Arc::default(),
            signal: None,
            last_at: created.at,
            running_ms: 0,
            journal_bytes: 0,
            opaque_until: Seq(0),
            is_exact: true,
        }
    }

    /// Returns the time of the last record.
    pub const fn last_at(&self) -> Timestamp {
        self.last_at
    }

    /// Adds an applied record to the journal size, if the format has a journal limit.
    fn count_journal_bytes(&mut self, record: &Record, body: &Body) {
        if self.format >= SINCE_JOURNAL_LIMIT {
            let view = if let Body::Invoked(invoked) = body { invoked.view_bytes.unwrap_or(0) } else { 0 };
            let bytes = (record.header.len() as u64).saturating_add(record.payload.len() as u64).saturating_add(view);
            self.journal_bytes = self.journal_bytes.saturating_add(bytes);
        }
    }

    /// Returns the name under which a text is stored next to its records.
    pub fn text_hash(&self, text: &str) -> Digest {
        if self.format >= SINCE_SALTED_TEXTS { self.hasher.text(text) } else { sha256(text.as_bytes()) }
    }

    /// Returns the id of the board.
    pub const fn id(&self) -> &BoardId {
        &self.id
    }

    /// Returns the invocation of another board that this nested board runs, if any.
    pub const fn parent(&self) -> Option<&Parent> {
        self.parent.as_ref()
    }

    /// Returns the caller that started the board, or the enclosing board.
    pub const fn creator(&self) -> Option<&Principal> {
        self.creator.as_ref()
    }

    /// Returns the blueprint.
    pub fn blueprint(&self) -> &Arc<Blueprint> {
        &self.plan.blueprint
    }

    /// Returns the compiled blueprint.
    pub const fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the committed document.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Returns true if the document has the digest that the last commit names; false after a redaction of some of it.
    pub const fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Returns the version: the number of commits.
    pub fn version(&self) -> Version {
        self.state.version()
    }

    /// Returns number and hash of the last record.
    pub const fn head(&self) -> (Seq, Digest) {
        self.head
    }

    /// Returns the owner's epoch: 0 for the process that created the board, higher with each change of ownership.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the end of the board, if it has ended.
    pub const fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Returns true if dispatching is suspended.
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns the reason for which the kernel paused the board, if it did.
    pub const fn pause_cause(&self) -> Option<PauseCause> {
        self.pause_cause
    }

    /// Returns the journal format in force.
    pub const fn format(&self) -> u32 {
        self.format
    }

    /// Returns the given-up invocations that can be retried, oldest first; at most 1,024.
    pub const fn given_up(&self) -> &VecDeque<QueuedInvocation> {
        &self.given_up
    }

    /// Returns the queue and the open invocations.
    pub const fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Returns the circuit breakers.
    pub const fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Returns the budget accounts.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns record and author of a version; `None` for version 0 and for future versions.
    pub fn commit_of(&self, version: Version) -> Option<(Seq, WorkerName)> {
        freshness::CommitLookup::commit_of(&self.commits, version)
    }

    /// Returns the places reserved for workers that lost a conflict.
    pub const fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// Returns the recorded running time in milliseconds, without pauses and downtime.
    pub const fn running_ms(&self) -> u64 {
        self.running_ms
    }

    /// Returns the time of the next tick, such as a call's deadline, a schedule, or the end of the running time.
    pub fn wake_at(&self) -> Option<Timestamp> {
        if self.ended.is_some() {
            return None;
        }
        let left = self.limits().wall_ms.saturating_sub(self.running_ms);
        let wall = self.is_running().then(|| self.last_at.plus_ms(left));
        let expiry = self.pending.values().filter_map(|question| question.expires);
        let freed = self.waits_until().filter(|_| !self.paused);
        let due = self.scheduler.due(&self.plan).map(|(_, due)| due).min().filter(|_| !self.paused);
        let delayed = self.scheduler.next_due(&self.suspended_rules()).filter(|_| !self.paused);
        self.scheduler
            .deadline()
            .into_iter()
            .chain(wall)
            .chain(expiry)
            .chain(freed)
            .chain(due)
            .chain(delayed)
            .chain(self.patience())
            .min()
    }

    /// Returns the proposals that wait for persons, by the number of the record with the question.
    pub const fn pending(&self) -> &Arc<BTreeMap<Seq, PendingQuestion>> {
        &self.pending
    }

    /// Returns, by worker, the first view that lacked room for all that the worker may read.
    pub const fn shortages(&self) -> &Arc<BTreeMap<WorkerName, Shortage>> {
        &self.shortages
    }

    /// Returns true if the board waits only for persons.
    pub fn waits_for_persons(&self) -> bool {
        self.ended.is_none()
            && !self.pending.is_empty()
            && self.scheduler.open().values().all(|open| open.question.is_some())
    }

    /// Returns the questions with a passed deadline.
    fn expired(&self, now: Timestamp) -> Vec<Seq> {
        self.pending.iter().filter(|(_, question)| question.is_over(now)).map(|(seq, _)| *seq).collect()
    }

    /// Returns the earliest expiry of a reservation that an attempt waits for.
    fn waits_until(&self) -> Option<Timestamp> {
        let waits = |open: &&OpenInvocation| !open.calling && open.question.is_none() && !open.waits_for_provider();
        let waiting = self.scheduler.open().values().filter(waits);
        waiting.filter_map(|open| self.reservations.until(&open.awaits, open.queued.invocation)).min()
    }

    /// Returns a worker's seat with names bound; `None` for an unknown worker. An unbound name covers no place.
    pub fn worker_plan(&self, worker: &WorkerName, bindings: &Bindings) -> Option<Arc<WorkerPlan>> {
        self.plan.workers.get(worker).map(|seat| seat.bind(bindings))
    }

    /// Returns the seat of a proposal's author, with the bindings of its invocation's trigger, if any.
    fn worker_plan_of(&self, by: &Author) -> Option<Arc<WorkerPlan>> {
        let open = by.attempt.as_ref().and_then(|attempt| self.scheduler.open().get(&attempt.invocation));
        match open {
            Some(open) => self.plan.worker_plan_of(&open.queued),
            None => self.worker_plan(&by.worker, &Bindings::default()),
        }
    }

    /// Returns true if an invocation of the seat's worker with these bindings is under way.
    pub fn is_called(&self, seat: &WorkerPlan) -> bool {
        let mut open = self.scheduler.open().values().filter(|open| open.queued.branch.worker == seat.name);
        open.any(|open| self.plan.bound_of(&open.queued) == *seat.bound())
    }

    /// Compiles the view of a worker on the current document.
    pub fn preview(&self, seat: &WorkerPlan) -> View {
        self.preview_by(seat, &[], &self.readable_by(seat), view::compile)
    }

    /// Returns, by worker, the places that a view has no room for. It takes the worker's first such call, else its
    /// queued invocation, else a preview.
    pub fn present_shortages(&self) -> BTreeMap<WorkerName, Shortage> {
        let mut shortages = BTreeMap::clone(&self.shortages);
        let mut note = |worker: &WorkerName, view: &dyn Fn() -> View| {
            if shortages.contains_key(worker) {
                return;
            }
            let places = view().unshown;
            if !places.is_empty() {
                let seat = &self.plan.workers[worker].worker;
                let (budget, unit) = (seat.view_budget(), seat.view.unit);
                shortages.insert(worker.clone(), Shortage { invocation: None, budget, unit, places });
            }
        };
        for queued in self.scheduler.queue() {
            note(&queued.branch.worker, &|| self.compile_call(queued).view);
        }
        for (worker, seat) in &self.plan.workers {
            note(worker, &|| self.preview(seat));
        }
        shortages
    }

    /// Like [`Board::preview`], of the `readable` places and with `expand` (JSON Pointers) requested. The view also
    /// explains to people every part that it omits.
    pub fn explained_preview(&self, seat: &WorkerPlan, expand: &[ExpandRequest], readable: &Readable<'_>) -> View {
        self.preview_by(seat, expand, readable, view::explain)
    }

    /// Returns the places of the document that a worker may read.
    pub fn readable_by<'s>(&self, seat: &'s WorkerPlan) -> Readable<'s> {
        seat.contract.readable(self.state.root())
    }

    /// Hides in a rejection that a worker received, an object with `stage` and `violations`, everything that the worker
    /// may not read now under any bindings.
    pub fn mask_rejection(&self, worker: &WorkerName, rejection: &mut Value) {
        if let Some(seat) = self.plan.workers.get(worker) {
            mask_recorded(rejection, &self.readable_by(&seat.under_any_binding()));
        }
    }

    /// Returns the structured access that an agent gets with such a view; `None` for an unknown worker.
    pub fn previewed_values(&self, seat: &Arc<WorkerPlan>, view: &View) -> Option<CallContext> {
        let places = |texts: &[String]| texts.iter().filter_map(|text| PointerBuf::parse(text.as_str()).ok()).collect();
        let basis = ReadSet { state: self.state.clone(), reads: places(&view.reads), members: places(&view.members) };
        let shown = CallContext::new(Arc::clone(&self.plan), seat.name.clone(), Arc::new(basis), view.may_expand);
        shown.map(|shown| shown.with_worker_plan(Arc::clone(seat)))
    }

    fn preview_by(
        &self,
        seat: &WorkerPlan,
        expand: &[ExpandRequest],
        readable: &Readable<'_>,
        compile: fn(&view::Inputs<'_>) -> View,
    ) -> View {
        let trigger = Self::preview_trigger(seat);
        let feedback: Vec<_> = self.feedback_of(seat, readable).into_iter().map(|(_, shown)| shown).collect();
        compile(&view::Inputs {
            worker: &seat.worker,
            readable,
            fixed: &seat.fixed,
            state: &self.state,
            trigger: &trigger,
            feedback: &feedback,
            expand,
            newest: 0,
            may_expand: seat.worker.format.is_none(),
            compiler: seat.compiler(),
            commits: &self.commits,
            budget: seat.worker.view_budget(),
        })
    }

    /// Returns the last rejections of a worker under these bindings, and of others where it may write, in journal
    /// order.
    fn feedback_of(&self, seat: &WorkerPlan, readable: &Readable<'_>) -> Vec<(Seq, Value)> {
        let worker = &seat.name;
        if !seat.shows_rejections {
            return Vec::new();
        }
        let of_others = self.feedback.iter().filter(|(other, _)| *other != worker).flat_map(|(other, recent)| {
            let told = |shown| feedback::for_other(&seat.contract, readable, other, shown);
            recent.iter().filter_map(move |(seq, shown)| Some((*seq, told(shown)?)))
        });
        let mut of_others: Vec<_> = of_others.collect();
        of_others.sort_by_key(|(seq, _)| Reverse(*seq));
        of_others.truncate(OTHERS_FEEDBACK_MAX);
        let own = self.feedback.get(worker).into_iter().flatten();
        let mut own: Vec<_> = own.filter(|(_, shown)| feedback::has_bindings(shown, seat.bound())).cloned().collect();
        own.iter_mut().for_each(|(_, shown)| mask_recorded(shown, readable));
        let mut feedback: Vec<_> = own.into_iter().chain(of_others).collect();
        feedback.sort_by_key(|(seq, _)| *seq);
        feedback
    }
}

/// Rejects a document with more places than rules may fire for when a board begins.
fn check_initial_activations(plan: &Plan, state: &State) -> Option<Violation> {
    let mut all = 0;
    for rule in &plan.rules {
        let CompiledTrigger::Each(pattern) = &rule.trigger else { continue };
        let places = pattern.instances(state.root(), INITIAL_PLACES_MAX + 1).len();
        all += places * if rule.selector.is_some() { 1 } else { rule.workers.len() };
        if places > INITIAL_PLACES_MAX || all > ACTIVATIONS_MAX {
            let message = format!(
                "the rule {} fires for {pattern}: at most {INITIAL_PLACES_MAX} places, and {ACTIVATIONS_MAX} invocations of all such \
                 rules, and there are more",
                rule.name
            );
            return Some(Violation::new(Code::TooLarge, "", message));
        }
    }
    None
}

/// Returns the plan of a board that begins with this state.
fn plan_for_request(plan: Arc<Plan>, begins: &State) -> Result<Arc<Plan>, String> {
    plan.for_request(begins.root().child("request").unwrap_or(&Node::Null))
}

/// Returns the initial document of a board.
pub(crate) fn initial(blueprint: &Blueprint, request: &Value) -> Value {
    let mut document = match blueprint.state.initial.clone() {
        Value::Object(members) => members,
        // A document that is no object has no place for a request; the linter reports it.
        other => return other,
    };
    if !request.is_null() {
        document.insert("request".to_owned(), request.clone());
    }
    if blueprint.workspace.is_some() {
        document.insert(FILES.to_owned(), Value::Object(Map::new()));
    }
    let mut document = Value::Object(document);
    json::normalise(&mut document);
    document
}

/// Builds an object with these members.
fn object<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
