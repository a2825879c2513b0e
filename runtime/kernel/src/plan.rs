//! A blueprint made ready to run: every schema, pattern, contract and expression compiled once.

mod expressions;
mod rest;
mod seat;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jsonptr::{Pointer, PointerBuf};

use crate::bindings::Binds;
use crate::blueprint::{
    self, AgentKind, Backlog, Blueprint, DELAY_MS_MAX, EventOp, GrantOp, Run, Trigger, Worker, WriteGrant,
    definition_name,
};
use crate::contract::{Contract, Values};
use crate::cron::Cron;
use crate::expr::{Dialect, Expr};
use crate::files::{Access, FILES};
use crate::id::{GroupName, RuleName, WorkerName};
use crate::mode::{Component, Interface, Mode};
use crate::pattern::{Paths, Pattern};
use crate::record;
use crate::schema::{Schema, StateSchema};
use crate::tree::Node;
use crate::view::Fixed;

pub use expressions::{Expressions, Owner};
pub(crate) use expressions::{place, pushed, request_part};
pub use rest::{Rest, RestKind};
pub use seat::Seat;

/// The variable that holds what names of path templates are bound to.
pub(crate) const BOUND: &str = "bound";

/// A compiled blueprint.
pub struct Plan {
    /// What it was compiled from.
    pub blueprint: Arc<Blueprint>,
    /// How much of it is enforced.
    pub mode: Mode,
    /// The state schema.
    pub schema: StateSchema,
    /// The request's schema.
    pub request: Schema,
    /// The schemas of what signals carry, by name.
    pub signals: BTreeMap<String, Schema>,
    /// Where what signals bring waits, and how much of it may.
    pub backlog: BTreeMap<String, (PointerBuf, usize)>,
    /// The workers and their contracts.
    pub seats: BTreeMap<WorkerName, Arc<Seat>>,
    /// Those of them who take none of the board's places.
    pub exempt: BTreeSet<WorkerName>,
    /// The rules, in the blueprint's order.
    pub rules: Vec<Rule>,
    /// The invariants, in the blueprint's order.
    pub invariants: Vec<Invariant>,
    /// The condition under which the board is done.
    pub done: Option<Expr>,
    /// The request as it was given, where workers may change what stands at `/request` (since format 20). None: what stands there
    /// is the same.
    pub given: Option<Node>,
    /// The format of the journal that the board began with: its rules decide, also after a later version took the board over.
    pub journal_format: u32,
}

/// A compiled rule.
pub struct Rule {
    /// Its name.
    pub name: RuleName,
    /// All whom it may wake, in the order in which it would.
    pub workers: Vec<WorkerName>,
    /// Which of them it wakes: the one whose name stands there; none: all.
    pub chosen: Option<Chosen>,
    /// What it waits for.
    pub wakes_on: WakesOn,
    /// Names that it binds for whom it wakes.
    pub binds: Binds,
    /// Its condition.
    pub when: Option<Expr>,
    /// Whether whom it wakes comes before all who wait that are not urgent.
    pub urgent: bool,
    /// What it lets pass before it fires; none: nothing.
    pub delay: Option<Delay>,
}

/// How long a compiled rule lets pass.
pub struct Delay {
    /// Length of the delay.
    pub lasts: Lasts,
    /// Workers whose waits for a model's provider do not count.
    pub except_waits_of: BTreeSet<WorkerName>,
}

/// Time that a compiled rule lets pass.
pub enum Lasts {
    /// So many milliseconds.
    For(u64),
    /// As many as stand there in the value of the event or the signal.
    At(PointerBuf),
}

/// Where a compiled rule finds whom it wakes.
pub struct Chosen {
    /// The group that the name must be of.
    pub group: GroupName,
    /// Where the name stands in the value of the event or the signal.
    pub at: PointerBuf,
}

/// What a compiled rule waits for.
pub enum WakesOn {
    /// The board's creation.
    Start,
    /// The board's creation, once for each place of the initial document.
    Each(Pattern),
    /// A signal of this name; a manual rule waits for its own name.
    Signal(String),
    /// A committed change.
    Event {
        /// The kind of change; none: any.
        op: Option<EventOp>,
        /// Where.
        path: Pattern,
    },
    /// All of these rules have completed an invocation.
    After(Vec<RuleName>),
    /// Rules that rest.
    Rest(Rest),
    /// These times.
    Every(Box<Cron>),
}

/// A compiled invariant.
pub struct Invariant {
    /// Its name.
    pub name: String,
    /// The instances it is evaluated for, as `self`; none: once.
    pub each: Option<Pattern>,
    /// What must hold.
    pub expr: Expr,
    /// Advice to a worker whose patch breaks it.
    pub message: Option<String>,
}

/// Where boards get their plans from. A plan never changes, so boards of one blueprint can share one: compiled schemas
/// are large.
pub trait Plans {
    /// The plan of a blueprint in a mode, for a board of this journal format.
    ///
    /// # Errors
    /// As [`Plan::compile`].
    fn of_format(&self, blueprint: Blueprint, mode: &Mode, journal: u32) -> Result<Arc<Plan>, String>;

    /// The same for a board of the newest format.
    ///
    /// # Errors
    /// As [`Plan::compile`].
    fn of(&self, blueprint: Blueprint, mode: &Mode) -> Result<Arc<Plan>, String> {
        self.of_format(blueprint, mode, record::FORMAT)
    }
}

/// A plan of its own for every board.
pub struct Own;

impl Plans for Own {
    fn of_format(&self, blueprint: Blueprint, mode: &Mode, journal: u32) -> Result<Arc<Plan>, String> {
        Plan::compile_for(Arc::new(blueprint), mode.clone(), journal).map(Arc::new)
    }
}

impl Plan {
    /// Returns the plan of a board that was given this request: one of its own, where workers may write there.
    pub(crate) fn of_request(self: Arc<Self>, request: &Node) -> Result<Arc<Self>, String> {
        let may_change = |seat: &Arc<Seat>| seat.open.is_some() || seat.contract.may_change("request");
        if self.journal_format < record::GIVEN || !self.seats.values().any(may_change) {
            return Ok(self);
        }
        let mut own = Self::compile_for(Arc::clone(&self.blueprint), self.mode.clone(), self.journal_format)?;
        own.given = Some(request.clone());
        for seat in own.seats.values_mut().filter_map(Arc::get_mut) {
            seat.contract.give(request);
        }
        Ok(Arc::new(own))
    }

    /// Returns `request` as expressions see it.
    pub(crate) fn request_in<'n>(&'n self, document: &'n Node) -> &'n Node {
        self.given.as_ref().or_else(|| document.child("request")).unwrap_or(&Node::Null)
    }

    /// Returns true in journals since format 13: views, expansions and short budgets are what they are since then.
    pub(crate) const fn has_ranges(&self) -> bool {
        self.journal_format >= record::RANGES
    }

    /// Whether a worker's replies are made patches before they come here, and its words are kept beside them. On a plain
    /// blackboard they are not kept: there a reply as it came is a patch without what the kernel has added. `is_asked`: who
    /// proposes unasked proposes patches.
    pub(crate) fn takes_words(&self, worker: &WorkerName, is_asked: bool) -> bool {
        let seat = self.seats.get(worker).filter(|_| is_asked && self.mode != Mode::Plain {});
        seat.is_some_and(|seat| seat.interface == Interface::Patch && seat.worker.format.is_some())
    }

    /// Compiles a blueprint for boards of a mode. [`crate::lint`] reports the same troubles, all of them and with positions.
    ///
    /// # Errors
    /// The first thing that cannot be compiled, for people.
    pub fn compile(blueprint: Arc<Blueprint>, mode: Mode) -> Result<Self, String> {
        Self::compile_for(blueprint, mode, record::FORMAT)
    }

    /// The same for boards of a journal format.
    ///
    /// # Errors
    /// As [`Plan::compile`].
    pub fn compile_for(blueprint: Arc<Blueprint>, mode: Mode, journal: u32) -> Result<Self, String> {
        let paths = Paths::of(blueprint.blueprint, journal);
        let is_join = !blueprint.joins_on_first() && journal >= record::BINDINGS;
        let state = &blueprint.state;
        if let Some(group) = blueprint.misdefined_groups().first() {
            return Err(format!("state.schema.$defs: {} is made of the workers of the group", definition_name(group)));
        }
        let schema = StateSchema::compile(&state.schema, state.assert_formats)
            .map_err(|error| format!("state.schema{}: {error}", error.pointer))?;
        if blueprint.workspace.is_some() && (mode.is_baseline() || !mode.has(Component::Contracts)) {
            return Err("workspace: files need write contracts, which a board of this mode does not have".to_owned());
        }
        let request = Schema::compile(&blueprint.request, state.assert_formats)
            .map_err(|error| format!("request{}: {error}", error.pointer))?;
        let values = Values::new(&state.schema);
        values
            .count(&schema)
            .and_then(|()| values.count(&request))
            .map_err(|error| format!("state.schema: {error}"))?;
        let mut signals = BTreeMap::new();
        for (name, value) in &blueprint.signals {
            let compiled = Schema::compile(value, state.assert_formats)
                .map_err(|error| format!("signals.{name}{}: {error}", error.pointer))?;
            values.count(&compiled).map_err(|error| format!("signals.{name}: {error}"))?;
            signals.insert(name.clone(), compiled);
        }
        let expressions = Expressions {
            paths,
            dialect: Dialect::of(journal),
            state: Some(&schema),
            request: Some(&request),
            signals: Some(&signals),
        };
        let mut seats = BTreeMap::new();
        for (name, worker) in &blueprint.workers {
            // A grant that demands a person must never be committed without one.
            for asked in worker.writes.iter().filter_map(|grant| grant.approval.as_ref()).chain(&worker.clarify) {
                if blueprint.workers.get(&asked.by).is_none_or(|by| by.agent != AgentKind::Human) {
                    return Err(format!("workers.{name}: {} is no human worker and can be asked nothing", asked.by));
                }
            }
            if let Some(inner) = &worker.board
                && !blueprint.boards.contains_key(&inner.of)
            {
                return Err(format!("workers.{name}.board: there is no board {}", inner.of));
            }
            // What is shown and judged are the operations that can be used.
            let worker = mode.seat(worker.with_effective_ops());
            let compile = |worker: &Worker| {
                let contract = Contract::compile_with(worker, &values, &expressions);
                contract.map(|contract| contract.of(name)).map_err(|error| format!("workers.{name}{error}"))
            };
            let contract = compile(&worker)?;
            let is_ablated = worker.agent == AgentKind::Llm;
            let open = match is_ablated && !mode.has(Component::Contracts) {
                true => Some(Arc::new(compile(&open(&worker))?)),
                false => None,
            };
            let interface = mode.interface(&worker);
            let fixed = Fixed::of(&worker, &schema, interface, paths).beginning_with(&state.initial);
            let is_told = !is_ablated || mode.has(Component::Feedback);
            let files = match &worker.files {
                Some(files) => {
                    let access = Access::compile(files).map_err(|error| format!("workers.{name}.files.{error}"))?;
                    Some(Arc::new(access))
                }
                None => None,
            };
            if blueprint.workspace.is_some() {
                keeps_files(&contract).map_err(|path| format!("workers.{name}: {path} {FILES_ARE_THE_KERNELS}"))?;
            }
            let (name, worker, fixed) = (name.clone(), Arc::new(worker), Arc::new(fixed));
            let (mut names, looks_at_bindings) = contract.bound_names();
            let places = worker.board.iter().flat_map(|inner| inner.places());
            for place in places.filter_map(|place| paths.parse(place).ok()) {
                names.extend(place.names().map(str::to_owned));
            }
            if looks_at_bindings {
                let waking = blueprint.rules.iter().filter(|rule| blueprint.woken_by(&rule.run).contains(&&name));
                for rule in waking {
                    names.extend(binds(rule, paths)?.names().into_iter().map(str::to_owned));
                }
            }
            let names = Arc::new(names);
            let seat =
                Seat { name, worker, contract, names, open, interface, files, is_told, journal_format: journal, fixed };
            seats.insert(seat.name.clone(), Arc::new(seat));
        }
        let mut rules = Vec::with_capacity(blueprint.rules.len());
        for rule in &blueprint.rules {
            let wrong = |what: String| format!("rule {}: {what}", rule.name);
            let workers: Vec<WorkerName> = blueprint.woken_by(&rule.run).into_iter().cloned().collect();
            if let Some(group) = rule.run.group().filter(|_| workers.is_empty()) {
                return Err(wrong(format!("there is no group {group}")));
            }
            if let Some(missing) = workers.iter().find(|worker| !seats.contains_key(*worker)) {
                return Err(wrong(format!("there is no worker {missing}")));
            }
            let chosen = match &rule.run {
                Run::Member { .. } if !rule.trigger.brings_a_value() => {
                    return Err(wrong("run.at: nothing comes with this trigger that a name could stand in".to_owned()));
                }
                Run::Member { group, at } => {
                    let at = PointerBuf::parse(at.as_str()).map_err(|error| wrong(format!("run.at: {error}")))?;
                    Some(Chosen { group: group.clone(), at })
                }
                Run::Worker(_) | Run::Group(_) => None,
            };
            let wakes_on = match &rule.trigger {
                Trigger::Start => WakesOn::Start,
                Trigger::Manual => WakesOn::Signal(rule.name.to_string()),
                Trigger::Signal(name) => WakesOn::Signal(name.clone()),
                Trigger::Event { op, path } => {
                    let path = paths.parse(path).map_err(|error| wrong(error.to_string()))?;
                    WakesOn::Event { op: *op, path: path.under_any_binding() }
                }
                Trigger::Each(path) => {
                    let path = paths.parse(path).map_err(|error| wrong(error.to_string()))?;
                    WakesOn::Each(path.under_any_binding())
                }
                Trigger::After(rules) if is_join => WakesOn::Rest(Rest::of(RestKind::Completed, rules.clone())),
                Trigger::After(rules) | Trigger::AfterFirst(rules) => WakesOn::After(rules.clone()),
                Trigger::Settled(rules) => WakesOn::Rest(Rest::of(RestKind::Settled, rules.clone())),
                Trigger::Idle(rules) => WakesOn::Rest(Rest::of(RestKind::Each, rules.clone())),
                Trigger::Every(pattern) => {
                    WakesOn::Every(Box::new(Cron::parse(pattern).map_err(|error| wrong(format!("every: {error}")))?))
                }
            };
            let when = match &rule.when {
                Some(source) => {
                    let compiled = expressions.compile(source, Owner::Rule(rule));
                    Some(compiled.map_err(|error| wrong(error.to_string()))?)
                }
                None => None,
            };
            let lasts = match rule.delay.as_ref().map(|delay| &delay.lasts) {
                None => None,
                Some(blueprint::Lasts::For(time)) if time.as_ms() > DELAY_MS_MAX => {
                    return Err(wrong(format!("delay: {time} is longer than a year")));
                }
                Some(blueprint::Lasts::For(time)) => Some(Lasts::For(time.as_ms())),
                Some(blueprint::Lasts::At(_)) if !rule.trigger.brings_a_value() => {
                    return Err(wrong(
                        "delay.at: nothing comes with this trigger that a time could stand in".to_owned(),
                    ));
                }
                Some(blueprint::Lasts::At(at)) => {
                    let at = PointerBuf::parse(at.as_str()).map_err(|error| wrong(format!("delay.at: {error}")))?;
                    Some(Lasts::At(at))
                }
            };
            let delay = rule.delay.as_ref().zip(lasts).map(|(delay, lasts)| {
                let members = delay.except_waits_of.iter().flat_map(|group| blueprint.group(group));
                Delay { lasts, except_waits_of: members.cloned().collect() }
            });
            let (name, urgent, binds) = (rule.name.clone(), rule.urgent, binds(rule, paths)?);
            rules.push(Rule { name, workers, chosen, wakes_on, binds, when, urgent, delay });
        }
        let mut invariants = Vec::with_capacity(blueprint.invariants.len());
        for invariant in &blueprint.invariants {
            let wrong = |what: String| format!("invariant {}: {what}", invariant.name);
            let each = match &invariant.each {
                Some(path) => Some(Pattern::parse(path).map_err(|error| wrong(error.to_string()))?),
                None => None,
            };
            let compiled = expressions.compile(&invariant.expr, Owner::Invariant(invariant));
            let expr = compiled.map_err(|error| wrong(error.to_string()))?;
            let (name, message) = (invariant.name.clone(), invariant.message.clone());
            invariants.push(Invariant { name, each, expr, message });
        }
        let done = match &blueprint.done {
            Some(done) => {
                let compiled = expressions.compile(&done.when, Owner::Done);
                Some(compiled.map_err(|error| format!("done: {error}"))?)
            }
            None => None,
        };
        let is_exempt = |(_, worker): &(_, &Worker)| worker.limits.exempt;
        let exempt = blueprint.workers.iter().filter(is_exempt).map(|(name, _)| name.clone()).collect();
        let mut backlog = BTreeMap::new();
        for (name, Backlog { at, max }) in &blueprint.backlog {
            let at = PointerBuf::parse(at).map_err(|error| format!("backlog.{name}: {error}"))?;
            backlog.insert(name.clone(), (at, *max as usize));
        }
        let mut plan = Self {
            blueprint,
            mode,
            schema,
            request,
            signals,
            backlog,
            exempt,
            seats,
            rules,
            invariants,
            done,
            given: None,
            journal_format: journal,
        };
        plan.find_upstream();
        Ok(plan)
    }
}

/// Compiles the bindings of a rule.
fn binds(rule: &blueprint::Rule, paths: Paths) -> Result<Binds, String> {
    let wrong = |what: String| format!("rule {}: {what}", rule.name);
    if !rule.bind.is_empty() && !rule.trigger.is_signal() {
        return Err(wrong("bind: only what a signal carries can be bound so".to_owned()));
    }
    if let Some(path) = rule.trigger.template() {
        let template = paths.parse(path).map_err(|error| wrong(error.to_string()))?;
        if let Some(name) = twice(&template) {
            return Err(wrong(format!("`{{{name}}}` is in the path twice")));
        }
        return Ok(Binds::of_template(&template));
    }
    let parse = |(name, at): (&String, &String)| {
        let at = PointerBuf::parse(at.as_str()).map_err(|error| wrong(format!("bind.{name}: {error}")))?;
        Ok((name.clone(), at))
    };
    Ok(Binds::Values(rule.bind.iter().map(parse).collect::<Result<_, String>>()?))
}

/// The name that a template has twice.
pub(crate) fn twice(template: &Pattern) -> Option<&str> {
    let mut known = BTreeSet::new();
    template.names().find(|name| !known.insert(*name))
}

/// The tokens of a pointer, without escapes.
pub(crate) fn decoded(pointer: &Pointer) -> Vec<String> {
    pointer.tokens().map(|token| token.decoded().into_owned()).collect()
}

/// Said behind the path of a grant that reaches what is known of the files of a workspace.
pub(crate) const FILES_ARE_THE_KERNELS: &str =
    "lets it write to /files, which says what the files of the workspace are and is kept by the kernel";

/// Whether a contract leaves alone what is known of files.
///
/// # Errors
/// The path of a grant that does not.
fn keeps_files(contract: &Contract) -> Result<(), String> {
    let files = Pattern::parse(&format!("/{FILES}")).map_err(|error| error.to_string())?;
    let reaches = |path: &&Pattern| path.collides(&files) || path.lies_above(&files) || files.lies_above(path);
    contract.write_patterns().find(reaches).map_or(Ok(()), |path| Err(path.to_string()))
}

/// The worker with a grant of everything: every operation everywhere.
fn open(worker: &Worker) -> Worker {
    let everything =
        WriteGrant { path: "/**".to_owned(), ops: GrantOp::ALL.to_vec(), value: None, approval: None, condition: None };
    Worker { writes: vec![everything], ..worker.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blueprint::GrantOp;

    #[test]
    fn a_seat_shows_only_the_operations_that_can_be_used() {
        let blueprint = serde_json::json!({
            "blueprint": 1, "name": "append", "state": {"schema": true, "initial": {"xs": []}},
            "workers": {"writer": {"agent": "llm", "writes": [
                {"path": "/xs/-"}, {"path": "/xs/-", "ops": ["copy", "add"]}, {"path": "/xs/*"},
            ]}},
        });
        let blueprint: Blueprint = serde_json::from_value(blueprint).expect("a blueprint");
        let plan = Plan::compile(Arc::new(blueprint.clone()), Mode::default()).expect("a plan");
        let grants = &plan.seats.values().next().expect("a seat").worker.writes;
        let ops: Vec<&[GrantOp]> = grants.iter().map(|grant| grant.ops.as_slice()).collect();
        use GrantOp::{Add, Copy, Replace};
        assert_eq!(ops, [[Add].as_slice(), &[Copy, Add], &[Add, Replace]]);
        assert_eq!(*plan.blueprint, blueprint, "what was written is kept");
    }
}
