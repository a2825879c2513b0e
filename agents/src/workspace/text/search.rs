//! Finding lines in many texts, in time that grows with the texts and not with the pattern.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use patchboard_kernel::files::{FilePath, Lines, union};
use regex::{Regex, RegexBuilder};

use super::edit::{EditCode, EditError};
use super::excerpt::push_cut;
use super::hunks::number;
use crate::{counted, is_or_are, one_line};

/// Bytes of a pattern.
pub const PATTERN_BYTES_MAX: usize = 1_000;

/// Bytes that a compiled pattern may take.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// What to look for in each line.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// This text, or this regular expression.
    ///
    /// # Errors
    /// If it is empty or too long, or no regular expression that can be compiled within the limits.
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

/// How much is looked through and shown.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits {
    /// Lines that are shown.
    pub matches: usize,
    /// Characters of the answer.
    pub chars: usize,
    /// Bytes of texts that are looked through.
    pub bytes: usize,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self { matches: 200, chars: 16_000, bytes: 64 * 1024 * 1024 }
    }
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// What to show: each file's name, and its lines behind their numbers.
    pub text: String,
    /// Lines that match, shown or not.
    pub matches: usize,
    /// Files that have some.
    pub files: usize,
}

/// A search that is given one text after the other, and holds none of them: all matches are counted, those that fit are
/// shown.
pub struct Search {
    pattern: Pattern,
    limits: SearchLimits,
    found: Found,
    shown: usize,
    /// Characters that may still be shown.
    chars: usize,
    /// Bytes that may still be looked through.
    bytes: usize,
    is_full: bool,
    /// Texts that could not be had, by why: how many, and what the first is called.
    left_out: BTreeMap<&'static str, (usize, String)>,
}

impl Search {
    /// Nothing was looked through yet.
    pub fn new(pattern: &Pattern, limits: SearchLimits) -> Self {
        // Room to say what is not shown.
        let chars = limits.chars.saturating_sub(NOTES_CHARS);
        let (pattern, found, bytes) = (pattern.clone(), Found::default(), limits.bytes);
        Self { pattern, limits, found, shown: 0, chars, bytes, is_full: false, left_out: BTreeMap::new() }
    }

    /// Whether no more is looked through.
    pub const fn is_over(&self) -> bool {
        self.bytes == 0
    }

    /// Looks through one more text; the lines of it that were wholly shown.
    pub fn look(&mut self, path: &FilePath, text: &str) -> Vec<Lines> {
        self.bytes = self.bytes.saturating_sub(text.len());
        let found = &mut self.found;
        let mut shown: Vec<Lines> = Vec::new();
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

    /// Notes that one text cannot be looked through, and why.
    pub fn leave_out(&mut self, path: &FilePath, why: &'static str) {
        self.left_out.entry(why).or_insert_with(|| (0, one_line(path.as_str(), NAME_CHARS))).0 += 1;
    }

    /// What was found; `left` texts were not looked through.
    pub fn found(self, left: usize) -> Found {
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

/// Characters that the notes about what is not shown or not looked through may take.
const NOTES_CHARS: usize = 220;

/// Characters of a name that is told there.
const NAME_CHARS: usize = 60;
