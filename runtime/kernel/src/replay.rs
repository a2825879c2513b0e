//! Derives the records of a run again and reports the first that differs.
//!
//! Recovery ([`Board::recover`]) applies recorded decisions; a replay makes them again. It extracts the inputs from the
//! records (proposals, failures, ticks, signals) and steps a fresh board with them. It compares every byte of the
//! output: state digests, view hashes, schedules, breaker transitions, rejections and snapshot digests.

mod steps;

use crate::blueprint::Blueprint;
use std::collections::BTreeMap;
use std::slice;

use crate::board::{Board, Input, NewBoard, Proposal, ProposalSource, ReplyBody, RequestDeferral};
use crate::digest::Digest;
use crate::id::Seq;
use crate::pipeline::Reply;
use crate::plan::{Plan, PlanSource};
use crate::record::{
    self, ADMINISTRATOR, Attempt, Author, Body, Budget, End, Epoch, Invoked, Kind, PauseRequest, Record,
};
use crate::view;

use steps::{is_step_start, underivable_batch};

/// Oldest journal format with decisions that this version derives. Formats 1 and 2 have no freshness checks or no
/// expansions. Blueprints of format 3 have no `circuit.crashes`, so crashes never stopped their branches.
const OLDEST_DERIVABLE_FORMAT: u32 = 4;

/// Returns the reason why this version cannot derive a board's decisions, if it cannot. This is no error: an earlier
/// version made them by other rules.
pub fn unsupported_reason(first: &Record) -> Option<String> {
    match first.body() {
        Ok(Body::Created(created)) if created.format < OLDEST_DERIVABLE_FORMAT => Some(other_rules(created.format)),
        _ => None,
    }
}

fn other_rules(format: u32) -> String {
    format!("the journal has format {format}: its decisions were made by rules that this version does not have")
}

/// First record that differs from the derived one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("record {seq}: {what}")]
pub struct Divergence {
    /// Number of the record.
    pub seq: Seq,
    /// Description of the difference.
    pub what: String,
}

/// Result of a replay without differences.
pub struct ReplayReport {
    /// Board after the last record.
    pub board: Board,
    /// Records read.
    pub records: u64,
    /// Commits among the records.
    pub commits: u64,
    /// Views that were derived again.
    pub views: u64,
    /// Views of another compiler version, which cannot be derived; accepted as recorded.
    pub views_skipped: u64,
    /// First and last record that cannot be derived because they contain or depend on redacted values; accepted as
    /// recorded.
    pub redacted: Option<(Seq, Seq)>,
}

/// Derives every record again, up to and including `to`. Returns the first record that cannot be read or that differs.
pub fn replay(records: &[Record], to: Option<Seq>, plans: &dyn PlanSource) -> Result<ReplayReport, Divergence> {
    let records = match to {
        Some(to) => &records[..records.len().min(usize::try_from(to.0).unwrap_or(usize::MAX).saturating_add(1))],
        None => records,
    };
    let first = records.first().ok_or_else(|| divergence(Seq(0), "the journal of the board is empty"))?;
    first.check_chain(crate::record::GENESIS).map_err(|error| divergence(first.seq, error.to_string()))?;
    let erased = redacted_range(records)?;
    let mut snapshots = Snapshots::named_in(records)?;
    let mut replayed = 0;
    let (mut views_skipped, mut views_erased) = (0, 0);
    let (mut board, mut derived) = match erased {
        Some((Seq(0), _)) => {
            replayed = 1;
            let board = Board::from_created(first, plans);
            (board.map_err(|error| divergence(first.seq, error.to_string()))?, Vec::new())
        }
        _ => create(first, plans).map(|(board, step)| (board, step.records))?,
    };
    loop {
        let batch = &records[replayed..records.len().min(replayed + derived.len())];
        for (recorded, derived) in batch.iter().zip(&derived) {
            compare(recorded, derived)?;
        }
        replayed += batch.len();
        if to.is_none() && batch.len() < derived.len() {
            let missing = &derived[batch.len()];
            let what = format!("the journal ends inside a step: {} is missing", missing.kind);
            return Err(divergence(missing.seq, what));
        }
        snapshots.record_digest(&board);
        let Some(next) = records.get(replayed) else { break };
        let is_erased = erased.is_some_and(|(from, to)| (from..=to).contains(&next.seq));
        let foreign = match is_erased {
            true => slice::from_ref(next),
            false => underivable_batch(&records[replayed..], view::compiler_version(board.plan().journal_format))?,
        };
        if foreign.is_empty() {
            let input = input(next, &snapshots, &board)?;
            let principal = next.principal().map_err(|error| divergence(next.seq, error.to_string()))?;
            derived = board.step_as(next.at, input, principal).records;
            if derived.is_empty() {
                return Err(divergence(next.seq, format!("nothing would have been recorded, but {} was", next.kind)));
            }
        } else {
            for record in foreign {
                board.fold(record).map_err(|error| divergence(record.seq, error.to_string()))?;
                snapshots.record_digest(&board);
                let skipped = if is_erased { &mut views_erased } else { &mut views_skipped };
                *skipped += u64::from(record.kind == Kind::Invoked);
            }
            replayed += foreign.len();
            derived = Vec::new();
        }
    }
    if to.is_some() && board.head().0 != records[records.len() - 1].seq {
        // The cut is in the middle of a step: recover exactly up to `to`.
        board = Board::recover(records, plans).map_err(|error| divergence(Seq(0), error.to_string()))?;
    }
    let count = |kind| records.iter().filter(|record| record.kind == kind).count() as u64;
    Ok(ReplayReport {
        board,
        records: records.len() as u64,
        commits: count(Kind::Committed),
        views: count(Kind::Invoked) - views_skipped - views_erased,
        views_skipped,
        redacted: erased,
    })
}

/// Returns the index of the last step that certainly begins among these records, which are the tail of a journal.
pub fn last_step(tail: &[Record]) -> Option<usize> {
    // Up to two preceding records decide if a step begins.
    let known = if tail.first().is_some_and(|first| first.seq == Seq(0)) { 0 } else { 2 };
    (known..tail.len()).rev().find(|index| is_step_start(tail, *index))
}

/// Returns the first record missing from an incomplete last step; steps are appended as a whole. `before` is the board
/// before `records`, which begin with a step; `None` if they are the whole journal.
///
/// Returns `None` if the journal is complete, or if this version does not derive it.
pub fn missing_at_end(before: Option<Board>, records: &[Record], plans: &dyn PlanSource) -> Option<(Seq, Kind)> {
    let (mut board, mut derived) = match before {
        Some(board) => (board, Vec::new()),
        None => create(records.first()?, plans).map(|(board, step)| (board, step.records)).ok()?,
    };
    if board.plan().journal_format < OLDEST_DERIVABLE_FORMAT {
        return None;
    }
    let snapshots = Snapshots(BTreeMap::new());
    let mut rest = records;
    loop {
        let (recorded, after) = rest.split_at(derived.len().min(rest.len()));
        if recorded.iter().zip(&derived).any(|(recorded, derived)| compare(recorded, derived).is_err()) {
            return None;
        }
        if let Some(missing) = derived.get(recorded.len()) {
            return Some((missing.seq, missing.kind));
        }
        rest = after;
        // A redacted record and a missing one look the same.
        let next = rest.first().filter(|next| next.kind != Kind::Redacted)?;
        derived = board.step(next.at, input(next, &snapshots, &board).ok()?).records;
        if derived.is_empty() {
            return None;
        }
    }
}

/// Returns the range of records that cannot be derived because of redacted values. It extends from the step of the
/// first such record to the redaction record. Later decisions did not use the values either.
fn redacted_range(records: &[Record]) -> Result<Option<(Seq, Seq)>, Divergence> {
    let mut found: Option<(usize, Seq)> = None;
    for (index, record) in records.iter().enumerate() {
        if let Some(erasure) = record.redaction_marker().map_err(|error| divergence(record.seq, error.to_string()))? {
            let (first, to) = found.unwrap_or((index, erasure.by));
            found = Some((first, to.max(erasure.by)));
        }
    }
    let Some((mut first, to)) = found else { return Ok(None) };
    while !is_step_start(records, first) {
        first -= 1;
    }
    Ok(Some((records[first].seq, to)))
}

fn create(first: &Record, plans: &dyn PlanSource) -> Result<(Board, crate::board::Step), Divergence> {
    let bad = |what: String| divergence(first.seq, what);
    let Body::Created(created) = first.body().map_err(|error| bad(error.to_string()))? else {
        return Err(bad("a journal begins with created".to_owned()));
    };
    if created.format < OLDEST_DERIVABLE_FORMAT {
        return Err(bad(other_rules(created.format)));
    }
    let blueprint: Blueprint = serde_json::from_value(created.blueprint.clone())
        .map_err(|error| bad(format!("this version cannot read its blueprint: {error}")))?;
    let genesis = NewBoard {
        board: created.board.clone(),
        blueprint,
        mode: created.mode.clone(),
        architect: created.architect.clone(),
        parent: created.parent.clone(),
        request: created.request.clone(),
        salt: created.salt,
        at: first.at,
        principal: first.principal().map_err(|error| bad(error.to_string()))?,
    };
    // The journal's own format applies, without the additions of later formats.
    Board::create_in_format(created.format, genesis, plans).map_err(|error| bad(error.to_string()))
}

fn compare(recorded: &Record, derived: &Record) -> Result<(), Divergence> {
    let how = if recorded.seq != derived.seq {
        format!("it is numbered {}, it follows that it is record {}", recorded.seq, derived.seq)
    } else if recorded.kind != derived.kind {
        format!("{} is recorded, {} follows from what came before", recorded.kind, derived.kind)
    } else if recorded.at != derived.at {
        format!("its time is {}, it follows that it was {}", recorded.at.0, derived.at.0)
    } else if recorded.payload != derived.payload {
        format!("its values are not those that follow: {}", first_difference(&recorded.payload, &derived.payload))
    } else if recorded.header != derived.header {
        format!("its header is not the one that follows: {}", first_difference(&recorded.header, &derived.header))
    } else if recorded.hash != derived.hash {
        "its hash does not follow from the record before and its header".to_owned()
    } else {
        return Ok(());
    };
    Err(divergence(derived.seq, how))
}

/// Formats an excerpt of both texts around the first difference.
fn first_difference(recorded: &str, derived: &str) -> String {
    const AROUND: usize = 40;
    let at = recorded.chars().zip(derived.chars()).take_while(|(recorded, derived)| recorded == derived).count();
    let around = |text: &str| -> String { text.chars().skip(at.saturating_sub(AROUND / 2)).take(AROUND).collect() };
    format!("…{}… is recorded, …{}… follows", around(recorded), around(derived))
}

/// Digests of the snapshots named in the records, computed as the board reaches them.
struct Snapshots(BTreeMap<Seq, Option<Digest>>);

impl Snapshots {
    fn named_in(records: &[Record]) -> Result<Self, Divergence> {
        let mut named = BTreeMap::new();
        for record in records.iter().filter(|record| record.kind == Kind::Snapshot) {
            let body = record.body().map_err(|error| divergence(record.seq, error.to_string()))?;
            if let Body::Snapshot(snapshot) = body {
                named.insert(snapshot.of, None);
            }
        }
        Ok(Self(named))
    }

    fn record_digest(&mut self, board: &Board) {
        if let Some(digest) = self.0.get_mut(&board.head().0) {
            *digest = Some(board.snapshot_digest());
        }
    }

    /// Returns the digest of the snapshot that includes all records up to this one; `None` if there can be no such
    /// snapshot.
    fn digest_at(&self, seq: Seq) -> Option<Digest> {
        self.0.get(&seq).copied().flatten()
    }
}

fn input(record: &Record, snapshots: &Snapshots, board: &Board) -> Result<Input, Divergence> {
    let plan: &Plan = board.plan();
    let body = record.body().map_err(|error| divergence(record.seq, error.to_string()))?;
    Ok(match body.clone() {
        Body::Committed(record::Committed { by: Author { edit: Some(_), .. }, written, .. })
        | Body::NoOp(record::NoOp { by: Author { edit: Some(_), .. }, written, .. }) => {
            edit(record, &written.unwrap_or_default())?
        }
        Body::Rejected(rejected) if rejected.by.edit.is_some() => edit(record, &rejected.reply)?,
        Body::Committed(record::Committed { by, patch, .. }) if by.worker.as_str() == ADMINISTRATOR => {
            let member = |name| patch.get(0).and_then(|op| op.get(name)).cloned().unwrap_or_default();
            Input::Amend { path: member("path").as_str().unwrap_or_default().to_owned(), value: member("value") }
        }
        Body::Committed(record::Committed { by, patch, intent, expand, written, raw, .. })
        | Body::Expanded(record::Expanded { by, patch, intent, expand, written, raw }) => {
            let reply = Reply { patch, intent, expand, written, clarify: None, pass: None };
            propose(reply.judged_body(plan, &by), by, raw)
        }
        Body::NoOp(record::NoOp { by, patch, intent, written, pass, raw }) => {
            let reply = Reply { patch, intent, expand: Vec::new(), written, clarify: None, pass };
            propose(reply.judged_body(plan, &by), by, raw)
        }
        Body::Rejected(rejected) => {
            let reply = match (rejected.elided, rejected.written) {
                (Some(elided), _) => ReplyBody::Elided { excerpt: rejected.reply, elided },
                (None, Some(of)) => ReplyBody::Derived { reply: rejected.reply, source: of },
                (None, None) => ReplyBody::Text(rejected.reply),
            };
            propose(reply, rejected.by, rejected.raw)
        }
        Body::Late(late) => {
            let from = match (late.invocation, late.attempt) {
                (Some(invocation), Some(attempt)) => ProposalSource::Attempt { invocation, attempt },
                _ => ProposalSource::Direct { key: late.token, base: None },
            };
            let reply = match late.elided {
                Some(elided) => ReplyBody::Elided { excerpt: late.reply, elided },
                None => ReplyBody::Text(late.reply),
            };
            Input::Propose(Proposal { from, worker: late.worker, reply, usage: late.usage, raw: late.raw })
        }
        Body::Invoked(Invoked { invocation, attempt, admitted: Some(admission), .. }) => {
            Input::Admit { invocation, attempt, admission }
        }
        // An admitted call that exceeded a budget.
        Body::Budget(Budget { invocation: Some(invocation), admitted, .. }) => {
            let waiting = board.awaiting_admission();
            let attempt = waiting.iter().find(|waiting| waiting.invocation == invocation);
            let attempt = attempt
                .map(|waiting| waiting.attempt)
                .ok_or_else(|| divergence(record.seq, format!("invocation {invocation} waits for no admission")))?;
            Input::Admit { invocation, attempt, admission: admitted.unwrap_or_default() }
        }
        Body::Deferred(deferred) => {
            let attempt = attempt_of(record, deferred.by.attempt)?;
            let since = board.scheduler().open().get(&attempt.invocation);
            let since = since.and_then(|open| open.deferrals.as_ref()?.since).unwrap_or(record.at);
            Input::Defer {
                invocation: attempt.invocation,
                attempt: attempt.number,
                usage: deferred.by.usage,
                deferral: RequestDeferral {
                    reason: deferred.reason,
                    wait_ms: deferred.not_before.ms_since(record.at),
                    patience_ms: deferred.patience.ms_since(since),
                    is_served_elsewhere: deferred.is_served_elsewhere,
                    message: deferred.message,
                },
            }
        }
        Body::Retried(retried) => Input::Retry(retried),
        Body::Continued(continued) => continue_input(record, continued.by, continued.reserved)?,
        Body::Failed(record::Failed { by, needed: Some(needed), .. }) => continue_input(record, by, needed)?,
        Body::Failed(failed) => {
            let record::Failed { by, code, message, .. } = failed;
            let Attempt { invocation, number: attempt, .. } = attempt_of(record, by.attempt)?;
            Input::AgentFailed { invocation, attempt, code, message, usage: by.usage }
        }
        Body::Epoch(Epoch { epoch, writer, format }) => Input::TakeOver { epoch, writer, format },
        Body::Answer(answer) => Input::Answer(answer),
        Body::Approval(record::Approval { by, patch, intent, expand, written, clarify, raw, .. }) => {
            let reply = Reply { patch, intent, expand, written, clarify, pass: None };
            propose(reply.judged_body(plan, &by), by, raw)
        }
        Body::Paused(PauseRequest { cause: Some(_), .. }) => Input::Unavailable,
        Body::Paused(steered) => Input::Pause { key: steered.token },
        Body::Resumed(steered) => Input::Resume { key: steered.token },
        Body::Tick(_) => Input::Tick,
        Body::Jumped(jumped) => Input::ClockJump { ms: jumped.ms },
        Body::Signal(record::Signal { name, value, token }) => Input::Signal { name, value, key: token },
        Body::Snapshot(snapshot) => {
            let digest = snapshots.digest_at(snapshot.of).ok_or_else(|| {
                divergence(record.seq, format!("it names a snapshot of the middle of a step, record {}", snapshot.of))
            })?;
            Input::Snapshot { of: snapshot.of, digest }
        }
        Body::Redacted(redacted) => Input::Redact(redacted),
        Body::Ended(ended) if ended.end == End::Cancelled => Input::Cancel,
        Body::Ended(ended) if ended.end == End::Failed => Input::Meltdown,
        _ => {
            return Err(divergence(record.seq, format!("{} does not follow from what came before", record.kind)));
        }
    })
}

/// Returns the request of an attempt for another call.
fn continue_input(record: &Record, by: Author, reserve: u64) -> Result<Input, Divergence> {
    let attempt = attempt_of(record, by.attempt)?;
    let (invocation, attempt) = (attempt.invocation, attempt.number);
    Ok(Input::Continue { invocation, attempt, usage: by.usage, reserve })
}

fn attempt_of(record: &Record, attempt: Option<Attempt>) -> Result<Attempt, Divergence> {
    attempt.ok_or_else(|| divergence(record.seq, "it names no attempt"))
}

/// Reads a file edit from its record.
fn edit(record: &Record, written: &str) -> Result<Input, Divergence> {
    let edit = serde_json::from_str(written).map_err(|error| divergence(record.seq, format!("its edit: {error}")))?;
    Ok(Input::Edit(edit))
}

fn propose(reply: ReplyBody, by: Author, raw: Option<String>) -> Input {
    let from = match by.attempt {
        Some(attempt) => ProposalSource::Attempt { invocation: attempt.invocation, attempt: attempt.number },
        None => ProposalSource::Direct { key: by.token, base: Some(by.base) },
    };
    Input::Propose(Proposal { from, worker: by.worker, reply, usage: by.usage, raw })
}

fn divergence(seq: Seq, what: impl Into<String>) -> Divergence {
    Divergence { seq, what: what.into() }
}
