//! Fingerprints and idempotency keys by which a retry of a proposal or request is recognised.

use serde_json::Value;

use crate::board::ReplyBody;
use crate::digest::{Digest, Hasher};
use crate::expand_request::ExpandRequest;
use crate::id::{IdempotencyKey, WorkerName};
use crate::pipeline;
use crate::record::{self, Author, Body, NoOp, Rejected};

/// Returns the fingerprint that identifies a retry of a rejected proposal.
pub(super) fn digest_of_rejected(hasher: &Hasher, format: u32, rejected: &Rejected) -> Digest {
    match &rejected.elided {
        Some(elided) => elided.fingerprint,
        None => {
            let text = rejected.written.as_ref().unwrap_or(&rejected.reply);
            ReplyBody::Text(text.clone()).digest(hasher, format)
        }
    }
}

/// Returns the fingerprint that identifies a retried proposal or request, from its record; `None` for other records.
pub(crate) fn reply_digest(hasher: &Hasher, format: u32, body: &Body) -> Option<Digest> {
    let proposed = |patch, intent: &Option<String>, expand: &[ExpandRequest], written: &Option<String>| {
        fingerprint((hasher, format), patch, intent.as_deref(), expand, written.as_ref())
    };
    match body {
        Body::Committed(it) => Some(proposed(&it.patch, &it.intent, &it.expand, &it.written)),
        Body::NoOp(it) => Some(fingerprint_of_no_op((hasher, format), it)),
        Body::Expanded(it) => Some(proposed(&it.patch, &it.intent, &it.expand, &it.written)),
        Body::Approval(it) if it.clarify.is_some() => Some(it.digest),
        Body::Approval(it) => Some(proposed(&it.patch, &it.intent, &it.expand, &it.written)),
        Body::Rejected(it) => Some(digest_of_rejected(hasher, format, it)),
        Body::Signal(_) | Body::Paused(_) | Body::Resumed(_) | Body::Retried(_) => Some(request_digest(hasher, body)),
        _ => None,
    }
}

pub(super) fn fingerprint(
    (hasher, format): (&Hasher, u32),
    patch: &Value,
    intent: Option<&str>,
    expand: &[ExpandRequest],
    written: Option<&String>,
) -> Digest {
    match written {
        Some(written) => ReplyBody::Text(written.clone()).digest(hasher, format),
        None => pipeline::fingerprint(hasher, patch, intent, expand),
    }
}

pub(super) fn fingerprint_of_no_op((hasher, format): (&Hasher, u32), no_op: &NoOp) -> Digest {
    let NoOp { patch, intent, written, pass, .. } = no_op;
    match (written, pass) {
        (None, Some(pass)) => pipeline::pass_fingerprint(hasher, intent.as_deref(), pass),
        (written, _) => fingerprint((hasher, format), patch, intent.as_deref(), &[], written.as_ref()),
    }
}

/// Returns the token that identifies a retry of a proposal.
pub(super) fn dedup_key_of_proposal(by: &Author) -> Option<IdempotencyKey> {
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
