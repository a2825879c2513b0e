//! Fingerprints and idempotency keys by which a retry of a proposal or request is recognised.

use serde_json::Value;

use crate::board::{RememberedOutcome, ReplyBody};
use crate::digest::{Digest, Hasher};
use crate::expand_request::ExpandRequest;
use crate::id::{IdempotencyKey, Seq, WorkerName};
use crate::pipeline;
use crate::record::{self, Author, Body};

/// Returns the key and the outcome by which a retry of a record's proposal or request is recognised; `None` if the record
/// has no such key.
pub(super) fn remembered(seq: Seq, body: &Body) -> Option<(IdempotencyKey, RememberedOutcome)> {
    let (by, outcome) = match body {
        Body::Committed(it) => (&it.by, RememberedOutcome::Committed { seq, version: it.version, state: it.state }),
        Body::NoOp(it) => (&it.by, RememberedOutcome::NoOp { seq }),
        Body::Expanded(it) => (&it.by, RememberedOutcome::Expanded { seq }),
        Body::Approval(it) => (&it.by, RememberedOutcome::AwaitingApproval { seq }),
        Body::Rejected(it) => (&it.by, RememberedOutcome::Rejected { seq, stage: it.stage, code: it.code }),
        other => return Some((dedup_key_of_request(other)?, RememberedOutcome::Recorded { seq })),
    };
    Some((dedup_key_of_proposal(by)?, outcome))
}

/// Returns the fingerprint that identifies a retried proposal or request, from its record; `None` for other records.
pub(crate) fn reply_digest(hasher: &Hasher, format: u32, body: &Body) -> Option<Digest> {
    let text = |text: &String| ReplyBody::Text(text.clone()).digest(hasher, format);
    let proposed = |patch, intent: &Option<String>, expand: &[ExpandRequest], written: &Option<String>| match written {
        Some(written) => text(written),
        None => pipeline::fingerprint(hasher, patch, intent.as_deref(), expand),
    };
    Some(match body {
        Body::Committed(it) => proposed(&it.patch, &it.intent, &it.expand, &it.written),
        Body::NoOp(it) => match (&it.written, &it.pass) {
            (None, Some(pass)) => pipeline::pass_fingerprint(hasher, it.intent.as_deref(), pass),
            (written, _) => proposed(&it.patch, &it.intent, &[], written),
        },
        Body::Expanded(it) => proposed(&it.patch, &it.intent, &it.expand, &it.written),
        // The fingerprint of a question covers only the question.
        Body::Approval(it) if it.clarify.is_some() => it.digest,
        Body::Approval(it) => proposed(&it.patch, &it.intent, &it.expand, &it.written),
        Body::Rejected(it) => match &it.elided {
            Some(elided) => elided.fingerprint,
            None => text(it.written.as_ref().unwrap_or(&it.reply)),
        },
        Body::Signal(_) | Body::Paused(_) | Body::Resumed(_) | Body::Retried(_) => request_digest(hasher, body),
        _ => return None,
    })
}

/// Returns the token that identifies a retry of a proposal.
fn dedup_key_of_proposal(by: &Author) -> Option<IdempotencyKey> {
    match (&by.attempt, &by.token) {
        (None, Some(token)) if by.edit.is_some() => Some(edit_dedup_key(token)),
        (Some(attempt), _) => Some(IdempotencyKey::for_attempt(attempt.invocation, attempt.number)),
        (None, Some(token)) => Some(external_dedup_key(&by.worker, token)),
        (None, None) => None,
    }
}

/// Returns the token of an external request other than a proposal. No worker's name is empty, so it collides with no
/// worker's token.
pub(in crate::board) fn dedup_key_of_request(body: &Body) -> Option<IdempotencyKey> {
    let token = match body {
        Body::Signal(signal) => signal.token.as_ref(),
        Body::Paused(steered) | Body::Resumed(steered) => steered.token.as_ref(),
        Body::Retried(retried) => retried.token.as_ref(),
        _ => None,
    };
    token.map(request_dedup_key)
}

/// Returns the key under which a request's token is remembered, separate from those of workers.
pub(in crate::board) fn request_dedup_key(token: &IdempotencyKey) -> IdempotencyKey {
    external_dedup_key(&WorkerName::from(""), token)
}

pub(in crate::board) fn request_digest(hasher: &Hasher, body: &Body) -> Digest {
    match body {
        Body::Signal(signal) => hasher.commitment(0, &signal.name, &signal.value),
        Body::Retried(retried) => {
            let asked = record::Retried { token: None, ..retried.clone() };
            let asked = serde_json::to_value(asked).expect("names and numbers are JSON");
            hasher.commitment(2, body.kind().as_str(), &asked)
        }
        // The separate number keeps a signal of that name from matching.
        other => hasher.commitment(1, other.kind().as_str(), &Value::Null),
    }
}

/// Returns the key of an edit's token, separate from those of workers and requests. It omits the author, so that a
/// retry is recognised after the attempt has ended.
pub(in crate::board) fn edit_dedup_key(token: &IdempotencyKey) -> IdempotencyKey {
    external_dedup_key(&WorkerName::from("$edit"), token)
}

/// Returns the key of an external token, separate from those of attempts and other workers.
pub(in crate::board) fn external_dedup_key(worker: &WorkerName, token: &IdempotencyKey) -> IdempotencyKey {
    IdempotencyKey::from(format!("{worker}/{token}"))
}
