//! Appends what is queued, with one commit for all boards.
//!
//! On a thread that may block: transactions follow each other closely when many boards commit, and the threads that
//! serve the boards make the next one ready meanwhile.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::runtime::Handle;

use super::Context;

pub(crate) enum Message {
    /// Something is queued.
    Flush,
}

pub(crate) struct JournalWriter;

impl Actor for JournalWriter {
    type Msg = Message;
    type State = Arc<Context>;
    type Arguments = Arc<Context>;

    async fn pre_start(&self, _: ActorRef<Message>, context: Arc<Context>) -> Result<Arc<Context>, ActorProcessingErr> {
        Ok(context)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        context: &mut Arc<Context>,
    ) -> Result<(), ActorProcessingErr> {
        context.options.probe.at("journal_writer", "flush");
        match message {
            // Most that queue find a transaction under way that is followed by theirs.
            Message::Flush if context.journal.has_queued() => {
                let turn = context.journal.turn().await;
                let (context, threads) = (Arc::clone(context), Handle::current());
                tokio::task::spawn_blocking(move || threads.block_on(context.journal.flush(turn))).await?;
            }
            Message::Flush => {}
        }
        Ok(())
    }
}
