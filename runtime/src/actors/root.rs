//! Supervises the journal writer and the boards. No fault of one of them reaches another.

use std::collections::HashMap;
use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::journal_writer::{self, JournalWriter};
use super::{Context, board};
use crate::published::{Boards, Published};
use crate::runtime::RuntimeError;

pub(crate) enum Message {
    /// Start the actors of a board. What becomes of it is published.
    Open(Box<board::Arguments>),
}

/// Where the journal writer can be reached; empty while it is being replaced.
pub(crate) type WriterSlot = Arc<arc_swap::ArcSwapOption<ActorRef<journal_writer::Message>>>;

pub(crate) struct Arguments {
    pub(crate) context: Arc<Context>,
    pub(crate) boards: Arc<Boards>,
    pub(crate) writer: WriterSlot,
}

pub(crate) struct State {
    context: Arc<Context>,
    boards: Arc<Boards>,
    writer: WriterSlot,
    supervisors: HashMap<ActorId, Arc<Published>>,
}

pub(crate) struct Root;

impl Actor for Root {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(&self, myself: ActorRef<Message>, arguments: Arguments) -> Result<State, ActorProcessingErr> {
        let Arguments { context, boards, writer } = arguments;
        let state = State { context, boards, writer, supervisors: HashMap::new() };
        state.start_writer(myself.get_cell()).await?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Open(arguments) => {
                let published = Arc::clone(&arguments.published);
                let spawned = Actor::spawn_linked(None, board::BoardSupervisor, *arguments, myself.get_cell()).await;
                match spawned {
                    Ok((supervisor, _)) => {
                        published.supervised_by(supervisor.clone());
                        state.supervisors.insert(supervisor.get_id(), published);
                    }
                    Err(error) => state.board_ended(&published, &error.to_string()),
                }
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        // Who is stopped without a reason was told to: that is how a shutdown ends the writer.
        let (child, orderly, reason) = match event {
            SupervisionEvent::ActorTerminated(child, _, reason) => {
                (child, reason.is_none(), reason.unwrap_or_default())
            }
            SupervisionEvent::ActorFailed(child, error) => (child, false, error.to_string()),
            _ => return Ok(()),
        };
        if let Some(published) = state.supervisors.remove(&child.get_id()) {
            state.board_ended(&published, &reason);
            return Ok(());
        }
        let is_writer = state.writer.load().as_ref().is_some_and(|writer| writer.get_id() == child.get_id());
        if is_writer && !orderly {
            tracing::error!(reason, "the journal writer failed and is replaced");
            state.start_writer(myself.get_cell()).await?;
        }
        Ok(())
    }
}

impl State {
    async fn start_writer(&self, myself: ActorCell) -> Result<(), ActorProcessingErr> {
        let (writer, _) = Actor::spawn_linked(None, JournalWriter, Arc::clone(&self.context), myself).await?;
        self.writer.store(Some(Arc::new(writer.clone())));
        // Whatever was queued while there was no writer.
        Ok(writer.cast(journal_writer::Message::Flush)?)
    }

    /// A board's supervisor has ended. It says why itself, unless it failed.
    fn board_ended(&self, published: &Arc<Published>, reason: &str) {
        let board = published.board().clone();
        self.context.options.agent.ended(&board);
        published.gone(RuntimeError::Crashed { board, reason: reason.to_owned() });
        self.boards.remove(published);
    }
}
