//! `patchboard verify`: detects alterations of a board's journal.

use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::BoardId;
use patchboard_protocols::PLANS;
use patchboard_runtime::audit::{self, AuditError, AuditReport};
use patchboard_runtime::board_file::{BoardFile, BoardFileError};
use patchboard_storage::journal::Journal;
use serde_json::{Value, json};

use super::heads::{self, SavedHead};
use crate::failure::{Exit, Failure, Outcome};
use crate::input::STDIN;
use crate::output::{Output, one_line};
use crate::reader::{Reader, storage};
use patchboard_kernel::text::counted;

/// Check every record, value and text of a board against the hash chain, and print the head
///
/// BOARD is an id, a unique prefix of one, or `last`. FILE is the output of `export` or `archive`, and needs no data
/// directory: `-` for standard input, or a name with a `/` or a `.` (`./last`), which ids never contain. An export has
/// no texts of views and prompts.
///
/// A head kept elsewhere reveals a journal that was truncated or rewritten as a whole. --head demands that the last
/// record has this hash. --heads reads the output of `patchboard heads`, and demands that each board still has the
/// record that was its head then; a board may have grown since.
///
/// Exits with 1 and names the first bad record if anything was altered; as JSON, stdout then has
/// {"ok":false,"code":...,"seq":...,"message":...}.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard verify last
  head=$(patchboard verify last --output json | jq -r .head.hash)
  patchboard verify last --head \"$head\"
  patchboard export last | patchboard verify - --head \"$head\"
  patchboard heads > heads.txt
  patchboard verify --heads heads.txt")]
pub(crate) struct Arguments {
    /// The board, or a file that contains it
    #[arg(value_name = "BOARD|FILE", required_unless_present = "heads")]
    wanted: Option<String>,
    /// Expected hash of the last record, 64 hexadecimal digits
    #[arg(long, value_name = "HASH")]
    head: Option<Digest>,
    /// Output of `patchboard heads`, as text or JSON; `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["wanted", "head"])]
    heads: Option<PathBuf>,
}

const FILE_DIFFERS_HELP: &str = "the file was altered, truncated or extended: get it again from its source";

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    if let Some(heads) = &arguments.heads {
        return verify_heads(&heads::read(heads)?, data_dir, output);
    }
    let wanted = arguments.wanted.as_deref().unwrap_or_default();
    let (journal, board): (Arc<dyn Journal>, BoardId) = if is_file(wanted) {
        let carried = read_file(wanted).map_err(|failure| output.result_of_failure(failure, &()))?;
        let board = carried.board().clone();
        (Arc::new(carried.journal().clone()), board)
    } else {
        let reader = Reader::open(data_dir)?;
        let board = reader.find(wanted)?.id;
        (reader.journal, board)
    };
    let verified = verified(&*journal, &board, arguments.head).map_err(|failure| {
        let failure = if is_file(wanted) { failure.help(FILE_DIFFERS_HELP) } else { failure };
        output.result_of_failure(failure, &board)
    })?;
    if output.is_json() {
        output.json(&as_json(&board, &verified))?;
        return Ok(Exit::Done);
    }
    print(&verified, output)?;
    if is_file(wanted) {
        output.line(&format!("board {board}"))?;
        if arguments.head.is_none() {
            output.note(
                "a writer of the file can cut records off its end: compare the head with one that was kept elsewhere",
            );
        }
    }
    Ok(Exit::Done)
}

/// Returns true for a file name: ids have no `/` or `.`.
fn is_file(wanted: &str) -> bool {
    wanted == STDIN || wanted.contains(['/', '.'])
}

fn read_file(name: &str) -> Result<BoardFile, Failure> {
    let source: Box<dyn BufRead> = match name {
        STDIN => Box::new(stdin().lock()),
        path => {
            let unreadable = |error| Failure::invalid_input("bad_file", format!("{path} cannot be read: {error}"));
            Box::new(BufReader::new(File::open(path).map_err(unreadable)?))
        }
    };
    BoardFile::read(source).map_err(|error| match error {
        BoardFileError::Io(error) => Failure::failed("bad_file", format!("{name} cannot be read: {error}")),
        error => Failure::failed("bad_file", format!("{name} carries no board that can be verified: {error}"))
            .help("`patchboard export BOARD` and `patchboard archive BOARD` write such files"),
    })
}

/// Verifies a board; its last record must have the given hash, if any.
fn verified(journal: &dyn Journal, board: &BoardId, head: Option<Digest>) -> Result<AuditReport, Failure> {
    let verified = audit::verify(journal, board, head, &PLANS).map_err(fault_to_failure)?;
    if let (Some(expected), Some(at)) = (head, verified.expected_at)
        && at != verified.head.seq
    {
        let (seq, hash) = (verified.head.seq, verified.head.hash);
        let message = format!(
            "the last record, {seq}, has the hash {hash}, not {expected}, which record {at} has: the journal goes on after it"
        );
        return Err(Failure::failed("head_differs", message)
            .help("all records are sound; name the head of the moment that you mean, or verify with --heads")
            .detail("at", at.0.into())
            .detail("head", json!({"seq": seq, "hash": hash})));
    }
    Ok(verified)
}

fn verify_heads(heads: &[SavedHead], data_dir: &Path, output: Output) -> Outcome {
    let reader = Reader::open(data_dir)?;
    let mut bad = 0;
    for head in heads {
        let still = reader.find(head.board.as_str()).and_then(|summary| {
            let verified =
                audit::verify(&*reader.journal, &summary.id, Some(head.hash), &PLANS).map_err(fault_to_failure)?;
            match verified.expected_at {
                Some(at) if at == head.seq && summary.id == head.board => Ok(verified),
                _ => Err(Failure::failed("head_differs", format!("the noted head is not record {}", head.seq))),
            }
        });
        match still {
            Ok(verified) => output.json_or_line(&as_json(&head.board, &verified), || {
                let (board, seq, last) = (&head.board, head.seq, verified.head);
                format!("{board}: sound, and record {seq} is as it was noted; head {} {}", last.seq, last.hash)
            })?,
            Err(Failure::StdoutClosed) => return Err(Failure::StdoutClosed),
            Err(Failure::Error(error)) => {
                bad += 1;
                let text = || format!("{}: error[{}]: {}", head.board, error.code, one_line(&error.message));
                output.json_or_line(&error.result(&head.board), text)?;
            }
        }
    }
    if bad == 0 {
        return Ok(Exit::Done);
    }
    let verb = if bad == 1 { "is" } else { "are" };
    let message = format!("{bad} of {} {verb} not as noted", counted(heads.len(), "board"));
    Err(Failure::failed("head_differs", message).help("`patchboard verify BOARD` says more of one of them"))
}

fn as_json(board: &BoardId, verified: &AuditReport) -> Value {
    json!({
        "board": board,
        "ok": true,
        "head": {"seq": verified.head.seq, "hash": verified.head.hash},
        "records": verified.records,
        "blobs": verified.blobs,
        "unchecked_blobs": verified.unchecked_blobs,
        "snapshots": verified.snapshots,
        "unchecked_snapshots": verified.unchecked_snapshots,
        "expected_at": verified.expected_at,
        "erased": {
            "values": verified.erased.values,
            "records": verified.erased.records,
            "texts": verified.erased.texts,
            "salt": verified.erased.salt,
        },
    })
}

fn print(verified: &AuditReport, output: Output) -> Result<(), Failure> {
    let count = |number: u64, noun| counted(usize::try_from(number).unwrap_or(usize::MAX), noun);
    output.line(&format!(
        "OK: hash chain intact: {}, {}, {}",
        count(verified.records, "record"),
        count(verified.blobs, "text"),
        count(verified.snapshots, "snapshot")
    ))?;
    if verified.unchecked_blobs > 0 {
        let unchecked = count(verified.unchecked_blobs, "text");
        output.line(&format!("not checked: {unchecked} of views and prompts, which an export does not carry"))?;
    }
    if verified.unchecked_snapshots > 0 {
        let unchecked = count(verified.unchecked_snapshots, "snapshot");
        output.line(&format!("not checked: {unchecked} of another version of patchboard; nothing rests on it"))?;
    }
    let erased = verified.erased;
    if erased.records > 0 || erased.texts > 0 {
        output.line(&format!(
            "erased: {} in {}, {}",
            count(erased.values, "value"),
            count(erased.records, "record"),
            count(erased.texts, "text")
        ))?;
    }
    if erased.salt {
        output.line("only the chain was verified: the salt is destroyed, without which no value can be")?;
    }
    output.line(&format!("head {} {}", verified.head.seq, verified.head.hash))
}
fn fault_to_failure(fault: AuditError) -> Failure {
    let failure = Failure::failed(fault.code(), &fault);
    match fault {
        AuditError::Record { seq, .. } => failure
            .help("the records before it can be trusted; restore the data directory from a backup")
            .detail("seq", seq.0.into()),
        AuditError::Head { head, .. } => failure
            .help("restore the data directory from a backup")
            .detail("head", json!({"seq": head.seq, "hash": head.hash})),
        AuditError::Snapshot { of, .. } => failure
            .help("the records are sound, and enough: the board starts without the snapshot and gives it up")
            .detail("of", of.0.into()),
        AuditError::SnapshotList(_) => failure.help(
            "restore nothing: the records are sound, and enough; a run of the board repairs this with its next snapshot",
        ),
        AuditError::Summary(_) => failure,
        AuditError::Journal(error) => storage(error),
    }
}
