//! Tests of the operations that a contract accepts, and of its violations for the others.

use serde_json::{Value, json};

use super::*;
use crate::blueprint::PatchLimits;
use crate::digest::{Hasher, Salt};
use crate::expr::Allowance;
use crate::patch::{self, Op};
use crate::pattern::PathSyntax;
use crate::rejection::{Code, Violation};
use crate::state::{Candidate, ResultLimits, State};
use crate::targets::Targets;
use crate::tree::Node;

fn contract(reads: Value, writes: Value) -> Contract {
    Contract::compile(&worker(reads, writes), &json!(true), &ExpressionCompiler::new(PathSyntax::Plain))
        .expect("the contract of a test is well-formed")
}

fn worker(reads: Value, writes: Value) -> Worker {
    serde_json::from_value(json!({"agent": "llm", "reads": reads, "writes": writes})).expect("a worker")
}

fn candidate(document: Value) -> Candidate {
    State::new(&document, &Hasher::new(&Salt([0; 32]))).candidate()
}

/// Judges the operation as number seven of its patch.
fn judge(contract: &Contract, document: &Value, operation: Value, schema: &Schema) -> Vec<Violation> {
    let patch = json!([operation]);
    let ops = patch::parse(&patch, &PatchLimits::default()).expect("a patch");
    contract.judge(7, &ops[0], &candidate(document.clone()), schema)
}

fn schema(schema: Value) -> Schema {
    Schema::compile(&schema, false).expect("a valid schema")
}

fn pointer(text: &str) -> &Pointer {
    Pointer::parse(text).expect("a pointer of a test is well-formed")
}

/// Returns the codes and pointers of an operation's violations.
fn codes(contract: &Contract, document: &Value, operation: Value) -> Vec<(Code, String)> {
    let violations = judge(contract, document, operation, &schema(json!(true)));
    violations
        .into_iter()
        .map(|violation| {
            assert_eq!(violation.op, Some(7));
            (violation.code, violation.pointer)
        })
        .collect()
}

/// Checks operations against one contract and document, each with the expected codes and pointers.
fn check(contract: &Contract, document: &Value, cases: &[(Value, &[(Code, &str)])]) {
    for (operation, expected) in cases {
        let expected = expected.iter().map(|(code, at)| (*code, (*at).to_owned())).collect::<Vec<_>>();
        assert_eq!(codes(contract, document, operation.clone()), expected, "{operation}");
    }
}

#[test]
fn writes_are_exact() {
    let contract = contract(
        json!([]),
        json!([{"path": "/claims/-", "ops": ["add"]}, {"path": "/claims/*/status"}, {"path": "/task"}, {"path": "/m/*"}]),
    );
    let document = json!({"claims": [{"status": "a", "text": "b"}], "task": 1, "tasks": 1, "m": {"-": 1}});
    let refused = |at| [(Code::PathNotGranted, at)];
    check(
        &contract,
        &document,
        &[
            (json!({"op": "add", "path": "/claims/-", "value": 1}), &[]),
            (json!({"op": "add", "path": "/claims/1", "value": 1}), &[]),
            (json!({"op": "add", "path": "/claims/0", "value": 1}), &refused("/claims/0")),
            (json!({"op": "add", "path": "/claims/2", "value": 1}), &refused("/claims/2")),
            (json!({"op": "replace", "path": "/claims/0", "value": 1}), &refused("/claims/0")),
            (json!({"op": "replace", "path": "/claims", "value": []}), &refused("/claims")),
            (json!({"op": "replace", "path": "/claims/0/status", "value": 1}), &[]),
            (json!({"op": "replace", "path": "/claims/0/status/x", "value": 1}), &refused("/claims/0/status/x")),
            (json!({"op": "replace", "path": "/claims/0/text", "value": 1}), &refused("/claims/0/text")),
            (json!({"op": "replace", "path": "/task", "value": 1}), &[]),
            (json!({"op": "replace", "path": "/tasks", "value": 1}), &refused("/tasks")),
            (json!({"op": "add", "path": "/task/x", "value": 1}), &refused("/task/x")),
            (json!({"op": "replace", "path": "/m/-", "value": 1}), &[]),
        ],
    );
}

#[test]
fn the_append_position_is_no_member_called_dash() {
    let contract = contract(json!([]), json!([{"path": "/m/-"}, {"path": "/**/-"}]));
    let document = json!({"m": {"-": 1}, "l": [1]});
    check(
        &contract,
        &document,
        &[
            (json!({"op": "add", "path": "/m/-", "value": 1}), &[(Code::PathNotGranted, "/m/-")]),
            (json!({"op": "replace", "path": "/m/-", "value": 1}), &[(Code::PathNotGranted, "/m/-")]),
            (json!({"op": "add", "path": "/l/-", "value": 1}), &[]),
            (json!({"op": "add", "path": "/l/1", "value": 1}), &[]),
            (json!({"op": "add", "path": "/l/0", "value": 1}), &[(Code::PathNotGranted, "/l/0")]),
        ],
    );
}

#[test]
fn the_whole_document_is_never_granted() {
    let every = json!(["add", "replace", "insert", "remove", "move", "copy"]);
    let contract = contract(json!([""]), json!([{"path": "/**", "ops": every}, {"path": "", "ops": every}]));
    let document = json!({"a": {"b": 1}});
    check(
        &contract,
        &document,
        &[
            (json!({"op": "add", "path": "", "value": 1}), &[(Code::PathNotGranted, "")]),
            (json!({"op": "replace", "path": "", "value": 1}), &[(Code::PathNotGranted, "")]),
            (json!({"op": "remove", "path": ""}), &[(Code::PathNotGranted, "")]),
            (json!({"op": "move", "from": "/a", "path": ""}), &[(Code::PathNotGranted, "")]),
            (json!({"op": "move", "from": "", "path": "/a"}), &[(Code::PathNotGranted, "")]),
            (json!({"op": "copy", "from": "/a", "path": ""}), &[(Code::PathNotGranted, "")]),
            (json!({"op": "copy", "from": "", "path": "/b"}), &[]),
            (json!({"op": "test", "path": "", "value": 1}), &[]),
            (json!({"op": "replace", "path": "/a", "value": 1}), &[]),
        ],
    );
}

#[test]
fn operations_are_judged_by_what_they_do() {
    let granting =
        |ops: Value| contract(json!(["/l", "/o"]), json!([{"path": "/l/*", "ops": ops}, {"path": "/o/*", "ops": ops}]));
    let document = json!({"l": [1, 2], "o": {"a": 1}});
    let (append, before) =
        (json!({"op": "add", "path": "/l/-", "value": 0}), json!({"op": "add", "path": "/l/0", "value": 0}));
    let (fresh, over) =
        (json!({"op": "add", "path": "/o/b", "value": 0}), json!({"op": "add", "path": "/o/a", "value": 0}));
    let (other, gone) = (json!({"op": "replace", "path": "/o/a", "value": 0}), json!({"op": "remove", "path": "/o/a"}));
    let (moved, moved_over) =
        (json!({"op": "move", "from": "/l/0", "path": "/o/b"}), json!({"op": "move", "from": "/l/0", "path": "/o/a"}));
    let (copied, copied_in) =
        (json!({"op": "copy", "from": "/l/0", "path": "/o/b"}), json!({"op": "copy", "from": "/o/a", "path": "/l/1"}));
    let all = [append, before, fresh, over, other, gone, moved, moved_over, copied, copied_in];
    let allowed = |ops: Value, expected: [usize; 10]| {
        let contract = granting(ops.clone());
        let allowed = all.each_ref().map(|operation| {
            let codes = codes(&contract, &document, operation.clone());
            assert!(codes.iter().all(|(code, _)| *code == Code::OpNotGranted), "{codes:?}");
            usize::from(codes.is_empty())
        });
        assert_eq!(allowed, expected, "{ops}");
    };
    allowed(json!(["add"]), [1, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    allowed(json!(["replace"]), [0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
    allowed(json!(["insert"]), [0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    allowed(json!(["remove"]), [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    allowed(json!(["move"]), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    allowed(json!(["move", "remove"]), [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    allowed(json!(["move", "add"]), [1, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    allowed(json!(["move", "remove", "add"]), [1, 0, 1, 0, 0, 1, 1, 0, 0, 0]);
    allowed(json!(["move", "remove", "replace"]), [0, 0, 0, 1, 1, 1, 0, 1, 0, 0]);
    allowed(json!(["copy"]), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    allowed(json!(["copy", "add"]), [1, 0, 1, 0, 0, 0, 0, 0, 1, 0]);
    allowed(json!(["copy", "insert"]), [0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    let both = contract(
        json!([]),
        json!([{"path": "/o/b", "ops": ["move"]}, {"path": "/o/*", "ops": ["add", "remove"]}, {"path": "/l/*", "ops": ["remove"]}]),
    );
    check(
        &both,
        &document,
        // One grant must cover both operations, because the applicable value schema would be unclear otherwise.
        &[(json!({"op": "move", "from": "/l/0", "path": "/o/b"}), &[(Code::OpNotGranted, "/o/b")])],
    );
}

#[test]
fn tests_and_copies_look_only_at_what_may_be_read() {
    let contract = contract(json!(["/open"]), json!([{"path": "/to", "ops": ["add", "copy"]}]));
    let document = json!({"open": {"a": 1}, "secret": 1, "opening": 1});
    check(
        &contract,
        &document,
        &[
            (json!({"op": "test", "path": "/open/a", "value": 1}), &[]),
            (json!({"op": "test", "path": "/secret", "value": 1}), &[(Code::PathNotGranted, "/secret")]),
            (json!({"op": "test", "path": "/opening", "value": 1}), &[(Code::PathNotGranted, "/opening")]),
            (json!({"op": "test", "path": "", "value": 1}), &[(Code::PathNotGranted, "")]),
            (json!({"op": "test", "path": "/to", "value": 1}), &[(Code::PathNotGranted, "/to")]),
            (json!({"op": "copy", "from": "/open/a", "path": "/to"}), &[]),
            (json!({"op": "copy", "from": "/secret", "path": "/to"}), &[(Code::PathNotGranted, "/secret")]),
            (
                json!({"op": "copy", "from": "/secret", "path": "/open"}),
                &[(Code::PathNotGranted, "/secret"), (Code::PathNotGranted, "/open")],
            ),
        ],
    );
}

#[test]
fn a_value_must_satisfy_the_grant_that_allows_the_operation() {
    let draft = json!({"type": "object", "required": ["text"], "properties": {"status": {"const": "draft"}}});
    let contract = contract(
        json!(["/pool"]),
        json!([
            {"path": "/claims/-", "ops": ["add", "copy", "move"], "value": draft},
            {"path": "/n", "ops": ["add"], "value": {"type": "string"}},
            {"path": "/*", "ops": ["replace"], "value": {"type": "integer"}},
            {"path": "/n", "ops": ["add"], "value": {"type": "null"}},
            {"path": "/pool/*", "ops": ["remove"]},
            {"path": "/hidden", "ops": ["remove"]},
        ]),
    );
    let document = json!({
        "claims": [],
        "pool": {"good": {"text": "a"}, "bad": {"text": "a", "status": "verified"}},
        "hidden": {"secret": 1},
    });
    let value = |at: &'static str| [(Code::ValueNotGranted, at)];
    check(
        &contract,
        &document,
        &[
            (json!({"op": "add", "path": "/claims/-", "value": {"text": "a"}}), &[]),
            (
                json!({"op": "add", "path": "/claims/-", "value": {"text": "a", "status": "verified"}}),
                &value("/claims/-"),
            ),
            (
                json!({"op": "add", "path": "/claims/0", "value": {"text": "a", "status": "verified"}}),
                &value("/claims/0"),
            ),
            (json!({"op": "copy", "from": "/pool/good", "path": "/claims/-"}), &[]),
            (json!({"op": "copy", "from": "/pool/bad", "path": "/claims/-"}), &value("/claims/-")),
            (json!({"op": "move", "from": "/pool/good", "path": "/claims/-"}), &[]),
            (json!({"op": "move", "from": "/pool/bad", "path": "/claims/-"}), &value("/claims/-")),
            (json!({"op": "add", "path": "/n", "value": "text"}), &[]),
            (json!({"op": "add", "path": "/n", "value": null}), &[]),
            (json!({"op": "add", "path": "/n", "value": 1}), &value("/n")),
            (json!({"op": "replace", "path": "/n", "value": 1}), &[]),
        ],
    );
    let judged = |operation: Value| judge(&contract, &document, operation, &schema(json!(true))).remove(0);
    let own = judged(json!({"op": "add", "path": "/claims/-", "value": {"text": "a", "status": "verified"}}));
    assert_eq!(own.message, "the grant on `/claims/-` refuses this value: at `/status` in it must be \"draft\"");
    assert_eq!(
        (own.rule.as_deref(), own.expected, own.found),
        (Some("const"), Some(json!("draft")), Some(json!("verified")))
    );
    // Values that the worker may not read stay hidden, and so do the names of their members.
    let hidden = judged(json!({"op": "move", "from": "/hidden", "path": "/claims/-"}));
    assert_eq!(hidden.message, "the grant on `/claims/-` refuses this value: it breaks `required`");
    assert_eq!(hidden.found, None);
}

#[test]
fn a_rejection_names_the_expected_operation_or_place() {
    let contract = contract(
        json!(["/a"]),
        json!([{"path": "/a/x"}, {"path": "/claims/*/status", "ops": ["replace"]}, {"path": "/claims/-", "ops": ["add"]}]),
    );
    let document = json!({"claims": [{"status": 1}]});
    let judged = |operation: Value| {
        let mut violations = judge(&contract, &document, operation, &schema(json!(true))).into_iter();
        let violation = violations.next().expect("it is refused");
        assert_eq!(violations.next(), None);
        violation
    };
    let elsewhere = judged(json!({"op": "add", "path": "/claims/0/text", "value": 1}));
    assert_eq!(elsewhere.code, Code::PathNotGranted);
    assert_eq!(elsewhere.found, Some(json!("add")));
    assert_eq!(
        elsewhere.expected,
        Some(json!([
            {"path": "/claims/*/status", "ops": ["replace"]},
            {"path": "/claims/-", "ops": ["add"]},
            {"path": "/a/x", "ops": ["add", "replace"]},
        ]))
    );
    let otherwise = judged(json!({"op": "remove", "path": "/claims/0/status"}));
    assert_eq!(otherwise.code, Code::OpNotGranted);
    assert_eq!((otherwise.found, otherwise.expected), (Some(json!("remove")), Some(json!(["replace"]))));
    let unread = judged(json!({"op": "test", "path": "/claims", "value": 1}));
    assert_eq!(unread.expected, Some(json!(["/a"])));
}

#[test]
fn a_place_that_the_schema_does_not_have_is_reported_even_where_a_grant_is_wide() {
    let contract =
        contract(json!(["/**"]), json!([{"path": "/**", "ops": ["add", "replace"], "value": {"type": "integer"}}]));
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "claims": {"type": "array", "items": {"type": "object", "properties": {"status": {}}, "additionalProperties": false}},
        },
        "additionalProperties": false,
    }));
    let document = json!({"claims": [{}]});
    let judged = |operation: Value| judge(&contract, &document, operation, &schema);
    assert_eq!(judged(json!({"op": "add", "path": "/claims/0/status", "value": 1})), []);
    assert_eq!(judged(json!({"op": "add", "path": "/claims/-", "value": 1})), []);
    let wrong = judged(json!({"op": "add", "path": "/claims/0/statsu", "value": 1}));
    assert_eq!(wrong.len(), 1);
    assert_eq!(wrong[0].code, Code::UnknownLocation);
    assert_eq!(wrong[0].message, "the schema has no `statsu` below /claims/0; did you mean `status`?");
    assert_eq!((&wrong[0].expected, &wrong[0].found), (&Some(json!(["status"])), &Some(json!("statsu"))));
    let both = judged(json!({"op": "add", "path": "/claim", "value": "text"}));
    let codes = both.iter().map(|violation| violation.code).collect::<Vec<_>>();
    assert_eq!(codes, [Code::ValueNotGranted, Code::UnknownLocation]);
    let tested = judged(json!({"op": "test", "path": "/claims/0/x", "value": 1}));
    assert_eq!(tested[0].code, Code::UnknownLocation);
}

#[test]
fn allowed_grants_are_listed_nearest_first_up_to_a_bound() {
    let mut writes = vec![
        json!({"path": "/notes/-", "ops": ["add"]}),
        json!({"path": "/claims/*/status", "ops": ["replace"], "value": {"const": "draft"}}),
        json!({"path": "/claims/-", "ops": ["add"]}),
    ];
    writes.extend((0..9).map(|at| json!({"path": format!("/other/{at}"), "ops": ["add"]})));
    let contract = contract(json!([]), Value::Array(writes));
    let schema = schema(
        json!({"properties": {"claims": {"items": {"properties": {"status": {"enum": ["draft", "verified"]}}}}}}),
    );
    let allowed = contract.allowed(&["/claims/0/text"], &schema);
    assert_eq!(allowed.len(), 8);
    assert_eq!(
        serde_json::to_value(&allowed[0]).expect("plain data"),
        json!({
            "path": "/claims/*/status", "ops": ["replace"],
            "value": {"const": "draft"}, "schema": {"enum": ["draft", "verified"]},
        })
    );
    assert_eq!(allowed[1].path, "/claims/-");
    assert_eq!(allowed[2].path, "/notes/-", "grants equally far keep the blueprint's order");
    assert_eq!(contract.allowed(&[], &schema)[0].path, "/notes/-");
    assert_eq!(contract.allowed(&["/claims/4"], &schema)[0].path, "/claims/-");
    assert_eq!(contract.allowed(&["no pointer"], &schema).len(), 8);
}

#[test]
fn value_schemas_may_use_the_definitions_of_the_state_schema() {
    let state = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"claim": {"type": "object", "required": ["text"]}},
        "$defs": {"note": {"type": "string"}},
    });
    let writes = json!([
        {"path": "/a", "value": {"$ref": "#/definitions/claim"}},
        {"path": "/b", "value": {"items": {"$ref": "#/$defs/note"}}},
        {"path": "/c", "value": {"$ref": "#/$defs/note", "$defs": {"note": {"type": "integer"}}}},
    ]);
    let contract = Contract::compile(&worker(json!([]), writes), &state, &ExpressionCompiler::new(PathSyntax::Plain))
        .expect("the definitions are found");
    let adds = |path: &str, value: Value| {
        codes(&contract, &json!({}), json!({"op": "add", "path": path, "value": value})).is_empty()
    };
    assert!(adds("/a", json!({"text": 1})) && !adds("/a", json!({})));
    assert!(adds("/b", json!(["text"])) && !adds("/b", json!([1])));
    assert!(adds("/c", json!(1)) && !adds("/c", json!("text")));
    assert_eq!(contract.allowed(&["/a"], &schema(json!(true)))[0].value, Some(json!({"$ref": "#/definitions/claim"})));
}

#[test]
fn a_contract_that_cannot_be_compiled_says_where() {
    let check = |reads: Value, writes: Value, pointer: &str| {
        let Err(error) =
            Contract::compile(&worker(reads, writes), &json!({}), &ExpressionCompiler::new(PathSyntax::Plain))
        else {
            panic!("compiled")
        };
        assert_eq!(error.pointer, pointer, "{error}");
    };
    check(json!(["/a", "b"]), json!([]), "/reads/1");
    check(json!([]), json!([{"path": "/a/-/b"}]), "/writes/0/path");
    check(
        json!([]),
        json!([{"path": "/a"}, {"path": "/b", "value": {"properties": {"x": {"type": 1}}}}]),
        "/writes/1/value/properties/x/type",
    );
    check(json!([]), json!([{"path": "/a", "value": {"$ref": "#/$defs/none"}}]), "/writes/0/value/$ref");
}

#[test]
fn reading_covers_what_is_below() {
    let contract = contract(json!(["/request/question", "/sources/*"]), json!([{"path": "/answer"}]));
    let readable = contract.readable(&Node::Null);
    assert!(readable.may_read(pointer("/sources/0/text")));
    assert!(!readable.may_read(pointer("/sources")));
    assert!(!readable.may_read(pointer("/answer")));
    assert_eq!(readable.patterns().len(), 2);
    assert_eq!(contract.write_patterns().map(Pattern::to_string).collect::<Vec<_>>(), ["/answer"]);
}

#[test]
fn a_grant_that_appends_shows_only_what_can_be_done_there() {
    let grants = json!([
        {"path": "/xs/-"},
        {"path": "/ys/-", "ops": ["copy", "remove", "add", "insert", "move", "replace"]},
        {"path": "/zs/*"},
    ]);
    let worker: Worker = serde_json::from_value(json!({"agent": "llm", "writes": grants})).expect("a worker");
    let contract =
        Contract::compile(&worker, &json!(true), &ExpressionCompiler::new(PathSyntax::Plain)).expect("a contract");
    let schema = Schema::compile(&json!(true), false).expect("a schema");
    let allowed = contract.allowed(&[], &schema);
    let ops: Vec<&[GrantOp]> = allowed.iter().map(|grant| grant.ops.as_slice()).collect();
    use GrantOp::{Add, Copy, Move, Replace};
    assert_eq!(ops, [[Add].as_slice(), &[Copy, Add, Move], &[Add, Replace]]);
}

/// Returns a contract of `ada` under conditions; the documents contain tasks with owners.
fn of_owners(writes: Value) -> Contract {
    contract(json!(["/tasks"]), writes).for_worker(&"ada".into())
}

const OWN: &str = "self.owner == worker";

#[test]
fn conditional_grants_apply_where_their_condition_holds() {
    let own = json!({"of": "/tasks/*", "expr": OWN});
    let contract = of_owners(json!([
        {"path": "/tasks/*/result", "ops": ["add", "replace", "remove", "copy", "move"], "where": own, "value": {"type": "integer"}},
        {"path": "/tasks/*/log/-", "ops": ["add"], "where": own},
    ]));
    let document = json!({"n": 1, "tasks": {
        "a": {"owner": "ada", "result": 1, "log": ["x"]}, "b": {"owner": "bob", "result": 2, "log": ["x"]}, "c": {"log": []}, "d": 4,
    }});
    let at = |place: &'static str| [(Code::ConditionNotMet, place)];
    for (operation, expected) in [
        (json!({"op": "replace", "path": "/tasks/a/result", "value": 3}), None),
        (json!({"op": "add", "path": "/tasks/a/result", "value": 3}), None),
        (json!({"op": "remove", "path": "/tasks/a/result"}), None),
        (json!({"op": "add", "path": "/tasks/a/log/-", "value": "y"}), None),
        (json!({"op": "add", "path": "/tasks/a/log/1", "value": "y"}), None),
        (json!({"op": "copy", "from": "/tasks/b/result", "path": "/tasks/a/result"}), None),
        (json!({"op": "replace", "path": "/tasks/b/result", "value": 3}), Some("/tasks/b/result")),
        (json!({"op": "remove", "path": "/tasks/b/result"}), Some("/tasks/b/result")),
        (json!({"op": "add", "path": "/tasks/b/log/-", "value": "y"}), Some("/tasks/b/log/-")),
        (json!({"op": "add", "path": "/tasks/b/log/1", "value": "y"}), Some("/tasks/b/log/1")),
        (json!({"op": "copy", "from": "/tasks/a/result", "path": "/tasks/b/result"}), Some("/tasks/b/result")),
        // A move requires ownership at the source and at the destination.
        (json!({"op": "move", "from": "/tasks/b/result", "path": "/tasks/a/result"}), Some("/tasks/b/result")),
        (json!({"op": "move", "from": "/tasks/a/result", "path": "/tasks/b/result"}), Some("/tasks/b/result")),
        // The condition does not hold if the owner is missing, the task is not an object, or the task does not exist.
        (json!({"op": "add", "path": "/tasks/c/result", "value": 3}), Some("/tasks/c/result")),
        (json!({"op": "add", "path": "/tasks/d/result", "value": 3}), Some("/tasks/d/result")),
        (json!({"op": "add", "path": "/tasks/e/result", "value": 3}), Some("/tasks/e/result")),
    ] {
        let expected = expected.map(at);
        let expected: &[(Code, &str)] = expected.as_ref().map_or(&[], |violations| violations.as_slice());
        check(&contract, &document, &[(operation, expected)]);
    }
    // The value is checked only if the condition holds.
    check(
        &contract,
        &document,
        &[
            (
                json!({"op": "add", "path": "/tasks/a/result", "value": "x"}),
                &[(Code::ValueNotGranted, "/tasks/a/result")],
            ),
            (
                json!({"op": "add", "path": "/tasks/b/result", "value": "x"}),
                &[(Code::ConditionNotMet, "/tasks/b/result")],
            ),
        ],
    );
}

#[test]
fn a_rejection_states_the_condition_without_document_values() {
    let contract =
        of_owners(json!([{"path": "/tasks/*/result", "where": {"of": "/tasks/*", "expr": "self.owner ==\n  worker"}}]));
    let refusals = |document: Value| {
        let operation = json!({"op": "add", "path": "/tasks/b/result", "value": 3});
        judge(&contract, &document, operation, &schema(json!(true)))
    };
    let violations = refusals(json!({"tasks": {"b": {"owner": "bob"}}}));
    assert_eq!(
        violations[0].message,
        "the grant on `/tasks/*/result` holds only where this is true of `/tasks/*`: self.owner == worker"
    );
    assert_eq!(violations[0].expected, Some(json!([{"of": "/tasks/*", "expr": "self.owner ==\n  worker"}])));
    // The rejection reveals neither the owner nor the existence of the value.
    assert_eq!(violations, refusals(json!({"tasks": {"b": {"owner": "bobette"}}})));
    assert_eq!(violations, refusals(json!({"tasks": {"b": 7}})));
    let allowed = contract.allowed(&["/tasks/b/result"], &schema(json!(true)));
    assert_eq!(allowed[0].condition.as_ref().map(|of| of.of.as_str()), Some("/tasks/*"));
    // A contract without a worker has no `worker` variable.
    let without_worker =
        self::contract(json!([]), json!([{"path": "/a/x", "where": {"of": "/a", "expr": "worker == 'ada'"}}]));
    check(
        &without_worker,
        &json!({"a": {}}),
        &[(json!({"op": "add", "path": "/a/x", "value": 1}), &[(Code::ConditionNotMet, "/a/x")])],
    );
}

/// Judges a whole patch, each operation against the result of those before it. Returns the code of each operation.
fn judge_all(contract: &Contract, document: &Value, patch: Value) -> Vec<Option<Code>> {
    let state = State::new(document, &Hasher::new(&Salt([0; 32])));
    let mut allowance = Allowance::new();
    let mut reading = ReadCheck::new(contract, state.root(), &mut allowance);
    let (mut candidate, mut targets) = (state.candidate(), Targets::default());
    let every_place = schema(json!(true));
    let ops = patch::parse(&patch, &PatchLimits::default()).expect("a patch");
    let judge = |(index, op): (usize, &Op<'_>)| {
        let effect = candidate.effect(op);
        targets.note(index, op, &effect, &candidate);
        let meets = OpContext { effect: &effect, candidate: &candidate, schema: &every_place, targets: &targets };
        let violations = contract.judge_effect(index, op, &meets, &mut reading, &mut allowance);
        candidate.apply(op, ResultLimits { bytes: 1 << 20, depth: 64 }).expect("it applies");
        reading.outdate();
        violations.first().map(|violation| violation.code)
    };
    ops.iter().enumerate().map(judge).collect()
}

#[test]
fn conditions_are_judged_on_the_state_before_the_patch() {
    let contract = of_owners(json!([
        {"path": "/tasks/*/owner"},
        {"path": "/tasks/*/result", "where": {"of": "/tasks/*", "expr": OWN}},
    ]));
    let document = json!({"tasks": {"a": {"owner": "ada"}, "b": {"owner": "bob"}}});
    let to = |task: &str, owner: &str| json!({"op": "replace", "path": format!("/tasks/{task}/owner"), "value": owner});
    let result = |task: &str| json!({"op": "add", "path": format!("/tasks/{task}/result"), "value": 1});
    assert_eq!(
        judge_all(&contract, &document, json!([to("b", "ada"), result("b")])),
        [None, Some(Code::ConditionNotMet)]
    );
    // Conditions refer to the state before the patch, whatever the patch changes.
    assert_eq!(judge_all(&contract, &document, json!([to("a", "bob"), result("a")])), [None, None]);
}

#[test]
fn an_index_means_the_element_that_it_meant_before_the_patch_moved_it() {
    let contract = of_owners(json!([
        {"path": "/tasks/*", "ops": ["add", "insert", "remove", "move"]},
        {"path": "/tasks/*/result", "ops": ["add", "replace", "move", "remove"], "where": {"of": "/tasks/*", "expr": OWN}},
    ]));
    let document = json!({"tasks": [{"owner": "ada"}, {"owner": "bob"}, {"owner": "ada", "result": 2}]});
    let remove = |at: &str| json!({"op": "remove", "path": format!("/tasks/{at}")});
    let result = |at: &str| json!({"op": "add", "path": format!("/tasks/{at}/result"), "value": 1});
    let mine = json!({"owner": "ada"});
    let no = Some(Code::ConditionNotMet);
    for (patch, last) in [
        (json!([remove("0"), result("0")]), no),
        (json!([remove("0"), result("1")]), None),
        (json!([{"op": "add", "path": "/tasks/0", "value": mine}, result("1")]), None),
        (json!([{"op": "add", "path": "/tasks/0", "value": mine}, result("2")]), no),
        // An element that the patch adds did not exist before.
        (json!([{"op": "add", "path": "/tasks/0", "value": mine}, result("0")]), no),
        (json!([{"op": "add", "path": "/tasks/-", "value": mine}, result("3")]), no),
        (json!([{"op": "move", "from": "/tasks/0", "path": "/tasks/1"}, result("0")]), no),
        (json!([{"op": "move", "from": "/tasks/0", "path": "/tasks/1"}, result("2")]), None),
        // The destination of a move is interpreted after the removal at the source.
        (json!([{"op": "move", "from": "/tasks/2/result", "path": "/tasks/0/result"}]), None),
        (json!([{"op": "move", "from": "/tasks/2/result", "path": "/tasks/1/result"}]), no),
    ] {
        let judged = judge_all(&contract, &document, patch.clone());
        assert_eq!(judged.last().copied().flatten(), last, "{patch}");
    }
}

#[test]
fn a_condition_that_costs_too_much_does_not_hold() {
    let dear = "self.xs.all(x, self.xs.all(y, x + y >= 0))";
    let contract = of_owners(json!([{"path": "/tasks/*/result", "where": {"of": "/tasks/*", "expr": dear}}]));
    let of = |xs: usize| json!({"tasks": {"a": {"xs": vec![1; xs]}}});
    let operation = json!({"op": "add", "path": "/tasks/a/result", "value": 1});
    check(&contract, &of(10), &[(operation.clone(), &[])]);
    check(&contract, &of(2000), &[(operation.clone(), &[(Code::ConditionNotMet, "/tasks/a/result")])]);
    // The step limit is shared by all conditions of a proposal.
    let state = State::new(&of(300), &Hasher::new(&Salt([0; 32])));
    let mut allowance = Allowance::new();
    let mut judged = Vec::new();
    for _ in 0..60 {
        let mut reading = ReadCheck::new(&contract, state.root(), &mut allowance);
        let (candidate, mut targets) = (state.candidate(), Targets::default());
        let (patch, every_place) = (json!([operation]), schema(json!(true)));
        let ops = patch::parse(&patch, &PatchLimits::default()).expect("a patch");
        let effect = candidate.effect(&ops[0]);
        targets.note(0, &ops[0], &effect, &candidate);
        let meets = OpContext { effect: &effect, candidate: &candidate, schema: &every_place, targets: &targets };
        judged.push(contract.judge_effect(0, &ops[0], &meets, &mut reading, &mut allowance).is_empty());
    }
    assert_eq!((judged.first(), judged.last()), (Some(&true), Some(&false)));
}

#[test]
fn a_person_is_asked_for_a_grant_only_where_it_holds() {
    let own = json!({"of": "/tasks/*", "expr": OWN});
    let contract = of_owners(
        json!([{"path": "/tasks/*/result", "where": own, "approval": {"by": "boss"}}, {"path": "/tasks/*/**"}]),
    );
    let state = State::new(&json!({"tasks": {"a": {"owner": "ada"}, "b": {}}}), &Hasher::new(&Salt([0; 32])));
    let mut allowance = Allowance::new();
    let reading = ReadCheck::new(&contract, state.root(), &mut allowance);
    let every_place = schema(json!(true));
    let mut asks = |path: &str| {
        let patch = json!([{"op": "add", "path": path, "value": 1}]);
        let ops = patch::parse(&patch, &PatchLimits::default()).expect("a patch");
        let (candidate, mut targets) = (state.candidate(), Targets::default());
        let effect = candidate.effect(&ops[0]);
        targets.note(0, &ops[0], &effect, &candidate);
        let meets = OpContext { effect: &effect, candidate: &candidate, schema: &every_place, targets: &targets };
        contract.approvals(&ops[0], &meets, &reading, &mut allowance).len()
    };
    assert_eq!((asks("/tasks/a/result"), asks("/tasks/b/result")), (1, 0));
}
