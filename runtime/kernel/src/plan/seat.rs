//! A worker as a board has it: the contract of all its invocations, and that of one.

use std::collections::BTreeSet;
use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::Value;

use super::{Plan, Rule, WakesOn, decoded};
use crate::bindings::{Bindings, Binds};
use crate::blueprint::Worker;
use crate::breaker::Branch;
use crate::contract::Contract;
use crate::expr::Variable;
use crate::files::Access;
use crate::id::WorkerName;
use crate::mode::Interface;
use crate::pattern::{Pattern, PatternToken};
use crate::record::{self, Trigger};
use crate::scheduler::Queued;
use crate::view::{Fixed, compiler_of};

/// A worker and its compiled contract: of all its invocations, with names that are not bound, or of one, with what they stand
/// for.
pub struct Seat {
    /// Its name.
    pub name: WorkerName,
    /// As the blueprint and the mode of the board have it.
    pub worker: Arc<Worker>,
    /// Its read and write grants, as its views name them.
    pub contract: Contract,
    /// Names that an invocation binds.
    pub(super) names: Arc<BTreeSet<String>>,
    /// Contract that judges its writes in modes without write contracts: it allows nearly all.
    pub(crate) open: Option<Arc<Contract>>,
    /// Form of its calls and replies.
    pub interface: Interface,
    /// Its access to files, if it has any.
    pub files: Option<Arc<Access>>,
    /// True if its views show refusals.
    pub(crate) is_told: bool,
    /// The format of the journal that the board began with.
    pub(crate) journal_format: u32,
    /// The part that all its views have in common; their size is at least [`Fixed::minimum`], also when reduced.
    pub fixed: Arc<Fixed>,
}

impl Seat {
    /// The names that an invocation has to bind, in its paths and in what conditions look at.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// Returns the number of the compiler of its views.
    pub const fn compiler(&self) -> u32 {
        compiler_of(self.journal_format)
    }

    /// Returns true if it may ask to be shown parts of places (in journals since format 13).
    pub const fn has_ranges(&self) -> bool {
        self.journal_format >= record::RANGES
    }

    /// Its bindings.
    pub const fn bound(&self) -> &Bindings {
        self.contract.bound()
    }

    /// The seat of an invocation with these bindings, of which it keeps those that it uses.
    pub(crate) fn bind(self: &Arc<Self>, bindings: &Bindings) -> Arc<Self> {
        let bound = bindings.only(&self.names);
        if bound.is_empty() {
            Arc::clone(self)
        } else {
            Arc::new(self.with_contracts(|contract| contract.bind(bound.clone())))
        }
    }

    /// The seat of all invocations together: it reads what one of them may read, under some binding.
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
            open: self.open.as_deref().map(|open| Arc::new(of(open))),
            interface: self.interface,
            files: self.files.clone(),
            is_told: self.is_told,
            journal_format: self.journal_format,
            fixed: match self.interface {
                Interface::Patch => Arc::clone(&self.fixed),
                // Replies that are no patches have no names.
                _ => Arc::new(self.fixed.with_tokens(contract.bound())),
            },
            contract,
        }
    }
}

impl Rule {
    /// Returns what it binds. `value` is the value of the signal, if one woke it.
    pub(crate) fn bindings(&self, trigger: &Trigger, value: Option<&Value>) -> Bindings {
        let of_path = |path: &str, pattern: &Pattern| {
            let decoded = decoded(&PointerBuf::parse(path).ok()?);
            let tokens: Vec<&str> = decoded.iter().map(String::as_str).collect();
            Some(self.binds.of_captures(&pattern.captures(&tokens)?))
        };
        let bound = match (trigger, &self.wakes_on, value) {
            (Trigger::Event { path, .. }, WakesOn::Event { path: pattern, .. } | WakesOn::Each(pattern), _) => {
                of_path(path, pattern)
            }
            (Trigger::Signal { .. }, _, Some(value)) => self.binds.of_value(&Variable::from(value)).ok(),
            _ => None,
        };
        bound.unwrap_or_default()
    }

    /// Returns the place that is bound: that of the event, up to the last token that a name stands for.
    fn element(&self, trigger: &Trigger) -> Option<PointerBuf> {
        let (Trigger::Event { path, .. }, Binds::Captures(names)) = (trigger, &self.binds) else { return None };
        let (WakesOn::Event { path: pattern, .. } | WakesOn::Each(pattern)) = &self.wakes_on else { return None };
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
        let names = &self.seats.get(&branch.worker)?.names;
        let is_bound = rule.binds.names().iter().any(|name| names.contains(*name));
        is_bound.then(|| rule.element(trigger)).flatten()
    }

    /// Returns the bindings of an invocation. `value` is the value of the signal, if one woke it.
    pub(crate) fn bindings(&self, branch: &Branch, trigger: &Trigger, value: Option<&Value>) -> Bindings {
        let rule = branch.rule.as_ref().and_then(|name| self.rules.iter().find(|rule| rule.name == *name));
        rule.map(|rule| rule.bindings(trigger, value)).unwrap_or_default()
    }

    /// Returns what an invocation's trigger binds of the names that its worker uses.
    pub(crate) fn bound_of(&self, queued: &Queued) -> Bindings {
        match self.seats.get(&queued.branch.worker).filter(|seat| !seat.names.is_empty()) {
            Some(seat) => self.bindings(&queued.branch, &queued.trigger, queued.value.as_deref()).only(&seat.names),
            None => Bindings::default(),
        }
    }

    /// The seat of an invocation; none if there is no such worker.
    pub(crate) fn seat_of(&self, queued: &Queued) -> Option<Arc<Seat>> {
        let seat = self.seats.get(&queued.branch.worker)?;
        Some(match seat.names.is_empty() {
            true => Arc::clone(seat),
            false => seat.bind(&self.bindings(&queued.branch, &queued.trigger, queued.value.as_deref())),
        })
    }
}
