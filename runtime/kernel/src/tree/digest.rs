//! Merkle digest of a tree; [`crate::digest`] defines the format. Digests of nodes are computed once. Those of a few
//! scalars are not cached, because recomputing them is cheaper than the memory.

use sha2::{Digest as _, Sha256};

use super::array::chunk::{self, Chunk};
use super::array::{Array, Top};
use super::object::trie::{self, Trie};
use super::{Long, Node};
use crate::digest::{Digest, Hasher, encode_number, length, tag};

impl Hasher {
    /// Returns the digest of a document, equal to [`Hasher::document`] of its value. All digests of a tree must be
    /// computed with the hasher of one board.
    pub fn tree(&self, root: &Node) -> Digest {
        let mut hash = self.start(tag::DOCUMENT);
        encode(root, self, &mut hash);
        Digest(hash.finalize().into())
    }
}

fn encode(node: &Node, hasher: &Hasher, into: &mut Sha256) {
    match node {
        Node::Null => into.update([0x00]),
        Node::Bool(truth) => into.update([0x01, u8::from(*truth)]),
        Node::Number(number) => encode_number(number, into),
        Node::Short(text) => {
            into.update([0x03]);
            into.update(length(text.len()));
            into.update(text.as_bytes());
        }
        Node::Long(long) => {
            into.update([0x03]);
            into.update(length(long.text.len()));
            into.update(long.digest(hasher));
        }
        Node::Array(array) => {
            into.update([0x04]);
            into.update(length(array.len()));
            if !array.is_empty() {
                into.update(array.digest(hasher));
            }
        }
        Node::Object(object) => {
            into.update([0x05]);
            into.update(length(object.len()));
            if let Some(root) = object.root().filter(|_| !object.is_empty()) {
                into.update(root.digest(hasher));
            }
        }
    }
}

impl Long {
    fn digest(&self, hasher: &Hasher) -> &[u8; 32] {
        self.digest.get_or_init(|| {
            let mut hash = hasher.start(tag::STRING);
            hash.update(self.text.as_bytes());
            hash.finalize().into()
        })
    }
}

impl Array {
    /// Returns the digest of the array's root node.
    fn digest(&self, hasher: &Hasher) -> [u8; 32] {
        match self.top() {
            Top::Few(items, _) => of_chunk(items, hasher),
            Top::Chunk(root) => *root.digest(hasher),
        }
    }
}

fn of_chunk(items: &[Node], hasher: &Hasher) -> [u8; 32] {
    let mut hash = hasher.start(tag::ARRAY_CHUNK);
    items.iter().for_each(|item| encode(item, hasher, &mut hash));
    hash.finalize().into()
}

impl Chunk {
    fn digest(&self, hasher: &Hasher) -> &[u8; 32] {
        self.digest.get_or_init(|| match &self.body {
            chunk::Body::Leaf { items, .. } => of_chunk(items, hasher),
            chunk::Body::Inner(children) => {
                let mut hash = hasher.start(tag::ARRAY_LEVEL);
                children.iter().for_each(|child| hash.update(child.digest(hasher)));
                hash.finalize().into()
            }
        })
    }
}

impl Trie {
    fn digest(&self, hasher: &Hasher) -> &[u8; 32] {
        self.digest.get_or_init(|| {
            let hash = match &self.body {
                trie::Body::Bucket { entries, .. } => {
                    let mut hash = hasher.start(tag::BUCKET);
                    for (key, node) in entries {
                        hash.update(length(key.len()));
                        hash.update(key.as_bytes());
                        encode(node, hasher, &mut hash);
                    }
                    hash
                }
                trie::Body::Split(split) => {
                    let mut hash = hasher.start(tag::SPLIT);
                    for (nibble, child) in (0_u8..).zip(&split.children) {
                        if let Some(child) = child {
                            hash.update([nibble]);
                            hash.update(child.digest(hasher));
                        }
                    }
                    hash
                }
            };
            hash.finalize().into()
        })
    }
}
