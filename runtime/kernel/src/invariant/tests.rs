//! Evaluation of invariants: selective evaluation yields the same verdicts as full evaluation.

mod differential;

use std::sync::Arc;

use jsonptr::PointerBuf;
use serde_json::json;

use super::*;
use crate::blueprint;
use crate::digest::{Hasher, Salt};
use crate::expressions::{ExpressionCompiler, ExpressionOwner};
use crate::pattern::PathSyntax;
use crate::pattern::Pattern;
use crate::tree::{Edit, Revision};

fn edit(at: Revision) -> Edit {
    Edit { revision: at, hasher: Arc::new(Hasher::new(&Salt([7; 32]))) }
}

fn place(text: &str) -> PointerBuf {
    PointerBuf::parse(text).expect("a pointer")
}

/// Compiles an invariant; an empty `each` means one without `for`.
fn invariant(each: &str, expr: &str) -> Invariant {
    let each = (!each.is_empty()).then(|| each.to_owned());
    let written = blueprint::Invariant { name: "holds".to_owned(), each, expr: expr.to_owned(), message: None };
    let compiled = ExpressionCompiler::new(PathSyntax::Plain).compile(expr, ExpressionOwner::Invariant(&written));
    let expr = compiled.unwrap_or_else(|error| panic!("{expr}: {error}"));
    let each = written.each.map(|each| Pattern::parse(&each).expect("a pattern"));
    Invariant { name: written.name, each, expr, message: written.message }
}

/// Checks a candidate in which no element was shifted.
fn checked<'i>(
    invariants: impl IntoIterator<Item = &'i Invariant>,
    before: &Node,
    candidate: &ChangesSince<'_>,
) -> Vec<Violation> {
    checked_up_to(invariants, before, candidate, &json!([]), INSTANCES_MAX)
}

fn checked_up_to<'i>(
    invariants: impl IntoIterator<Item = &'i Invariant>,
    before: &Node,
    candidate: &ChangesSince<'_>,
    patch: &Value,
    max: usize,
) -> Vec<Violation> {
    let stood = |place: &Pointer| Some(place.to_buf());
    let change = Change { before, candidate: *candidate, patch, request: None, original_place: &stood };
    check_up_to(invariants, &change, max, &mut Allowance::new())
}

/// Returns the places for which an invariant is evaluated after `change` has modified a document as version 1.
fn evaluated(invariant: &Invariant, before: &Value, change: impl Fn(&mut Node, &Edit)) -> Vec<String> {
    let mut tree = Node::from_value(before, &edit(0));
    change(&mut tree, &edit(1));
    let due = due(invariant, &ChangesSince::new(&tree, 0, 0), INSTANCES_MAX);
    assert!(due.is_all);
    due.instances.into_iter().map(|instance| instance.place.to_string()).collect()
}

fn put(at: &str, value: Value) -> impl Fn(&mut Node, &Edit) {
    move |tree, edit| {
        let (at, node) = (place(at), Node::from_value(&value, edit));
        match tree.get(&at) {
            Some(_) => tree.replace(&at, node, edit),
            None => tree.insert(&at, node, edit),
        }
    }
}

fn take(at: &str) -> impl Fn(&mut Node, &Edit) {
    move |tree, edit| drop(tree.remove(&place(at), edit))
}

fn inserted(at: &str, value: Value) -> impl Fn(&mut Node, &Edit) {
    move |tree, edit| tree.insert(&place(at), Node::from_value(&value, edit), edit)
}

#[test]
fn an_invariant_is_evaluated_when_what_it_refers_to_is_touched() {
    let before = json!({"request": {"n": 1, "tags": []}, "a": {"b": {"c": 1}, "d": 2}, "l": [1, 2], "gone": 1});
    let once = |expr: &str, change: &dyn Fn(&mut Node, &Edit)| {
        !evaluated(&invariant("", expr), &before, |tree, edit| change(tree, edit)).is_empty()
    };
    let (yes, no) = (true, false);
    for (expr, change, expected) in [
        ("state.a.b.c == 1", &put("/a/b/c", json!(2)) as &dyn Fn(&mut Node, &Edit), yes),
        ("state.a.b.c == 1", &put("/a/b", json!(2)), yes),
        ("state.a.b.c == 1", &put("/a", json!({})), yes),
        ("state.a.b.c == 1", &put("/a/d", json!(2)), no),
        ("state.a.b.c == 1", &put("/a/b/other", json!(2)), no),
        ("state.a.b.c == 1", &take("/a/b"), yes),
        ("state.a.b.c == 1", &take("/a/b/c"), yes),
        ("state.a.b.c == 1", &take("/a/d"), no),
        ("state.a == state", &put("/gone", json!(2)), yes),
        ("size(state.a) == 2", &put("/a/b/c", json!(2)), yes),
        ("has(state.gone)", &take("/gone"), yes),
        ("has(state.new)", &put("/new", json!(null)), yes),
        ("has(state.new)", &put("/newer", json!(null)), no),
        ("has(state.l.x) || true", &put("/l/0", json!(0)), no),
        ("has(state.l.x) || true", &put("/l", json!({"x": 1})), yes),
        ("state.l[0] == 1", &put("/l/1", json!(0)), yes),
        ("state.l[0] == 1", &take("/l/1"), yes),
        ("request.n == 1", &put("/request/n", json!(1)), yes),
        ("request.n == 1", &put("/request/tags", json!(1)), no),
        ("request == null", &take("/request"), yes),
        ("before.gone == 1", &put("/l/1", json!(0)), yes),
        ("size(patch) == 1", &put("/l/1", json!(0)), yes),
        ("[1].all(x, x > 0)", &put("/l/1", json!(0)), no),
    ] {
        assert_eq!(once(expr, change), expected, "{expr}");
    }
}

#[test]
fn instances_are_evaluated_when_they_are_touched_or_new() {
    let task = |n: usize| json!({"n": n, "deps": [1, 2]});
    let before = json!({"tasks": [task(0), task(1), task(2)], "m": {"a": {"n": 1}, "b": {}}, "evidence": [1]});
    let own = invariant("/tasks/*", "self.n < 9");
    let all: &[&str] = &["/tasks/0", "/tasks/1", "/tasks/2"];
    assert_eq!(evaluated(&own, &before, put("/tasks/1/n", json!(3))), ["/tasks/1"]);
    assert_eq!(evaluated(&own, &before, put("/tasks/1", json!(3))), ["/tasks/1"]);
    assert_eq!(evaluated(&own, &before, put("/tasks/1/deps/0", json!(3))), [""; 0], "nobody asks for that");
    assert_eq!(evaluated(&own, &before, put("/tasks/-", json!(3))), ["/tasks/3"]);
    assert_eq!(evaluated(&own, &before, put("/evidence/-", json!(3))), [""; 0]);
    assert_eq!(evaluated(&own, &before, put("/tasks", before["tasks"].clone())), all);
    assert_eq!(evaluated(&own, &before, take("/tasks/0")), [""; 0], "the others only moved");
    assert_eq!(evaluated(&own, &before, inserted("/tasks/0", json!(3))), ["/tasks/0"], "the others only moved");

    let first = invariant("/tasks/0", "self.n < 9");
    assert_eq!(evaluated(&first, &before, take("/tasks/0")), ["/tasks/0"], "another one is the first now");
    assert_eq!(evaluated(&first, &before, take("/tasks/1")), [""; 0]);
    let seconds = invariant("/**/1/**", "self != 9");
    let below = ["/tasks/1", "/tasks/1/deps", "/tasks/1/deps/0", "/tasks/1/deps/1", "/tasks/1/n"];
    assert_eq!(evaluated(&seconds, &before, take("/tasks/0")), below);
    assert_eq!(evaluated(&seconds, &before, put("/tasks/2/deps/1", json!(3))), ["/tasks/2/deps/1"]);
    let touched_and_moved = |tree: &mut Node, edit: &Edit| {
        put("/tasks/2/n", json!(3))(tree, edit);
        take("/tasks/0")(tree, edit);
    };
    assert_eq!(evaluated(&seconds, &before, touched_and_moved), below);

    let shared = invariant("/tasks/*", "self.n in state.evidence || self.n < 9");
    assert_eq!(evaluated(&shared, &before, put("/evidence/-", json!(3))), all);
    assert_eq!(evaluated(&shared, &before, put("/tasks/2/n", json!(3))), ["/tasks/2"]);
    assert_eq!(shared_references(&shared.expr).map(|one| one.path.join("/")).collect::<Vec<_>>(), ["evidence"]);
    assert_eq!(shared_references(&own.expr).count(), 0);
    let outside = invariant("/tasks/*", "state.evidence == [1]");
    assert_eq!(evaluated(&outside, &before, put("/tasks/-", json!(3))), ["/tasks/3"], "it was asked for the others");
    assert_eq!(evaluated(&outside, &before, put("/tasks/1/n", json!(3))), [""; 0]);
    let ever = invariant("/tasks/*", "self != before.tasks[0]");
    assert_eq!(evaluated(&ever, &before, put("/m/a/n", json!(3))), all);

    let deep = invariant("/m/**", "self != 9");
    assert_eq!(evaluated(&deep, &before, put("/m/a/n", json!(3))), ["/m", "/m/a", "/m/a/n"]);
    assert_eq!(evaluated(&deep, &before, put("/m/b/x", json!({"y": 1}))), ["/m", "/m/b", "/m/b/x", "/m/b/x/y"]);
}

#[test]
fn a_replaced_root_counts_as_changed() {
    let mut tree = Node::from_value(&json!({"old": {"a": 1}, "a": 0}), &edit(0));
    let old = tree.get(&place("/old")).expect("it is there").clone();
    tree.replace(&place(""), old, &edit(1));
    tree.insert(&place("/b"), Node::Null, &edit(1));
    let one = [invariant("", "state.a == 0")];
    assert_eq!(checked(&one, &tree, &ChangesSince::new(&tree, 1, 0)).len(), 1);
    assert_eq!(checked(&one, &tree, &ChangesSince::new(&tree, 1, 1)).len(), 0, "it is not asked again");
}

#[test]
fn violations_say_which_invariant_and_where() {
    let state = json!({"tasks": [{"n": 1}, {"n": 7}, {}], "limit": 3});
    let tree = Node::from_value(&state, &edit(0));
    let with_message = |message: &str, invariant| Invariant { message: Some(message.to_owned()), ..invariant };
    let invariants = [
        invariant("/tasks/*", "self.n < state.limit"),
        with_message("raise the limit", invariant("", "state.limit > 3")),
        with_message("give it", invariant("/tasks/*", "self.m > 3")),
    ];
    let violations = check_whole(&invariants, &tree);
    let found: Vec<_> =
        violations.iter().map(|it| (it.pointer.as_str(), it.message.as_str(), it.found.clone())).collect();
    let expected = [
        ("/tasks/1", "holds does not hold: self.n < state.limit", None),
        ("/tasks/2", "holds cannot be evaluated: self.n < state.limit", Some(json!("no such member: n"))),
        ("", "holds does not hold: raise the limit (state.limit > 3)", None),
        ("/tasks/0", "holds cannot be evaluated: self.m > 3", Some(json!("no such member: m"))),
        ("/tasks/1", "holds cannot be evaluated: self.m > 3", Some(json!("no such member: m"))),
        ("/tasks/2", "holds cannot be evaluated: self.m > 3", Some(json!("no such member: m"))),
    ];
    assert_eq!(found, expected);
    assert!(violations.iter().all(|it| it.code == Code::InvariantViolated && it.rule.as_deref() == Some("holds")));
    assert_eq!(check_whole(&[invariant("", "[1].all(x, x > 1)")], &tree).len(), 1, "also what refers to nothing");
    let bad = Node::from_value(&json!({"tasks": vec![json!({"n": 9}); 50], "limit": 3}), &edit(0));
    assert_eq!(check_whole(&invariants, &bad).len(), VIOLATIONS_MAX);
}

#[test]
fn an_invariant_with_too_many_instances_is_violated() {
    let invariants = [invariant("/xs/*", "self > 0")];
    let mut tree = Node::from_value(&json!({"xs": [1, 2, 3]}), &edit(0));
    let messages = |tree: &Node, candidate: &ChangesSince<'_>, max| {
        let violations = checked_up_to(&invariants, tree, candidate, &json!([]), max);
        violations.into_iter().map(|violation| violation.message).collect::<Vec<_>>()
    };
    assert_eq!(messages(&tree, &ChangesSince::all_changed(&tree), 4), [""; 0]);
    let too_many = ["holds has too many instances: fewer than 3 can be checked"];
    assert_eq!(messages(&tree, &ChangesSince::all_changed(&tree), 3), too_many);
    tree.insert(&place("/xs/-"), Node::from_value(&json!(4), &edit(1)), &edit(1));
    assert_eq!(messages(&tree, &ChangesSince::new(&tree, 0, 0), 3), [""; 0], "only what is evaluated counts");
}

#[test]
fn evaluations_share_their_steps_only_among_what_is_evaluated() {
    let costly = "state.xs.all(a, state.xs.all(b, a + b >= 0))";
    let invariants: Vec<_> = (0..16).map(|_| invariant("", costly)).chain([invariant("", "state.y == 1")]).collect();
    let mut tree = Node::from_value(&json!({"xs": (0..400).collect::<Vec<_>>(), "y": 1}), &edit(0));
    let violations = check_whole(&invariants, &tree);
    let found = violations.last().and_then(|violation| violation.found.clone());
    assert_eq!(found, Some(json!("this and the evaluations before it take more than 10000000 steps")));
    tree.replace(&place("/y"), Node::from_value(&json!(1), &edit(1)), &edit(1));
    assert_eq!(checked(&invariants, &tree, &ChangesSince::new(&tree, 0, 0)).len(), 0);
}

#[test]
fn done_is_asked_when_what_it_looks_at_changed() {
    let done =
        ExpressionCompiler::new(PathSyntax::Plain).compile("state.answer.score > request.least", ExpressionOwner::Done);
    let done = done.expect("an expression");
    let mut tree = Node::from_value(&json!({"request": {"least": 3}, "notes": []}), &edit(0));
    assert!(may_be_done(&done, &ChangesSince::all_changed(&tree)));
    for (at, to, value, expected) in [
        (1, "/notes/-", json!("a note"), false),
        (2, "/answer", json!({"text": "", "score": 1}), true),
        (3, "/answer/text", json!("longer"), false),
        (4, "/answer/score", json!(5), true),
        (5, "/request/least", json!(4), true),
        (6, "/notes/0", json!("another"), false),
    ] {
        put(to, value)(&mut tree, &edit(at));
        assert_eq!(may_be_done(&done, &ChangesSince::new(&tree, 0, at - 1)), expected, "{to}");
    }
    tree.remove(&place("/answer"), &edit(7));
    assert!(may_be_done(&done, &ChangesSince::new(&tree, 0, 6)));
    assert!(!may_be_done(&done, &ChangesSince::new(&tree, 0, 7)));
}

#[test]
fn the_cost_is_that_of_what_was_touched() {
    let tasks: Vec<Value> = (0..20_000).map(|n| json!({"n": n, "deps": [n]})).collect();
    let members: serde_json::Map<_, _> = (0..20_000).map(|n| (format!("k{n}"), json!({"n": n}))).collect();
    let mut tree = Node::from_value(&json!({"tasks": tasks, "index": members}), &edit(0));
    let invariants = [
        invariant("/tasks/*", "self.n >= 0"),
        invariant("/**/n", "self >= 0"),
        invariant("/index/*", "self.n >= 0"),
        invariant("/index/k77/n", "self >= 0"),
    ];
    let count = |tree: &Node, version| -> Vec<usize> {
        let due = invariants.iter().map(|one| due(one, &ChangesSince::new(tree, 0, version), INSTANCES_MAX));
        due.map(|due| due.instances.len()).collect()
    };
    put("/tasks/9000/n", json!(1))(&mut tree, &edit(1));
    assert_eq!(count(&tree, 0), [1, 1, 0, 0]);
    put("/index/k77/n", json!(1))(&mut tree, &edit(2));
    assert_eq!(count(&tree, 1), [0, 1, 1, 1]);
    put("/tasks/-", json!({"n": 1}))(&mut tree, &edit(3));
    assert_eq!(count(&tree, 2), [1, 1, 0, 0]);
    take("/tasks/10")(&mut tree, &edit(4));
    assert_eq!(count(&tree, 3), [0, 0, 0, 0]);
    assert_eq!(count(&tree, 0), [2, 3, 1, 1], "all of it, since the beginning");
}

#[test]
fn key_is_the_token_of_the_last_wildcard() {
    let document = json!({"claims": {"c/1": {"status": "open"}}, "rows": [[1], [2, 3]]});
    let is_list = |above: &Pointer| document.pointer(above.as_str()).is_some_and(Value::is_array);
    for (pattern, at, expected) in [
        ("/claims/*", "/claims/c~11", json!("c/1")),
        ("/claims/*/status", "/claims/c~11/status", json!("c/1")),
        ("/rows/*", "/rows/1", json!(1)),
        ("/rows/*/*", "/rows/1/0", json!(0)),
        ("/rows/*/0", "/rows/1/0", json!(1)),
        ("/claims", "/claims", json!("claims")),
        ("/claims/**", "/claims/c~11/status", json!("status")),
        ("", "", json!(null)),
    ] {
        let pattern = Pattern::parse(pattern).expect("a pattern");
        assert_eq!(key(&pattern, &place(at), is_list), expected, "{pattern} at {at}");
    }
}

#[test]
fn an_element_that_is_only_moved_is_evaluated_where_its_index_is_asked_for() {
    let before = json!({"rows": [{"n": 0}, {"n": 1}, {"n": 2}]});
    let shift = inserted("/rows/1", json!({"n": 1}));
    assert_eq!(evaluated(&invariant("/rows/*", "self.n == key"), &before, &shift), ["/rows/1", "/rows/2", "/rows/3"]);
    assert_eq!(evaluated(&invariant("/rows/*", "self.n >= 0"), &before, &shift), ["/rows/1"]);
    assert_eq!(evaluated(&invariant("/rows/*", "self.n == key"), &before, put("/rows/0/n", json!(0))), ["/rows/0"]);
}

#[test]
fn old_is_what_was_there_before() {
    let forward = "old == null || old.status == self.status || (old.status == 'open' && self.status == 'done')";
    let invariants = [invariant("/tasks/*", forward)];
    let tree = Node::from_value(&json!({"tasks": {"a": {"status": "open"}, "b": {"status": "done"}}}), &edit(0));
    assert_eq!(check_whole(&invariants, &tree), [], "in the beginning it is what it was");
    let violated = |at: &str, value: Value| {
        let mut candidate = tree.clone();
        put(at, value)(&mut candidate, &edit(1));
        let violations = checked(&invariants, &tree, &ChangesSince::new(&candidate, 0, 0));
        violations.into_iter().map(|violation| violation.pointer).collect::<Vec<_>>()
    };
    assert_eq!(violated("/tasks/a/status", json!("done")), [""; 0]);
    assert_eq!(violated("/tasks/a", json!({"status": "done"})), [""; 0]);
    assert_eq!(violated("/tasks/b/status", json!("open")), ["/tasks/b"]);
    assert_eq!(violated("/tasks/b", json!({"status": "open"})), ["/tasks/b"]);
    assert_eq!(violated("/tasks/c", json!({"status": "open"})), [""; 0], "nothing was there");
    assert_eq!(violated("/tasks/b/note", json!("x")), [""; 0]);
    let only_touched = [invariant("/tasks/*", "old != self")];
    let mut candidate = tree.clone();
    put("/tasks/a/status", json!("done"))(&mut candidate, &edit(1));
    assert_eq!(checked(&only_touched, &tree, &ChangesSince::new(&candidate, 0, 0)), [], "b is not asked");
}
