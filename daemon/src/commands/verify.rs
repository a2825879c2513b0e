//! `patchboard verify`: whether anything in a board's journal was altered.

use std::path::Path;

use clap::Args;
use patchboard_kernel::digest::Digest;
use patchboard_runtime::audit::{self, Fault};
use serde_json::json;

use crate::blueprint_file::plural;
use crate::cli::BoardArgument;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::reader::{Reader, storage};

/// Check every record, value and text of a board against the hashes that chain them, and print the head
///
/// Whoever keeps the head elsewhere can give it back with --head: then a journal that was cut off or rewritten as a
/// whole is found, too. A board that has gone on since still has the record of an earlier head.
///
/// Exits with 1 and names the first bad record if anything was altered; as JSON, stdout then has
/// {"ok":false,"code":...,"seq":...,"message":...}.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard verify last
  head=$(patchboard verify last --output json | jq -r .head.hash)
  patchboard verify last --head \"$head\"")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    /// A head that was printed before: 64 hexadecimal digits
    #[arg(long, value_name = "HASH")]
    head: Option<Digest>,
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let reader = Reader::open(data_dir)?;
    let summary = reader.find(&arguments.board.board)?;
    let verified = audit::verify(&reader.journal, &summary.id, arguments.head)
        .map_err(|fault| told(fault).told_as_result(&summary.id, output))?;
    if output.is_json() {
        output.json(&json!({
            "board": summary.id,
            "ok": true,
            "head": {"seq": verified.head.seq, "hash": verified.head.hash},
            "records": verified.records,
            "blobs": verified.blobs,
            "snapshots": verified.snapshots,
            "unchecked_snapshots": verified.unchecked_snapshots,
            "expected_at": verified.expected_at,
            "erased": {
                "values": verified.erased.values,
                "records": verified.erased.records,
                "texts": verified.erased.texts,
                "salt": verified.erased.salt,
            },
        }))?;
        return Ok(Exit::Done);
    }
    let count = |number: u64, noun| plural(usize::try_from(number).unwrap_or(usize::MAX), noun);
    output.line(&format!(
        "nothing was altered: {}, {}, {}",
        count(verified.records, "record"),
        count(verified.blobs, "text"),
        count(verified.snapshots, "snapshot")
    ))?;
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
    if let Some(seq) = verified.expected_at {
        output.line(&format!("the given head is record {seq}"))?;
    }
    output.line(&format!("head {} {}", verified.head.seq, verified.head.hash))?;
    Ok(Exit::Done)
}

fn told(fault: Fault) -> Failure {
    let failure = Failure::failed(fault.code(), &fault);
    match fault {
        Fault::Record { seq, .. } => failure
            .help("the records before it can be trusted; restore the data directory from a backup")
            .detail("seq", seq.0.into()),
        Fault::Head { head, .. } => failure
            .help("restore the data directory from a backup")
            .detail("head", json!({"seq": head.seq, "hash": head.hash})),
        Fault::Snapshot { of, .. } => failure
            .help("the records are sound, and enough: the board starts without the snapshot and gives it up")
            .detail("of", of.0.into()),
        Fault::Noted(_) => failure.help(
            "restore nothing: the records are sound, and enough; a run of the board mends this after its next snapshot",
        ),
        Fault::Summary(_) => failure,
        Fault::Journal(error) => storage(error),
    }
}
