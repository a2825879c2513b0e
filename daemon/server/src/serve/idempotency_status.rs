//! Relation of a request to earlier ones with its idempotency key, as its response states it.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

const STATUS: HeaderName = HeaderName::from_static("idempotency-status");

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Relation of a request to earlier ones with its idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdempotencyStatus {
    New,
    /// The first request has a result, which is replayed.
    Replayed,
    /// The first request waits for a person.
    InProgress,
}

impl From<bool> for IdempotencyStatus {
    fn from(is_repeated: bool) -> Self {
        if is_repeated { Self::Replayed } else { Self::New }
    }
}

impl IdempotencyStatus {
    pub(crate) fn headers(self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let is_repeated = if self == Self::New { "false" } else { "true" };
        headers.insert(REPLAYED, HeaderValue::from_static(is_repeated));
        let status = match self {
            Self::New => return headers,
            Self::Replayed => "DUPLICATE_DETECTED",
            Self::InProgress => "ALREADY_IN_PROGRESS",
        };
        headers.insert(STATUS, HeaderValue::from_static(status));
        headers
    }
}
