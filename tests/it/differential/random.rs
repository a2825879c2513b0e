//! Compares the verdict and the violations of a change with those of the whole document at every step, for random
//! schemas, documents and edits.
//!
//! `DIFFERENTIAL_CASES` and `DIFFERENTIAL_SEED` set the number of cases and the first seed
//! (`cargo xtask differential`). A failure prints the seed of its schema, which alone reproduces it with
//! `DIFFERENTIAL_CASES=1`.

use std::io::Write;
use std::sync::Arc;

use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::rejection::Violation;
use patchboard_kernel::schema::StateSchema;
use patchboard_kernel::tree::{Edit, Node, Revision};
use serde_json::Value;

use super::documents::instance;
use super::edits::change;
use super::schemas::{Dice, schema};

/// Default number of verdicts that are compared.
const CASES: usize = 20_000;
/// Edits of one document before another schema is tried.
const EDITS: Revision = 40;
/// Attempts to make a valid document for a schema.
const ATTEMPTS: usize = 12;
/// Limit above the number of violations of any of these documents.
const VIOLATIONS: usize = 400;

#[derive(Default, Debug)]
struct Tally {
    schemas: usize,
    refused: usize,
    /// Schemas for which no valid document was found.
    barren: usize,
    valid: usize,
    invalid: usize,
    /// Verdicts under schemas that can be validated incrementally.
    followed: usize,
    violations: usize,
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn the_verdict_on_what_changed_is_the_verdict_on_the_whole() {
    let cases = usize::try_from(setting("DIFFERENTIAL_CASES", CASES as u64)).expect("it fits");
    let first = setting("DIFFERENTIAL_SEED", 1);
    let mut tally = Tally::default();
    for seed in first.. {
        run(seed, &mut tally);
        if tally.valid + tally.invalid >= cases {
            break;
        }
        assert!(tally.schemas < 1000 + cases, "too few documents: {tally:?}");
    }
    let _ = writeln!(std::io::stderr(), "differential validation from seed {first}: {tally:?}");
    if cases >= CASES {
        let verdicts = tally.valid + tally.invalid;
        assert!(tally.valid > verdicts / 4, "acceptance is hardly tried: {tally:?}");
        assert!(tally.invalid > verdicts / 8, "rejection is hardly tried: {tally:?}");
        assert!(tally.followed > verdicts / 2, "most are validated whole: {tally:?}");
    }
}

pub(super) fn edit(at: Revision) -> Edit {
    Edit { revision: at, hasher: Arc::new(Hasher::new(&Salt([7; 32]))) }
}

pub(super) fn normal(mut value: Value) -> Value {
    patchboard_kernel::json::normalise(&mut value);
    value
}

fn run(seed: u64, tally: &mut Tally) {
    let mut dice = Dice::new(seed);
    let document = schema(&mut dice);
    tally.schemas += 1;
    let Ok(schema) = StateSchema::compile(&document, false) else {
        tally.refused += 1;
        return;
    };
    let mut attempts = (0..ATTEMPTS).map(|_| normal(instance(&mut dice, &document, &document, 4)));
    let Some(mut value) = attempts.find(|value| schema.is_valid(value)) else {
        tally.barren += 1;
        return;
    };
    let hasher = edit(0);
    let mut tree = Node::from_value(&value, &hasher);
    assert!(schema.is_valid_tree(&tree), "SEED={seed}: {document} {value}");
    // Only versions with valid documents are kept.
    let (mut version, mut read) = (0, 0);
    for at in 1..=EDITS {
        let (mut candidate, mut changed) = (tree.clone(), value.clone());
        let mut done = Vec::new();
        for _ in 0..=dice.roll(3) {
            done.push(change(&mut dice, &document, &mut candidate, &mut changed, &edit(at)));
        }
        assert_eq!(candidate, changed, "SEED={seed}: the edits differ");
        let case = || format!("SEED={seed}\nschema {document}\nbefore {value}\nafter {changed}\nedits {done:?}");
        let expected = schema.is_valid(&changed);
        // Any earlier valid version is a correct base, the last one or an older one.
        let since = if dice.roll(4) == 0 { read } else { version };
        let root_was_replaced = done.iter().any(|edit| edit.starts_with("root"));
        if !root_was_replaced {
            assert_eq!(schema.is_valid_since(&candidate, since), expected, "since {since}: {}", case());
            tally.followed += usize::from(!schema.is_opaque());
        }
        assert_eq!(schema.is_valid_tree(&candidate), expected, "{}", case());
        if expected {
            tally.valid += 1;
            (tree, value, version) = (candidate, changed, at);
            if root_was_replaced || dice.roll(6) == 0 {
                read = at;
            }
            continue;
        }
        tally.invalid += 1;
        if dice.roll(4) == 0 {
            let whole = sorted(schema.violations(&changed, VIOLATIONS));
            tally.violations += whole.len();
            assert_eq!(sorted(schema.tree_violations(&candidate, VIOLATIONS)), whole, "{}", case());
            if !root_was_replaced {
                let found = sorted(schema.violations_since(&candidate, since, VIOLATIONS));
                assert_eq!(found, whole, "since {since}: {}", case());
                assert!(!schema.violations_since(&candidate, since, 1).is_empty(), "{}", case());
            }
        }
    }
}

/// Sorts violations in an order of their own; names are listed in the order in which an object has them.
fn sorted(violations: Vec<Violation>) -> Vec<String> {
    let mut said: Vec<String> = violations
        .into_iter()
        .map(|violation| serde_json::to_string(&violation).expect("violations are JSON"))
        .collect();
    said.sort();
    said
}
