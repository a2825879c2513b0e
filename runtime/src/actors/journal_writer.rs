//! Appends what is queued, with one commit for all boards.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

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

    async fn post_start(&self, myself: ActorRef<Message>, _: &mut Arc<Context>) -> Result<(), ActorProcessingErr> {
        // Whatever was queued while there was no writer.
        Ok(myself.cast(Message::Flush)?)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        context: &mut Arc<Context>,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Flush => context.journal.flush().await,
        }
        Ok(())
    }
}
