//! `patchboard token`: who may come in to the daemon, and the token of a repetition.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use patchboard_kernel::blueprint::Duration;
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::{canonical, idempotency};
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_runtime::journal::sqlite::SqliteJournal;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::given;
use crate::output::{Output, short, table};
use crate::reader::{moment, storage};
use crate::serve::access::Scope;
use crate::serve::tokens::{Tokens, Wanted};
use crate::serve::{KEY_FORM, is_key};
use crate::{narrative, user};

/// Bytes of what a token is made of.
const CONTENT_BYTES_MAX: u64 = 1 << 30;

/// Make, list and end the tokens that open the daemon of a data directory; or make the token of a repetition
///
/// A token of the daemon is random, and kept only as a hash: its text is shown once. What it opens is its scope: `admin` everything,
/// `read` all boards to look at, `board:BOARD` one board, `seat:BOARD/WORKER` one worker's seat on one board, `person:NAME` what
/// the human worker of this name is asked on any board; `read+person:NAME` and `board:BOARD+person:NAME` are both. A daemon that runs knows of changes at once.
///
/// With AGENT, TASK and FILE it prints the idempotency token by which a repetition is known: `AGENT:TASK:HASH`, the hash
/// being the first 16 hex digits of SHA-256 over agent, line feed, task, line feed and the bytes of the file. The same work
/// sent again has the same token, whoever computes it. A daemon takes it as an Idempotency-Key if agent and task have no
/// spaces and nothing but ASCII, and all of it has at most 128 characters.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Examples:
  patchboard token create --scope admin --name operator
  patchboard token create --scope seat:0199c0de-7ad4-7000-8000-1ce8a0b1c2d3/planner
  patchboard token create --scope read --name dashboard --expires 90d
  patchboard token create --scope person:editor --name 'Ada, editor in chief'
  patchboard token list
  patchboard token revoke 3
  patchboard token builder compile-17 result.json --json    of the same work always the same")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    of: Option<Repetition>,
}

/// What a token is of that is the same for the same work.
#[derive(Args, Debug)]
struct Repetition {
    /// Who does it
    #[arg(value_name = "AGENT", required = true)]
    agent: String,
    /// What for
    #[arg(value_name = "TASK", required = true)]
    task: String,
    /// What it is, byte for byte; - for standard input
    #[arg(value_name = "FILE", required = true)]
    content: PathBuf,
    /// The file is JSON: however it is written, the same value has the same token (RFC 8785)
    #[arg(long)]
    json: bool,
}

/// What to do.
#[derive(Subcommand, Debug)]
enum Command {
    /// Make a token and print it, this once
    Create {
        /// `admin`, `read`, `board:BOARD`, `seat:BOARD/WORKER` or `person:NAME`; or `read+person:NAME`, `board:BOARD+person:NAME`
        #[arg(long, value_parser = |text: &str| text.parse::<Scope>())]
        scope: Scope,
        /// What it is for
        #[arg(long, default_value = "")]
        name: String,
        /// How long it opens something, like 90d or 12h; without it, until it is revoked
        #[arg(long, value_name = "TIME")]
        expires: Option<Duration>,
    },
    /// List the tokens, without what opens the door
    List,
    /// End a token: streams and requests that it opened end, too
    Revoke {
        /// Its number in the list
        id: i64,
    },
    /// End a token, and take it out of the list
    Delete {
        /// Its number in the list
        id: i64,
    },
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    match (&arguments.command, &arguments.of) {
        (Some(command), _) => administer(command, data_dir, output),
        (None, Some(of)) => repetition(of, output),
        (None, None) => Err(Failure::refused("usage", "`token` needs a command, or an agent, a task and a file")
            .help("`patchboard token --help` has examples")),
    }
}

/// Prints the token of a repetition.
fn repetition(of: &Repetition, output: Output) -> Outcome {
    let content = if of.json {
        let value: Value = given::read(&of.content, "JSON", "content_unreadable")?;
        canonical::to_string(&value).into_bytes()
    } else {
        given::bytes(&of.content, CONTENT_BYTES_MAX).map_err(|why| {
            Failure::refused("content_unreadable", format!("{} cannot be read: {why}", of.content.display()))
        })?
    };
    let token = idempotency::token(&of.agent, &of.task, &content).map_err(|bad| Failure::refused("usage", bad))?;
    if output.is_json() {
        output.json(&json!({"token": token}))?;
    } else {
        output.line(&token)?;
    }
    if !is_key(&token) {
        output.note(&format!("a daemon does not take it as an Idempotency-Key: that has {KEY_FORM}"));
    }
    Ok(Exit::Done)
}

fn administer(command: &Command, data_dir: &Path, output: Output) -> Outcome {
    // Makes the directory, closed to others.
    SqliteJournal::open(data_dir).map_err(storage)?;
    let tokens = Tokens::open(data_dir)?;
    match command {
        Command::Create { scope, name, expires } => {
            let wanted = Wanted { name, scope: scope.clone(), lifetime: *expires, by: user::principal() };
            let (token, text) = tokens.create(&wanted, SystemClock.now())?;
            if output.is_json() {
                let mut made = json!(token);
                made["token"] = text.into();
                output.json(&made)?;
            } else {
                let until = token.expires_at.map_or_else(String::new, |at| format!(" until {}", moment(at)));
                output.note(&format!("token {} opens {}{until}; it is shown only here:", token.id, token.scope));
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
                let time = |at: Option<Timestamp>| at.map_or_else(String::new, moment);
                [
                    token.id.to_string(),
                    short(&token.name, 40),
                    token.scope.to_string(),
                    moment(token.created_at),
                    time(token.expires_at),
                    time(token.revoked_at),
                    token.made_by.as_ref().map(narrative::name_of).unwrap_or_default(),
                ]
            });
            output.line(&table(["TOKEN", "NAME", "SCOPE", "CREATED", "EXPIRES", "REVOKED", "MADE BY"], rows))?;
        }
        Command::Revoke { id } => {
            if !tokens.revoke(*id, &user::principal(), SystemClock.now())? {
                return Err(no_such(format!("no token {id} opens anything")));
            }
            output.note(&format!("token {id} opens nothing any more"));
        }
        Command::Delete { id } => {
            if !tokens.delete(*id, &user::principal(), SystemClock.now())? {
                return Err(no_such(format!("there is no token {id}")));
            }
            output.note(&format!("token {id} opens nothing any more, and is forgotten"));
        }
    }
    Ok(Exit::Done)
}

fn no_such(message: String) -> Failure {
    Failure::refused("no_such_token", message).help("`patchboard token list` lists what there is")
}
