//! Compiled blueprint: every schema, pattern, contract and expression is compiled once.

mod quiescence;
mod rule;
mod steps;
mod worker_plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jsonptr::PointerBuf;

use crate::ablation::{Component, Interface, Mode};
use crate::bindings::BindingSource;
use crate::blueprint::{
    self, AgentKind, Backlog, Blueprint, DELAY_MS_MAX, GrantOp, Run, Trigger, Worker, WriteGrant, definition_name,
};
use crate::contract::{Contract, Values};
use crate::cron::Cron;
use crate::expr::{Dialect, Expr};
use crate::expressions::{ExpressionCompiler, ExpressionOwner};
use crate::files::{Access, FILES};
use crate::id::WorkerName;
use crate::pattern::{PathSyntax, Pattern};
use crate::record;
use crate::schema::{Schema, StateSchema};
use crate::tree::Node;
use crate::view::{FixedParts, ReplyFormats};

pub use quiescence::{QuiescenceKind, QuiescenceWait};
pub use rule::{CompiledTrigger, Delay, DelayMs, Invariant, MemberSelector, Rule};
pub(crate) use steps::{STAGES, Step};
pub use worker_plan::WorkerPlan;

/// A compiled blueprint.
pub struct Plan {
    /// Source of the plan.
    pub blueprint: Arc<Blueprint>,
    /// Enforced components (ablation mode).
    pub mode: Mode,
    /// The state schema.
    pub schema: StateSchema,
    /// The request's schema.
    pub request: Schema,
    /// Payload schemas of signals, by name.
    pub signals: BTreeMap<String, Schema>,
    /// Backlog of each signal: its place and its maximum size.
    pub backlog: BTreeMap<String, (PointerBuf, usize)>,
    /// The workers and their contracts.
    pub workers: BTreeMap<WorkerName, Arc<WorkerPlan>>,
    /// Workers that occupy no concurrency slot of the board.
    pub unmetered: BTreeSet<WorkerName>,
    /// The rules, in the blueprint's order.
    pub rules: Vec<Rule>,
    /// The invariants, in the blueprint's order.
    pub invariants: Vec<Invariant>,
    /// The condition under which the board is done.
    pub done: Option<Expr>,
    /// Original request, where workers may change `/request` (since format 20); otherwise `None`, and `/request` is the
    /// original.
    pub original_request: Option<Node>,
    /// Format of the journal at the board's creation. Its rules decide, even after a later version has taken over the
    /// board.
    pub journal_format: u32,
    /// Source that compiled the plan.
    pub(crate) source: UncachedPlans,
}

/// Source of plans. A plan is immutable, so boards with one blueprint can share it; compiled schemas are large.
pub trait PlanSource {
    /// Returns the plan of a blueprint in a mode, for a board of this journal format.
    fn plan_for_format(&self, blueprint: Blueprint, mode: &Mode, journal: u32) -> Result<Arc<Plan>, String>;

    /// Like [`PlanSource::plan_for_format`], for the newest format.
    fn plan(&self, blueprint: Blueprint, mode: &Mode) -> Result<Arc<Plan>, String> {
        self.plan_for_format(blueprint, mode, record::FORMAT)
    }
}

/// Compiles a separate plan for every board, with these reply formats.
#[derive(Clone, Copy)]
pub struct UncachedPlans(pub ReplyFormats);

impl PlanSource for UncachedPlans {
    fn plan_for_format(&self, blueprint: Blueprint, mode: &Mode, journal: u32) -> Result<Arc<Plan>, String> {
        Plan::compile(Arc::new(blueprint), mode.clone(), journal, *self).map(Arc::new)
    }
}

impl Plan {
    /// Returns the plan for a board with this request. Boards with workers that may write to the request get a separate
    /// plan.
    pub(crate) fn for_request(self: Arc<Self>, request: &Node) -> Result<Arc<Self>, String> {
        let may_change = |worker_plan: &Arc<WorkerPlan>| {
            worker_plan.unrestricted.is_some() || worker_plan.contract.may_change("request")
        };
        if self.journal_format < record::SINCE_ORIGINAL_REQUEST || !self.workers.values().any(may_change) {
            return Ok(self);
        }
        let (blueprint, mode) = (Arc::clone(&self.blueprint), self.mode.clone());
        let mut own = Self::compile(blueprint, mode, self.journal_format, self.source)?;
        own.original_request = Some(request.clone());
        for worker_plan in own.workers.values_mut().filter_map(Arc::get_mut) {
            worker_plan.contract.original_request = Some(request.clone());
        }
        Ok(Arc::new(own))
    }

    /// Returns `request` as expressions see it.
    pub(crate) fn request_in<'n>(&'n self, document: &'n Node) -> &'n Node {
        self.original_request.as_ref().or_else(|| document.child("request")).unwrap_or(&Node::Null)
    }

    /// Returns true in journals since format 13, in which views, expansions and exceeded budgets changed.
    pub(crate) const fn has_ranges(&self) -> bool {
        self.journal_format >= record::SINCE_RANGES
    }

    /// Returns true if a worker's replies are converted to patches before judging, and their original text is recorded.
    /// A plain blackboard does not record it: there the reply itself is a patch without the kernel's additions.
    /// `is_asked` is false for unsolicited proposals, which are patches.
    pub(crate) fn converts_replies(&self, worker: &WorkerName, is_asked: bool) -> bool {
        let worker_plan = self.workers.get(worker).filter(|_| is_asked && self.mode != Mode::Plain {});
        worker_plan.is_some_and(|seat| seat.interface == Interface::Patch && seat.worker.format.is_some())
    }

    /// Compiles a blueprint for boards of a mode and a journal format. `patchboard-lint` reports all errors, with
    /// positions. Returns the first error, as a human-readable message.
    fn compile(blueprint: Arc<Blueprint>, mode: Mode, journal: u32, source: UncachedPlans) -> Result<Self, String> {
        let paths = PathSyntax::for_formats(blueprint.blueprint, journal);
        let is_join = !blueprint.joins_on_first() && journal >= record::SINCE_BINDINGS;
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
        let expressions = ExpressionCompiler {
            paths,
            dialect: Dialect::for_journal_format(journal),
            state: Some(&schema),
            request: Some(&request),
            signals: Some(&signals),
        };
        let mut worker_plans = BTreeMap::new();
        for (name, worker) in &blueprint.workers {
            // A grant that requires approval must never be committed without a person.
            for approval in worker.writes.iter().filter_map(|grant| grant.approval.as_ref()).chain(&worker.clarify) {
                if blueprint.workers.get(&approval.by).is_none_or(|by| by.agent != AgentKind::Human) {
                    return Err(format!("workers.{name}: {} is no human worker and can be asked nothing", approval.by));
                }
            }
            if let Some(inner) = &worker.board
                && !blueprint.boards.contains_key(&inner.of)
            {
                return Err(format!("workers.{name}.board: there is no board {}", inner.of));
            }
            // Views and judgement use only the effective operations.
            let worker = mode.adapt_worker(worker.with_effective_ops());
            let compile = |worker: &Worker| {
                let contract = Contract::compile_with(worker, &values, &expressions);
                contract.map(|contract| contract.for_worker(name)).map_err(|error| format!("workers.{name}{error}"))
            };
            let contract = compile(&worker)?;
            let is_ablated = worker.agent == AgentKind::Llm;
            let is_open = is_ablated && !mode.has(Component::Contracts);
            let unrestricted = is_open.then(|| compile(&open(&worker)).map(Arc::new)).transpose()?;
            let interface = mode.interface(&worker);
            let reply_format = worker.format.as_ref().map(|format| source.0(format, &worker)).transpose();
            let reply_format = reply_format.map_err(|error| format!("workers.{name}.format: {error}"))?;
            let fixed = FixedParts::new(&worker, &schema, interface, paths);
            let fixed = fixed.beginning_with(&state.initial).replying_in(reply_format);
            let shows_rejections = !is_ablated || mode.has(Component::Feedback);
            let files = worker.files.as_ref().map(Access::compile).transpose();
            let files = files.map_err(|error| format!("workers.{name}.files.{error}"))?.map(Arc::new);
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
                let waking =
                    blueprint.rules.iter().filter(|rule| blueprint.triggered_workers(&rule.run).contains(&&name));
                for rule in waking {
                    names.extend(binds(rule, paths)?.names().into_iter().map(str::to_owned));
                }
            }
            let names = Arc::new(names);
            let worker_plan = WorkerPlan {
                name,
                worker,
                contract,
                names,
                unrestricted,
                interface,
                files,
                steps: Step::of_mode(&mode, is_ablated),
                shows_rejections,
                journal_format: journal,
                fixed,
            };
            worker_plans.insert(worker_plan.name.clone(), Arc::new(worker_plan));
        }
        let mut rules = Vec::with_capacity(blueprint.rules.len());
        for rule in &blueprint.rules {
            let wrong = |what: String| format!("rule {}: {what}", rule.name);
            let workers: Vec<WorkerName> = blueprint.triggered_workers(&rule.run).into_iter().cloned().collect();
            if let Some(group) = rule.run.group().filter(|_| workers.is_empty()) {
                return Err(wrong(format!("there is no group {group}")));
            }
            if let Some(missing) = workers.iter().find(|worker| !worker_plans.contains_key(*worker)) {
                return Err(wrong(format!("there is no worker {missing}")));
            }
            let in_value = |member: &str, what: &str, at: &str| match rule.trigger.brings_a_value() {
                true => PointerBuf::parse(at).map_err(|error| wrong(format!("{member}: {error}"))),
                false => Err(wrong(format!("{member}: nothing comes with this trigger that a {what} could stand in"))),
            };
            let selector = match &rule.run {
                Run::Member { group, at } => {
                    Some(MemberSelector { group: group.clone(), at: in_value("run.at", "name", at)? })
                }
                Run::Worker(_) | Run::Group(_) => None,
            };
            let pattern = |path: &str| {
                let pattern = paths.parse(path).map_err(|error| wrong(error.to_string()));
                pattern.map(|pattern| pattern.under_any_binding())
            };
            let rest = |kind, rules: &[_]| CompiledTrigger::Quiescence(QuiescenceWait::new(kind, rules.to_vec()));
            let wakes_on = match &rule.trigger {
                Trigger::Start => CompiledTrigger::Start,
                Trigger::Manual => CompiledTrigger::Signal(rule.name.to_string()),
                Trigger::Signal(name) => CompiledTrigger::Signal(name.clone()),
                Trigger::Event { op, path } => CompiledTrigger::Event { op: *op, path: pattern(path)? },
                Trigger::Each(path) => CompiledTrigger::Each(pattern(path)?),
                Trigger::After(rules) if is_join => rest(QuiescenceKind::Completed, rules),
                Trigger::After(rules) | Trigger::AfterFirst(rules) => CompiledTrigger::After(rules.clone()),
                Trigger::Settled(rules) => rest(QuiescenceKind::Settled, rules),
                Trigger::Idle(rules) => rest(QuiescenceKind::Each, rules),
                Trigger::Every(pattern) => CompiledTrigger::Every(Box::new(
                    Cron::parse(pattern).map_err(|error| wrong(format!("every: {error}")))?,
                )),
            };
            let when = rule.when.as_ref().map(|source| expressions.compile(source, ExpressionOwner::Rule(rule)));
            let when = when.transpose().map_err(|error| wrong(error.to_string()))?;
            let delay = rule.delay.as_ref().map(|delay| {
                let length = match &delay.length {
                    blueprint::DelayLength::For(time) if time.as_ms() > DELAY_MS_MAX => {
                        return Err(wrong(format!("delay: {time} is longer than a year")));
                    }
                    blueprint::DelayLength::For(time) => DelayMs::For(time.as_ms()),
                    blueprint::DelayLength::At(at) => DelayMs::At(in_value("delay.at", "time", at)?),
                };
                let members = delay.except_waits_of.iter().flat_map(|group| blueprint.group(group));
                Ok(Delay { length, except_waits_of: members.cloned().collect() })
            });
            let delay = delay.transpose()?;
            let (name, priority, binds) = (rule.name.clone(), rule.priority(), binds(rule, paths)?);
            rules.push(Rule { name, workers, selector, trigger: wakes_on, binds, when, priority, delay });
        }
        let mut invariants = Vec::with_capacity(blueprint.invariants.len());
        for invariant in &blueprint.invariants {
            let wrong = |what: String| format!("invariant {}: {what}", invariant.name);
            let each = invariant.each.as_deref().map(Pattern::parse).transpose();
            let each = each.map_err(|error| wrong(error.to_string()))?;
            let compiled = expressions.compile(&invariant.expr, ExpressionOwner::Invariant(invariant));
            let expr = compiled.map_err(|error| wrong(error.to_string()))?;
            let (name, message) = (invariant.name.clone(), invariant.message.clone());
            invariants.push(Invariant { name, each, expr, message });
        }
        let done = blueprint.done.as_ref().map(|done| expressions.compile(&done.when, ExpressionOwner::Done));
        let done = done.transpose().map_err(|error| format!("done: {error}"))?;
        let is_unmetered = |(_, worker): &(_, &Worker)| worker.limits.is_unmetered();
        let unmetered = blueprint.workers.iter().filter(is_unmetered).map(|(name, _)| name.clone()).collect();
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
            unmetered,
            workers: worker_plans,
            rules,
            invariants,
            done,
            original_request: None,
            journal_format: journal,
            source,
        };
        plan.find_upstream();
        Ok(plan)
    }
}

fn binds(rule: &blueprint::Rule, paths: PathSyntax) -> Result<BindingSource, String> {
    let wrong = |what: String| format!("rule {}: {what}", rule.name);
    if !rule.bind.is_empty() && !rule.trigger.is_signal() {
        return Err(wrong("bind: only what a signal carries can be bound so".to_owned()));
    }
    if let Some(path) = rule.trigger.template() {
        let template = paths.parse(path).map_err(|error| wrong(error.to_string()))?;
        if let Some(name) = repeated_name(&template) {
            return Err(wrong(format!("`{{{name}}}` is in the path twice")));
        }
        return Ok(BindingSource::from_template(&template));
    }
    let parse = |(name, at): (&String, &String)| {
        let at = PointerBuf::parse(at.as_str()).map_err(|error| wrong(format!("bind.{name}: {error}")))?;
        Ok((name.clone(), at))
    };
    Ok(BindingSource::Values(rule.bind.iter().map(parse).collect::<Result<_, String>>()?))
}

/// Returns a name that occurs twice in a template.
pub fn repeated_name(template: &Pattern) -> Option<&str> {
    let mut known = BTreeSet::new();
    template.names().find(|name| !known.insert(*name))
}

/// Message suffix for a grant that reaches the workspace's file records.
pub(crate) const FILES_ARE_THE_KERNELS: &str =
    "lets it write to /files, which says what the files of the workspace are and is kept by the kernel";

/// Checks that a contract cannot write to the file records. The error is the path of a grant that can.
fn keeps_files(contract: &Contract) -> Result<(), String> {
    let files = Pattern::parse(&format!("/{FILES}")).map_err(|error| error.to_string())?;
    let reaches = |path: &&Pattern| path.collides(&files) || path.lies_above(&files) || files.lies_above(path);
    contract.write_patterns().find(reaches).map_or(Ok(()), |path| Err(path.to_string()))
}

/// Returns the worker with a grant of every operation everywhere.
fn open(worker: &Worker) -> Worker {
    let everything =
        WriteGrant { path: "/**".to_owned(), ops: GrantOp::ALL.to_vec(), value: None, approval: None, condition: None };
    Worker { writes: vec![everything], ..worker.clone() }
}

/// Plans of workers that all reply with patches.
#[cfg(test)]
pub(crate) const PATCHES_ONLY: UncachedPlans = UncachedPlans(|format, _| Err(format.to_owned()));

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
        let plan = PATCHES_ONLY.plan(blueprint.clone(), &Mode::default()).expect("a plan");
        let grants = &plan.workers.values().next().expect("a seat").worker.writes;
        let ops: Vec<&[GrantOp]> = grants.iter().map(|grant| grant.ops.as_slice()).collect();
        use GrantOp::{Add, Copy, Replace};
        assert_eq!(ops, [[Add].as_slice(), &[Copy, Add], &[Add, Replace]]);
        assert_eq!(*plan.blueprint, blueprint, "what was written is kept");
    }
}
