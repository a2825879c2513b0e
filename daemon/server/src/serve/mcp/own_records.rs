//! Records of a board that one of its workers may read as its own.

use patchboard_kernel::id::{BoardId, Seq, WorkerName};
use patchboard_kernel::record::{Kind, Record};
use patchboard_storage::blocking::wait;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::reader::{Reader, storage};
use crate::serve::routes::history;

/// Records searched for the log, from the newest, and records per read.
const SEARCHED_RECORDS_MAX: u64 = 10_000;

const PAGE_RECORDS: u64 = 500;

/// Record members that the record's own worker may read: nothing written by others, nor the raw reply.
const VISIBLE_MEMBERS: &str = "seq at kind invocation attempt by base version stage code final rejection patch pass \
    intent expand message approver expires clarify end";

pub(super) fn read_own_records(
    reader: &Reader,
    board: &BoardId,
    worker: &WorkerName,
    head: Seq,
    most: usize,
    is_wanted: impl Fn(&Map<String, Value>) -> bool,
) -> Result<Vec<Map<String, Value>>, Failure> {
    let (mut found, mut end) = (Vec::new(), head.0 + 1);
    let oldest = end.saturating_sub(SEARCHED_RECORDS_MAX);
    while end > oldest && found.len() < most {
        let begin = end.saturating_sub(PAGE_RECORDS).max(oldest);
        let after = begin.checked_sub(1).map(Seq);
        let count = usize::try_from(end - begin).unwrap_or(usize::MAX);
        let records = wait(reader.journal.records(board, after, count)).map_err(storage)?;
        for record in records.iter().rev() {
            if let Some(entry) = own_entry(record, worker)?
                && is_wanted(&entry)
                && found.len() < most
            {
                found.push(entry);
            }
        }
        end = begin;
    }
    Ok(found)
}

/// Returns the visible members of a record that is the worker's own, or the board's end.
pub(crate) fn own_entry(record: &Record, worker: &WorkerName) -> Result<Option<Map<String, Value>>, Failure> {
    let mut members = history::record_json(record)?;
    let author = members.get("by").and_then(|by| by.get("worker")).or_else(|| members.get("worker"));
    let is_own = author.is_some_and(|author| author == worker.as_str()) || record.kind == Kind::Ended;
    // A trigger may come from paths that the worker cannot read, and a breaker counts the calls of others.
    let is_about_others = matches!(record.kind, Kind::Scheduled | Kind::Breaker | Kind::Budget | Kind::Skipped);
    members.retain(|name, _| VISIBLE_MEMBERS.split(' ').any(|visible| visible == name));
    Ok((is_own && !is_about_others).then_some(members))
}
