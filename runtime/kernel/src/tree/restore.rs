//! Builds trees from parts of a snapshot; [`crate::snapshot`] defines the format.
//!
//! The hash of every part is checked before it is read, and its shape before a tree is built. The positions of members
//! in a large object are left to the state digest. Parts that are named twice are built once and shared.
//!
//! A part is built after those it names, so recursion is only as deep as the nesting of one part. Parts wait in a list
//! for those they name, because a thread's stack has no room for the deepest documents.

use std::collections::BTreeMap;
use std::sync::Arc as StdArc;

use serde_json::Value;
use triomphe::Arc;

use super::array::chunk::{self, Chunk};
use super::object::trie::Trie;
use super::part_refs::{self, PartKind, PartRef};
use super::stamp::{Removal, Removals, Revision, Stamp, Stamps};
use super::{Array, Key, Long, Node, Object, SHORT_BYTES_MAX, Sum};
use crate::digest::{Digest, Hasher, sha256};
use crate::snapshot::SnapshotError;

/// Maximum nesting of nodes. A document is at most 64 deep, and a board's other values a little deeper. An array or
/// object of eight levels of nodes would fill a disk. Bounds the recursion of all tree walks.
const LEVELS_MAX: usize = 512;

/// Maximum nesting of splits of an object: a key's hash has 64 nibbles, and each splits the members at most once.
const SPLITS_MAX: usize = 64;

/// Larger than any document, in bytes of JSON; prevents overflow of sums.
const BYTES_MAX: u64 = 1 << 40;

type Result<T> = std::result::Result<T, SnapshotError>;

/// Reads values and fetches the parts they name.
pub(crate) struct Reader<'f> {
    fetch: &'f mut dyn FnMut(Digest) -> Result<Option<String>>,
    hasher: StdArc<Hasher>,
    /// Upper bound of all stamps.
    latest: Revision,
    /// Bytes of all parts that were fetched.
    fetched: u64,
    chunks: BTreeMap<Digest, Built<Arc<Chunk>>>,
    tries: BTreeMap<Digest, Built<(Arc<Trie>, usize)>>,
    texts: BTreeMap<Digest, Arc<Long>>,
    /// Number of nodes around the current one, in its part.
    around: usize,
    /// Maximum nesting found in the current part, including the parts below it.
    nested: usize,
}

struct Built<T> {
    node: T,
    /// Number of nested levels of nodes.
    levels: usize,
}

/// A part that waits for those it names.
struct Waiting {
    name: PartRef,
    form: Value,
    /// Parts for which the naming part still waits.
    others: Vec<PartRef>,
}

impl<'f> Reader<'f> {
    pub(crate) fn new(
        fetch: &'f mut dyn FnMut(Digest) -> Result<Option<String>>,
        hasher: &StdArc<Hasher>,
        latest: Revision,
    ) -> Self {
        let (chunks, tries, texts) = Default::default();
        Self { fetch, hasher: StdArc::clone(hasher), latest, fetched: 0, chunks, tries, texts, around: 0, nested: 0 }
    }

    /// Returns the text stored under a hash.
    fn text(&mut self, hash: Digest) -> Result<String> {
        let text = (self.fetch)(hash)?.ok_or(SnapshotError::Missing(hash))?;
        if sha256(text.as_bytes()) != hash {
            return Err(SnapshotError::Altered(hash));
        }
        self.fetched += text.len() as u64;
        Ok(text)
    }

    /// Returns the bytes of all fetched parts, each counted once.
    pub(crate) const fn fetched(&self) -> u64 {
        self.fetched
    }

    pub(crate) fn value(&mut self, value: Value) -> Result<Node> {
        let mut names = Vec::new();
        part_refs::collect_from_value(&value, &mut names);
        self.parts(names)?;
        (self.around, self.nested) = (0, 0);
        self.read(value)
    }

    /// Builds the named parts, and the parts that they name.
    fn parts(&mut self, mut names: Vec<PartRef>) -> Result<()> {
        let mut waiting: Vec<Waiting> = Vec::new();
        loop {
            if let Some(name) = names.pop() {
                if self.is_built(&name) {
                    continue;
                }
                // At least this many nodes would be nested.
                if waiting.len() >= LEVELS_MAX {
                    return Err(too_deep());
                }
                let form = serde_json::from_str(&self.text(name.hash)?).map_err(not_json)?;
                let mut below = Vec::new();
                part_refs::collect_from_part(name.kind, &form, &mut below);
                waiting.push(Waiting { name, form, others: std::mem::replace(&mut names, below) });
            } else if let Some(Waiting { name, form, others }) = waiting.pop() {
                self.build(&name, form)?;
                names = others;
            } else {
                return Ok(());
            }
        }
    }

    fn is_built(&self, PartRef { kind, hash }: &PartRef) -> bool {
        match kind {
            PartKind::Text => self.texts.contains_key(hash),
            PartKind::Chunk => self.chunks.contains_key(hash),
            PartKind::Trie => self.tries.contains_key(hash),
        }
    }

    /// Builds a part; the parts it names have been built.
    fn build(&mut self, &PartRef { kind, hash }: &PartRef, form: Value) -> Result<()> {
        (self.around, self.nested) = (0, 0);
        match kind {
            PartKind::Text => {
                let Some(Node::Long(long)) = form.as_str().map(Node::text) else {
                    let what = format!("a part is no text of more than {SHORT_BYTES_MAX} bytes");
                    return Err(SnapshotError::unreadable(what));
                };
                drop(long.part.set(Box::new(hash)));
                self.texts.insert(hash, long);
            }
            PartKind::Chunk => {
                let chunk = self.chunk_of(form)?;
                drop(chunk.part.set(Box::new(hash)));
                self.chunks.insert(hash, Built { node: Arc::new(chunk), levels: self.nested });
            }
            PartKind::Trie => {
                let (trie, splits) = self.trie_of(form)?;
                drop(trie.part.set(Box::new(hash)));
                self.tries.insert(hash, Built { node: (Arc::new(trie), splits), levels: self.nested });
            }
        }
        Ok(())
    }

    fn read(&mut self, value: Value) -> Result<Node> {
        match value {
            Value::Null => Ok(Node::Null),
            Value::Bool(truth) => Ok(Node::Bool(truth)),
            Value::Number(number) => Ok(Node::Number(number)),
            Value::String(text) => Ok(Node::text(&text)),
            Value::Array(items) => self.tagged(items),
            Value::Object(_) => Err(SnapshotError::unreadable("an object where a value must be")),
        }
    }

    fn tagged(&mut self, items: Vec<Value>) -> Result<Node> {
        let mut fields = Fields::new(items);
        match fields.tag()?.as_str() {
            "t" => {
                let hash = fields.hash()?;
                fields.end()?;
                let long = self.texts.get(&hash).ok_or_else(|| misshapen("a text"))?;
                Ok(Node::Long(Arc::clone(long)))
            }
            "a" => {
                let (members, losses) = (self.at(&mut fields)?, self.losses(&mut fields)?);
                let root = self.chunk(fields.next()?)?;
                fields.end()?;
                let array = Array::restored(members, losses, Chunk::unshared(root));
                array.map(Node::Array).ok_or_else(|| misshapen("an array"))
            }
            "o" => {
                let (members, losses) = (self.at(&mut fields)?, self.losses(&mut fields)?);
                let (root, _) = self.trie(fields.next()?)?;
                fields.end()?;
                Ok(Node::Object(Object::restored(members, losses, Trie::unshared(root))))
            }
            _ => Err(SnapshotError::unreadable("a value of an unknown kind")),
        }
    }

    fn chunk(&mut self, node: Value) -> Result<Arc<Chunk>> {
        let Value::String(hash) = &node else { return self.chunk_of(node).map(Arc::new) };
        let Built { node, levels } = self.chunks.get(&hash_of(hash)?).ok_or_else(|| misshapen("a node of an array"))?;
        let (chunk, levels) = (Arc::clone(node), *levels);
        self.nest(levels)?;
        Ok(chunk)
    }

    fn chunk_of(&mut self, node: Value) -> Result<Chunk> {
        let mut fields = Fields::from_value(node)?;
        let tag = fields.tag()?;
        let touched = self.at(&mut fields)?;
        self.enter()?;
        let chunk = match tag.as_str() {
            "l" => {
                let stamps = fields.next()?;
                let items = fields.list()?.into_iter().map(|item| self.read(item)).collect::<Result<Box<[_]>>>()?;
                let stamps = self.stamps(stamps, items.len())?;
                Chunk::restored(chunk::Body::Leaf { items, stamps }, touched)
            }
            "i" => {
                let children =
                    fields.list()?.into_iter().map(|child| self.chunk(child)).collect::<Result<Box<[_]>>>()?;
                Chunk::restored(chunk::Body::Inner(children), touched)
            }
            _ => return Err(SnapshotError::unreadable("a node of an array of an unknown kind")),
        };
        self.around -= 1;
        fields.end()?;
        chunk.filter(|chunk| is_sound(&chunk.sum(), touched)).ok_or_else(|| misshapen("a node of an array"))
    }

    /// Returns a node of an object, and the number of splits nested in it.
    fn trie(&mut self, node: Value) -> Result<(Arc<Trie>, usize)> {
        let Value::String(hash) = &node else {
            return self.trie_of(node).map(|(trie, splits)| (Arc::new(trie), splits));
        };
        let Built { node, levels } = self.tries.get(&hash_of(hash)?).ok_or_else(|| misshapen("a node of an object"))?;
        let (trie, levels) = (node.clone(), *levels);
        self.nest(levels)?;
        Ok(trie)
    }

    fn trie_of(&mut self, node: Value) -> Result<(Trie, usize)> {
        let mut fields = Fields::from_value(node)?;
        let tag = fields.tag()?;
        let touched = self.at(&mut fields)?;
        self.enter()?;
        let mut splits = 0;
        let trie = match tag.as_str() {
            "b" => {
                let stamps = fields.next()?;
                let mut rest = fields.list()?.into_iter();
                let mut entries = Vec::with_capacity(rest.len() / 2);
                while let Some(key) = rest.next() {
                    let (Value::String(key), Some(value)) = (key, rest.next()) else {
                        return Err(SnapshotError::unreadable("a member without a key or a value"));
                    };
                    entries.push((Key::from(key), self.read(value)?));
                }
                let stamps = self.stamps(stamps, entries.len())?;
                Trie::restored_bucket(entries.into(), stamps, touched)
            }
            "s" => {
                let mut children = Vec::with_capacity(16);
                for child in fields.list()? {
                    let child = if child.is_null() { None } else { Some(self.trie(child)?) };
                    children.push(child.map(|(child, below)| {
                        splits = splits.max(below);
                        child
                    }));
                }
                splits += 1;
                if splits > SPLITS_MAX {
                    return Err(misshapen("a node of an object"));
                }
                let children = <[_; 16]>::try_from(children).map_err(|_| misshapen("a node of an object"))?;
                Trie::restored_split(children, &self.hasher, touched)
            }
            _ => return Err(SnapshotError::unreadable("a node of an object of an unknown kind")),
        };
        self.around -= 1;
        fields.end()?;
        let trie =
            trie.filter(|trie| is_sound(&trie.sum(), touched)).ok_or_else(|| misshapen("a node of an object"))?;
        Ok((trie, splits))
    }

    fn enter(&mut self) -> Result<()> {
        self.around += 1;
        self.nest(0)
    }

    /// Records the nesting at this point.
    fn nest(&mut self, levels: usize) -> Result<()> {
        self.nested = self.nested.max(self.around + levels);
        if self.nested > LEVELS_MAX { Err(too_deep()) } else { Ok(()) }
    }

    fn at(&self, fields: &mut Fields) -> Result<Revision> {
        self.number(&fields.next()?)
    }

    fn number(&self, value: &Value) -> Result<Revision> {
        let number = value.as_u64().and_then(|number| Revision::try_from(number).ok());
        number.filter(|at| *at <= self.latest).ok_or_else(|| SnapshotError::unreadable("a version that is none"))
    }

    fn stamps(&self, value: Value, len: usize) -> Result<Stamps> {
        let Value::Array(numbers) = value else { return Ok(Stamps::One(self.number(&value)?)) };
        if numbers.len() != 2 * len {
            return Err(misshapen("a list of stamps"));
        }
        let stamp = |pair: &[Value]| {
            let stamp = Stamp { created: self.number(&pair[0])?, changed: self.number(&pair[1])? };
            if stamp.created > stamp.changed { Err(misshapen("a stamp")) } else { Ok(stamp) }
        };
        Ok(Stamps::from_stamps(&numbers.chunks_exact(2).map(stamp).collect::<Result<Vec<_>>>()?))
    }

    fn losses(&self, fields: &mut Fields) -> Result<Removals> {
        let numbers = match fields.next()? {
            Value::Array(numbers) => numbers,
            none if none.as_u64() == Some(0) => return Ok(Removals::default()),
            _ => return Err(misshapen("a list of losses")),
        };
        let loss = |loss: &[Value]| {
            let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
            let (Some(from), Some(member)) = (number(&loss[0]), number(&loss[1])) else {
                return Err(misshapen("a loss"));
            };
            Ok(Removal { from, member, created: self.number(&loss[2])?, at: self.number(&loss[3])? })
        };
        if numbers.len() % 4 != 0 {
            return Err(misshapen("a list of losses"));
        }
        let losses = numbers.chunks_exact(4).map(loss).collect::<Result<_>>()?;
        Removals::restored(losses).ok_or_else(|| misshapen("a list of losses"))
    }
}

/// The fields of a tagged list.
struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    fn new(items: Vec<Value>) -> Self {
        Self(items.into_iter())
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Array(items) => Ok(Self::new(items)),
            _ => Err(SnapshotError::unreadable("a node that is no list")),
        }
    }

    fn next(&mut self) -> Result<Value> {
        self.0.next().ok_or_else(|| misshapen("a list"))
    }

    fn tag(&mut self) -> Result<String> {
        match self.next()? {
            Value::String(tag) => Ok(tag),
            _ => Err(SnapshotError::unreadable("a list that does not say what it is")),
        }
    }

    fn hash(&mut self) -> Result<Digest> {
        match self.next()? {
            Value::String(hash) => hash_of(&hash),
            _ => Err(misshapen("a hash")),
        }
    }

    fn list(&mut self) -> Result<Vec<Value>> {
        match self.next()? {
            Value::Array(items) => Ok(items),
            _ => Err(misshapen("a list")),
        }
    }

    fn end(mut self) -> Result<()> {
        if self.0.next().is_none() { Ok(()) } else { Err(misshapen("a list")) }
    }
}

/// Returns true if a node's sum is plausible and has the stored `touched`.
fn is_sound(sum: &Sum, touched: Revision) -> bool {
    sum.modified_at == touched && sum.bytes <= BYTES_MAX
}

fn hash_of(text: &str) -> Result<Digest> {
    text.parse().map_err(|_| misshapen("a hash"))
}

fn too_deep() -> SnapshotError {
    SnapshotError::unreadable("it is nested too deep")
}

fn misshapen(what: &str) -> SnapshotError {
    SnapshotError::unreadable(format!("{what} has not the shape it must have"))
}

fn not_json(error: impl std::fmt::Display) -> SnapshotError {
    SnapshotError::unreadable(error.to_string())
}
