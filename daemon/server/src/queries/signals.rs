//! Signals: the rules that they trigger, and reports.

use std::collections::BTreeSet;

use patchboard_kernel::blueprint::{Blueprint, Trigger};
use patchboard_kernel::id::{BoardId, RuleName};
use serde::Serialize;
use utoipa::ToSchema;

use super::parts::HeadInfo;

/// Rules that a signal's name matches.
pub struct SignalTargets {
    /// Rules that the name triggers.
    pub rules: Vec<RuleName>,
    /// Names of all signals and manual rules that rules handle.
    pub names: BTreeSet<String>,
}

impl SignalTargets {
    /// Finds the rules of a blueprint that a name triggers.
    pub fn find(blueprint: &Blueprint, name: &str) -> Self {
        let waits = blueprint.rules.iter().filter_map(|rule| match &rule.trigger {
            Trigger::Signal(signal) => Some((signal.as_str(), &rule.name)),
            Trigger::Manual => Some((rule.name.as_str(), &rule.name)),
            _ => None,
        });
        let rules = waits.clone().filter(|(waited, _)| *waited == name).map(|(_, rule)| rule.clone()).collect();
        Self { rules, names: waits.map(|(waited, _)| waited.to_owned()).collect() }
    }
}

/// Report of a recorded signal.
#[derive(Serialize, ToSchema)]
pub struct SignalReport {
    /// Board id.
    #[schema(value_type = String)]
    board: BoardId,
    /// Name of the signal.
    signal: String,
    /// Last record of the board.
    head: HeadInfo,
    /// Rules that the name triggers.
    #[schema(value_type = Vec<String>)]
    wakes: Vec<RuleName>,
    /// Names that would trigger rules; absent if this one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<BTreeSet<String>>,
}

impl SignalReport {
    /// Returns the report of a signal, with the last record of its board.
    pub fn new(board: &BoardId, name: &str, head: HeadInfo, targets: SignalTargets) -> Self {
        let SignalTargets { rules, names } = targets;
        let names = rules.is_empty().then_some(names);
        Self { board: board.clone(), signal: name.to_owned(), head, wakes: rules, names }
    }
}
