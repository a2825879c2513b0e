//! Comparisons that never hold, undeclared names, and scripts that are always rejected; each next to a correct
//! counterpart.

use patchboard_lint::source::Source;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

/// Returns the codes, places and messages of the findings about a part of a blueprint.
fn found(blueprint: Value, at: &str) -> Vec<(String, String)> {
    let findings = patchboard_protocols::check_value(blueprint).findings;
    let matching = findings.into_iter().filter(|finding| finding.pointer.starts_with(at));
    matching.map(|finding| (finding.code.to_owned(), finding.message)).collect()
}

/// Returns a board with a signal rule that has this condition.
fn board() -> Value {
    let note = json!({"type": "object", "properties": {
        "status": {"enum": ["draft", "ok"]}, "n": {"type": "integer", "minimum": 0, "maximum": 10}, "who": {"type": "string"}}});
    json!({
        "blueprint": 2, "name": "never",
        "signals": {"s": {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "ident": {"type": "string"}, "ms": {"type": "integer"}}}},
        "state": {
            "schema": {"type": "object", "additionalProperties": false, "properties": {"request": true,
                "notes": {"type": "object", "additionalProperties": note},
                "list": {"type": "array", "minItems": 1, "maxItems": 5, "items": note},
                "pair": {"type": "array", "prefixItems": [{"enum": ["x", "y"]}, {"type": "integer"}], "items": false},
                "name": {"type": "string", "maxLength": 5},
                "closed": {"type": "object", "properties": {"a": true, "b": true}, "additionalProperties": false},
                "score": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
                "level": {"enum": [1, 2, 4]},
                "item": {"oneOf": [
                    {"type": "object", "required": ["kind"], "properties": {"kind": {"const": "a"}, "left": true}},
                    {"type": "object", "required": ["kind"], "properties": {"kind": {"const": "b"}, "right": true}}]},
                "task": {"type": "object", "allOf": [{"properties": {"title": true}}, {"properties": {"state": true}}]},
                "meta": {"type": "object", "properties": {"owner": true}, "patternProperties": {"^x_": true}},
                "untyped": {"properties": {"title": {"type": "integer"}}},
                "either": {"type": ["object", "array"], "items": {"type": "integer"}},
                "huge": {"type": "integer", "maximum": 9_007_199_254_740_993_i64},
                "named": {"type": "object", "required": ["a"]},
                "wide": {"allOf": [{"properties": {"a": true}}, {"type": ["object", "null"], "description": "More."}]},
                "open": {"anyOf": [{"type": "object", "properties": {"a": true}}, {"type": "object"}]},
            }},
            "initial": {"named": {"a": 1}, "untyped": {}, "either": {}, "huge": 1, "wide": {}, "notes": {}, "list": [{}], "pair": ["x", 1], "name": "n", "score": 0.5, "level": 1, "closed": {},
                "item": {"kind": "a"}, "task": {}, "meta": {}, "open": {}},
        },
        "workers": {
            "w": {"agent": "llm", "reads": ["/notes"], "writes": [{"path": "/notes/*", "ops": ["add"]}]},
            "v": {"agent": "llm", "writes": [{"path": "/notes/*", "ops": ["add"]}]}},
        "rules": [{"name": "r", "trigger": {"signal": "s"}, "run": "w"}, {"name": "begin", "trigger": "start", "run": "v"}],
    })
}

#[test]
fn a_comparison_that_never_holds_is_found_wherever_its_operands_come_from() {
    for (never, message) in [
        ("size(state.list) >= 10", "the size of `/list` is at most 5 by its schema: this is never true"),
        ("size(state.list) > 5", "the size of `/list` is at most 5 by its schema: this is never true"),
        ("6 <= size(state.list)", "the size of `/list` is at most 5 by its schema: this is never true"),
        ("size(state.list) == 0", "the size of `/list` is at least 1 by its schema: this is never true"),
        ("size(state.list) < 1", "the size of `/list` is at least 1 by its schema: this is never true"),
        ("size(state.pair) == 3", "the size of `/pair` is at most 2 by its schema: this is never true"),
        ("size(state.closed) > 2", "the size of `/closed` is at most 2 by its schema: this is never true"),
        ("size(state.name) == 6", "the size of `/name` is at most 5 by its schema: this is never true"),
        ("state.score >= 1", "`/score` is 1 or less by its schema: this is never true"),
        ("state.score < 0.0", "`/score` is 0 or more by its schema: this is never true"),
        ("state.score < -1", "`/score` is 0 or more by its schema: this is never true"),
        ("state.level > 4", "`/level` is 4 or less by its schema: this is never true"),
        ("state.list.exists(e, e.n > 10)", "`/list/*/n` is 10 or less by its schema: this is never true"),
        ("state.pair[0] == \"z\"", "`/pair/0` is never \"z\" by its schema: this is never true"),
        ("value.kind == \"c\"", "`/kind` of the signal `s` is never \"c\" by its schema: this is never true"),
        (
            "(has(state.name) ? state.list[0].status : \"none\") == \"okk\"",
            "`/list/0/status` is never \"okk\" by its schema: this is never true",
        ),
        (
            "\"okk\" in state.list.map(e, e.status)",
            "`/list/*/status` is never \"okk\" by its schema: this is never true",
        ),
        (
            "state.notes.transformList(k, v, v.status).exists(s, s == \"okk\")",
            "`/notes/*/status` is never \"okk\" by its schema: this is never true",
        ),
        (
            "state.list[0].status in [\"ok\", \"okk\"]",
            "`/list/0/status` is never \"okk\" by its schema: it never is that one of the list",
        ),
        ("state.list == {}", "`/list` is never {} by its schema: this is never true"),
        ("state.notes == []", "`/notes` is never [] by its schema: this is never true"),
    ] {
        let mut blueprint = board();
        blueprint["rules"][0]["when"] = never.into();
        let expected = ("never_equal".to_owned(), message.to_owned());
        assert_eq!(found(blueprint, "/rules/0/when"), [expected], "{never}");
    }
    for may in [
        "size(state.list) >= 5",
        "size(state.list) == 1",
        "size(state.list.filter(e, e.n > 1)) == 0",
        "size(state.notes) == 0",
        "size(state) > 15",
        "size(state.name) <= 5",
        "state.score > 0.9",
        "state.score <= 0",
        "state.level >= 4",
        "state.pair[0] == \"y\"",
        "state.list[1].status == \"ok\"",
        "value.kind == \"b\"",
        "(has(state.name) ? state.list[0].status : \"none\") == \"none\"",
        "(has(state.name) ? state.list[0].status : state.name) == \"okk\"",
        "\"ok\" in state.list.map(e, e.status)",
        "\"k\" in state.notes",
        "state.list.filter(e, e.n > 1) == []",
        "[] == state.list.filter(e, e.n > 1)",
        "state.list.filter(e, e.n > 1) in [[]]",
        "state.task.exists(k, v, v == \"any\")",
        "\"any\" in state.wide.transformList(k, v, v)",
        "\"title\" in state.untyped",
        "state.untyped.exists(k, k == \"title\")",
        "\"key\" in state.either",
        "state.either.exists(e, e == \"key\")",
        "state.huge > 9007199254740992",
        "state.notes == {}",
        "state.list == [{}]",
    ] {
        let mut blueprint = board();
        blueprint["rules"][0]["when"] = may.into();
        assert_eq!(found(blueprint, "/rules/0/when"), [], "{may}");
    }
}

#[test]
fn comparisons_of_one_value_that_come_out_together_are_found() {
    let never = |tests: &str| format!("{tests} never hold together: this is never true");
    let always = |tests: &str| format!("one of {tests} holds whatever the value is");
    for (decided, message) in [
        ("value.kind == \"a\" && value.kind == \"b\"", never("`value.kind == \"a\"` and `value.kind == \"b\"`")),
        ("value.kind != \"a\" || value.kind != \"b\"", always("`value.kind != \"a\"` and `value.kind != \"b\"`")),
        ("!(value.kind == \"a\" && value.kind == \"b\")", never("`value.kind == \"a\"` and `value.kind == \"b\"`")),
        ("value.ms > 3 && state.level == 1 && 3 > value.ms", never("`value.ms > 3` and `value.ms < 3`")),
        ("value.ms >= 3 || value.ms < 3.5", always("`value.ms >= 3` and `value.ms < 3.5`")),
        (
            "size(state.list) == 1 && !(size(state.list) < 2)",
            never("`size(state.list) == 1` and `size(state.list) >= 2`"),
        ),
        (
            "state.score >= 0.5 && state.score <= 0.5 && state.score != 0.5",
            never("`state.score >= 0.5` and `state.score <= 0.5` and `state.score != 0.5`"),
        ),
        (
            "state.list.exists(e, e.status == \"draft\" && e.status == \"ok\")",
            never("`state.list[…].status == \"draft\"` and `state.list[…].status == \"ok\"`"),
        ),
        (
            "state.notes[value.ident].n == 1 && state.notes[value.ident].n == 2",
            never("`state.notes[…].n == 1` and `state.notes[…].n == 2`"),
        ),
        ("state.name > \"a\" && state.name < \"a\"", never("`state.name > \"a\"` and `state.name < \"a\"`")),
    ] {
        let mut blueprint = board();
        blueprint["rules"][0]["when"] = decided.into();
        assert_eq!(found(blueprint, "/rules/0/when"), [("decided_together".to_owned(), message)], "{decided}");
    }
    for open in [
        "value.kind == \"a\" || value.kind == \"b\"",
        "value.kind != \"a\" && value.kind != \"b\"",
        "value.kind == \"a\" && value.kind != \"b\"",
        "value.kind == \"a\" && value.ident == \"b\"",
        "value.ms > 3 && value.ms < 4",
        "value.ms >= 3 && value.ms <= 3",
        "value.ms > 3 || value.ms < 3",
        "request.x != \"a\" || request.x > 3",
        "request.x < 0 || request.x >= 0",
        "request.x == [1] && request.x == [1.0]",
        "state.name > \"a\" && state.name < \"b\"",
        "state.name >= \"\" && state.name < \"a\"",
        "state.list[0].status == \"draft\" && state.list[1].status == \"ok\"",
        "state.list.exists(e, state.list.exists(f, e.status == \"draft\" && f.status == \"ok\"))",
        "state.notes[value.ident].n == 1 && state.notes[value.kind].n == 2",
        "(value.kind == \"a\" && state.level == 1) || (value.kind == \"b\" && state.level == 2)",
        "value.kind == \"a\" ? state.level == 1 : state.level == 2",
        "value.kind in [\"a\", \"b\"] && value.kind == \"a\"",
    ] {
        let mut blueprint = board();
        blueprint["rules"][0]["when"] = open.into();
        assert_eq!(found(blueprint, "/rules/0/when"), [], "{open}");
    }
}

#[test]
fn a_condition_that_wants_a_required_member_to_be_missing_never_holds() {
    let message = "`r` can never fire, because its condition never holds";
    let never = vec![("never_fires".to_owned(), message.to_owned())];
    let event = json!({"op": "add", "path": "/notes/*"});
    for (trigger, when, expected) in [
        (&event, "!has(value.status)", &never),
        (&event, "!has(value.status) && value.n > 1", &never),
        (&event, "!has(value.status) || value.n > 1", &vec![]),
        (&event, "has(value.status) && value.status == \"ok\"", &vec![]),
        (&event, "!has(value.who)", &vec![]),
        (&json!({"path": "/notes/*"}), "!has(value.status)", &vec![]),
        (&json!({"op": "remove", "path": "/notes/*"}), "!has(value.status)", &vec![]),
        (&json!({"op": "add", "path": "/list/*"}), "!has(value.status)", &vec![]),
    ] {
        let mut blueprint = board();
        let note = &mut blueprint["state"]["schema"]["properties"]["notes"]["additionalProperties"];
        note["required"] = json!(["status"]);
        blueprint["rules"][0] = json!({"name": "r", "trigger": trigger, "when": when, "run": "w"});
        assert_eq!(found(blueprint, "/rules/0/when"), *expected, "{trigger} {when}");
    }
}

#[test]
fn a_rule_that_its_own_worker_wakes_in_vain_is_found() {
    let twice = "`r` triggers `w` again for its own write, and then it may write nothing more: it may only add \
                 `/notes/{note}/status`";
    let once = json!({"path": "/notes/{note}/status", "ops": ["add"]});
    for (trigger, writes, message) in [
        (json!({"path": "/notes/{note}/**"}), json!([once]), Some(twice)),
        (json!({"op": "add", "path": "/notes/{note}/**"}), json!([once]), Some(twice)),
        (json!({"path": "/notes/{note}/*"}), json!([once]), Some(twice)),
        (json!({"op": "replace", "path": "/notes/{note}/**"}), json!([once]), None),
        (json!({"path": "/notes/{note}"}), json!([once]), None),
        (json!({"path": "/notes/{note}/n"}), json!([once]), None),
        (json!({"path": "/notes/{note}/**"}), json!([once, {"path": "/notes/{note}/n"}]), None),
        (json!({"path": "/notes/{note}/**"}), json!([once, {"path": "/list/-", "ops": ["add"]}]), None),
        (json!({"path": "/notes/{note}/**"}), json!([once, {"path": "/notes/{note}/status", "ops": ["remove"]}]), None),
    ] {
        let mut blueprint = board();
        blueprint["workers"]["v"]["writes"] = json!([{"path": "/notes/*", "ops": ["add"]}, {"path": "/notes/*/n"}]);
        blueprint["workers"]["w"]["reads"] = json!(["/notes/{note}"]);
        blueprint["workers"]["w"]["writes"] = writes.clone();
        blueprint["rules"][0] = json!({"name": "r", "trigger": trigger, "run": "w"});
        let findings = found(blueprint, "/rules/0/trigger").into_iter();
        let messages: Vec<_> = message.map(str::to_owned).into_iter().collect();
        let itself: Vec<_> = findings.filter(|(code, _)| code == "nothing_left").map(|(_, message)| message).collect();
        assert_eq!(itself, messages, "{trigger} {writes}");
    }
    // A condition may distinguish the worker's own writes from others.
    let mut blueprint = board();
    blueprint["workers"]["w"]["reads"] = json!(["/notes/{note}"]);
    blueprint["workers"]["w"]["writes"] = json!([once]);
    blueprint["rules"][0] =
        json!({"name": "r", "trigger": {"path": "/notes/{note}/**"}, "run": "w", "when": "event.worker != worker"});
    assert_eq!(found(blueprint, "/rules/0"), []);
}

#[test]
fn the_in_operator_needs_a_list_or_an_object() {
    let mut blueprint = board();
    blueprint["rules"][0]["when"] = "\"x\" in state.score".into();
    let message = "`in` looks into a list or an object, and the schema allows neither at `/score`";
    assert_eq!(found(blueprint, "/rules/0/when"), [("bad_condition".to_owned(), message.to_owned())]);
}

#[test]
fn a_rule_that_finds_no_name_or_time_where_it_looks_never_fires() {
    let signal = |from: &Value| {
        json!({"name": "r", "trigger": {"signal": "s"}, "run": "w"}).as_object().map(|rule| {
            let mut rule = rule.clone();
            rule.extend(from.as_object().expect("members").clone());
            Value::Object(rule)
        })
    };
    let event = |from: &Value| {
        let mut rule = signal(from).expect("a rule");
        rule["trigger"] = json!({"op": "add", "path": "/notes/*"});
        rule
    };
    let chosen = |at: &str| json!({"run": {"group": "g", "at": at}});
    let delay = |at: &str| json!({"delay": {"at": at}});
    let cases = [
        (
            signal(&delay("/kind")),
            Some("`r` never fires: `/kind` of the signal `s` is never a number of milliseconds by its schema"),
        ),
        (signal(&delay("/ms")), None),
        (
            Some(event(&delay("/status"))),
            Some("`r` never fires: `/notes/*/status` is never a number of milliseconds by its schema"),
        ),
        (Some(event(&delay("/n"))), None),
        (
            signal(&chosen("/kind")),
            Some("`r` never fires: `/kind` of the signal `s` is never the name of a worker of `g` by its schema"),
        ),
        (signal(&chosen("/ident")), None),
        (
            Some(event(&chosen("/n"))),
            Some("`r` never fires: `/notes/*/n` is never the name of a worker of `g` by its schema"),
        ),
        (Some(event(&chosen("/who"))), None),
    ];
    for (rule, message) in cases {
        let mut blueprint = board();
        blueprint["workers"]["w"]["group"] = "g".into();
        blueprint["rules"][0] = rule.expect("a rule");
        let expected: Vec<_> =
            message.map(|message| ("never_fires".to_owned(), message.to_owned())).into_iter().collect();
        assert_eq!(found(blueprint.clone(), "/rules/0"), expected, "{}", blueprint["rules"]);
    }
}

#[test]
fn a_name_is_declared_by_any_of_the_schemas_that_are_combined() {
    for (place, wrong) in [
        ("/item/statu", Some("`/item/statu`: `properties` of `/item` has no `statu`")),
        ("/item/left", None),
        ("/item/right", None),
        ("/task/titel", Some("`/task/titel`: `properties` of `/task` has no `titel`")),
        ("/task/state", None),
        ("/meta/ownr", Some("`/meta/ownr`: `properties` of `/meta` has no `ownr`")),
        ("/meta/x_any", None),
        ("/open/b", None),
        ("/wide/b", None),
        ("/named/b", None),
        ("/list/0/status", None),
    ] {
        let mut blueprint = board();
        blueprint["workers"]["w"]["reads"] = json!(["/notes", place]);
        blueprint["workers"]["w"]["writes"] =
            json!([{"path": "/notes/*", "ops": ["add"]}, {"path": place, "ops": ["add"]}]);
        let expected: Vec<_> =
            wrong.map(|message| ("undeclared_name".to_owned(), message.to_owned())).into_iter().collect();
        assert_eq!(found(blueprint, "/workers/w/reads/1"), expected, "{place}");
    }
    // Members that a rule requires are declared.
    let mut blueprint = board();
    blueprint["workers"]["w"]["writes"] = json!([{"path": "/notes/{note}", "ops": ["add"]}]);
    blueprint["rules"][0]["bind"] = json!({"note": "/key"});
    let message = "`properties` of the signal `s` has no `key`";
    assert_eq!(found(blueprint, "/rules/0/bind"), [("undeclared_name".to_owned(), message.to_owned())]);
    // A place beyond the end of a list of fixed length.
    let mut blueprint = board();
    blueprint["rules"][0]["when"] = "state.pair[2] == 1".into();
    let message = "`/pair/2` does not exist in the state schema: `/pair` has no `2`";
    assert_eq!(found(blueprint, "/rules/0/when"), [("unknown_member".to_owned(), message.to_owned())]);
}

/// Returns the findings about limits of a board that starts with this many documents.
fn limited(documents: usize, limits: &[(&str, u64)], changes: &dyn Fn(&mut Value)) -> Vec<String> {
    let mut blueprint = json!({
        "blueprint": 2, "name": "chain",
        "state": {"schema": {"properties": {"notes": {"additionalProperties": {"type": "object"}}}}, "initial": {"notes": {}}},
        "workers": {
            "reader": {"agent": "llm", "reads": ["/request/docs/{doc}"], "writes": [{"path": "/notes/{doc}", "ops": ["add"]}]},
            "checker": {"agent": "llm", "reads": ["/notes/{n}"], "writes": [{"path": "/notes/{n}/status", "ops": ["add"]}]},
            "judge": {"agent": "llm", "reads": ["/notes/{n}"], "writes": [{"path": "/notes/{n}/verdict", "ops": ["add"]}]},
        },
        "rules": [
            {"name": "read", "trigger": {"start": "/request/docs/{doc}"}, "run": "reader"},
            {"name": "check", "trigger": {"op": "add", "path": "/notes/{n}"}, "run": "checker"},
            {"name": "judge", "trigger": {"path": "/notes/{n}/status"}, "run": "judge"},
        ],
        "limits": {"commits": 1000},
    });
    for (worker, most) in limits {
        blueprint["workers"][*worker]["limits"] = json!({"invocations": most});
    }
    changes(&mut blueprint);
    let docs: serde_json::Map<_, _> = (0..documents).map(|number| (format!("d{number}"), json!("text"))).collect();
    let source = Source::read("b.json", &blueprint.to_string()).expect("it is JSON");
    let blueprint = patchboard_protocols::check(&source).blueprint.expect("it is sound");
    let findings = patchboard_lint::check_with_request(&source, blueprint, json!({"docs": docs}), &PLANS)
        .expect("it makes a board");
    findings.into_iter().filter(|finding| finding.code == "limit_too_low").map(|finding| finding.message).collect()
}

#[test]
fn limits_suffice_for_what_follows_one_for_one() {
    let all = [("reader", 200), ("checker", 200), ("judge", 200)];
    assert_eq!(limited(100, &[], &|_| ()), [""; 0]);
    assert_eq!(limited(150, &all, &|_| ()), [""; 0]);
    let of_checker = "with this request, `checker` is triggered 150 times if each invocation of `reader` writes its `/notes/{doc}`, and its \
                      `limits.invocations` allow 100";
    assert_eq!(limited(150, &[("reader", 200), ("judge", 200)], &|_| ()), [of_checker]);
    let of_judge = "with this request, `judge` is triggered 150 times if each invocation of `checker` writes its `/notes/{n}/status`, and its \
                    `limits.invocations` allow 100";
    assert_eq!(limited(150, &all[..2], &|_| ()), [of_judge]);
    let few_commits = |blueprint: &mut Value| blueprint["limits"]["commits"] = 400.into();
    let of_commits =
        "with this request, 450 commits are made if each invocation writes once, and `limits.commits` allow 400";
    assert_eq!(limited(150, &all, &few_commits), [of_commits]);
    // A condition may exclude any of them, and a single place is shared by all.
    let conditional = |blueprint: &mut Value| blueprint["rules"][1]["when"] = "size(value) > 0".into();
    assert_eq!(limited(150, &all[..1], &conditional), [""; 0]);
    let there = |blueprint: &mut Value| blueprint["state"]["initial"]["notes"] = json!({"d1": {}});
    assert_eq!(limited(150, &all[..1], &there), [""; 0]);
    // A delay changes nothing, and a worker without writes commits nothing.
    let delayed = |blueprint: &mut Value| blueprint["rules"][0]["delay"] = "1s".into();
    assert_eq!(limited(150, &[("reader", 200), ("judge", 200)], &delayed), [of_checker]);
    let of_reader = "with this request, `reader` is triggered 3 times, and its `limits.invocations` allow 1";
    assert_eq!(limited(3, &[("reader", 1)], &delayed), [of_reader]);
    let silent = |blueprint: &mut Value| {
        few_commits(blueprint);
        blueprint["workers"]["judge"]["writes"] = json!([]);
    };
    assert_eq!(limited(150, &all, &silent), [""; 0]);
    let shared = |blueprint: &mut Value| blueprint["workers"]["reader"]["writes"][0]["path"] = "/notes/all".into();
    assert_eq!(limited(150, &all[..1], &shared), [""; 0]);
}

#[test]
fn a_script_that_is_always_rejected_is_found() {
    let add = json!({"op": "add", "path": "/notes/a", "value": {}});
    for (reply, limits, message) in [
        (
            json!([{"op": "test", "path": "/score", "value": 1}, add]),
            json!({}),
            Some("`w` tests `/score`, which it may not read"),
        ),
        (json!([{"op": "test", "path": "/notes/b", "value": {}}, add]), json!({}), None),
        (
            json!([{"op": "add", "path": "/notes/a"}]),
            json!({}),
            Some(
                "`w` answers with what is refused at `/0`: the operation lacks \"value\", a JSON value (null, if nothing is meant)",
            ),
        ),
        (
            json!({"pass": "nothing"}),
            json!({}),
            Some(
                "`w` answers with what is refused: a reply is an array of operations, or an object with such an array as \"patch\"",
            ),
        ),
        (json!({"pass": "nothing"}), json!({"pass": true}), None),
        (
            json!({"pass": true}),
            json!({"pass": true}),
            Some("`w` answers with what is refused at `/pass`: pass is a text that says why nothing is proposed"),
        ),
        (json!({"clarify": {"question": "which?"}}), json!({}), Some("`w` asks a person, and has no `clarify`")),
        (
            json!({"intent": "none"}),
            json!({}),
            Some(
                "`w` answers with what is refused: a reply is an array of operations, or an object with such an array as \"patch\"",
            ),
        ),
        (json!({"expand": ["/score"]}), json!({}), Some("`w` asks to be shown `/score`, which it may not read")),
        (json!({"expand": ["/notes", {"at": "/notes/a", "from": 0}]}), json!({}), None),
        (
            json!([add]),
            json!({"patch": {"max_bytes": 20}}),
            Some(
                "`w` answers with what is refused: the text has 43 bytes, at most 20 are read (at byte 20); a reply is one JSON object {\"patch\": […]}, or the array in it, and nothing else",
            ),
        ),
        (
            json!([add, add]),
            json!({"patch": {"max_ops": 1}}),
            Some("`w` answers with what is refused: the patch has 2 operations, at most 1 are allowed"),
        ),
        (
            json!([{"op": "add", "path": "/notes/b", "value": 5}, {"op": "move", "from": "/notes/b", "path": "/notes/c"}]),
            json!({"writes": [{"path": "/notes/*", "ops": ["add", "remove", "move"]}]}),
            None,
        ),
        (json!({"text": "[]"}), json!({}), None),
        (
            json!({"text": "I am done."}),
            json!({}),
            Some(
                "`w` answers with what is refused: not JSON: expected value (at byte 0); a reply is one JSON object {\"patch\": […]}, or the array in it, and nothing else",
            ),
        ),
        (json!({"fail": "timeout"}), json!({}), None),
    ] {
        let mut blueprint = board();
        let worker = blueprint["workers"]["w"].as_object_mut().expect("an object");
        worker.extend(limits.as_object().expect("members").clone());
        worker.insert("script".into(), json!([reply]));
        let expected: Vec<_> =
            message.map(|message| ("script_refused".to_owned(), message.to_owned())).into_iter().collect();
        assert_eq!(found(blueprint.clone(), "/workers/w/script"), expected, "{reply}");
        // Rejection of a reply before the last may be intended.
        let later = blueprint["workers"]["w"]["script"].as_array_mut().expect("a list");
        later.push(json!([{"op": "add", "path": "/notes/c", "value": {}}]));
        let of_first = found(blueprint, "/workers/w/script/0");
        assert!(of_first.is_empty(), "{reply}: {of_first:?}");
    }
}

#[test]
fn a_draft_that_ignores_what_is_beside_a_reference_is_read_so() {
    for (draft, is_found) in
        [("http://json-schema.org/draft-07/schema#", false), ("https://json-schema.org/draft/2020-12/schema", true)]
    {
        let mut blueprint = board();
        blueprint["state"]["schema"]["$schema"] = draft.into();
        blueprint["state"]["schema"]["definitions"] = json!({"text": {"type": "string"}});
        blueprint["state"]["schema"]["properties"]["name"] = json!({"$ref": "#/definitions/text", "enum": ["n"]});
        blueprint["rules"][0]["when"] = "state.name == \"m\"".into();
        assert_eq!(!found(blueprint, "/rules/0/when").is_empty(), is_found, "{draft}");
    }
}

/// Returns a board of tickets, with additional members of the triggered worker and of the blueprint.
fn tickets(seat: Value, changes: Value) -> Value {
    let mut blueprint = json!({
        "blueprint": 2, "name": "tickets",
        "state": {"schema": {"properties": {
            "tickets": {"type": "object", "additionalProperties": {"type": "object", "properties": {"class": {"enum": ["urgent", "high", "low"]}}}},
            "summary": {"type": "string"}}},
            "initial": {"tickets": {}}},
        "workers": {
            "sorter": {"agent": "llm", "reads": ["/request/tickets/{t}"], "writes": [{"path": "/tickets/{t}", "ops": ["add", "replace"]}]},
            "last": {"agent": "llm", "reads": ["/tickets"], "writes": [{"path": "/summary"}]}},
        "rules": [
            {"name": "sort", "trigger": {"start": "/request/tickets/{t}"}, "run": "sorter"},
            {"name": "sum", "trigger": {"after": ["sort"]}, "run": "last"}],
        "result": "/summary", "done": {"when": "has(state.summary)"},
    });
    blueprint["workers"]["sorter"].as_object_mut().expect("a seat").extend(seat.as_object().expect("members").clone());
    blueprint.as_object_mut().expect("an object").extend(changes.as_object().expect("members").clone());
    blueprint
}

fn codes(blueprint: Value) -> Vec<&'static str> {
    patchboard_protocols::check_value(blueprint).findings.into_iter().map(|finding| finding.code).collect()
}

#[test]
fn unusable_grants_and_values_never_written_are_found() {
    assert_eq!(codes(tickets(json!({}), json!({}))), [""; 0]);
    // Below a place that no worker may add...
    let below = json!({"writes": [{"path": "/tickets/{t}/class"}]});
    assert_eq!(codes(tickets(below.clone(), json!({}))), ["unusable_grant"]);
    // ...but not if it exists already, or another worker may add it.
    let schema = tickets(json!({}), json!({}))["state"]["schema"].clone();
    let there = json!({"state": {"schema": schema, "initial": {"tickets": {"a": {}}}}});
    assert_eq!(codes(tickets(below.clone(), there)), [""; 0]);
    let mut other = tickets(below, json!({}));
    other["workers"]["last"]["writes"] = json!([{"path": "/summary"}, {"path": "/tickets/*", "ops": ["add"]}]);
    assert!(!codes(other).contains(&"unusable_grant"));
    // A field that may only be replaced is never created.
    let mut replaced = tickets(json!({}), json!({}));
    replaced["workers"]["last"]["writes"] = json!([{"path": "/summary", "ops": ["replace"]}]);
    assert_eq!(
        found(replaced, "/state"),
        [("never_written".to_owned(), "`/summary` is never initialised and may only be replaced".to_owned())]
    );
    // A path that ends with a slash denotes a member with an empty name.
    let mut slash = tickets(json!({}), json!({}));
    slash["workers"]["last"]["reads"] = json!(["/tickets/"]);
    assert_eq!(found(slash, "/workers/last/reads/0").first().map(|(code, _)| code.as_str()), Some("undeclared_name"));
}

#[test]
fn words_for_truth_values_and_names_with_a_minus_are_found() {
    for (rule, code, when, count) in [
        (0, "never_true", "value.class == 'urgent' || 'high'", 1),
        (0, "never_true", "value.class == 'urgent' && !('high')", 1),
        (0, "never_true", "state.tickets.all(k, t, t.class == 'low' || 'high')", 1),
        (0, "never_true", "value.class == 'urgent' || value.class == 'high'", 0),
        (0, "never_true", "value.class in ['urgent', 'high']", 0),
        (0, "never_true", "(value.class == 'urgent' ? 'a' : 'b') == 'a'", 0),
        (1, "unknown_member", "state.tickets.T-1.class == 'low'", 1),
        (1, "unknown_member", "state.tickets['T-1'].class == 'low'", 0),
        (1, "unknown_member", "size(state.tickets) - 1 > 2", 0),
    ] {
        let mut blueprint = tickets(json!({}), json!({}));
        blueprint["rules"][rule]["when"] = when.into();
        assert_eq!(codes(blueprint).iter().filter(|found| **found == code).count(), count, "{when}");
    }
}

#[test]
fn writers_of_other_values_and_workers_that_know_which_element_it_is_are_right() {
    let two = |first: Value, second: Value| {
        let mut blueprint = tickets(json!({}), json!({}));
        for (name, value) in [("one", first), ("other", second)] {
            blueprint["workers"][name] = json!({"agent": "llm", "reads": ["/tickets/{t}"],
                "writes": [{"path": "/tickets/{t}/class", "ops": ["replace"], "value": value}]});
            let rule = json!({"name": name, "trigger": {"op": "add", "path": "/tickets/{t}"}, "run": name});
            blueprint["rules"].as_array_mut().expect("rules").push(rule);
        }
        codes(blueprint).contains(&"two_writers")
    };
    assert!(!two(json!({"const": "low"}), json!({"enum": ["urgent", "high"]})));
    assert!(two(json!({"const": "high"}), json!({"enum": ["urgent", "high"]})));
    assert!(two(json!({"const": "low"}), json!({"type": "string"})));
    // A worker that reads another part of the triggering element can identify it; a removed element has nothing left to
    // read.
    let woken = |reads: Value, trigger: Value| {
        let mut blueprint = tickets(json!({}), json!({}));
        blueprint["workers"]["other"] =
            json!({"agent": "llm", "reads": reads, "writes": [{"path": "/summary", "ops": ["add"]}]});
        blueprint["rules"]
            .as_array_mut()
            .expect("rules")
            .push(json!({"name": "next", "trigger": trigger, "run": "other"}));
        let is_found = |blueprint: Value| codes(blueprint).contains(&"trigger_unreadable");
        // A condition shows enough of the element, regardless of the worker's reads.
        let mut asked = blueprint.clone();
        asked["rules"][2]["when"] = "value.class == 'urgent'".into();
        assert!(!reads.to_string().contains("/request/tickets/{t}") || !is_found(asked), "{reads}");
        is_found(blueprint)
    };
    assert!(!woken(json!(["/request/tickets/{t}"]), json!({"path": "/tickets/{t}/class"})));
    assert!(woken(json!(["/request/topic"]), json!({"path": "/tickets/{t}/class"})));
    assert!(woken(json!(["/request/ticket/{t}"]), json!({"path": "/tickets/{t}/class"})), "nothing else is about it");
    assert!(!woken(json!(["/request/topic"]), json!({"op": "remove", "path": "/tickets/*"})));
    // Another place with the same name is not a part of an element that has content of its own.
    assert!(woken(json!(["/request/tickets/{t}"]), json!({"op": "add", "path": "/tickets/{t}"})));
    assert!(!woken(json!(["/request/tickets/{t}", "/tickets/{t}"]), json!({"op": "add", "path": "/tickets/{t}"})));
    assert!(woken(json!(["/tickets/{t}"]), json!({"start": "/request/tickets/{t}"})), "nothing is there yet");
}

#[test]
fn a_worker_that_each_element_wakes_and_that_may_write_once_is_found() {
    let each = |seat: Value, rule: Value| {
        let mut blueprint = tickets(json!({}), json!({}));
        blueprint["workers"]["last"]["writes"] = json!([{"path": "/summary", "ops": ["add"]}]);
        let members = |value: &mut Value, more: Value| {
            value.as_object_mut().expect("an object").extend(more.as_object().expect("members").clone());
        };
        members(&mut blueprint["workers"]["last"], seat);
        members(&mut blueprint["rules"][1], rule);
        found(blueprint, "/rules/1/trigger").into_iter().filter(|(code, _)| code == "nothing_left").collect::<Vec<_>>()
    };
    let of_each = json!({"trigger": {"op": "add", "path": "/tickets/{t}"}});
    let message = "`sum` triggers `last` for each change at `/tickets/{t}`, and it may only add `/summary`: after the first call there is nothing \
                   that it may write";
    assert_eq!(each(json!({}), of_each.clone()), [("nothing_left".to_owned(), message.to_owned())]);
    for (seat, rule) in [
        (json!({}), json!({})),
        (json!({}), json!({"trigger": {"op": "add", "path": "/tickets/a"}})),
        (json!({}), json!({"trigger": of_each["trigger"], "when": "value.class == 'urgent'"})),
        (json!({"pass": true}), of_each.clone()),
        (json!({"limits": {"invocations": 1}}), of_each.clone()),
        (json!({"writes": [{"path": "/summary"}]}), of_each.clone()),
        (json!({"writes": [{"path": "/tickets/{t}/class", "ops": ["add"]}]}), of_each.clone()),
        (json!({"writes": [{"path": "/summary", "ops": ["add"]}, {"path": "/list/-", "ops": ["add"]}]}), of_each),
    ] {
        assert_eq!(each(seat.clone(), rule.clone()), [], "{seat} {rule}");
    }
}

#[test]
fn results_that_a_join_waits_for_and_nothing_reads_are_found() {
    let unread = |change: &dyn Fn(&mut Value)| {
        let mut blueprint = tickets(json!({}), json!({}));
        blueprint["state"]["schema"]["properties"]["notes"] =
            json!({"type": "object", "additionalProperties": {"type": "string"}});
        blueprint["state"]["initial"]["notes"] = json!({});
        blueprint["workers"]["noter"] =
            json!({"agent": "llm", "reads": ["/tickets/{t}"], "writes": [{"path": "/notes/{t}", "ops": ["add"]}]});
        blueprint["rules"][1]["trigger"] = json!({"after": ["sort", "note"]});
        let note = json!({"name": "note", "trigger": {"op": "add", "path": "/tickets/{t}"}, "run": "noter"});
        blueprint["rules"].as_array_mut().expect("rules").push(note);
        change(&mut blueprint);
        found(blueprint, "/rules/1")
            .into_iter()
            .filter(|(code, _)| code == "never_read")
            .map(|(_, message)| message)
            .collect::<Vec<_>>()
    };
    let message = "`sum` waits for `note`, and nothing reads what that writes: `/notes/{t}`";
    assert_eq!(unread(&|_| ()), [message]);
    assert_eq!(unread(&|blueprint| blueprint["workers"]["last"]["reads"] = json!(["/tickets", "/notes"])), [""; 0]);
    assert_eq!(
        unread(&|blueprint| blueprint["workers"]["sorter"]["reads"] = json!(["/request/tickets/{t}", "/notes/{t}"])),
        [""; 0]
    );
    assert_eq!(unread(&|blueprint| blueprint["result"] = "/notes".into()), [""; 0]);
    assert_eq!(
        unread(&|blueprint| blueprint["done"]["when"] = "has(state.summary) && size(state.notes) > 0".into()),
        [""; 0]
    );
    let mark = json!({"type": "object", "additionalProperties": {"type": "boolean"}});
    assert_eq!(unread(&|blueprint| blueprint["state"]["schema"]["properties"]["notes"] = mark.clone()), [""; 0]);
}

#[test]
fn a_fault_is_reported_once_and_names_what_was_meant() {
    // A misspelt trigger is reported once, as an undeclared name.
    let mut blueprint = tickets(json!({}), json!({}));
    blueprint["rules"]
        .as_array_mut()
        .expect("rules")
        .push(json!({"name": "next", "trigger": {"path": "/ticket/{t}"}, "run": "last"}));
    let codes: Vec<String> = found(blueprint, "/rules/2").into_iter().map(|(code, _)| code).collect();
    assert_eq!(codes, ["undeclared_name"]);
    let help = |change: &dyn Fn(&mut Value)| {
        let mut blueprint = tickets(json!({}), json!({}));
        change(&mut blueprint);
        let findings = patchboard_protocols::check_value(blueprint).findings;
        findings.first().map(|finding| (finding.code, finding.help.clone())).expect("a finding")
    };
    let misspelt = help(&|blueprint| blueprint["workers"]["sorter"]["reads"] = json!(["/request/tickets/{tt}"]));
    assert_eq!(misspelt, ("unbound_name", "Did you mean `{t}` in a path of `sorter`?".to_owned()));
    let bare = help(&|blueprint| blueprint["rules"][0]["when"] = "t == 'T-1'".into());
    assert_eq!(bare, ("bad_condition", "Write `bound.t`, which is what the trigger binds.".to_owned()));
    let twice = help(&|blueprint| {
        blueprint["rules"][1] = json!({"name": "sort", "trigger": {"after": ["nobody"]}, "run": "last"})
    });
    assert!(!twice.1.contains("`sort`, `sort`"), "{twice:?}");
    let text = help(&|blueprint| blueprint["done"] = "has(state.summary)".into());
    assert!(text.1.contains("`{when: has(state.answer)}`"), "{text:?}");
}

#[test]
fn a_schema_that_no_value_satisfies_is_found() {
    for (schema, message) in [
        (json!({"type": "string", "minLength": 500, "maxLength": 400}), "`minLength` is more than `maxLength`"),
        (json!({"minimum": 1.5, "maximum": 1}), "`minimum` is more than `maximum`"),
        (json!({"enum": []}), "`enum` names no value"),
        (json!({"const": "x", "enum": ["y", "z"]}), "`const` is none of `enum`"),
        (json!({"type": "string", "enum": [1, 2]}), "`enum` names no value of type string"),
        (json!({"type": ["integer", "null"], "const": 1.5}), "`const` names no value of type integer or null"),
        (
            json!({"required": ["owner"], "additionalProperties": false, "properties": {"name": true}}),
            "`owner` is required, and `additionalProperties: false` forbids it",
        ),
        (json!({"minLength": 3, "maxLength": 3, "minItems": 0, "maxItems": 0}), ""),
        (json!({"type": ["integer", "string"], "enum": [1.0, null]}), ""),
        (json!({"type": "number", "const": 1}), ""),
        (json!({"required": ["x_a"], "additionalProperties": false, "patternProperties": {"^x_": true}}), ""),
        (json!({"required": ["a"], "properties": {"b": true}}), ""),
    ] {
        let mut blueprint = tickets(json!({}), json!({}));
        blueprint["state"]["schema"]["properties"]["more"] = schema.clone();
        let found: Vec<String> = patchboard_protocols::check_value(blueprint)
            .findings
            .into_iter()
            .filter(|finding| finding.code == "impossible_schema")
            .map(|finding| finding.message)
            .collect();
        assert_eq!(found.join(" "), message, "{schema}");
    }
}

#[test]
fn an_invariant_of_what_comes_last_costs_nothing_before() {
    let costly = |expr: &str, ops: &[&str]| {
        let mut blueprint = tickets(json!({}), json!({"invariants": [{"name": "all", "expr": expr}]}));
        blueprint["workers"]["last"]["writes"] = json!([{"path": "/summary", "ops": ops}]);
        codes(blueprint).contains(&"costly_invariant")
    };
    for guarded in [
        "!has(state.summary) || state.tickets.all(k, t, has(t.class))",
        "has(state.summary) ? state.tickets.all(k, t, has(t.class)) : true",
    ] {
        assert!(!costly(guarded, &["add"]) && costly(guarded, &["add", "replace"]), "{guarded}");
    }
    assert!(costly("!has(state.tickets) || state.tickets.all(k, t, has(t.class))", &["add"]));
    assert!(costly("state.tickets.all(k, t, has(t.class)) || !has(state.summary)", &["add"]));
}
