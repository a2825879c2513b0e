//! What a commit or a signal schedules, and in what order calls are made.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use patchboard_kernel::board::Step;
use patchboard_kernel::id::InvocationId;
use patchboard_kernel::record::Body;
use serde_json::Value;

use super::Branch;

/// What was scheduled, by rule.
type Wanted = Vec<(String, String)>;

pub(super) struct Schedule {
    seed: u64,
    /// What is due in the present step: rule and worker, in order.
    due: Wanted,
    /// Conditions without a truth value in the present step.
    skips: Vec<String>,
    skipped: Vec<String>,
    /// What of the present step's records were of a person's making or of a rule that waits.
    has_checked: bool,
    /// Workers whose invocations or tokens have run out: nothing more need be scheduled for them.
    exhausted: BTreeSet<String>,
    /// Not called yet, by branch.
    waiting: BTreeMap<Branch, VecDeque<InvocationId>>,
    called: BTreeSet<InvocationId>,
}

impl Schedule {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            seed,
            due: Vec::new(),
            skips: Vec::new(),
            skipped: Vec::new(),
            has_checked: false,
            exhausted: BTreeSet::new(),
            waiting: BTreeMap::new(),
            called: BTreeSet::new(),
        }
    }

    pub(super) fn began(&mut self) {
        self.want("begin", "planner");
    }

    pub(super) fn signalled(&mut self, name: &str) {
        if name == "more" {
            self.want("more", "planner");
        }
    }

    fn want(&mut self, rule: &str, worker: &str) {
        self.due.push((rule.to_owned(), worker.to_owned()));
    }

    /// A patch was committed; `is_whole`: nothing more was asked for.
    pub(super) fn committed(&mut self, patch: &Value, is_whole: bool, branch: Option<&Branch>) {
        // Which places there were follows from what the patch did to them; the comparison knows the documents.
        for op in patch.as_array().into_iter().flatten() {
            match op["path"].as_str() {
                Some("/tasks/-") if op["value"]["status"] == "open" => self.want("new-task", "doer"),
                Some("/notes/-") => self.skips.push("odd".to_owned()),
                Some(path) if path.ends_with("/status") && op["op"] == "replace" => {
                    let is_done = op["value"] == "done";
                    let (rule, worker) = if is_done { ("finished", "checker") } else { ("moved", "doer") };
                    self.due.push((format!("{rule}@{path}"), worker.to_owned()));
                }
                _ => {}
            }
        }
        if is_whole {
            self.completed(branch);
        }
    }

    /// An invocation has come to a good end.
    pub(super) fn completed(&mut self, branch: Option<&Branch>) {
        let is_check = branch.is_some_and(|(rule, _)| rule.as_deref() == Some("finished"));
        if is_check && !std::mem::replace(&mut self.has_checked, true) {
            self.want("after-first-check", "planner");
        }
    }

    pub(super) fn skipped(&mut self, rule: Option<String>) {
        self.skipped.extend(rule);
    }

    /// A budget ran short; the invocation that it was for, if there was one, is over.
    pub(super) fn ran_out(&mut self, worker: &str, invocation: Option<InvocationId>) {
        self.exhausted.insert(worker.to_owned());
        for waiting in self.waiting.values_mut() {
            waiting.retain(|one| Some(*one) != invocation);
        }
    }

    pub(super) fn queued(&mut self, invocation: InvocationId, branch: &Branch) {
        self.waiting.entry(branch.clone()).or_default().push_back(invocation);
    }

    /// An attempt is made: the first ones of a branch in the order in which they were scheduled.
    pub(super) fn called(&mut self, invocation: InvocationId, branch: &Branch) {
        if !self.called.insert(invocation) {
            return;
        }
        let waiting = self.waiting.entry(branch.clone()).or_default();
        let seed = self.seed;
        assert!(waiting.contains(&invocation), "SEED={seed}: {invocation:?} was called and never scheduled");
        assert_eq!(waiting.pop_front(), Some(invocation), "SEED={seed}: {invocation:?} went before its turn");
    }

    /// Compares what was scheduled in a step with what was due.
    pub(super) fn compare(&mut self, step: &Step, before: &Value, now: &Value, is_over: bool) {
        let due = std::mem::take(&mut self.due);
        let (skips, skipped) = (std::mem::take(&mut self.skips), std::mem::take(&mut self.skipped));
        // Writing what is there already is no event.
        let has_changed = |path: &str| before.pointer(path) != now.pointer(path);
        let due = due.into_iter().filter_map(|(rule, worker)| match rule.split_once('@') {
            Some((rule, path)) => has_changed(path).then(|| (rule.to_owned(), worker)),
            None => Some((rule, worker)),
        });
        let mut due: Wanted = due.collect();
        let mut found: Wanted = Vec::new();
        for record in &step.records {
            if let Ok(Body::Scheduled(scheduled)) = record.body()
                && let (Some(rule), None) = (&scheduled.rule, scheduled.follows)
            {
                found.push((rule.to_string(), scheduled.worker.to_string()));
            }
        }
        if is_over {
            // Who has ended schedules no more, or not all.
            return;
        }
        // Of what somebody has no budget for any more, as much is scheduled as it had.
        let mut left = found.clone();
        due.retain(|one| match left.iter().position(|other| other == one) {
            Some(at) => {
                left.swap_remove(at);
                true
            }
            None => !self.exhausted.contains(&one.1),
        });
        due.sort();
        found.sort();
        assert_eq!(found, due, "SEED={}: something else was scheduled than was due", self.seed);
        assert_eq!(skipped, skips, "SEED={}: other conditions had no truth value", self.seed);
    }
}
