//! Compares random expressions with the evaluator of the `cel` crate.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Returns the verdict of the `cel` crate, or `None` if it has none.
fn oracle(source: &str, state: &Value) -> Option<bool> {
    #[expect(clippy::disallowed_types, reason = "the crate's maps are made of nothing else")]
    fn convert(value: &Value) -> cel::Value {
        match value {
            Value::Null => cel::Value::Null,
            Value::Bool(value) => cel::Value::Bool(*value),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => cel::Value::Int(int),
                (None, Some(uint)) => cel::Value::UInt(uint),
                (None, None) => cel::Value::Float(number.as_f64().expect("a JSON number is finite")),
            },
            Value::String(text) => cel::Value::String(Arc::new(text.clone())),
            Value::Array(elements) => cel::Value::List(Arc::new(elements.iter().map(convert).collect())),
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| (name.clone(), convert(value)));
                cel::Value::Map(members.collect::<std::collections::HashMap<_, _>>().into())
            }
        }
    }
    let program = cel::Program::compile(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    let mut context = cel::Context::default();
    context.add_variable_from_value("state", convert(state));
    match program.execute(&context) {
        Ok(cel::Value::Bool(value)) => Some(value),
        _ => None,
    }
}

/// Generates sources of mostly well-typed expressions over the state of [`states`].
pub(super) fn sources() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        (-3_i64..4).prop_map(|int| int.to_string()),
        Just("1.5".to_owned()),
        Just("2u".to_owned()),
        Just("state.n".to_owned()),
        Just("state.x".to_owned()),
        Just("state.missing".to_owned()),
        Just("size(state.list)".to_owned()),
        Just("state.list[1]".to_owned()),
        Just("state.m.a".to_owned()),
    ]
    .boxed();
    let text = prop_oneof![
        Just("'a'".to_owned()),
        Just("\"ab\"".to_owned()),
        Just("state.s".to_owned()),
        Just("string(state.n)".to_owned()),
        Just("'a' + state.s".to_owned()),
    ]
    .boxed();
    let list = prop_oneof![
        Just("state.list".to_owned()),
        Just("[1, state.n, 2]".to_owned()),
        Just("state.tasks".to_owned()),
        Just("[]".to_owned()),
        Just("state.list.filter(e, e > 0)".to_owned()),
        Just("state.list.map(e, e + 1)".to_owned()),
        Just("state.list.map(e, e > 0, [e])".to_owned()),
        Just("(state.list + [1.0])".to_owned()),
    ]
    .boxed();
    // Maps are excluded: the crate accepts `list + map`, in the map's random order.
    let any = prop_oneof![
        3 => number.clone(),
        1 => text,
        1 => list.clone(),
        1 => Just("state.nil".to_owned()),
        1 => Just("true".to_owned()),
    ]
    .boxed();
    let computed = prop_oneof![
        8 => number.clone(),
        2 => any.clone(),
        1 => Just("state.m".to_owned()),
        1 => Just("{'a': 1}".to_owned()),
        4 => (number, prop::sample::select(vec!["+", "-", "*", "/", "%"]), any.clone())
            .prop_map(|(a, sign, b)| format!("({a} {sign} {b})")),
        1 => (any.clone(), any.clone()).prop_map(|(a, b)| format!("({a} + {b})")),
        1 => (prop::sample::select(vec!["-", "int", "double", "string", "size", "uint"]), any)
            .prop_map(|(name, a)| format!("{name}({a})")),
    ]
    .boxed();
    let comparison = prop::sample::select(vec!["==", "==", "!=", "<", "<=", ">", ">=", "in"]);
    let leaf = prop_oneof![
        5 => (computed.clone(), comparison, computed).prop_map(|(a, sign, b)| format!("({a} {sign} {b})")),
        1 => prop::sample::select(vec!["true", "false", "state.ok", "has(state.ok)", "has(state.m.b)", "has(state.nil.b)"])
            .prop_map(str::to_owned),
        1 => prop::sample::select(vec!["contains", "startsWith", "endsWith", "matches"])
            .prop_map(|name| format!("state.s.{name}('a')")),
    ]
    .boxed();
    leaf.prop_recursive(4, 12, 3, move |inner| {
        let body = prop_oneof![
            3 => inner.clone().prop_map(|body| format!("{body} || x == 1")),
            2 => prop::sample::select(vec!["x > 0", "x == state.n", "x.id == 'a'", "1 / x == 1", "x in state.list", "x"])
                .prop_map(str::to_owned),
        ]
        .boxed();
        prop_oneof![
            (inner.clone(), prop::sample::select(vec!["&&", "||", "=="]), inner.clone())
                .prop_map(|(a, sign, b)| format!("({a} {sign} {b})")),
            inner.clone().prop_map(|a| format!("!{a}")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            (list.clone(), prop::sample::select(vec!["all", "exists", "exists_one"]), body)
                .prop_map(|(range, name, body)| format!("{range}.{name}(x, {body})")),
        ]
        // A loop variable is only in scope in its body, and an inner loop may not reuse its name.
        .prop_filter("loops inside loops", |source| source.matches("(x, ").count() < 2)
    })
}

fn states() -> impl Strategy<Value = Value> {
    let list =
        prop::collection::vec(prop_oneof![(-2_i64..3).prop_map(Value::from), Just(json!(1.0)), Just(json!("a"))], 0..4);
    (-2_i64..3, prop_oneof![Just(json!(1.5)), Just(json!(2))], list, any::<bool>()).prop_map(|(n, x, list, ok)| {
        let tasks = json!([{"id": "a", "done": ok}, {"id": "b"}]);
        json!({"n": n, "x": x, "s": "ab", "list": list, "ok": ok, "tasks": tasks, "m": {"a": n}, "nil": null})
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_crates_own_evaluator_agrees(source in sources(), state in states()) {
        // The crate joins only values of equal type.
        let Ok(expr) = Expr::compile_in(Dialect::Strict, &source, &NAMES) else {
            return Err(TestCaseError::reject("not for us"));
        };
        let ours = evaluated(&expr, &[("state", &state)]);
        prop_assert_eq!(ours.as_ref().ok().copied(), oracle(&source, &state), "{} over {}: {:?}", source, state, ours);
        prop_assert_eq!(ours, evaluated(&expr, &[("state", &state)]));
    }

    #[test]
    fn values_outside_the_references_leave_the_result_unchanged(source in sources(), state in states()) {
        let Ok(expr) = Expr::compile(&source, &NAMES) else {
            return Err(TestCaseError::reject("not for us"));
        };
        let mut other = state.clone();
        let members = other.as_object_mut().expect("the state is an object");
        let referenced: Vec<&str> =
            expr.references().iter().filter_map(|reference| reference.path.first().map(String::as_str)).collect();
        members.retain(|name, _| referenced.contains(&name.as_str()));
        members.insert("unrelated".to_owned(), json!([1]));
        let over = |value: &Value| evaluated(&expr, &[("state", value)]);
        prop_assert_eq!(over(&state), over(&other));
    }
}

/// Generates pieces of CEL in any order: mostly invalid, but closer to expressions than random text.
pub(super) fn scraps() -> impl Strategy<Value = String> {
    let scrap = prop::sample::select(vec![
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".",
        ",",
        ":",
        "?",
        "!",
        "-",
        "+",
        "*",
        "/",
        "%",
        "&&",
        "||",
        "==",
        "!=",
        "<",
        "in",
        "state",
        "self",
        "x",
        "a",
        "has(",
        "size(",
        ".all(x, ",
        ".exists(",
        ".map(x, ",
        "1",
        "1.5e3",
        "0x1F",
        "7u",
        "'s'",
        "\"",
        "'",
        "'''",
        "r'",
        "b'",
        "\\",
        "true",
        "null",
        " ",
        "\n",
        "//",
        ".?",
        "[?",
        "`",
        "é",
        "@",
        "$",
        "_",
        "#",
        "1e999",
        "99999999999999999999",
        "'\\x'",
        "'\\uD800'",
        "'\\777'",
        "'\\U00110000'",
        "loop",
        "namespace",
        "..",
        "1.",
        ".5",
    ]);
    prop::collection::vec(scrap, 0..30).prop_map(|scraps| scraps.concat())
}

#[test]
fn no_text_panics_or_overflows_a_small_stack() {
    on_two_mebibytes(|| {
        let state = json!({"a": [1, "x", null], "x": {"y": 1.5}});
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(3000));
        let noise =
            prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let ascii = "[ -~]{0,80}";
        let texts = prop_oneof![3 => scraps(), 1 => noise, 1 => ascii];
        runner
            .run(&texts, |source| {
                match Expr::compile(&source, &NAMES) {
                    Ok(expr) => drop(evaluated(&expr, &[("state", &state), ("self", &state)])),
                    Err(error) => {
                        prop_assert!(error.offset.is_none_or(|at| source.is_char_boundary(at)), "{:?}", error)
                    }
                }
                Ok(())
            })
            .expect("every text is read or refused");
    });
}
