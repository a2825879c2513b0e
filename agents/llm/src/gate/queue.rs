//! Waiting requests of one model: round-robin over boards, and in order of arrival within a board.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use patchboard_kernel::id::BoardId;

use super::types::Ticket;

/// Queue of one model. Every operation takes logarithmic time.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Board by turn; the first key is served next.
    turns: BTreeMap<u64, BoardId>,
    boards: BTreeMap<BoardId, Lane>,
    next_turn: u64,
    length: usize,
    /// Number of waiting requests that have fallbacks, by their `fallback_after`.
    movable: BTreeMap<Duration, usize>,
}

#[derive(Debug)]
struct Lane {
    turn: u64,
    tickets: BTreeSet<Ticket>,
}

impl Queue {
    /// Adds a request. `fallback_after` is the time that it waits for this model before it may move to a fallback.
    pub(super) fn push(&mut self, board: &BoardId, ticket: Ticket, fallback_after: Option<Duration>) {
        if let Some(lane) = self.boards.get_mut(board) {
            lane.tickets.insert(ticket);
        } else {
            let turn = self.take_turn();
            self.turns.insert(turn, board.clone());
            self.boards.insert(board.clone(), Lane { turn, tickets: BTreeSet::from([ticket]) });
        }
        self.length += 1;
        if let Some(after) = fallback_after {
            *self.movable.entry(after).or_default() += 1;
        }
    }

    pub(super) fn len_of(&self, board: &BoardId) -> usize {
        self.boards.get(board).map_or(0, |lane| lane.tickets.len())
    }

    pub(super) fn first_of(&self, board: &BoardId) -> Option<Ticket> {
        self.boards.get(board)?.tickets.first().copied()
    }

    pub(super) fn boards(&self) -> impl Iterator<Item = &BoardId> {
        self.boards.keys()
    }

    pub(super) fn peek(&self) -> Option<Ticket> {
        let (_, board) = self.turns.first_key_value()?;
        self.boards.get(board)?.tickets.first().copied()
    }

    /// Removes a request that is served; its board goes to the end of the rotation.
    pub(super) fn serve(&mut self, board: &BoardId, ticket: Ticket, fallback_after: Option<Duration>) {
        self.remove(board, ticket, fallback_after);
        let turn = self.take_turn();
        if let Some(lane) = self.boards.get_mut(board) {
            self.turns.remove(&lane.turn);
            lane.turn = turn;
            self.turns.insert(turn, board.clone());
        }
    }

    /// Removes a request that no longer waits here; its board keeps its turn.
    pub(super) fn remove(&mut self, board: &BoardId, ticket: Ticket, fallback_after: Option<Duration>) {
        let Some(lane) = self.boards.get_mut(board) else { return };
        if !lane.tickets.remove(&ticket) {
            return;
        }
        self.length -= 1;
        if lane.tickets.is_empty() {
            self.turns.remove(&lane.turn);
            self.boards.remove(board);
        }
        if let Some(after) = fallback_after
            && let Some(count) = self.movable.get_mut(&after)
        {
            *count -= 1;
            if *count == 0 {
                self.movable.remove(&after);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Shortest fallback time above `elapsed` among the waiting requests.
    pub(super) fn next_fallback(&self, elapsed: Duration) -> Option<Duration> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.movable.range((Excluded(elapsed), Unbounded)).next().map(|(after, _)| *after)
    }

    fn take_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }
}
