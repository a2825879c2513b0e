//! Marks of acknowledged heads, in a file beside the database.
//!
//! For SQLite its log ends at the first invalid frame, so a flipped bit drops every later commit and leaves a sound
//! database. Each commit therefore leaves a mark here: board, number and hash of its last record. It is written after
//! the commit and before the acknowledgement, so a database without a marked record has lost it. The file is not
//! synced: writes that the system has accepted outlive the process.
//!
//! Several processes append. A process that rewrites the file, with the last mark of each board, locks out appenders,
//! which detect the new file by its identity.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use patchboard_kernel::digest::sha256;
use patchboard_kernel::driver::Head;
use patchboard_kernel::id::{BoardId, Seq};

use super::error_mapping::io_error;
use super::file_identity::{Identity, identity, identity_of};
use crate::journal::{JournalError, Result};
use crate::{board_id, private_files};

/// Name of the file in the data directory.
const FILE: &str = "patchboard.marks";

/// File size in bytes above which the file is rewritten; or twice its size after the last rewrite, if that is more.
const REWRITE_ABOVE: u64 = 256 << 10;

/// Limit of bytes that are read.
const BYTES_MAX: u64 = 1 << 30;

/// Hexadecimal digits of a line's checksum.
const CHECK_DIGITS: usize = 16;

/// Marks of a data directory.
pub(super) struct Marks {
    path: PathBuf,
    open: Mutex<Option<OpenMarks>>,
}

/// The file, open for appending.
struct OpenMarks {
    file: File,
    identity: Option<Identity>,
    rewrite_above: u64,
}

pub(super) type Heads = BTreeMap<BoardId, Head>;

impl Marks {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(FILE), open: Mutex::default() }
    }

    /// Creates the file, if it is missing.
    pub(super) fn prepare(&self) -> Result<()> {
        private_files::ensure(&self.path).map_err(|error| io_error(&self.path, &error))
    }

    /// Returns the latest mark of each board. Ignores torn and damaged lines.
    pub(super) fn read(&self) -> Result<Heads> {
        match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Heads::new()),
            opened => opened.and_then(|file| read(&file)).map_err(|error| match error.kind() {
                ErrorKind::PermissionDenied => io_error(&self.path, &error),
                _ => JournalError::Unreadable(format!("{}: {error}", self.path.display())),
            }),
        }
    }

    /// Appends marks of durable heads.
    pub(super) fn note<'a>(&self, heads: impl IntoIterator<Item = (&'a BoardId, Head)>) -> Result<()> {
        let text = lines(heads);
        if text.is_empty() {
            return Ok(());
        }
        self.append(text.as_bytes()).map_err(|error| io_error(&self.path, &error))
    }

    /// Removes the marks of a board, if there are any.
    pub(super) fn forget(&self, board: &BoardId) -> Result<()> {
        let forgotten = || -> io::Result<()> {
            if !read(&self.locked(File::lock)?.file)?.contains_key(board) {
                return Ok(());
            }
            self.rewrite(|of| of != board)
        };
        forgotten().map_err(|error| io_error(&self.path, &error))
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut open = self.open.lock();
        let length = loop {
            let current = match open.take() {
                Some(current) => current,
                None => OpenMarks::open(&self.path)?,
            };
            current.file.lock_shared()?;
            if current.identity == identity(&self.path) {
                let current = open.insert(current);
                let written = current.file.write_all(bytes).and_then(|()| Ok(current.file.metadata()?.len()));
                current.file.unlock()?;
                break written?;
            }
        };
        match &mut *open {
            Some(current) if length > current.rewrite_above => {
                *open = None;
                self.rewrite(|_| true)
            }
            _ => Ok(()),
        }
    }

    /// Opens the current file under a lock; retries if it was replaced meanwhile.
    fn locked(&self, lock: impl Fn(&File) -> io::Result<()>) -> io::Result<OpenMarks> {
        loop {
            let open = OpenMarks::open(&self.path)?;
            lock(&open.file)?;
            if open.identity == identity(&self.path) {
                return Ok(open);
            }
        }
    }

    /// Replaces the file by one with the latest marks of the selected boards.
    fn rewrite(&self, stays: impl Fn(&BoardId) -> bool) -> io::Result<()> {
        // Locked until it is closed.
        let before = self.locked(File::lock)?;
        let heads = read(&before.file)?;
        let path = self.path.with_extension("marks.new");
        let mut file = private_files::create(&path)?;
        let stay = heads.iter().filter(|(board, _)| stays(board));
        file.write_all(lines(stay.map(|(board, head)| (board, *head))).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&path, &self.path)
    }
}

impl OpenMarks {
    fn open(path: &Path) -> io::Result<Self> {
        private_files::ensure(path)?;
        let file = private_files::options().read(true).append(true).open(path)?;
        let metadata = file.metadata()?;
        let rewrite_above = REWRITE_ABOVE.max(metadata.len().saturating_mul(2));
        Ok(Self { file, identity: identity_of(&metadata), rewrite_above })
    }
}

fn read(mut file: &File) -> io::Result<Heads> {
    let mut bytes = Vec::new();
    (&mut file).take(BYTES_MAX).read_to_end(&mut bytes)?;
    let mut heads = Heads::new();
    for (board, head) in bytes.split(|byte| *byte == b'\n').filter_map(mark) {
        match heads.get(&board) {
            Some(known) if known.seq > head.seq => {}
            _ => drop(heads.insert(board, head)),
        }
    }
    Ok(heads)
}

/// Formats marks as lines. Each also begins with a line end, because the last line may be torn.
fn lines<'a>(heads: impl IntoIterator<Item = (&'a BoardId, Head)>) -> String {
    // An invalid board id may not fit into a line.
    let usable = heads.into_iter().filter(|(board, _)| board_id::is_usable(board));
    let line = |(board, head): (&BoardId, Head)| {
        let said = format!("{board} {} {}", head.seq, head.hash);
        format!("\n{said} {}\n", checksum(&said))
    };
    usable.map(line).collect()
}

fn mark(line: &[u8]) -> Option<(BoardId, Head)> {
    let (content, checked) = std::str::from_utf8(line).ok()?.rsplit_once(' ')?;
    if checksum(content) != checked {
        return None;
    }
    let mut words = content.split(' ');
    let (board, seq, hash) = (words.next()?, words.next()?, words.next()?);
    Some((board.into(), Head { seq: Seq(seq.parse().ok()?), hash: hash.parse().ok()? }))
}

fn checksum(content: &str) -> String {
    let mut digits = sha256(content.as_bytes()).to_string();
    digits.truncate(CHECK_DIGITS);
    digits
}

#[cfg(test)]
mod tests {
    use std::fs;

    use patchboard_kernel::digest::Digest;

    use super::*;

    fn head(seq: u64) -> Head {
        Head { seq: Seq(seq), hash: Digest([u8::try_from(seq % 251).expect("small"); 32]) }
    }

    fn board(number: usize) -> BoardId {
        format!("b{number}").into()
    }

    #[test]
    fn the_latest_mark_of_a_board_is_read_despite_damage_around_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let marks = Marks::new(dir.path());
        assert_eq!(marks.read(), Ok(Heads::new()), "there is no file");
        marks.note([(&board(1), head(1)), (&board(2), head(7))]).expect("noted");
        // Marks of two processes may arrive out of order.
        marks.note([(&board(1), head(3))]).expect("noted");
        marks.note([(&board(1), head(2))]).expect("noted");
        marks.note([(&"an id\nof two lines".into(), head(9))]).expect("passed over");
        let known = Heads::from([(board(1), head(3)), (board(2), head(7))]);
        assert_eq!(marks.read(), Ok(known.clone()));
        let path = dir.path().join(FILE);
        let whole = fs::read(&path).expect("a file");
        // A mark torn at any place is ignored.
        let torn = lines([(&board(2), head(8))]);
        for length in 0..torn.len() - 1 {
            fs::write(&path, [&whole, &torn.as_bytes()[..length]].concat()).expect("written");
            assert_eq!(marks.read(), Ok(known.clone()), "{length}");
            Marks::new(dir.path()).note([(&board(3), head(1))]).expect("noted");
            assert_eq!(marks.read().expect("read").get(&board(3)), Some(&head(1)), "{length}: the next one is whole");
        }
        // A flipped bit makes no other mark: the previous one counts, or none.
        for place in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[place] ^= 4;
            fs::write(&path, &flipped).expect("written");
            for (of, found) in marks.read().expect("read") {
                assert!(
                    known.get(&of).is_some_and(|known| found.seq <= known.seq && found == head(found.seq.0)),
                    "{place}"
                );
            }
        }
    }

    #[test]
    fn the_file_is_bounded_by_the_boards_and_not_by_their_commits() {
        let dir = tempfile::tempdir().expect("a directory");
        let (marks, beside) = (Marks::new(dir.path()), Marks::new(dir.path()));
        let commits = 4 * REWRITE_ABOVE / 100;
        for seq in 0..commits {
            // Both processes write, each to a file that the other one may have rewritten.
            let writer = if seq % 3 == 0 { &beside } else { &marks };
            writer.note([(&board((seq % 10) as usize), head(seq))]).expect("noted");
        }
        let length = fs::metadata(dir.path().join(FILE)).expect("a file").len();
        assert!(length <= REWRITE_ABOVE + 200, "{length}");
        let expected: Heads = (commits - 10..commits).map(|seq| (board((seq % 10) as usize), head(seq))).collect();
        assert_eq!(marks.read(), Ok(expected), "and no mark is lost");
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn concurrent_appends_survive_rewrites_of_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        std::thread::scope(|scope| {
            for number in 0..4 {
                let dir = dir.path();
                scope.spawn(move || {
                    let marks = Marks::new(dir);
                    for seq in 0..200 {
                        marks.note([(&board(number), head(seq))]).expect("noted");
                        if seq % 20 == number as u64 {
                            marks.note([(&board(10 + number), head(seq))]).expect("noted");
                            marks.forget(&board(10 + number)).expect("forgotten");
                        }
                    }
                });
            }
        });
        let expected: Heads = (0..4).map(|number| (board(number), head(199))).collect();
        assert_eq!(Marks::new(dir.path()).read(), Ok(expected));
    }

    #[cfg(unix)]
    #[test]
    fn the_file_stays_private_to_its_owner_after_a_rewrite() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let marks = Marks::new(dir.path());
        let mode = || fs::metadata(dir.path().join(FILE)).expect("a file").permissions().mode() & 0o777;
        marks.note([(&board(1), head(1)), (&board(2), head(1))]).expect("noted");
        assert_eq!(mode(), 0o600);
        marks.forget(&board(1)).expect("forgotten");
        assert_eq!((mode(), marks.read()), (0o600, Ok(Heads::from([(board(2), head(1))]))));
    }
}
