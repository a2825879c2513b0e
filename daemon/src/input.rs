//! Reads the input of commands from files or standard input.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use patchboard_kernel::json::{self, Limits};
use patchboard_lint::source::Source;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use serde_json::{Map, Value};

use crate::failure::Failure;

const DEPTH_MAX: usize = 64;
const BYTES_MAX: u64 = 256 * 1024 * 1024;

/// File name that denotes standard input.
pub(crate) const STDIN: &str = "-";
/// Set once standard input has been read, which is possible only once.
static IS_STDIN_READ: AtomicBool = AtomicBool::new(false);

/// Value deserialized from an object only; serde by itself also accepts a list of the members.
pub(crate) struct StrictObject<T>(pub(crate) T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for StrictObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = Map::<String, Value>::deserialize(deserializer)?;
        serde_json::from_value(Value::Object(members)).map(Self).map_err(D::Error::custom)
    }
}

/// Reads a file, or standard input for `-`. Fails if it exceeds `max` bytes.
pub(crate) fn read_bytes(path: &Path, max: u64) -> Result<Vec<u8>, String> {
    let bytes = read_prefix(path, max)?;
    if bytes.len() as u64 > max { Err(format!("it has more than {max} bytes")) } else { Ok(bytes) }
}

/// Rejects a blueprint and a request that are both standard input.
pub(crate) fn check_single_stdin<'p>(
    mut blueprints: impl Iterator<Item = &'p Path>,
    request: Option<&str>,
) -> Result<(), Failure> {
    let is_request = request.is_some_and(|request| request.strip_prefix('@').unwrap_or(request) == STDIN);
    if is_request && blueprints.any(|path| path == Path::new(STDIN)) {
        let message = "standard input is named twice, as the blueprint and as the request";
        return Err(Failure::invalid_input("usage", message).help("give one of the two as a file"));
    }
    Ok(())
}

/// Like [`read_bytes()`], but reads at most one byte more than `max` without an error.
pub(crate) fn read_prefix(path: &Path, max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = match path == Path::new(STDIN) {
        true if IS_STDIN_READ.swap(true, Ordering::Relaxed) => return Err("standard input is named twice".to_owned()),
        true => io::stdin().take(max + 1).read_to_end(&mut bytes),
        false => File::open(path).and_then(|file| file.take(max + 1).read_to_end(&mut bytes)),
    };
    read.map(|_| bytes).map_err(|error| error.to_string())
}

/// Parses a JSON file, or a YAML file if its name ends so. Failures have `code`; `what` names the expected content.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, what: &str, code: &'static str) -> Result<T, Failure> {
    let shown = path.display();
    let refused = |why: &dyn std::fmt::Display| Failure::invalid_input(code, format!("{shown} holds no {what}: {why}"));
    let bytes = read_bytes(path, BYTES_MAX)
        .map_err(|why| Failure::invalid_input(code, format!("the {what} {shown} cannot be read: {why}")))?;
    let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    let value = if is_yaml {
        let text = String::from_utf8(bytes).map_err(|error| refused(&error))?;
        Source::read(&shown.to_string(), &text).map_err(|finding| refused(&finding.message))?.value().clone()
    } else {
        let limits = Limits { bytes: usize::try_from(BYTES_MAX).unwrap_or(usize::MAX), depth: DEPTH_MAX };
        json::parse(&bytes, limits).map_err(|error| refused(&error))?
    };
    serde_json::from_value(value).map_err(|error| refused(&error))
}
