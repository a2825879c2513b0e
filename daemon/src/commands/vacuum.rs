//! `patchboard vacuum`: rewrites the journal's file without unused data.

use std::path::Path;

use clap::Args;
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::VacuumStats;
use serde_json::json;

use crate::failure::{Exit, Outcome};
use crate::output::Output;
use crate::queries::storage::VacuumReport;
use crate::reader::storage;
use crate::serve::instance_lock::open_exclusive;
use crate::serve::tokens::{Action, AuditedAction, TokenStore};
use crate::user;

/// Reclaim disk space that boards no longer need
///
/// Removes views and prompts that no record names, and rewrites the file. This needs space for a second file, and
/// blocks other writers meanwhile. While a daemon runs, use its API (`POST /v1/vacuum`).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard vacuum
  patchboard vacuum --data-dir /var/lib/patchboard")]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let (journal, _alone) = open_exclusive(data_dir, "POST /v1/vacuum")?;
    output.note("rewriting the file");
    let by = user::principal();
    let intended = AuditedAction { action: Action::JournalVacuumed, subject: None, by: Some(&by) };
    let vacuumed = TokenStore::open(data_dir)?
        .audited(&intended, SystemClock.now(), || wait(journal.vacuum()).map_err(storage))?;
    let VacuumStats { before, after, texts } = vacuumed;
    let text = || format!("{before} bytes before, {after} after; {texts} texts that no record names removed");
    output.json_or_line(&json!(VacuumReport::from(vacuumed)), text)?;
    Ok(Exit::Done)
}
