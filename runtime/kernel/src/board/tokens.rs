//! Which tokens were decided, and how: what makes a repeated proposal harmless (SPEC section 4).

use std::collections::{BTreeMap, VecDeque};

use super::types::Verdict;
use crate::digest::Digest;
use crate::id::{Timestamp, Token};

/// How long a token is remembered, in milliseconds of recorded time.
const WINDOW_MS: u64 = 3_600_000;

#[derive(Clone, Debug)]
struct Decided {
    reply: Digest,
    verdict: Verdict,
    at: Timestamp,
}

/// What a token means for a proposal that carries it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// It was not decided within the window.
    New,
    /// It was decided with the same reply.
    Same(Verdict),
    /// It was decided with another reply.
    Other,
}

/// The decided tokens of one board.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens {
    decided: BTreeMap<Token, Decided>,
    /// In the order of decision, so that the window can be kept.
    order: VecDeque<(Timestamp, Token)>,
}

impl Tokens {
    pub(super) fn look_up(&self, token: &Token, reply: Digest, now: Timestamp) -> Known {
        match self.decided.get(token) {
            Some(decided) if now.ms_since(decided.at) < WINDOW_MS => {
                if decided.reply == reply {
                    Known::Same(decided.verdict.clone())
                } else {
                    Known::Other
                }
            }
            _ => Known::New,
        }
    }

    pub(super) fn remember(&mut self, token: Token, reply: Digest, verdict: Verdict, at: Timestamp) {
        while self.order.front().is_some_and(|(decided, _)| at.ms_since(*decided) >= WINDOW_MS) {
            let (then, forgotten) = self.order.pop_front().expect("it has a front");
            // A token that was used again after the window has a younger entry, which stays.
            if self.decided.get(&forgotten).is_some_and(|decided| decided.at == then) {
                self.decided.remove(&forgotten);
            }
        }
        self.order.push_back((at, token.clone()));
        self.decided.insert(token, Decided { reply, verdict, at });
    }
}
