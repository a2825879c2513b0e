//! Reads blueprint files: parses YAML or JSON text into values with source positions.
//!
//! Owns the text: its content ([`Source::value`]) and the position of each part. this crate interprets the
//! content. Opens no files: the text of fragments comes from a loader that the caller supplies ([`resolve`]).
//!
//! One parser reads both notations, because JSON is a subset of YAML 1.2, with two exceptions. A name of more than
//! 1,024 characters is too long for it, and U+007F to U+009F, U+FEFF, U+FFFE and U+FFFF must be escaped.
//!
//! Parsing is stricter than YAML where parsers disagree. Only `true` and `false` are booleans, numbers are those of
//! JSON, and keys are unique. Tags other than `!!str` and merge keys are rejected. A file is one document, and aliases
//! are copied within a budget. A number that JSON cannot represent is kept as marked text, because in a budget it needs
//! its own error message ([`Source::beyond_json`]).

mod fragments;
#[cfg(test)]
mod tests;
mod yaml;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub(crate) use fragments::{BOARD_DEPTH_MAX, BOARDS_MAX, too_many_boards};
pub use fragments::{FRAGMENT_DEPTH_MAX, FRAGMENTS_MAX, FileLoader, object_at, resolve};

use patchboard_kernel::expressions::push_token;

use crate::diagnostic::{Diagnostic, Position};

/// Maximum bytes of a blueprint file.
pub const BYTES_MAX: usize = 1024 * 1024;

/// Maximum nesting of a blueprint file.
pub const DEPTH_MAX: usize = 64;

/// Maximum values (objects, arrays and scalars) of a blueprint file after its aliases are copied.
pub const VALUES_MAX: usize = 100_000;

/// Maximum bytes of strings and keys of a blueprint file after its aliases are copied.
pub const COPIED_BYTES_MAX: usize = 4 * BYTES_MAX;

impl Diagnostic {
    /// Creates a finding about the value at a place of a source.
    pub fn at(
        source: &Source,
        code: &'static str,
        pointer: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let finding = Self::new(code, pointer, message, help);
        Self { position: source.position(pointer), file: source.fragment(pointer).map(str::to_owned), ..finding }
    }

    /// Moves the finding from the value to its key.
    #[must_use]
    pub fn at_key(self, source: &Source) -> Self {
        Self { position: source.key_position(&self.pointer), ..self }
    }
}

/// A parsed blueprint file, with its fragments once they are resolved: its value and the source position of each part.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file itself, then its fragments.
    files: Vec<File>,
    value: Value,
    /// By JSON Pointer.
    places: BTreeMap<String, Place>,
}

#[derive(Clone, Debug)]
struct File {
    name: String,
    /// Shared by all sources that are parts of one file.
    text: Arc<str>,
}

/// Source position of a value.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Index into [`Source::files`].
    file: usize,
    value: Position,
    /// Beginning of its key, if it is the member of an object.
    key: Option<Position>,
    /// Byte range of the scalar as it is written, quotes included.
    written: Option<(usize, usize)>,
    /// True if it is written as a number that JSON cannot represent; its value is the text.
    beyond_json: bool,
}

/// Position of a value and its file, for values that are generated from it.
#[derive(Clone, Debug)]
pub struct SourceLocation {
    place: Place,
    file: File,
}

impl Source {
    /// Parses YAML, which includes JSON; `name` identifies the file in findings. Fails with one finding with a
    /// position: `yaml_syntax`, `duplicate_key`, or `too_large` for more than [`BYTES_MAX`], [`DEPTH_MAX`],
    /// [`VALUES_MAX`] or [`COPIED_BYTES_MAX`].
    pub fn read(name: &str, text: &str) -> Result<Self, Diagnostic> {
        let (value, places) = yaml::compose(text).map_err(|refusal| {
            let mut finding = Diagnostic::new(refusal.code, "", refusal.message, refusal.help);
            finding.position = refusal.position;
            finding
        })?;
        Ok(Self { files: vec![File { name: name.to_owned(), text: text.into() }], value, places })
    }

    /// Creates a source without text, for a blueprint that was built or stored as a value; findings then have no
    /// position.
    pub fn from_value(name: &str, value: Value) -> Self {
        let files = vec![File { name: name.to_owned(), text: Arc::default() }];
        Self { files, value, places: BTreeMap::new() }
    }

    /// Returns the file's name as given.
    pub fn name(&self) -> &str {
        self.files.first().map_or("", |file| &file.name)
    }

    /// Returns the document.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the document, to add generated values; [`Source::set_location`] gives them positions.
    pub fn value_mut(&mut self) -> &mut Value {
        &mut self.value
    }

    /// Returns the members of an object in the document as separate sources, each with its JSON Pointer. They keep
    /// their positions.
    pub(crate) fn within(&self, pointer: &str) -> Vec<(String, Self)> {
        let members = self.value.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
        let places = members.map(|(name, _)| child(pointer, name));
        places.filter_map(|at| self.part(&at).map(|part| (at, part))).collect()
    }

    /// Returns a part of the document as a separate source with its positions; `None` if it is missing.
    pub fn part(&self, pointer: &str) -> Option<Self> {
        let value = self.value.pointer(pointer)?.clone();
        let places = self.places_of(pointer).map(|(rest, place)| (rest.to_owned(), place)).collect();
        Some(Self { files: self.files.clone(), value, places })
    }

    /// Returns the positions of a value and its parts, by their pointers from it.
    fn places_of<'s>(&'s self, pointer: &'s str) -> impl Iterator<Item = (&'s str, Place)> {
        let places = self.places.range(pointer.to_owned()..).map_while(move |(place, known)| {
            let rest = place.strip_prefix(pointer)?;
            Some((rest, *known))
        });
        places.filter(|(rest, _)| rest.is_empty() || rest.starts_with('/'))
    }

    /// Removes the positions of a value and its parts.
    fn forget_places(&mut self, pointer: &str) {
        let below = format!("{pointer}/");
        self.places.retain(|place, _| place != pointer && !place.starts_with(&below));
    }

    /// Replaces a value by a source. The first `shared` of its files are those of this one.
    fn put(&mut self, at: &str, source: Self, shared: usize) {
        let Some(value) = self.value.pointer_mut(at) else { return };
        *value = source.value;
        let first = self.files.len();
        self.files.extend(source.files.into_iter().skip(shared));
        self.forget_places(at);
        for (pointer, mut place) in source.places {
            if place.file >= shared {
                place.file += first - shared;
            }
            self.places.insert(format!("{at}{pointer}"), place);
        }
    }

    /// Returns the position and file of a value, or of its nearest ancestor.
    pub fn location(&self, pointer: &str) -> Option<SourceLocation> {
        let (place, _) = self.place(pointer)?;
        Some(SourceLocation { place: Place { written: None, ..place }, file: self.files.get(place.file)?.clone() })
    }

    /// Sets the position of a value that is generated, not written.
    pub fn set_location(&mut self, pointer: &str, location: Option<SourceLocation>) {
        let Some(SourceLocation { mut place, file }) = location else { return };
        place.file = self.files.iter().position(|known| known.name == file.name).unwrap_or_else(|| {
            self.files.push(file);
            self.files.len() - 1
        });
        self.places.insert(pointer.to_owned(), place);
    }

    /// Removes a member from the document, with the positions of its parts; `None` if the document is not an object or
    /// has no such member.
    pub fn take_member(&mut self, name: &str) -> Option<Value> {
        let taken = self.value.as_object_mut()?.remove(name)?;
        self.forget_places(&child("", name));
        Some(taken)
    }

    /// Returns JSON Pointers of numbers that JSON cannot represent (`.inf`, `.nan`, `1e400`). The document has their
    /// text instead; a caller must reject such a document.
    pub fn beyond_json(&self) -> impl Iterator<Item = &str> {
        self.places.iter().filter(|(_, place)| place.beyond_json).map(|(pointer, _)| pointer.as_str())
    }

    /// Returns the position of the value at a JSON Pointer, or of its nearest ancestor with a position.
    pub fn position(&self, pointer: &str) -> Option<Position> {
        self.place(pointer).map(|(place, _)| place.value)
    }

    /// Returns the position of the key at a JSON Pointer, or of its value if it has no key.
    pub fn key_position(&self, pointer: &str) -> Option<Position> {
        self.place(pointer).map(|(place, exact)| place.key.filter(|_| exact).unwrap_or(place.value))
    }

    /// Returns the position of byte `offset` in the string at a JSON Pointer. Accounts for quotes, block scalars and
    /// folded lines. Falls back to the position of the value.
    pub fn position_in(&self, pointer: &str, offset: usize) -> Option<Position> {
        let (place, exact) = self.place(pointer)?;
        let written = place.written.filter(|_| exact).and_then(|(start, end)| {
            let text = &self.files.get(place.file)?.text;
            let string = self.value.pointer(pointer)?.as_str()?;
            yaml::locate(text.get(start..end)?, string, offset).map(|skipped| (skipped, place.value))
        });
        Some(written.map_or(place.value, |(skipped, start)| advance(start, skipped)))
    }

    /// Returns the name of the fragment that has the value at a JSON Pointer; `None` if the file itself has it.
    pub fn fragment(&self, pointer: &str) -> Option<&str> {
        let (place, _) = self.place(pointer)?;
        (place.file > 0).then(|| self.files.get(place.file).map(|file| file.name.as_str()))?
    }

    /// Returns true if the blueprint's own text has the value at a JSON Pointer: neither a fragment nor an expansion.
    pub(crate) fn is_own(&self, pointer: &str) -> bool {
        let file = self.place("/blueprint").map(|(place, _)| place.file);
        self.place(pointer).is_some_and(|(place, exact)| exact && Some(place.file) == file)
    }

    /// Returns the sort key of a finding: file, then position.
    pub(crate) fn order(&self, finding: &Diagnostic) -> (usize, Option<Position>) {
        let named = |name: &String| self.files.iter().position(|file| file.name == *name);
        (finding.file.as_ref().and_then(named).unwrap_or(0), finding.position)
    }

    /// Returns the position of a value or of its nearest ancestor, and true if it is the value's own.
    fn place(&self, pointer: &str) -> Option<(Place, bool)> {
        let mut at = pointer;
        loop {
            if let Some(place) = self.places.get(at) {
                return Some((*place, at.len() == pointer.len()));
            }
            at = &at[..at.rfind('/')?];
        }
    }
}

/// Returns the position after some text that begins at `start`.
fn advance(start: Position, text: &str) -> Position {
    let (mut at, mut rest) = (start, text.chars());
    while let Some(c) = rest.next() {
        at = match c {
            '\n' => Position { line: at.line.saturating_add(1), column: 1 },
            // The `\r` of a line end is not a character.
            '\r' if matches!(rest.as_str().bytes().next(), None | Some(b'\n')) => at,
            _ => Position { line: at.line, column: at.column.saturating_add(1) },
        };
    }
    at
}

/// Returns `pointer` with one more token.
pub fn child(pointer: &str, token: &str) -> String {
    let mut pointer = pointer.to_owned();
    push_token(&mut pointer, token);
    pointer
}
