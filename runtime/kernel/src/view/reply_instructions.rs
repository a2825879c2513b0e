//! Texts about a reply format that is no patch, as data. A crate above the kernel owns the formats.

use crate::blueprint::Worker;
use crate::pattern::Pattern;

/// Returns the texts of the reply format of this name for a worker. The error is a message about an unknown name.
pub type ReplyFormats = fn(&str, &Worker) -> Result<ReplyInstructions, String>;

/// Texts for a worker whose replies are not patches; the agent that serves the worker converts them into one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplyInstructions {
    /// Constant part of its prompts.
    pub instructions: String,
    /// Example of a reply, for the rejection of one that cannot be read.
    pub example: &'static str,
    /// Last line of its views.
    pub reminder: String,
    /// Other last lines, by the place of the trigger; the first match applies.
    pub reminders_at: Vec<(Pattern, String)>,
    /// Reply of a worker that has nothing to contribute; `None` for formats that always contribute.
    pub sentinel: Option<&'static str>,
    /// True if its views describe the write grants, although its agent builds the patches.
    pub shows_grants: bool,
}
