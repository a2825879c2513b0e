//! Erases content from a cassette after its redaction on the recorded board.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use patchboard_kernel::digest::{Digest, Hasher};
use patchboard_kernel::record::{Attempt, Author, Body, Record};

use super::{CassetteError, Entry};

/// Placeholder for an erased view.
const ERASED: &str = "$redacted";

/// Counts of erased content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErasedCounts {
    /// Number of views.
    pub views: usize,
    /// Number of answers; playback reports them as erased.
    pub answers: usize,
}

/// Erases from a cassette the redacted views of a board, and the answers that contained redacted values. `records` are
/// all records of the board. `hasher` makes the view names used since format 20; `None` if its salt is gone. `hashes`
/// maps those names to the SHA-256 names used before. The file is replaced as a whole, or left unchanged.
pub fn erase(
    path: &Path,
    records: &[Record],
    hasher: Option<&Hasher>,
    hashes: &BTreeMap<Digest, Digest>,
) -> Result<ErasedCounts, CassetteError> {
    let io = |error| CassetteError::io(path, error);
    let text = std::fs::read_to_string(path).map_err(io)?;
    // Opening it checks that it is a playable cassette.
    super::Player::open(path)?;
    let redacted = RedactedViews::from_records(records, hashes);
    let mut erased = ErasedCounts::default();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let mut written = lines.next().map(str::to_owned).into_iter().collect::<Vec<_>>();
    for (line, number) in lines.zip(2..) {
        let form =
            |message: String| CassetteError::Malformed { path: path.display().to_string(), line: number, message };
        let mut entry: Entry = serde_json::from_str(line).map_err(|error| form(error.to_string()))?;
        let before = entry.clone();
        let names = ViewNames::from_entry(&entry, hasher);
        if names.any(&redacted.views) && !entry.shown.starts_with(ERASED) {
            entry.shown = names.erased();
            erased.views += 1;
        }
        if names.any(&redacted.answers) && !entry.erased && !(entry.cancelled && entry.tools.is_empty()) {
            entry.tools.clear();
            if !entry.cancelled {
                (entry.reply, entry.failure, entry.erased) = (None, None, true);
            }
            erased.answers += 1;
        }
        written.push(match entry == before {
            true => line.to_owned(),
            false => serde_json::to_string(&entry).map_err(|error| form(error.to_string()))?,
        });
    }
    if erased == ErasedCounts::default() {
        return Ok(erased);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(io)?;
    for line in written {
        writeln!(file, "{line}").map_err(io)?;
    }
    file.as_file().sync_all().map_err(io)?;
    if let Ok(old) = std::fs::metadata(path) {
        file.as_file().set_permissions(old.permissions()).map_err(io)?;
    }
    file.persist(path).map_err(|error| io(error.error))?;
    Ok(erased)
}

/// Names that a board's records may use for the view of an entry.
struct ViewNames {
    /// Name before format 20, as in the entry itself.
    plain: Digest,
    salted: Option<Digest>,
}

impl ViewNames {
    fn from_entry(entry: &Entry, hasher: Option<&Hasher>) -> Self {
        let salted = match entry.shown.strip_prefix(ERASED) {
            None => hasher.map(|hasher| hasher.text(&entry.shown)),
            // The placeholder keeps the name of the erased view.
            Some(name) => name.strip_prefix(':').and_then(|name| name.parse().ok()),
        };
        Self { plain: entry.view, salted }
    }

    fn any(&self, of: &BTreeSet<Digest>) -> bool {
        of.contains(&self.plain) || self.salted.is_some_and(|name| of.contains(&name))
    }

    /// Returns the placeholder for the view. It contains the view's name, so that the answer can still be erased later.
    fn erased(&self) -> String {
        self.salted.map_or_else(|| ERASED.to_owned(), |name| format!("{ERASED}:{name}"))
    }
}

/// Names of redacted views, and of views with redacted answers.
#[derive(Default)]
struct RedactedViews {
    views: BTreeSet<Digest>,
    answers: BTreeSet<Digest>,
}

impl RedactedViews {
    fn from_records(records: &[Record], hashes: &BTreeMap<Digest, Digest>) -> Self {
        let mut result = Self::default();
        let mut views = BTreeMap::new();
        for record in records {
            // An unreadable record was not redacted.
            let Ok(body) = record.body() else { continue };
            let by = match body {
                Body::Invoked(invoked) => {
                    views.insert((invoked.invocation, invoked.attempt), invoked.view);
                    continue;
                }
                Body::Redacted(redacted) => {
                    result.views.extend(&redacted.texts);
                    continue;
                }
                Body::Late(it) => {
                    let view = it.invocation.zip(it.attempt).and_then(|attempt| views.get(&attempt));
                    result.answers.extend(view.filter(|_| record.is_redacted()));
                    continue;
                }
                Body::Deferred(_) => continue,
                body => body.author().and_then(attempt_of),
            };
            let view = by.map(|Attempt { view, .. }| view);
            result.answers.extend(view.filter(|_| record.is_redacted()));
        }
        for names in [&mut result.views, &mut result.answers] {
            let plain: Vec<Digest> = names.iter().filter_map(|name| hashes.get(name).copied()).collect();
            names.extend(plain);
        }
        result
    }
}

/// Returns the attempt that produced a record, by its answer or by a tool use.
fn attempt_of(by: &Author) -> Option<&Attempt> {
    by.attempt.as_ref().or_else(|| by.edit.as_ref()?.attempt.as_ref())
}
