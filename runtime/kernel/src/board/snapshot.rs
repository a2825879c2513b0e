//! Encodes a whole board as stored parts and restores it; the format is in [`crate::snapshot`].
//!
//! The plan and the hasher follow from the `created` record and are not stored. Everything else is:
//! [`Board::to_stored`] destructures the board field by field, so that no field can be forgotten.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jsonptr::PointerBuf;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::commits::CommitLog;
use super::creation::initial;
use super::dedup::Dedup;
use super::{Board, BoardError, PendingQuestion, UndecidedRule};
use crate::breaker::{Branch, Breaker};
use crate::digest::{Digest, Hasher, sha256};
use crate::files::{FILES, FileCounters};
use crate::freshness::{ReadSet, Reservations};
use crate::id::{BoardId, InvocationId, RuleName, Seq, Timestamp, WorkerName};
use crate::ledger::Ledger;
use crate::plan::{Plan, PlanSource};
use crate::record::{
    Body, Ended, LimitOverrides, Parent, PauseCause, Principal, Record, SINCE_ADMISSION, WorkerLimitOverrides,
};
use crate::scheduler::{IneffectiveInvocations, QueuedInvocation, Scheduler};
use crate::signal_payload::SignalPayload;
use crate::snapshot::{LAYOUT, SnapshotError, SnapshotPart, optional, pairs};
use crate::state::State;
use crate::tree::{Edit, Mark, Node, Reader, Revision, Writer};
use crate::view::Shortage;

/// Minimum bytes allowed for a board's data outside its documents, independent of the stored size.
const REST_BYTES_MIN: u64 = 16 << 20;
/// Maximum expansion of repeated parts beyond that, as a multiple of the stored size.
const REST_REPEATED_MAX: u64 = 16;

/// Maximum of a record number, an epoch, an invocation or a millisecond: the integers that a header holds exactly.
const COUNTED_MAX: u64 = (1 << 53) - 1;

/// A snapshot, with its parts passed to the sink.
pub struct EncodedSnapshot<'b> {
    /// The manifest, passed last; its hash is the snapshot's digest.
    pub manifest: SnapshotPart,
    /// The last record it includes.
    pub of: Seq,
    marks: Vec<Mark<'b>>,
}

impl EncodedSnapshot<'_> {
    /// Confirms that all parts are stored: the next snapshot names them without passing them to its sink.
    pub fn confirm(self) {
        self.marks.into_iter().for_each(Mark::confirm);
    }
}

/// All board data that is neither in a tree, nor in the `created` record, nor in the manifest itself.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredBoard {
    epoch: u64,
    paused: bool,
    ended: Option<Ended>,
    scheduler: Scheduler,
    breaker: Breaker,
    ledger: Ledger,
    short: bool,
    exhausted: BTreeSet<WorkerName>,
    gave_up: bool,
    tokens: Dedup,
    commits: CommitLog,
    #[serde(default, skip_serializing_if = "crate::is_default")]
    files: FileCounters,
    reservations: Reservations,
    /// For each open invocation: the tree index of its view, and the places it showed (reads, then members).
    bases: Vec<(InvocationId, usize, Vec<PointerBuf>, Vec<PointerBuf>)>,
    feedback: BTreeMap<WorkerName, VecDeque<(Seq, Value)>>,
    #[serde(default, with = "pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pending: BTreeMap<Seq, PendingQuestion>,
    #[serde(with = "optional")]
    signal: Option<SignalPayload>,
    last_at: Timestamp,
    running_ms: u64,
    /// Present since the format with admission; snapshots of older boards stay unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since_admission: Option<SinceAdmission>,
}

/// Fields since format 10.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SinceAdmission {
    format: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pause_cause: Option<PauseCause>,
    #[serde(default, skip_serializing_if = "crate::is_default")]
    raised: LimitOverrides,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    raised_of_workers: BTreeMap<WorkerName, WorkerLimitOverrides>,
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    given_up: VecDeque<QueuedInvocation>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    forgotten: BTreeSet<RuleName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    undecided: Vec<UndecidedRule>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    shortages: BTreeMap<WorkerName, Shortage>,
    #[serde(default, with = "pairs", skip_serializing_if = "BTreeMap::is_empty")]
    in_vain: BTreeMap<Branch, IneffectiveInvocations>,
    /// Present since format 20; 0 before.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    journal_bytes: u64,
}

/// The manifest; see [`crate::snapshot`]. Tree values are read separately.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    board: BoardId,
    seal: Digest,
    head: (Seq, Digest),
    trees: Vec<(Revision, Digest, Value)>,
    rest: Value,
}

impl Board {
    /// Destructures the board into its documents, the state first, and the rest.
    fn to_stored(&self) -> (Vec<&State>, StoredBoard) {
        // The first record has id, parent, creator and salt; the manifest has id and head. A redacted board is stored only
        // once it holds none of the redacted values.
        let mut trees = vec![&self.state];
        let mut bases = Vec::new();
        for (invocation, open) in self.scheduler.open() {
            let ReadSet { state: base, reads, members } = &*open.basis;
            let place = trees.iter().position(|tree| tree.revision() == base.revision()).unwrap_or_else(|| {
                trees.push(base);
                trees.len() - 1
            });
            bases.push((*invocation, place, reads.clone(), members.clone()));
        }
        let rest = StoredBoard {
            epoch: self.epoch,
            paused: self.paused,
            ended: self.ended,
            scheduler: self.scheduler.clone(),
            breaker: self.breaker.clone(),
            ledger: self.ledger.clone(),
            short: self.budget_exceeded,
            exhausted: self.exhausted.clone(),
            gave_up: self.gave_up,
            tokens: self.dedup.clone(),
            commits: self.commits.clone(),
            files: self.files,
            reservations: self.reservations.clone(),
            bases,
            feedback: self.feedback.clone(),
            pending: BTreeMap::clone(&self.pending),
            signal: self.signal.clone(),
            last_at: self.last_at,
            running_ms: self.running_ms,
            since_admission: (self.format >= SINCE_ADMISSION).then(|| SinceAdmission {
                format: self.format,
                pause_cause: self.pause_cause,
                raised: self.raised,
                raised_of_workers: self.raised_of_workers.clone(),
                given_up: self.given_up.clone(),
                forgotten: self.forgotten_rules.clone(),
                undecided: self.undecided.clone(),
                shortages: BTreeMap::clone(&self.shortages),
                in_vain: self.ineffective.clone(),
                journal_bytes: self.journal_bytes,
            }),
        };
        (trees, rest)
    }

    /// Passes the parts that no confirmed snapshot of this board has stored to `sink`, each after its dependencies and
    /// the manifest last. With `all`, passes every part. After an error of `sink`, nothing counts as stored.
    pub fn store<E>(
        &self,
        all: bool,
        sink: &mut dyn FnMut(SnapshotPart) -> Result<(), E>,
    ) -> Result<EncodedSnapshot<'_>, E> {
        let (trees, rest) = self.to_stored();
        let rest = serde_json::to_value(rest).expect("what a board holds has string keys and finite numbers");
        // Built for this snapshot alone, so its parts are passed each time.
        let rest = Node::from_value(&rest, &Edit { revision: 0, hasher: Arc::new(self.hasher.clone()) });
        let unmarked = |node: &Node, sink: &mut dyn FnMut(SnapshotPart) -> Result<(), E>| {
            let mut writer = Writer::new(true, sink);
            writer.value(node)?;
            Ok(writer.finish().0)
        };
        let rest = unmarked(&rest, sink)?;
        let of = self.head.0;
        let board = serde_json::to_string(&self.id).expect("a text is JSON");
        let (manifest, marks) = {
            let mut writer = Writer::new(all, sink);
            writer.raw(&format!(
                "{{\"layout\":{LAYOUT},\"board\":{board},\"seal\":\"{}\",\"head\":[{of},\"{}\"],\"trees\":[",
                self.hasher.seal(),
                self.head.1,
            ));
            for (index, tree) in trees.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                writer.raw(&format!("{comma}[{},\"{}\",", tree.revision(), tree.digest()));
                writer.value(tree.root())?;
                writer.raw("]");
            }
            writer.raw("],\"rest\":");
            writer.written(&rest);
            writer.raw("}");
            writer.finish()
        };
        sink(manifest.clone())?;
        Ok(EncodedSnapshot { manifest, of, marks })
    }

    /// Returns the digest of a snapshot of the current board, without storing anything.
    pub fn snapshot_digest(&self) -> Digest {
        let stored = self.store(true, &mut |_| Ok::<_, std::convert::Infallible>(()));
        match stored {
            Ok(stored) => stored.manifest.hash,
        }
    }

    /// Restores a board from its first record and a snapshot. `fetch` returns the text stored under a hash; its hash is
    /// verified here. The caller folds the records after the snapshot's head; one of them must name the snapshot. After
    /// a [`SnapshotError`], rebuild the board from its records instead.
    pub fn restore(
        created: &Record,
        digest: Digest,
        fetch: &mut dyn FnMut(Digest) -> Result<Option<String>, SnapshotError>,
        plans: &dyn PlanSource,
    ) -> Result<Self, SnapshotError> {
        let unreadable = |what: &str| SnapshotError::Unreadable(what.to_owned());
        let text = fetch(digest)?.ok_or(SnapshotError::Missing(digest))?;
        if sha256(text.as_bytes()) != digest {
            return Err(SnapshotError::Altered(digest));
        }
        let mut manifest: Value = serde_json::from_str(&text).map_err(|error| unreadable(&error.to_string()))?;
        let layout = manifest.as_object_mut().and_then(|members| members.remove("layout"));
        let layout = layout.and_then(|layout| layout.as_u64()).unwrap_or(0);
        if layout != u64::from(LAYOUT) {
            return Err(SnapshotError::OtherLayout(layout));
        }
        let manifest: Manifest = serde_json::from_value(manifest).map_err(|error| unreadable(&error.to_string()))?;
        let Manifest { board: id, seal, head, trees, rest } = manifest;
        let identity = identity(created, plans).map_err(|error| unreadable(&error.to_string()))?;
        let Identity { id: created_id, parent, creator: founder, plan, hasher } = identity;
        if id != created_id || seal != hasher.seal() {
            return Err(unreadable("it is of another board"));
        }
        // Parts may be shared, so a few of them can expand beyond memory. A document is limited by the blueprint's
        // `state_bytes` or the size of the initial one.
        let document_max = plan.blueprint.limits.state_bytes.max(2 * created.payload.len() as u64);
        let latest = trees.first().map_or(0, |(at, ..)| *at);
        let mut reader = Reader::new(fetch, &hasher, latest);
        let mut states = Vec::with_capacity(trees.len());
        for (at, digest, value) in trees {
            let root = reader.value(value)?;
            if root.bytes() > document_max {
                return Err(unreadable("it holds a document that is too large"));
            }
            let state = State::restored(root, at, digest, &hasher).filter(|state| state.revision() <= latest);
            states.push(state.ok_or_else(|| unreadable("a document has not the digest it must have"))?);
        }
        let rest = reader.value(rest)?;
        if rest.bytes() > REST_BYTES_MIN + REST_REPEATED_MAX * reader.fetched() {
            return Err(unreadable("it repeats the same too often"));
        }
        let rest = rest.to_value();
        let mut rest: StoredBoard = serde_json::from_value(rest).map_err(|error| unreadable(&error.to_string()))?;
        let state = states.first().cloned().ok_or_else(|| unreadable("it holds no document"))?;
        let created_format = match created.body() {
            Ok(Body::Created(created)) => created.format,
            _ => return Err(unreadable("a journal begins with created")),
        };
        let since = match rest.since_admission.take() {
            Some(since) => since,
            // A scheduled invocation may have been given up, by its last attempt, a breaker, a budget or the end.
            None if rest.scheduler.next_id() > InvocationId(1) => {
                return Err(SnapshotError::TooOld("what was given up"));
            }
            None => SinceAdmission { format: created_format, ..SinceAdmission::default() },
        };
        // No real board reaches this bound, so later counting cannot overflow.
        let (next, at, floor) = (rest.scheduler.next_id().0, rest.last_at.0.unsigned_abs(), rest.files.version_floor);
        let counted = [head.0.0, rest.epoch, next, rest.running_ms, at, floor, since.journal_bytes];
        if counted.into_iter().any(|number| number > COUNTED_MAX) {
            return Err(unreadable("it counts further than a board can"));
        }
        if rest.commits.len() as u64 != state.version().0 || rest.files.edits > state.version().0 {
            return Err(unreadable("a version has no author"));
        }
        // The snapshot predates the edit count; only the journal has it.
        let knows_files = |state: &State| state.root().child(FILES).is_some_and(|files| files.part_count() > 0);
        if plan.blueprint.workspace.is_some() && rest.files.edits == 0 && knows_files(&state) {
            return Err(SnapshotError::TooOld("how many edits of files there were"));
        }
        let is_each_shown = rest.bases.iter().map(|(invocation, ..)| invocation).eq(rest.scheduler.open().keys());
        for (invocation, place, reads, members) in rest.bases {
            let basis = states.get(place).map(|state| ReadSet { state: state.clone(), reads, members });
            if !basis.is_some_and(|basis| rest.scheduler.restore_basis(invocation, basis)) || !is_each_shown {
                return Err(unreadable(&format!("what invocation {invocation} was shown is not in it")));
            }
        }
        // Decisions rely on a seat for every invocation that is queued or under way.
        let mut seen = BTreeSet::new();
        let open = rest.scheduler.open().iter().map(|(invocation, open)| (*invocation, &open.queued));
        for (invocation, queued) in open.chain(rest.scheduler.queue().iter().map(|queued| (queued.invocation, queued)))
        {
            let is_one =
                invocation == queued.invocation && invocation < rest.scheduler.next_id() && seen.insert(invocation);
            if !is_one || !plan.workers.contains_key(&queued.branch.worker) {
                return Err(unreadable(&format!("invocation {invocation} cannot be")));
            }
        }
        let retriable = since.given_up.iter().chain(since.in_vain.values().flat_map(IneffectiveInvocations::all));
        if let Some(queued) = retriable.into_iter().find(|queued| !plan.workers.contains_key(&queued.branch.worker)) {
            return Err(unreadable(&format!("invocation {} cannot be", queued.invocation)));
        }
        let dedup = rest.tokens.with_limits(&plan.blueprint.limits);
        Ok(Self {
            id,
            parent,
            creator: founder,
            plan,
            hasher: Hasher::clone(&hasher),
            state,
            head,
            epoch: rest.epoch,
            format: since.format,
            paused: rest.paused,
            pause_cause: since.pause_cause,
            ended: rest.ended,
            raised: since.raised,
            raised_of_workers: since.raised_of_workers,
            given_up: since.given_up,
            forgotten_rules: since.forgotten,
            undecided: since.undecided,
            shortages: Arc::new(since.shortages),
            ineffective: since.in_vain,
            scheduler: rest.scheduler,
            breaker: rest.breaker,
            ledger: rest.ledger,
            budget_exceeded: rest.short,
            exhausted: rest.exhausted,
            gave_up: rest.gave_up,
            dedup,
            commits: rest.commits,
            files: rest.files,
            reservations: rest.reservations,
            feedback: rest.feedback,
            pending: Arc::new(rest.pending),
            signal: rest.signal,
            last_at: rest.last_at,
            running_ms: rest.running_ms,
            journal_bytes: since.journal_bytes,
            opaque_until: Seq(0),
            is_exact: true,
        })
    }
}

/// Data of the first record that no snapshot repeats.
struct Identity {
    id: BoardId,
    parent: Option<Parent>,
    creator: Option<Principal>,
    plan: Arc<Plan>,
    hasher: Arc<Hasher>,
}

fn identity(created: &Record, plans: &dyn PlanSource) -> Result<Identity, BoardError> {
    let bad = |message: String| BoardError::BadRecord { seq: created.seq, message };
    created.check_chain(crate::record::GENESIS).map_err(|error| bad(error.to_string()))?;
    let Body::Created(body) = created.body().map_err(|error| bad(error.to_string()))? else {
        return Err(bad("a journal begins with created".to_owned()));
    };
    let hasher = Hasher::new(&body.salt);
    // Blueprint and salt are values: the chain covers only their commitments.
    created.check_values(&hasher).map_err(|error| bad(error.to_string()))?;
    let blueprint = body.read_blueprint().map_err(bad)?;
    let plan = plans.plan_for_format(blueprint, &body.mode, body.format).map_err(bad)?;
    let hasher = Arc::new(hasher);
    let begins = initial(&plan.blueprint, &body.request);
    let edit = Edit { revision: 0, hasher: Arc::clone(&hasher) };
    let request = Node::from_value(begins.get("request").unwrap_or(&Value::Null), &edit);
    let plan = plan.for_request(&request).map_err(bad)?;
    let founder = created.principal().map_err(|error| bad(error.to_string()))?;
    Ok(Identity { id: body.board.clone(), parent: body.parent.clone(), creator: founder, plan, hasher })
}
