//! The `patchboard` binary: the command line.
//!
//! Owns arguments, the format of progress and results, and the exit codes. Makes no decisions about boards: the kernel
//! does, and the runtime runs it. Each command is a file of [`commands`].
//!
//! * [`cli`]: arguments; [`output`], [`logging`]: results.
//! * [`blueprint_file`]: blueprints on disk; [`architect`]: blueprints written by a model.
//! * [`worker_agents`], [`runner`], [`progress`]: running boards.
//! * [`doctor`]: checks of an installation.
//! * [`workspace`]: agents at one directory without a daemon.
//!
//! The daemon, and the answers that it shares with commands, are in [`patchboard_server`].

mod architect;
mod arguments;
mod blueprint_file;
mod cli;
mod client;
mod commands;
mod doctor;
mod input;
mod logging;
mod manifest_checks;
#[cfg(feature = "otlp")]
mod otlp;
mod output;
mod progress;
mod questions;
mod runner;
mod templates;
mod user;
mod worker_agents;
mod workspace;

use std::future::Future;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use mimalloc::MiMalloc;
use patchboard_server::{
    codes, config_tables, describe, diagnostics, failure, notify, outages, queries, reader, serve, trust,
};

use arguments::CommonOptions;
use cli::{Cli, Command};
use commands::answer::{self, PersonAnswer};
use failure::{Exit, Failure, Outcome};
use logging::{Level, LogFormat};
use output::{Format, Output, clean, is_printable};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage_error(&error),
    };
    let output = Output { format: cli.shared.output, quiet: cli.shared.quiet };
    let is_daemon = matches!(cli.command, Command::Serve(_));
    let level = Level { is_daemon, quiet: cli.shared.quiet, verbose: cli.shared.verbose };
    let _logging = logging::start(level, cli.shared.log_format);
    match dispatch(&cli.command, &cli.shared, output) {
        Ok(exit) => exit.into(),
        // A closed pipe is success: `patchboard log last | head` did its work.
        Err(Failure::StdoutClosed) => Exit::Done.into(),
        Err(Failure::Error(error)) => {
            let is_json = output.is_json() || cli.shared.log_format == LogFormat::Json;
            let format = if is_json { Format::Json } else { Format::Text };
            Output { format, ..output }.error(&error);
            error.exit.into()
        }
    }
}

fn dispatch(command: &Command, shared: &CommonOptions, output: Output) -> Outcome {
    let (data_dir, config) = (shared.data_dir.as_path(), shared.config.as_deref());
    match command {
        Command::Check(arguments) => commands::check::run(arguments, config, output),
        Command::Graph(arguments) => commands::graph::run(arguments, output),
        Command::Schema(arguments) => commands::schema::run(arguments, output),
        Command::Init(arguments) => commands::init::run(arguments, output),
        Command::Architect(arguments) => block_on(commands::architect::run(arguments, config, output)),
        Command::Run(arguments) => block_on(commands::run::run(arguments, data_dir, config, output)),
        Command::Kernel(arguments) => commands::kernel::run(arguments, output),
        Command::Room(arguments) => block_on(commands::room::run(arguments, data_dir, output)),
        Command::Workflow(arguments) => commands::workflow::run(arguments, output),
        Command::Boards(arguments) => commands::boards::run(arguments, data_dir, output),
        Command::Retry(arguments) => block_on(commands::retry::run(arguments, data_dir, config, output)),
        Command::Resume(arguments) => block_on(commands::resume::run(arguments, data_dir, config, output)),
        Command::Signal(arguments) => block_on(commands::signal::run(arguments, data_dir, config, output)),
        Command::Approve(of) => block_on(answer::run(&of.question, PersonAnswer::Agrees, data_dir, config, output)),
        Command::Deny(of) => block_on(answer::run(&of.question, PersonAnswer::Denies, data_dir, config, output)),
        Command::Answer(of) => {
            let said = PersonAnswer::Text(of.text.clone());
            block_on(answer::run(&of.question, said, data_dir, config, output))
        }
        Command::Inbox(arguments) => block_on(arguments.run(data_dir, output)),
        Command::Serve(arguments) => block_on(commands::serve::run(arguments, data_dir, config, output)),
        Command::Doctor(arguments) => block_on(commands::doctor::run(arguments, data_dir, config, output)),
        Command::Mcp(arguments) => block_on(commands::mcp::run(arguments, config)),
        Command::Notify(arguments) => block_on(commands::notify::run(arguments, config, output)),
        Command::Token(arguments) => commands::token::run(arguments, data_dir, output),
        Command::Trust(arguments) => commands::trust::run(arguments, output),
        Command::Log(arguments) => commands::log::run(arguments, data_dir, output),
        Command::State(arguments) => commands::state::run(arguments, data_dir, output),
        Command::View(arguments) => commands::view::run(arguments, data_dir, output),
        Command::Cost(arguments) => commands::cost::run(arguments, data_dir, output),
        Command::Rejections(arguments) => commands::rejections::run(arguments, data_dir, output),
        Command::Edits(arguments) => commands::edits::run(arguments, data_dir, output),
        Command::Why(arguments) => commands::why::run(arguments, data_dir, output),
        Command::Step(arguments) => block_on(commands::step::run(arguments, data_dir, config, output)),
        Command::Replay(arguments) => commands::replay::run(arguments, data_dir, output),
        Command::Verify(arguments) => commands::verify::run(arguments, data_dir, output),
        Command::AuditLog(arguments) => commands::audit_log::run(arguments, data_dir, output),
        Command::Heads(arguments) => commands::heads::run(arguments, data_dir, output),
        Command::Redact(arguments) => block_on(commands::redact::run(arguments, data_dir, output)),
        Command::Archive(arguments) => arguments.run(data_dir, output),
        Command::Restore(arguments) => block_on(arguments.run(data_dir, output)),
        Command::Delete(arguments) => arguments.run(data_dir, output),
        Command::Vacuum(arguments) => commands::vacuum::run(arguments, data_dir, output),
        Command::Export(arguments) => commands::export::run(arguments, data_dir, output),
    }
}

fn block_on(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed("start", format!("threads cannot be started: {error}")))?;
    let outcome = runtime.block_on(command);
    // Does not wait for threads blocked on standard input or a name server.
    runtime.shutdown_background();
    outcome
}

/// Prints requested help or version; otherwise reports the error in the command line.
fn report_usage_error(error: &clap::Error) -> ExitCode {
    let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if asked_for || !wants_json(&words) {
        // An error of writing is ignored: no reader is left.
        let _ = match words.iter().all(|word| is_printable(word)) {
            true => error.print(),
            false => writeln!(anstream::stderr(), "{}", clean(&error.render().to_string())),
        };
        return if asked_for { Exit::Done } else { Exit::InvalidInput }.into();
    }
    let text = error.render().to_string();
    let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    if let Failure::Error(cli_error) =
        Failure::invalid_input("usage", message).help("`patchboard --help` lists the commands")
    {
        Output { format: Format::Json, quiet: false }.error(&cli_error);
    }
    Exit::InvalidInput.into()
}

/// Returns true if an invalid command line asks for JSON.
fn wants_json(words: &[String]) -> bool {
    words.iter().any(|word| word == "--output=json") || words.windows(2).any(|pair| pair == ["--output", "json"])
}
