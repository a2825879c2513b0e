//! Provenance of a place of the document: its writer, trigger and view, and earlier rejections.

use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{InvocationId, RuleName, Seq, Timestamp, Version, WorkerName};
use patchboard_kernel::record::{
    self, Attempt, Author, Body, Committed, Invoked, Record, Rejected, Scheduled, Trigger,
};
use patchboard_kernel::rejection::Violation;
use patchboard_kernel::tree::Node;
use patchboard_storage::journal::BoardSummary;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::parts::{PrincipalInfo, UsageInfo};
use crate::describe::{EditInfo, EditLine};
use crate::failure::Failure;
use crate::provenance::{self, Writer};
use crate::reader::Reader;

/// Provenance of a place: the initial document, or a commit.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum ProvenanceReport {
    /// Place that no commit has written.
    Initial(InitialValue),
    /// Place that a commit wrote.
    Commit(Box<CommittedValue>),
}

/// Value of the initial document that no commit has written.
#[derive(Serialize, ToSchema)]
pub struct InitialValue {
    /// JSON Pointer of the place.
    pointer: String,
    /// True.
    exists: bool,
    /// Current value; null if the place is gone.
    #[schema(value_type = Value)]
    value: Option<Node>,
    /// Origin of the value.
    source: InitialSource,
    /// Number of the board's first record, 0.
    seq: u64,
    /// Version of the initial document, 0.
    version: u64,
    /// Caller that created the board; null if it is not recorded.
    #[schema(required)]
    principal: Option<PrincipalInfo>,
}

/// Origin of a value of the initial document.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InitialSource {
    /// Request of the board.
    Request,
    /// Initial document of the blueprint.
    Blueprint,
}

/// Value that a commit wrote, or a removed value.
#[derive(Serialize, ToSchema)]
pub struct CommittedValue {
    /// JSON Pointer of the place.
    pointer: String,
    /// True if the place exists; false if the commit removed it.
    exists: bool,
    /// Current value; null if the place is gone.
    #[schema(value_type = Value)]
    value: Option<Node>,
    /// Origin of the value.
    source: CommitSource,
    /// Author of the commit.
    #[schema(value_type = String)]
    worker: WorkerName,
    /// Number of the commit's record.
    #[schema(value_type = u64)]
    seq: Seq,
    /// Time of the commit, in milliseconds since 1970.
    #[schema(value_type = i64)]
    at: Timestamp,
    /// Version that the commit made.
    #[schema(value_type = u64)]
    version: Version,
    /// JSON Pointer of the place right after the commit; later insertions and removals may have moved it.
    pointer_then: String,
    /// Operations of the patch (RFC 6902) that wrote the place.
    #[schema(value_type = Vec<Object>)]
    ops: Vec<Value>,
    /// Purpose, in the author's words.
    #[schema(required)]
    intent: Option<String>,
    /// Caller that sent the proposal; null if the daemon called the worker.
    #[schema(required)]
    principal: Option<PrincipalInfo>,
    /// Version that the proposal was based on.
    #[schema(value_type = u64)]
    base: Version,
    /// Digest of the document after the commit.
    #[schema(value_type = String)]
    state_hash: Digest,
    /// Tokens used by the call, if they are known.
    #[schema(required)]
    usage: Option<UsageInfo>,
    /// Answer of the person who approved the commit, if approval was required.
    #[schema(required)]
    agreed: Option<ApprovalInfo>,
    /// Edit of files, if the commit is one.
    #[schema(required)]
    edit: Option<EditInfo>,
    /// Invocation that made the commit; null for an unsolicited proposal.
    #[schema(required, value_type = Option<u64>)]
    invocation: Option<InvocationId>,
    /// Attempt of the invocation, from 1.
    #[schema(required)]
    attempt: Option<u32>,
    /// Trigger of the invocation.
    #[schema(required)]
    trigger: Option<TriggerInfo>,
    /// View that the author had.
    #[schema(required)]
    view: Option<ViewInfo>,
    /// Earlier rejections of the invocation.
    rejected: Vec<RejectionInfo>,
}

/// Origin of a value that a commit wrote.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CommitSource {
    /// Commit.
    Commit,
}

/// Approval by a person.
#[derive(Serialize, ToSchema)]
pub(crate) struct ApprovalInfo {
    /// Number of the answer's record.
    #[schema(value_type = u64)]
    seq: Seq,
    /// Person.
    #[schema(value_type = String)]
    by: WorkerName,
    /// Reason, if the person gave one.
    #[schema(required)]
    reason: Option<String>,
    /// Caller that sent the answer.
    #[schema(required)]
    principal: Option<PrincipalInfo>,
}

/// Trigger of an invocation.
#[derive(Serialize, ToSchema)]
pub(crate) struct TriggerInfo {
    /// Number of the record that queued the invocation.
    #[schema(value_type = u64)]
    seq: Seq,
    /// Rule; null if a circuit breaker triggered the worker.
    #[schema(required, value_type = Option<String>)]
    rule: Option<RuleName>,
    /// Cause, as recorded: `kind`, and its details.
    #[schema(value_type = Object)]
    cause: Trigger,
}

/// View of a call.
#[derive(Serialize, ToSchema)]
pub(crate) struct ViewInfo {
    /// Number of the call's record.
    #[schema(value_type = u64)]
    seq: Seq,
    /// Hash of the view's text.
    #[schema(value_type = String)]
    hash: Digest,
    /// Version of the document.
    #[schema(value_type = u64)]
    version: Version,
    /// JSON Pointers of the places shown completely.
    reads: Vec<String>,
    /// JSON Pointers of the collections with all member names shown.
    members: Vec<String>,
}

/// Rejected proposal.
#[derive(Serialize, ToSchema)]
pub(crate) struct RejectionInfo {
    /// Number of the rejection's record.
    #[schema(value_type = u64)]
    seq: Seq,
    /// Attempt of the invocation, from 1.
    #[schema(required)]
    attempt: Option<u32>,
    /// Stage that failed.
    stage: &'static str,
    /// Code of the first violation.
    code: &'static str,
    /// Violations, as recorded, each with `code`, `pointer` and `message`.
    #[schema(value_type = Vec<Object>)]
    violations: Vec<Violation>,
}

/// Last write of a place.
pub enum Write<'a> {
    /// Initial document.
    Initial(InitialWrite<'a>),
    /// Commit.
    Commit {
        /// JSON Pointer of the place.
        pointer: &'a str,
        /// Current value, if the place exists.
        value: Option<&'a Node>,
        /// Data in the journal about the commit.
        commit: Box<Provenance<'a>>,
    },
}

/// Place that no commit has written.
pub struct InitialWrite<'a> {
    /// JSON Pointer of the place.
    pub pointer: &'a str,
    pub(crate) value: Option<&'a Node>,
    /// Record of the board's creation.
    pub created: Option<&'a Record>,
}

impl InitialWrite<'_> {
    /// Returns the origin of the value.
    pub fn source(&self) -> InitialSource {
        match self.pointer == "/request" || self.pointer.starts_with("/request/") {
            true => InitialSource::Request,
            false => InitialSource::Blueprint,
        }
    }
}

impl Write<'_> {
    /// Returns the report of the write.
    pub fn report(&self) -> ProvenanceReport {
        match self {
            Self::Initial(write) => ProvenanceReport::Initial(InitialValue {
                pointer: write.pointer.to_owned(),
                exists: true,
                value: write.value.cloned(),
                source: write.source(),
                seq: 0,
                version: 0,
                principal: write.created.and_then(principal),
            }),
            Self::Commit { pointer, value, commit } => {
                ProvenanceReport::Commit(Box::new(commit.report(pointer, *value)))
            }
        }
    }
}

/// Finds the last write of a place, and formats it.
pub fn explain<T>(
    reader: &Reader,
    summary: &BoardSummary,
    pointer: &str,
    format: impl FnOnce(&Write<'_>) -> T,
) -> Result<T, Failure> {
    let pointer = jsonptr::PointerBuf::parse(pointer.to_owned()).map_err(|_| {
        Failure::invalid_input("bad_pointer", format!("{pointer} is no JSON Pointer"))
            .help("a pointer is empty or begins with /; ~ is written ~0, and / within a name ~1")
    })?;
    let board = reader.board(summary, None)?;
    let records = reader.records(&summary.id)?;
    let value = board.state().get(&pointer);
    // The state knows when a value last changed; a removed value requires a search of the whole journal.
    let since = board.state().root().last_changed(&pointer);
    if since == Some(0) {
        let write = InitialWrite { pointer: pointer.as_str(), value, created: records.first() };
        return Ok(format(&Write::Initial(write)));
    }
    let before = reader.board(summary, Some(since.map_or(0, |version| u64::from(version) - 1)))?;
    let first = records.iter().position(|record| record.seq > before.head().0).unwrap_or(records.len());
    let writer = provenance::last_writer(before.state(), &records[first..], pointer.as_str());
    let writer = writer.map(|found| found.map(|writer| Writer { record: writer.record + first, ..writer }));
    let writer = writer.map_err(|index| {
        let seq = records[first + index].seq;
        Failure::failed("bad_record", format!("record {seq} holds a patch that does not apply"))
            .detail("seq", seq.0.into())
    })?;
    let Some(writer) = writer else {
        let message = format!("there is nothing at {pointer}, and there never was");
        let failure = Failure::invalid_input("no_such_place", message);
        return Err(failure.help("`patchboard state BOARD` prints the document"));
    };
    let commit = Provenance::new(&records, &writer).ok_or_else(|| {
        let seq = records[writer.record].seq;
        Failure::failed("bad_record", format!("record {seq} cannot be read")).detail("seq", seq.0.into())
    })?;
    Ok(format(&Write::Commit { pointer: pointer.as_str(), value, commit: Box::new(commit) }))
}

/// Data in the journal about one commit.
pub struct Provenance<'a> {
    /// Record of the commit.
    pub record: &'a Record,
    /// Body of the record.
    pub committed: Committed,
    /// Operations that wrote the place.
    pub ops: Vec<Value>,
    /// Pointer of the place right after the commit.
    pub then: &'a str,
    /// Record that queued the invocation, if a call made the commit.
    pub scheduled: Option<(&'a Record, &'a Scheduled)>,
    /// Record of the call's attempt.
    pub invoked: Option<(&'a Record, &'a Invoked)>,
    /// Earlier rejections of the invocation.
    pub rejected: Vec<(&'a Record, &'a Rejected)>,
    /// Person's answer, if approval was required.
    pub agreed: Option<(&'a Record, &'a record::Answer)>,
}

impl<'a> Provenance<'a> {
    /// Returns `None` if the record cannot be read.
    fn new(records: &'a [Record], writer: &'a Writer) -> Option<Self> {
        let record = &records[writer.record];
        let Ok(Body::Committed(committed)) = record.body() else { return None };
        let mut committed = committed.clone();
        let ops = writer.ops.iter().filter_map(|op| committed.patch.get(*op).cloned()).collect();
        let (mut scheduled, mut invoked, mut rejected) = (None, None, Vec::new());
        let mut agreed = None;
        if let Some(question) = committed.by.approval {
            for earlier in &records[..writer.record] {
                match earlier.body() {
                    // The cost of the call is recorded with the approval request.
                    Ok(Body::Approval(body)) if earlier.seq == question => committed.by.usage = body.by.usage,
                    Ok(Body::Answer(body)) if body.of == question => agreed = Some((earlier, body)),
                    _ => {}
                }
            }
        }
        if let Some(attempt) = &attempt_of(&committed.by).cloned() {
            let invocation = attempt.invocation;
            for earlier in &records[..writer.record] {
                match earlier.body() {
                    Ok(Body::Scheduled(body)) if body.invocation == invocation => scheduled = Some((earlier, body)),
                    Ok(Body::Invoked(body)) if is_attempt(body, attempt) => invoked = Some((earlier, body)),
                    // Earlier calls of the attempt; not counted for a single edit.
                    Ok(Body::Continued(body))
                        if committed.by.edit.is_none() && body.by.attempt.as_ref() == Some(attempt) =>
                    {
                        let usage = committed.by.usage.get_or_insert_default();
                        usage.add(body.by.usage.unwrap_or_default());
                    }
                    Ok(Body::Rejected(body))
                        if attempt_of(&body.by).is_some_and(|attempt| attempt.invocation == invocation) =>
                    {
                        rejected.push((earlier, &**body));
                    }
                    _ => {}
                }
            }
        }
        Some(Self { record, committed, ops, then: &writer.pointer, scheduled, invoked, rejected, agreed })
    }
    fn report(&self, pointer: &str, value: Option<&Node>) -> CommittedValue {
        let by = &self.committed.by;
        let attempt = attempt_of(by);
        CommittedValue {
            pointer: pointer.to_owned(),
            exists: value.is_some(),
            value: value.cloned(),
            source: CommitSource::Commit,
            worker: by.worker.clone(),
            seq: self.record.seq,
            at: self.record.at,
            version: self.committed.version,
            pointer_then: self.then.to_owned(),
            ops: self.ops.clone(),
            intent: self.committed.intent.clone(),
            principal: principal(self.record),
            base: by.base,
            state_hash: self.committed.state,
            usage: by.usage.map(UsageInfo::from),
            agreed: self.agreed.as_ref().map(|(record, answer)| ApprovalInfo {
                seq: record.seq,
                by: answer.by.clone(),
                reason: answer.reason.clone(),
                principal: principal(record),
            }),
            edit: EditLine::from_commit(&self.committed).map(|editing| editing.info()),
            invocation: attempt.map(|attempt| attempt.invocation),
            attempt: attempt.map(|attempt| attempt.number),
            trigger: self.scheduled.as_ref().map(|(record, scheduled)| TriggerInfo {
                seq: record.seq,
                rule: scheduled.rule.clone(),
                cause: scheduled.trigger.clone(),
            }),
            view: self.invoked.as_ref().map(|(record, invoked)| ViewInfo {
                seq: record.seq,
                hash: invoked.view,
                version: invoked.base,
                reads: invoked.reads.clone(),
                members: invoked.members.clone(),
            }),
            rejected: self.rejected.iter().map(rejection).collect(),
        }
    }
}

fn rejection((record, rejected): &(&Record, &Rejected)) -> RejectionInfo {
    RejectionInfo {
        seq: record.seq,
        attempt: attempt_of(&rejected.by).map(|attempt| attempt.number),
        stage: rejected.stage.as_str(),
        code: rejected.code.as_str(),
        violations: rejected.rejection.violations.clone(),
    }
}

fn principal(record: &Record) -> Option<PrincipalInfo> {
    record.principal().ok().flatten().map(PrincipalInfo::from)
}

/// Returns the attempt of a proposal, or of an edit of files.
pub fn attempt_of(by: &Author) -> Option<&Attempt> {
    by.attempt.as_ref().or_else(|| by.edit.as_ref()?.attempt.as_ref())
}

fn is_attempt(invoked: &Invoked, attempt: &Attempt) -> bool {
    invoked.invocation == attempt.invocation && invoked.attempt == attempt.number
}
