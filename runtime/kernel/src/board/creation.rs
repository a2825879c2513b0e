//! Makes a board: a new one, or one from its records.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::apply::ApplyContext;
use super::commits::CommitLog;
use super::dedup::Dedup;
use super::{Board, BoardError, NewBoard, Step};
use crate::blueprint::Blueprint;
use crate::breaker::Breaker;
use crate::digest::Hasher;
use crate::files::{FILES, FileCounters};
use crate::freshness::Reservations;
use crate::id::{BoardId, Seq};
use crate::json;
use crate::ledger::Ledger;
use crate::mutants::{self, Mutant};
use crate::pipeline;
use crate::plan::{CompiledTrigger, Plan, PlanSource};
use crate::record::{Architect, Body, Created, LimitOverrides, Record};
use crate::rejection::{Code, Violation};
use crate::rules::{ACTIVATIONS_MAX, INITIAL_PLACES_MAX};
use crate::scheduler::Scheduler;
use crate::state::State;
use crate::tree::Node;

impl Board {
    /// Creates a board; the step holds `created` and everything that starts at once. Fails with
    /// [`BoardError::BadBlueprint`], or with [`BoardError::BadRequest`] if the request does not fit its schema, or the
    /// initial state with it breaks the state schema or an invariant.
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
        let record = Record::seal_as(founder.as_ref(), crate::record::GENESIS, Seq(0), at, body, &hasher);
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

    /// Rebuilds a board from all its records, in order, without deciding anything. [`BoardError::BadRecord`] names the
    /// first record that cannot be read or does not fit the ones before.
    pub fn recover<'a>(
        records: impl IntoIterator<Item = &'a Record>,
        plans: &dyn PlanSource,
    ) -> Result<Self, BoardError> {
        let mut records = records.into_iter();
        let first = records.next().ok_or_else(|| BoardError::bad(Seq(0), "the journal of the board is empty"))?;
        let mut board = Self::from_created(first, plans)?;
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
        self.apply(record.seq, record.at, body, beside).map_err(bad)?;
        self.count_journal_bytes(record, body);
        self.head = (record.seq, record.hash);
        Ok(())
    }

    /// Builds the board of its `created` record alone; the caller folds the later records.
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
        let board = Self::new(format, created.board.clone(), plan, hasher, state, record, created.architect.as_ref());
        Ok(Self { parent: created.parent.clone(), creator: founder, opaque_until, is_exact, ..board })
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
