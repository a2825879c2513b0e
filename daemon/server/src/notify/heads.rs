//! Sends the heads of boards to a receiver on a schedule. Kept there, they reveal a truncated or rewritten journal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::id::{BoardId, Seq, Timestamp, Version};
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::BoardSummary;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::backoff;
use super::feed::ChangeFeed;
use super::receiver::{Receiver, outcome_of};
use crate::reader::{format_time, storage};
use crate::serve::service::Daemon;
use patchboard_kernel::text::counted;

const HEADS_MAX: usize = 500;

/// Head of a board, with the members that `patchboard verify --heads` reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Head {
    board: BoardId,
    seq: Seq,
    hash: Digest,
    version: Version,
}

impl From<BoardSummary> for Head {
    fn from(board: BoardSummary) -> Self {
        Self { board: board.id, seq: board.head.seq, hash: board.head.hash, version: board.version }
    }
}

/// Message in the JSON shape that `docs/notify.md` describes.
#[derive(Serialize)]
struct Message<'a> {
    id: &'a str,
    kind: &'static str,
    at: String,
    message: String,
    heads: &'a [Head],
}

/// Returns the id and the body of a message. Equal heads have equal ids, even after a restart.
fn message(heads: &[Head], at: Timestamp) -> (String, String) {
    let listed: Vec<String> = heads.iter().map(|head| format!("{} {} {}", head.board, head.seq, head.hash)).collect();
    let id = format!("heads:{}", sha256(listed.join("\n").as_bytes()));
    let message = format!("Heads of {}.", counted(heads.len(), "board"));
    let body = Message { id: &id, kind: "heads", at: format_time(at), message, heads };
    let body = serde_json::to_string(&body).expect("a message is strings and numbers");
    (id, body)
}

pub(super) struct HeadSender {
    pub(super) daemon: Arc<Daemon>,
    pub(super) receiver: Receiver,
    pub(super) feed: Arc<ChangeFeed>,
    pub(super) every: Duration,
}

impl HeadSender {
    /// Sends the heads of all boards first, then changed ones. Never returns.
    pub(super) async fn run(self) {
        let mut sent = BTreeMap::new();
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let boards = match self.daemon.query(|reader| wait(reader.journal.boards()).map_err(storage)).await {
                Ok(boards) => boards,
                Err(problem) => {
                    tracing::warn!(code = problem.code, "boards cannot be listed for their heads");
                    continue;
                }
            };
            for heads in changed(&mut sent, boards.into_iter().map(Head::from)).chunks(HEADS_MAX) {
                self.send(heads).await;
                sent.extend(heads.iter().map(|head| (head.board.clone(), head.hash)));
            }
        }
    }

    /// Delivers one message, with unlimited retries.
    async fn send(&self, heads: &[Head]) {
        let since = self.daemon.clock.now();
        let (id, body) = message(heads, since);
        let receiver = self.receiver.name();
        for failures in 1.. {
            self.feed.set_heads_undelivered(Some(since));
            let delivered = self.receiver.deliver(&id, &body).await;
            self.daemon.metrics.count_delivery(self.feed.receiver, outcome_of(&delivered));
            let Err(undelivered) = delivered else { break };
            let wait = backoff::after(failures, Some(&undelivered), backoff::random());
            let (why, wait_s) = (&undelivered.why, wait.as_secs());
            if failures == 1 {
                tracing::warn!(%receiver, wait_s, "heads are not delivered yet: {why}");
            } else {
                tracing::debug!(%receiver, wait_s, "heads are not delivered yet: {why}");
            }
            sleep(wait).await;
        }
        self.feed.set_heads_undelivered(None);
    }
}

/// Returns the heads that differ from those sent before, and forgets removed boards.
fn changed(sent: &mut BTreeMap<BoardId, Digest>, heads: impl Iterator<Item = Head>) -> Vec<Head> {
    let mut before = std::mem::take(sent);
    let mut changed = Vec::new();
    for head in heads {
        match before.remove(&head.board) {
            Some(hash) if hash == head.hash => drop(sent.insert(head.board, hash)),
            _ => changed.push(head),
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(board: &str, hash: u8) -> Head {
        Head { board: board.into(), seq: Seq(0), hash: Digest([hash; 32]), version: Version(0) }
    }

    #[test]
    fn a_head_is_sent_once_and_again_where_it_has_changed() {
        let mut sent = BTreeMap::new();
        let mut send = |boards: &[(&str, u8)]| {
            let heads = changed(&mut sent, boards.iter().map(|(board, hash)| head(board, *hash)));
            sent.extend(heads.iter().map(|head| (head.board.clone(), head.hash)));
            heads.iter().map(|head| head.board.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(send(&[("a", 1), ("b", 1)]), ["a", "b"]);
        assert_eq!(send(&[("a", 1), ("b", 2), ("c", 1)]), ["b", "c"]);
        assert_eq!(send(&[("b", 2)]), [""; 0]);
        assert_eq!(send(&[("a", 1), ("b", 2)]), ["a"], "it was gone, and came back");
    }

    #[test]
    fn equal_heads_have_equal_ids() {
        let id = |hash, at| message(&[head("a", hash)], Timestamp(at)).0;
        assert_eq!(id(1, 0), id(1, 5));
        assert_ne!(id(1, 0), id(2, 0));
    }
}
