//! Includes blueprint fragments (`use:`) into the blueprint that names them, the blueprints of boards inside (`boards:`)
//! that are named by their files, departments ([`super::departments`]) and workflows ([`super::workflows`]).
//!
//! A fragment brings workers, models, rules, invariants and schema definitions (`state.schema.$defs`); what the document
//! looks like, when the task is finished and what it may cost is said by the including file alone. Nothing overrides
//! anything: a name that is there twice is an error. Fragments may name further fragments; every name is handed to the
//! loader as it is written, so that all are relative to the same place, and a fragment named twice is included once.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{File, Source, child, departments, workflows};
use crate::lint::{BOARDS_MAX, DEPTH_MAX, Diagnostic, too_many};

/// Who opens what a blueprint names. What is not below the blueprint's own directory must be refused.
pub trait Files {
    /// The text of a file.
    ///
    /// # Errors
    /// Why it cannot be had.
    fn text(&mut self, name: &str) -> Result<String, String>;

    /// The names of the folders in a directory, in any order.
    ///
    /// # Errors
    /// Why they cannot be had.
    fn folders(&mut self, name: &str) -> Result<Vec<String>, String>;
}

/// Texts alone: no directory can be looked into.
impl<F: FnMut(&str) -> Result<String, String>> Files for F {
    fn text(&mut self, name: &str) -> Result<String, String> {
        self(name)
    }

    fn folders(&mut self, name: &str) -> Result<Vec<String>, String> {
        // Who refuses every file says why.
        self(name)?;
        Err("no directory can be looked into here".to_owned())
    }
}

/// How deep fragments may include fragments.
pub const FRAGMENT_DEPTH_MAX: usize = 8;

/// How many fragments one blueprint may have.
pub const FRAGMENTS_MAX: usize = 32;

/// Replaces `use` by what the fragments say, and the names of files in `boards` by what these say; the folders in `departments` by what their manifests say; `workflow` by rules; `files` gives the texts, or says why it cannot.
///
/// Rules and invariants of fragments come after those of the including file, in the order of `use`. The result's `use`
/// is empty. A `use` of the wrong form is left for the lint.
///
/// # Errors
/// The first of: `fragment_unreadable` or what [`Source::read`] refuses, `bad_fragment`, `fragment_clash`,
/// `fragment_cycle`, `fragment_limit`; or everything that is wrong with the departments or the workflow of one blueprint. Findings inside a
/// fragment or a manifest name its file.
pub fn resolve(mut source: Source, files: &mut dyn Files) -> Result<Source, Vec<Diagnostic>> {
    let stack = vec![source.name().to_owned()];
    resolve_within(&mut source, files, &stack, &mut Inside { depth: 0, left: BOARDS_MAX })?;
    Ok(source)
}

/// Where in boards inside boards a blueprint is read.
struct Inside {
    /// In how many others it is.
    depth: usize,
    /// How many more there may be.
    left: usize,
}

impl Inside {
    /// Takes one more, which stands at a place.
    fn enter(&mut self, source: &Source, at: &str) -> Result<(), Diagnostic> {
        self.left = self.left.checked_sub(1).ok_or_else(|| too_many(source, at))?;
        self.depth += 1;
        Ok(())
    }
}

/// The same for the blueprint in the innermost of these files.
fn resolve_within(
    source: &mut Source,
    files: &mut dyn Files,
    stack: &[String],
    inside: &mut Inside,
) -> Result<(), Vec<Diagnostic>> {
    let one = |finding| vec![finding];
    // What stands in the file itself has no other file's name; this may be a file that another names.
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
        let placed = |mut finding: Diagnostic| {
            finding.file = finding.file.or_else(|| file.cloned());
            vec![finding]
        };
        inside.enter(source, &at).map_err(placed)?;
        let Some(name) = board.value.as_str().map(str::to_owned) else {
            let shared = board.files.len();
            resolve_within(&mut board, files, stack, inside)?;
            inside.depth -= 1;
            source.put(&at, board, shared);
            continue;
        };
        if inside.depth > DEPTH_MAX {
            let message = format!("boards are nested more than {DEPTH_MAX} deep");
            let help = "Let fewer boards make boards of their own.";
            return Err(placed(Diagnostic::at(source, "bad_board", &at, message, help)));
        }
        let mut finding = Diagnostic::at(source, "unresolved_fragment", &at, "", "");
        finding.file = finding.file.or_else(|| file.cloned());
        let used = Use { name, finding };
        let mut board = used.read(files, stack).map_err(one)?;
        let stack: Vec<String> = stack.iter().chain([&used.name]).cloned().collect();
        resolve_within(&mut board, files, &stack, inside)?;
        inside.depth -= 1;
        source.put(&at, board, 0);
    }
    departments::resolve(source, files, file)?;
    workflows::resolve(source, files, file)
}

struct Inclusion<'a> {
    files: &'a mut dyn Files,
    seen: BTreeSet<String>,
    /// The files that are being included, outermost first.
    stack: Vec<String>,
}

/// A fragment's name, and a finding that stands where it is written.
struct Use {
    name: String,
    finding: Diagnostic,
}

impl Use {
    /// The file of this name, named in the innermost of these files.
    fn read(&self, files: &mut dyn Files, stack: &[String]) -> Result<Source, Diagnostic> {
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

/// What `use` names; `None` if there is none, or not a list of names.
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

/// Takes over everything a fragment says.
fn merge(into: &mut Source, mut fragment: Source) -> Result<(), Diagnostic> {
    let value = std::mem::take(&mut fragment.value);
    let moves = Moves { file: into.files.len(), fragment: &fragment };
    let Value::Object(members) = value else {
        return Err(moves.bad("", "a fragment is a mapping", FORM));
    };
    into.files.push(File {
        name: fragment.name().to_owned(),
        text: fragment.files.first().map_or_else(Arc::default, |file| Arc::clone(&file.text)),
    });
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

/// The move of one fragment's values and places.
struct Moves<'a> {
    file: usize,
    fragment: &'a Source,
}

impl Moves<'_> {
    fn bad(&self, pointer: &str, message: &str, help: &str) -> Diagnostic {
        let mut finding = Diagnostic::at(self.fragment, "bad_fragment", pointer, message, help);
        finding.position = self.fragment.key_position(pointer);
        finding.in_file(self.fragment.name())
    }

    /// Adds the members of an object to the object at the same place.
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

    /// Appends the elements of an array, whose `name`s must be new.
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

    /// Adds a member of which there is one.
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

    /// Adds schema definitions, the only part of `state` that a fragment may say.
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
        let mut finding = Diagnostic::at(self.fragment, "fragment_clash", from, message, help);
        finding.position = self.fragment.key_position(from);
        finding.in_file(self.fragment.name())
    }

    /// Takes over the places of a value that stood at `from` and now stands at `to`.
    fn place(&self, into: &mut Source, from: &str, to: &str) {
        let places = self.fragment.places.range(from.to_owned()..);
        for (pointer, place) in places.take_while(|(pointer, _)| pointer.starts_with(from)) {
            let rest = &pointer[from.len()..];
            if rest.is_empty() || rest.starts_with('/') {
                let mut place = *place;
                place.file = self.file;
                into.places.insert(format!("{to}{rest}"), place);
            }
        }
    }
}

/// The object at a pointer, made where it is missing; `None` if something else is in the way.
pub(super) fn object_at<'a>(root: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    let mut at = root.as_object_mut()?;
    for token in pointer.split('/').skip(1) {
        at = at.entry(token).or_insert_with(|| Value::Object(Map::new())).as_object_mut()?;
    }
    Some(at)
}
