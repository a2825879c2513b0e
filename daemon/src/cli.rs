//! Command line: the commands.
//!
//! Each command keeps its own arguments and its work in a file of [`crate::commands`].

use clap::{Parser, Subcommand};

use crate::arguments::CommonOptions;
use crate::commands::{
    answer, architect, audit_log, boards, check, cost, doctor, edits, export, graph, heads, inbox, init, kernel, log,
    mcp, notify, redact, rejections, replay, resume, retry, room, run, schema, signal, state, step, storage, token,
    trust, vacuum, verify, view, why, workflow,
};
use crate::serve;

/// Agents that work on one shared, typed document instead of talking to each other.
///
/// A blueprint declares the state schema of the document, the workers, what each may read and write, and the rules that
/// trigger them. Workers propose JSON Patches; the kernel validates each and commits it as a whole or rejects it with a
/// reason. A journal records everything, so a run can be replayed without model calls and every field traced to the
/// worker and the reason that wrote it.
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
            4 stalled: nothing left to do, not done · 5 waiting for a person (asked, or paused)

Results go to stdout, progress and errors to stderr.")]
pub(crate) struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub(crate) shared: CommonOptions,
    /// Selected command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Init(init::Arguments),
    Check(check::Arguments),
    Schema(schema::Arguments),
    Graph(graph::Arguments),
    Architect(architect::Arguments),
    Run(run::Arguments),
    #[command(name = "pipe", alias = "kernel")]
    Kernel(kernel::Arguments),
    #[command(subcommand)]
    Room(room::Command),
    #[command(subcommand)]
    Workflow(workflow::Command),
    Boards(boards::Arguments),
    Resume(resume::Arguments),
    Retry(retry::Arguments),
    Signal(signal::Arguments),
    Serve(serve::Arguments),
    Doctor(doctor::Arguments),
    Mcp(mcp::Arguments),
    #[command(subcommand)]
    Notify(notify::Command),
    Token(token::Arguments),
    AuditLog(audit_log::Arguments),
    Trust(trust::Arguments),
    Approve(answer::Approve),
    Deny(answer::Deny),
    Answer(answer::AnswerArguments),
    Inbox(inbox::Inbox),
    Log(log::Arguments),
    State(state::Arguments),
    View(view::Arguments),
    Why(why::Arguments),
    #[command(name = "dry-run", alias = "step")]
    Step(step::Arguments),
    Cost(cost::Arguments),
    #[command(name = "rejections", alias = "denials")]
    Rejections(rejections::Arguments),
    #[command(name = "edit-stats", alias = "edits")]
    Edits(edits::Arguments),
    Replay(replay::Arguments),
    Verify(verify::Arguments),
    Heads(heads::Arguments),
    Export(export::Arguments),
    Redact(redact::Arguments),
    Vacuum(vacuum::Arguments),
    Archive(storage::Archive),
    Restore(storage::Restore),
    Delete(storage::Delete),
}

#[cfg(test)]
mod tests;
