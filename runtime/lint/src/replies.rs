//! Replies of a worker: format, size and other reply options, and the `with` arguments of its agent.

use super::Linter;
use patchboard_kernel::blueprint::{AgentKind, Intent, Worker};
use patchboard_kernel::json;

/// Maximum bytes of `with`, as compact JSON.
const WITH_BYTES_MAX: u64 = 16 * 1024;

impl Linter<'_> {
    /// Checks `pass`, `format`, `with` and `patch` of a worker.
    pub(super) fn replies(&self, worker: &Worker, at: &str) {
        let agent = &worker.agent;
        let wrong = |field: &str, message: String, help: &str| {
            self.report("bad_value", &format!("{at}/{field}"), message, help);
        };
        if worker.pass && *agent == AgentKind::Human {
            wrong("pass", "a person is asked, and passes nothing".to_owned(), "Remove it.");
        }
        if let Some(with) = &worker.with {
            if !matches!(agent, AgentKind::Board | AgentKind::Builtin(_)) {
                let message = format!("`{agent}` agents have no `with`");
                wrong("with", message, "Remove it, or make the agent board or builtin.");
            }
            if json::size(&with.clone().into()) > WITH_BYTES_MAX {
                let message = format!("`with` has more than {WITH_BYTES_MAX} bytes");
                wrong("with", message, "Put what is large into the document.");
            }
        }
        if let Some(format) = self.reply_instructions(worker) {
            if matches!(agent, AgentKind::Human | AgentKind::Board | AgentKind::Builtin(_)) {
                let message = format!("`{agent}` agents do not reply in words");
                wrong("format", message, "Remove it, or make the agent llm, command, script or remote.");
            }
            if let Some(sentinel) = format.sentinel.filter(|_| !worker.pass) {
                let message = format!("a worker that may say `{sentinel}` passes");
                wrong("format", message, "Add `pass: true`.");
            }
            if worker.clarify.is_some() {
                let message = "a worker whose replies have a `format` cannot ask a person".to_owned();
                wrong("clarify", message, "Remove one of the two.");
            }
            if worker.patch.intent == Intent::Required {
                let message = "a reply in another form than a patch says no intent".to_owned();
                wrong("patch/intent", message, "Make it optional, or remove `format`.");
            }
        }
        if worker.patch.intent == Intent::Required && matches!(agent, AgentKind::Board | AgentKind::Builtin(_)) {
            let message = format!("`{agent}` agents say no intent, so every proposal would be refused");
            wrong("patch/intent", message, "Make it optional.");
        }
        let outputs = worker.board.as_ref().map_or(0, |inner| inner.output.len());
        if outputs > usize::try_from(worker.patch.max_ops).unwrap_or(usize::MAX) {
            let message =
                format!("it writes {outputs} places in one patch, and `patch.max_ops` is {}", worker.patch.max_ops);
            wrong("board/output", message, "Raise `patch.max_ops` of the worker, or write fewer places.");
        }
    }
}
