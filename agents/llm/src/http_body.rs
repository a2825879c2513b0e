//! Decodes the body of an HTTP answer: compression, character set, and JSON as servers write it.
//!
//! Tolerant, because the envelope is the server's. The model's reply inside it is read by [`super::reply_text`].

use std::borrow::Cow;
use std::io::Read as _;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use serde_json::Value;

use super::reply_text::first_value;

/// First bytes of a gzip member.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Decompresses a body that the server compressed unasked, up to `max` bytes.
pub(super) fn inflate(bytes: Vec<u8>, encoding: Option<&str>, max: usize) -> Result<Vec<u8>, String> {
    let encoding = encoding.unwrap_or_default().trim().to_ascii_lowercase();
    let most = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    let mut plain = Vec::new();
    let read = if bytes.starts_with(&GZIP) {
        MultiGzDecoder::new(bytes.as_slice()).take(most).read_to_end(&mut plain)
    } else if encoding == "deflate" {
        let zlib = ZlibDecoder::new(bytes.as_slice()).take(most).read_to_end(&mut plain);
        zlib.or_else(|_| {
            plain.clear();
            DeflateDecoder::new(bytes.as_slice()).take(most).read_to_end(&mut plain)
        })
    } else if matches!(encoding.as_str(), "br" | "zstd" | "compress") {
        return Err(format!("the answer is compressed with {encoding}, which was not asked for"));
    } else {
        return Ok(bytes);
    };
    match read {
        Err(error) => Err(format!("the compressed answer is damaged: {error}")),
        Ok(_) if plain.len() > max => Err(format!("the answer is longer than {max} bytes")),
        Ok(_) => Ok(plain),
    }
}

/// Decodes bytes as UTF-8, else by the character set of the content type, else with replacement characters.
pub(super) fn text(bytes: &[u8], content_type: &str) -> String {
    if let Ok(text) = str::from_utf8(bytes) {
        return text.to_owned();
    }
    let kind = content_type.to_ascii_lowercase();
    if ["iso-8859-1", "latin1", "latin-1", "windows-1252", "us-ascii"].iter().any(|set| kind.contains(set)) {
        return bytes.iter().copied().map(char::from).collect();
    }
    String::from_utf8_lossy(bytes).into_owned()
}

/// Parses a JSON envelope. Repairs what Python's and other encoders write: `NaN` and `Infinity`, lone surrogates, raw
/// control characters in strings, and a byte-order mark. Text behind the first value is ignored if that value has
/// choices.
pub(super) fn json(text: &str) -> Result<Value, serde_json::Error> {
    parsed(text, |_| '\u{fffd}')
}

/// Parses one event of a stream like [`json`]. A lone surrogate is kept as a mark for [`join_surrogates`], because the
/// next event may have its other half.
pub(super) fn event(text: &str) -> Result<Value, serde_json::Error> {
    parsed(text, |unit| char::from_u32(HALVES + u32::from(unit)).unwrap_or('\u{fffd}'))
}

/// First mark of a surrogate: private-use characters without an assigned meaning.
const HALVES: u32 = 0x10_0000;

/// Joins marked surrogate pairs; an unpaired half is replaced.
pub(super) fn join_surrogates(text: &str) -> Cow<'_, str> {
    let half =
        |c: char| u16::try_from(u32::from(c).checked_sub(HALVES)?).ok().filter(|unit| (0xd800..0xe000).contains(unit));
    if !text.chars().any(|c| half(c).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut units = Vec::with_capacity(text.len());
    let mut buffer = [0; 2];
    for c in text.chars() {
        match half(c) {
            Some(unit) => units.push(unit),
            None => units.extend_from_slice(c.encode_utf16(&mut buffer)),
        }
    }
    Cow::Owned(String::from_utf16_lossy(&units))
}

fn parsed(text: &str, lone: impl Fn(u16) -> char) -> Result<Value, serde_json::Error> {
    let text = text.trim_start_matches(['\u{feff}', '\0', ' ', '\n', '\r', '\t']).trim_end_matches('\0');
    let strict = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let repaired = repair(text, &lone);
    let Some((value, length)) = first_value(&repaired) else { return Err(strict) };
    let is_whole = repaired.get(length..).is_some_and(|rest| rest.trim().is_empty());
    if is_whole || value.get("choices").is_some() { Ok(value) } else { Err(strict) }
}

/// Repairs what a strict parser rejects inside and outside of strings.
fn repair(text: &str, lone: &dyn Fn(u16) -> char) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut inside = false;
    while let Some(c) = rest.chars().next() {
        let taken = if inside {
            string_part(rest, c, &mut out, &mut inside, lone)
        } else {
            let number = ["NaN", "-NaN", "Infinity", "-Infinity"].into_iter().find(|word| rest.starts_with(word));
            match number {
                Some(word) => {
                    out.push_str("null");
                    word.len()
                }
                None => {
                    inside = c == '"';
                    out.push(c);
                    c.len_utf8()
                }
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    out
}

/// Copies one character or escape of a string; returns its bytes in the source.
fn string_part(rest: &str, c: char, out: &mut String, inside: &mut bool, lone: &dyn Fn(u16) -> char) -> usize {
    match c {
        '"' => {
            *inside = false;
            out.push(c);
            1
        }
        '\\' => match unit(rest) {
            Some(0xd800..=0xdbff) if matches!(rest.get(6..).and_then(unit), Some(0xdc00..=0xdfff)) => {
                out.push_str(rest.get(..12).unwrap_or_default());
                12
            }
            Some(unit @ 0xd800..=0xdfff) => {
                out.push(lone(unit));
                6
            }
            _ => {
                let taken = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
                out.push_str(rest.get(..taken).unwrap_or_default());
                taken
            }
        },
        c if c < ' ' => {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
            1
        }
        c => {
            out.push(c);
            c.len_utf8()
        }
    }
}

/// Parses the UTF-16 code unit of an escape `\uXXXX` at the start of a text.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests;
