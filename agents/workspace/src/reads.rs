//! An agent's read set, against which its edits are checked.
//!
//! For each file that was shown to the agent, it holds the versions and lines, numbered as in that version. It also
//! keeps their texts up to a limit, so that a rejection can show the difference. Plain data: the kernel decides whether
//! a read is stale.

mod stale;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use patchboard_kernel::blueprint::Granularity;
use patchboard_kernel::files::{FileEntry, FilePath, FileRead, LineRange, LineShift, ReadState, check_read, union};

/// Maximum bytes of texts kept per agent; the oldest are evicted, and rejections then show no difference for them.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum bytes of texts kept for all agents of a workspace.
const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Maximum reads declared by an edit. The kernel's limit ([`READS_MAX`]) is higher, to leave room for signed lines.
///
/// [`READS_MAX`]: patchboard_kernel::files::READS_MAX
const DECLARED_MAX: usize = 3_584;

/// Bytes of texts that all agents of a workspace hold.
#[derive(Debug, Default)]
pub struct TextPool(AtomicUsize);

/// Edit of a file by the agent itself, from `before` to this version; without a text the file is deleted.
#[derive(Clone, Copy)]
pub(super) struct OwnEdit<'a> {
    pub(super) path: &'a FilePath,
    pub(super) before: Option<&'a FileEntry>,
    pub(super) moves: &'a [LineShift],
    pub(super) version: u64,
    pub(super) text: Option<&'a Arc<str>>,
}

/// An agent's read set.
#[derive(Debug, Default)]
pub struct Reads {
    files: BTreeMap<FilePath, FileReads>,
    /// Logical clock of the notes, used to find the oldest.
    clock: u64,
    text_bytes: usize,
    pool: Arc<TextPool>,
}

#[derive(Clone, Debug, Default)]
struct FileReads {
    seen: Vec<VersionRead>,
    /// Lines shown of the latest version that was shown; lines known otherwise are not included.
    shown: (u64, Vec<LineRange>),
    /// Columns of long lines that were shown in parts, by version and line.
    columns: BTreeMap<(u64, u32), Vec<LineRange>>,
    /// Texts shown, by version.
    texts: BTreeMap<u64, Arc<str>>,
    noted: u64,
}

/// Lines read at one version; `None` means the whole file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct VersionRead {
    version: u64,
    lines: Option<LineRange>,
    /// The read found no file.
    is_absent: bool,
}

impl Reads {
    /// Creates an empty read set; its texts count towards `held`.
    pub fn with_pool(pool: &Arc<TextPool>) -> Self {
        let mut reads = Self::default();
        reads.pool = Arc::clone(pool);
        reads
    }

    /// Records that some or all lines of a version were shown. Version 0 means that the file does not exist.
    pub fn note(&mut self, path: &FilePath, version: u64, lines: Option<LineRange>, text: Option<&Arc<str>>) {
        let known = self.files.entry(path.clone()).or_default();
        if known.shown.0 != version {
            known.shown = (version, Vec::new());
        }
        lines.into_iter().for_each(|lines| join(&mut known.shown.1, lines));
        match lines {
            // A read of the whole file supersedes all earlier ones.
            None => known.seen = vec![VersionRead { version, lines, is_absent: text.is_none() }],
            Some(lines) => {
                let is_known = |part: &VersionRead| part.version == version && part.lines.is_none();
                if !known.seen.iter().any(is_known) {
                    let same = |part: &VersionRead| part.version == version;
                    let mut ranges =
                        known.seen.iter().filter(|part| same(part)).filter_map(|part| part.lines).collect();
                    join(&mut ranges, lines);
                    known.seen.retain(|part| !same(part));
                    let part = |lines| VersionRead { version, lines: Some(lines), is_absent: false };
                    known.seen.extend(ranges.into_iter().map(part));
                }
            }
        }
        self.keep(path, version, text);
    }

    /// Records that columns of a line with `of` characters were shown. The line counts as read once all of them were.
    pub fn note_columns(&mut self, path: &FilePath, version: u64, line: u32, part: (LineRange, u32), text: &Arc<str>) {
        let (columns, line_chars) = part;
        let known = self.files.entry(path.clone()).or_default();
        known.columns.retain(|(of, _), _| *of == version);
        let shown = known.columns.entry((version, line)).or_default();
        *shown = union(shown.iter().copied().chain([columns]));
        if shown.as_slice() == [(1, line_chars)] {
            known.columns.remove(&(version, line));
            self.note(path, version, Some((line, line)), Some(text));
        }
    }

    /// Records an edit by the agent itself. Fresh reads and the lines written move to the new version. Stale reads
    /// remain stale.
    pub(super) fn note_own_edit(&mut self, edit: OwnEdit<'_>) {
        let OwnEdit { path, before, moves, version, text } = edit;
        let known = self.files.entry(path.clone()).or_default();
        let was_there = before.is_some_and(FileEntry::exists);
        let mut is_whole = !was_there || text.is_none_or(|text| text.is_empty());
        let (mut lines, mut stale) = (Vec::new(), Vec::new());
        for part in &known.seen {
            let read = FileRead { path: path.clone(), version: part.version, lines: part.lines };
            match check_read(before, &read, Granularity::Lines) {
                ReadState::Fresh(_) if part.lines.is_none() => is_whole = true,
                ReadState::Fresh(fresh) => lines.extend(fresh.map(|lines| shift_own_lines(lines, moves))),
                ReadState::Stale => stale.push(*part),
            }
        }
        let now = match is_whole {
            true => vec![VersionRead { version, lines: None, is_absent: text.is_none() }],
            false => {
                let mut ranges = overlapping(lines);
                written(moves).into_iter().for_each(|lines| join(&mut ranges, lines));
                let part = |lines| VersionRead { version, lines: Some(lines), is_absent: false };
                ranges.into_iter().map(part).collect()
            }
        };
        known.seen = stale.into_iter().chain(now).collect();
        self.keep(path, version, text);
    }

    /// Records a version that the author claims to have seen, without its text.
    pub fn declare(&mut self, path: &FilePath, version: u64) {
        let known = self.files.entry(path.clone()).or_default();
        known.seen.push(VersionRead { version, lines: None, is_absent: false });
    }

    /// Returns all reads.
    pub fn all(&self) -> Vec<FileRead> {
        self.files.keys().flat_map(|path| self.for_file(path)).collect()
    }

    /// Returns the reads to declare with an edit of the targets. Above the limit, the fresh reads of each other file
    /// are merged into one range. That can produce false conflicts, but never misses one. Reads of targets stay exact,
    /// because an edit may only touch lines that were read.
    /// If there are too many files, the oldest reads are dropped; the error has the names of their files.
    pub fn declared(
        &mut self,
        targets: &[FilePath],
        entry: impl Fn(&FilePath) -> Option<FileEntry>,
        granularity: Granularity,
    ) -> Result<Vec<FileRead>, Vec<FilePath>> {
        if self.parts() <= DECLARED_MAX {
            return Ok(self.all());
        }
        let rough = |path: &FilePath| match targets.contains(path) {
            true => self.for_file(path),
            false => in_one_piece(self.for_file(path), entry(path).as_ref(), granularity),
        };
        let mut declared: BTreeMap<FilePath, Vec<FileRead>> =
            self.files.keys().map(|path| (path.clone(), rough(path))).collect();
        let mut count: usize = declared.values().map(Vec::len).sum();
        let mut forgotten = Vec::new();
        while count > DECLARED_MAX {
            let oldest = self.files.iter().min_by_key(|(_, known)| known.noted).map(|(path, _)| path.clone());
            let Some(oldest) = oldest else { break };
            self.forget(&oldest);
            count -= declared.remove(&oldest).map_or(0, |reads| reads.len());
            forgotten.push(oldest);
        }
        if forgotten.is_empty() { Ok(declared.into_values().flatten().collect()) } else { Err(forgotten) }
    }

    fn parts(&self) -> usize {
        self.files.values().map(|known| known.seen.len()).sum()
    }

    /// Returns the reads of one file.
    pub fn for_file(&self, path: &FilePath) -> Vec<FileRead> {
        let seen = self.files.get(path).map(|known| known.seen.as_slice()).unwrap_or_default();
        seen.iter().map(|part| FileRead { path: path.clone(), version: part.version, lines: part.lines }).collect()
    }

    /// Returns whether the file was read at all.
    pub fn knows(&self, path: &FilePath) -> bool {
        self.files.get(path).is_some_and(|known| !known.seen.is_empty())
    }

    /// Replaces the reads of a file.
    pub fn renew(&mut self, path: &FilePath, version: u64, lines: &[Option<LineRange>], text: Option<&Arc<str>>) {
        self.forget(path);
        lines.iter().for_each(|lines| self.note(path, version, *lines, text));
    }

    /// Restores an earlier read set.
    pub fn restore(&mut self, then: &Self) {
        self.adjust_bytes(self.text_bytes, 0);
        (self.files, self.clock) = (then.files.clone(), then.clock);
        self.adjust_bytes(0, then.text_bytes);
    }

    /// Drops all texts.
    pub fn drop_texts(&mut self) {
        self.files.values_mut().for_each(|known| known.texts.clear());
        self.adjust_bytes(self.text_bytes, 0);
    }

    /// Drops the reads of a file.
    pub fn forget(&mut self, path: &FilePath) {
        if let Some(known) = self.files.remove(path) {
            self.adjust_bytes(known.bytes(), 0);
        }
    }

    /// Returns the text of a version that was read, if it is kept.
    pub fn text(&self, path: &FilePath, version: u64) -> Option<&Arc<str>> {
        self.files.get(path)?.texts.get(&version)
    }

    /// Returns the names of all files read.
    pub fn paths(&self) -> impl Iterator<Item = &FilePath> {
        self.files.keys()
    }

    fn keep(&mut self, path: &FilePath, version: u64, text: Option<&Arc<str>>) {
        self.clock += 1;
        let Some(known) = self.files.get_mut(path) else { return };
        known.noted = self.clock;
        let before = known.bytes();
        known.texts.extend(text.map(|text| (version, Arc::clone(text))));
        known.forget_texts();
        let after = known.bytes();
        self.adjust_bytes(before, after);
        while self.text_bytes > TEXT_BYTES_MAX || self.pool.0.load(Ordering::Relaxed) > HELD_BYTES_MAX {
            let held = self.files.values_mut().filter(|known| !known.texts.is_empty());
            let Some(oldest) = held.min_by_key(|known| known.noted) else { break };
            let bytes = oldest.bytes();
            oldest.texts.clear();
            self.adjust_bytes(bytes, 0);
        }
    }

    fn adjust_bytes(&mut self, before: usize, after: usize) {
        self.text_bytes = self.text_bytes + after - before;
        self.pool.0.fetch_add(after, Ordering::Relaxed);
        self.pool.0.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Clone for Reads {
    /// Clones the reads with a counter of their own, so that shared texts are not counted twice.
    fn clone(&self) -> Self {
        let held = Arc::new(TextPool(AtomicUsize::new(self.text_bytes)));
        Self { files: self.files.clone(), clock: self.clock, text_bytes: self.text_bytes, pool: held }
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.adjust_bytes(self.text_bytes, 0);
    }
}

/// Merges the fresh reads of one file into one read of its newest version, and keeps the oldest stale one.
fn in_one_piece(reads: Vec<FileRead>, entry: Option<&FileEntry>, granularity: Granularity) -> Vec<FileRead> {
    let Some(entry) = entry.filter(|entry| entry.exists()) else { return reads };
    let (mut oldest, mut piece): (Option<FileRead>, Option<FileRead>) = (None, None);
    for read in reads {
        match entry.check_read(&read, granularity) {
            ReadState::Fresh(Some(lines)) => {
                let before = piece.as_ref().and_then(|piece| piece.lines).unwrap_or(lines);
                let lines = Some((before.0.min(lines.0), before.1.max(lines.1)));
                piece = Some(FileRead { version: entry.version, lines, ..read });
            }
            // One stale read suffices for a rejection, and the oldest shows the largest difference.
            _ if oldest.as_ref().is_some_and(|oldest| oldest.version <= read.version) => {}
            _ => oldest = Some(read),
        }
    }
    oldest.into_iter().chain(piece).collect()
}

impl FileReads {
    fn bytes(&self) -> usize {
        self.texts.values().map(|text| text.len()).sum()
    }
}

/// Adds lines shown or written now, merged with overlapping and adjacent ranges.
fn join(ranges: &mut Vec<LineRange>, shown: LineRange) {
    let mut joined = shown;
    ranges.retain(|range| {
        let is_apart = range.1.saturating_add(1) < shown.0 || shown.1.saturating_add(1) < range.0;
        if !is_apart {
            joined = (joined.0.min(range.0), joined.1.max(range.1));
        }
        is_apart
    });
    let at = ranges.partition_point(|range| *range < joined);
    ranges.insert(at, joined);
}

/// Sorts ranges and merges those that share a line. Adjacent ranges stay separate, because the agent has not seen that
/// no line was between them.
fn overlapping(mut ranges: Vec<LineRange>) -> Vec<LineRange> {
    ranges.retain(|(first, last)| first <= last);
    ranges.sort_unstable();
    let mut joined: Vec<LineRange> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

/// Maps lines read by an edit's author to their position after it; lines inserted among them are included.
pub(super) fn shift_own_lines(lines: LineRange, moves: &[LineShift]) -> LineRange {
    let (first, last) = (i64::from(lines.0), i64::from(lines.1));
    let (mut before, mut inside) = (0_i64, 0_i64);
    let mut starts_at = None;
    for step in moves {
        let (at, removed, added) = (i64::from(step.at), i64::from(step.removed), i64::from(step.added));
        let behind = at + removed;
        if behind <= first && (removed > 0 || at <= first) {
            before += added - removed;
        } else if at <= last {
            if at < first {
                // The edit also removed the lines right before, so the range begins at the edit.
                starts_at = Some(at + before);
            }
            // Removed lines outside the range do not shorten it.
            inside += added - (behind.min(last + 1) - at.max(first)).max(0);
        }
    }
    let begin = starts_at.unwrap_or(first + before);
    let count = (last - first + 1 + inside).max(0);
    let line = |number: i64| u32::try_from(number.max(0)).unwrap_or(u32::MAX);
    (line(begin), line(begin + count - 1))
}

/// Returns the lines that an edit wrote, numbered as after it.
fn written(moves: &[LineShift]) -> Vec<LineRange> {
    let mut shift = 0_i64;
    let mut lines = Vec::new();
    for step in moves {
        let at = i64::from(step.at) + shift;
        shift += i64::from(step.added) - i64::from(step.removed);
        if step.added > 0 {
            let first = u32::try_from(at).unwrap_or(u32::MAX);
            lines.push((first, first.saturating_add(step.added) - 1));
        }
    }
    lines
}

#[cfg(test)]
mod tests;
