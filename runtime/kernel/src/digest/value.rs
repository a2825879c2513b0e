//! Digests of JSON values, which are walked as a whole each time. A tree, which caches the digests of its nodes, has the
//! same ones ([`crate::tree`]); for the values of a record, building one would cost more than its digest.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::{Digest, Hasher, encode_number, length, tag};

const ARRAY_FAN_OUT: usize = 16;
const BUCKET_MEMBERS_MAX: usize = 32;
const INLINE_STRING_BYTES_MAX: usize = 256;

impl Hasher {
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
