//! Key of a model: fixed, or printed by an operator's program.
//!
//! The program runs at first use, and again after the server refused its key. Concurrent callers share one run.

use std::io::ErrorKind;
use std::process::Stdio;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::Instant;

use patchboard_workspace::process_group::Group;

/// Size limit of a program's output in bytes.
const OUTPUT_MAX: u64 = 16 * 1024;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Time for which other callers get the failure of a run.
const FAILED_FOR: Duration = Duration::from_secs(5);

/// Keys that are kept for masking them in messages.
const ISSUED_MAX: usize = 8;

/// Rejects a key that a header cannot hold; the error omits the key.
pub(super) fn check(key: SecretString) -> Result<SecretString, String> {
    match key.expose_secret().bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        true => Ok(key),
        false => Err("the key holds characters that no header may hold".to_owned()),
    }
}

/// Reason why there is no key to send.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{why}")]
pub struct KeyError {
    why: String,
    /// Another run of the program may give a key; otherwise an operator must act.
    pub(super) is_transient: bool,
}

impl KeyError {
    pub(super) fn permanent(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_transient: false }
    }

    pub(super) fn transient(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_transient: true }
    }
}

pub(super) struct Keys {
    source: Source,
    issued: Mutex<Vec<SecretString>>,
}

enum Source {
    Fixed(Option<SecretString>),
    Program { words: Vec<String>, current: tokio::sync::Mutex<Option<Run>> },
}

struct Run {
    at: Instant,
    key: Result<SecretString, KeyError>,
}

impl Keys {
    /// Uses this key, or the output of a program if one is named.
    pub(super) fn new(key: Option<SecretString>, program: &[String]) -> Self {
        let source = match (key, program) {
            (None, [_, ..]) => Source::Program { words: program.to_vec(), current: tokio::sync::Mutex::default() },
            (key, _) => Source::Fixed(key),
        };
        Self { source, issued: Mutex::default() }
    }

    /// Returns the key to send. `refused` is a key that the server has refused; the program is then run again.
    pub(super) async fn get(&self, refused: Option<&SecretString>) -> Result<Option<SecretString>, KeyError> {
        let (words, current) = match &self.source {
            Source::Fixed(key) => return Ok(key.clone()),
            Source::Program { words, current } => (words, current),
        };
        let mut current = current.lock().await;
        let is_current = current.as_ref().is_some_and(|run| match &run.key {
            Ok(key) => refused.is_none_or(|refused| refused.expose_secret() != key.expose_secret()),
            Err(_) => run.at.elapsed() < FAILED_FOR,
        });
        if !is_current {
            let key = run(words).await;
            if let Ok(key) = &key {
                let mut issued = self.issued.lock();
                if issued.len() >= ISSUED_MAX {
                    issued.remove(0);
                }
                issued.push(key.clone());
            }
            *current = Some(Run { at: Instant::now(), key });
        }
        current.as_ref().map(|run| run.key.clone()).transpose()
    }

    pub(super) const fn can_renew(&self) -> bool {
        matches!(self.source, Source::Program { .. })
    }

    /// Returns the keys to mask in messages.
    pub(super) fn secrets(&self) -> Vec<SecretString> {
        if let Source::Fixed(key) = &self.source { key.iter().cloned().collect() } else { self.issued.lock().clone() }
    }
}

async fn run(words: &[String]) -> Result<SecretString, KeyError> {
    let [program, arguments @ ..] = words else { return Err(KeyError::permanent("api_key_command is empty")) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut group = Group::spawn(command).map_err(|error| {
        let why = format!("api_key_command cannot be started: {error}");
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::InvalidInput => KeyError::permanent(why),
            _ => KeyError::transient(why),
        }
    })?;
    let output = group.stdout();
    let reading = async {
        let mut bytes = Vec::new();
        if let Some(output) = output {
            output.take(OUTPUT_MAX + 1).read_to_end(&mut bytes).await?;
        }
        // More output is no key, and the program may block until it is read.
        let is_long = bytes.len() as u64 > OUTPUT_MAX;
        if !is_long {
            group.ended().await;
        }
        Ok::<_, std::io::Error>((bytes, group.end().await?, is_long))
    };
    let read = tokio::time::timeout(TIMEOUT, reading).await;
    let read =
        read.map_err(|_| KeyError::transient(format!("api_key_command gave no key within {} s", TIMEOUT.as_secs())))?;
    let (bytes, status, is_long) =
        read.map_err(|error| KeyError::transient(format!("api_key_command failed: {error}")))?;
    if is_long {
        return Err(KeyError::permanent(format!("api_key_command printed more than {OUTPUT_MAX} bytes")));
    }
    if !status.success() {
        return Err(KeyError::transient(format!("api_key_command failed: {status}")));
    }
    match str::from_utf8(&bytes).map(str::trim) {
        Ok(key) if !key.is_empty() => check(SecretString::from(key)).map_err(KeyError::permanent),
        Ok(_) => Err(KeyError::permanent("api_key_command printed nothing")),
        Err(_) => Err(KeyError::permanent("api_key_command printed something else than text")),
    }
}

#[cfg(test)]
mod tests;
