//! Appends the queued records of all boards with one commit.
//!
//! Runs on a blocking thread: transactions follow each other closely when many boards commit, and the threads that
//! serve the boards prepare the next one meanwhile.

use std::sync::Arc;

use ractor::{Actor, ActorRef};
use tokio::runtime::Handle;

use super::ActorResult;
use super::Context;
use super::messages::WriterMessage;

pub(crate) struct JournalWriter;

impl Actor for JournalWriter {
    type Msg = WriterMessage;
    type State = Arc<Context>;
    type Arguments = Arc<Context>;

    async fn pre_start(&self, _: ActorRef<WriterMessage>, context: Arc<Context>) -> ActorResult<Arc<Context>> {
        Ok(context)
    }

    async fn handle(
        &self,
        _: ActorRef<WriterMessage>,
        message: WriterMessage,
        context: &mut Arc<Context>,
    ) -> ActorResult {
        context.options.failpoints.hit("journal_writer", "flush");
        match message {
            // Most messages find their records appended by the transaction after the current one.
            WriterMessage::Flush if context.journal.has_queued() => {
                let turn = context.journal.turn().await;
                let (context, threads) = (Arc::clone(context), Handle::current());
                tokio::task::spawn_blocking(move || threads.block_on(context.journal.flush(turn))).await?;
            }
            WriterMessage::Flush => {}
        }
        Ok(())
    }
}
