//! Reads blueprint files: YAML or JSON text to values with source positions.
//!
//! Owns the text: what it says ([`Source::value`]) and where each part of it stands. Knows nothing of what a blueprint
//! means, which is [`crate::lint`]'s, and opens no files: the text of fragments comes from a loader that the caller
//! supplies ([`resolve`]).
//!
//! One reader serves both notations, because a JSON text is YAML 1.2; but a name of more than 1,024 characters is too long
//! for it, and controls behind ASCII and noncharacters must be escaped (U+007F to U+009F, U+FEFF, U+FFFE, U+FFFF).
//!
//! It is stricter than YAML where readers disagree: only `true` and `false` are booleans, numbers are those of JSON, no key
//! occurs twice, there are no tags beside `!!str`, no merge keys, one document per file, and aliases are copied within a
//! budget. What is no number of JSON at all is passed on as text and marked, because in a budget it has a meaning to be
//! answered ([`Source::beyond_json`]).

mod departments;
mod fragments;
#[cfg(test)]
mod tests;
mod workflows;
mod yaml;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub use departments::DEPARTMENTS_MAX;
pub use fragments::{FRAGMENT_DEPTH_MAX, FRAGMENTS_MAX, Files, resolve};

use crate::lint::Diagnostic;

/// The most bytes a blueprint file may have.
pub const BYTES_MAX: usize = 1024 * 1024;

/// The deepest nesting of a blueprint file.
pub const DEPTH_MAX: usize = 64;

/// The most values (objects, arrays and scalars) of a blueprint file once its aliases are copied.
pub const VALUES_MAX: usize = 100_000;

/// The most bytes of strings and keys of a blueprint file once its aliases are copied.
pub const COPIED_BYTES_MAX: usize = 4 * BYTES_MAX;

/// A place in a source file; lines and columns from 1, columns in Unicode scalar values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// A blueprint file as read, with its fragments once they are resolved: its value and where each part of it stands.
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
    /// Shared by all sources that are parts of one.
    text: Arc<str>,
}

/// Where a value stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Index into [`Source::files`].
    file: usize,
    /// Where the value begins.
    value: Position,
    /// Where its key begins, if it is the member of an object.
    key: Option<Position>,
    /// Byte range of the scalar as it is written, quotes included.
    written: Option<(usize, usize)>,
    /// Whether it is written as a number that JSON does not have; its value is the text.
    beyond_json: bool,
}

impl Source {
    /// Reads YAML, of which JSON is a part; `name` is what findings call the file.
    ///
    /// # Errors
    /// One finding that says where and why: `yaml_syntax`, `duplicate_key`, or `too_large` for more than
    /// [`BYTES_MAX`], [`DEPTH_MAX`], [`VALUES_MAX`] or [`COPIED_BYTES_MAX`].
    pub fn read(name: &str, text: &str) -> Result<Self, Diagnostic> {
        let (value, places) = yaml::compose(text).map_err(|refusal| {
            let mut finding = Diagnostic::new(refusal.code, "", refusal.message, refusal.help);
            finding.position = refusal.position;
            finding
        })?;
        Ok(Self { files: vec![File { name: name.to_owned(), text: text.into() }], value, places })
    }

    /// A source without text, for a blueprint that was made or stored as a value; findings then have no position.
    pub fn from_value(name: &str, value: Value) -> Self {
        let files = vec![File { name: name.to_owned(), text: Arc::default() }];
        Self { files, value, places: BTreeMap::new() }
    }

    /// The file's name as given.
    pub fn name(&self) -> &str {
        self.files.first().map_or("", |file| &file.name)
    }

    /// The document.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The members of an object in the document as sources of their own, each with its JSON Pointer; they stand where they
    /// stand here.
    pub(crate) fn within(&self, pointer: &str) -> Vec<(String, Self)> {
        let members = self.value.pointer(pointer).and_then(Value::as_object);
        let source = |(name, value): (&String, &Value)| {
            let at = child(pointer, name);
            let places = self.places.range(at.clone()..).take_while(|(place, _)| place.starts_with(&at));
            let places = places.filter_map(|(place, known)| {
                let rest = place.strip_prefix(&at).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
                Some((rest.to_owned(), *known))
            });
            let places = places.collect();
            (at, Self { files: self.files.clone(), value: value.clone(), places })
        };
        members.into_iter().flatten().map(source).collect()
    }

    /// A part of the document as a source of its own, which stands where it stands here; `None` if nothing is there.
    fn part(&self, pointer: &str) -> Option<Self> {
        let value = self.value.pointer(pointer)?.clone();
        let below =
            |place: &String| place.strip_prefix(pointer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let places = self.places.iter().filter(|(place, _)| below(place));
        let places = places.map(|(place, known)| (place[pointer.len()..].to_owned(), *known)).collect();
        Some(Self { files: self.files.clone(), value, places })
    }

    /// Puts a source where a value stands. Of its files, the first `shared` are those of this one.
    fn put(&mut self, at: &str, source: Self, shared: usize) {
        let Some(value) = self.value.pointer_mut(at) else { return };
        *value = source.value;
        let first = self.files.len();
        self.files.extend(source.files.into_iter().skip(shared));
        let below = format!("{at}/");
        self.places.retain(|place, _| place != at && !place.starts_with(&below));
        for (pointer, mut place) in source.places {
            if place.file >= shared {
                place.file += first - shared;
            }
            self.places.insert(format!("{at}{pointer}"), place);
        }
    }

    /// Where a value stands, or its nearest ancestor, and in which file.
    fn stands(&self, pointer: &str) -> Option<(Place, File)> {
        let (place, _) = self.place(pointer)?;
        Some((Place { written: None, ..place }, self.files.get(place.file)?.clone()))
    }

    /// Says where a value stands that no text says: where this one does.
    fn stands_at(&mut self, pointer: &str, stands: Option<(Place, File)>) {
        let Some((mut place, file)) = stands else { return };
        place.file = self.files.iter().position(|known| known.name == file.name).unwrap_or_else(|| {
            self.files.push(file);
            self.files.len() - 1
        });
        self.places.insert(pointer.to_owned(), place);
    }

    /// Takes a member of the document out of it, with the places of what is in it; `None` if the document is no object or
    /// has no such member.
    pub fn take_member(&mut self, name: &str) -> Option<Value> {
        let taken = self.value.as_object_mut()?.remove(name)?;
        let pointer = child("", name);
        let below = format!("{pointer}/");
        self.places.retain(|place, _| *place != pointer && !place.starts_with(&below));
        Some(taken)
    }

    /// JSON Pointers of what is written as a number that JSON does not have (`.inf`, `.nan`, `1e400`). The document has
    /// the text in its place; whoever takes the document must refuse it.
    pub fn beyond_json(&self) -> impl Iterator<Item = &str> {
        self.places.iter().filter(|(_, place)| place.beyond_json).map(|(pointer, _)| pointer.as_str())
    }

    /// Where the value at a JSON Pointer stands; the nearest ancestor's place if it has none of its own.
    pub fn position(&self, pointer: &str) -> Option<Position> {
        self.place(pointer).map(|(place, _)| place.value)
    }

    /// Where the key of the member at a JSON Pointer stands; its value's place if it has no key of its own.
    pub fn key_position(&self, pointer: &str) -> Option<Position> {
        self.place(pointer).map(|(place, exact)| place.key.filter(|_| exact).unwrap_or(place.value))
    }

    /// Where byte `offset` of the string at a JSON Pointer stands, found in the text as it is written: behind quotes,
    /// in block scalars and across folded lines. The value's own place where it cannot be told.
    pub fn position_in(&self, pointer: &str, offset: usize) -> Option<Position> {
        let (place, exact) = self.place(pointer)?;
        let written = place.written.filter(|_| exact).and_then(|(start, end)| {
            let text = &self.files.get(place.file)?.text;
            let string = self.value.pointer(pointer)?.as_str()?;
            yaml::locate(text.get(start..end)?, string, offset).map(|skipped| (skipped, place.value))
        });
        Some(written.map_or(place.value, |(skipped, start)| advance(start, skipped)))
    }

    /// The name of the fragment that the value at a JSON Pointer came from; `None` if it stands in the file itself.
    pub fn fragment(&self, pointer: &str) -> Option<&str> {
        let (place, _) = self.place(pointer)?;
        (place.file > 0).then(|| self.files.get(place.file).map(|file| file.name.as_str()))?
    }

    /// The order of the places of findings: file, then position.
    pub(crate) fn order(&self, finding: &Diagnostic) -> (usize, Option<Position>) {
        let named = |name: &String| self.files.iter().position(|file| file.name == *name);
        (finding.file.as_ref().and_then(named).unwrap_or(0), finding.position)
    }

    /// The place of a value or of its nearest ancestor, and whether it is its own.
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

/// The position behind some text that begins at `start`.
fn advance(start: Position, text: &str) -> Position {
    let (mut at, mut rest) = (start, text.chars());
    while let Some(c) = rest.next() {
        at = match c {
            '\n' => Position { line: at.line.saturating_add(1), column: 1 },
            // The first half of the end of a line, not a character of it.
            '\r' if matches!(rest.as_str().bytes().next(), None | Some(b'\n')) => at,
            _ => Position { line: at.line, column: at.column.saturating_add(1) },
        };
    }
    at
}

/// Appends a token to a JSON Pointer (RFC 6901, section 3).
pub(crate) fn push_token(pointer: &mut String, token: &str) {
    pointer.push('/');
    for c in token.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

/// The JSON Pointer `pointer` with one more token.
pub(crate) fn child(pointer: &str, token: &str) -> String {
    let mut pointer = pointer.to_owned();
    push_token(&mut pointer, token);
    pointer
}
