//! Which tokens were decided, and how: what makes a repeated proposal harmless (SPEC section 4).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::types::{Pending, Verdict};
use crate::blueprint::{BoardLimits, Duration};
use crate::digest::Digest;
use crate::id::{Seq, Timestamp, Token};

/// How long a token is remembered unless the blueprint says otherwise, in milliseconds of recorded time. What waits for a person is
/// remembered while it does; the window begins again with what comes of it.
const WINDOW_MS: u64 = 3_600_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    reply: Digest,
    verdict: Verdict,
    at: Timestamp,
}

/// What a token means for a proposal that carries it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// It was not decided within the window, and nothing with it waits for a person.
    New,
    /// It was decided with the same reply.
    Same(Verdict),
    /// It was decided with another reply.
    Other,
}

/// The decided tokens of one board.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    /// How long they are remembered, in milliseconds.
    window_ms: u64,
    decided: BTreeMap<Token, Decided>,
    /// In the order of decision, so that the window can be kept.
    order: VecDeque<(Timestamp, Token)>,
}

impl Decided {
    /// The record that decided it.
    const fn seq(&self) -> Seq {
        match self.verdict {
            Verdict::Committed { seq, .. }
            | Verdict::NoOp { seq }
            | Verdict::Expanded { seq }
            | Verdict::AwaitingApproval { seq }
            | Verdict::Heard { seq }
            | Verdict::Rejected { seq, .. } => seq,
        }
    }

    /// Whether the question that it put to a person stands.
    fn waits(&self, pending: &BTreeMap<Seq, Pending>) -> bool {
        matches!(&self.verdict, Verdict::AwaitingApproval { seq } if pending.contains_key(seq))
    }
}

/// By token, so that a snapshot shares what is still remembered with the one before.
impl Serialize for Tokens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.decided.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let decided = BTreeMap::<Token, Decided>::deserialize(deserializer)?;
        let mut order: Vec<_> = decided.iter().collect();
        order.sort_by_key(|(_, decided)| (decided.at, decided.seq()));
        let order = order.into_iter().map(|(token, decided)| (decided.at, token.clone())).collect();
        Ok(Self { window_ms: WINDOW_MS, decided, order })
    }
}

impl Tokens {
    /// None yet.
    pub(super) fn new(limits: &BoardLimits) -> Self {
        Self { window_ms: WINDOW_MS, decided: BTreeMap::new(), order: VecDeque::new() }.within(limits)
    }

    /// The same, remembered for as long as these limits say.
    #[must_use]
    pub(super) fn within(self, limits: &BoardLimits) -> Self {
        Self { window_ms: limits.dedup.map_or(WINDOW_MS, Duration::as_ms), ..self }
    }

    /// `reply` is asked for only if the token was decided. `pending` are the questions that stand.
    pub(super) fn look_up(
        &self,
        token: &Token,
        reply: impl FnOnce() -> Digest,
        now: Timestamp,
        pending: &BTreeMap<Seq, Pending>,
    ) -> Known {
        match self.decided.get(token) {
            Some(decided) if now.ms_since(decided.at) < self.window_ms || decided.waits(pending) => {
                if decided.reply == reply() { Known::Same(decided.verdict.clone()) } else { Known::Other }
            }
            _ => Known::New,
        }
    }

    /// Tells if a token was used and is still remembered.
    pub(super) fn knows(&self, token: &Token) -> bool {
        self.decided.contains_key(token)
    }

    pub(super) fn remember(
        &mut self,
        token: Token,
        reply: Digest,
        verdict: Verdict,
        at: Timestamp,
        pending: &BTreeMap<Seq, Pending>,
    ) {
        let mut waiting = Vec::new();
        while self.order.front().is_some_and(|(decided, _)| at.ms_since(*decided) >= self.window_ms) {
            let (then, forgotten) = self.order.pop_front().expect("it has a front");
            // A token that was used again after the window has a younger entry, which stays.
            match self.decided.get(&forgotten) {
                Some(decided) if decided.at == then && decided.waits(pending) => waiting.push((then, forgotten)),
                Some(decided) if decided.at == then => drop(self.decided.remove(&forgotten)),
                Some(_) | None => {}
            }
        }
        // There are no more of these than questions may stand.
        for kept in waiting.into_iter().rev() {
            self.order.push_front(kept);
        }
        self.order.push_back((at, token.clone()));
        self.decided.insert(token, Decided { reply, verdict, at });
    }
}
