//! Places at which an actor begins to handle a message. Nothing happens there; tests make actors panic.

#[cfg(test)]
use std::sync::Arc;

use patchboard_kernel::id::BoardId;

/// What tests let happen at such a place: told of the board, if the actor is one of a board's, the actor, and the kind of
/// message.
#[cfg(test)]
pub(crate) type Act = Arc<dyn Fn(Option<&BoardId>, &'static str, &'static str) + Send + Sync>;

/// The places of one actor.
#[derive(Clone, Default)]
pub(crate) struct Probe {
    #[cfg(test)]
    act: Option<Act>,
    #[cfg(test)]
    board: Option<BoardId>,
}

impl Probe {
    /// Those at which this happens.
    #[cfg(test)]
    pub(crate) fn new(act: Act) -> Self {
        Self { act: Some(act), board: None }
    }

    /// The same for the actors of a board.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "there is something to keep in tests only"))]
    pub(crate) fn of_board(&self, board: &BoardId) -> Self {
        #[cfg(test)]
        return Self { act: self.act.clone(), board: Some(board.clone()) };
        #[cfg(not(test))]
        {
            let _ = board;
            Self {}
        }
    }

    /// The actor is about to handle a message of this kind.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "there is something to do in tests only"))]
    pub(crate) fn at(&self, actor: &'static str, message: &'static str) {
        #[cfg(test)]
        if let Some(act) = &self.act {
            act(self.board.as_ref(), actor, message);
        }
        #[cfg(not(test))]
        let _ = (actor, message);
    }
}
