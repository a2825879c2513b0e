//! Search for lines in many texts, in time linear in their size for any pattern.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use patchboard_kernel::files::{FilePath, LineRange, union};
use regex::{Regex, RegexBuilder};

use super::edit::{EditCode, EditError};
use super::hunks::number;
use super::snippet::push_cut;
use patchboard_kernel::text::{counted, is_or_are, one_line};

/// Maximum bytes of a pattern.
pub const PATTERN_BYTES_MAX: usize = 1_000;

/// Maximum bytes of a compiled pattern.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// Pattern to match in each line.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles a literal text or a regular expression.
    pub fn new(pattern: &str, is_regex: bool) -> Result<Self, EditError> {
        if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX {
            let message = format!("A pattern has between 1 and {PATTERN_BYTES_MAX} bytes.");
            return Err(EditError::new(EditCode::BadPattern, message));
        }
        let escaped = if is_regex { pattern.to_owned() } else { regex::escape(pattern) };
        let built =
            RegexBuilder::new(&escaped).size_limit(COMPILED_BYTES_MAX).dfa_size_limit(COMPILED_BYTES_MAX).build();
        built.map(Self).map_err(|error| {
            let message = format!(
                "The pattern cannot be used: {}. Look-around and back references are not there; `regex: false` looks for \
                 the text itself.",
                one_line(&error.to_string(), 300)
            );
            EditError::new(EditCode::BadPattern, message)
        })
    }
}

/// Limits of a search.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits {
    /// Maximum number of lines shown.
    pub matches: usize,
    /// Maximum characters of the result.
    pub chars: usize,
    /// Maximum bytes of texts searched.
    pub bytes: usize,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self { matches: 200, chars: 16_000, bytes: 64 * 1024 * 1024 }
    }
}

/// Result of a search.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SearchResult {
    /// Text to show: each file's name, followed by its numbered lines.
    pub text: String,
    /// Number of matching lines, shown or not.
    pub matches: usize,
    /// Number of files with a match.
    pub files: usize,
}

/// Incremental search that receives one text at a time and keeps none. Counts all matches and shows those that fit.
pub struct Search {
    pattern: Pattern,
    limits: SearchLimits,
    found: SearchResult,
    shown: usize,
    /// Remaining characters to show.
    chars: usize,
    /// Remaining bytes to search.
    bytes: usize,
    is_full: bool,
    /// Texts that could not be searched, by reason: count and name of the first.
    left_out: BTreeMap<&'static str, (usize, String)>,
}

impl Search {
    /// Creates a search.
    pub fn new(pattern: &Pattern, limits: SearchLimits) -> Self {
        // Reserves room for the final notes.
        let chars = limits.chars.saturating_sub(NOTES_CHARS);
        let (pattern, found, bytes) = (pattern.clone(), SearchResult::default(), limits.bytes);
        Self { pattern, limits, found, shown: 0, chars, bytes, is_full: false, left_out: BTreeMap::new() }
    }

    /// Returns whether the byte limit is reached.
    pub const fn is_over(&self) -> bool {
        self.bytes == 0
    }

    /// Searches one more text and returns its lines shown in full.
    pub fn search_file(&mut self, path: &FilePath, text: &str) -> Vec<LineRange> {
        self.bytes = self.bytes.saturating_sub(text.len());
        let found = &mut self.found;
        let mut shown: Vec<LineRange> = Vec::new();
        let mut has_name = false;
        let before = found.matches;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| self.pattern.0.is_match(line)) {
            found.matches += 1;
            if self.is_full {
                continue;
            }
            let mut entry = if has_name { String::new() } else { format!("{path}\n") };
            write!(entry, "{:>6}\t", at + 1).expect("a string takes everything");
            let cut = push_cut(&mut entry, line);
            entry.push('\n');
            let chars = entry.chars().count();
            self.is_full = self.shown >= self.limits.matches || chars > self.chars;
            if self.is_full {
                continue;
            }
            self.chars -= chars;
            self.shown += 1;
            has_name = true;
            found.text.push_str(&entry);
            if !cut {
                shown.push((number(at + 1), number(at + 1)));
            }
        }
        found.files += usize::from(found.matches > before);
        union(shown)
    }

    /// Records that a text cannot be searched, with the reason.
    pub fn leave_out(&mut self, path: &FilePath, why: &'static str) {
        self.left_out.entry(why).or_insert_with(|| (0, one_line(path.as_str(), NAME_CHARS))).0 += 1;
    }

    /// Returns the result; `left` texts were not searched.
    pub fn found(self, left: usize) -> SearchResult {
        let Self { mut found, shown, limits, left_out, chars, .. } = self;
        let mut notes = match found.matches - shown {
            0 if found.matches == 0 => "No line matches.\n".to_owned(),
            0 => String::new(),
            hidden => format!(
                "[{hidden} of {} {} not shown; narrow the pattern or the folder]\n",
                counted(found.matches, "matching line"),
                is_or_are(hidden)
            ),
        };
        if left > 0 {
            let _ = writeln!(
                notes,
                "[{} {} not looked through, which is too much at once: name a folder]",
                counted(left, "more file"),
                if left == 1 { "was" } else { "were" }
            );
        }
        for (why, (count, first)) in left_out {
            let room = NOTES_CHARS.saturating_add(chars).saturating_sub(notes.len());
            let others = if count > 1 { format!(" and {}", counted(count - 1, "more file")) } else { String::new() };
            let named = format!("[{first}{others}: not looked through, {why}]\n");
            notes.push_str(if named.len() <= room { &named } else { "[files left out]\n" });
        }
        if notes.len() <= limits.chars {
            found.text.push_str(&notes);
        }
        found
    }
}

/// Characters reserved for notes about matches not shown and texts not searched.
const NOTES_CHARS: usize = 220;

/// Maximum characters of a file name in these notes.
const NAME_CHARS: usize = 60;
