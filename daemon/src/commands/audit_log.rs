//! `patchboard audit-log`: what administrators did beside the boards.

use std::path::Path;

use clap::Args;

use crate::failure::{Exit, Outcome};
use crate::narrative;
use crate::output::{Output, one_line, table};
use crate::reader::{Reader, moment};
use crate::serve::tokens::{AuditEntry, Tokens};

/// Entries that are read at once.
const PAGE: usize = 1000;

/// List actions of administrators that no board records: tokens made and ended, boards archived, restored and deleted
///
/// Each entry names the caller: a token with the maker of the token, or the user of the operating system. An entry is written before the
/// action begins; one that failed, or that a crash broke off, is `not done`. What happens on a board is in the board's journal (`patchboard log`).
/// A daemon answers the same at `GET /v1/audit-log`.
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
    if !Tokens::exist(data_dir) {
        drop(Reader::open(data_dir)?);
    } else {
        let log = Tokens::open(data_dir)?;
        loop {
            let page = log.audit_log(after, PAGE)?;
            let Some(last) = page.last() else { break };
            after = last.id;
            entries.extend(page);
        }
    }
    if output.is_json() {
        entries.iter().try_for_each(|entry| output.json(entry))?;
        return Ok(Exit::Done);
    }
    if entries.is_empty() {
        output.note("there are no entries");
        return Ok(Exit::Done);
    }
    let rows = entries.iter().map(|entry| {
        let by = entry.principal.as_ref().map_or_else(|| "the daemon, by [retention]".to_owned(), narrative::name_of);
        let (action, subject) = (entry.action.replace('_', " "), entry.subject.as_deref().unwrap_or_default());
        let action = if entry.done { action } else { format!("{action} (not done)") };
        [entry.id.to_string(), moment(entry.at), one_line(&action), one_line(subject), by]
    });
    output.line(&table(["ENTRY", "AT", "ACTION", "OF", "BY"], rows))?;
    Ok(Exit::Done)
}
