//! Protocols on boards: rooms, negotiations, handoffs, workflows, departments and blackboards.
//!
//! Owns their documents, rules and decisions as pure functions, the blueprint members that they expand
//! ([`EXTENSIONS`]), and the reply formats of plans ([`PLANS`]). Does not know boards, clocks or agents: the roles that
//! play them are in `patchboard-agents`.
//!
//! * [`room`]: votes and the decisions from them.
//! * [`negotiation`]: drafts in rounds, and their acceptance.
//! * [`handoff`]: transfer of work.
//! * [`workflow`]: nodes in dependency order.
//! * [`department`]: manifests of departments.
//! * [`blackboard`]: formats, instructions and schemas of the replies of its roles.

pub mod blackboard;
pub mod department;
pub mod handoff;
pub mod negotiation;
mod role;
pub mod room;
pub mod workflow;

use patchboard_kernel::plan::UncachedPlans;
use patchboard_kernel::view::ReplyFormats;
use patchboard_lint::extension::Extension;
use patchboard_lint::source::{self, FileLoader, Source};
use patchboard_lint::{Diagnostic, FindingCode, Report};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use role::Role;

/// Extensions of blueprints by all protocols, in the order in which they expand.
pub const EXTENSIONS: &[&dyn Extension] =
    &[&department::DepartmentFolders, &workflow::Workflows, &handoff::Handoffs, &Roles];

/// Plans of blueprints with all protocols.
pub const PLANS: UncachedPlans = UncachedPlans(blackboard::reply_instructions);

/// Names of the roles of all protocols, and the reply formats.
struct Roles;

impl Extension for Roles {
    fn roles(&self) -> Vec<&'static str> {
        Role::ALL.iter().map(|role| role.as_str()).collect()
    }

    fn reply_formats(&self) -> Option<ReplyFormats> {
        Some(PLANS.0)
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

/// Returns the media type of a content type, without parameters such as a charset, in lower case.
fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns true for `application/json` and types that end in `+json`.
fn is_json_type(content_type: &str) -> bool {
    let media_type = media_type(content_type);
    media_type == "application/json" || media_type.ends_with("+json")
}

/// Error of an operation, with a stable code.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ProtocolError<C> {
    /// Code for programs.
    pub code: C,
    /// Message for people and models.
    pub message: String,
}

impl<C> ProtocolError<C> {
    fn new(code: C, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
