//! Seam by which other crates extend blueprints: members that they expand, roles and findings that they add.
//!
//! Owns the interface only. Lint knows no protocol; each is an [`Extension`] that the caller passes to
//! [`crate::source::resolve`] and [`crate::check`].

use crate::codes::FindingCode;
use crate::diagnostic::Diagnostic;
use crate::extended::LintContext;
use crate::source::{FileLoader, Source};
use patchboard_kernel::view::ReplyFormats;

/// Result of an expansion; an error has all findings about the member.
pub type Expanded = Result<(), Vec<Diagnostic>>;

/// Extension of blueprints.
pub trait Extension: Sync {
    /// Replaces the extension's member of a blueprint by workers, rules and boards. `file` is the file of the source,
    /// if another names it.
    fn expand(&self, _source: &mut Source, _files: &mut dyn FileLoader, _file: Option<&String>) -> Expanded {
        Ok(())
    }

    /// Returns the coordination roles, `builtin:NAME`, that workers may have.
    fn roles(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Returns its reply formats, if it has any.
    fn reply_formats(&self) -> Option<ReplyFormats> {
        None
    }

    /// Returns the codes of its findings.
    fn codes(&self) -> &'static [FindingCode] {
        &[]
    }

    /// Adds warnings about a resolved blueprint without errors.
    fn lint(&self, _context: &mut LintContext<'_, '_>) {}
}
