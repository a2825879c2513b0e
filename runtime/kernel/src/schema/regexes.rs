//! Costs of a schema's regular expressions, measured before `jsonschema` compiles them.
//!
//! A short expression can be large: a counted repetition expands to copies, and each Unicode class in it to a table.
//! Bytes bound the time and memory of compilation. States bound the time of matching: at worst, each byte of a text
//! visits all of them. Tables make an expression large but not slow, so both numbers are needed.

use std::collections::BTreeMap;

use jsonschema_regex::{analyze_pattern, to_rust_regex};
use regex_automata::nfa::thompson::NFA;
use regex_syntax::hir::{Hir, HirKind};
use serde_json::Value;

use super::SchemaError;
use super::map::{Id, Role, SchemaMap, below};

/// Maximum bytes for compiling one regular expression, the default limit of the crate `regex`. The compiled form takes
/// less than half.
const BYTES_MAX: usize = 10 << 20;
/// Maximum bytes of all regular expressions of one schema. Compiling them takes about 30 ms a megabyte, and happens a
/// few times; keeping them ready to match takes three to four times their bytes.
const BYTES_ALL_MAX: usize = 8 << 20;
/// Maximum bytes of the regular expressions of all schemas of a blueprint.
pub(crate) const REGEX_BYTES_MAX: usize = 16 << 20;
/// Cost of parsing a Unicode class, in bytes: it becomes a list of hundreds of ranges before compilation.
const CLASS_BYTES: usize = 4096;
/// Maximum states of the regular expressions that are matched with one value. A state takes up to 30 ns per byte of
/// text, so a text of 16 KiB takes four seconds at worst.
pub(super) const STATES_MAX: usize = 8192;

/// Number of capture groups that take as long to copy for a state as the state takes without them.
const GROUPS_OF_STATE: usize = 16;

/// Regular expressions reachable from a schema's root.
#[derive(Debug, Default)]
pub(super) struct Regexes {
    sizes: Vec<Size>,
    /// Indices of the expressions in each subschema.
    of: BTreeMap<Id, Vec<usize>>,
}

/// Costs of a regular expression.
#[derive(Clone, Copy, Default, Debug)]
struct Size {
    bytes: usize,
    states: usize,
    /// States, weighted by the cost of the capture groups.
    weight: usize,
}

impl Regexes {
    /// Measures each expression once, as `jsonschema` compiles it once per document. An invalid expression has size
    /// zero; compilation rejects its schema elsewhere.
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

    /// Returns the bytes of all expressions.
    pub(super) fn bytes(&self) -> usize {
        self.sizes.iter().map(|size| size.bytes).sum()
    }

    /// Returns the bytes of the expressions in some subschemas, each counted once.
    pub(super) fn bytes_in(&self, ids: impl Iterator<Item = Id>) -> usize {
        let mut counted = vec![false; self.sizes.len()];
        for number in ids.filter_map(|id| self.of.get(&id)).flatten() {
            counted[*number] = true;
        }
        self.sizes.iter().zip(counted).filter(|(_, counted)| *counted).map(|(size, _)| size.bytes).sum()
    }

    /// Returns the states of the expressions in one subschema.
    pub(super) fn states(&self, id: Id) -> usize {
        self.sizes(id).map(|size| size.states).sum()
    }

    /// Returns the states of the expressions in one subschema, weighted by their time.
    pub(super) fn weight(&self, id: Id) -> usize {
        self.sizes(id).map(|size| size.weight).sum()
    }

    fn sizes(&self, id: Id) -> impl Iterator<Item = &Size> {
        self.of.get(&id).into_iter().flatten().map(|number| &self.sizes[*number])
    }
}

/// Explains why a text is no regular expression that can be matched in linear time.
pub(super) fn why_not(expression: &str) -> String {
    match regex_syntax::parse(expression) {
        Err(regex_syntax::Error::Parse(error)) => format!(": {}", error.kind()),
        Err(regex_syntax::Error::Translate(error)) => format!(": {}", error.kind()),
        _ => " that can be matched in linear time: no look-around, no back-references, no huge repetitions".to_owned(),
    }
}

/// Advice for an expression that is too large.
const SHORTEN: &str =
    "shorten counted repetitions like {1,200}, above all of \\p{…} and `.`; `maxLength` bounds a text at no cost";

/// Returns the error message for a blueprint with schemas beyond [`REGEX_BYTES_MAX`].
pub(crate) fn regexes_too_large() -> String {
    format!(
        "with this schema, the regular expressions of the blueprint take more than {} MiB when compiled, those of \
         `#/$defs` counted in each schema that refers to them; {SHORTEN}",
        REGEX_BYTES_MAX >> 20
    )
}

/// Returns the regular expressions of all compiled subschemas: subschema, JSON Pointer and text.
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
    // Prefixes and lists of words are compared without an automaton.
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

/// Returns the cost of parsing a regular expression, in bytes. It is parsed again for each class with different
/// characters in Rust and ECMAScript.
fn read(expression: &str) -> usize {
    let (mut classes, mut grown, mut of_unicode) = (0, 0, 0);
    for pair in expression.as_bytes().windows(2).filter(|pair| pair[0] == b'\\') {
        // Length of the class in Rust's syntax.
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

/// Returns the maximum number of simultaneous states of a match. A character of any class is one state. Optional parts
/// and groups add one each, as they are traversed without consuming text.
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
            // Words form a prefix tree, so the longest one counts, not their sum.
            let (words, others): (Vec<&Hir>, Vec<&Hir>) =
                branches.iter().partition(|branch| matches!(branch.kind(), HirKind::Literal(_)));
            let longest = words.into_iter().map(states).max().unwrap_or(0);
            others.into_iter().fold(longest, |sum, branch| sum.saturating_add(states(branch)))
        }
    }
}
