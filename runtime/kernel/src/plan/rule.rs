//! Compiled rules and invariants.

use std::collections::BTreeSet;

use jsonptr::PointerBuf;

use super::QuiescenceWait;
use crate::bindings::BindingSource;
use crate::blueprint::{EventOp, Priority};
use crate::cron::Cron;
use crate::expr::Expr;
use crate::id::{GroupName, RuleName, WorkerName};
use crate::pattern::Pattern;

/// A compiled rule.
pub struct Rule {
    /// Name of the rule.
    pub name: RuleName,
    /// All workers that it may trigger, in order.
    pub workers: Vec<WorkerName>,
    /// Source of the one worker to trigger; `None` for all workers.
    pub selector: Option<MemberSelector>,
    /// Trigger of the rule.
    pub trigger: CompiledTrigger,
    /// Names that it binds for the triggered workers.
    pub binds: BindingSource,
    /// Condition of the rule.
    pub when: Option<Expr>,
    /// Place of its invocations in the queue.
    pub priority: Priority,
    /// Delay before the invocation is queued, if any.
    pub delay: Option<Delay>,
}

/// Delay of a compiled rule.
pub struct Delay {
    /// Length of the delay.
    pub length: DelayMs,
    /// Workers with waits for a model's provider that do not count.
    pub except_waits_of: BTreeSet<WorkerName>,
}

/// Length of a delay.
pub enum DelayMs {
    /// Fixed number of milliseconds.
    For(u64),
    /// Pointer to the milliseconds in the value of the event or signal.
    At(PointerBuf),
}

/// Source of the worker that a compiled rule triggers.
pub struct MemberSelector {
    /// Group to which the named worker must belong.
    pub group: GroupName,
    /// Pointer to the name in the value of the event or signal.
    pub at: PointerBuf,
}

/// Trigger of a compiled rule.
pub enum CompiledTrigger {
    /// The board's creation.
    Start,
    /// The board's creation, once for each place of the initial document.
    Each(Pattern),
    /// A signal of this name; a manual rule is triggered by its own name.
    Signal(String),
    /// A committed change.
    Event {
        /// Kind of change; `None` for any.
        op: Option<EventOp>,
        /// Changed places.
        path: Pattern,
    },
    /// All of these rules have completed an invocation.
    After(Vec<RuleName>),
    /// Other rules at rest.
    Quiescence(QuiescenceWait),
    /// Times of this schedule.
    Every(Box<Cron>),
}

/// A compiled invariant.
pub struct Invariant {
    /// Name of the invariant.
    pub name: String,
    /// Instances for which it is evaluated, as `self`; `None` to evaluate it once.
    pub each: Option<Pattern>,
    /// Condition that must hold.
    pub expr: Expr,
    /// Advice to a worker with a patch that violates it.
    pub message: Option<String>,
}
