//! Plays cassettes.
//!
//! Answers are released in the recorded order, whatever the timing of the calls. An answer waits until every earlier
//! one was released and the outcome of the last is in the journal. In a run that follows its recording this wait always
//! ends, because every earlier answer was requested without knowledge of this one. A board resumed in another process
//! first reports the answers that it already had ([`Player::skip_answered`]).
//!
//! A run that has diverged from its recording (another program version) may never ask for an earlier answer. When no
//! call or answer has occurred for a while and all calls wait, the first waiting call proceeds; earlier answers are
//! skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use patchboard_kernel::digest::{Digest, Hasher, Salt, sha256};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, IdempotencyKey, WorkerName};
use patchboard_runtime::agent::{Agent, Call, CallResult, Failure, Reply};
use similar::TextDiff;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::sequencer::Sequencer;
use super::{CassetteError, Entry, FORMAT, Header, Key, Occurrences, Step, StepKind};
use patchboard_roles::blackboard;
use patchboard_runtime::tools::{BoxFuture, Toolbox};

/// Idle time after which a run is taken to wait for an answer that will never be requested.
const SETTLE: Duration = Duration::from_secs(2);

/// Idle time once a call has missed, since the run has then certainly diverged.
const SETTLE_AFTER_MISS: Duration = Duration::from_millis(50);

/// Lines of a diff that a miss shows.
const DIFF_MAX: usize = 20;

/// Entries of a worker that are compared with an unrecorded view.
const COMPARED_MAX: usize = 64;

/// Agent that answers from a recording.
pub struct Player {
    blueprint: String,
    contexts: BTreeMap<String, u32>,
    salt: Salt,
    entries: BTreeMap<Key, Entry>,
    state: Mutex<State>,
    changed: Notify,
    sequencer: Sequencer,
    toolbox: Option<Arc<dyn Toolbox>>,
}

struct State {
    occurrences: Occurrences,
    /// Orders of the answers that later ones wait for; excludes the answers of cancelled calls.
    due: BTreeSet<u64>,
    /// Orders of the answers that were skipped and not released since.
    skipped: BTreeSet<u64>,
    /// Orders of the waiting calls.
    waiting: BTreeSet<u64>,
    last_change: Instant,
    missed: bool,
    /// First tool use with a result other than the recorded one.
    difference: Option<String>,
}

impl Player {
    /// Reads a cassette.
    pub fn open(path: &Path) -> Result<Self, CassetteError> {
        let bytes = std::fs::read(path).map_err(|error| CassetteError::io(path, error))?;
        Self::read(&bytes).map_err(|(line, message)| CassetteError::Malformed {
            path: path.display().to_string(),
            line,
            message,
        })
    }

    /// Sets the toolbox with which recorded tool uses are repeated.
    #[must_use]
    pub fn with_toolbox(self, toolbox: Arc<dyn Toolbox>) -> Self {
        Self { toolbox: Some(toolbox), ..self }
    }

    /// Name of the recorded blueprint.
    pub fn blueprint(&self) -> &str {
        &self.blueprint
    }

    /// SHA-256 of the file: with it as their board's salt, two runs of one cassette give the same records.
    pub const fn salt(&self) -> Salt {
        self.salt
    }

    /// Returns the number of times that each worker had each view, and the first unused order.
    pub(super) fn recorded(&self) -> (Occurrences, u64) {
        let mut occurrences = Occurrences::default();
        self.entries.keys().for_each(|key| occurrences.count(key));
        let steps = |entry: &Entry| entry.tools.iter().map(|step| step.order).max();
        let last =
            self.entries.values().map(|entry| steps(entry).map_or(entry.order, |step| step.max(entry.order))).max();
        (occurrences, last.map_or(0, |last| last.saturating_add(1)))
    }

    /// Returns the number of recorded answers not yet released.
    pub fn remaining(&self) -> usize {
        let state = self.state.lock();
        let is_left = |entry: &&Entry| state.due.contains(&entry.order) || state.skipped.contains(&entry.order);
        self.entries.values().filter(is_left).count()
    }

    /// Maps the view names in a board's records to the hashes of the recorded views.
    pub fn names(&self, hasher: &Hasher) -> BTreeMap<Digest, Digest> {
        self.entries.values().map(|entry| (hasher.text(&entry.shown), entry.view)).collect()
    }

    /// Marks a worker's next answer to a view as released by an earlier process: the resumed board will not ask for it
    /// again. Must be called for each of a board's answers, in order, before any call. Unrecorded answers are ignored.
    pub fn skip_answered(&self, worker: &WorkerName, view: Digest) {
        let mut state = self.state.lock();
        let key = state.occurrences.peek_key(worker, view);
        if let Some(entry) = self.entries.get(&key) {
            state.occurrences.count(&key);
            state.due.remove(&entry.order);
            for step in &entry.tools {
                state.due.remove(&step.order);
            }
        }
    }

    fn read(bytes: &[u8]) -> Result<Self, (usize, String)> {
        let text = std::str::from_utf8(bytes).map_err(|error| (1, format!("not UTF-8: {error}")))?;
        let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
        let (first, number) = lines.next().ok_or((1, "the file is empty".to_owned()))?;
        let header: Header =
            serde_json::from_str(first).map_err(|error| (number, format!("this is no cassette: {error}")))?;
        if header.cassette != FORMAT {
            return Err((number, format!("cassette format {}; this version reads {FORMAT}", header.cassette)));
        }
        let mut entries = BTreeMap::new();
        let mut due = BTreeSet::new();
        for (line, number) in lines {
            let entry: Entry = serde_json::from_str(line).map_err(|error| (number, error.to_string()))?;
            let outcomes = [entry.reply.is_some(), entry.failure.is_some(), entry.cancelled, entry.erased];
            if outcomes.iter().filter(|there| **there).count() != 1 {
                return Err((number, "an entry has one of reply, failure, cancelled and erased".into()));
            }
            let own = (!entry.cancelled).then_some(entry.order);
            if let Some(order) = entry.tools.iter().map(|step| step.order).chain(own).find(|order| !due.insert(*order))
            {
                return Err((number, format!("a second entry with order {order}")));
            }
            let key = Key { worker: entry.worker.clone(), view: entry.view, occurrence: entry.occurrence };
            if entries.insert(key, entry).is_some() {
                return Err((number, "a second entry for the same worker, view and occurrence".into()));
            }
        }
        let state = State {
            occurrences: Occurrences::default(),
            due,
            skipped: BTreeSet::new(),
            waiting: BTreeSet::new(),
            last_change: Instant::now(),
            missed: false,
            difference: None,
        };
        Ok(Self {
            blueprint: header.blueprint,
            contexts: header.contexts,
            salt: Salt(sha256(bytes).0),
            entries,
            state: Mutex::new(state),
            changed: Notify::new(),
            sequencer: Sequencer::default(),
            toolbox: None,
        })
    }

    async fn answer(&self, call: &Call) -> CallResult {
        let key = self.state.lock().occurrences.next_key(call);
        let Some(entry) = self.entries.get(&key) else {
            self.change(|state| state.missed = true);
            return Err(Failure::new(FailureCode::CassetteMiss, self.miss(&key, &call.prompt.user)));
        };
        if let Err(failure) = self.replay_tools(call, entry).await {
            // The remaining steps and the answer will not be released any more.
            for order in entry.tools.iter().map(|step| step.order).chain([entry.order]) {
                drop(OrderGuard::join(self, order));
            }
            return Err(failure);
        }
        if entry.cancelled {
            // The recorded run cancelled this call; so does this run, unless it has diverged from its recording.
            tokio::time::sleep(call.timeout).await;
            let message = format!("worker {} was answered nothing: the recorded run gave this call up", key.worker);
            return Err(Failure::new(FailureCode::CassetteMiss, message));
        }
        let turn = OrderGuard::join(self, entry.order);
        turn.wait_turn().await;
        self.sequencer.wait_for_outcome(call).await;
        drop(turn);
        match (&entry.reply, &entry.failure) {
            (Some(reply), _) => {
                let recorded_reply = Reply::new(reply.text.clone(), entry.usage);
                Ok(blackboard::made(call, recorded_reply))
            }
            (None, Some(failure)) => {
                Err(Failure { usage: entry.usage, ..Failure::new(failure.code, &failure.message) })
            }
            (None, None) => {
                let message = format!("the answer of worker {} to this view was erased from the recording", key.worker);
                Err(Failure::new(FailureCode::CassetteMiss, message))
            }
        }
    }

    /// Repeats the recorded tool steps, each in its recorded order.
    async fn replay_tools(&self, call: &Call, entry: &Entry) -> Result<(), Failure> {
        if entry.tools.is_empty() {
            return Ok(());
        }
        let mut tools = if let Some(toolbox) = &self.toolbox { toolbox.open(call).await? } else { None };
        let Some(tools) = &mut tools else {
            let message = format!("worker {} used tools when it was recorded, and has none here", entry.worker);
            return Err(Failure::new(FailureCode::CassetteMiss, message));
        };
        for Step { order, did } in &entry.tools {
            let turn = OrderGuard::join(self, *order);
            turn.wait_turn().await;
            let passage = self.sequencer.passage(call).await;
            match did {
                StepKind::ToolUse { name, arguments, room, result, is_error } => {
                    let used = tools.call(name, arguments, *room).await;
                    if (sha256(used.text.as_bytes()), used.is_error) != (*result, *is_error) {
                        self.note_difference(format!("{name} of worker {} (order {order})", entry.worker));
                    }
                }
                StepKind::BatchStart => tools.begin_batch(),
                StepKind::Checkpoint { usage, reserve } => tools.checkpoint(*usage, *reserve).await?,
            }
            drop((passage, turn));
        }
        Ok(())
    }

    /// Changes the state, and wakes the calls that wait for their turn.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        state.last_change = Instant::now();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records that a tool returned another result than the recorded one.
    fn note_difference(&self, what: String) {
        tracing::warn!(what, "a tool gave something else than when it was recorded");
        self.state.lock().difference.get_or_insert(what);
    }

    /// Describes a call that is not recorded, with the first differing tool result.
    fn miss(&self, key: &Key, shown: &str) -> String {
        let message = self.unknown(key, shown);
        match &self.state.lock().difference {
            Some(what) => format!("{message}\nbefore, a tool gave something else than when it was recorded: {what}"),
            None => message,
        }
    }

    /// Describes the difference between an unrecorded call and the recording.
    fn unknown(&self, key: &Key, shown: &str) -> String {
        let Key { worker, view, occurrence } = key;
        let mine = || self.entries.values().filter(|entry| entry.worker == *worker);
        let same = mine().filter(|entry| entry.view == *view).count();
        if same > 0 {
            return format!(
                "worker {worker} saw view {view} for the {}. time, but the recording answers it only {same} time(s)",
                u64::from(*occurrence) + 1,
            );
        }
        let likeness = |entry: &&Entry| (TextDiff::from_lines(entry.shown.as_str(), shown).ratio() * 1000.0) as u32;
        let nearest = mine().take(COMPARED_MAX).max_by_key(likeness);
        let Some(nearest) = nearest else {
            return format!("worker {worker} saw view {view}, but the recording holds no call of that worker");
        };
        let diff = TextDiff::from_lines(nearest.shown.as_str(), shown);
        let diff = diff.unified_diff().context_radius(1).header("recorded", "now").to_string();
        let total = diff.lines().count();
        let mut lines: Vec<&str> = diff.lines().take(DIFF_MAX).collect();
        let more = format!("… {} more lines", total.saturating_sub(DIFF_MAX));
        if total > DIFF_MAX {
            lines.push(&more);
        }
        format!(
            "worker {worker} saw view {view}, which is not recorded; the nearest recorded is {} (order {}):\n{}",
            nearest.view,
            nearest.order,
            lines.join("\n"),
        )
    }
}

impl Agent for Player {
    fn context_window(&self, model: Option<&str>) -> Option<u32> {
        self.contexts.get(model.unwrap_or_default()).copied()
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, CallResult> {
        Box::pin(self.answer(call))
    }

    fn on_settled(&self, board: &BoardId, token: &IdempotencyKey) {
        self.sequencer.settled(board, token);
    }
}

/// Position in the recorded order. Dropping it, whether its turn was reached or not, lets the next one proceed.
struct OrderGuard<'a> {
    player: &'a Player,
    order: u64,
}

impl<'a> OrderGuard<'a> {
    fn join(player: &'a Player, order: u64) -> Self {
        player.change(|state| _ = state.waiting.insert(order));
        Self { player, order }
    }

    /// Waits until everything recorded earlier was released, or is not expected to be requested any more.
    async fn wait_turn(&self) {
        loop {
            let mut changed = pin!(self.player.changed.notified());
            changed.as_mut().enable();
            let patience_ends = {
                let mut state = self.player.state.lock();
                if state.due.first().is_none_or(|first| *first >= self.order) {
                    return;
                }
                let settle = if state.missed { SETTLE_AFTER_MISS } else { SETTLE };
                let end = state.last_change + settle;
                let first_of_all = state.waiting.first() == Some(&self.order);
                if first_of_all && Instant::now() >= end {
                    // All of them at once: otherwise a run resumed elsewhere would wait for each in turn.
                    let due = state.due.split_off(&self.order);
                    let passed = std::mem::replace(&mut state.due, due);
                    let is_first = state.skipped.is_empty();
                    state.skipped.extend(passed);
                    drop(state);
                    if is_first {
                        tracing::warn!(order = self.order, "earlier recorded answers were never asked for");
                    }
                    return;
                }
                end
            };
            tokio::select! {
                () = &mut changed => {}
                () = tokio::time::sleep_until(patience_ends.max(Instant::now() + Duration::from_millis(1))) => {}
            }
        }
    }
}

impl Drop for OrderGuard<'_> {
    fn drop(&mut self) {
        self.player.change(|state| {
            state.waiting.remove(&self.order);
            state.due.remove(&self.order);
            state.skipped.remove(&self.order);
        });
    }
}
