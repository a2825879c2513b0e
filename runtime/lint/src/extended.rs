//! View of a check for extensions: workers with their valid grants, and warnings.
//!
//! Owns what an extension may read of a check ([`crate::extension::Extension::lint`]). Defines no finding.

use super::codes::{FindingCode, severity};
use super::diagnostic::Diagnostic;
use super::{GrantedWrite, Linter};
use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::pattern::Pattern;

/// Check of a blueprint without errors, for an extension.
pub struct LintContext<'l, 'a> {
    pub(super) linter: &'l mut Linter<'a>,
    pub(super) codes: &'static [FindingCode],
}

impl LintContext<'_, '_> {
    /// Returns all workers with their names, in order of name.
    pub fn workers(&self) -> impl Iterator<Item = (&str, &Worker)> {
        self.linter.worker_grants.iter().map(|(name, grants)| (name.as_str(), grants.worker))
    }

    /// Returns the write grants of a worker.
    pub fn writes(&self, worker: &str) -> impl Iterator<Item = &GrantedWrite<'_>> {
        let grants = self.linter.worker_grants.iter().find(|(name, _)| name.as_str() == worker);
        grants.into_iter().flat_map(|(_, grants)| &grants.writes)
    }

    /// Parses a path of the blueprint; `None` if it is invalid.
    pub fn parse(&self, path: &str) -> Option<Pattern> {
        self.linter.paths.parse(path).ok()
    }

    /// Adds a finding about the value at a pointer, with a code of [`crate::extension::Extension::codes`].
    pub fn report(&mut self, code: &'static str, pointer: &str, message: String, help: String) {
        self.push(Diagnostic::at(self.linter.source, code, pointer, message, help));
    }

    /// Adds a finding about the key at a pointer.
    pub fn report_at_key(&mut self, code: &'static str, pointer: &str, message: String, help: String) {
        let source = self.linter.source;
        self.push(Diagnostic::at(source, code, pointer, message, help).at_key(source));
    }

    fn push(&mut self, finding: Diagnostic) {
        self.linter.push(Diagnostic { severity: severity(finding.code, self.codes), ..finding });
    }
}
