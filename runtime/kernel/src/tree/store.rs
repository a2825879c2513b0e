//! Splits trees into parts of a snapshot; [`crate::snapshot`] defines the format.
//!
//! A node that an earlier snapshot has stored is written as its hash and not visited. A snapshot's cost therefore
//! depends on the changes since the last one.

use std::io::Write as _;
use std::sync::Arc;

use super::array::Top;
use super::array::chunk::{self, Chunk};
use super::object::trie::{self, Trie};
use super::stamp::{Removals, Revision, Stamps};
use super::{Key, Node, Stored};
use crate::digest::{Digest, sha256};
use crate::snapshot::{PART_BYTES_MIN, PART_LEVELS_MIN, SnapshotPart};

/// A node that became a part, to be marked as stored once the part is stored.
pub(crate) struct Mark<'t> {
    cell: &'t Stored,
    hash: Digest,
}

impl Mark<'_> {
    /// Marks the node as stored.
    pub(crate) fn confirm(self) {
        // Concurrent snapshots of one tree give it the same hash.
        drop(self.cell.set(Box::new(self.hash)));
    }
}

/// Writes values, and emits the parts they are split into, each after those it names.
pub(crate) struct Writer<'t, 's, E> {
    text: Vec<u8>,
    names: Vec<Digest>,
    marks: Vec<Mark<'t>>,
    sink: &'s mut dyn FnMut(SnapshotPart) -> Result<(), E>,
    /// True if stored parts are written again.
    rewrite_stored: bool,
}

/// Number of nested levels of nodes in the output, without parts.
type Levels = u16;

impl<'t, 's, E> Writer<'t, 's, E> {
    pub(crate) fn new(rewrite_stored: bool, sink: &'s mut dyn FnMut(SnapshotPart) -> Result<(), E>) -> Self {
        Self { text: Vec::new(), names: Vec::new(), marks: Vec::new(), sink, rewrite_stored }
    }

    /// Writes JSON that belongs to no tree.
    pub(crate) fn raw(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    /// Writes the output of another writer.
    pub(crate) fn written(&mut self, other: &SnapshotPart) {
        self.raw(&other.text);
        self.names.extend_from_slice(&other.names);
    }

    pub(crate) fn value(&mut self, node: &'t Node) -> Result<Levels, E> {
        match node {
            Node::Null => self.raw("null"),
            Node::Bool(truth) => self.raw(if *truth { "true" } else { "false" }),
            Node::Number(number) => self.scalar(number),
            Node::Short(text) => self.scalar(text.as_str()),
            Node::Long(long) if (long.bytes as usize) < PART_BYTES_MIN => self.scalar(&long.text),
            Node::Long(long) => {
                self.raw("[\"t\",");
                self.part(&long.part, |writer| {
                    writer.scalar(&long.text);
                    Ok(0)
                })?;
                self.raw("]");
            }
            Node::Array(array) => {
                self.container('a', array.members_changed(), array.losses());
                let levels = match array.top() {
                    // Too short for a part.
                    Top::Few(items, at) => self.leaf(items, &Stamps::One(at), array.sum().modified_at)?,
                    Top::Chunk(root) => self.chunk(root)?,
                };
                self.raw("]");
                return Ok(levels);
            }
            Node::Object(object) => {
                self.container('o', object.members_changed(), object.losses());
                let levels = match object.root() {
                    None => self.bucket(&[], &Stamps::One(0), 0)?,
                    Some(root) => self.trie(root)?,
                };
                self.raw("]");
                return Ok(levels);
            }
        }
        Ok(0)
    }

    /// Returns the manifest, which is the output outside of parts, and the marks to confirm once all parts are stored.
    pub(crate) fn finish(self) -> (SnapshotPart, Vec<Mark<'t>>) {
        (sealed(&self.text, self.names), self.marks)
    }

    fn container(&mut self, kind: char, members: Revision, losses: Option<&Removals>) {
        let losses = losses.map_or(&[][..], Removals::each);
        self.formatted(format_args!("[\"{kind}\",{members},"));
        if losses.is_empty() {
            self.raw("0,");
        } else {
            let flat = losses.iter().flat_map(|loss| [loss.from, loss.member, loss.created, loss.at]);
            self.numbers(flat);
            self.raw(",");
        }
    }

    fn chunk(&mut self, chunk: &'t Chunk) -> Result<Levels, E> {
        let touched = chunk.sum().modified_at;
        self.part(&chunk.part, |writer| match &chunk.body {
            chunk::Body::Leaf { items, stamps } => writer.leaf(items, stamps, touched),
            chunk::Body::Inner(children) => {
                writer.formatted(format_args!("[\"i\",{touched},"));
                writer.end_with_list(children.iter(), |writer, child| writer.chunk(child))
            }
        })
    }

    fn leaf(&mut self, items: &'t [Node], stamps: &Stamps, touched: Revision) -> Result<Levels, E> {
        self.formatted(format_args!("[\"l\",{touched},"));
        self.stamps(stamps, items.len());
        self.raw(",");
        self.end_with_list(items.iter(), Self::value)
    }

    fn trie(&mut self, trie: &'t Trie) -> Result<Levels, E> {
        let touched = trie.sum().modified_at;
        self.part(&trie.part, |writer| match &trie.body {
            trie::Body::Bucket { entries, stamps } => writer.bucket(entries, stamps, touched),
            trie::Body::Split(split) => {
                writer.formatted(format_args!("[\"s\",{touched},"));
                writer.end_with_list(split.children.iter(), |writer, child| match child {
                    Some(child) => writer.trie(child),
                    None => {
                        writer.raw("null");
                        Ok(0)
                    }
                })
            }
        })
    }

    fn bucket(&mut self, entries: &'t [(Key, Node)], stamps: &Stamps, touched: Revision) -> Result<Levels, E> {
        self.formatted(format_args!("[\"b\",{touched},"));
        self.stamps(stamps, entries.len());
        self.raw(",");
        self.end_with_list(entries.iter(), |writer, (key, node)| {
            writer.scalar(key.as_str());
            writer.raw(",");
            writer.value(node)
        })
    }

    /// Writes the last member of a node, the list of its contents, and ends the node.
    fn end_with_list<T>(
        &mut self,
        parts: impl Iterator<Item = T>,
        write: impl Fn(&mut Self, T) -> Result<Levels, E>,
    ) -> Result<Levels, E> {
        let mut levels = 0;
        self.raw("[");
        for (index, part) in parts.enumerate() {
            self.comma(index);
            levels = levels.max(write(self, part)?);
        }
        self.raw("]]");
        Ok(levels + 1)
    }

    /// Writes a node. A node that is a part is written as its hash, and emitted unless it is stored already.
    fn part(&mut self, stored: &'t Stored, write: impl FnOnce(&mut Self) -> Result<Levels, E>) -> Result<Levels, E> {
        if !self.rewrite_stored
            && let Some(hash) = stored.get()
        {
            self.reference(*hash);
            return Ok(0);
        }
        let (start, first_name) = (self.text.len(), self.names.len());
        let levels = write(self)?;
        if self.text.len() - start < PART_BYTES_MIN && levels < PART_LEVELS_MIN {
            return Ok(levels);
        }
        let names = self.names.split_off(first_name);
        let part = sealed(&self.text[start..], names);
        let hash = part.hash;
        self.text.truncate(start);
        (self.sink)(part)?;
        self.marks.push(Mark { cell: stored, hash });
        self.reference(hash);
        Ok(0)
    }

    fn reference(&mut self, hash: Digest) {
        self.formatted(format_args!("\"{hash}\""));
        self.names.push(hash);
    }

    fn stamps(&mut self, stamps: &Stamps, len: usize) {
        match stamps.one(len) {
            Some(at) => self.formatted(format_args!("{at}")),
            None => self.numbers(stamps.all(len).flat_map(|stamp| [stamp.created, stamp.changed])),
        }
    }

    fn numbers(&mut self, numbers: impl Iterator<Item = u32>) {
        self.raw("[");
        for (index, number) in numbers.enumerate() {
            self.comma(index);
            self.formatted(format_args!("{number}"));
        }
        self.raw("]");
    }

    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.raw(",");
        }
    }

    fn scalar(&mut self, scalar: &(impl serde::Serialize + ?Sized)) {
        serde_json::to_writer(&mut self.text, scalar).expect("a JSON scalar has a text, and memory can be written to");
    }

    fn formatted(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.text.write_fmt(arguments).expect("memory can be written to");
    }
}

fn sealed(text: &[u8], names: Vec<Digest>) -> SnapshotPart {
    let text: Arc<str> = std::str::from_utf8(text).expect("only JSON was written").into();
    SnapshotPart { hash: sha256(text.as_bytes()), text, names }
}
