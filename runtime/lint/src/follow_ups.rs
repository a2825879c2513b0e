//! Counts the invocations that follow one for one from those that a board begins with.
//!
//! A worker triggered for each of many places, that writes one place for each, triggers the worker of a rule on that
//! place. Rules with conditions are left out, and each invocation is assumed to write once.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::blueprint::{EventOp, GrantOp, Rule, Run, Trigger};
use patchboard_kernel::board::Board;
use patchboard_kernel::id::{RuleName, WorkerName};
use patchboard_kernel::pattern::{PathSyntax, Pattern};
use patchboard_kernel::record::FORMAT;

pub(super) type InvocationCounts = BTreeMap<(RuleName, WorkerName), u64>;

/// Invocations of a worker caused by another worker's writes.
pub(super) struct FollowUp {
    pub(super) worker: WorkerName,
    pub(super) count: u64,
    pub(super) writer: WorkerName,
    /// Path of the grant that it writes by.
    pub(super) place: String,
}

/// Returns the invocations that follow from those a board begins with, each rule once.
pub(super) fn follow_ups(board: &Board, begun: &InvocationCounts) -> Vec<FollowUp> {
    let rules = &board.blueprint().rules;
    let paths = PathSyntax::for_formats(board.blueprint().blueprint, FORMAT);
    let template = |rule: &Rule| rule.trigger.template().and_then(|path| paths.parse(path).ok());
    let mut left: Vec<(RuleName, WorkerName, u64)> =
        begun.iter().map(|((rule, worker), count)| (rule.clone(), worker.clone(), *count)).collect();
    let (mut found, mut fired) = (Vec::new(), BTreeSet::new());
    while let Some((rule, worker, count)) = left.pop() {
        let waking = rules.iter().find(|other| other.name == rule).and_then(template);
        let (Some(waking), Some(seat)) = (waking, board.plan().workers.get(&worker)) else { continue };
        for grant in &seat.worker.writes {
            let Ok(written) = paths.parse(&grant.path) else { continue };
            if !names_all(&written, &waking) {
                continue;
            }
            for rule in rules.iter().filter(|rule| rule.when.is_none()) {
                let Trigger::Event { op, .. } = &rule.trigger else { continue };
                let place = written.under_any_binding();
                let fires = match op {
                    None => true,
                    // A write to a member that exists replaces it.
                    Some(EventOp::Add) => {
                        grant.ops.contains(&GrantOp::Add) && place.instances(board.state().root(), 1).is_empty()
                    }
                    Some(_) => false,
                };
                let is_of_it = template(rule).is_some_and(|woken| woken.under_any_binding() == place);
                if !fires || !is_of_it || !fired.insert(rule.name.clone()) {
                    continue;
                }
                let workers = match rule.run {
                    Run::Worker(_) | Run::Group(_) => board.blueprint().triggered_workers(&rule.run),
                    Run::Member { .. } => Vec::new(),
                };
                for woken in workers {
                    left.push((rule.name.clone(), woken.clone(), count));
                    let (writer, place) = (worker.clone(), grant.path.clone());
                    found.push(FollowUp { worker: woken.clone(), count, writer, place });
                }
            }
        }
    }
    found
}

/// Returns true if a place has at least one name and all names that a trigger binds: each invocation writes its own.
fn names_all(written: &Pattern, waking: &Pattern) -> bool {
    let names: BTreeSet<&str> = written.names().collect();
    !names.is_empty() && waking.names().all(|name| names.contains(name))
}
