//! `patchboard audit-log`: lists administrative actions.

use std::path::Path;

use clap::Args;
use patchboard_storage::blocking::wait;

use crate::describe;
use crate::failure::{Exit, Outcome};
use crate::output::{Output, one_line};
use crate::reader::{Reader, format_time};
use crate::serve::tokens::{AuditEntry, TokenStore};

/// Entries per read.
const PAGE: usize = 1000;

/// List administrative actions that no board records: tokens created and revoked, boards archived, restored and deleted
///
/// Each entry names the caller: a token with its creator, or the operating system user. An entry is written before the
/// action begins; an action that failed, or that a crash interrupted, is `not done`. Events of a board are in the
/// board's journal (`patchboard log`). A daemon serves the same list at `GET /v1/audit-log`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard audit-log
  patchboard audit-log --after 120 --output json | jq 'select(.action == \"board_deleted\")'")]
pub(crate) struct Arguments {
    /// List entries after this number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    after: i64,
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let mut after = arguments.after;
    let mut entries: Vec<AuditEntry> = Vec::new();
    if !TokenStore::exist(data_dir) {
        drop(Reader::open(data_dir)?);
    } else {
        let log = TokenStore::open(data_dir)?;
        loop {
            let page = wait(log.audit_log(after, PAGE))?;
            let Some(last) = page.last() else { break };
            after = last.id;
            entries.extend(page);
        }
    }
    let row = |entry: &AuditEntry| {
        let by =
            entry.principal.as_ref().map_or_else(|| "the daemon, by [retention]".to_owned(), describe::caller_name);
        let (action, subject) = (entry.action.replace('_', " "), entry.subject.as_deref().unwrap_or_default());
        let action = if entry.done { action } else { format!("{action} (not done)") };
        [entry.id.to_string(), format_time(entry.at), one_line(&action), one_line(subject), by]
    };
    output.list(&entries, "there are no entries", ["ENTRY", "AT", "ACTION", "OF", "BY"], row)?;
    Ok(Exit::Done)
}
