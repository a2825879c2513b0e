//! An exercise: a library whose functions have lost their bodies, and what each of them was. `blank.py` makes it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A library to be restored.
#[derive(Deserialize, Debug)]
pub(crate) struct Exercise {
    /// Its name.
    pub(crate) library: String,
    /// Where in its directory the package is found.
    pub(crate) path: String,
    /// What has to be restored.
    pub(crate) pieces: Vec<Piece>,
    /// What pieces refer to.
    pub(crate) definitions: Vec<Definition>,
    /// Lines that heads of files have lost.
    pub(crate) imports: Vec<Import>,
    /// Functions that are not there yet, which several pieces need.
    pub(crate) helpers: Vec<Helper>,
    /// Where imports and helpers go, by file.
    pub(crate) anchors: BTreeMap<String, Anchor>,
    /// Lines of each file.
    pub(crate) sizes: BTreeMap<String, u32>,
    /// What gets another name meanwhile.
    pub(crate) renames: Vec<Rename>,
}

impl Exercise {
    /// A text with all new names.
    pub(crate) fn renamed(&self, text: &str) -> String {
        self.renames.iter().fold(text.to_owned(), |text, rename| rename.apply(&text))
    }

    /// What a file of the library may be called in the end.
    pub(crate) fn names_of<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let files = self.renames.iter().filter_map(|rename| rename.file.as_ref());
        std::iter::once(path).chain(files.filter(move |(old, _)| old == path).map(|(_, new)| new.as_str()))
    }
}

/// The body of a function.
#[derive(Deserialize, Debug)]
pub(crate) struct Piece {
    /// Whose.
    pub(crate) name: String,
    /// In which file.
    pub(crate) path: String,
    /// The line that stands in its place, the only one of its kind.
    pub(crate) stub: String,
    /// The first line of its function, before anybody has edited anything.
    pub(crate) from: u32,
    /// Where the stub is, then.
    pub(crate) at: u32,
    /// What it was; where it uses a helper, for each variant of that.
    pub(crate) bodies: Vec<String>,
    /// The helper it uses.
    pub(crate) helper: Option<usize>,
    /// How long it is.
    pub(crate) lines: u32,
    /// Imports it needs.
    pub(crate) imports: Vec<usize>,
    /// Definitions it refers to.
    pub(crate) needs: Vec<usize>,
}

/// Where a name is defined, before anybody has edited anything.
#[derive(Deserialize, Debug)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) path: String,
    /// How its first line begins.
    pub(crate) head: String,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// A line that the head of a file needs.
#[derive(Deserialize, Debug)]
pub(crate) struct Import {
    pub(crate) statement: String,
}

/// A function that several engineers need, and that each of them would write in another way.
#[derive(Deserialize, Debug)]
pub(crate) struct Helper {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) definitions: Vec<String>,
}

/// A line of the head of a file that is there only once.
#[derive(Deserialize, Debug)]
pub(crate) struct Anchor {
    pub(crate) at: u32,
    pub(crate) text: String,
    /// What is added goes before it, not behind.
    pub(crate) before: bool,
}

/// A symbol that gets another name; or a module, and its file with it.
#[derive(Deserialize, Debug)]
pub(crate) struct Rename {
    pub(crate) old: String,
    pub(crate) new: String,
    pub(crate) file: Option<(String, String)>,
}

impl Rename {
    /// A text with the new name.
    pub(crate) fn apply(&self, text: &str) -> String {
        replaced(text, &self.old, &self.new)
    }
}

/// Whether a text has a word.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    places(text, word).next().is_some()
}

/// A text in which a word became another.
fn replaced(text: &str, old: &str, new: &str) -> String {
    let mut made = String::with_capacity(text.len());
    let mut from = 0;
    for at in places(text, old) {
        made.push_str(&text[from..at]);
        made.push_str(new);
        from = at + old.len();
    }
    made.push_str(&text[from..]);
    made
}

/// Where a word is.
fn places<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let is_begun = text[..*at].chars().next_back().is_some_and(is_part);
        let goes_on = text[at + word.len()..].chars().next().is_some_and(is_part);
        !is_begun && !goes_on
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_word_and_no_part_of_one() {
        let rename = Rename { old: "_wrapper".into(), new: "_make".into(), file: None };
        let text = "from a import _wrapper\n_wrapper(x_wrapper, _wrapper2)\n\"_wrapper\"";
        assert_eq!(rename.apply(text), "from a import _make\n_make(x_wrapper, _wrapper2)\n\"_make\"");
        assert!(has_word(text, "_wrapper") && !has_word("x_wrapper", "_wrapper"));
    }
}
