//! Reads the input of commands from files or standard input.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use patchboard_kernel::json::{self, Limits};
use patchboard_kernel::source::Source;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use serde_json::{Map, Value};

use crate::failure::Failure;

/// Maximum nesting of JSON input.
const DEPTH_MAX: usize = 64;
/// Maximum bytes of JSON input.
const BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Units of sizes, longer names first.
const UNITS: [(&str, u64); 8] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

/// Description of valid sizes, for error messages.
const SIZE: &str = "a size is a whole number of bytes, or one with a unit: 1048576, 512MiB, 2GiB, 2GB";

/// Parses a number of bytes: `1048576`, or with a unit as in `512MiB`.
///
/// # Errors
/// A message for people.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let unit = UNITS.iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let digits = number.trim_end();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SIZE.to_owned());
    }
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| "the size is too large".to_owned())
}

/// Deserializes a size in a configuration: a number, or a text as [`parse_size`] parses it.
pub(crate) fn deserialize_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Given {
        Number(u64),
        Text(String),
    }
    let bytes = match Given::deserialize(deserializer).map_err(|_| D::Error::custom(SIZE))? {
        Given::Number(number) => number,
        Given::Text(text) => parse_size(&text).map_err(D::Error::custom)?,
    };
    usize::try_from(bytes).map_err(D::Error::custom)
}

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

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// The reason the file cannot be read, or the file exceeds `max` bytes.
pub(crate) fn read_bytes(path: &Path, max: u64) -> Result<Vec<u8>, String> {
    let bytes = read_prefix(path, max)?;
    if bytes.len() as u64 > max { Err(format!("it has more than {max} bytes")) } else { Ok(bytes) }
}

/// Rejects a blueprint and a request that are both standard input.
///
/// # Errors
/// `usage`.
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
///
/// # Errors
/// The reason the file cannot be read.
pub(crate) fn read_prefix(path: &Path, max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = match path == Path::new(STDIN) {
        true if IS_STDIN_READ.swap(true, Ordering::Relaxed) => return Err("standard input is named twice".to_owned()),
        true => io::stdin().take(max + 1).read_to_end(&mut bytes),
        false => File::open(path).and_then(|file| file.take(max + 1).read_to_end(&mut bytes)),
    };
    read.map(|_| bytes).map_err(|error| error.to_string())
}

/// Parses a JSON file, or a YAML file if its name ends so.
///
/// # Errors
/// `code`: the file cannot be read, or has the wrong content; `what` names the expected content.
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

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn a_size_is_a_number_with_or_without_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("7B", 7),
            ("16KiB", 16 << 10),
            ("512MiB", 512 << 20),
            ("2GiB", 2 << 30),
            ("2 GiB", 2 << 30),
            ("1TiB", 1 << 40),
            ("3kB", 3000),
            ("3MB", 3_000_000),
            ("3GB", 3_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "-1", "+1", "1.5GiB", "2G", "2gib", "1_000", "0x10", " 1", "1 MiB ", "１"] {
            assert!(parse_size(text).is_err_and(|why| why.contains("512MiB")), "{text}");
        }
        for text in ["18446744073709551616", "16777216TiB"] {
            assert!(parse_size(text).is_err_and(|why| why.contains("too large")), "{text}");
        }
    }
}
