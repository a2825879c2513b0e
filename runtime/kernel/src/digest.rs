//! Fingerprints: SHA-256 of bytes, and the Merkle digest of documents (SPEC section 2).
//!
//! Defines only the byte format below; [`crate::state`] and [`crate::record`] decide what is fingerprinted. Here the
//! whole document is walked each time. The shape of the tree depends on the content alone, so a tree with cached node
//! digests yields the same bytes.
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

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};

use crate::json;

const ARRAY_FAN_OUT: usize = 16;
const BUCKET_MEMBERS_MAX: usize = 32;
const INLINE_STRING_BYTES_MAX: usize = 256;

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

    /// Returns the digest of a document.
    pub fn document(&self, value: &Value) -> Digest {
        let mut hash = self.start(tag::DOCUMENT);
        self.encode(value, &mut hash);
        Digest(hash.finalize().into())
    }

    /// Returns the digest of a record's value. It is bound to record and field, so that it does not reveal equal
    /// values.
    pub fn commitment(&self, seq: u64, field: &str, value: &Value) -> Digest {
        let mut hash = self.start(tag::COMMITMENT);
        hash.update(seq.to_be_bytes());
        hash.update(length(field.len()));
        hash.update(field);
        self.encode(value, &mut hash);
        Digest(hash.finalize().into())
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

    /// Hashes `enc(value)`.
    fn encode(&self, value: &Value, into: &mut Sha256) {
        match value {
            Value::Null => into.update([0x00]),
            Value::Bool(truth) => into.update([0x01, u8::from(*truth)]),
            Value::Number(number) => encode_number(number, into),
            Value::String(text) => {
                into.update([0x03]);
                into.update(length(text.len()));
                if text.len() <= INLINE_STRING_BYTES_MAX {
                    into.update(text);
                } else {
                    let mut hash = self.start(tag::STRING);
                    hash.update(text);
                    into.update(hash.finalize());
                }
            }
            Value::Array(items) => {
                into.update([0x04]);
                into.update(length(items.len()));
                if !items.is_empty() {
                    into.update(self.array(items));
                }
            }
            Value::Object(members) => {
                into.update([0x05]);
                into.update(length(members.len()));
                if !members.is_empty() {
                    into.update(self.object(members));
                }
            }
        }
    }

    fn array(&self, items: &[Value]) -> [u8; 32] {
        let chunk = |items: &[Value]| -> [u8; 32] {
            let mut hash = self.start(tag::ARRAY_CHUNK);
            for item in items {
                self.encode(item, &mut hash);
            }
            hash.finalize().into()
        };
        let mut level: Vec<[u8; 32]> = items.chunks(ARRAY_FAN_OUT).map(chunk).collect();
        while level.len() > 1 {
            let join = |nodes: &[[u8; 32]]| -> [u8; 32] {
                let mut hash = self.start(tag::ARRAY_LEVEL);
                for node in nodes {
                    hash.update(node);
                }
                hash.finalize().into()
            };
            level = level.chunks(ARRAY_FAN_OUT).map(join).collect();
        }
        level[0]
    }

    fn object(&self, members: &Map<String, Value>) -> [u8; 32] {
        let mut members: Vec<Member<'_>> =
            members.iter().map(|(key, value)| Member { key, value, route: [0; 32] }).collect();
        members.sort_unstable_by_key(|member| member.key);
        if members.len() > BUCKET_MEMBERS_MAX {
            for member in &mut members {
                member.route = self.route(member.key);
            }
        }
        self.group(&members, 0)
    }

    /// Returns the node of members, sorted by key, that agree in the first `nibbles` nibbles of their routes.
    fn group(&self, members: &[Member<'_>], nibbles: usize) -> [u8; 32] {
        if members.len() <= BUCKET_MEMBERS_MAX {
            let mut hash = self.start(tag::BUCKET);
            for member in members {
                hash.update(length(member.key.len()));
                hash.update(member.key);
                self.encode(member.value, &mut hash);
            }
            return hash.finalize().into();
        }
        let mut groups: [Vec<Member<'_>>; 16] = Default::default();
        for member in members {
            groups[usize::from(member.nibble(nibbles))].push(*member);
        }
        let mut hash = self.start(tag::SPLIT);
        for (nibble, group) in (0_u8..).zip(&groups) {
            if !group.is_empty() {
                hash.update([nibble]);
                hash.update(self.group(group, nibbles + 1));
            }
        }
        hash.finalize().into()
    }
}

/// Member of an object, with the salted hash of its key as its path in the trie.
#[derive(Clone, Copy)]
struct Member<'v> {
    key: &'v str,
    value: &'v Value,
    route: [u8; 32],
}

impl Member<'_> {
    /// # Panics
    /// Panics after the 64th nibble, which would take 33 keys of one object with equal SHA-256 values.
    fn nibble(&self, at: usize) -> u8 {
        let byte = self.route[at / 2];
        if at.is_multiple_of(2) { byte >> 4 } else { byte & 0x0f }
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
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Returns the salt of the bytes 0 to 31.
    fn counted_salt() -> Salt {
        Salt(std::array::from_fn(|i| u8::try_from(i).expect("fewer than 256")))
    }

    fn digest(value: &Value) -> String {
        Hasher::new(&Salt::ZERO).document(value).to_string()
    }

    fn counting(length: u32) -> Value {
        (0..length).collect()
    }

    fn keyed(numbers: impl Iterator<Item = u32>) -> Value {
        numbers.map(|i| (format!("k{i}"), json!(i))).collect()
    }

    fn nested(levels: usize) -> Value {
        (1..levels).fold(json!([]), |inner, _| json!([inner]))
    }

    // The expected values were computed from the module documentation by a program of some forty lines in another
    // language (Python: json, struct, hashlib), which shares no code with this one.
    #[test]
    fn documents_have_the_digests_that_the_format_gives_them() {
        for (value, expected) in [
            (Value::Null, "c8758e2ce6c93ff17ed5b74e78d8ae8091b4d353f63795f2eccb3db34a493dc1"),
            (json!(false), "8091678e497d73ca1a50c189ee418e721860e045db5f55f8dd577236ffecb35e"),
            (json!(true), "56eb9fe9bdceb155c3b74f035af557af6a4b276988854b2e726648df0b235397"),
            (json!(0), "18134150662c28ec4113774d24e642209a7436ffe2a5747fdfda160fde198535"),
            (json!(1), "89b2e4e1353344c94eb1ce42cf10102edbd02bb72aa7b1e3f5fbe6a1fa7d7a68"),
            (json!(1.0), "89b2e4e1353344c94eb1ce42cf10102edbd02bb72aa7b1e3f5fbe6a1fa7d7a68"),
            (json!(-1), "65cd55dce34d10e5c133e23e4b4693bae4d9fcefeb572805ae88b7dd12db6114"),
            (json!(1.5), "126d9bc1b072dd4ace854f0806a408b0b59d7c31dbdc19e5f87cba21b96316cc"),
            (json!(1e22), "5c7af942c5efbc01787433498330511b358e8667ca2c2d0990443e432b524c03"),
            (json!(i64::MIN), "13e09bcec9b93068401f476a1b1015648ddce75d0b4197e7ad22fed74ab5b024"),
            (json!(u64::MAX), "fad21e3f7c977024b1eb3f96436aa0e1ab20b64b51a04a5c85fb4e9df54c7d5c"),
            (json!(""), "4185e067591590a939c263404c18676fb91ebb258cc7b6ba37a75bebe066e139"),
            (json!("1"), "0bdeaf10afcace229a5fd80ee71577727f64b8a4383889563b7dda63627b675d"),
            (json!("ä"), "a072b8170d7d0adc9379d14f2fba6ec064c0ce5e637a59f223d7894a800d6518"),
            (json!("x".repeat(256)), "346e04c20b148f24349d84b388fdaf4e5041e9e28c8cd6d7f28b5a940be3ac0a"),
            (json!("x".repeat(257)), "6255ae8034f7bbee59959d675a4f9db6cb010e2b7d42d5bf6ebfc18aebf07e57"),
            (json!([]), "ffa3e991dd7715692d3f516f00e9b58cf3019cb1d2e6ef5ea69d4eda67e35c81"),
            (json!({}), "52926365be1181aebc7a660be353ed23d5b8ea7b44bfd4f5426220832d46a82e"),
            (json!([1]), "b050354130a1557e93587e85014dfaad0a7508f97583b4ada91b52a27281500c"),
            (json!([[1]]), "2305c939eaf7ffda1d147c37ab8d5029000a77fb30573ebc88a3d830f0eae152"),
            (counting(16), "2ffffc592659b1c0f046f45672534e835cdb1d46609f0fe19a0d4b29a7a0d2f4"),
            (counting(17), "1c9224de8f8e76265785136a493af4d7aa15df874fd2462eb7d1efb42a3e8d24"),
            (counting(257), "f59ed75db4a4eb6753682056ddeb578c52942dbf46804820f7bc88888ee35d82"),
            (keyed(0..32), "63497ff3afb78e4eacfb7e9781f94ca93eff2df24bae223277815d7368e98519"),
            (keyed(0..33), "78a6a1f125093a6977f356a99f57cb60d7c7263fd91a7a95536a6a8b84b864f0"),
            (
                (0..1000).map(|i| (format!("k{i}"), json!({"n": [i]}))).collect(),
                "050924322cf3b5cc6bd0a2a1320f7b5302a193baac863cca5144f1b2f0c9de60",
            ),
            (
                json!({"a": {"b": [1, 2.5, "x", null, true, {}]}, "é": "ß", "": []}),
                "4ddfd82ee14626207679aefb91d3a4b91bcb66c61e2cba59d669973fba49040f",
            ),
            (nested(64), "f94b080764b380592defaa5b780ddd7c5b0dd5af0831eb3c129105924cff354e"),
        ] {
            assert_eq!(digest(&value), expected, "{value}");
        }
    }

    #[test]
    fn salted_digests_and_commitments_are_those_that_the_format_gives() {
        let salted = Hasher::new(&counted_salt());
        assert_eq!(
            salted.document(&json!({"a": 1})).to_string(),
            "16afdbfbc0a65d00ff026238560906c68ecbd738b087a8b72f1b77015edfb252"
        );
        assert_eq!(
            salted.document(&keyed(0..33)).to_string(),
            "70a694a7e04c0b294d9be782d8a485cdce067147f985e3670105ce9cc0922fc6"
        );
        assert_eq!(
            salted.commitment(7, "patch", &json!({"a": 1})).to_string(),
            "b408f00de3c85f9bf97c5b06729c2c46f3c308e0f26bd2669ad7bb729fb4ee6b"
        );
        assert_eq!(
            Hasher::new(&Salt::ZERO).commitment(0, "", &Value::Null).to_string(),
            "64f0d7b4fabb468d1afbe3312cd3fbe1182a7395a81fb991de441f6a390234ff"
        );
    }

    #[test]
    fn sha256_is_that_of_fips_180() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc").to_string(), abc);
    }

    #[test]
    fn the_order_in_which_members_came_does_not_show() {
        let forwards = keyed(0..100);
        let backwards = keyed((0..100).rev());
        let shrunk = {
            let mut larger = keyed(0..500);
            larger.as_object_mut().expect("an object").retain(|_, value| value.as_u64() < Some(100));
            larger
        };
        assert_eq!(digest(&forwards), digest(&backwards));
        assert_eq!(digest(&forwards), digest(&shrunk));
    }

    #[test]
    fn equal_numbers_have_one_digest_and_values_of_other_types_another() {
        assert_eq!(digest(&json!({"a": [1, 0]})), digest(&json!({"a": [1.0, -0.0]})));
        let different = [
            json!(1),
            json!("1"),
            json!(true),
            json!([1]),
            json!({"1": 1}),
            json!(1.5),
            json!([]),
            json!({}),
            json!(""),
        ];
        for (i, one) in different.iter().enumerate() {
            for other in &different[i + 1..] {
                assert_ne!(digest(one), digest(other), "{one} and {other}");
            }
        }
    }

    #[test]
    fn a_commitment_is_bound_to_its_record_its_field_and_its_board() {
        let (here, value) = (Hasher::new(&Salt::ZERO), json!("draft"));
        let commitment = here.commitment(1, "patch", &value);
        assert_ne!(commitment, here.commitment(2, "patch", &value));
        assert_ne!(commitment, here.commitment(1, "reply", &value));
        assert_ne!(commitment, Hasher::new(&counted_salt()).commitment(1, "patch", &value));
        assert_ne!(here.commitment(1, "ab", &json!("c")), here.commitment(1, "a", &json!("bc")));
    }

    #[test]
    fn documents_as_deep_as_any_that_is_read_fit_the_stack() {
        assert_ne!(digest(&nested(json::DEPTH_MAX)), digest(&nested(json::DEPTH_MAX - 1)));
    }

    #[test]
    fn a_digest_has_one_text_and_a_salt_does_not_show_in_debug_output() {
        let text = digest(&Value::Null);
        let read: Digest = text.parse().expect("its own text");
        assert_eq!(format!("{read} {read:?}"), format!("{text} {text}"));
        assert_eq!(serde_json::to_value(read).expect("a string"), json!(text));
        assert_eq!(serde_json::from_value::<Digest>(json!(text)).expect("a digest"), read);
        for wrong in [&text[1..], &text.to_uppercase(), &text.replace('c', "g"), &"é".repeat(32), ""] {
            assert_eq!(wrong.parse::<Digest>(), Err(HexError), "{wrong}");
        }
        assert_eq!(counted_salt().to_hex().parse(), Ok(counted_salt()));
        assert_eq!(format!("{:?}", counted_salt()), "Salt(..)");
    }

    proptest! {
        #[test]
        fn changing_one_element_changes_the_digest(length in 1_u32..600, at in any::<prop::sample::Index>()) {
            let before = counting(length);
            let mut after = before.clone();
            after[at.index(length as usize)] = json!("changed");
            prop_assert_ne!(digest(&before), digest(&after));
        }

        #[test]
        fn changing_one_member_changes_the_digest(length in 1_u32..200, at in any::<prop::sample::Index>()) {
            let before = keyed(0..length);
            let mut after = before.clone();
            after[format!("k{}", at.index(length as usize))] = json!("changed");
            prop_assert_ne!(digest(&before), digest(&after));
        }
    }
}
