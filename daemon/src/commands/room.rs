//! `patchboard room`: decisions in a negotiation room, from votes in a file or on a board.

mod decide;
mod wait;

use std::path::Path;

use clap::Subcommand;

use crate::failure::Outcome;
use crate::output::Output;

/// Decisions in a negotiation room, from files or on a board
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Decide(decide::Decide),
    Wait(wait::Wait),
}

pub(crate) async fn run(command: &Command, data_dir: &Path, output: Output) -> Outcome {
    match command {
        Command::Decide(arguments) => decide::run(arguments, output),
        Command::Wait(arguments) => wait::run(arguments, data_dir, output).await,
    }
}
