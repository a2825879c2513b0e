//! AG-UI 1.0 event encoding: maps each journal record to events, given the state of the reader's stream.
//!
//! Pure functions over plain data; `routes::agui` delivers the events. A reader holds the document of one version. A
//! commit is sent as a delta if its patch, applied to that document, yields the recorded digest and every client
//! applies it alike. Otherwise the full document is sent.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use patchboard_kernel::blueprint::PatchLimits;
use patchboard_kernel::board::PendingQuestion;
use patchboard_kernel::breaker::{BreakerTransition, Reason};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{InvocationId, RuleName, Seq, Timestamp, Version, WorkerName};
use patchboard_kernel::patch::{self, Op};
use patchboard_kernel::record::{self, Approval, Author, Body, Cause, Committed, End, Ended, Record, Skipped};
use patchboard_kernel::state::{ResultLimits, State};
use patchboard_kernel::tree::Node;
use serde::Serialize;
use serde_json::{Value, json};

use crate::queries::questions::QuestionInfo;
use crate::reader::format_time;

const PROTOCOL: &str = "1.0";

/// Name prefix of our `CUSTOM` events.
const PREFIX: &str = "patchboard.";

/// Run requested by a reader. One stream is one run, which ends when the board is at rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RunIds {
    /// The reader's name for the conversation.
    pub(crate) thread: String,
    /// The reader's name for the run.
    pub(crate) run: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Event {
    /// Sequence number after which the reader resumes; `None` if resuming here would lose an event.
    #[serde(skip)]
    pub(crate) id: Option<Seq>,
    #[serde(flatten)]
    pub(crate) body: EventBody,
    /// Time, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<i64>,
    /// Record and version that the event refers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Value>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub(crate) enum EventBody {
    RunStarted {
        thread_id: String,
        run_id: String,
        protocol_version: &'static str,
    },
    StepStarted {
        step_name: String,
    },
    StepFinished {
        step_name: String,
    },
    StateSnapshot {
        snapshot: Node,
    },
    /// Patch from the previous version of the document to this one.
    StateDelta {
        delta: Value,
    },
    /// Record for which the protocol has no event type.
    Custom {
        name: String,
        value: Value,
    },
    /// The board has come to rest.
    RunFinished {
        thread_id: String,
        run_id: String,
        outcome: Value,
        result: Value,
    },
    /// The board has failed or stopped, or the stream cannot continue.
    RunError {
        message: String,
        code: String,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum RestReason<'a> {
    /// The board has ended, finally or until it is resumed.
    Ended(Ended),
    /// The board waits only for answers of people.
    AwaitsAnswers(&'a BTreeMap<Seq, PendingQuestion>),
}

#[derive(Debug, Default)]
pub(crate) struct RecordEvents {
    pub(crate) events: Vec<Event>,
    /// True if the reader's document cannot be advanced by a delta, so the full document must follow.
    pub(crate) needs_document: bool,
}

pub(crate) struct EventEncoder {
    run: RunIds,
    /// Document that the reader holds.
    document: Option<State>,
    /// Rules of queued invocations that the stream has seen.
    queued: BTreeMap<InvocationId, Option<RuleName>>,
    /// Steps started and not yet finished.
    steps: BTreeMap<InvocationId, Step>,
    /// Invocations that wait for a person's clarification, keyed by the record of the question.
    asking: BTreeMap<Seq, InvocationId>,
}

struct Step {
    worker: WorkerName,
    /// `None` if the invocation was scheduled before the stream began.
    rule: Option<Option<RuleName>>,
}

impl EventEncoder {
    /// Creates a reader that holds this document, or no document.
    pub(crate) const fn new(run: RunIds, document: Option<State>) -> Self {
        Self { run, document, queued: BTreeMap::new(), steps: BTreeMap::new(), asking: BTreeMap::new() }
    }

    pub(crate) fn run_started(&self) -> Event {
        let RunIds { thread, run } = self.run.clone();
        Event::new(EventBody::RunStarted { thread_id: thread, run_id: run, protocol_version: PROTOCOL })
    }

    pub(crate) fn version(&self) -> Option<Version> {
        self.document.as_ref().map(State::version)
    }

    /// Sends the full document as of a record; closes the steps under way and forgets the queued invocations.
    pub(crate) fn send_document(&mut self, state: &State, seq: Seq, at: Timestamp) -> Vec<Event> {
        self.document = Some(state.clone());
        self.queued.clear();
        self.asking.clear();
        let snapshot = state.root().clone();
        let metadata = Some(metadata(seq, Some(state.version())));
        let event = Event { id: Some(seq), metadata, ..Event::new(EventBody::StateSnapshot { snapshot }) };
        self.finish_steps(event, Some(at))
    }

    /// Shares the allocation of an equal document, to save memory.
    pub(crate) fn share_document(&mut self, state: &State) {
        if self.document.as_ref() == Some(state) {
            self.document = Some(state.clone());
        }
    }

    pub(crate) fn encode_record(&mut self, record: &Record) -> RecordEvents {
        // An unreadable body yields no events; its effect on the document shows in the next version.
        let Ok(body) = record.body() else { return RecordEvents::default() };
        let (mut events, mut needs_document) = (Vec::new(), false);
        if is_custom(body)
            && let Ok(value) = record::merge_fields(record)
        {
            let name = format!("{PREFIX}{}", record.kind);
            events.push(Event::new(EventBody::Custom { name, value: value.into() }));
        }
        match body {
            Body::Scheduled(scheduled) => drop(self.queued.insert(scheduled.invocation, scheduled.rule.clone())),
            Body::Skipped(Skipped { invocation: Some(invocation), .. }) => drop(self.queued.remove(invocation)),
            Body::Invoked(invoked) => {
                let rule = self.queued.remove(&invoked.invocation);
                if let Entry::Vacant(place) = self.steps.entry(invoked.invocation) {
                    let step = place.insert(Step { worker: invoked.worker.clone(), rule });
                    events.push(Event::new(EventBody::StepStarted { step_name: step.name(invoked.invocation) }));
                }
            }
            Body::Approval(Approval { by: Author { attempt: Some(attempt), .. }, clarify: Some(_), .. }) => {
                self.asking.insert(record.seq, attempt.invocation);
            }
            _ => {}
        }
        for invocation in self.closed_by(body) {
            self.queued.remove(&invocation);
            self.asking.retain(|_, asking| *asking != invocation);
            if let Some(step) = self.steps.remove(&invocation) {
                events.push(Event::new(EventBody::StepFinished { step_name: step.name(invocation) }));
            }
        }
        let mut version = None;
        if let Body::Committed(committed) = body {
            version = Some(committed.version);
            match self.apply_commit(committed) {
                Some(event_body) => events.push(Event::new(event_body)),
                None => needs_document = true,
            }
        }
        for event in &mut events {
            event.timestamp = Some(record.at.0);
            event.metadata = Some(metadata(record.seq, version));
        }
        // Only the last event has the id, so a stream that breaks off in between resumes before this record.
        if let Some(last) = events.last_mut().filter(|_| !needs_document) {
            last.id = Some(record.seq);
        }
        RecordEvents { events, needs_document }
    }

    pub(crate) fn finish_at_rest(&mut self, reason: RestReason<'_>, at: Timestamp) -> Vec<Event> {
        let (thread_id, run_id) = (self.run.thread.clone(), self.run.run.clone());
        let version = self.version();
        let finished = |outcome, end: &str, cause: Option<Cause>| {
            let result = json!({"end": end, "cause": cause, "version": version});
            EventBody::RunFinished { thread_id, run_id, outcome, result }
        };
        let body = match reason {
            RestReason::Ended(Ended { end: end @ (End::Done | End::Quiescent), cause }) => {
                finished(json!({"type": "success"}), end.as_str(), Some(cause))
            }
            RestReason::Ended(Ended { end: end @ End::Cancelled, cause }) => {
                finished(json!({"type": "cancelled"}), end.as_str(), Some(cause))
            }
            RestReason::Ended(Ended { end: end @ (End::Stopped | End::Failed), cause }) => {
                EventBody::RunError { message: format!("the board is {end}: {cause}"), code: cause.to_string() }
            }
            RestReason::AwaitsAnswers(pending) => {
                let interrupts: Vec<Value> = pending.iter().map(|(seq, question)| interrupt(*seq, question)).collect();
                finished(json!({"type": "interrupt", "interrupts": interrupts}), "waiting", None)
            }
        };
        self.finish_steps(Event::new(body), Some(at))
    }

    pub(crate) fn fail(&mut self, code: &str, message: String) -> Vec<Event> {
        self.finish_steps(Event::new(EventBody::RunError { message, code: code.to_owned() }), None)
    }

    /// Finishes all steps, as the protocol requires before a run ends, and adds the event that follows.
    fn finish_steps(&mut self, next: Event, at: Option<Timestamp>) -> Vec<Event> {
        let steps = std::mem::take(&mut self.steps);
        let finished = |(id, step): (&_, &Step)| Event::new(EventBody::StepFinished { step_name: step.name(*id) });
        let mut events: Vec<Event> = steps.iter().map(finished).chain([next]).collect();
        for event in &mut events {
            event.timestamp = at.map(|at| at.0);
        }
        events
    }

    fn closed_by(&self, body: &Body) -> Vec<InvocationId> {
        let own = || body.author().and_then(|by| Some(by.attempt.as_ref()?.invocation)).into_iter().collect();
        match body {
            Body::Committed(_) | Body::NoOp(_) | Body::Expanded(_) => own(),
            Body::Rejected(it) if it.is_final => own(),
            Body::Failed(it) if it.is_final => own(),
            Body::Budget(it) if !it.is_tried_again => it.invocation.into_iter().collect(),
            // The invocation is continued by another, which gets the answer.
            Body::Answer(it) if it.text.is_some() => self.asking.get(&it.of).copied().into_iter().collect(),
            // An opened breaker cancels the calls of its rule; after a budget breaker, calls already paid for may still
            // reply.
            Body::Breaker(it) if it.change == BreakerTransition::Opened && it.reason != Reason::Budget => {
                let is_of =
                    |step: &Step| step.worker == it.worker && step.rule.as_ref().is_none_or(|rule| *rule == it.rule);
                self.steps.iter().filter(|(_, step)| is_of(step)).map(|(id, _)| *id).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Applies a commit to the reader's document. Returns `None` if the result cannot be derived.
    fn apply_commit(&mut self, committed: &Committed) -> Option<EventBody> {
        let before = self.document.as_ref().filter(|has| has.version().next() == committed.version)?;
        let (delta, after) = apply_patch(before, &committed.patch, committed.state)?;
        let snapshot = after.root().clone();
        self.document = Some(after);
        Some(delta.map_or(EventBody::StateSnapshot { snapshot }, |delta| EventBody::StateDelta { delta }))
    }
}

impl Step {
    fn name(&self, invocation: InvocationId) -> String {
        format!("{} #{invocation}", self.worker)
    }
}

impl Event {
    const fn new(body: EventBody) -> Self {
        Self { id: None, body, timestamp: None, metadata: None }
    }

    /// Returns true if the event ends the stream.
    pub(crate) const fn is_last(&self) -> bool {
        matches!(self.body, EventBody::RunFinished { .. } | EventBody::RunError { .. })
    }
}

fn metadata(seq: Seq, version: Option<Version>) -> Value {
    if let Some(version) = version { json!({"seq": seq, "version": version}) } else { json!({"seq": seq}) }
}

/// Applies a patch without its `test` operations, which have held. Returns the delta, if all clients apply it alike,
/// and the new document; `None` unless that has this digest.
fn apply_patch(before: &State, patch: &Value, digest: Digest) -> Option<(Option<Value>, State)> {
    // The kernel has checked the size limits before the commit.
    let limits = PatchLimits { max_ops: u32::MAX, max_bytes: u32::MAX, ..PatchLimits::default() };
    let ops = patch::parse(patch, &limits).ok()?;
    let ops: Vec<Op<'_>> = ops.into_iter().filter(|op| !matches!(op, Op::Test { .. })).collect();
    let mut candidate = before.candidate();
    for op in &ops {
        candidate.apply(op, ResultLimits { bytes: u64::MAX, depth: u32::MAX }).ok()?;
    }
    let after = candidate.into_state();
    let is_taken = ops.iter().all(is_portable);
    (after.digest() == digest).then(|| (is_taken.then(|| patch::to_value(&ops)), after))
}

/// Returns true if every client applies the operation. JavaScript clients reject `__proto__` and
/// `constructor/prototype` in paths, and then keep the old document.
fn is_portable(op: &Op<'_>) -> bool {
    let from = match op {
        Op::Move { from, .. } | Op::Copy { from, .. } => Some(*from),
        Op::Add { .. } | Op::Remove { .. } | Op::Replace { .. } | Op::Test { .. } => None,
    };
    [Some(op.path()), from].into_iter().flatten().all(|way| {
        let names: Vec<_> = way.tokens().map(|token| token.decoded().into_owned()).collect();
        let is_banned = |(index, name): (usize, &String)| {
            name == "__proto__" || (name == "prototype" && index > 0 && names[index - 1] == "constructor")
        };
        !names.iter().enumerate().any(is_banned)
    })
}

/// Returns true if a record is sent as a `CUSTOM` event.
const fn is_custom(body: &Body) -> bool {
    use Body::*;
    match body {
        // A pass carries the worker's reason.
        NoOp(no_op) => no_op.pass.is_some(),
        Rejected(_) | Failed(_) | Deferred(_) | Late(_) | Skipped(_) | Approval(_) | Answer(_) | Breaker(_)
        | Budget(_) | Paused(_) | Resumed(_) | Retried(_) | Signal(_) => true,
        Created(_) | Epoch(_) | Scheduled(_) | Invoked(_) | Continued(_) | Committed(_) | Expanded(_) | Reserved(_)
        | Tick(_) | Jumped(_) | Snapshot(_) | Redacted(_) | Ended(_) => false,
    }
}

/// Builds the interrupt for a question to a person. Its id holds the record of the question and the digest of the
/// content shown.
fn interrupt(seq: Seq, question: &PendingQuestion) -> Value {
    let mut properties = json!({"agrees": {"type": "boolean"}, "reason": {"type": "string"}});
    let (reason, message) = match &question.clarify {
        Some(clarify) => {
            properties["text"] = json!({"type": "string"});
            if !clarify.choices.is_empty() {
                properties["text"]["enum"] = json!(clarify.choices);
            }
            ("clarify", clarify.question.clone())
        }
        None => {
            let worker = &question.by.worker;
            ("approval", question.intent.clone().unwrap_or_else(|| format!("{worker} asks for approval")))
        }
    };
    let mut interrupt = json!({
        "id": format!("{seq}:{}", question.digest),
        "reason": format!("{PREFIX}{reason}"),
        "message": message,
        "responseSchema": {"type": "object", "required": ["agrees"], "properties": properties},
        "metadata": QuestionInfo::new(seq, question),
    });
    if let Some(expires) = question.expires {
        interrupt["expiresAt"] = format_time(expires).into();
    }
    interrupt
}

/// Parses the id of an interrupt: the record of the question, and the digest of the content shown.
pub(crate) fn parse_interrupt_id(id: &str) -> Option<(Seq, Digest)> {
    let (seq, digest) = id.split_once(':')?;
    Some((Seq(seq.parse().ok()?), digest.parse().ok()?))
}

/// Returns the version and the record after which a reader resumes, given its last event or its document's digest.
/// `None` if the records do not determine it. `recent` are the board's last records, `now` its version.
pub(crate) fn resume_point(
    recent: &[Record],
    now: Version,
    last: Option<Seq>,
    client_digest: Option<Digest>,
) -> Option<(Version, Seq)> {
    let first = recent.first()?.seq;
    let commits: Vec<(Seq, Version, Digest)> = recent.iter().filter_map(commit).collect();
    let by_event = last.filter(|last| last.next() >= first && recent.last().is_some_and(|end| *last <= end.seq));
    let by_event = by_event.map(|last| match commits.iter().find(|(seq, ..)| *seq > last) {
        Some((_, version, _)) => (Version(version.0.saturating_sub(1)), last),
        None => (now, last),
    });
    // If the document's digest differs from that of the version, the digest takes precedence over the event id.
    let known = |version: Version| commits.iter().find(|(_, made, _)| *made == version).map(|(.., digest)| *digest);
    let fits = |(version, _): &(Version, Seq)| {
        client_digest.is_none() || known(*version).is_none_or(|digest| Some(digest) == client_digest)
    };
    let by_document = || {
        let newest = commits.iter().rev().find(|(.., digest)| Some(*digest) == client_digest);
        newest.map(|(seq, version, _)| (*version, *seq))
    };
    by_event.filter(fits).or_else(by_document)
}

/// Returns the version and digest of the document that a record produced, if it did.
fn commit(record: &Record) -> Option<(Seq, Version, Digest)> {
    match record.body().ok()? {
        Body::Committed(committed) => Some((record.seq, committed.version, committed.state)),
        Body::Created(created) => Some((record.seq, Version(0), created.state)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
