//! Trouble of an invocation's last attempt: a reply that the kernel could not judge. The next request mentions it.
//!
//! The kernel's prompt names the reason of a rejection. About a truncated, empty or unreadable reply it knows nothing,
//! so a retry would send the same bytes, and at temperature 0 get the same answer. So would a prompt that equals an
//! earlier one because its view does. The call lists the earlier attempts. The next request has one more user message,
//! and more room.

use std::num::NonZeroU32;
use std::time::Duration;

use patchboard_kernel::digest::Digest;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::scheduler::AttemptHistory;

use super::request_shape::OutputMode;
use super::retries::{PAUSE_MAX, PAUSE_MIN};
use crate::config::Model;

/// Doublings of the room, at most.
const DOUBLED_MAX: u32 = 16;

/// Trouble of the last attempts of an invocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReplyFailures {
    kind: Kind,
    /// Attempts with trouble of any kind.
    count: u32,
    doubled: u32,
    empty: u32,
    /// Rejected replies to this view.
    repeats: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Truncated,
    Empty,
    Unreadable,
    Late,
    Refused,
}

/// Returns the token limit of the reply after these attempts, for a seat with the limit `tokens`.
pub(crate) fn reply_tokens_after(past: &AttemptHistory, tokens: u32, model: &Model) -> u32 {
    let trouble = past.failures.iter().fold(None, |before, code| ReplyFailures::after(before, *code));
    trouble.map_or(tokens, |trouble| trouble.reply_tokens(tokens, model))
}

impl ReplyFailures {
    /// Returns the trouble before an attempt with this view; none if its request differs by itself.
    pub(super) fn from_past(past: &AttemptHistory, view: Digest) -> Option<Self> {
        let repeats = past.rejections_of(view);
        let refused = Self { kind: Kind::Refused, count: 0, doubled: 0, empty: 0, repeats };
        let refused = (repeats > 0).then_some(refused);
        past.failures.iter().fold(refused, |before, code| Self::after(before, *code))
    }

    fn after(before: Option<Self>, code: FailureCode) -> Option<Self> {
        let kind = match code {
            FailureCode::Truncated => Kind::Truncated,
            FailureCode::Empty => Kind::Empty,
            // A server that fails on a request may do so on a retry of it.
            FailureCode::Protocol | FailureCode::Unreachable => Kind::Unreadable,
            FailureCode::Timeout => Kind::Late,
            _ => return before,
        };
        let before = before.unwrap_or(Self { kind, count: 0, doubled: 0, empty: 0, repeats: 0 });
        // An empty reply is often one with all room used by reasoning.
        let is_short = matches!(kind, Kind::Truncated | Kind::Empty);
        Some(Self {
            kind,
            count: before.count.saturating_add(1),
            doubled: before.doubled.saturating_add(u32::from(is_short)),
            empty: before.empty.saturating_add(u32::from(kind == Kind::Empty)),
            ..before
        })
    }

    /// Returns the token limit of the reply: the seat's, doubled with each reply that was too short, up to the
    /// model's.
    pub(super) fn reply_tokens(self, tokens: u32, model: &Model) -> u32 {
        let most = model.max_reply_tokens.map_or(model.context, NonZeroU32::get).max(tokens);
        tokens.saturating_mul(1 << self.doubled.min(DOUBLED_MAX)).min(most)
    }

    /// Returns the richest form for the next request: some servers write nothing if they cannot keep to a form.
    pub(super) const fn form(self) -> OutputMode {
        match self.empty {
            0 => OutputMode::Derived,
            1 => OutputMode::Generic,
            _ => OutputMode::None,
        }
    }

    /// Returns true if reasoning may have displaced the reply.
    pub(super) const fn may_be_reasoning(self) -> bool {
        match self.kind {
            Kind::Truncated | Kind::Empty | Kind::Late => true,
            Kind::Unreadable | Kind::Refused => false,
        }
    }

    /// Returns the pause before the next request: an unreadable answer is often one of a server in trouble.
    pub(super) fn pause(self) -> Duration {
        match self.kind {
            Kind::Unreadable => {
                PAUSE_MIN.saturating_mul(1 << self.count.saturating_sub(1).min(DOUBLED_MAX)).min(PAUSE_MAX)
            }
            Kind::Truncated | Kind::Empty | Kind::Late | Kind::Refused => Duration::ZERO,
        }
    }

    /// Returns the text for the next request. Each differs from those before.
    pub(super) fn note(self) -> String {
        let form = "in the form that the instructions ask for, and nothing else.";
        let refused = match self.repeats {
            0 => String::new(),
            1 => format!("Your last reply to this was refused. Write another one, {form}"),
            repeats => format!("Your last {repeats} replies to this were refused. Write another one, {form}"),
        };
        let why = match self.kind {
            Kind::Truncated => {
                "it was cut off at its limit of tokens, so nothing of it was taken. Reason briefly, and write less"
            }
            Kind::Empty => "it was empty. Reason briefly, and write the reply itself",
            Kind::Unreadable => "it could not be read. Write the whole reply once more",
            Kind::Late => "it was not complete in time. Reason briefly, and write less",
            Kind::Refused => return refused,
        };
        let failed = match self.count {
            0 | 1 => format!("Your last reply did not count: {why}, {form}"),
            count => format!("Your last {count} replies did not count. Of the last one: {why}, {form}"),
        };
        if refused.is_empty() { failed } else { format!("{refused} {failed}") }
    }
}

#[cfg(test)]
mod tests;
