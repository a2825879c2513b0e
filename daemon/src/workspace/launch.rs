//! Starting the host of a directory: a process of its own, so that what becomes of the one that starts it, or of its terminal,
//! is nothing to the others.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::place::Place;
use crate::codes;
use crate::failure::Failure;

/// How long a host may take to begin, which includes what a crash has left it to do.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// Bytes of what it says of its beginning.
const SAID_BYTES_MAX: u64 = 16 << 10;

/// Codes that a host may begin with, beside those of all commands.
const CODES: &[&str] = &["workspace_untrusted", "workspace_failed", "bad_directory", "bad_config", "already_served"];

/// Starts the host of a directory, if there is none, and waits until it is one.
pub(crate) async fn launch(place: &Place) -> Result<(), Failure> {
    // Said at once to who asks, and not by a process that ends.
    place.data()?;
    let Some(lock) = place.host()? else { return Ok(()) };
    let failed = |error: io::Error| Failure::failed("no_host", format!("no host can be started: {error}"));
    let mut command = Command::new(program().map_err(failed)?);
    command.args(["mcp", "--host", "--workspace"]).arg(place.directory()).current_dir(place.directory());
    command.stdin(Stdio::from(lock)).stdout(Stdio::piped()).stderr(Stdio::from(place.log()?));
    let mut child = command.spawn().map_err(failed)?;
    // The lock is the child's alone from here on.
    drop(command);
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout.take(SAID_BYTES_MAX));
        // What is not said in time may be said yet: the lock tells whether there is a host.
        drop(timeout(BEGINS_WITHIN, lines.read_line(&mut said)).await);
    }
    let said: Value = serde_json::from_str(&said).unwrap_or_default();
    match said["code"].as_str() {
        None if said.is_object() => Ok(()),
        None => Err(Failure::failed("no_host", "the host of the directory ended, or does not begin")
            .help("what it complains of is in .patchboard/host.log")),
        Some(code) => Err(refused(code, &said)),
    }
}

/// What a host has to say that cannot be one.
fn refused(code: &str, said: &Value) -> Failure {
    let all = codes::entries().map(|entry| entry.code).chain(CODES.iter().copied());
    let code = all.into_iter().find(|known| *known == code).unwrap_or("no_host");
    let message = said["message"].as_str().unwrap_or("the host of the directory does not say why it cannot be one");
    let failure = match said["is_refused"].as_bool() {
        Some(true) => Failure::refused(code, message),
        _ => Failure::failed(code, message),
    };
    match said["help"].as_str() {
        Some(help) => failure.help(help),
        None => failure,
    }
}

/// This program, also where another one has come in its place since it was started.
fn program() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(if own.exists() { own } else { PathBuf::from("/proc/self/exe") })
}
