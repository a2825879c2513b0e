//! Invocations that a commit, a signal or a breaker schedules, and their order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use patchboard_kernel::id::{InvocationId, Timestamp};
use patchboard_kernel::record::{Scheduled, Trigger};
use serde_json::Value;

use super::Branch;

pub(super) struct Schedule {
    seed: u64,
    /// Branches that are due in the present step, in order.
    due: VecDeque<Branch>,
    /// Conditions without a truth value in the present step.
    skips: Vec<String>,
    skipped: Vec<String>,
    /// Flags: a first check was completed, and the rule that waits for it was queued.
    has_checked: bool,
    has_fired: bool,
    /// Workers that each rule runs, or might run, in order.
    rules: Vec<(String, Vec<String>)>,
    /// Rules that the start of the board triggers.
    start: Vec<String>,
    /// Maximum number of invocations per worker.
    limits: BTreeMap<String, u64>,
    scheduled: BTreeMap<String, u64>,
    /// Workers that were reported to have no invocations left.
    used_up: BTreeSet<String>,
    /// An invocation beyond its worker's limit, until it is given up.
    beyond: Option<InvocationId>,
    /// Next due time of the rule that runs each minute, if there is one.
    minute: Option<i64>,
    /// Delayed invocations, the earliest first.
    delayed: Vec<Delayed>,
    /// Invocations that have become due in the present step, but no longer match.
    unwanted: VecDeque<InvocationId>,
}

/// A delayed invocation.
struct Delayed {
    due: i64,
    invocation: InvocationId,
    branch: Branch,
    /// Pointer to the task's status.
    path: String,
}

const MINUTE: i64 = 60_000;
/// Delay until the checker looks at a task that is being done.
const PATIENCE: i64 = 15_000;

impl Schedule {
    pub(super) fn new(seed: u64, blueprint: &Value, at: Timestamp) -> Self {
        let rules = || blueprint["rules"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let workers = blueprint["workers"].as_object().into_iter().flatten();
        let run = |run: &Value| match &run["group"] {
            Value::Null => vec![text(run)],
            group => {
                let members = blueprint["workers"].as_object().into_iter().flatten();
                members.filter(|(_, worker)| worker["group"] == *group).map(|(name, _)| name.clone()).collect()
            }
        };
        let limit = |worker: &Value| worker["limits"]["invocations"].as_u64().expect("it is spelled out");
        Self {
            seed,
            due: VecDeque::new(),
            skips: Vec::new(),
            skipped: Vec::new(),
            has_checked: false,
            has_fired: false,
            rules: rules().map(|rule| (text(&rule["name"]), run(&rule["run"]))).collect(),
            start: rules().filter(|rule| rule["trigger"] == "start").map(|rule| text(&rule["name"])).collect(),
            limits: workers.map(|(name, worker)| (name.clone(), limit(worker))).collect(),
            scheduled: BTreeMap::new(),
            used_up: BTreeSet::new(),
            beyond: None,
            minute: rules().any(|rule| rule["name"] == "minutely").then(|| next_minute(at)),
            delayed: Vec::new(),
            unwanted: VecDeque::new(),
        }
    }

    /// Returns the delayed invocations, in order.
    pub(super) fn delayed(&self) -> impl Iterator<Item = InvocationId> {
        self.delayed.iter().map(|delayed| delayed.invocation)
    }

    pub(super) const fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Records a delayed invocation.
    pub(super) fn delays(&mut self, at: Timestamp, scheduled: &Scheduled, branch: &Branch) {
        let Scheduled { invocation, due, trigger, .. } = scheduled;
        let due = due.expect("it is delayed").0;
        let is_meant = branch.0.as_deref() == Some("reminded") && due == at.0 + PATIENCE;
        assert!(is_meant, "SEED={}: {branch:?} is due at {due}, scheduled at {at:?}", self.seed);
        let Trigger::Event { path, .. } = trigger else { panic!("SEED={}: {trigger:?} delays", self.seed) };
        let delayed = Delayed { due, invocation: *invocation, branch: branch.clone(), path: path.clone() };
        let place = self.delayed.partition_point(|other| other.due <= due);
        self.delayed.insert(place, delayed);
    }

    /// Returns the delayed invocations that are due. Includes those that no longer match because the document has
    /// changed.
    pub(super) fn ripens(&mut self, at: Timestamp, now: &Value) -> Vec<(InvocationId, Branch)> {
        let ripe = self.delayed.partition_point(|delayed| delayed.due <= at.0);
        let ripe: Vec<Delayed> = self.delayed.drain(..ripe).collect();
        let is_unwanted = |delayed: &&Delayed| now.pointer(&delayed.path).is_none_or(|status| status != "doing");
        self.unwanted.extend(ripe.iter().filter(is_unwanted).map(|delayed| delayed.invocation));
        ripe.into_iter().map(|delayed| (delayed.invocation, delayed.branch)).collect()
    }

    /// Records that a delayed invocation was withdrawn.
    pub(super) fn withdrawn(&mut self, invocation: InvocationId, worker: &str) {
        let unwanted = self.unwanted.pop_front();
        assert_eq!(unwanted, Some(invocation), "SEED={}: it was wanted, or another was not", self.seed);
        *self.scheduled.entry(worker.to_owned()).or_default() -= 1;
    }

    /// Clears the delayed invocations when the board has ended for good.
    pub(super) fn ended(&mut self) {
        self.delayed.clear();
    }

    /// Returns true if the clock will trigger an invocation. `is_queued`: the last one it triggered still waits.
    pub(super) fn will_wake(&self, is_queued: bool) -> bool {
        self.minute.is_some() && !is_queued && !self.is_used_up("planner")
    }

    /// Handles a tick; several missed minutes trigger one invocation.
    pub(super) fn ticked(&mut self, at: Timestamp, is_queued: bool) {
        if self.will_wake(is_queued) && self.minute.is_some_and(|minute| minute <= at.0) {
            self.minute = Some(next_minute(at));
            self.want("minutely");
        }
    }

    /// Counts an invocation against its worker's limit. One that is given up at once does not count.
    pub(super) fn counts(&mut self, branch: &Branch) {
        if !self.is_used_up(&branch.1) {
            *self.scheduled.entry(branch.1.clone()).or_default() += 1;
        }
    }

    pub(super) fn began(&mut self) {
        for rule in self.start.clone() {
            self.want(&rule);
        }
    }

    pub(super) fn signalled(&mut self, name: &str) {
        if name == "more" {
            self.want("more");
            self.want("all-hands");
        }
    }

    /// Triggers a rule, if it exists.
    fn want(&mut self, name: &str) {
        self.want_of(name, |_| true);
    }

    /// Triggers a rule for some of its workers. Returns true if any branch became due.
    fn want_of(&mut self, name: &str, is_meant: impl Fn(&str) -> bool) -> bool {
        let before = self.due.len();
        for (rule, workers) in self.rules.iter().filter(|(rule, _)| rule == name) {
            let meant = workers.iter().filter(|worker| is_meant(worker));
            self.due.extend(meant.map(|worker| (Some(rule.clone()), worker.clone())));
        }
        self.due.len() > before
    }

    fn has(&self, name: &str) -> bool {
        self.rules.iter().any(|(rule, _)| rule == name)
    }

    /// Makes a worker due that a breaker triggers: at once, before all else.
    pub(super) fn wakes(&mut self, worker: String) {
        self.due.push_front((None, worker));
    }

    /// Schedules the rules for the events of a committed patch: events in order, and for each the rules in order.
    pub(super) fn committed(&mut self, patch: &Value, before: &Value, now: &Value) {
        for op in patch.as_array().into_iter().flatten() {
            match op["path"].as_str() {
                Some("/tasks/-") if op["value"]["status"] == "open" => self.want("new-task"),
                Some("/notes/-") => {
                    if self.has("odd") {
                        self.skips.push("odd".to_owned());
                    }
                    if self.has("named") && !self.want_of("named", |worker| op["value"] == worker) {
                        self.skips.push("named".to_owned());
                    }
                }
                // Writing the present value is no event.
                Some(path) if path.ends_with("/status") && before.pointer(path) != now.pointer(path) => {
                    match op["value"].as_str() {
                        Some("done") => self.want("finished"),
                        Some("open") => {
                            self.want("moved");
                            self.want("reopened");
                        }
                        Some("doing") => {
                            self.want("moved");
                            self.want("reminded");
                        }
                        _ => self.want("moved"),
                    }
                }
                _ => {}
            }
        }
    }

    /// Records that an invocation has completed.
    pub(super) fn completed(&mut self, branch: Option<&Branch>) {
        let is_check = branch.is_some_and(|(rule, _)| rule.as_deref() == Some("finished"));
        self.has_checked |= is_check;
        if self.has_checked && !self.has_fired {
            self.want("after-first-check");
        }
    }

    pub(super) fn skipped(&mut self, rule: Option<String>) {
        self.skipped.extend(rule);
    }

    /// Returns true if a worker has used all its invocations.
    fn is_used_up(&self, worker: &str) -> bool {
        self.scheduled.get(worker).copied().unwrap_or(0) >= self.limits[worker]
    }

    /// Checks that a queued invocation was due. One beyond its worker's limit is to be given up at once.
    pub(super) fn queued(&mut self, invocation: InvocationId, branch: &Branch) {
        let (seed, next) = (self.seed, self.due.pop_front());
        assert_eq!(Some(branch), next.as_ref(), "SEED={seed}: something else was scheduled than was due");
        assert_eq!(self.beyond, None, "SEED={seed}: it was scheduled beyond its limit, and not given up");
        self.beyond = self.is_used_up(&branch.1).then_some(invocation);
        self.counts(branch);
        self.has_fired |= branch.0.as_deref() == Some("after-first-check");
    }

    /// Checks that an invocation is given up because its worker has used all of them.
    pub(super) fn ran_out(&mut self, invocation: Option<InvocationId>) {
        let beyond = self.beyond.take();
        assert!(beyond.is_some() && beyond == invocation, "SEED={}: {invocation:?}, not {beyond:?}", self.seed);
    }

    /// Notes that a worker has no invocations left. Returns true if that is new.
    pub(super) fn is_new(&mut self, worker: &str) -> bool {
        self.used_up.insert(worker.to_owned())
    }

    /// Checks that all due invocations were scheduled. An ended board schedules none or only some; a stopped one
    /// schedules all.
    pub(super) fn at_the_end_of_a_step(&mut self, is_over: bool) {
        let missing = self.due.pop_front();
        self.due.clear();
        assert_eq!(self.beyond, None, "SEED={}: it was scheduled beyond its limit, and not given up", self.seed);
        let unwanted = std::mem::take(&mut self.unwanted);
        let (skips, skipped) = (std::mem::take(&mut self.skips), std::mem::take(&mut self.skipped));
        if !is_over {
            assert_eq!(missing, None, "SEED={}: it was not scheduled", self.seed);
            assert!(unwanted.is_empty(), "SEED={}: {unwanted:?} should have been taken back", self.seed);
            assert_eq!(skipped, skips, "SEED={}: other conditions had no truth value", self.seed);
        }
    }
}

const fn next_minute(after: Timestamp) -> i64 {
    (after.0 / MINUTE + 1) * MINUTE
}
