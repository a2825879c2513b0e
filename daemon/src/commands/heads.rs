//! `patchboard heads`: prints the last record of every board, to be kept out of reach of writers to the journal.

use std::path::Path;

use clap::Args;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_storage::blocking::wait;
use serde::Deserialize;
use serde_json::json;

use super::boards::{DAMAGED, check_none_lost, status_of};
use crate::failure::{Exit, Failure, Outcome};
use crate::input;
use crate::output::{Output, table};
use crate::reader::{Reader, storage};
use patchboard_kernel::text::counted;

/// Maximum bytes of a file of heads.
const BYTES_MAX: u64 = 64 << 20;

/// Print the last record of every board: its number and its hash, which covers all records before it
///
/// Keep the output elsewhere to detect later that a journal was truncated or rewritten: `verify --heads` reads it back,
/// as text or as JSON. The daemon can send heads automatically: `heads` of `[notify]`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard heads
  patchboard heads --output json | curl --fail --data-binary @- https://elsewhere.example/heads
  patchboard verify --heads heads.txt")]
pub(crate) struct Arguments {
    /// The boards: ids, prefixes of ids, or `last`; all, if none is named
    #[arg(value_name = "BOARD")]
    boards: Vec<String>,
}

#[derive(Clone, Deserialize, PartialEq, Eq, Debug)]
pub(crate) struct SavedHead {
    pub(crate) board: BoardId,
    pub(crate) seq: Seq,
    pub(crate) hash: Digest,
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let reader = Reader::open(data_dir)?;
    let boards = match arguments.boards.as_slice() {
        [] => wait(reader.journal.boards()).map_err(storage)?,
        named => named.iter().map(|wanted| reader.find(wanted)).collect::<Result<_, _>>()?,
    };
    let statuses: Vec<&str> = boards.iter().map(|board| status_of(&*reader.journal, board)).collect();
    let damaged = statuses.iter().filter(|status| **status == DAMAGED).count();
    let sound = || {
        if arguments.boards.is_empty() {
            check_none_lost(&*reader.journal)?;
        }
        let message = format!("{} of {} cannot be trusted", counted(damaged, "head"), boards.len());
        let help = "`patchboard verify BOARD` says more of a board that is called damaged";
        if damaged > 0 { Err(Failure::failed("bad_record", message).help(help)) } else { Ok(Exit::Done) }
    };
    if output.is_json() {
        for (board, status) in boards.iter().zip(&statuses) {
            output.json(&json!({
                "board": board.id,
                "seq": board.head.seq,
                "hash": board.head.hash,
                "version": board.version,
                "status": status,
            }))?;
        }
        return sound();
    }
    let rows = boards.iter().zip(&statuses).map(|(board, status)| {
        let (seq, hash) = (board.head.seq.to_string(), board.head.hash.to_string());
        [board.id.to_string(), seq, hash, board.version.to_string(), (*status).to_owned()]
    });
    output.line(&table(HEADER, rows))?;
    sound()
}

const HEADER: [&str; 5] = ["BOARD", "SEQ", "HASH", "VERSION", "STATUS"];

pub(crate) fn read(path: &Path) -> Result<Vec<SavedHead>, Failure> {
    let bad = |why: String| {
        Failure::invalid_input("bad_heads", format!("{} holds no heads: {why}", path.display()))
            .help("`patchboard heads` prints them, as text or with --output json")
    };
    let text =
        String::from_utf8(input::read_bytes(path, BYTES_MAX).map_err(bad)?).map_err(|error| bad(error.to_string()))?;
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(HEADER[0]));
    let heads = lines.map(|(number, line)| parse_line(line).ok_or_else(|| bad(format!("line {number} is none"))));
    let heads = heads.collect::<Result<Vec<_>, _>>()?.concat();
    // An empty list proves nothing, so it must not pass.
    if heads.is_empty() { Err(bad("it is empty".to_owned())) } else { Ok(heads) }
}

/// Line of JSON.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    /// Body of a message sent by `[notify] heads`.
    Message {
        heads: Vec<SavedHead>,
    },
    Head(SavedHead),
}

/// Parses a line in any of the formats.
fn parse_line(line: &str) -> Option<Vec<SavedHead>> {
    if line.starts_with('{') {
        return Some(match serde_json::from_str(line).ok()? {
            Line::Message { heads } => heads,
            Line::Head(head) => vec![head],
        });
    }
    let mut words = line.split_whitespace();
    let (board, seq, hash) = (words.next()?, words.next()?, words.next()?);
    Some(vec![SavedHead { board: board.into(), seq: Seq(seq.parse().ok()?), hash: hash.parse().ok()? }])
}
