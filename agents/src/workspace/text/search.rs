//! Finding lines in many texts, in time that grows with the texts and not with the pattern.

use std::fmt::Write as _;

use patchboard_kernel::files::{FilePath, Lines, union};
use regex::{Regex, RegexBuilder};

use super::edit::{EditCode, EditError};
use super::excerpt::push_cut;
use super::hunks::number;
use crate::one_line;

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

/// How much is shown.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits {
    /// Lines that are shown.
    pub matches: usize,
    /// Characters of the answer.
    pub chars: usize,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self { matches: 200, chars: 16_000 }
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
    /// The lines that were wholly shown.
    pub shown: Vec<(FilePath, Vec<Lines>)>,
}

/// Looks through all texts; all matches are counted, those that fit are shown.
pub fn search<'a>(
    pattern: &Pattern,
    texts: impl IntoIterator<Item = (&'a FilePath, &'a str)>,
    limits: SearchLimits,
) -> Found {
    let mut found = Found::default();
    let mut shown_matches = 0;
    // Room to say what is not shown.
    let mut left = limits.chars.saturating_sub(NOTE_CHARS);
    let mut is_full = false;
    for (path, text) in texts {
        let mut shown: Vec<Lines> = Vec::new();
        let mut has_name = false;
        let before = found.matches;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| pattern.0.is_match(line)) {
            found.matches += 1;
            if is_full {
                continue;
            }
            let mut entry = if has_name { String::new() } else { format!("{path}\n") };
            write!(entry, "{:>6}\t", at + 1).expect("a string takes everything");
            let cut = push_cut(&mut entry, line);
            entry.push('\n');
            let chars = entry.chars().count();
            is_full = shown_matches >= limits.matches || chars > left;
            if is_full {
                continue;
            }
            left -= chars;
            shown_matches += 1;
            has_name = true;
            found.text.push_str(&entry);
            if !cut {
                shown.push((number(at + 1), number(at + 1)));
            }
        }
        found.files += usize::from(found.matches > before);
        if !shown.is_empty() {
            found.shown.push((path.clone(), union(shown)));
        }
    }
    let note = match found.matches - shown_matches {
        0 if found.matches == 0 => "No line matches.\n".to_owned(),
        0 => String::new(),
        left_out => format!(
            "[{left_out} of {} matching lines are not shown; narrow the pattern or the folder]\n",
            found.matches
        ),
    };
    if note.len() <= limits.chars {
        found.text.push_str(&note);
    }
    found
}

/// Characters that the note about what is not shown may take.
const NOTE_CHARS: usize = 120;
