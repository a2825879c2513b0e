//! Sizes in bytes, with or without a unit.

use serde::de::{Deserialize as _, Deserializer, Error as _};

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
pub fn parse_size(text: &str) -> Result<u64, String> {
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
