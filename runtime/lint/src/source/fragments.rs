//! Includes fragments (`use:`) and blueprints of nested boards (`boards:`) that are named by files into the blueprint
//! that names them, and lets extensions expand their members ([`Extension::expand`]).
//!
//! A fragment adds workers, models, rules, invariants and schema definitions (`state.schema.$defs`). Only the including
//! file defines the document, the end of the task and the limits. There are no overrides: a duplicate name is an error.
//! Fragments may name further fragments. Each name is passed to the loader as written, so all are relative to one
//! directory, and a fragment named twice is included once.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{File, Place, Source, child};
use crate::diagnostic::Diagnostic;
use crate::extension::Extension;

/// Maximum nesting depth of boards.
pub(crate) const BOARD_DEPTH_MAX: usize = 3;

/// Maximum number of nested boards in one blueprint, at all depths.
pub(crate) const BOARDS_MAX: usize = 64;

/// Builds the finding that a blueprint has too many nested boards, at the first excess one.
pub(crate) fn too_many_boards(source: &Source, at: &str) -> Diagnostic {
    let message = format!("more than {BOARDS_MAX} boards inside of one");
    Diagnostic::at(source, "bad_board", at, message, "Put what some of them do into one.")
}

/// Loader for the files that a blueprint names. Must reject files outside the blueprint's own directory.
pub trait FileLoader {
    /// Returns the text of a file. An error is a message.
    fn text(&mut self, name: &str) -> Result<String, String>;

    /// Returns the names of the folders in a directory, in any order. An error is a message.
    fn folders(&mut self, name: &str) -> Result<Vec<String>, String>;
}

/// Loads single files only; cannot list directories.
impl<F: FnMut(&str) -> Result<String, String>> FileLoader for F {
    fn text(&mut self, name: &str) -> Result<String, String> {
        self(name)
    }

    fn folders(&mut self, name: &str) -> Result<Vec<String>, String> {
        // A loader that rejects every file gives its own reason.
        self(name)?;
        Err("no directory can be looked into here".to_owned())
    }
}

/// Maximum depth of nested fragments.
pub const FRAGMENT_DEPTH_MAX: usize = 8;

/// Maximum number of fragments in one blueprint.
pub const FRAGMENTS_MAX: usize = 32;

/// Resolves the references of a blueprint: replaces `use`, file names in `boards` and the members of extensions by the
/// contents that they name.
///
/// Rules and invariants of fragments are placed after those of the including file, in the order of `use`. The result's
/// `use` is empty. A malformed `use` is left for the lint. Fails with the first of `fragment_unreadable`, a rejection
/// by [`Source::read`], `bad_fragment`, `fragment_clash`, `fragment_cycle` and `fragment_limit`, or all findings of an
/// extension in one blueprint. Findings inside a fragment name its file.
pub fn resolve(
    mut source: Source,
    files: &mut dyn FileLoader,
    extensions: &[&dyn Extension],
) -> Result<Source, Vec<Diagnostic>> {
    let stack = vec![source.name().to_owned()];
    resolve_within(&mut source, files, &stack, &mut Inside { depth: 0, left: BOARDS_MAX, extensions })?;
    Ok(source)
}

/// Nesting of the blueprint that is read.
struct Inside<'e> {
    /// Number of enclosing blueprints.
    depth: usize,
    /// Number of further nested blueprints allowed.
    left: usize,
    extensions: &'e [&'e dyn Extension],
}

impl Inside<'_> {
    /// Enters one more nested blueprint, at a pointer.
    fn enter(&mut self, source: &Source, at: &str) -> Result<(), Diagnostic> {
        self.left = self.left.checked_sub(1).ok_or_else(|| too_many_boards(source, at))?;
        self.depth += 1;
        Ok(())
    }
}

/// Like [`resolve`], for the blueprint in the innermost of these files.
fn resolve_within(
    source: &mut Source,
    files: &mut dyn FileLoader,
    stack: &[String],
    inside: &mut Inside<'_>,
) -> Result<(), Vec<Diagnostic>> {
    let one = |finding| vec![finding];
    // Findings in the source itself have no file name yet; the source may be a file that another names.
    let file = stack.last().filter(|_| stack.len() > 1);
    if let Some(mut uses) = uses_of(source) {
        for used in &mut uses {
            used.finding.file = used.finding.file.take().or_else(|| file.cloned());
        }
        let mut inclusion = Inclusion { files: &mut *files, seen: BTreeSet::new(), stack: stack.to_vec() };
        inclusion.include(source, uses).map_err(one)?;
        if let Some(value) = source.value.get_mut("use") {
            *value = Value::Array(Vec::new());
        }
    }
    for (at, mut board) in source.within("/boards") {
        let placed = |finding: Diagnostic| vec![finding.or_in_file(file)];
        inside.enter(source, &at).map_err(placed)?;
        let Some(name) = board.value.as_str().map(str::to_owned) else {
            let shared = board.files.len();
            resolve_within(&mut board, files, stack, inside)?;
            inside.depth -= 1;
            source.put(&at, board, shared);
            continue;
        };
        if inside.depth > BOARD_DEPTH_MAX {
            let message = format!("boards are nested more than {BOARD_DEPTH_MAX} deep");
            let help = "Let fewer boards make boards of their own.";
            return Err(placed(Diagnostic::at(source, "bad_board", &at, message, help)));
        }
        let finding = Diagnostic::at(source, "unresolved_fragment", &at, "", "").or_in_file(file);
        let used = Use { name, finding };
        let mut board = used.read(files, stack).map_err(one)?;
        let stack: Vec<String> = stack.iter().chain([&used.name]).cloned().collect();
        resolve_within(&mut board, files, &stack, inside)?;
        inside.depth -= 1;
        source.put(&at, board, 0);
    }
    inside.extensions.iter().try_for_each(|extension| extension.expand(source, files, file))
}

struct Inclusion<'a> {
    files: &'a mut dyn FileLoader,
    seen: BTreeSet<String>,
    /// The files that are being included, outermost first.
    stack: Vec<String>,
}

/// A fragment's name, and a finding at its position.
struct Use {
    name: String,
    finding: Diagnostic,
}

impl Use {
    /// Reads the file of this name. `stack` lists the files that include it, outermost first.
    fn read(&self, files: &mut dyn FileLoader, stack: &[String]) -> Result<Source, Diagnostic> {
        let name = &self.name;
        if stack.contains(name) {
            let message = format!("`{name}` includes itself: {} → {name}", stack.join(" → "));
            return Err(self.refuse("fragment_cycle", message, "Remove one of these inclusions."));
        }
        if stack.len() > FRAGMENT_DEPTH_MAX {
            let message = format!("files are nested deeper than {FRAGMENT_DEPTH_MAX}");
            return Err(self.refuse("fragment_limit", message, "Put the contents of some files together."));
        }
        let text = files.text(name).map_err(|reason| {
            let message = format!("the fragment `{name}` cannot be read: {reason}");
            let help = "Fragments are named relative to the blueprint's own directory and stay below it.";
            self.refuse("fragment_unreadable", message, help)
        })?;
        Source::read(name, &text).map_err(|finding| finding.in_file(name))
    }

    fn refuse(&self, code: &'static str, message: String, help: &str) -> Diagnostic {
        let place = self.finding.clone();
        Diagnostic {
            position: place.position,
            file: place.file,
            ..Diagnostic::new(code, &place.pointer, message, help)
        }
    }
}

/// Returns the names in `use`; `None` if it is missing or not a list of names.
fn uses_of(source: &Source) -> Option<Vec<Use>> {
    let names = source.value.get("use")?.as_array()?;
    let one = |(index, name): (usize, &Value)| {
        let finding = Diagnostic::at(source, "unresolved_fragment", &format!("/use/{index}"), "", "");
        Some(Use { name: name.as_str()?.to_owned(), finding })
    };
    names.iter().enumerate().map(one).collect()
}

impl Inclusion<'_> {
    fn include(&mut self, into: &mut Source, uses: Vec<Use>) -> Result<(), Diagnostic> {
        for used in uses {
            let name = &used.name;
            if self.seen.contains(name) && !self.stack.contains(name) {
                continue;
            }
            if self.seen.len() >= FRAGMENTS_MAX {
                let message = format!("more than {FRAGMENTS_MAX} fragments");
                return Err(used.refuse("fragment_limit", message, "Put the contents of some fragments together."));
            }
            let fragment = used.read(self.files, &self.stack)?;
            self.seen.insert(name.clone());
            let further = uses_of(&fragment).unwrap_or_default();
            merge(into, fragment)?;
            self.stack.push(name.clone());
            let further = further.into_iter().map(|mut used| {
                used.finding.file = Some(name.clone());
                used
            });
            self.include(into, further.collect())?;
            self.stack.pop();
        }
        Ok(())
    }
}

fn merge(into: &mut Source, mut fragment: Source) -> Result<(), Diagnostic> {
    let value = std::mem::take(&mut fragment.value);
    let moves = Moves { file: into.files.len(), fragment: &fragment };
    let Value::Object(members) = value else {
        return Err(moves.bad("", "a fragment is a mapping", FORM));
    };
    let text = fragment.files.first().map_or_else(Arc::default, |file| Arc::clone(&file.text));
    into.files.push(File { name: fragment.name().to_owned(), text });
    for (key, value) in members {
        match key.as_str() {
            "use" => {
                let is_list = value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
                if !is_list {
                    return Err(moves.bad("/use", "`use` is a list of file names", FORM));
                }
            }
            "workers" | "models" => moves.members(into, &format!("/{key}"), value)?,
            "rules" | "invariants" => moves.elements(into, &key, value)?,
            "state" => moves.definitions(into, value)?,
            "workflow" => moves.only(into, "workflow", value)?,
            _ => return Err(moves.bad(&child("", &key), &format!("a fragment cannot say `{key}`"), FORM)),
        }
    }
    Ok(())
}

const FORM: &str =
    "A fragment has `workers`, `models`, `rules`, `invariants`, `workflow`, `state.schema.$defs` and `use`.";

/// Context for merging one fragment's values and positions.
struct Moves<'a> {
    file: usize,
    fragment: &'a Source,
}

impl Moves<'_> {
    fn bad(&self, pointer: &str, message: &str, help: &str) -> Diagnostic {
        let finding = Diagnostic::at(self.fragment, "bad_fragment", pointer, message, help);
        finding.at_key(self.fragment).in_file(self.fragment.name())
    }

    /// Adds the members of an object to the object at the same pointer.
    fn members(&self, into: &mut Source, pointer: &str, value: Value) -> Result<(), Diagnostic> {
        let Value::Object(members) = value else {
            return Err(self.bad(pointer, &format!("`{pointer}` is a mapping"), FORM));
        };
        for (name, value) in members {
            let at = child(pointer, &name);
            let Some(target) = object_at(&mut into.value, pointer) else { return Ok(()) };
            if target.contains_key(&name) {
                return Err(self.clash(into, &at, &at, &name));
            }
            target.insert(name, value);
            self.place(into, &at, &at);
        }
        Ok(())
    }

    /// Appends the elements of an array; each `name` must be new.
    fn elements(&self, into: &mut Source, key: &str, value: Value) -> Result<(), Diagnostic> {
        let Value::Array(elements) = value else {
            return Err(self.bad(&child("", key), &format!("`{key}` is a list"), FORM));
        };
        for (index, value) in elements.into_iter().enumerate() {
            let from = format!("/{key}/{index}");
            let Some(root) = into.value.as_object_mut() else { return Ok(()) };
            let list = root.entry(key).or_insert_with(|| Value::Array(Vec::new()));
            let Some(list) = list.as_array_mut() else { return Ok(()) };
            let name = value.get("name").and_then(Value::as_str).map(str::to_owned);
            let same = |other: &Value| name.is_some() && other.get("name").and_then(Value::as_str) == name.as_deref();
            if let Some(other) = list.iter().position(same) {
                return Err(self.clash(into, &from, &format!("/{key}/{other}"), &name.unwrap_or_default()));
            }
            let to = format!("/{key}/{}", list.len());
            list.push(value);
            self.place(into, &from, &to);
        }
        Ok(())
    }

    /// Adds a member that may occur only once.
    fn only(&self, into: &mut Source, key: &str, value: Value) -> Result<(), Diagnostic> {
        let at = child("", key);
        let Some(root) = into.value.as_object_mut() else { return Ok(()) };
        if root.contains_key(key) {
            return Err(self.clash(into, &at, &at, key));
        }
        root.insert(key.to_owned(), value);
        self.place(into, &at, &at);
        Ok(())
    }

    /// Adds schema definitions, the only part of `state` that a fragment may have.
    fn definitions(&self, into: &mut Source, state: Value) -> Result<(), Diagnostic> {
        let only = |value: Value, name: &str| match value {
            Value::Object(mut members) if members.len() == 1 => members.remove(name),
            _ => None,
        };
        let definitions = only(state, "schema").and_then(|schema| only(schema, "$defs"));
        let Some(definitions) = definitions else {
            return Err(self.bad("/state", "of `state`, a fragment can only say `schema.$defs`", FORM));
        };
        self.members(into, "/state/schema/$defs", definitions)
    }

    fn clash(&self, into: &Source, from: &str, other: &str, name: &str) -> Diagnostic {
        let line = into.key_position(other).map_or_else(String::new, |position| format!(", line {}", position.line));
        let file = into.fragment(other).unwrap_or(into.name());
        let message = format!("`{name}` is there already ({file}{line})");
        let help = "Rename one of the two; a fragment overrides nothing.";
        let finding = Diagnostic::at(self.fragment, "fragment_clash", from, message, help);
        finding.at_key(self.fragment).in_file(self.fragment.name())
    }

    /// Copies the positions of a value that moved from `from` to `to`.
    fn place(&self, into: &mut Source, from: &str, to: &str) {
        for (rest, place) in self.fragment.places_of(from) {
            into.places.insert(format!("{to}{rest}"), Place { file: self.file, ..place });
        }
    }
}

/// Returns the object at a pointer, and creates missing ones; `None` if another value is in the way.
pub fn object_at<'a>(root: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    let mut at = root.as_object_mut()?;
    for token in pointer.split('/').skip(1) {
        at = at.entry(token).or_insert_with(|| Value::Object(Map::new())).as_object_mut()?;
    }
    Some(at)
}
