//! A worker's compiled contract, for all its invocations and for one invocation.

use std::collections::BTreeSet;
use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::Value;

use super::{CompiledTrigger, Plan, Rule, Step};
use crate::ablation::Interface;
use crate::bindings::{BindingSource, Bindings};
use crate::blueprint::Worker;
use crate::breaker::Branch;
use crate::contract::Contract;
use crate::expr::Variable;
use crate::files::Access;
use crate::id::WorkerName;
use crate::pattern::{Pattern, PatternToken};
use crate::record::{self, Trigger};
use crate::view::{FixedParts, compiler_version};

/// A worker and its compiled contract: for all its invocations, with unbound names, or for one, with bound names.
pub struct WorkerPlan {
    /// The worker's name.
    pub name: WorkerName,
    /// The worker, adjusted to the board's mode.
    pub worker: Arc<Worker>,
    /// Read and write grants, as the worker's views name them.
    pub contract: Contract,
    /// Names that an invocation binds.
    pub(super) names: Arc<BTreeSet<String>>,
    /// Contract for judging writes in modes without write contracts: it allows nearly everything.
    pub(crate) unrestricted: Option<Arc<Contract>>,
    /// Format of calls and replies.
    pub interface: Interface,
    /// Access to files, if the worker has any.
    pub files: Option<Arc<Access>>,
    /// Steps of the pipeline that judge its replies.
    pub(crate) steps: Arc<[Step]>,
    /// True if the worker's views show rejections.
    pub(crate) shows_rejections: bool,
    /// Journal format of the board's start.
    pub(crate) journal_format: u32,
    /// The part that all its views have in common. Their size is at least [`FixedParts::minimum`], also when reduced.
    pub fixed: Arc<FixedParts>,
}

impl WorkerPlan {
    /// Returns the names that an invocation has to bind, in the worker's paths and conditions.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// Returns the number of the compiler of its views.
    pub const fn compiler(&self) -> u32 {
        compiler_version(self.journal_format)
    }

    /// Returns true if the worker may request parts of places (since journal format 13).
    pub const fn has_ranges(&self) -> bool {
        self.journal_format >= record::SINCE_RANGES
    }

    /// Returns the bindings.
    pub const fn bound(&self) -> &Bindings {
        self.contract.bound()
    }

    /// Returns the seat of an invocation with those of the bindings that it uses.
    pub(crate) fn bind(self: &Arc<Self>, bindings: &Bindings) -> Arc<Self> {
        let bound = bindings.restricted_to(&self.names);
        if bound.is_empty() {
            Arc::clone(self)
        } else {
            Arc::new(self.with_contracts(|contract| contract.bind(bound.clone())))
        }
    }

    /// Returns the combined seat of all invocations: it may read a place if some binding allows it.
    pub(crate) fn under_any_binding(self: &Arc<Self>) -> Arc<Self> {
        match self.names.is_empty() {
            true => Arc::clone(self),
            false => Arc::new(self.with_contracts(Contract::under_any_binding)),
        }
    }

    fn with_contracts(&self, of: impl Fn(&Contract) -> Contract) -> Self {
        let contract = of(&self.contract);
        Self {
            name: self.name.clone(),
            worker: Arc::clone(&self.worker),
            names: Arc::clone(&self.names),
            unrestricted: self.unrestricted.as_deref().map(|open| Arc::new(of(open))),
            interface: self.interface,
            files: self.files.clone(),
            steps: Arc::clone(&self.steps),
            shows_rejections: self.shows_rejections,
            journal_format: self.journal_format,
            fixed: match self.interface {
                Interface::Patch => Arc::clone(&self.fixed),
                // Replies in other formats have no names.
                _ => Arc::new(self.fixed.with_tokens(&self.worker, contract.bound())),
            },
            contract,
        }
    }
}

impl Rule {
    /// Returns the bindings of a trigger. `value` is the payload of the signal, if a signal was the trigger.
    pub(crate) fn bindings(&self, trigger: &Trigger, value: Option<&Value>) -> Bindings {
        let of_path = |path: &str, pattern: &Pattern| {
            let captures = pattern.captures_at(&PointerBuf::parse(path).ok()?)?;
            Some(self.binds.bind_captures(&captures))
        };
        let bound = match (trigger, &self.trigger, value) {
            (
                Trigger::Event { path, .. },
                CompiledTrigger::Event { path: pattern, .. } | CompiledTrigger::Each(pattern),
                _,
            ) => of_path(path, pattern),
            (Trigger::Signal { .. }, _, Some(value)) => self.binds.bind_signal(&Variable::from(value)).ok(),
            _ => None,
        };
        bound.unwrap_or_default()
    }

    /// Returns the bound place: that of the event, up to the last token that a name is bound to.
    fn element(&self, trigger: &Trigger) -> Option<PointerBuf> {
        let (Trigger::Event { path, .. }, BindingSource::Captures(names)) = (trigger, &self.binds) else { return None };
        let (CompiledTrigger::Event { path: pattern, .. } | CompiledTrigger::Each(pattern)) = &self.trigger else {
            return None;
        };
        let mut names = names.iter();
        let is_fixed = |token: &&PatternToken| !matches!(token, PatternToken::Deep);
        let named = pattern.tokens().iter().take_while(is_fixed).map(|token| match token {
            PatternToken::Any | PatternToken::Bound(_) => names.next().is_some_and(Option::is_some),
            PatternToken::Deep | PatternToken::Literal(_) | PatternToken::Append => false,
        });
        let named: Vec<bool> = named.collect();
        let last = named.iter().rposition(|is_named| *is_named)?;
        let place = PointerBuf::parse(path.as_str()).ok()?;
        Some(PointerBuf::from_tokens(place.tokens().take(last + 1)))
    }
}

impl Plan {
    /// Returns the place that an invocation's trigger binds, if it is one of a document and the worker uses the names.
    pub(crate) fn element(&self, branch: &Branch, trigger: &Trigger) -> Option<PointerBuf> {
        let rule = branch.rule.as_ref().and_then(|name| self.rules.iter().find(|rule| rule.name == *name))?;
        let names = &self.workers.get(&branch.worker)?.names;
        let is_bound = rule.binds.names().iter().any(|name| names.contains(*name));
        is_bound.then(|| rule.element(trigger)).flatten()
    }

    /// Returns the bindings of an invocation. `value` is the payload of the signal, if a signal was the trigger.
    pub(crate) fn bindings(&self, branch: &Branch, trigger: &Trigger, value: Option<&Value>) -> Bindings {
        let rule = branch.rule.as_ref().and_then(|name| self.rules.iter().find(|rule| rule.name == *name));
        rule.map(|rule| rule.bindings(trigger, value)).unwrap_or_default()
    }
}
