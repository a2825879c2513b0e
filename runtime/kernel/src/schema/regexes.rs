//! What the regular expressions of a schema cost, known before `jsonschema` compiles them.
//!
//! A short one can be large: a counted repetition stands for as many copies, and each class of Unicode in it for a table.
//! Bytes bound what compiling takes, in time and memory. States bound what matching takes: at worst all of them are gone
//! through for each byte of a text. The tables make an expression large and not slow, so these are two numbers.

use std::collections::BTreeMap;

use jsonschema_regex::{analyze_pattern, to_rust_regex};
use regex_automata::nfa::thompson::NFA;
use regex_syntax::hir::{Hir, HirKind};
use serde_json::Value;

use super::SchemaError;
use super::map::{Id, Role, SchemaMap, below};

/// Bytes that are needed to compile one regular expression: what the crate `regex` allows by itself. What is left of
/// them is less than half.
const BYTES_MAX: usize = 10 << 20;
/// Bytes of all regular expressions of one schema. It takes about 30 ms a megabyte to compile them once, which is done a
/// few times, and three to four times their bytes to keep them ready to match.
const BYTES_ALL_MAX: usize = 8 << 20;
/// Bytes of the regular expressions of all schemas of a blueprint.
pub(crate) const REGEX_BYTES_MAX: usize = 16 << 20;
/// What reading a class of Unicode counts for, in bytes: it becomes a list of hundreds of ranges before anything is
/// compiled.
const CLASS_BYTES: usize = 4096;
/// States of the regular expressions that one value is matched with. A state takes up to 30 ns for each byte of a text, so
/// a text of 16 KiB takes four seconds at worst.
pub(super) const STATES_MAX: usize = 8192;

/// Groups of an expression whose places are copied with each state in the time that a state takes without them.
const GROUPS_OF_STATE: usize = 16;

/// The regular expressions that a schema's root leads to.
#[derive(Debug, Default)]
pub(super) struct Regexes {
    sizes: Vec<Size>,
    /// Those that stand in a subschema.
    of: BTreeMap<Id, Vec<usize>>,
}

/// What a regular expression costs.
#[derive(Clone, Copy, Default, Debug)]
struct Size {
    bytes: usize,
    states: usize,
    /// States, each as often as its share of the groups takes time.
    weight: usize,
}

impl Regexes {
    /// Measures each once, as `jsonschema` compiles it once in a document. One that cannot be compiled has no size, and
    /// keeps the schema from being compiled elsewhere.
    pub(super) fn measure(document: &Value, map: &SchemaMap) -> Result<Self, SchemaError> {
        let mut regexes = Self::default();
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        let mut bytes: usize = 0;
        for (id, pointer, expression) in expressions(document, map) {
            let number = match known.get(expression) {
                Some(&number) => number,
                None => {
                    let size = size(expression).map_err(|message| SchemaError::new(pointer.clone(), message))?;
                    bytes += size.bytes;
                    if bytes > BYTES_ALL_MAX {
                        let message = format!(
                            "with this one, the regular expressions of the schema take more than {} MiB when compiled; \
                             {SHORTEN}",
                            BYTES_ALL_MAX >> 20
                        );
                        return Err(SchemaError::new(pointer, message));
                    }
                    known.insert(expression, regexes.sizes.len());
                    regexes.sizes.push(size);
                    regexes.sizes.len() - 1
                }
            };
            regexes.of.entry(id).or_default().push(number);
        }
        Ok(regexes)
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.sizes.iter().map(|size| size.bytes).sum()
    }

    /// Bytes of those in some subschemas, each counted once.
    pub(super) fn bytes_in(&self, ids: impl Iterator<Item = Id>) -> usize {
        let mut counted = vec![false; self.sizes.len()];
        for number in ids.filter_map(|id| self.of.get(&id)).flatten() {
            counted[*number] = true;
        }
        self.sizes.iter().zip(counted).filter(|(_, counted)| *counted).map(|(size, _)| size.bytes).sum()
    }

    /// States of those in one subschema.
    pub(super) fn states(&self, id: Id) -> usize {
        self.sizes(id).map(|size| size.states).sum()
    }

    /// States of the regular expressions in a subschema, by the time that they take.
    pub(super) fn weight(&self, id: Id) -> usize {
        self.sizes(id).map(|size| size.weight).sum()
    }

    fn sizes(&self, id: Id) -> impl Iterator<Item = &Size> {
        self.of.get(&id).into_iter().flatten().map(|number| &self.sizes[*number])
    }
}

/// Says why a text is no regular expression that can be matched in linear time.
pub(super) fn why_not(expression: &str) -> String {
    match regex_syntax::parse(expression) {
        Err(regex_syntax::Error::Parse(error)) => format!(": {}", error.kind()),
        Err(regex_syntax::Error::Translate(error)) => format!(": {}", error.kind()),
        _ => " that can be matched in linear time: no look-around, no back-references, no huge repetitions".to_owned(),
    }
}

/// What to do about one that is too large.
const SHORTEN: &str =
    "shorten counted repetitions like {1,200}, above all of \\p{…} and `.`; `maxLength` bounds a text at no cost";

/// Said of a blueprint whose schemas have more than [`REGEX_BYTES_MAX`].
pub(crate) fn regexes_too_large() -> String {
    format!(
        "with this schema, the regular expressions of the blueprint take more than {} MiB when compiled, those of \
         `#/$defs` counted in each schema that refers to them; {SHORTEN}",
        REGEX_BYTES_MAX >> 20
    )
}

/// The regular expressions of all subschemas that are compiled: where they stand and what they say.
fn expressions<'s>(document: &'s Value, map: &'s SchemaMap) -> Vec<(Id, String, &'s str)> {
    let mut found = Vec::new();
    let mut reached = map.reach(0);
    reached.sort_unstable();
    for id in reached {
        let node = map.node(id);
        let pattern = document.pointer(&node.pointer).and_then(|subschema| subschema.get("pattern"));
        if let Some(pattern) = pattern.and_then(Value::as_str).filter(|_| !node.hides_siblings) {
            found.push((id, format!("{}/pattern", node.pointer), pattern));
        }
        for (role, _) in &node.children {
            if let Role::Pattern(pattern) = role {
                found.push((id, below(&format!("{}/patternProperties", node.pointer), pattern), pattern));
            }
        }
    }
    found
}

/// Measures a regular expression, without compiling much more of it than is allowed.
fn size(expression: &str) -> Result<Size, String> {
    // Beginnings and lists of words are compared without an automaton.
    if analyze_pattern(expression).is_some() {
        return Ok(Size::default());
    }
    let read = read(expression);
    if read > BYTES_MAX {
        return Err(format!("the regular expression has too many classes like \\s or \\p{{…}}; {SHORTEN}"));
    }
    let Ok(translated) = to_rust_regex(expression) else { return Ok(Size::default()) };
    let Ok(hir) = regex_syntax::parse(&translated) else { return Ok(Size::default()) };
    let states = states(&hir);
    if states > STATES_MAX {
        return Err(format!(
            "the regular expression has {} states, more than the {STATES_MAX} that can be matched in linear time and \
             soon; {SHORTEN}",
            if states == usize::MAX { "too many".to_owned() } else { states.to_string() }
        ));
    }
    let config = NFA::config().nfa_size_limit(Some(BYTES_MAX));
    match NFA::compiler().configure(config).build_from_hir(&hir) {
        Ok(nfa) => {
            let groups = hir.properties().explicit_captures_len();
            let weight = states.saturating_mul(1 + groups / GROUPS_OF_STATE);
            Ok(Size { bytes: nfa.memory_usage() + read, states, weight })
        }
        Err(error) if error.size_limit().is_some() => Err(format!(
            "the regular expression takes more than {} MiB while it is compiled; {SHORTEN}",
            BYTES_MAX >> 20
        )),
        Err(_) => Ok(Size::default()),
    }
}

/// What reading a regular expression counts for, in bytes. It is read again for each of its classes that have other
/// characters in Rust than in ECMAScript.
fn read(expression: &str) -> usize {
    let (mut classes, mut grown, mut of_unicode) = (0, 0, 0);
    for pair in expression.as_bytes().windows(2).filter(|pair| pair[0] == b'\\') {
        // How long it becomes in Rust's spelling.
        let length = match pair[1] {
            b'd' | b'D' => 6,
            b'w' | b'W' => 15,
            b's' | b'S' => 200,
            b'p' | b'P' => {
                of_unicode += 1;
                continue;
            }
            _ => continue,
        };
        classes += 1;
        grown += length;
    }
    classes * (expression.len() + grown / 2) + of_unicode * CLASS_BYTES
}

/// In how many places of it a match can be at once, at most. A character of any class is one place; what is optional, and
/// a group, is one more, as it is gone through without reading anything.
fn states(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(_) => 1,
        HirKind::Repetition(repetition) => {
            let copies = repetition.max.unwrap_or(repetition.min).max(1);
            let all = states(&repetition.sub).saturating_mul(usize::try_from(copies).unwrap_or(usize::MAX));
            all.saturating_add(usize::from(repetition.min == 0))
        }
        HirKind::Capture(capture) => states(&capture.sub).saturating_add(1),
        HirKind::Concat(parts) => parts.iter().fold(0, |sum, part| sum.saturating_add(states(part))),
        HirKind::Alternation(branches) => {
            // Words are matched by the letters they begin with: one place for each letter, not one for each word.
            let (words, others): (Vec<&Hir>, Vec<&Hir>) =
                branches.iter().partition(|branch| matches!(branch.kind(), HirKind::Literal(_)));
            let longest = words.into_iter().map(states).max().unwrap_or(0);
            others.into_iter().fold(longest, |sum, branch| sum.saturating_add(states(branch)))
        }
    }
}
