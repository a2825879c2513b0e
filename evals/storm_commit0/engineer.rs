//! Scripted engineer that restores functions: decides its next step from what it has read.
//!
//! The script behaves like a sensible agent. It views the code to be edited and the definitions that code refers to,
//! and edits in its planned style. After a rejection it uses the returned content for the retry: current lines, a
//! helper added by another engineer, a new name. It does not review accepted edits. The script is equal in every mode.

mod decision;
mod memory;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use patchboard_runtime::tools::ROOM_MAX;
use patchboard_workspace::session::{CommandResult, Session};
use patchboard_workspace::worktree::Worktree;
use serde::Serialize;
use serde_json::{Value, json};

use self::decision::NextAction;
use self::memory::{Memory, numbered};
use crate::exercise::Exercise;
use crate::plan::Batch;

/// Maximum number of attempts at one edit.
const TRIES_MAX: u32 = 60;

/// Maximum number of searches for the old name after a rename.
const SWEEPS_MAX: u32 = 20;

/// Lines after an anchor that are viewed with it.
const AROUND: u32 = 2;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    View {
        path: String,
        range: Option<Range>,
    },
    /// Check whether another engineer has added a helper already.
    Find(usize),
    /// Add missing lines to the head of a file.
    Head {
        path: String,
        imports: Vec<usize>,
        helpers: Vec<usize>,
    },
    /// Replace a stub by its body.
    Restore(usize),
    Rewrite {
        path: String,
        pieces: Vec<usize>,
        imports: Vec<usize>,
        helpers: Vec<usize>,
    },
    /// Replace the old names in a file.
    Rename {
        path: String,
    },
    Move {
        path: String,
    },
    /// Search for the old names, and replace them.
    Sweep,
}

/// Lines to view, with their original numbers; the engineer searches for lines that have moved.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Range {
    lines: (u32, u32),
    /// Number of the line that identifies the range.
    at: u32,
    text: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct EngineerStats {
    pub(crate) views: u64,
    pub(crate) edits: u64,
    pub(crate) accepted: u64,
    /// Rejected edits, by code.
    pub(crate) refused: BTreeMap<String, u64>,
    /// Edits that took more than one attempt.
    pub(crate) again: u64,
    /// Edits that were never accepted.
    pub(crate) given_up: u64,
}

impl EngineerStats {
    /// Adds the statistics of another engineer.
    pub(crate) fn add(&mut self, other: &Self) {
        self.views += other.views;
        self.edits += other.edits;
        self.accepted += other.accepted;
        self.again += other.again;
        self.given_up += other.given_up;
        other.refused.iter().for_each(|(code, count)| *self.refused.entry(code.clone()).or_default() += count);
    }
}

/// Working directory of an engineer.
pub(crate) enum Place {
    /// Directory shared by all engineers.
    Shared(Box<Session>),
    /// Separate working tree.
    Own(Box<Worktree>),
}

impl Place {
    async fn call(&mut self, arguments: Value) -> CommandResult {
        match self {
            Self::Shared(session) => session.call(arguments).await,
            Self::Own(tree) => tree.run(arguments, ROOM_MAX).await,
        }
    }
}

pub(crate) struct Engineer {
    exercise: Arc<Exercise>,
    place: Place,
    helper_variant: usize,
    batches: VecDeque<Batch>,
    /// Set while it has a symbol to rename before all other work.
    renames: bool,
    sweeps: u32,
    steps: VecDeque<Step>,
    tries: u32,
    memory: Memory,
    pub(crate) deeds: EngineerStats,
}

impl Engineer {
    pub(crate) fn new(exercise: &Arc<Exercise>, place: Place, number: usize, batches: Vec<Batch>) -> Self {
        Self {
            exercise: Arc::clone(exercise),
            place,
            helper_variant: number % 2,
            batches: batches.into(),
            renames: number == 0,
            sweeps: 0,
            steps: VecDeque::new(),
            tries: 0,
            memory: Memory::default(),
            deeds: EngineerStats::default(),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.steps.is_empty() && self.batches.is_empty() && !self.renames
    }

    /// Returns true if the current batch is done.
    pub(crate) fn is_idle(&self) -> bool {
        self.steps.is_empty()
    }

    /// Starts the next batch: views everything that it needs.
    pub(crate) async fn begin(&mut self) {
        if std::mem::take(&mut self.renames) {
            self.begin_rename();
        } else if let Some(batch) = self.batches.pop_front() {
            self.begin_batch(&batch);
        }
        while let Some(Step::View { .. } | Step::Find(_)) = self.steps.front() {
            self.turn().await;
        }
    }

    /// Renames the definitions first: agents that have read them and not yet written are notified. Uses of the old name
    /// written until then are found by a later search.
    fn begin_rename(&mut self) {
        let exercise = Arc::clone(&self.exercise);
        let is_renamed = |name: &str| exercise.renames.iter().any(|rename| rename.old == name);
        let defined = exercise.definitions.iter().filter(|definition| is_renamed(&definition.name));
        let paths: BTreeSet<&String> = defined.map(|definition| &definition.path).collect();
        let files = exercise.renames.iter().filter_map(|rename| rename.file.as_ref()).map(|(old, _)| old);
        let views = paths.iter().copied().chain(files.clone());
        self.steps.extend(views.map(|path| Step::View { path: path.clone(), range: None }));
        self.steps.extend(paths.into_iter().map(|path| Step::Rename { path: path.clone() }));
        self.steps.extend(files.map(|path| Step::Move { path: path.clone() }));
        self.steps.push_back(Step::Sweep);
    }

    fn begin_batch(&mut self, batch: &Batch) {
        let exercise = Arc::clone(&self.exercise);
        let path = &batch.path;
        let pieces = || batch.pieces.iter().map(|piece| &exercise.pieces[*piece]);
        let imports: BTreeSet<usize> = pieces().flat_map(|piece| piece.imports.iter().copied()).collect();
        let helpers: BTreeSet<usize> = pieces().filter_map(|piece| piece.helper).collect();
        let (own, others): (Vec<usize>, Vec<usize>) =
            helpers.into_iter().partition(|helper| exercise.helpers[*helper].path == *path);
        let imports: Vec<usize> = imports.into_iter().collect();
        if batch.is_rewritten {
            self.steps.push_back(Step::View { path: path.clone(), range: None });
        } else {
            for piece in pieces() {
                let range = Range { lines: (piece.from, piece.at), at: piece.at, text: bare(&piece.stub) };
                self.steps.push_back(Step::View { path: path.clone(), range: Some(range) });
            }
            if !imports.is_empty() || !own.is_empty() {
                self.steps.push_back(self.view_of_head(path));
            }
        }
        for helper in &others {
            self.steps.push_back(self.view_of_head(&exercise.helpers[*helper].path));
        }
        self.steps.extend(own.iter().chain(&others).map(|helper| Step::Find(*helper)));
        let needs: BTreeSet<usize> = pieces().flat_map(|piece| piece.needs.iter().copied()).collect();
        for definition in needs.into_iter().map(|need| &exercise.definitions[need]) {
            let lines = (definition.first, definition.last);
            let range = Range { lines, at: definition.first, text: definition.head.clone() };
            self.steps.push_back(Step::View { path: definition.path.clone(), range: Some(range) });
        }
        for helper in others {
            let at = exercise.helpers[helper].path.clone();
            self.steps.push_back(Step::Head { path: at, imports: Vec::new(), helpers: vec![helper] });
        }
        if batch.is_rewritten {
            let pieces = batch.pieces.clone();
            self.steps.push_back(Step::Rewrite { path: path.clone(), pieces, imports, helpers: own });
            return;
        }
        if !imports.is_empty() || !own.is_empty() {
            self.steps.push_back(Step::Head { path: path.clone(), imports, helpers: own });
        }
        self.steps.extend(batch.pieces.iter().map(|piece| Step::Restore(*piece)));
    }

    fn view_of_head(&self, path: &str) -> Step {
        let anchor = &self.exercise.anchors[path];
        let last = (anchor.at + AROUND).min(self.exercise.sizes[path]);
        let range = Range { lines: (1, last), at: anchor.at, text: bare(&anchor.text) };
        Step::View { path: path.to_owned(), range: Some(range) }
    }

    /// Does one step: views content that it no longer knows, or attempts an edit.
    pub(crate) async fn turn(&mut self) {
        let Some(step) = self.steps.front().cloned() else { return };
        match self.wanted(&step) {
            NextAction::Nothing => self.finish(),
            NextAction::Look(path) => self.view(&path, None).await,
            NextAction::View(range) => {
                self.steps.pop_front();
                self.view(&range.0, range.1.as_ref()).await;
            }
            NextAction::Find(helper) => {
                self.steps.pop_front();
                self.find(helper).await;
            }
            NextAction::Search => self.sweep().await,
            NextAction::Edit(arguments) => self.edit(&step, arguments).await,
        }
    }

    fn finish(&mut self) {
        self.steps.pop_front();
        self.tries = 0;
    }

    /// Calls the tool, with the current names of files.
    async fn call(&mut self, mut arguments: Value) -> CommandResult {
        if let Some(now) = arguments["path"].as_str().and_then(|path| self.memory.moved.get(path)) {
            arguments["path"] = json!(now);
        }
        let result = self.place.call(arguments).await;
        if result.code.as_deref() == Some("no_such_file") {
            self.look_around().await;
        }
        result
    }

    /// Lists the files to find the new name of a missing file.
    async fn look_around(&mut self) {
        let listed = self.place.call(json!({"command": "list"})).await;
        let files = self.exercise.renames.iter().filter_map(|rename| rename.file.as_ref());
        let moved = files.filter(|(_, new)| listed.text.contains(new.as_str())).cloned();
        self.memory.moved.extend(moved);
    }

    async fn view(&mut self, path: &str, range: Option<&Range>) {
        let Some(range) = range else { return self.show(path, None).await };
        let wanted = [range.text.clone(), self.exercise.renamed(&range.text)];
        let is_it = |line: &String| wanted.iter().any(|text| line.contains(text));
        self.show(path, Some(range.lines)).await;
        let known = self.memory.lines.get(path).into_iter().flatten();
        if known.filter(|(at, _)| **at == range.at).any(|(_, line)| is_it(line)) {
            return;
        }
        for text in wanted {
            let result = self.call(json!({"command": "search", "path": path, "pattern": text})).await;
            let found = numbered(result.data["content"].as_str().unwrap_or_default()).into_keys().next();
            if let Some(at) = found {
                let shifted = |line: u32| (line + at).saturating_sub(range.at).max(1);
                let first = if range.lines.0 == 1 { 1 } else { shifted(range.lines.0) };
                return self.show(path, Some((first, shifted(range.lines.1)))).await;
            }
        }
    }

    async fn show(&mut self, path: &str, lines: Option<(u32, u32)>) {
        let mut arguments = json!({"command": "view", "path": path});
        if let Some((first, last)) = lines {
            arguments["view_range"] = json!([first, last]);
        }
        self.deeds.views += 1;
        let result = self.call(arguments).await;
        if result.is_error() {
            // The error may be for an empty file; a new name is known by now.
            return;
        }
        let content = result.data["content"].as_str().unwrap_or_default();
        // A working tree does not track reads, so its response lacks this member.
        let is_whole = result.data["is_whole"].as_bool();
        let is_whole = is_whole.unwrap_or_else(|| lines.is_none() && !content.contains(" are not shown]\n"));
        self.memory.learn_shown(&self.exercise, path, content, is_whole);
    }

    async fn find(&mut self, helper: usize) {
        let exercise = Arc::clone(&self.exercise);
        let helper = &exercise.helpers[helper];
        self.deeds.views += 1;
        let pattern = format!("def {}(", helper.name);
        let result = self.call(json!({"command": "search", "path": helper.path, "pattern": pattern})).await;
        self.memory.learn_words(&self.exercise, result.data["content"].as_str().unwrap_or_default());
    }

    async fn sweep(&mut self) {
        let old: Vec<&str> = self.exercise.renames.iter().map(|rename| rename.old.as_str()).collect();
        let pattern = format!("\\b({})\\b", old.join("|"));
        self.deeds.views += 1;
        let result = self.call(json!({"command": "search", "pattern": pattern, "regex": true})).await;
        let (mut found, mut last) = (BTreeSet::new(), None);
        for line in result.data["content"].as_str().unwrap_or_default().lines() {
            let of = self.exercise.sizes.keys().find(|path| self.exercise.names_of(path).any(|name| name == line));
            last = of.or(last);
            if line.split_once('\t').is_some_and(|(_, text)| !is_annotation(text)) {
                found.extend(last.cloned());
            }
        }
        self.sweeps += 1;
        self.finish();
        if found.is_empty() || self.sweeps > SWEEPS_MAX {
            self.deeds.given_up += u64::from(!found.is_empty());
            return;
        }
        found.iter().for_each(|path| self.memory.forget(path));
        self.steps.push_front(Step::Sweep);
        found.into_iter().for_each(|path| self.steps.push_front(Step::Rename { path }));
    }

    async fn edit(&mut self, step: &Step, arguments: Value) {
        self.deeds.edits += 1;
        let path = arguments["path"].as_str().unwrap_or_default().to_owned();
        let result = self.call(arguments).await;
        let Some(code) = result.code.clone() else {
            self.deeds.accepted += 1;
            self.deeds.again += u64::from(self.tries > 0);
            self.accepted(step, &path, &result).await;
            self.finish();
            return;
        };
        *self.deeds.refused.entry(code.clone()).or_default() += 1;
        self.tries += 1;
        if self.tries >= TRIES_MAX {
            self.deeds.given_up += 1;
            self.finish();
            return;
        }
        self.learn_rejection(&path, &code, &result).await;
    }

    async fn accepted(&mut self, step: &Step, path: &str, result: &CommandResult) {
        self.memory.learn_words(&self.exercise, &result.text);
        // Line numbers of the rest of the file have changed.
        self.memory.forget(path);
        let (imports, helpers) = match step {
            Step::Head { imports, helpers, .. } | Step::Rewrite { imports, helpers, .. } => (imports, helpers),
            Step::Rename { .. } => {
                self.memory.renamed.extend(0..self.exercise.renames.len());
                return;
            }
            Step::Move { .. } => {
                self.look_around().await;
                return;
            }
            Step::View { .. } | Step::Find(_) | Step::Restore(_) | Step::Sweep => return,
        };
        for import in imports {
            let line = bare(&self.named(&self.exercise.imports[*import].statement));
            self.memory.present.insert((path.to_owned(), line));
        }
        for helper in helpers {
            self.memory.variants.entry(*helper).or_insert(self.helper_variant);
        }
    }

    /// Learns from a rejection, which shows the current target and changes to other content that was read.
    async fn learn_rejection(&mut self, path: &str, code: &str, result: &CommandResult) {
        let parts =
            std::iter::once(&result.data["target"]).chain(result.data["stale"].as_array().into_iter().flatten());
        let mut is_shown = false;
        for part in parts {
            let Some(named) = part["path"].as_str() else { continue };
            if part["is_deleted"] == true {
                self.look_around().await;
            }
            let of = self.memory.moved.iter().find(|(_, new)| *new == named).map_or(named, |(old, _)| old).to_owned();
            let of = of.as_str();
            is_shown |= self.memory.learn_part(&self.exercise, of, part) && of == path;
            // Content that is not included must be viewed again before an edit may rely on it.
            if part["view_again"] == true && part["is_deleted"] != true {
                let is_next = |step: &Step| matches!(step, Step::View { path, .. } if path == of);
                if !self.steps.iter().any(is_next) {
                    self.steps.push_front(Step::View { path: of.to_owned(), range: None });
                }
            }
        }
        if !is_shown && self.steps.front().is_none_or(|step| !matches!(step, Step::View { .. })) {
            self.memory.forget(path);
            if code == "no_match" || code == "several_matches" {
                self.steps.push_front(Step::View { path: path.to_owned(), range: None });
            }
        }
    }
}

fn is_annotation(line: &str) -> bool {
    line.trim_start().starts_with("# engineer_")
}

fn bare(line: &str) -> String {
    line.trim_end_matches('\n').to_owned()
}
