//! Failpoints at which an actor begins to handle a message. Inactive in production; tests make actors panic.

#[cfg(test)]
use std::sync::Arc;

use patchboard_kernel::id::BoardId;

/// Action of a test at a failpoint, called with the board, if the actor belongs to one, the actor, and the kind of
/// message.
#[cfg(test)]
pub(crate) type Act = Arc<dyn Fn(Option<&BoardId>, &'static str, &'static str) + Send + Sync>;

#[derive(Clone, Default)]
pub(crate) struct Failpoints {
    #[cfg(test)]
    act: Option<Act>,
    #[cfg(test)]
    board: Option<BoardId>,
}

impl Failpoints {
    /// Creates failpoints with this action.
    #[cfg(test)]
    pub(crate) fn new(act: Act) -> Self {
        Self { act: Some(act), board: None }
    }

    /// Returns the failpoints for the actors of a board.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "there is something to keep in tests only"))]
    pub(crate) fn for_board(&self, board: &BoardId) -> Self {
        #[cfg(test)]
        return Self { act: self.act.clone(), board: Some(board.clone()) };
        #[cfg(not(test))]
        {
            let _ = board;
            Self {}
        }
    }

    /// Marks that the actor is about to handle a message of this kind.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "there is something to do in tests only"))]
    pub(crate) fn hit(&self, actor: &'static str, message: &'static str) {
        #[cfg(test)]
        if let Some(act) = &self.act {
            act(self.board.as_ref(), actor, message);
        }
        #[cfg(not(test))]
        let _ = (actor, message);
    }
}
