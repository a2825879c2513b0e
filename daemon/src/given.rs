//! What a command is given in a file, or on standard input.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use patchboard_kernel::json::{self, Limits};
use patchboard_kernel::source::Source;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use serde_json::{Map, Value};

use crate::failure::Failure;

/// The deepest nesting of what is given as JSON.
const DEPTH_MAX: usize = 64;
/// Bytes of what is given as JSON.
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

/// Describes sizes to those who gave none.
const SIZE: &str = "a size is a whole number of bytes, or one with a unit: 1048576, 512MiB, 2GiB, 2GB";

/// Reads a number of bytes: `1048576`, or with a unit as in `512MiB`.
///
/// # Errors
/// For people.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let unit = UNITS.iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let digits = number.trim_end();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SIZE.to_owned());
    }
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| "the size is too large".to_owned())
}

/// Reads a size of a configuration: a number, or a text as [`size`] reads it.
pub(crate) fn size_of<'de, D: Deserializer<'de>>(given: D) -> Result<usize, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Given {
        Number(u64),
        Text(String),
    }
    let bytes = match Given::deserialize(given).map_err(|_| D::Error::custom(SIZE))? {
        Given::Number(number) => number,
        Given::Text(text) => size(&text).map_err(D::Error::custom)?,
    };
    usize::try_from(bytes).map_err(D::Error::custom)
}

/// Name of standard input in place of a file.
pub(crate) const STDIN: &str = "-";
/// True once standard input is read: it has one text.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// What an object says. By itself, serde takes a list of its members for it as well.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(given: D) -> Result<Self, D::Error> {
        let members = Map::<String, Value>::deserialize(given)?;
        serde_json::from_value(Value::Object(members)).map(Self).map_err(D::Error::custom)
    }
}

/// The bytes of a file, or of standard input where it is called `-`.
///
/// # Errors
/// Why they cannot be had, or that there are more than `max`.
pub(crate) fn bytes(path: &Path, max: u64) -> Result<Vec<u8>, String> {
    let bytes = beginning(path, max)?;
    if bytes.len() as u64 > max { Err(format!("it has more than {max} bytes")) } else { Ok(bytes) }
}

/// Refuses a blueprint and a request that are both standard input.
///
/// # Errors
/// `usage`.
pub(crate) fn apart<'p>(mut blueprints: impl Iterator<Item = &'p Path>, request: Option<&str>) -> Result<(), Failure> {
    let is_request = request.is_some_and(|request| request.strip_prefix('@').unwrap_or(request) == STDIN);
    if is_request && blueprints.any(|path| path == Path::new(STDIN)) {
        let message = "standard input is named twice, as the blueprint and as the request";
        return Err(Failure::refused("usage", message).help("give one of the two as a file"));
    }
    Ok(())
}

/// The same up to one byte more than `max`.
///
/// # Errors
/// Why they cannot be had.
pub(crate) fn beginning(path: &Path, max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = match path == Path::new(STDIN) {
        true if IS_TAKEN.swap(true, Ordering::Relaxed) => return Err("standard input is named twice".to_owned()),
        true => io::stdin().take(max + 1).read_to_end(&mut bytes),
        false => File::open(path).and_then(|file| file.take(max + 1).read_to_end(&mut bytes)),
    };
    read.map(|_| bytes).map_err(|error| error.to_string())
}

/// What a JSON file says, or a YAML one if its name ends so.
///
/// # Errors
/// `code`: it cannot be read, or is not what is wanted; `what` is what that is called.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, what: &str, code: &'static str) -> Result<T, Failure> {
    let shown = path.display();
    let refused = |why: &dyn std::fmt::Display| Failure::refused(code, format!("{shown} holds no {what}: {why}"));
    let bytes = bytes(path, BYTES_MAX)
        .map_err(|why| Failure::refused(code, format!("the {what} {shown} cannot be read: {why}")))?;
    let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    let value = if is_yaml {
        let text = String::from_utf8(bytes).map_err(|error| refused(&error))?;
        Source::read(&shown.to_string(), &text).map_err(|finding| refused(&finding.message))?.value().clone()
    } else {
        let limits = Limits { bytes: usize::try_from(BYTES_MAX).unwrap_or(usize::MAX), depth: DEPTH_MAX };
        json::parse(&bytes, limits).map_err(|refusal| refused(&refusal))?
    };
    serde_json::from_value(value).map_err(|error| refused(&error))
}

#[cfg(test)]
mod tests {
    use super::size;

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
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "-1", "+1", "1.5GiB", "2G", "2gib", "1_000", "0x10", " 1", "1 MiB ", "１"] {
            assert!(size(text).is_err_and(|why| why.contains("512MiB")), "{text}");
        }
        for text in ["18446744073709551616", "16777216TiB"] {
            assert!(size(text).is_err_and(|why| why.contains("too large")), "{text}");
        }
    }
}
