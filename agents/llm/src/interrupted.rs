//! Keeps conversations with tools after a deferral of their last request. The next attempt of the invocation continues
//! them, as the turns so far are paid for.
//!
//! Lives as long as the process. An attempt with another prompt, after a change of the board, starts a new
//! conversation.

use std::collections::BTreeSet;

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_runtime::agent::Call;

use super::request::Message;
use super::server_profile::{Bounded, CallKey};
use crate::gate::ModelKey;
use patchboard_runtime::tools::Memory;

/// Characters of a kept conversation, at most.
const CHARS_MAX: usize = 1_000_000;

/// A conversation after its prompt.
pub(super) struct ConversationTail {
    pub(super) messages: Vec<Message<'static>>,
    pub(super) ids: BTreeSet<String>,
    pub(super) generated_ids: usize,
    /// Remaining calls of the model.
    pub(super) left: u32,
    pub(super) memory: Memory,
}

impl ConversationTail {
    /// Removes provider-specific members, for another model.
    fn in_general(mut self) -> Self {
        self.messages.iter_mut().for_each(Message::generalize);
        self
    }
}

/// A conversation, with its model and the digest of its prompt.
struct InterruptedConversation {
    prompt: Digest,
    model: ModelKey,
    rest: ConversationTail,
}

/// Conversations by invocation. Models of one process share them, as a fallback may continue one.
#[derive(Default)]
pub struct InterruptedConversations(Bounded<CallKey, InterruptedConversation>);

impl InterruptedConversations {
    pub(super) fn keep(&mut self, call: &Call, prompt: &[Message<'_>], model: ModelKey, rest: ConversationTail) {
        let chars: usize = rest.messages.iter().map(Message::chars).sum();
        if chars <= CHARS_MAX {
            self.0.insert(key(call), InterruptedConversation { prompt: digest(prompt), model, rest });
        }
    }

    /// Takes the conversation of a call, if it began with this prompt.
    pub(super) fn take(&mut self, call: &Call, prompt: &[Message<'_>], model: &ModelKey) -> Option<ConversationTail> {
        let kept = self.0.remove(&key(call)).filter(|kept| kept.prompt == digest(prompt))?;
        Some(if kept.model == *model { kept.rest } else { kept.rest.in_general() })
    }
}

fn key(call: &Call) -> CallKey {
    (call.board.clone(), call.invocation)
}

fn digest(prompt: &[Message<'_>]) -> Digest {
    sha256(&serde_json::to_vec(prompt).unwrap_or_default())
}
