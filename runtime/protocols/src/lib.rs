//! Protocols on boards: rooms, negotiations, handoffs, workflows, departments and blackboards.
//!
//! Owns their documents, rules and decisions as pure functions, and the blueprint members that they expand
//! ([`EXTENSIONS`]). Does not know boards, clocks or agents: the roles that play them are in `patchboard-agents`.
//!
//! * [`room`]: votes and the decisions from them.
//! * [`negotiation`]: drafts in rounds, and their acceptance.
//! * [`handoff`]: transfer of work.
//! * [`workflow`]: nodes in dependency order.
//! * [`department`]: manifests of departments.
//! * [`blackboard`]: schemas of the replies of its roles.

pub mod blackboard;
pub mod department;
pub mod handoff;
pub mod negotiation;
mod role;
pub mod room;
pub mod workflow;

use patchboard_lint::extension::Extension;
use patchboard_lint::source::{self, FileLoader, Source};
use patchboard_lint::{Diagnostic, FindingCode, Report};
use serde_json::Value;

pub use role::Role;

/// Extensions of blueprints by all protocols, in the order in which they expand.
pub const EXTENSIONS: &[&dyn Extension] =
    &[&department::DepartmentFolders, &workflow::Workflows, &handoff::Handoffs, &Roles];

/// Names of the roles of all protocols.
struct Roles;

impl Extension for Roles {
    fn roles(&self) -> Vec<&'static str> {
        Role::ALL.iter().map(|role| role.as_str()).collect()
    }
}

/// Returns the codes of all findings, those of lint first.
pub fn codes() -> impl Iterator<Item = &'static FindingCode> {
    patchboard_lint::CODES.iter().chain(EXTENSIONS.iter().flat_map(|extension| extension.codes()))
}

/// Resolves the references of a blueprint, with all protocols.
pub fn resolve(source: Source, files: &mut dyn FileLoader) -> Result<Source, Vec<Diagnostic>> {
    source::resolve(source, files, EXTENSIONS)
}

/// Checks a resolved blueprint, with all protocols.
pub fn check(source: &Source) -> Report {
    patchboard_lint::check(source, EXTENSIONS)
}

/// Checks a resolved blueprint in at most `steps` steps, with all protocols.
pub fn check_at_most(source: &Source, steps: u64) -> Report {
    patchboard_lint::check_at_most(source, EXTENSIONS, steps)
}

/// Checks a blueprint given as a value without text, with all protocols.
pub fn check_value(value: Value) -> Report {
    patchboard_lint::check_value(value, EXTENSIONS)
}

/// Returns true for the value that serde leaves out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
