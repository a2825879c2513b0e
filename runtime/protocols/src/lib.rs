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
pub mod room;
pub mod workflow;

use patchboard_kernel::extension::Extension;
use patchboard_kernel::lint::{self, Diagnostic, Report};
use patchboard_kernel::source::{self, FileLoader, Source};
use serde_json::Value;

/// Extensions of blueprints by all protocols, in the order in which they expand.
pub const EXTENSIONS: &[&dyn Extension] = &[&department::DepartmentFolders, &workflow::Workflows, &handoff::Handoffs];

/// Resolves the references of a blueprint, with all protocols.
///
/// # Errors
/// As [`source::resolve`].
pub fn resolve(source: Source, files: &mut dyn FileLoader) -> Result<Source, Vec<Diagnostic>> {
    source::resolve(source, files, EXTENSIONS)
}

/// Checks a resolved blueprint, with all protocols.
pub fn check(source: &Source) -> Report {
    lint::check(source, EXTENSIONS)
}

/// Checks a resolved blueprint in at most `steps` steps, with all protocols.
pub fn check_at_most(source: &Source, steps: u64) -> Report {
    lint::check_at_most(source, EXTENSIONS, steps)
}

/// Checks a blueprint given as a value without text, with all protocols.
pub fn check_value(value: Value) -> Report {
    lint::check_value(value, EXTENSIONS)
}
