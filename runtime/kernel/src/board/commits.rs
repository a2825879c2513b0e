//! Record number and author of each version.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;

use crate::freshness;
use crate::id::{Seq, Version, WorkerName};

/// Versions per block.
const BLOCK: usize = 1024;

/// The commits of one board, in a few bytes each.
///
/// A block of [`BLOCK`] commits is an immutable text. A copy of the board shares it by pointer, and a snapshot finds by
/// its hash that it is already stored. So a long history is cheap to copy and to store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct CommitLog {
    /// Encoded blocks, version 1 first. A version is encoded as the increase of its record number and its author's
    /// index: `2 0 5 1 …`. The first in a block has its full record number.
    blocks: Vec<SmolStr>,
    /// The versions after the blocks, fewer than [`BLOCK`].
    latest: Vec<(Seq, u32)>,
    /// Authors in the order of their first commits.
    authors: Vec<WorkerName>,
}

impl CommitLog {
    /// Adds the next version.
    pub(super) fn push(&mut self, seq: Seq, author: &WorkerName) {
        // A linear search suffices: boards have few workers, and fewer that commit.
        let known = self.authors.iter().position(|known| known == author);
        let number = known.unwrap_or_else(|| {
            self.authors.push(author.clone());
            self.authors.len() - 1
        });
        self.latest.push((seq, u32::try_from(number).expect("a blueprint has fewer workers")));
        if self.latest.len() == BLOCK {
            self.blocks.push(encode_block(&self.latest));
            self.latest.clear();
        }
    }

    /// Returns the number of versions after version 0.
    pub(super) const fn len(&self) -> usize {
        self.blocks.len() * BLOCK + self.latest.len()
    }
}

impl freshness::CommitLookup for CommitLog {
    fn commit_of(&self, version: Version) -> Option<(Seq, WorkerName)> {
        let index = usize::try_from(version.0).ok()?.checked_sub(1)?;
        let (seq, author) = match self.blocks.get(index / BLOCK) {
            Some(block) => *decode_block(block)?.get(index % BLOCK)?,
            None => *self.latest.get(index - self.blocks.len() * BLOCK)?,
        };
        Some((seq, self.authors.get(author as usize)?.clone()))
    }
}

/// Encodes a block as text.
fn encode_block(block: &[(Seq, u32)]) -> SmolStr {
    let mut text = String::with_capacity(4 * block.len());
    let mut previous = 0;
    for (seq, author) in block {
        let space = if text.is_empty() { "" } else { " " };
        text.push_str(&format!("{space}{} {author}", seq.0 - previous));
        previous = seq.0;
    }
    text.into()
}

/// Decodes a block; `None` if the text is not a valid block.
fn decode_block(text: &str) -> Option<Vec<(Seq, u32)>> {
    let mut block = Vec::with_capacity(BLOCK);
    let mut words = text.split(' ');
    let mut seq = 0_u64;
    while let Some(step) = words.next() {
        seq = seq.checked_add(step.parse().ok()?)?;
        block.push((Seq(seq), words.next()?.parse().ok()?));
    }
    (block.len() == BLOCK).then_some(block)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredCommits<T> {
    blocks: Vec<T>,
    latest: Vec<(Seq, u32)>,
    authors: Vec<WorkerName>,
}

impl Serialize for CommitLog {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { blocks, latest, authors } = self.clone();
        StoredCommits { blocks: blocks.iter().map(SmolStr::as_str).collect(), latest, authors }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CommitLog {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let StoredCommits { blocks, latest, authors } = StoredCommits::<String>::deserialize(deserializer)?;
        let commits = Self { blocks: blocks.into_iter().map(SmolStr::from).collect(), latest, authors };
        let unreadable = || D::Error::custom("the authors of its versions cannot be read");
        if commits.is_sound() { Ok(commits) } else { Err(unreadable()) }
    }
}

impl CommitLog {
    /// Returns true if record numbers increase and every author index exists.
    fn is_sound(&self) -> bool {
        let mut previous = None;
        let mut follow = |commits: &[(Seq, u32)]| {
            commits.iter().all(|(seq, author)| {
                let is_later = previous.replace(*seq) < Some(*seq);
                is_later && (*author as usize) < self.authors.len()
            })
        };
        let is_block = |text: &SmolStr| decode_block(text).filter(|block| encode_block(block) == *text);
        self.latest.len() < BLOCK
            && self.blocks.iter().all(|text| is_block(text).is_some_and(|block| follow(&block)))
            && follow(&self.latest)
    }
}

#[cfg(test)]
mod tests;
