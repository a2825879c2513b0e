//! Deduplication of proposals and requests by token, which makes retries harmless (SPEC section 4).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::types::{PendingQuestion, RememberedOutcome};
use crate::blueprint::{BoardLimits, Duration};
use crate::digest::Digest;
use crate::id::{IdempotencyKey, Seq, Timestamp};

/// Default dedup window, in milliseconds of recorded time. A proposal that waits for a person is remembered until it is
/// decided; the window restarts with the decision.
const WINDOW_MS: u64 = 3_600_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DedupEntry {
    reply: Digest,
    verdict: RememberedOutcome,
    at: Timestamp,
}

/// Result of looking up a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DedupResult {
    /// Not decided within the window, and no pending question has it.
    New,
    /// Decided with the same reply.
    Replay(RememberedOutcome),
    /// Decided with another reply.
    Conflict,
}

/// The decided tokens of one board.
#[derive(Clone, Debug)]
pub(super) struct Dedup {
    /// Dedup window in milliseconds.
    window_ms: u64,
    decided: BTreeMap<IdempotencyKey, DedupEntry>,
    /// Tokens in the order of decision, to expire them.
    order: VecDeque<(Timestamp, IdempotencyKey)>,
}

impl DedupEntry {
    /// Returns the record that decided it.
    const fn seq(&self) -> Seq {
        match self.verdict {
            RememberedOutcome::Committed { seq, .. }
            | RememberedOutcome::NoOp { seq }
            | RememberedOutcome::Expanded { seq }
            | RememberedOutcome::AwaitingApproval { seq }
            | RememberedOutcome::Recorded { seq }
            | RememberedOutcome::Rejected { seq, .. } => seq,
        }
    }

    fn is_pending(&self, pending: &BTreeMap<Seq, PendingQuestion>) -> bool {
        matches!(&self.verdict, RememberedOutcome::AwaitingApproval { seq } if pending.contains_key(seq))
    }
}

/// Serialised by token, so that a snapshot shares unchanged entries with the one before.
impl Serialize for Dedup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.decided.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Dedup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let decided = BTreeMap::<IdempotencyKey, DedupEntry>::deserialize(deserializer)?;
        let mut order: Vec<_> = decided.iter().collect();
        order.sort_by_key(|(_, decided)| (decided.at, decided.seq()));
        let order = order.into_iter().map(|(token, decided)| (decided.at, token.clone())).collect();
        Ok(Self { window_ms: WINDOW_MS, decided, order })
    }
}

impl Dedup {
    /// Creates an empty set.
    pub(super) fn new(limits: &BoardLimits) -> Self {
        Self { window_ms: WINDOW_MS, decided: BTreeMap::new(), order: VecDeque::new() }.with_limits(limits)
    }

    /// Sets the window from these limits.
    #[must_use]
    pub(super) fn with_limits(self, limits: &BoardLimits) -> Self {
        Self { window_ms: limits.dedup.map_or(WINDOW_MS, Duration::as_ms), ..self }
    }

    /// Looks up a token. `reply` is called only if the token was decided; `pending` are the pending questions.
    pub(super) fn look_up(
        &self,
        token: &IdempotencyKey,
        reply: impl FnOnce() -> Digest,
        now: Timestamp,
        pending: &BTreeMap<Seq, PendingQuestion>,
    ) -> DedupResult {
        match self.decided.get(token) {
            Some(decided) if now.ms_since(decided.at) < self.window_ms || decided.is_pending(pending) => {
                if decided.reply == reply() {
                    DedupResult::Replay(decided.verdict.clone())
                } else {
                    DedupResult::Conflict
                }
            }
            _ => DedupResult::New,
        }
    }

    /// Returns true if a token was used and is still remembered.
    pub(super) fn contains(&self, token: &IdempotencyKey) -> bool {
        self.decided.contains_key(token)
    }

    pub(super) fn remember(
        &mut self,
        token: IdempotencyKey,
        reply: Digest,
        verdict: RememberedOutcome,
        at: Timestamp,
        pending: &BTreeMap<Seq, PendingQuestion>,
    ) {
        let mut waiting = Vec::new();
        while self.order.front().is_some_and(|(decided, _)| at.ms_since(*decided) >= self.window_ms) {
            let (then, forgotten) = self.order.pop_front().expect("it has a front");
            // A token that was reused after the window has a newer entry, which stays.
            match self.decided.get(&forgotten) {
                Some(decided) if decided.at == then && decided.is_pending(pending) => waiting.push((then, forgotten)),
                Some(decided) if decided.at == then => drop(self.decided.remove(&forgotten)),
                Some(_) | None => {}
            }
        }
        // Bounded by the maximum number of pending questions.
        for kept in waiting.into_iter().rev() {
            self.order.push_front(kept);
        }
        self.order.push_back((at, token.clone()));
        self.decided.insert(token, DedupEntry { reply, verdict, at });
    }
}
