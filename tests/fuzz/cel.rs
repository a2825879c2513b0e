//! Fuzzes expressions: each is compiled or rejected with a code, and evaluated deterministically within its step limit.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::expr::{EvalError, Expr, Variable, Variables};
use patchboard_kernel::tree::{Edit, Node};
use serde_json::{Value, json};

use crate::bytes::Bytes;
use crate::within;

/// Time limit for compiling an expression and evaluating it once. Optimised builds execute a million steps in a few
/// hundredths of a second.
const BOUND: Duration = Duration::from_secs(10);

/// Codes of rejections, as documented at [`patchboard_kernel::expr::CompileError`].
const CODES: [&str; 9] = [
    "cel_syntax",
    "cel_too_long",
    "cel_too_complex",
    "cel_unknown_variable",
    "cel_unknown_function",
    "cel_shadowed_variable",
    "cel_bad_pattern",
    "cel_not_boolean",
    "cel_unsupported",
];

/// Checks an expression; if the first byte is 0, the rest are choices that generate one.
pub fn cel(data: &[u8]) {
    match data.split_first() {
        Some((0, choices)) => {
            let mut text = String::new();
            make(&mut Bytes::new(choices), &mut text, 5);
            check(&text);
        }
        _ => check(&String::from_utf8_lossy(data)),
    }
}

fn check(source: &str) {
    let given = given();
    let names: Vec<&'static str> = given.iter().map(|(name, ..)| *name).collect();
    let compiled = within(BOUND, "compiling an expression", || Expr::compile(source, &names));
    let expr = match compiled {
        Ok(expr) => expr,
        Err(error) => {
            assert!(CODES.contains(&error.code), "{error:?}");
            assert!(!error.message.is_empty(), "{error:?}");
            assert!(error.offset.is_none_or(|offset| source.is_char_boundary(offset)), "{error:?} is nowhere in it");
            return;
        }
    };
    assert_eq!(expr.source(), source);
    assert!(expr.references().iter().all(|reference| expr.uses(reference.variable)));
    let values = || given.iter().map(|(name, value, _)| (*name, Variable::from(value))).collect::<Variables<'_>>();
    let verdict = within(BOUND, "an evaluation", || expr.evaluate(&values()));
    if let Err(EvalError(message)) = &verdict {
        assert!(!message.is_empty());
        assert!(!message.contains(SECRET), "a value of the document is told: {message}");
    }
    assert_eq!(expr.evaluate(&values()), verdict, "the same again");
    let nodes = || given.iter().map(|(name, _, node)| (*name, Variable::from(node))).collect::<Variables<'_>>();
    assert_eq!(within(BOUND, "an evaluation", || expr.evaluate(&nodes())), verdict, "over trees");
    // Values outside of an expression's references cannot change its result.
    let referred = given.iter().map(|(name, value, _)| (*name, only_referred(&expr, name, value))).collect();
    assert_eq!(expr.evaluate(&referred), verdict, "over nothing but what it refers to: {:?}", expr.references());
}

/// Returns a variable without the members that the expression does not refer to.
fn only_referred<'a>(expr: &Expr, name: &str, value: &'a Value) -> Variable<'a> {
    let references: Vec<_> = expr.references().iter().filter(|reference| reference.variable == name).collect();
    if references.is_empty() {
        return Variable::from(json!("nobody looks at this"));
    }
    let (Value::Object(members), true) = (value, references.iter().all(|reference| !reference.path.is_empty())) else {
        return Variable::from(value);
    };
    let referred = |name: &String| references.iter().any(|reference| reference.path.first() == Some(name));
    let members = members.iter().filter(|(name, _)| referred(name));
    Variable::from(Value::Object(members.map(|(name, value)| (name.clone(), value.clone())).collect()))
}

/// Text of the document that no message may contain.
const SECRET: &str = "s3cr3t";

/// Returns the variables: their names, and their values in both representations.
fn given() -> &'static [(&'static str, Value, Node)] {
    static GIVEN: OnceLock<Vec<(&'static str, Value, Node)>> = OnceLock::new();
    GIVEN.get_or_init(|| {
        // The texts differ only at their ends, so that every comparison reads all of them. They have no pattern,
        // so that a regular expression reaches as many states as possible.
        let long = |end: &str| {
            let mut state = 1_u32;
            let mut draw = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if state >> 31 == 0 { 'a' } else { 'b' }
            };
            (0..400_000).map(|_| draw()).collect::<String>() + end
        };
        let many: serde_json::Map<String, Value> = (0..100).map(|at| (format!("k{at}"), json!(at))).collect();
        let task =
            |at: u32| json!({"id": at, "title": format!("t{at}"), "done": at.is_multiple_of(3), "deps": [at / 2, at / 3]});
        let values = [
            ("request", json!({"goal": SECRET})),
            (
                "state",
                json!({
                    "tasks": (0..40).map(task).collect::<Vec<_>>(),
                    "n": 7, "z": 0, "f": 1.5, "big": u64::MAX, "low": i64::MIN, "huge": 1e308,
                    "s": SECRET, "é": "ß\u{1f600}", "yes": true, "no": false, "nothing": null,
                    "long": long("x"), "longer": long("y"), "many": many,
                    "list": (0..30_000).collect::<Vec<_>>(),
                    "nested": [[[1], [2]], [[3]], []], "empty": [], "none": {}, "a": {"b": {"c": {"d": SECRET}}},
                }),
            ),
            ("event", json!({"op": "add", "path": "/tasks/0", "version": 3})),
            ("value", task(4)),
            ("self", task(5)),
            ("before", Value::Null),
            ("patch", json!([{"op": "add", "path": "/tasks/-", "value": {"id": 1}}])),
        ];
        let edit = Edit { revision: 0, hasher: Arc::new(Hasher::new(&Salt::ZERO)) };
        values.into_iter().map(|(name, value)| (name, value.clone(), Node::from_value(&value, &edit))).collect()
    })
}

const PATHS: [&str; 24] = [
    "state.tasks",
    "state.n",
    "state.z",
    "state.f",
    "state.big",
    "state.low",
    "state.huge",
    "state.s",
    "state.yes",
    "state.nothing",
    "state.long",
    "state.longer",
    "state.many",
    "state.list",
    "state.nested",
    "state.empty",
    "state.none",
    "state.a.b.c",
    "state.tasks[0].id",
    "self",
    "value.deps",
    "before",
    "event['op']",
    "patch",
];
const LITERALS: [&str; 16] = [
    "true",
    "false",
    "null",
    "0",
    "1",
    "-1",
    "9223372036854775807",
    "1u",
    "18446744073709551615u",
    "0.0",
    "1e308",
    "'a'",
    "\"\"",
    "[]",
    "{}",
    "r'\\d'",
];
const OPERATORS: [&str; 15] =
    [" && ", " || ", " == ", " != ", " < ", " <= ", " > ", " >= ", " + ", " - ", " * ", " / ", " % ", " in ", " == "];
const FUNCTIONS: [&str; 6] = ["size(", "int(", "uint(", "double(", "string(", "has("];
const METHODS: [&str; 4] = [".contains(", ".startsWith(", ".endsWith(", ".matches("];
const FOLDS: [&str; 5] = [".all(", ".exists(", ".exists_one(", ".filter(", ".map("];
const PATTERNS: [&str; 6] = ["'a*'", "'^(ab)*$'", "'(a|b)*a(a|b){200}$'", "'x{1,50}'", "'(?i)S3'", "'('"];

/// Writes a random expression, not necessarily a valid one.
fn make(bytes: &mut Bytes<'_>, text: &mut String, depth: usize) {
    // Longer expressions are rejected for their length alone.
    if depth == 0 || text.len() > 2000 {
        text.push_str(if bytes.below(2) == 0 { bytes.word(&PATHS) } else { bytes.word(&LITERALS) });
        return;
    }
    let local = ["x", "y", "z", "w", "v"][depth - 1];
    match bytes.below(12) {
        0 | 1 => text.push_str(bytes.word(&PATHS)),
        2 => text.push_str(bytes.word(&LITERALS)),
        3..6 => {
            make(bytes, text, depth - 1);
            text.push_str(bytes.word(&OPERATORS));
            make(bytes, text, depth - 1);
        }
        6 => {
            text.push_str(bytes.word(&FUNCTIONS));
            make(bytes, text, depth - 1);
            text.push(')');
        }
        7 => {
            make(bytes, text, depth - 1);
            let method = bytes.word(&METHODS);
            text.push_str(method);
            if method == ".matches(" {
                text.push_str(bytes.word(&PATTERNS));
            } else {
                make(bytes, text, depth - 1);
            }
            text.push(')');
        }
        8 | 9 => {
            make(bytes, text, depth - 1);
            let _ = write!(text, "{}{local}, ", bytes.word(&FOLDS));
            // Half of the bodies refer to the loop variable.
            if bytes.below(2) == 0 {
                let _ = write!(text, "{local}{}", bytes.word(&OPERATORS));
            }
            make(bytes, text, depth - 1);
            text.push(')');
        }
        10 => {
            text.push('(');
            make(bytes, text, depth - 1);
            text.push_str(" ? ");
            make(bytes, text, depth - 1);
            text.push_str(" : ");
            make(bytes, text, depth - 1);
            text.push(')');
        }
        _ => {
            text.push_str("[{'a': ");
            make(bytes, text, depth - 1);
            text.push_str("}, ");
            make(bytes, text, depth - 1);
            text.push_str("][");
            make(bytes, text, depth - 1);
            text.push(']');
        }
    }
}
