//! Launcher for the host of a directory: a separate process, independent of the client that starts it and of its
//! terminal.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::host_dir::HostDir;
use crate::codes;
use crate::failure::Failure;

/// Timeout for the start of a host, crash recovery included.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum bytes of its start message.
const REPORT_BYTES_MAX: u64 = 16 << 10;

/// Error codes of a host's start, in addition to those of all commands.
const CODES: &[&str] = &["workspace_untrusted", "workspace_failed", "bad_directory", "bad_config", "already_served"];

/// Starts the host of a directory, if there is none, and waits until it is ready.
pub(crate) async fn launch(place: &HostDir) -> Result<(), Failure> {
    // Checked here, so that the caller gets the error directly.
    place.data()?;
    let Some(lock) = place.host()? else { return Ok(()) };
    let failed = |error: io::Error| Failure::failed("no_host", format!("no host can be started: {error}"));
    let mut command = Command::new(program().map_err(failed)?);
    command.args(["mcp", "--host", "--workspace"]).arg(place.directory()).current_dir(place.directory());
    command.stdin(Stdio::from(lock)).stdout(Stdio::piped()).stderr(Stdio::from(place.log()?));
    let mut child = command.spawn().map_err(failed)?;
    // From here on, only the child holds the lock.
    drop(command);
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout.take(REPORT_BYTES_MAX));
        // After a timeout the host may still start; the lock shows if there is one.
        drop(timeout(START_TIMEOUT, lines.read_line(&mut line)).await);
    }
    let report: Value = serde_json::from_str(&line).unwrap_or_default();
    match report["code"].as_str() {
        None if report.is_object() => Ok(()),
        None => Err(Failure::failed("no_host", "the host of the directory ended, or does not begin")
            .help("its errors are in .patchboard/host.log")),
        Some(code) => Err(start_failure(code, &report)),
    }
}

/// Converts the start message of a failed host.
fn start_failure(code: &str, report: &Value) -> Failure {
    let all = codes::entries().map(|entry| entry.code).chain(CODES.iter().copied());
    let code = all.into_iter().find(|known| *known == code).unwrap_or("no_host");
    let message = report["message"].as_str().unwrap_or("the host of the directory does not say why it cannot be one");
    let failure = match report["is_refused"].as_bool() {
        Some(true) => Failure::invalid_input(code, message),
        _ => Failure::failed(code, message),
    };
    if let Some(help) = report["help"].as_str() { failure.help(help) } else { failure }
}

/// Returns the path of this program, even if its file was replaced after the start.
fn program() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(if own.exists() { own } else { PathBuf::from("/proc/self/exe") })
}
