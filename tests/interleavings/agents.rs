//! Agents that read and edit files in random order.

use std::collections::BTreeSet;

use patchboard_faults::random::Random;
use patchboard_kernel::blueprint::Granularity;

use super::history::{Change, Line, PIECES, Piece, REMEMBERED, Read, What, apply};
use super::oracle::Due;
use super::shop::{Doubt, Figures, Shop};

pub(crate) const AGENTS: usize = 8;
pub(crate) const FILES: usize = 20;

/// Number of the long file, which external edits hit most often.
const LONG: usize = 0;
/// Initial lines of the long file, and the length from which on it no longer grows.
const LONG_LINES: usize = 150;
const LINES_MAX: usize = 220;

/// Maximum number of reads that an agent keeps.
const READS_MAX: usize = 40;

/// One board in this many is rebuilt from its journal.
const REPLAYED: u64 = 20;

/// Number of agents that rarely reset their reads.
const PATIENT: usize = 2;

pub(crate) fn file(number: usize) -> String {
    format!("src/f{number:02}.py")
}

/// Eight agents that share twenty files.
pub(crate) struct Crowd {
    random: Random,
    pub(crate) shop: Shop,
    reads: Vec<Vec<Read>>,
}

#[derive(Clone, Copy)]
enum Act {
    Look,
    Edit,
}

impl Crowd {
    fn new(seed: u64) -> Result<Self, Doubt> {
        let mut random = Random::new(seed);
        let granularity = if seed % 3 == 2 { Granularity::File } else { Granularity::Lines };
        // In every second shop the known-file limit is too low for all files.
        let room = if seed % 2 == 1 { FILES - 2 } else { FILES };
        let mut shop = Shop::with_room(granularity, AGENTS, room);
        // Two of the files do not exist yet.
        let made: Vec<Change> = (0..FILES - 2)
            .map(|number| {
                let lines = if number == LONG { LONG_LINES } else { random.index(40) };
                creation(&mut shop, &file(number), lines)
            })
            .collect();
        shop.edit(None, &[], &made)?;
        Ok(Self { random, shop, reads: vec![Vec::new(); AGENTS] })
    }

    /// Plays `interleavings` interleavings. Returns the figures, or the first disagreement with the oracle.
    pub(crate) fn play(seed: u64, interleavings: u64) -> Result<Figures, Doubt> {
        let mut crowd = Self::new(seed)?;
        for _ in 0..interleavings {
            crowd.interleaving()?;
        }
        crowd.shop.check_all(seed.is_multiple_of(REPLAYED))?;
        Ok(crowd.shop.figures)
    }

    /// Gives every agent reads, edits and retries, and executes the steps of all agents in random order.
    fn interleaving(&mut self) -> Result<(), Doubt> {
        self.shop.figures.interleavings += 1;
        let mut left: Vec<(usize, Vec<Act>)> = Vec::new();
        for agent in 0..AGENTS {
            let forgets = if agent < PATIENT { 3 } else { 40 };
            if self.random.percent(forgets) {
                self.reads[agent].clear();
            }
            let looks = if agent < PATIENT { self.random.index(2) } else { 1 + self.random.index(4) };
            let mut acts = vec![Act::Edit; 1 + usize::from(self.random.percent(25))];
            acts.extend(vec![Act::Look; looks]);
            left.push((agent, acts));
        }
        if self.random.percent(25) {
            left.push((AGENTS, vec![Act::Edit]));
        }
        while !left.is_empty() {
            let next = self.random.index(left.len());
            let (agent, acts) = &mut left[next];
            let agent = *agent;
            let Some(act) = acts.pop() else {
                left.swap_remove(next);
                continue;
            };
            let pause = if self.random.percent(1) { 31_000 } else { 1 + self.random.below(1_500) };
            self.shop.now += i64::try_from(pause).unwrap_or(1);
            match act {
                Act::Look => self.look(agent),
                Act::Edit if agent == AGENTS => self.happen()?,
                Act::Edit => {
                    let due = self.edit(agent)?;
                    if !matches!(due, Due::Made | Due::Same) && self.random.percent(50) {
                        left[next].1.push(Act::Edit);
                    }
                }
            }
        }
        Ok(())
    }

    fn some_file(&mut self, agent: usize) -> String {
        let own = (agent * 2 + self.random.index(4)) % FILES;
        let number = if self.random.percent(50) { own } else { self.random.index(FILES) };
        file(if self.random.percent(12) { LONG } else { number })
    }

    fn look(&mut self, agent: usize) {
        let path = self.some_file(agent);
        self.look_at(agent, &path);
    }

    fn look_at(&mut self, agent: usize, path: &str) {
        let version = self.shop.oracle.history.version(path);
        let lines = self.shop.oracle.history.lines(path).unwrap_or_default().to_vec();
        let read = if lines.is_empty() || self.random.percent(30) {
            // A read of the whole file covers the earlier reads, but the agent does not have to drop them.
            if self.random.percent(80) {
                self.reads[agent].retain(|read| read.path != path);
            }
            Read { path: path.to_owned(), version, what: What::Whole }
        } else {
            if self.random.percent(10) {
                self.reads[agent].retain(|read| read.path != path);
            }
            let first = self.random.index(lines.len());
            let behind = (first + 1 + self.random.index(12)).min(lines.len());
            part(path, version, first, &lines[first..behind])
        };
        self.reads[agent].push(read);
        if self.reads[agent].len() > READS_MAX {
            self.reads[agent].remove(0);
        }
    }

    fn edit(&mut self, agent: usize) -> Result<Due, Doubt> {
        let mut paths = vec![self.target(agent)];
        if self.random.percent(5) {
            paths.push(self.target(agent));
            paths.dedup();
        }
        let mut changes: Vec<Change> = Vec::new();
        for path in paths {
            if changes.iter().all(|change| change.path != path) {
                let change = self.change(agent, &path);
                changes.push(change);
            }
        }
        if self.random.percent(4) {
            self.rename(&mut changes);
        }
        let reads = self.reads[agent].clone();
        let due = self.shop.edit(Some(agent), &reads, &changes)?;
        match &due {
            Due::Made => {
                let is_made =
                    |change: &&Change| self.shop.oracle.history.lines(&change.path) == change.lines.as_deref();
                let made: Vec<Change> = changes.iter().filter(is_made).cloned().collect();
                made.iter().for_each(|change| self.learn(agent, change));
            }
            Due::Conflict(conflicts) if self.random.percent(80) => {
                for (_, path) in conflicts.iter().filter(|(code, _)| *code != "reserved") {
                    self.reads[agent].retain(|read| read.path != *path);
                    self.look_at(agent, path);
                }
            }
            Due::Same | Due::Conflict(_) | Due::Inapplicable(_) | Due::TooMany => {}
        }
        Ok(due)
    }

    fn target(&mut self, agent: usize) -> String {
        let reads = &self.reads[agent];
        if reads.is_empty() || self.random.percent(10) {
            return self.some_file(agent);
        }
        self.random.pick(reads).path.clone()
    }

    /// Turns the first change into a rename to another path.
    fn rename(&mut self, changes: &mut Vec<Change>) {
        let from = changes[0].path.clone();
        let to = file(self.random.index(FILES));
        let Some(lines) = self.shop.oracle.history.lines(&from).map(<[Line]>::to_vec) else { return };
        if to == from {
            return;
        }
        let gone = self.removal(&from);
        // The renamed file gets fresh line identities.
        let made = creation(&mut self.shop, &to, lines.len());
        *changes = vec![gone, made];
    }

    fn removal(&mut self, path: &str) -> Change {
        let history = &self.shop.oracle.history;
        let gone = history.lines(path).unwrap_or_default().len();
        let whole = Piece { at: 0, gone, new: Vec::new() };
        let pieces = self.random.percent(70).then(|| if gone == 0 { Vec::new() } else { vec![whole] });
        let from = history.now(path).and_then(super::history::Version::hash);
        Change { path: path.to_owned(), from, lines: None, pieces }
    }

    /// Draws a change of a file, which may be valid or invalid.
    fn change(&mut self, agent: usize, path: &str) -> Change {
        let history = &self.shop.oracle.history;
        let Some(now) = history.now(path).filter(|now| now.lines.is_some()).cloned() else {
            // Sometimes the change expects the content of the deleted file.
            let before = history.version(path).checked_sub(1).and_then(|version| history.at(path, version));
            let outdated = before.and_then(super::history::Version::hash).filter(|_| self.random.percent(10));
            let count = self.random.index(30);
            let made = creation(&mut self.shop, path, count);
            return Change { from: outdated, ..made };
        };
        if self.random.percent(5) {
            return self.removal(path);
        }
        if self.random.percent(2) {
            // The change assumes that the file does not exist.
            let count = self.random.index(10);
            return creation(&mut self.shop, path, count);
        }
        let mut lines = now.lines.clone().unwrap_or_default();
        let mut from = now.hash();
        if self.random.percent(5) {
            let version = 1 + self.random.below(history.version(path));
            let other = history.at(path, version).filter(|other| other.hash() != from);
            if let Some(older) = other.and_then(|other| Some((other.hash()?, other.lines.clone()?))) {
                (from, lines) = (Some(older.0), older.1);
            }
        }
        if self.random.percent(3) {
            let count = self.random.index(30);
            let lines = Some(self.shop.oracle.history.fresh(count));
            return Change { path: path.to_owned(), from, lines, pieces: None };
        }
        let shown: BTreeSet<Line> = self.reads[agent]
            .iter()
            .filter(|read| read.path == path)
            .flat_map(|read| match &read.what {
                What::Whole => lines.clone(),
                What::Part { lines, .. } => lines.clone(),
            })
            .collect();
        let known: Vec<usize> = (0..lines.len()).filter(|at| shown.contains(&lines[*at])).collect();
        let known = Some(known).filter(|known| !known.is_empty() && self.random.percent(80)).unwrap_or_default();
        let pieces = self.pieces(&lines, &known);
        let after = apply(&lines, &pieces);
        Change { path: path.to_owned(), from, lines: Some(after), pieces: Some(pieces) }
    }

    /// Draws some pieces of a text, at known lines if there are any.
    fn pieces(&mut self, lines: &[Line], known: &[usize]) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let wanted = 1 + self.random.index(3);
        let mut at = if known.is_empty() { self.random.index(lines.len() + 1) } else { *self.random.pick(known) };
        for _ in 0..wanted {
            let longest = match known.is_empty() {
                true => lines.len() - at,
                false => (at..lines.len()).take_while(|at| known.contains(at)).count(),
            };
            let gone = self.random.index(4).min(longest);
            let most = if lines.len() > LINES_MAX { 2 } else { 4 };
            let new = self.random.index(most).max(usize::from(gone == 0));
            // Insert before the known line, or after it.
            let shift = usize::from(gone == 0 && self.random.percent(30) && at < lines.len());
            let new = self.shop.oracle.history.fresh(new);
            pieces.push(Piece { at: at + shift, gone, new });
            at += shift + gone.max(1) + self.random.index(5);
            if at > lines.len() || (!known.is_empty() && !known.contains(&at)) {
                break;
            }
        }
        pieces
    }

    /// Records that after its own edit an agent knows its earlier reads of the file and the lines it wrote.
    fn learn(&mut self, agent: usize, change: &Change) {
        if self.random.percent(8) {
            return;
        }
        let version = self.shop.oracle.history.version(&change.path);
        let reads = &mut self.reads[agent];
        let own = reads.iter().filter(|read| read.path == change.path);
        let knows_all = own.clone().any(|read| matches!(read.what, What::Whole));
        let mut known: BTreeSet<Line> = own
            .flat_map(|read| match &read.what {
                What::Whole => &[],
                What::Part { lines, .. } => lines.as_slice(),
            })
            .copied()
            .collect();
        reads.retain(|read| read.path != change.path);
        let path = change.path.clone();
        match (&change.lines, &change.pieces) {
            (Some(lines), Some(pieces)) if change.from.is_some() && !knows_all => {
                known.extend(pieces.iter().flat_map(|piece| &piece.new));
                reads.extend(parts(&path, version, lines, &known));
            }
            _ => reads.push(Read { path, version, what: What::Whole }),
        }
    }

    /// Makes an external edit, outside any session.
    fn happen(&mut self) -> Result<(), Doubt> {
        let kind = self.random.below(100);
        let long = file(LONG);
        let length = self.shop.oracle.history.lines(&long).map_or(0, <[Line]>::len);
        match kind {
            // Roughly as many edits as a board remembers, at the beginning of the long file.
            0..20 if length > 20 => {
                for _ in 0..REMEMBERED - 2 + self.random.below(5) {
                    let at = self.random.index(15);
                    let new = self.shop.oracle.history.fresh(1);
                    self.happens_to(&long, vec![Piece { at, gone: 1, new }])?;
                }
                Ok(())
            }
            // As many pieces as a board remembers of one edit, or one more.
            20..30 if length > 2 * (PIECES + 1) => {
                let count = PIECES + self.random.index(2);
                let pieces = (0..count).map(|nth| {
                    let new = self.shop.oracle.history.fresh(1);
                    Piece { at: 2 * nth, gone: 1, new }
                });
                let pieces = pieces.collect();
                self.happens_to(&long, pieces)
            }
            // An inserted line that is removed again.
            30..50 if length > 20 => {
                let at = self.random.index(length);
                let new = self.shop.oracle.history.fresh(1);
                self.happens_to(&long, vec![Piece { at, gone: 0, new }])?;
                self.happens_to(&long, vec![Piece { at, gone: 1, new: Vec::new() }])
            }
            _ => {
                let path = file(self.random.index(FILES));
                let change = match self.random.below(10) {
                    0 if self.shop.oracle.history.lines(&path).is_some() => self.removal(&path),
                    _ => self.honest_change(&path),
                };
                self.shop.edit(None, &[], &[change]).map(drop)
            }
        }
    }

    /// Draws a change that is based on the current content.
    fn honest_change(&mut self, path: &str) -> Change {
        let Some(now) = self.shop.oracle.history.now(path).filter(|now| now.lines.is_some()).cloned() else {
            let count = self.random.index(30);
            return creation(&mut self.shop, path, count);
        };
        let lines = now.lines.clone().unwrap_or_default();
        if self.random.percent(20) {
            let count = self.random.index(30);
            let lines = Some(self.shop.oracle.history.fresh(count));
            return Change { path: path.to_owned(), from: now.hash(), lines, pieces: None };
        }
        let pieces = self.pieces(&lines, &[]);
        let after = apply(&lines, &pieces);
        Change { path: path.to_owned(), from: now.hash(), lines: Some(after), pieces: Some(pieces) }
    }

    fn happens_to(&mut self, path: &str, pieces: Vec<Piece>) -> Result<(), Doubt> {
        let change = changed(&self.shop, path, pieces);
        self.shop.edit(None, &[], &[change]).map(drop)
    }
}

/// Creates a file of `count` fresh lines at a path without a file.
pub(crate) fn creation(shop: &mut Shop, path: &str, count: usize) -> Change {
    let lines = shop.oracle.history.fresh(count);
    let whole = Piece { at: 0, gone: 0, new: lines.clone() };
    let pieces = if count == 0 { Vec::new() } else { vec![whole] };
    Change { path: path.to_owned(), from: None, lines: Some(lines), pieces: Some(pieces) }
}

/// Applies `pieces` to the current content of a file.
pub(crate) fn changed(shop: &Shop, path: &str, pieces: Vec<Piece>) -> Change {
    let now = shop.oracle.history.now(path);
    let lines = now.and_then(|now| now.lines.as_deref()).unwrap_or_default();
    let from = now.and_then(super::history::Version::hash);
    Change { path: path.to_owned(), from, lines: Some(apply(lines, &pieces)), pieces: Some(pieces) }
}

/// Returns a read of lines of a version; `first` is the index of the first line, counted from 0.
pub(crate) fn part(path: &str, version: u64, first: usize, lines: &[Line]) -> Read {
    let first = u32::try_from(first + 1).expect("files are small");
    Read { path: path.to_owned(), version, what: What::Part { first, lines: lines.to_vec() } }
}

/// Returns reads of the known lines of a version, one per contiguous run.
pub(crate) fn parts(path: &str, version: u64, lines: &[Line], known: &BTreeSet<Line>) -> Vec<Read> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let run = lines[at..].iter().take_while(|line| known.contains(line)).count();
        if run > 0 {
            found.push(part(path, version, at, &lines[at..at + run]));
        }
        at += run + 1;
    }
    found
}
