//! The command line: what can be asked for, and the options all commands share.
//!
//! Each command keeps its own arguments and its work in a file of [`crate::commands`].

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::commands::{
    answer, architect, audit_log, boards, check, cost, denials, doctor, edits, export, faults, graph, heads, inbox,
    init, kernel, log, mcp, notify, redact, replay, resume, retry, room, run, schema, signal, state, step, storage,
    token, trust, vacuum, verify, view, why, workflow,
};
use crate::logging::LogFormat;
use crate::output::Format;
use crate::serve;

/// Agents that work on one shared, typed document instead of talking to each other.
///
/// A blueprint says what the document looks like, which workers there are, what each may read and write, and what wakes
/// them. Workers propose JSON Patches; the kernel checks every one of them and commits it whole or refuses it with a
/// reason. Everything is kept in a journal, so that a run can be replayed without calling a model again, and every
/// field can be asked who wrote it and why.
#[derive(Parser, Debug)]
#[command(
    name = "patchboard",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(after_long_help = "\
Where to start:
  patchboard init DIR                             a blueprint to begin with, and how to run it
  patchboard check BLUEPRINT                      is this blueprint sound?
  patchboard run BLUEPRINT --request @task.json   let its workers do a task
  patchboard log last                             what happened?
  patchboard why last /answer                     who wrote this, and why?

Exit codes: 0 done · 1 failed · 2 wrong usage or refused blueprint · 3 stopped by a breaker or a limit
            4 nothing left to do, not done · 5 waiting for a person (asked, or paused)

Results go to stdout, progress and errors to stderr.")]
pub(crate) struct Cli {
    /// What every command understands.
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where boards are kept by default.
pub(crate) const DATA_DIR: &str = ".patchboard";

/// Variable that names another place.
pub(crate) const DATA_DIR_ENV: &str = "PATCHBOARD_DATA_DIR";

/// What every command understands.
#[derive(Args, Debug)]
pub(crate) struct Shared {
    /// Where boards are kept: one file, patchboard.db
    #[arg(long, global = true, value_name = "DIR", env = DATA_DIR_ENV, default_value = DATA_DIR)]
    #[arg(help_heading = "Common options")]
    pub(crate) data_dir: PathBuf,
    /// The operator's configuration: models and programs [default: ./patchboard.toml, if you have agreed to it with `trust`]
    #[arg(long, global = true, value_name = "FILE", env = "PATCHBOARD_CONFIG", help_heading = "Common options")]
    pub(crate) config: Option<PathBuf>,
    /// For people, or one JSON value (or one per line) on stdout
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", help_heading = "Common options")]
    pub(crate) output: Format,
    /// No progress on stderr; errors are still told
    #[arg(long, short, global = true, help_heading = "Common options")]
    pub(crate) quiet: bool,
    /// Log more on stderr: -v what happens, -vv also views and calls; `serve` tells what happens anyway (RUST_LOG, where set,
    /// decides instead)
    #[arg(long, short, global = true, action = ArgAction::Count, help_heading = "Common options")]
    pub(crate) verbose: u8,
    /// The form of logs on stderr: for people, or one JSON object to a line
    #[arg(long, global = true, value_name = "FORMAT", env = "PATCHBOARD_LOG_FORMAT", default_value = "text")]
    #[arg(help_heading = "Common options")]
    pub(crate) log_format: LogFormat,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Init(init::Arguments),
    Check(check::Arguments),
    Schema(schema::Arguments),
    Graph(graph::Arguments),
    Architect(architect::Arguments),
    Run(run::Arguments),
    Kernel(kernel::Arguments),
    Room(room::Arguments),
    Workflow(workflow::Arguments),
    Boards(boards::Arguments),
    Resume(resume::Arguments),
    Retry(retry::Arguments),
    Signal(signal::Arguments),
    Serve(serve::Arguments),
    Doctor(doctor::Arguments),
    Mcp(mcp::Arguments),
    Notify(notify::Arguments),
    Token(token::Arguments),
    AuditLog(audit_log::Arguments),
    Trust(trust::Arguments),
    Approve(answer::Approve),
    Deny(answer::Deny),
    Answer(answer::Tell),
    Inbox(inbox::Inbox),
    Log(log::Arguments),
    State(state::Arguments),
    View(view::Arguments),
    Why(why::Arguments),
    Step(step::Arguments),
    Cost(cost::Arguments),
    Denials(denials::Arguments),
    Edits(edits::Arguments),
    Replay(replay::Arguments),
    Verify(verify::Arguments),
    Heads(heads::Arguments),
    Export(export::Arguments),
    Redact(redact::Arguments),
    Vacuum(vacuum::Arguments),
    Archive(storage::ToArchive),
    Restore(storage::Restore),
    Delete(storage::Delete),
    Faults(faults::Arguments),
}

/// Names a board.
#[derive(Args, Debug, Clone)]
pub(crate) struct BoardArgument {
    /// The board: its id, a beginning of the id that no other board has, or `last`
    #[arg(value_name = "BOARD")]
    pub(crate) board: String,
}

#[cfg(test)]
mod tests;
