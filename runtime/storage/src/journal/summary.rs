//! Summary of a board in a list, derived from the records and stored beside them.

use std::collections::BTreeMap;

use patchboard_kernel::id::{BoardId, Seq, Timestamp, Version};
use patchboard_kernel::record::{End, GENESIS, Kind, Parent, Record, RecordError};
use serde::Deserialize;

use patchboard_kernel::driver::Head;

/// Summary of a board, a function of its records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoardSummary {
    /// Board id.
    pub id: BoardId,
    /// Name of its blueprint.
    pub name: String,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time of its last record.
    pub updated_at: Timestamp,
    /// Number of its owner: incremented by every takeover.
    pub epoch: u64,
    /// Last record.
    pub head: Head,
    /// Commits so far.
    pub version: Version,
    /// End of the board, unless it has continued since.
    pub ended: Option<End>,
    /// Outer board, if it is nested.
    pub parent: Option<BoardId>,
}

impl BoardSummary {
    /// Returns the outer boards of a board and its nested boards, at any depth, in the order of `boards`.
    pub fn related<'b>(boards: &'b [Self], board: &BoardId) -> Vec<&'b BoardId> {
        let parents: BTreeMap<&str, &str> = boards
            .iter()
            .filter_map(|summary| Some((summary.id.as_str(), summary.parent.as_ref()?.as_str())))
            .collect();
        let is_around = |outer: &str, inner: &str| {
            // Ids derive from those of the outer boards, so there is no cycle; a damaged list may have one.
            let above = std::iter::successors(parents.get(inner), |id| parents.get(**id)).take(boards.len());
            above.into_iter().any(|id| *id == outer)
        };
        let (ids, one) = (boards.iter().map(|summary| &summary.id), board.as_str());
        ids.filter(|id| is_around(id.as_str(), one) || is_around(one, id.as_str())).collect()
    }
}

/// Header members that a summary depends on.
#[derive(Deserialize)]
struct Header {
    name: Option<String>,
    epoch: Option<u64>,
    version: Option<Version>,
    end: Option<End>,
    parent: Option<Parent>,
}

/// Records that end a board or continue an ended one: the last of them decides.
pub const DECIDES_END: [Kind; 4] = [Kind::Committed, Kind::Signal, Kind::Retried, Kind::Ended];

impl BoardSummary {
    /// Returns the summary of a board without records.
    pub fn empty(id: BoardId) -> Self {
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

    /// Applies the next record. Fails with [`RecordError::Unreadable`] if the header lacks a required member.
    pub fn apply(&mut self, record: &Record) -> Result<(), RecordError> {
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
