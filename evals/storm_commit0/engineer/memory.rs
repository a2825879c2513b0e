//! Engineer's knowledge of the files, learned from the tool's results.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::exercise::{Exercise, has_word};

/// Engineer's knowledge of the files, from views.
#[derive(Default)]
pub(super) struct Memory {
    /// Numbered lines as last shown.
    pub(super) lines: BTreeMap<String, BTreeMap<u32, String>>,
    /// Files with all lines known.
    pub(super) whole: BTreeSet<String>,
    /// Lines known to be in a file.
    pub(super) present: BTreeSet<(String, String)>,
    /// Renames seen to be done.
    pub(super) renamed: BTreeSet<usize>,
    /// Renamed files, by old name.
    pub(super) moved: BTreeMap<String, String>,
    /// Variant of each helper that has been added.
    pub(super) variants: BTreeMap<usize, usize>,
}

impl Memory {
    /// Drops the lines of a file.
    pub(super) fn forget(&mut self, path: &str) {
        self.lines.remove(path);
        self.whole.remove(path);
    }

    /// Stores numbered lines of a file.
    pub(super) fn learn_shown(&mut self, exercise: &Exercise, path: &str, content: &str, is_whole: bool) {
        self.learn_words(exercise, content);
        let shown = numbered(content);
        self.present.extend(shown.values().map(|line| (path.to_owned(), line.clone())));
        if is_whole {
            self.whole.insert(path.to_owned());
            self.lines.insert(path.to_owned(), shown);
        } else if !self.whole.contains(path) {
            self.lines.entry(path.to_owned()).or_default().extend(shown);
        }
    }

    /// Learns the current state of a file from its part of a rejection. Returns true if the part includes content.
    pub(super) fn learn_part(&mut self, exercise: &Exercise, path: &str, part: &Value) -> bool {
        self.forget(path);
        for line in part["diff"].as_str().unwrap_or_default().lines() {
            let Some(text) = line.strip_prefix(['+', ' ']) else { continue };
            self.learn_words(exercise, text);
            self.present.insert((path.to_owned(), text.to_owned()));
        }
        let Some(content) = part["content"].as_str() else { return false };
        // Only complete content can be written back; a diff or an excerpt cannot.
        let is_whole = part["is_whole"] == true && part["shown"] == part["known"] && !content.contains("\n[");
        self.learn_shown(exercise, path, content, is_whole);
        true
    }

    /// Learns the new symbol name and the helpers from a text.
    pub(super) fn learn_words(&mut self, exercise: &Exercise, text: &str) {
        let renamed = exercise.renames.iter().enumerate().filter(|(_, rename)| has_word(text, &rename.new));
        self.renamed.extend(renamed.map(|(number, _)| number));
        for (number, helper) in exercise.helpers.iter().enumerate() {
            let head = format!("def {}(", helper.name);
            let Some(line) = text.lines().find(|line| line.contains(&head)) else { continue };
            let is_it = |definition: &String| {
                let first = definition.lines().next().unwrap_or_default();
                line.contains(first) || line.contains(&exercise.renamed(first))
            };
            if let Some(variant) = helper.definitions.iter().position(is_it) {
                self.variants.insert(number, variant);
            }
        }
    }
}

/// Parses numbered lines.
pub(super) fn numbered(shown: &str) -> BTreeMap<u32, String> {
    let numbered = shown.lines().filter_map(|line| {
        let (number, text) = line.split_once('\t')?;
        Some((number.trim().parse().ok()?, text.to_owned()))
    });
    numbered.collect()
}
