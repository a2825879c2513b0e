//! `patchboard room`: what is decided in a negotiation room, by votes in a file or on a board.

mod decide;
mod wait;

use std::path::Path;

use clap::{Args, Subcommand};

use crate::failure::Outcome;
use crate::output::Output;

/// What is decided in a negotiation room, worked out from files or on a board
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What to find out.
#[derive(Subcommand, Debug)]
enum Command {
    Decide(decide::Decide),
    Wait(wait::Wait),
}

pub(crate) async fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    match &arguments.command {
        Command::Decide(arguments) => decide::run(arguments, output),
        Command::Wait(arguments) => wait::run(arguments, data_dir, output).await,
    }
}
