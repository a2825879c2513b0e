//! Nested boards: checks that their blueprints are valid, and that both sides declare every value that crosses the
//! border.

use std::collections::BTreeSet;

use jsonptr::PointerBuf;
use serde_json::Value;

use super::schema_keywords::{required, types_of};
use super::undeclared::declares;
use super::{Linter, suggest};
use crate::source::{BOARD_DEPTH_MAX, child};
use patchboard_kernel::blueprint::{AgentKind, Blueprint, GrantOp, NestedBoardSpec};
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::pattern::{PathSyntax, Pattern};
use patchboard_kernel::schema::{Location, Schema};

impl Linter<'_> {
    /// Checks the seats of `board` agents, and the limits on nested blueprints. A separate check covers the inside of
    /// each.
    pub(super) fn inner(&self) {
        let blueprint = self.blueprint;
        for (name, inner) in &blueprint.boards {
            let at = child("/boards", name);
            if nesting_depth(inner) >= BOARD_DEPTH_MAX {
                let message = format!("boards are nested more than {BOARD_DEPTH_MAX} deep");
                self.report_at_key("bad_board", &at, message, "Let fewer boards make boards of their own.");
            }
            if inner.workspace.is_some() {
                let help = "Let the outer board's workers do what has to do with files.";
                let message = "a board inside a board has no files";
                self.report_at_key("bad_board", &format!("{at}/workspace"), message, help);
            }
            if inner.done.is_none() {
                let message = format!("`{name}` is never done, so nothing can come out of it");
                self.report_at_key("bad_board", &at, message, "Add `done: {when: …}`.");
            }
            if !blueprint.workers.values().any(|worker| worker.board.as_ref().is_some_and(|used| used.of == *name)) {
                let message = format!("no worker is the board `{name}`");
                let help = format!("Add a worker with `agent: board` and `board: {{of: {name}, …}}`, or remove it.");
                self.report_at_key("unused_board", &at, message, help);
            }
        }
        for (name, worker) in &blueprint.workers {
            let at = child("/workers", name.as_str());
            match (&worker.agent, &worker.board) {
                (AgentKind::Board, Some(inner)) => self.mappings(name, inner, &format!("{at}/board")),
                (AgentKind::Board, None) => {
                    let help = "Write `board: {of: NAME, input: {…}, output: {…}}`, with NAME among `boards`.";
                    self.report_at_key("bad_board", &at, format!("`{name}` does not say which board it is"), help);
                }
                (agent, Some(_)) => {
                    let message = format!("`{agent}` agents are no boards");
                    let help = "Remove it, or make the agent board.";
                    self.report_at_key("bad_board", &format!("{at}/board"), message, help);
                }
                (_, None) => {}
            }
        }
    }

    /// Checks both sides of one border.
    fn mappings(&self, name: &WorkerName, inner: &NestedBoardSpec, at: &str) {
        let blueprint = self.blueprint;
        let Some(of) = blueprint.boards.get(&inner.of) else {
            let known = blueprint.boards.keys().map(String::as_str);
            let help = suggest(&inner.of, known, "Add it under `boards`.");
            return self.report("bad_board", &format!("{at}/of"), format!("`boards` has no `{}`", inner.of), help);
        };
        self.input(name, inner, of, at);
        let written = inner.output.keys().map(|path| (child(&format!("{at}/output"), path), path.as_str()));
        let failed = inner.failed.iter().map(|failed| (format!("{at}/failed/path"), failed.path.as_str()));
        let written: Vec<(String, &str)> = written.chain(failed).collect();
        for (pointer, path) in written {
            let grants = self.worker_grants.get(name);
            let adds = |op: &GrantOp| matches!(op, GrantOp::Add | GrantOp::Replace);
            let writes = grants.into_iter().flat_map(|seat| &seat.writes);
            let mut adding = writes.filter(|write| write.grant.ops.iter().any(adds)).map(|write| &write.pattern);
            let is_granted = match (self.paths, self.paths.parse(path), PointerBuf::parse(path)) {
                (PathSyntax::Plain, Ok(place), _) => adding.any(|pattern| pattern.overlaps(&place)),
                // A name must be that of the grant.
                (PathSyntax::Named, Ok(_), Ok(place)) => {
                    adding.any(|pattern| pattern.with_literal_names().matches(&place))
                }
                _ => false,
            };
            if !is_granted {
                let message = format!("`{name}` may not write `{path}`");
                self.report("bad_board", &pointer, message, "Grant it under `writes`, or write elsewhere.");
            }
        }
        let Ok(schema) = Schema::compile_within(&of.state.schema, of.state.assert_formats, &self.effort) else {
            return;
        };
        for (path, from) in &inner.output {
            let pointer = child(&format!("{at}/output"), path);
            let is_declared = Pattern::parse(from).is_ok_and(|place| declares(&schema, &place));
            if !is_declared || !from.starts_with('/') {
                let message = format!("the schema of `{}` says nothing of `{from}`", inner.of);
                self.report("undeclared_key", &pointer, message, "Name a place that it declares, or declare it.");
            }
        }
    }

    /// Checks the input: declared by the nested board, readable by the worker.
    fn input(&self, name: &WorkerName, inner: &NestedBoardSpec, of: &Blueprint, at: &str) {
        let declared = of.request.get("properties").and_then(Value::as_object);
        if of.request.get("additionalProperties") != Some(&Value::Bool(false)) {
            let message = format!("`{}` takes a request with any members, so none of them is declared", inner.of);
            let help = "Give its `request` `type: object`, `properties` and `additionalProperties: false`.";
            self.report("undeclared_key", &format!("{at}/of"), message, help);
        }
        for (member, from) in &inner.input {
            let pointer = child(&format!("{at}/input"), member);
            if declared.is_none_or(|declared| !declared.contains_key(member)) {
                let known = declared.into_iter().flat_map(|declared| declared.keys().map(String::as_str));
                let known: Vec<&str> = known.collect();
                let help = suggest(member, known.iter().copied(), "Declare it in its `request`.");
                let message = format!("the request of `{}` has no `{member}`", inner.of);
                self.report_at_key("undeclared_key", &pointer, message, help);
            }
            let (Ok(pattern), Ok(place)) = (self.paths.parse(from), PointerBuf::parse(from.as_str())) else {
                let help = "Write a JSON Pointer like /turn/text.";
                self.report("bad_pattern", &pointer, format!("`{from}` is no place"), help);
                continue;
            };
            if let Some(missing) = self.missing(&pattern) {
                let message = format!("`{from}` does not exist in the state schema: {}", missing.why);
                self.report("unknown_path", &pointer, message, missing.help);
                continue;
            }
            let taken = declared.and_then(|declared| types(declared.get(member)?));
            if let (Some(taken), Some(given)) = (taken, self.types_at(&pattern)) {
                let is_taken = |kind: &str| taken.contains(kind) || (kind == "integer" && taken.contains("number"));
                if let Some(other) = given.iter().find(|kind| !is_taken(kind.as_str())) {
                    let taken = taken.iter().copied().collect::<Vec<_>>().join(" or ");
                    let message = format!(
                        "`{from}` may be {other}, and the request of `{}` takes {taken} as `{member}`",
                        inner.of
                    );
                    let help = "Let both declare the same `type`, or take the member from another place.";
                    self.report("mismatched_type", &pointer, message, help);
                }
            }
            let reads = self.worker_grants.get(name).into_iter().flat_map(|seat| &seat.reads);
            if !reads.into_iter().any(|read| read.pattern.with_literal_names().covers(&place)) {
                let message = format!("`{name}` may not read `{from}`");
                self.report("bad_board", &pointer, message, "Add it to `reads`.");
            }
        }
        for member in required(&of.request) {
            if !inner.input.contains_key(member) {
                let message = format!("the request of `{}` needs `{member}`", inner.of);
                let help = format!("Add `{member}` to `input`, with the place it is taken from.");
                self.report("undeclared_key", &format!("{at}/input"), message, help);
            }
        }
    }
}

impl Linter<'_> {
    /// Returns the declared types of a place of the document; `None` if they are not declared.
    fn types_at(&self, place: &Pattern) -> Option<BTreeSet<String>> {
        let (schema, sought, _) = self.schema_of(place)?;
        let Location::Legal(fragments) = schema.locate(&sought) else { return None };
        // A mere reference declares nothing itself; different declarations are ambiguous.
        let fragments = fragments.iter().filter_map(|fragment| schema.document().pointer(fragment));
        let said: Option<BTreeSet<BTreeSet<&str>>> =
            fragments.filter(|fragment| fragment.get("$ref").is_none()).map(types).collect();
        let mut said = said?.into_iter();
        let (one, other) = (said.next()?, said.next());
        other.is_none().then(|| one.into_iter().map(str::to_owned).collect())
    }
}

/// Returns the types that a schema declares; `None` if it declares none.
fn types(schema: &Value) -> Option<BTreeSet<&str>> {
    types_of(schema).map(BTreeSet::from_iter)
}

fn nesting_depth(blueprint: &Blueprint) -> usize {
    blueprint.boards.values().map(|inner| 1 + nesting_depth(inner)).max().unwrap_or(0)
}
