//! What a list of boards shows, derived from the records and kept beside them.

use std::collections::BTreeMap;

use patchboard_kernel::id::{BoardId, Seq, Timestamp, Version};
use patchboard_kernel::record::{End, GENESIS, Kind, Parent, Record, RecordError};
use serde::Deserialize;

use super::Head;

/// A board at a glance; a function of its records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoardSummary {
    /// The board.
    pub id: BoardId,
    /// Its blueprint's name.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its last record was written.
    pub updated_at: Timestamp,
    /// How often it was taken over.
    pub epoch: u64,
    /// Its last record.
    pub head: Head,
    /// Commits so far.
    pub version: Version,
    /// How it ended, if it has and nothing has woken it since.
    pub ended: Option<End>,
    /// The board that it does the work of, if it is a board inside a board.
    pub parent: Option<BoardId>,
}

impl BoardSummary {
    /// Of these boards those that one is inside of, and those inside of it, at any depth, in their order.
    pub fn related<'b>(boards: &'b [Self], board: &BoardId) -> Vec<&'b BoardId> {
        let parents: BTreeMap<&str, &str> = boards
            .iter()
            .filter_map(|summary| Some((summary.id.as_str(), summary.parent.as_ref()?.as_str())))
            .collect();
        let is_around = |outer: &str, inner: &str| {
            // Ids follow from those of the boards around, so there is no way back; a damaged list may have one.
            let above = std::iter::successors(parents.get(inner), |id| parents.get(**id)).take(boards.len());
            above.into_iter().any(|id| *id == outer)
        };
        let (ids, one) = (boards.iter().map(|summary| &summary.id), board.as_str());
        ids.filter(|id| is_around(id.as_str(), one) || is_around(one, id.as_str())).collect()
    }
}

/// The few header members a summary depends on.
#[derive(Deserialize)]
struct Header {
    name: Option<String>,
    epoch: Option<u64>,
    version: Option<Version>,
    end: Option<End>,
    parent: Option<Parent>,
}

/// Records after which a board has ended, or goes on although it had: their last one decides.
pub(crate) const DECIDES_END: [Kind; 4] = [Kind::Committed, Kind::Signal, Kind::Retried, Kind::Ended];

impl BoardSummary {
    /// The summary of a board without records.
    pub(crate) fn empty(id: BoardId) -> Self {
        Self {
            id,
            name: String::new(),
            created_at: Timestamp::default(),
            updated_at: Timestamp::default(),
            epoch: 0,
            head: Head { seq: Seq(0), hash: GENESIS },
            version: Version(0),
            ended: None,
            parent: None,
        }
    }

    /// Takes the next record into account.
    ///
    /// # Errors
    /// [`RecordError::Unreadable`] if the header lacks what a record of its kind must have.
    pub(crate) fn record_appended(&mut self, record: &Record) -> Result<(), RecordError> {
        let lacks =
            |what: &str| RecordError::Unreadable(format!("the header of a {} record has no {what}", record.kind));
        let header =
            || serde_json::from_str::<Header>(&record.header).map_err(|e| RecordError::Unreadable(e.to_string()));
        if DECIDES_END.contains(&record.kind) {
            self.ended = None;
        }
        match record.kind {
            Kind::Created => {
                let header = header()?;
                self.name = header.name.ok_or_else(|| lacks("name"))?;
                self.parent = header.parent.map(|parent| parent.board);
                self.created_at = record.at;
            }
            Kind::Epoch => self.epoch = header()?.epoch.ok_or_else(|| lacks("epoch"))?,
            Kind::Committed => {
                self.version = header()?.version.ok_or_else(|| lacks("version"))?;
            }
            Kind::Ended => self.ended = Some(header()?.end.ok_or_else(|| lacks("end"))?),
            Kind::Scheduled
            | Kind::Invoked
            | Kind::Deferred
            | Kind::Continued
            | Kind::NoOp
            | Kind::Expanded
            | Kind::Approval
            | Kind::Answer
            | Kind::Rejected
            | Kind::Failed
            | Kind::Late
            | Kind::Reserved
            | Kind::Skipped
            | Kind::Breaker
            | Kind::Budget
            | Kind::Paused
            | Kind::Resumed
            | Kind::Retried
            | Kind::Signal
            | Kind::Tick
            | Kind::Jumped
            | Kind::Snapshot
            | Kind::Redacted => {}
        }
        self.updated_at = record.at;
        self.head = Head { seq: record.seq, hash: record.hash };
        Ok(())
    }
}
