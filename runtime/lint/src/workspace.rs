//! Workspace files: access of workers, and the reserved member of the document.

use super::Linter;
use crate::source::child;
use patchboard_kernel::blueprint::{AgentKind, FileAccess, Isolation, WorkspaceSpec};
use patchboard_kernel::files::{Access, EXTERNAL, FILES, is_comment_prefix, patterns};
use patchboard_kernel::pattern::{Pattern, PatternToken};
use patchboard_kernel::schema::Location;

impl Linter<'_> {
    pub(super) fn workspace(&self) {
        let blueprint = self.blueprint;
        for (name, worker) in &blueprint.workers {
            let Some(files) = &worker.files else { continue };
            let at = format!("{}/files", child("/workers", name.as_str()));
            if blueprint.workspace.is_none() {
                let help = "Add `workspace: {dir: NAME}`, where NAME is a directory of the operator's configuration.";
                let message = format!("`{name}` has `files`, and the blueprint has no `workspace`");
                self.report_at_key("bad_files", &at, message, help);
            }
            if matches!(worker.agent, AgentKind::Human | AgentKind::Board | AgentKind::Command) {
                let message = format!("`{}` agents do nothing with files", worker.agent);
                self.report_at_key("bad_files", &at, message, "Remove it, or make the agent llm, remote or script.");
            }
            if worker.agent == AgentKind::Remote {
                self.remote_files(&at, name.as_str(), files);
            }
            if let Err(error) = Access::compile(files) {
                let (field, what) = error.split_once(": ").unwrap_or(("", &error));
                let pointer = if field.is_empty() { at } else { format!("{at}/{field}") };
                self.report("bad_files", &pointer, what, "Write patterns like `src/**` or `*.py`.");
            }
            let annotates = blueprint.workspace.as_ref().is_some_and(|workspace| workspace.annotate);
            if annotates && !files.edit.is_empty() && is_comment_prefix(name.as_str()) {
                let message = format!(
                    "comments that begin with `{name}:` are written by anybody, and would all be this worker's"
                );
                self.report_at_key("reserved_name", &child("/workers", name.as_str()), message, "Choose another name.");
            }
        }
        let Some(workspace) = &blueprint.workspace else { return };
        if let Err(error) = patterns(&workspace.exclude) {
            self.report("bad_files", "/workspace/exclude", error, "Write patterns like `dist/**` or `**/*.lock`.");
        }
        self.kept_for_files();
    }

    /// Checks that a `remote` agent only edits, in the workspace directory itself.
    fn remote_files(&self, at: &str, name: &str, files: &FileAccess) {
        if !files.run.is_empty() {
            let message = "`remote` agents run no programs here, and have no `diff`, `commit` and `merge`";
            let help = "Remove it, or make the agent llm or script.";
            self.report_at_key("bad_files", &format!("{at}/run"), message, help);
        }
        let has_trees = |workspace: &WorkspaceSpec| workspace.isolation == Isolation::Worktree;
        if !files.edit.is_empty() && self.blueprint.workspace.as_ref().is_some_and(has_trees) {
            let message = format!(
                "`{name}` has no working tree: as a `remote` agent it edits the directory itself, and nothing is checked"
            );
            let help = "Make the agent llm or script, or choose another `isolation` for agents from outside.";
            self.report_at_key("no_worktree", &format!("{at}/edit"), message, help);
        }
    }

    /// Checks that the document leaves the reserved member for files to the kernel.
    fn kept_for_files(&self) {
        let blueprint = self.blueprint;
        if blueprint.state.initial.get(FILES).is_some() {
            let message = format!("`{FILES}` is kept for what is known of the files of the workspace");
            self.report_at_key("reserved_name", &format!("/state/initial/{FILES}"), message, "Leave it out here.");
        }
        if blueprint.workers.contains_key(EXTERNAL) {
            let message = format!("`{EXTERNAL}` is the author of changes from outside");
            self.report_at_key("reserved_name", &format!("/workers/{EXTERNAL}"), message, "Choose another name.");
        }
        let place = Pattern::parse(&format!("/{FILES}"));
        let allowed = self.schema.as_ref().and_then(|schema| Some(schema.locate(place.as_ref().ok()?)));
        if matches!(allowed, Some(Location::Illegal { .. })) {
            let message = format!("the state schema does not allow `/{FILES}`, where the files of the workspace are");
            let help = format!("Add `{FILES}: true` to its `properties`.");
            self.report("unknown_path", "/state/schema", message, help);
        }
        let Ok(place) = place else { return };
        let reaches = |path: &Pattern| path.collides(&place) || path.lies_above(&place) || place.lies_above(path);
        let grants = self.worker_grants.values().flat_map(|seat| &seat.writes);
        for write in grants.filter(|write| reaches(&write.pattern)) {
            let message = format!("`{}` reaches `/{FILES}`, which only edits of files change", write.grant.path);
            let help = "Give the worker `files: {edit: […]}` instead.";
            self.report("reserved_name", &format!("{}/path", write.pointer), message, help);
        }
    }

    /// Returns true if a place exists without any worker: the request, and the kernel's data about files.
    pub(super) fn is_given(&self, place: &Pattern) -> bool {
        self.is_of_files(place) || begins_with(place, "request")
    }

    /// Returns true if a place lies in the kernel's data about files, which changes with every edit.
    pub(super) fn is_of_files(&self, place: &Pattern) -> bool {
        self.blueprint.workspace.is_some() && begins_with(place, FILES)
    }
}

fn begins_with(place: &Pattern, first: &str) -> bool {
    matches!(place.tokens().first(), Some(PatternToken::Literal(name)) if name == first)
}
