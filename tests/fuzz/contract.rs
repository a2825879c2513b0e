//! Checks path patterns against a naive matcher, and contracts against the oracle of the kernel's own tests.

#[path = "../../runtime/kernel/tests/it/contract_oracle/oracle.rs"]
mod oracle;

use jsonptr::{Pointer, PointerBuf};
use patchboard_kernel::blueprint::{GrantOp, PatchLimits, Worker};
use patchboard_kernel::contract::Contract;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::json::{self, Limits};
use patchboard_kernel::patch;
use patchboard_kernel::pattern::{PathSyntax, Pattern, PatternToken};
use patchboard_kernel::schema::Schema;
use patchboard_kernel::state::{ResultLimits, State};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bytes::Bytes;
use crate::values;
use oracle::{Grant, Oracle};

/// Most tokens of a place that the naive matcher is used for, because it is slow.
const NAIVE_TOKENS_MAX: usize = 12;
/// Most patterns and places of one input that are compared.
const PATTERNS_MAX: usize = 12;
const PLACES_MAX: usize = 60;

/// Types that a grant may require of values.
const KINDS: [&str; 3] = ["integer", "string", "array"];

/// A document, a contract, and a patch to try. Patterns and places are texts, as in blueprints and patches.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Situation {
    document: Value,
    reads: Vec<String>,
    writes: Vec<Written>,
    patch: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    path: String,
    ops: Vec<GrantOp>,
    /// One of [`KINDS`].
    value: Option<String>,
}

/// Checks a situation given as JSON; if the first byte is 0, the rest are choices that generate one.
pub fn contract(data: &[u8]) {
    let situation = match data.split_first() {
        Some((0, choices)) => Some(made(&mut Bytes::new(choices))),
        _ => {
            let limits = Limits { bytes: 1 << 20, depth: 64 };
            json::parse(data, limits).ok().and_then(|value| serde_json::from_value(value).ok())
        }
    };
    if let Some(mut situation) = situation {
        json::normalise(&mut situation.document);
        json::normalise(&mut situation.patch);
        check_patterns(&situation);
        check_contract(&situation);
    }
}

/// Checks that every pattern matches the places that it should, alone and against every other pattern.
fn check_patterns(situation: &Situation) {
    let texts = situation.reads.iter().chain(situation.writes.iter().map(|write| &write.path));
    let patterns: Vec<_> = texts.take(PATTERNS_MAX).filter_map(|text| parsed(text)).collect();
    let document = &situation.document;
    let below = values::places(document, 400);
    let named = situation.patch.as_array().into_iter().flatten();
    let named = named.flat_map(|op| [op.get("path"), op.get("from")]).flatten().filter_map(Value::as_str);
    let named = named.filter_map(|text| PointerBuf::parse(text).ok());
    let places: Vec<_> = named.chain(below.iter().cloned()).filter(|place| place.count() <= NAIVE_TOKENS_MAX).collect();
    let places = &places[..places.len().min(PLACES_MAX)];
    let tree = State::new(document, &Hasher::new(&Salt::ZERO));

    for (pattern, tokens) in &patterns {
        for place in places {
            let decoded = oracle::place(place.as_str());
            let matches = oracle::matches(tokens, &decoded);
            assert_eq!(pattern.matches(place), matches, "{pattern} and {place}");
            let above = (0..=decoded.len()).any(|end| oracle::matches(tokens, &decoded[..end]));
            assert_eq!(pattern.covers(place), above, "{pattern} and {place}");
            assert!(pattern.reaches_below(place) || !matches, "{pattern} and {place}");
            let path: Vec<&str> = decoded.iter().map(String::as_str).collect();
            let captures = pattern.captures(&path);
            assert_eq!(captures.is_some(), matches, "{pattern} and {place}");
            if let Some(captures) = captures {
                assert_eq!(filled(pattern, &captures), place.as_str(), "{pattern} with {captures:?}");
            }
        }
        if below.len() < 400 && below.iter().all(|place| place.count() <= NAIVE_TOKENS_MAX) {
            let found: Vec<PointerBuf> =
                pattern.instances(tree.root(), usize::MAX).into_iter().map(|instance| instance.place).collect();
            assert_eq!(pattern.instances_of_value(document, usize::MAX), found, "{pattern} in {document}");
            let appends = pattern.tokens().contains(&PatternToken::Append);
            let mut naive: Vec<&PointerBuf> = below.iter().filter(|place| !appends && matches(tokens, place)).collect();
            let mut found: Vec<&PointerBuf> = found.iter().collect();
            naive.sort();
            found.sort();
            assert_eq!(found, naive, "{pattern} in {document}");
        }
    }
    for (one, tokens) in &patterns {
        for (other, other_tokens) in &patterns {
            assert_eq!(one.overlaps(other), other.overlaps(one), "{one} and {other}");
            assert_eq!(one.collides(other), other.collides(one), "{one} and {other}");
            assert!(one.collides(other) || !one.overlaps(other), "{one} and {other}");
            for place in places {
                if !matches(other_tokens, place) {
                    continue;
                }
                assert!(one.overlaps(other) || !matches(tokens, place), "{one} and {other} meet at {place}");
                let is_below = place.parent().is_some_and(|parent| {
                    std::iter::successors(Some(parent), |place| place.parent()).any(|above| matches(tokens, above))
                });
                assert!(one.lies_above(other) || !is_below, "{one} lies above {other} at {place}");
            }
        }
    }
}

/// Parses a pattern, also into a list of tokens; `None` if the text is invalid. Checks that it prints as it was
/// written.
fn parsed(text: &str) -> Option<(Pattern, Vec<String>)> {
    let pattern = Pattern::parse(text).ok()?;
    assert_eq!(pattern.to_string(), text);
    assert!(Pointer::parse(text).is_ok(), "{text}");
    Some((pattern, oracle::place(text)))
}

fn matches(tokens: &[String], place: &Pointer) -> bool {
    oracle::matches(tokens, &oracle::place(place.as_str()))
}

/// Returns the place that a pattern with these captures denotes.
fn filled(pattern: &Pattern, captures: &[String]) -> String {
    let mut captures = captures.iter();
    let mut place = String::new();
    for token in pattern.tokens() {
        match token {
            PatternToken::Literal(name) => place.push_str(&oracle::pointer(&[name])),
            PatternToken::Append => place.push_str("/-"),
            PatternToken::Any => place.push_str(&oracle::pointer(&[captures.next().expect("one for every `*`")])),
            PatternToken::Bound(_) | PatternToken::Deep => place.push_str(captures.next().expect("one for every `**`")),
        }
    }
    assert_eq!(captures.next(), None, "one capture too many for {pattern}");
    place
}

/// Checks that one of the grants explains each operation that the contract allows.
fn check_contract(situation: &Situation) {
    let reads: Vec<_> = situation.reads.iter().map(|text| oracle::place(text)).collect();
    let mut grants = Vec::new();
    let mut writes = Vec::new();
    for write in &situation.writes {
        let value = KINDS.into_iter().find(|kind| write.value.as_deref() == Some(*kind));
        // The oracle knows only the types in `KINDS`.
        if write.value.is_some() && value.is_none() {
            return;
        }
        writes.push(match value {
            Some(kind) => json!({"path": write.path, "ops": write.ops, "value": {"type": kind}}),
            None => json!({"path": write.path, "ops": write.ops}),
        });
        grants.push(Grant { tokens: oracle::place(&write.path), ops: write.ops.clone(), value });
    }
    let worker = json!({"agent": "llm", "reads": situation.reads, "writes": writes});
    let Ok(worker) = serde_json::from_value::<Worker>(worker) else { return };
    let every_place = Value::Bool(true);
    let patterns = situation.reads.iter().chain(situation.writes.iter().map(|write| &write.path));
    let are_patterns = patterns.into_iter().all(|text| Pattern::parse(text).is_ok());
    let contract = match Contract::compile(
        &worker,
        &every_place,
        &patchboard_kernel::expressions::ExpressionCompiler::new(PathSyntax::Plain),
    ) {
        Ok(contract) => contract,
        Err(error) => {
            assert!(!are_patterns, "{error}");
            return;
        }
    };
    assert!(are_patterns, "a contract has a pattern that is none");
    let schema = Schema::compile(&every_place, false).expect("a schema that allows anything");
    let limits = PatchLimits { max_ops: 32, ..PatchLimits::default() };
    let Ok(ops) = patch::parse(&situation.patch, &limits) else { return };
    let oracle = Oracle { reads: &reads, grants: &grants };
    let mut candidate = State::new(&situation.document, &Hasher::new(&Salt::ZERO)).candidate();
    for (index, op) in ops.iter().enumerate() {
        let before = candidate.root().to_value();
        if !contract.judge(index, op, &candidate, &schema).is_empty() {
            continue;
        }
        assert!(!op.path().is_root() || matches!(op, patch::Op::Test { .. }), "the whole document is never granted");
        if candidate.apply(op, ResultLimits { bytes: 1 << 16, depth: 32 }).is_err() {
            continue;
        }
        let after = candidate.root().to_value();
        let complaint = oracle.complaint(&before, &after, &situation.patch[index]);
        assert_eq!(complaint, None, "{op:?}: {before} became {after}");
    }
}

/// Generates a contract and a patch with places that the document has or could have.
fn made(bytes: &mut Bytes<'_>) -> Situation {
    let document = values::value(bytes, 3);
    let places = values::places(&document, 200);
    let reads = (0..bytes.below(4)).map(|_| pattern(bytes, &places)).collect();
    let writes = (0..=bytes.below(5)).map(|_| {
        let path = pattern(bytes, &places);
        let chosen = bytes.byte();
        let ops = GrantOp::ALL.iter().copied().enumerate();
        let ops = ops.filter(|(bit, _)| chosen >> (bit % 8) & 1 == 0).map(|(_, op)| op).collect();
        let value = [None, None, None, Some(KINDS[0]), Some(KINDS[1]), Some(KINDS[2])];
        Written { path, ops, value: bytes.pick(&value).map(str::to_owned) }
    });
    let writes = writes.collect();
    let mut patch = Vec::new();
    while !bytes.is_empty() && patch.len() < 32 {
        let kind = *bytes.pick(&["add", "remove", "replace", "move", "copy", "test"]);
        let path = values::place(bytes, &places);
        patch.push(match kind {
            "remove" => json!({"op": kind, "path": path.as_str()}),
            "move" | "copy" => {
                json!({"op": kind, "path": path.as_str(), "from": values::place(bytes, &places).as_str()})
            }
            "test" => {
                let there = path.resolve(&document).cloned().unwrap_or_default();
                json!({"op": kind, "path": path.as_str(), "value": there})
            }
            _ => json!({"op": kind, "path": path.as_str(), "value": values::value(bytes, 1)}),
        });
    }
    Situation { document, reads, writes, patch: patch.into() }
}

/// Returns a place in which some tokens are replaced by pattern tokens.
fn pattern(bytes: &mut Bytes<'_>, places: &[PointerBuf]) -> String {
    let place = values::place(bytes, places);
    let mut text = String::new();
    for token in place.tokens() {
        text.push('/');
        text.push_str(match bytes.below(8) {
            0 | 1 => "*",
            2 => "**",
            3 => "-",
            _ => token.encoded(),
        });
    }
    text
}
