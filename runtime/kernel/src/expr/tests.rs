//! Expressions: their meaning, their rejections, and agreement with the evaluator of the `cel` crate.

mod oracle;
mod parser;

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::digest::{Hasher, Salt};

const NAMES: [&str; 7] = ["request", "state", "event", "value", "self", "before", "patch"];

fn compiled(source: &str) -> Expr {
    Expr::compile(source, &NAMES).unwrap_or_else(|error| panic!("{source}: {error}"))
}

/// Evaluates over values, over trees and over a mix of both; all must yield the same result in the same number of
/// steps.
fn evaluated(expr: &Expr, given: &[(&'static str, &Value)]) -> Result<bool, EvalError> {
    let edit = tree::Edit { revision: 0, hasher: Arc::new(Hasher::new(&Salt([7; 32]))) };
    let trees: Vec<tree::Node> = given.iter().map(|(_, value)| tree::Node::from_value(value, &edit)).collect();
    let over = |is_tree: &dyn Fn(usize) -> bool| {
        let variables = given.iter().zip(&trees).enumerate().map(|(index, ((name, value), tree))| {
            (*name, if is_tree(index) { Variable::from(tree) } else { Variable::from(*value) })
        });
        let mut allowance = Allowance::new();
        let verdict = expr.evaluate_within(&variables.collect(), &mut allowance);
        (verdict, allowance.0.left())
    };
    let verdict = over(&|_| false);
    for (form, other) in
        [("trees", over(&|_| true)), ("even", over(&|at| at % 2 == 0)), ("odd", over(&|at| at % 2 == 1))]
    {
        assert_eq!(verdict, other, "values and {form} differ: {}", expr.source());
    }
    verdict.0
}

fn verdict(source: &str, name: &'static str, value: &Value) -> Result<bool, EvalError> {
    evaluated(&compiled(source), &[(name, value)])
}

fn check(value: &Value, cases: &[(&str, bool)]) {
    for (source, expected) in cases {
        assert_eq!(verdict(source, "state", value), Ok(*expected), "{source}");
    }
}

fn check_errors(value: &Value, cases: &[(&str, &str)]) {
    for (source, expected) in cases {
        assert_eq!(verdict(source, "state", value), Err(EvalError((*expected).to_owned())), "{source}");
    }
}

fn refused(source: &str) -> CompileError {
    Expr::compile(source, &NAMES).expect_err(source)
}

/// Runs on a stack as large as that of a test thread or a tokio worker.
fn on_two_mebibytes(body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(body).expect("a thread starts");
    thread.join().expect("the thread ends well");
}

#[test]
fn an_invariant_reads_self() {
    let invariant = r#"self.status != "verified" || size(self.evidence) > 0"#;
    for (claim, expected) in [
        (json!({"status": "draft", "evidence": []}), true),
        (json!({"status": "verified", "evidence": []}), false),
        (json!({"status": "verified", "evidence": ["/sources/0"]}), true),
        (json!({"status": "draft"}), true),
    ] {
        assert_eq!(verdict(invariant, "self", &claim), Ok(expected), "{claim}");
    }
    let missing = verdict(invariant, "self", &json!({"status": "verified"}));
    assert_eq!(missing, Err(EvalError("no such member: evidence".to_owned())));
}

#[test]
fn references_among_elements_are_checked_with_three_loops() {
    let source = "state.tasks.all(t, t.deps.all(d, state.tasks.exists(u, u.id == d)))";
    let task = |id: usize, deps: &[usize]| json!({"id": format!("t{id}"), "deps": deps.iter().map(|d| format!("t{d}")).collect::<Vec<_>>()});
    let tasks: Vec<Value> = (0..100).map(|id| task(id, &[id / 2, id / 3, 99 - id])).collect();
    assert_eq!(verdict(source, "state", &json!({"tasks": tasks})), Ok(true), "a hundred tasks fit the step limit");
    assert_eq!(verdict(source, "state", &json!({"tasks": [task(0, &[7])]})), Ok(false));
    assert_eq!(refused("state.a.all(a, a.all(b, b.all(c, c.all(d, d))))").code, "cel_too_complex");
}

#[test]
fn integers_are_int_and_exact() {
    check(
        &json!({"n": 7, "big": u64::MAX, "x": 1.5, "whole": 2}),
        &[
            ("state.n + 1 == 8", true),
            ("state.n - 8 < 0", true),
            ("-state.n == -7", true),
            ("state.n / 2 == 3", true),
            ("-7 / 2 == -3 && -7 % 2 == -1", true),
            ("state.n == 7.0 && state.n < 7.5 && 7u == state.n", true),
            ("state.big > state.n && state.big - 1u > 1u", true),
            ("state.big == 18446744073709551615u", true),
            // Converted to doubles, both sides would round to the same number.
            ("9007199254740993 == 9007199254740992.0", false),
            ("9007199254740993 > 9007199254740992.0", true),
            ("-1 > -1.5 && -2 < -1.5", true),
            ("state.x * 2.0 == 3.0", true),
            ("double(state.whole) * state.x == 3.0", true),
            ("int('42') + int(2.9) + int(3u) == 47", true),
            ("uint(3) == 3u && uint('4') == 4u && uint(2.5) == 2u", true),
            ("string(12) + string(true) + string(1.5) == '12true1.5'", true),
        ],
    );
}

#[test]
fn missing_members_are_tested_with_has() {
    check(
        &json!({"a": {"b": null}, "list": [1, 2]}),
        &[
            ("has(state.a)", true),
            ("has(state.x)", false),
            ("has(state.a.b) && state.a.b == null", true),
            ("has(state.a.c)", false),
            ("!has(state.x) || state.x.y == 1", true),
            ("state.list[1] == 2", true),
            ("state['a']['b'] == null", true),
            ("'b' in state.a && !('c' in state.a) && 2 in state.list", true),
            ("size(state.a) == 1 && state.list.size() == 2 && size('äöü') == 3", true),
        ],
    );
    check_errors(
        &json!({"a": {"b": null}, "list": [1, 2], "s": "text"}),
        &[
            ("state.x.y == 1", "no such member: x"),
            ("state.a.b.c == 1", "null has no member c"),
            ("has(state.a.b.c)", "has() cannot be applied to null"),
            ("state.list.x == 1", "list has no member x"),
            ("state.list[2] == 1", "index out of range"),
            ("state.list[-1] == 1", "index out of range"),
            ("state.a[state.s] == 1", "no such member"),
            ("state.list['0'] == 1", "list has no member 0"),
            ("size(1) == 1", "size() cannot be applied to int"),
            ("'a' in state.s", "in cannot be applied to string and string"),
            ("state.s", "the result is string, not true or false"),
            ("request.x == 1", "request has no value here"),
        ],
    );
}

#[test]
fn arithmetic_errors_are_errors() {
    check_errors(
        &json!({"n": 7, "max": i64::MAX, "min": i64::MIN, "zero": 0}),
        &[
            ("state.n / state.zero == 1", "division by zero"),
            ("state.n % 0 == 1", "division by zero"),
            ("18446744073709551615u + 1 > 0", "the result is out of the range of its type"),
            ("state.min - 1 < 0", "the result is out of the range of its type"),
            ("-18446744073709551615u < 0", "the result is out of the range of its type"),
            ("state.max * 3 > 0", "the result is out of the range of its type"),
            ("int(1e300) > 0", "the result is out of the range of its type"),
            ("uint(-1) > 0u", "the result is out of the range of its type"),
            ("state.n + '1' == '71'", "+ cannot be applied to int and string"),
            ("1.0 / 0.0 > 1.0", "division by zero"),
            ("1.5 % 0 == 0", "division by zero"),
            ("1e300 * 1e300 > 1.0", "the result is out of the range of its type"),
            ("sum(['1']) == 1", "sum() cannot be applied to string"),
            ("sum(state.n) == 1", "sum() cannot be applied to int"),
            ("min([]) == 0", "min() of a list without elements"),
            ("max([1, true]) == 1", "max() cannot be applied to bool"),
            ("max([1, 'a']) == 1", "max() cannot be applied to string and int"),
            ("state.n < '8'", "< cannot be applied to int and string"),
            ("-'a' == 'b'", "- cannot be applied to string"),
            ("int('x') == 1", "int() of a text that is no integer"),
            ("double('inf') > 1.0", "double() of a text that is no number"),
        ],
    );
}

#[test]
fn logic_absorbs_errors_on_either_side() {
    check(
        &json!({"list": [0, 1, 2]}),
        &[
            ("state.nope == 1 || true", true),
            ("false && state.nope == 1", false),
            ("state.nope == 1 && false", false),
            ("state.list.exists(x, 2 / x == 1)", true),
            ("state.list.all(x, 2 / x == 2)", false),
            ("state.list.exists_one(x, x == 2)", true),
            ("state.list.filter(x, x > 0) == [1, 2]", true),
            ("state.list.map(x, x * 2) == [0, 2, 4]", true),
            ("state.list.map(x, x > 0, x * 2) == [2, 4]", true),
            ("state.list + [3] == [0, 1, 2, 3]", true),
            ("[].all(x, x) && ![].exists(x, x)", true),
            ("{'a': 1, 'b': [2]} == {'b': [2], 'a': 1}", true),
            ("{'draft': 1, 'done': 2}['done'] == 2", true),
            ("(state.list[0] == 0 ? 'yes' : 'no') == 'yes'", true),
        ],
    );
    check_errors(
        &json!({"list": [0, 1]}),
        &[
            ("state.nope == 1 || false", "no such member: nope"),
            ("state.list.all(x, 1 / x > 0)", "division by zero"),
            ("state.list.exists_one(x, 1 / x == 1)", "division by zero"),
            ("1 in {'a': 1} || null in {'a': 1}", "in cannot be applied to null and map"),
            ("{'a': 1, 'a': 2} == {}", "a map names a key twice"),
            ("{1: 2} == {}", "int cannot be the key of a map"),
        ],
    );
}

#[test]
fn texts_are_searched_and_matched() {
    check(
        &json!({"s": "claim-17"}),
        &[
            ("state.s.contains('m-1') && state.s.startsWith('cl') && state.s.endsWith('7')", true),
            (r"state.s.matches('^claim-[0-9]+$')", true),
            (r"matches(state.s, r'^\d+$')", false),
            ("state.s < 'd' && 'a' + 'b' == 'ab'", true),
            ("\"it's\" == 'it\\'s' && 'é' == '\\u00e9'", true),
        ],
    );
    assert_eq!(refused("state.s.matches(state.p)").code, "cel_bad_pattern");
    assert_eq!(refused("state.s.matches('(')").code, "cel_bad_pattern");
    assert_eq!(refused("state.s.matches('((a{1000}){1000}){1000}')").code, "cel_bad_pattern");
}

#[test]
fn forbidden_expressions_are_rejected_at_load() {
    for (source, code, offset, says) in [
        ("stat.x == 1", "cel_unknown_variable", Some(0), "request, state, event, value, self, before, patch"),
        ("true || nope", "cel_unknown_variable", Some(8), "nope"),
        (".state.x == 1", "cel_unknown_variable", Some(0), ".state"),
        ("state.ok == True", "cel_unknown_variable", Some(12), "written true"),
        ("'é' == 'é' && nope", "cel_unknown_variable", Some(16), "nope"),
        ("now() > 1", "cel_unknown_function", Some(0), "now"),
        ("timestamp('2026-01-01T00:00:00Z') == state.t", "cel_unknown_function", Some(0), "timestamp"),
        ("duration('1h') == state.t", "cel_unknown_function", Some(0), "duration"),
        ("state.s.lowerAscii() == 'a'", "cel_unknown_function", Some(8), "lowerAscii"),
        ("contains(state.s, 'a')", "cel_unknown_function", Some(0), "x.contains(y)"),
        ("size() == 1", "cel_unknown_function", Some(0), "size(x)"),
        ("state.l.all(k, k, true)", "cel_shadowed_variable", Some(15), "k"),
        ("state.l.map(k, v, v)", "cel_unknown_variable", Some(15), "v"),
        ("state.l.all(1, v, v)", "cel_syntax", Some(12), "variable"),
        ("state.l.all(state, true)", "cel_shadowed_variable", Some(12), "state"),
        ("state.l.all(x, x.all(x, x))", "cel_shadowed_variable", Some(21), "x"),
        ("state.l.all(1, true)", "cel_syntax", Some(12), "variable"),
        ("has(state)", "cel_syntax", Some(4), "member"),
        ("Claim{id: 1} == state.c", "cel_unsupported", None, "message"),
        ("state.?x == 1", "cel_syntax", None, ""),
        ("state.x ==", "cel_syntax", Some(10), "the expression ends where a value is expected"),
        ("state.x = 1", "cel_syntax", Some(8), "`==`"),
        ("state.a and state.b", "cel_syntax", Some(8), "for `and` write &&"),
        ("state.a or state.b", "cel_syntax", Some(8), "for `or` write ||"),
        ("not state.a", "cel_syntax", Some(4), "for `not` write !"),
        ("state.in == 1", "cel_syntax", Some(6), "[\"in\"]"),
        ("state.a ? 1 : 2 : 3", "cel_syntax", Some(16), "operator"),
        ("(state.a", "cel_syntax", Some(8), "`)`"),
        ("[1,, 2] == []", "cel_syntax", Some(3), "value"),
        ("'\\q' == 'q'", "cel_syntax", Some(1), "backslash"),
        ("99999999999999999999 > 1", "cel_syntax", Some(0), "invalid int"),
        ("1 + 1", "cel_not_boolean", None, "true or false"),
        ("'true'", "cel_not_boolean", None, "true or false"),
        ("state.l.map(x, x)", "cel_not_boolean", None, "true or false"),
        ("state.a ? 1 : 2", "cel_not_boolean", None, "true or false"),
    ] {
        let error = refused(source);
        assert_eq!(error.code, code, "{source}: {error}");
        assert!(error.message.contains(says), "{source}: {error}");
        if offset.is_some() {
            assert_eq!(error.offset, offset, "{source}: {error}");
        }
        assert!(error.offset.is_none_or(|at| source.is_char_boundary(at)), "{source}: {error:?}");
    }
    let error = Expr::compile("state.x == 1", &["self"]).expect_err("state is not declared");
    assert_eq!(error.message, "no variable state here; there are self");
}

#[test]
fn a_syntax_error_on_a_later_line_is_pointed_at() {
    for source in ["state.a == 1 &&\n  state.b == == 2", "state.a == 1 &&\n  'é' == == 2", "'é' == == 2"] {
        let error = refused(source);
        assert_eq!((error.code, error.offset), ("cel_syntax", source.rfind("==")), "{source}");
    }
}

#[test]
fn a_tree_is_bounded_as_it_was_written() {
    let sum = |terms: usize| format!("{} > 0", vec!["1"; terms].join("+"));
    compiled(&sum(99));
    assert_eq!(refused(&sum(101)).code, "cel_too_complex");
    let list = format!("[{}] == []", vec!["1"; 199].join(","));
    assert_eq!(refused(&list).code, "cel_too_complex");
}

#[test]
fn a_loop_over_a_map_has_its_names_or_key_and_value_in_order() {
    let state = json!({"m": {"b": {"n": 2}, "a": {"n": 1}}, "l": ["x", "y"], "n": 1});
    check(
        &state,
        &[
            ("state.m.map(k, k) == ['a', 'b']", true),
            ("state.m.all(k, state.m[k].n > 0)", true),
            ("state.m.filter(k, state.m[k].n > 1) == ['b']", true),
            ("state.m.all(k, v, v.n > 0 && k in ['a', 'b'])", true),
            ("state.m.exists(k, v, k == 'b' && v.n == 2)", true),
            ("state.m.exists_one(k, v, v.n == 2) && state.m.existsOne(k, v, v.n == 1)", true),
            ("state.m.transformList(k, v, v.n) == [1, 2]", true),
            ("state.m.transformList(k, v, v.n > 1, k) == ['b']", true),
            ("sum(state.m.transformList(k, v, v.n)) == 3", true),
            ("state.l.all(i, x, state.l[i] == x)", true),
            ("state.l.transformList(i, x, i) == [0, 1]", true),
            ("{'b': 2, 'a': 1}.all(k, v, v > 0) && {'b': 2}.map(k, k) == ['b']", true),
            ("{}.all(k, v, false) && !{}.exists(k, v, true)", true),
            ("{'b': 2, 'a': 1}.map(k, k) == ['a', 'b']", true),
            ("state.l.all(i, x, state.m.all(k, v, v.n > 0 && size(x) == 1 && i < 2))", true),
        ],
    );
    check_errors(&state, &[("state.n.all(k, true)", "cannot loop over int")]);
}

#[test]
fn numbers_are_alike_however_json_writes_them() {
    for three in [json!(3), json!(3.0), json!(3u64)] {
        check(
            &json!({"x": three, "half": 0.5, "list": [three, 1, 0.5], "big": u64::MAX}),
            &[
                ("state.x + 0.5 == 3.5 && 0.5 + state.x == 3.5", true),
                ("state.x * 1.1 * 100.0 <= 331.0", true),
                ("state.x - state.half == 2.5 && state.half - state.x == -2.5", true),
                ("state.x / 2.0 == 1.5 && 2.0 / state.x < 1", true),
                ("state.x % 2 == 1 && state.x % 2.5 == 0.5 && -state.x % 2 == -1", true),
                ("sum(state.list) == 4.5 && state.list.sum() == 4.5 && sum([]) == 0", true),
                ("min(state.list) == 0.5 && state.list.max() == 3", true),
                ("min(state.x, 2, 7.5) == 2 && max(state.x, 2) == 3", true),
                ("max(['a', 'c', 'b']) == 'c'", true),
                // Signed and unsigned integers are exact.
                ("state.big - 1 == 18446744073709551614u && state.big + -1 > 18446744073709551613u", true),
                ("9223372036854775807 + 1 == 9223372036854775808u && 2u - 3u == -1 && -1u == -1", true),
                ("sum([state.big, -1, 1]) == state.big && sum([1, -1, state.big]) == state.big", true),
            ],
        );
    }
}

#[test]
fn quotients_keep_fractions_where_the_schema_says_number() {
    let is_price = |look: &Lookup| {
        matches!(look.steps.last(), Some(LookupStep::Member(name)) if name == "price")
            || matches!(look.steps.as_slice(), [LookupStep::Member(name), LookupStep::Element | LookupStep::Any] if name == "prices")
    };
    let value = json!({"price": 7, "count": 7, "prices": [3, 4], "rows": [{"price": 7}], "by": {"a": {"price": 7}}});
    for (source, expected) in [
        ("state.price / 2 == 3.5", true),
        ("state.count / 2 == 3", true),
        ("(state.count + state.price) / 4 == 3.5", true),
        ("-state.price / 2 == -3.5", true),
        ("2 / state.price < 0.3 && 2 / state.price > 0", true),
        ("state.price / 7 == 1", true),
        ("sum(state.prices) / 2 == 3.5", true),
        ("max(state.rows.map(r, r.price)) / 2 == 3.5", true),
        ("state.rows.all(r, r.price / 2 == 3.5)", true),
        ("state.by.all(k, v, v.price / 2 == 3.5)", true),
        ("sum(state.by.transformList(k, v, v.price)) / 2 == 3.5", true),
        ("(true ? state.price : 1) / 2 == 3.5", true),
        ("state.prices.filter(p, p > 3).all(p, p / 8 == 0.5)", true),
        ("size(state.prices) / 4 == 0", true),
        ("state.price / 0 > 1 || true", true),
        ("state.rows.map(r, r.price).all(p, p / 2 == 3.5)", true),
        ("state.rows.map(r, r.price)[0] / 2 == 3.5", true),
        ("[state.price].all(p, p / 2 == 3.5) && [state.price, 1][1] / 2 == 0.5", true),
        ("(state.prices + [1]).exists(p, p / 2 == 1.5)", true),
        ("{'x': state.price}.x / 2 == 3.5", true),
        ("[state.count].all(c, c / 2 == 3) && state.rows.map(r, size(r)).all(n, n / 2 == 0)", true),
        ("[1, 2].all(i, state.rows.all(r, r.price / 2 == 3.5 && i / 2 <= 1))", true),
    ] {
        let expr = compiled(source).with_numbers(&is_price);
        assert_eq!(evaluated(&expr, &[("state", &value)]), Ok(expected), "{source}");
    }
}

#[test]
fn boards_of_earlier_formats_keep_their_arithmetic() {
    let state = json!({"m": {"a": 1}, "n": 7, "x": 1.5});
    for (source, expected) in [
        ("state.n + 1.0 == 8.0", Err("+ cannot be applied to int and double")),
        ("state.x % 1.0 == 0.5", Err("% cannot be applied to double and double")),
        ("state.x % 1 == 0", Err("% cannot be applied to double and int")),
        ("state.n + 18446744073709551615u > 0", Err("+ cannot be applied to int and uint")),
        ("1.0 / 0.0 > 1.0", Ok(true)),
        ("state.n / 2 == 3", Ok(true)),
        ("state.m.all(k, true)", Err("a loop over a map has no order; loop over a list")),
        ("[state.m].all(m, m.exists(k, true))", Err("a loop over a map has no order; loop over a list")),
    ] {
        let expr = Expr::compile_in(Dialect::Strict, source, &NAMES).expect(source).with_numbers(&|_| true);
        let expected = expected.map_err(|message| EvalError(message.to_owned()));
        assert_eq!(evaluated(&expr, &[("state", &state)]), expected, "{source}");
    }
}

#[test]
fn a_loop_may_take_a_name_that_is_younger_than_it() {
    let names = [NAMES.as_slice(), &["key", "old"]].concat();
    let expr =
        Expr::compile("state.l.all(key, key > 0) && state.l.exists(old, old == 2)", &names).expect("it compiles");
    assert_eq!(evaluated(&expr, &[("state", &json!({"l": [1, 2]}))]), Ok(true));
}

#[test]
fn references_are_minimal_and_as_long_as_they_are_static() {
    for (source, expected) in [
        ("has(state.answer)", "state/answer"),
        ("state.answer.text == request.question", "request/question state/answer/text"),
        ("state.tasks.all(t, t.deps.all(d, state.tasks.exists(u, u.id == d)))", "state/tasks"),
        ("state.tasks[0].id == state['a/b'].c", "state/a/b/c state/tasks"),
        ("state.m[event.path] == 1", "event/path state/m"),
        ("state.a.b == 1 || state.a == null || state.ab", "state/a state/ab"),
        ("before != state", "before state"),
        ("size(self.evidence) > 0", "self/evidence"),
        ("[1].all(x, x > 0)", ""),
    ] {
        let expr = compiled(source);
        let found: Vec<String> = expr
            .references()
            .iter()
            .map(|reference| [&[reference.variable.to_owned()], reference.path.as_slice()].concat().join("/"))
            .collect();
        assert_eq!(found.join(" "), expected, "{source}");
        assert_eq!(expr.uses("state"), expected.contains("state"), "{source}");
        assert_eq!(expr.source(), source);
    }
}

#[test]
fn the_step_limit_is_a_count_and_nothing_absorbs_it() {
    let list: Vec<usize> = (0..2000).collect();
    let state = json!({"l": list, "s": "x".repeat(4_000_000)});
    let exhausted = Err(EvalError("the evaluation takes more than 1000000 steps".to_owned()));
    for source in [
        "state.l.all(a, state.l.all(b, a + b >= 0))",
        "state.l.all(a, state.l.all(b, a + b >= 0)) || true",
        "state.l.exists(a, state.l.all(b, a + b >= 0) && false)",
        "state.l.all(a, state.l == state.l)",
        "state.l.all(a, size(state.l + state.l) > 0)",
        "state.l.all(a, -1 in state.l || true)",
        "state.l.exists(a, state.s.contains('y'))",
        "state.l.exists(a, state.s + 'y' == state.s)",
        "state.l.exists(a, state.s.matches('y'))",
        "state.l.exists(a, size(state.s) == a)",
    ] {
        assert_eq!(verdict(source, "state", &state), exhausted, "{source}");
    }
    // The result depends on a single step, identically on every machine.
    let expr = compiled("1 == 1");
    let variables = Variables::new();
    assert!(matches!(
        eval::evaluate(&expr.node, &variables, Dialect::Plain, &mut Meter::new(3)),
        Err(EvalAbort::Exhausted)
    ));
    assert!(matches!(eval::evaluate(&expr.node, &variables, Dialect::Plain, &mut Meter::new(4)), Ok(true)));
}

#[test]
fn long_names_and_patterns_of_many_states_cost_steps() {
    let list: Vec<usize> = (0..2000).collect();
    let (long, longer) = ("x".repeat(100_000) + "y", "x".repeat(100_000) + "z");
    let many: Value = (0..100).map(|at| (format!("k{at}"), json!(at))).collect::<serde_json::Map<_, _>>().into();
    let state = json!({"l": list, "long": long, "longer": longer, "many": many, "ab": "ab".repeat(10_000), "s": "ab"});
    let exhausted = Err(EvalError("the evaluation takes more than 1000000 steps".to_owned()));
    for source in [
        "state.l.all(a, !(state.long in state.many))",
        "state.l.exists(a, state.many[state.long] == 1)",
        "state.l.all(a, size({state.long: 1, state.longer: 2}) == 2)",
        "state.l.all(a, {state.long: 1} != {state.longer: 1})",
        "state.l.exists(a, state.ab.matches('(a|b)*a(a|b){900}c'))",
    ] {
        assert_eq!(verdict(source, "state", &state), exhausted, "{source}");
    }
    // Unicode classes are large and fast, and short texts are cheap.
    for source in [
        r"state.l.all(a, state.s.matches(r'^\w+$'))",
        "state.l.all(a, !state.s.matches('(a|b)*a(a|b){900}c'))",
        "state.l.all(a, !(state.s in state.many) && size({'a': 1, 'b': 2}) == 2)",
    ] {
        assert_eq!(verdict(source, "state", &state), Ok(true), "{source}");
    }
}

#[test]
fn messages_hold_no_values() {
    let state = json!({"secret": "hunter2", "list": ["hunter2"], "n": 4711});
    for source in [
        "state.list[state.n] == 1",
        "state[state.secret] == 1",
        "state.secret + state.n == 1",
        "int(state.secret) == 1",
        "state.secret",
        "state.secret.x == 1",
        "{state.secret: 1, 'hunter2': 2} == {}",
    ] {
        let EvalError(message) = verdict(source, "state", &state).expect_err(source);
        assert!(!message.contains("hunter2") && !message.contains("4711"), "{source}: {message}");
    }
}

#[test]
fn the_deepest_expressions_that_are_let_through_fit_a_small_stack() {
    on_two_mebibytes(|| {
        let deep = token::NESTING_MAX - 1;
        let state = json!({"a": true});
        for source in [
            format!("{}true{}", "(".repeat(deep), ")".repeat(deep)),
            format!("{}1{} == []", "[".repeat(deep), "]".repeat(deep)),
            format!("{}1{} == {{}}", "{'a': ".repeat(deep), "}".repeat(deep)),
            format!("{}true{}", "!(".repeat(deep), ")".repeat(deep)),
            format!("{}true", "true ? true : ".repeat(deep)),
            format!("{}1{} == 1", "size([".repeat(deep / 2), "])".repeat(deep / 2)),
            format!("{}true", "!".repeat(token::TOKENS_MAX - 1)),
            format!("{}1 < 0", "-".repeat(token::TOKENS_MAX - 3)),
            format!("{}1 > 0", "1 + ".repeat(98)),
            format!("{}true", "true && ".repeat(99)),
            format!("{}true", "true == ".repeat(99)),
            format!("has(state{})", ".b".repeat(198)),
            format!("[1]{} == 1", "[0]".repeat(97)),
            format!("[state]{} == 1", ".b".repeat(190)),
        ] {
            let compiled = compiled(&source);
            drop(evaluated(&compiled, &[("state", &state)]));
            // Parsing must also fit for sources that are rejected later by their tree.
            drop(Expr::compile(&source.replace("true", "nope"), &NAMES));
        }
        for source in [
            vec!["1"; 200].join("+"),
            vec!["1"; 200].join("=="),
            vec!["a"; 200].join("&&"),
            vec!["a"; 200].join("."),
            format!("a{}", "[0]".repeat(133)),
            format!("a{}", ".b()".repeat(99)),
            vec!["1"; 198].join("?"),
            vec!["("; 24].join(" "),
        ] {
            drop(Expr::compile(&source, &NAMES).map(|_| ()).expect_err(&source));
        }
    });
}

/// Returns a document with containers that exceed a single tree node.
fn wide(members: usize) -> Value {
    let object: serde_json::Map<_, _> = (0..members).map(|n| (format!("k{n}"), json!([n, {"n": n}]))).collect();
    json!({"list": (0..members).collect::<Vec<_>>(), "object": object, "long": "x".repeat(members)})
}

#[test]
fn a_tree_and_a_value_are_one_to_an_expression() {
    for members in [0, 1, 16, 17, 32, 33, 300] {
        let (a, mut b) = (wide(members), wide(members));
        for source in [
            "state == before && before == state && state.object == before.object",
            "state.list == before.list && [state, before] == [before, state]",
            "{'a': state} == {'a': before} && {'a': 1} != state",
            "state.list.all(x, x in before.list) && !(-1 in state.list)",
            "state.list.all(x, before.list[x] == state.list[x] && state.list[double(x)] == x)",
            "state.list.all(x, 'k' + string(x) in state.object && before.object['k' + string(x)][0] == x)",
            "size(state.list) == size(state.object) && size(state.long) == size(before.list)",
            "state.list + before.list == before.list + state.list",
            "state.list.filter(x, x > 3) == before.list.filter(x, x > 3) && state.list.map(x, x) == before.list",
            "!(1 in state.object) && !(true in before.object) && !(1.5 in state.object)",
        ] {
            let verdict = evaluated(&compiled(source), &[("before", &a), ("state", &b)]);
            assert_eq!(verdict, Ok(true), "{members}: {source}");
        }
        // Both forms stop at the first difference, wherever it is.
        for at in [0, 7, members / 2, members.saturating_sub(1)].into_iter().filter(|at| *at < members) {
            b["object"][format!("k{at}")][1]["n"] = json!("other");
            b["list"][at] = json!(-1);
            for source in ["state == before", "before.object == state.object", "state.list == before.list"] {
                let verdict = evaluated(&compiled(source), &[("before", &a), ("state", &b)]);
                assert_eq!(verdict, Ok(false), "{members}: {source}");
            }
            let object = b["object"].as_object_mut().expect("an object");
            object.remove(&format!("k{at}"));
            object.insert(format!("k{at}'"), json!(1));
            let verdict = evaluated(&compiled("before == state"), &[("before", &a), ("state", &b)]);
            assert_eq!(verdict, Ok(false), "{members}");
            b = wide(members);
        }
    }
}

#[test]
fn deeply_nested_values_are_not_compared_forever() {
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let state = json!({"a": deep, "b": deep});
    check_errors(&state, &[("state.a == state.b", "values nested too deeply to compare")]);
}
