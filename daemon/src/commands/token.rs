//! `patchboard token`: who may come in to the daemon.

use std::path::Path;

use clap::{Args, Subcommand};
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_runtime::journal::sqlite::SqliteJournal;
use serde_json::json;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, short, table};
use crate::reader::{moment, storage};
use crate::serve::access::Scope;
use crate::serve::tokens::Tokens;

/// Make, list and revoke the tokens that open the daemon of a data directory
///
/// A token is random, and kept only as a hash: its text is shown once. What it opens is its scope: `admin` everything,
/// `read` all boards to look at, `board:BOARD` one board, `seat:BOARD/WORKER` one worker's seat on one board. A daemon that
/// runs knows of changes at once.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard token create --scope admin --name operator
  patchboard token create --scope seat:0199c0de-7ad4-7000-8000-1ce8a0b1c2d3/planner
  patchboard token list
  patchboard token revoke 3")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
enum Command {
    /// Make a token and print it, this once
    Create {
        /// `admin`, `read`, `board:BOARD` or `seat:BOARD/WORKER`
        #[arg(long, value_parser = |text: &str| text.parse::<Scope>())]
        scope: Scope,
        /// What it is for
        #[arg(long, default_value = "")]
        name: String,
    },
    /// List the tokens, without what opens the door
    List,
    /// End a token
    Revoke {
        /// Its number in the list
        id: i64,
    },
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    // Makes the directory, closed to others.
    SqliteJournal::open(data_dir).map_err(storage)?;
    let tokens = Tokens::open(data_dir)?;
    match &arguments.command {
        Command::Create { scope, name } => {
            let (token, text) = tokens.create(name, scope.clone(), SystemClock.now())?;
            if output.is_json() {
                let mut made = json!(token);
                made["token"] = text.into();
                output.json(&made)?;
            } else {
                output.note(&format!("token {} opens {}; it is shown only here:", token.id, token.scope));
                output.line(&text)?;
            }
        }
        Command::List => {
            let all = tokens.list()?;
            if output.is_json() {
                for token in &all {
                    output.json(token)?;
                }
                return Ok(Exit::Done);
            }
            if all.is_empty() {
                output.note("there are no tokens; `patchboard token create --scope admin` makes one");
                return Ok(Exit::Done);
            }
            let rows = all.iter().map(|token| {
                let revoked = token.revoked_at.map_or_else(String::new, moment);
                [
                    token.id.to_string(),
                    short(&token.name, 40),
                    token.scope.to_string(),
                    moment(token.created_at),
                    revoked,
                ]
            });
            output.line(&table(["TOKEN", "NAME", "SCOPE", "CREATED", "REVOKED"], rows))?;
        }
        Command::Revoke { id } => {
            if !tokens.revoke(*id, SystemClock.now())? {
                return Err(Failure::refused("no_such_token", format!("no token {id} opens anything"))
                    .help("`patchboard token list` lists what there is"));
            }
            output.note(&format!("token {id} opens nothing any more"));
        }
    }
    Ok(Exit::Done)
}
