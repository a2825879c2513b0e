//! `patchboard redact`: erases values of a board from every file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use patchboard_agents::cassette;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::id::BoardId;
use patchboard_kernel::record::{Body, Record, SINCE_SALTED_TEXTS};
use patchboard_kernel::redaction::RemainingCopy;
use patchboard_runtime::archive;
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_runtime::redaction;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::BoardSummary;
use serde_json::json;

use super::run::json_argument;
use crate::arguments::BoardArgument;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, one_line};
use crate::queries::redaction::{
    Redaction, RedactionReport, Rows, archived, erase_failure, failure, request, search_departments,
};
use crate::queries::storage::boards_and_archived;
use crate::reader::{Reader, storage};
use crate::serve::instance_lock::open_exclusive;
use crate::user;
use patchboard_kernel::text::counted;
use patchboard_protocols::PLANS;

/// Erase values of a board from every file: all values that a place ever had, or that a record brought
///
/// Each value is replaced by a salted commitment (`$redacted:…`), wherever the journal had it; views, prompts and
/// agents' texts that showed it are removed whole. The chain still verifies, and a record lists what was erased.
/// Paraphrases by agents cannot be detected; other places with the same text are reported, and erased with
/// --everywhere.
///
/// For an edit of files, all that it wrote is erased, and other edits of the file with the same lines. Name their
/// records, or the file by its place, like /files/src~1a.py. The files themselves are not touched.
///
/// If departments keep rows with the same text, choose: --departments erase, or keep.
///
/// A board that can continue must not hold the erased value. Give another value with --replace, which is committed
/// first, checked by the schema and the invariants. Or use --keep if the current value was put there since.
///
/// While a daemon runs, use its API (`POST /v1/boards/{board}/redactions`).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard redact last /request/name
  patchboard redact last /people/3/address 57 --everywhere
  patchboard redact last /request/name --replace '\"withheld\"'
  patchboard redact last --cassette run.jsonl")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    /// Values to erase: JSON Pointers into the document, and numbers of records
    #[arg(value_name = "POINTER|SEQ")]
    targets: Vec<String>,
    /// Replacement value, which is kept: JSON, or @FILE
    #[arg(long, value_name = "JSON")]
    replace: Option<String>,
    /// Keep the current values of the places, and their history since they were last written as a whole
    #[arg(long)]
    keep: bool,
    /// Also erase other values that contain an erased text
    #[arg(long)]
    everywhere: bool,
    /// Also destroy the board's salt: guesses can no longer be tested, and only the chain can be verified
    #[arg(long)]
    forget_salt: bool,
    /// Erase or keep rows of departments that contain an erased text; required if there are any
    #[arg(long, value_enum, value_name = "WHAT")]
    departments: Option<Rows>,
    /// Recordings of this board's agents, from which values erased now or before are removed, too
    #[arg(long, value_name = "FILE")]
    cassette: Vec<PathBuf>,
}

pub(crate) async fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let replacement = arguments.replace.as_deref().map(json_argument).transpose()?;
    let mut request = request(&arguments.targets)?;
    request.keep = arguments.keep;
    request.everywhere = arguments.everywhere;
    request.forget_salt = arguments.forget_salt;
    let board = Reader::open(data_dir)?.find(&arguments.board.board)?.id;
    let has_targets = !arguments.targets.is_empty() || arguments.forget_salt;
    if !has_targets && arguments.cassette.is_empty() {
        let message = "name what to erase: a place like /request/name, or a record";
        return Err(Failure::invalid_input("bad_redaction", message));
    }
    let first = Reader::open(data_dir)?.records(&board)?.into_iter().next();
    let hasher = first.as_ref().and_then(archive::hasher_of);
    let is_salted =
        matches!(first.as_ref().map(Record::body), Some(Ok(Body::Created(it))) if it.format >= SINCE_SALTED_TEXTS);
    if hasher.is_none() && is_salted && !arguments.cassette.is_empty() {
        let message = "the salt of the board is destroyed, so its views in a recording cannot be identified";
        return Err(Failure::invalid_input("salt_gone", message).help("delete the recording"));
    }
    let hashes = match arguments.cassette.is_empty() {
        true => BTreeMap::new(),
        false => hashes_of_views(&Reader::open(data_dir)?, &board)?,
    };
    let mut done = None;
    if has_targets {
        let (journal, _alone) = open_exclusive(data_dir, "POST /v1/boards/{board}/redactions")?;
        let _claim = wait(journal.claim(&board, false)).map_err(storage)?;
        let now = SystemClock.now();
        let by = Some(user::principal());
        let beside = search_departments(data_dir, arguments.departments);
        let redacted =
            redaction::redact(Arc::clone(&journal), board.clone(), request, replacement, (by, now), PLANS, beside)
                .await;
        done = Some(redacted.map_err(failure)?);
        let archives = patchboard_storage::archives(data_dir);
        archive::rewrite(&*journal, &*archives, &board, &PLANS).map_err(|error| archived(&error))?;
    }
    let mut cassettes = Vec::new();
    for path in &arguments.cassette {
        let reader = Reader::open(data_dir)?;
        let erased = cassette::erase(path, &reader.records(&board)?, hasher.as_ref(), &hashes);
        let erased = erased.map_err(|error| Failure::failed("cassette", error))?;
        cassettes.push(json!({"cassette": path, "views": erased.views, "answers": erased.answers}));
        if !output.is_json() {
            let count = |number: usize, noun| counted(number, noun);
            let (views, answers) = (count(erased.views, "view"), count(erased.answers, "answer"));
            output.line(&format!("{}: {views} and {answers} erased", one_line(&path.display().to_string())))?;
        }
    }
    let boards = boards_and_archived(&*Reader::open(data_dir)?.journal, data_dir)?;
    let related = BoardSummary::related(&boards, &board);
    if output.is_json() {
        let mut report = match &done {
            Some(done) => json!(RedactionReport::new(&board, done, &related)),
            None => json!({"board": board}),
        };
        report["cassettes"] = cassettes.into();
        output.json(&report)?;
    } else if let Some(done) = &done {
        print_redaction(done, output)?;
        if !related.is_empty() {
            let ids: Vec<&str> = related.iter().map(|id| id.as_str()).collect();
            output.note(&format!("boards that it is inside of, or inside of it, may hold the same: {}", ids.join(" ")));
        }
    }
    if let Some(error) = done.and_then(|done| done.purge_error) { Err(erase_failure(&error)) } else { Ok(Exit::Done) }
}

/// Returns the SHA-256 of each stored view text of a board, by its name.
fn hashes_of_views(reader: &Reader, board: &BoardId) -> Result<BTreeMap<Digest, Digest>, Failure> {
    let mut hashes = BTreeMap::new();
    for record in reader.records(board)? {
        if let Ok(Body::Invoked(invoked)) = record.body()
            && let Some(text) = wait(reader.journal.blob(invoked.view)).map_err(storage)?
        {
            hashes.insert(invoked.view, sha256(text.as_bytes()));
        }
    }
    Ok(hashes)
}

fn print_redaction(done: &Redaction, output: Output) -> Result<(), Failure> {
    let count = |number: u64, noun| counted(usize::try_from(number).unwrap_or(usize::MAX), noun);
    let (values, records) = (count(done.body.erased, "value"), count(done.body.records.len() as u64, "record"));
    let texts = count(done.body.texts.len() as u64, "text");
    output.line(&format!("erased: {values} in {records}, {texts}; record {} says so", done.head.seq))?;
    if done.body.salt {
        output.line("the salt is destroyed: from now on only the chain can be verified")?;
    }
    let (blueprint, values): (Vec<&RemainingCopy>, Vec<&RemainingCopy>) =
        done.remaining.iter().partition(|still| still.place == RemainingCopy::BLUEPRINT);
    if !blueprint.is_empty() {
        output.line("the blueprint itself says an erased text: it stays there, and in views and prompts made of it")?;
    }
    for still in &values {
        output.line(&format!("the same text remains at {} (record {})", one_line(&still.place), still.seq))?;
    }
    if !values.is_empty() {
        output.note("name these places as well, or use --everywhere");
    }
    done.external.sentence().map_or(Ok(()), |sentence| output.line(&sentence))
}
