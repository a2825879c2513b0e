//! Fingerprints: SHA-256 of bytes, and the Merkle digest of documents (SPEC section 2).
//!
//! Defines only the byte format below; [`crate::state`] and [`crate::record`] decide what is fingerprinted. The shape of
//! the tree depends on the content alone, so [`crate::tree`] computes these bytes from its nodes and caches their digests;
//! `value` walks a whole value each time.
//!
//! # The format
//!
//! `H(x)` is SHA-256(salt ‖ 32 zero bytes ‖ x): the salt fills one block, and its state is computed once per board.
//! `u64(n)` is eight bytes, big-endian. Numbers are in canonical form: an integral double within ±(2^53−1) is an
//! integer, `-0.0` is 0.
//!
//! | value | `enc(value)` |
//! |---|---|
//! | null | `00` |
//! | false, true | `01 00`, `01 01` |
//! | integer that fits an `i64` | `02 00` ‖ the `i64` in two's complement, big-endian |
//! | other integer | `02 01` ‖ u64(integer) |
//! | other number | `02 02` ‖ its IEEE 754 double, big-endian |
//! | string of at most 256 bytes of UTF-8 | `03` ‖ u64(length in bytes) ‖ bytes |
//! | longer string | `03` ‖ u64(length in bytes) ‖ H(`30` ‖ bytes) |
//! | array | `04` ‖ u64(number of elements) ‖ node, or nothing for an empty array |
//! | object | `05` ‖ u64(number of members) ‖ node, or nothing for an empty object |
//!
//! **Node of an array.** The elements are cut into chunks of 16 (the last one may be shorter), in order; the digest of
//! a chunk is H(`10` ‖ enc of each element). While there is more than one digest, the digests are cut into chunks of 16
//! likewise, and each chunk becomes H(`11` ‖ its digests). The last remaining digest is the node.
//!
//! **Node of an object.** With at most 32 members it is a bucket: the members sorted by the bytes of their keys,
//! H(`20` ‖ for each: u64(length of the key) ‖ key ‖ enc(value)). With more, the members are split by the first nibble
//! (the four high bits of the first byte) of H(`31` ‖ key), and each group is a bucket if it has at most 32 members,
//! else split by the next nibble, and so on. A split is H(`21` ‖ for each group that is not empty, in order: its nibble
//! as one byte ‖ its node).
//!
//! The digest of a document is H(`01` ‖ enc(document)). The commitment to a value of a record is
//! H(`40` ‖ u64(seq) ‖ u64(length of the field's name) ‖ name ‖ enc(value)). The seal of a snapshot is H(`50`).

mod value;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;
use sha2::{Digest as _, Sha256};

use crate::json;

/// Domain separation tags: a digest of one kind cannot pass for another.
pub(crate) mod tag {
    pub(crate) const DOCUMENT: u8 = 0x01;
    pub(crate) const ARRAY_CHUNK: u8 = 0x10;
    pub(crate) const ARRAY_LEVEL: u8 = 0x11;
    pub(crate) const BUCKET: u8 = 0x20;
    pub(crate) const SPLIT: u8 = 0x21;
    pub(crate) const STRING: u8 = 0x30;
    pub(crate) const KEY: u8 = 0x31;
    pub(crate) const COMMITMENT: u8 = 0x40;
    pub(crate) const SNAPSHOT: u8 = 0x50;
    pub(crate) const TEXT: u8 = 0x60;
}

/// SHA-256 value; lower-case hexadecimal in text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

/// Secret 32 bytes that make a board's digests unguessable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt(pub [u8; 32]);

impl Salt {
    /// Salt of documents outside a board, so that their digests compare.
    pub const ZERO: Self = Self([0; 32]);

    /// Returns lower-case hexadecimal. There is no `Display`, so that a salt is never printed by accident.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }
}

/// Error for a text that is not 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not 64 lower-case hexadecimal digits")]
pub struct HexError;

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(..)")
    }
}

macro_rules! hexadecimal {
    ($name:ident) => {
        impl FromStr for $name {
            type Err = HexError;

            fn from_str(text: &str) -> Result<Self, HexError> {
                from_hex(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&hex(&self.0))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
hexadecimal!(Digest);
hexadecimal!(Salt);

fn hex(bytes: &[u8; 32]) -> String {
    let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
    let mut text = Vec::with_capacity(64);
    bytes.iter().for_each(|byte| text.extend([digit(byte >> 4), digit(byte & 0x0f)]));
    String::from_utf8(text).expect("digits are ASCII")
}

/// Accepts lower case only, so that a digest has one text.
fn from_hex(text: &str) -> Result<[u8; 32], HexError> {
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(HexError),
    };
    if text.len() != 64 {
        return Err(HexError);
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = nibble(digits[0])? << 4 | nibble(digits[1])?;
    }
    Ok(bytes)
}

/// Returns the SHA-256 of bytes.
pub fn sha256(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

impl fmt::Debug for Hasher {
    /// Omits the salt, which must not be printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher(..)")
    }
}

/// Computes the digests of one board.
///
/// Recursion is as deep as the values are nested, so values must be bounded in depth, as all values read by
/// [`crate::json`] are.
#[derive(Clone)]
pub struct Hasher {
    /// SHA-256 after the salt's block.
    salted: Sha256,
}

impl Hasher {
    /// Returns the hasher of the board with this salt.
    pub fn new(salt: &Salt) -> Self {
        let mut salted = Sha256::new();
        salted.update(salt.0);
        salted.update([0; 32]);
        Self { salted }
    }

    /// Returns the name of a text that is stored outside of records: a view, a prompt.
    pub fn text(&self, text: &str) -> Digest {
        let mut hash = self.start(tag::TEXT);
        hash.update(text);
        Digest(hash.finalize().into())
    }

    /// Returns true if a text has this name: the salted hash, or before format 20 its SHA-256.
    pub fn matches_name(&self, text: &str, name: Digest) -> bool {
        self.text(text) == name || sha256(text.as_bytes()) == name
    }

    /// Returns the value that every snapshot manifest of the board includes, so that its hash cannot be guessed without
    /// the salt.
    pub fn seal(&self) -> Digest {
        Digest(self.start(tag::SNAPSHOT).finalize().into())
    }

    /// Returns the hash of a key; its nibbles are the path to a member of a large object.
    pub(crate) fn route(&self, key: &str) -> [u8; 32] {
        let mut hash = self.start(tag::KEY);
        hash.update(key);
        hash.finalize().into()
    }

    pub(crate) fn start(&self, tag: u8) -> Sha256 {
        let mut hash = self.salted.clone();
        hash.update([tag]);
        hash
    }
}

pub(crate) fn encode_number(number: &Number, into: &mut Sha256) {
    let integer = number.as_i64().or_else(|| number.as_f64().filter(|_| number.is_f64()).and_then(json::integral));
    if let Some(integer) = integer {
        into.update([0x02, 0x00]);
        into.update(integer.to_be_bytes());
    } else if let Some(integer) = number.as_u64() {
        into.update([0x02, 0x01]);
        into.update(integer.to_be_bytes());
    } else {
        let float = number.as_f64().expect("a JSON number is an i64, a u64 or a double");
        into.update([0x02, 0x02]);
        into.update(float.to_bits().to_be_bytes());
    }
}

pub(crate) fn length(length: usize) -> [u8; 8] {
    (length as u64).to_be_bytes()
}

#[cfg(test)]
mod tests;
