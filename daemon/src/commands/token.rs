//! `patchboard token`: manages API tokens of the daemon, and computes idempotency keys.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use patchboard_kernel::blueprint::Duration;
use patchboard_kernel::id::Timestamp;
use patchboard_kernel::{canonical, idempotency};
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_storage::blocking::wait;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::input;
use crate::output::{Output, short};
use crate::reader::{format_time, storage};
use crate::serve::access::Scope;
use crate::serve::tokens::{NewToken, TokenStore};
use crate::serve::{KEY_FORM, is_key};
use crate::{describe, user};

const CONTENT_BYTES_MAX: u64 = 1 << 30;

/// Create, list and revoke API tokens for the daemon of a data directory; or compute an idempotency key
///
/// An API token is random and stored only as a hash: its text is shown once. Its scope is what it permits. `admin`
/// permits everything, `read` viewing all boards, `board:BOARD` one board, `seat:BOARD/WORKER` one worker's seat on one
/// board, `person:NAME` answering the questions to the human worker of this name on any board; `read+person:NAME` and
/// `board:BOARD+person:NAME` combine two. Changes apply at once to a running daemon.
///
/// With AGENT, TASK and FILE it prints an idempotency key, `AGENT:TASK:HASH`. HASH is the first 16 hex digits of
/// SHA-256 over agent, line feed, task, line feed and the bytes of the file. The same work always has the same key. A
/// daemon accepts it as an Idempotency-Key if agent and task are ASCII without spaces, and the key has at most 128
/// characters.
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
    of: Option<KeyArguments>,
}

/// Input of an idempotency key.
#[derive(Args, Debug)]
struct KeyArguments {
    /// The agent that does the work
    #[arg(value_name = "AGENT", required = true)]
    agent: String,
    /// The task
    #[arg(value_name = "TASK", required = true)]
    task: String,
    /// The content, byte for byte; - for standard input
    #[arg(value_name = "FILE", required = true)]
    content: PathBuf,
    /// Parse the file as JSON and canonicalise it: equal values have the same key (RFC 8785)
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Create a token and print it, only once
    Create {
        /// One of `admin`, `read`, `board:BOARD`, `seat:BOARD/WORKER`, `person:NAME`, `read+person:NAME`,
        /// `board:BOARD+person:NAME`
        #[arg(long, value_parser = |text: &str| text.parse::<Scope>())]
        scope: Scope,
        /// A name for the list
        #[arg(long, default_value = "")]
        name: String,
        /// Lifetime, like 90d or 12h; without it, until it is revoked
        #[arg(long, value_name = "TIME")]
        expires: Option<Duration>,
    },
    /// List tokens (secrets are not shown)
    List,
    /// Revoke a token: streams and requests that use it end, too
    Revoke {
        /// The number in the list
        id: i64,
    },
    /// Revoke a token, and remove it from the list
    Delete {
        /// The number in the list
        id: i64,
    },
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    match (&arguments.command, &arguments.of) {
        (Some(command), _) => administer(command, data_dir, output),
        (None, Some(of)) => print_key(of, output),
        (None, None) => Err(Failure::invalid_input("usage", "`token` needs a command, or an agent, a task and a file")
            .help("`patchboard token --help` has examples")),
    }
}

fn print_key(of: &KeyArguments, output: Output) -> Outcome {
    let content = if of.json {
        let value: Value = input::read(&of.content, "JSON", "content_unreadable")?;
        canonical::to_string(&value).into_bytes()
    } else {
        input::read_bytes(&of.content, CONTENT_BYTES_MAX).map_err(|why| {
            Failure::invalid_input("content_unreadable", format!("{} cannot be read: {why}", of.content.display()))
        })?
    };
    let token = idempotency::key(&of.agent, &of.task, &content).map_err(|bad| Failure::invalid_input("usage", bad))?;
    output.json_or_line(&json!({"token": token}), || token.clone())?;
    if !is_key(&token) {
        output.note(&format!("a daemon does not take it as an Idempotency-Key: that has {KEY_FORM}"));
    }
    Ok(Exit::Done)
}

fn administer(command: &Command, data_dir: &Path, output: Output) -> Outcome {
    // Creates the data directory, inaccessible to other users.
    patchboard_storage::open(data_dir).map_err(storage)?;
    let tokens = TokenStore::open(data_dir)?;
    match command {
        Command::Create { scope, name, expires } => {
            let wanted = NewToken { name, scope: scope.clone(), lifetime: *expires, by: user::principal() };
            let (token, text) = wait(tokens.create(&wanted, SystemClock.now()))?;
            if output.is_json() {
                let mut made = json!(token);
                made["token"] = text.into();
                output.json(&made)?;
            } else {
                let until = token.expires_at.map_or_else(String::new, |at| format!(", expires {}", format_time(at)));
                output.note(&format!("created token {} (scope: {}{until}); shown only once:", token.id, token.scope));
                output.line(&text)?;
            }
        }
        Command::List => {
            let header = ["TOKEN", "NAME", "SCOPE", "CREATED", "EXPIRES", "REVOKED", "MADE BY"];
            let none = "there are no tokens; `patchboard token create --scope admin` makes one";
            output.list(&wait(tokens.list())?, none, header, |token| {
                let time = |at: Option<Timestamp>| at.map_or_else(String::new, format_time);
                [
                    token.id.to_string(),
                    short(&token.name, 40),
                    token.scope.to_string(),
                    format_time(token.created_at),
                    time(token.expires_at),
                    time(token.revoked_at),
                    token.made_by.as_ref().map(describe::caller_name).unwrap_or_default(),
                ]
            })?;
        }
        Command::Revoke { id } => {
            if !wait(tokens.revoke(*id, &user::principal(), SystemClock.now()))? {
                return Err(no_such(format!("no token {id} opens anything")));
            }
            output.note(&format!("token {id} opens nothing any more"));
        }
        Command::Delete { id } => {
            if !wait(tokens.delete(*id, &user::principal(), SystemClock.now()))? {
                return Err(no_such(format!("there is no token {id}")));
            }
            output.note(&format!("token {id} opens nothing any more, and is forgotten"));
        }
    }
    Ok(Exit::Done)
}

fn no_such(message: String) -> Failure {
    Failure::invalid_input("no_such_token", message).help("`patchboard token list` lists the tokens")
}
