//! Cost limits of regular expressions: per schema, per validated value, and for the parts that a plan compiles.

use serde_json::{Value, json};

use super::{compiled, refused};
use crate::schema::StateSchema;

/// Returns a schema with a member for each expression.
fn members(expressions: impl IntoIterator<Item = String>) -> Value {
    let each = expressions.into_iter().enumerate();
    let members: serde_json::Map<_, _> = each.map(|(n, it)| (format!("p{n}"), json!({ "pattern": it }))).collect();
    json!({ "properties": members })
}

#[test]
fn the_regular_expressions_that_people_write_are_accepted() {
    for expression in [
        r"^\p{L}{1,200}$",
        r"^[\p{L}\p{N} '-]{1,100}$",
        r"^[\p{L}\p{N}\p{P}\p{Zs}]{1,100}$",
        r"^(?:\p{L}{1,40}[ -]?){1,4}$",
        r"^\w{1,64}$",
        r"^.{1,4000}$",
        r"^[\s\S]{1,4000}$",
        r"^\S{1,1000}$",
        r"^[A-Za-z0-9+/]{0,8000}={0,2}$",
        r"^(\S+\s+){0,499}\S+$",
        r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$",
        r"^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$",
        r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    ] {
        compiled(json!({ "pattern": expression }));
        compiled(json!({ "patternProperties": { expression: true } }));
    }
    let words: Vec<String> = (0..2000).map(|n| format!("word number {n}")).collect();
    compiled(json!({ "pattern": format!("^({})$", words.join("|")) }));
    // Two of the largest expressions, used any number of times.
    let names = (0..200).map(|n| format!("^\\p{{L}}{{1,{}}}$", 90 + n % 2));
    compiled(members(names));
}

#[test]
fn one_regular_expression_has_so_many_states_and_no_more() {
    compiled(json!({ "pattern": "a.{8191}" }));
    refused(json!({ "pattern": "a.{8192}" }), "/pattern", "8193 states, more than the 8192");
    refused(json!({ "patternProperties": { "~a{9000}/": true } }), "/patternProperties/~0a{9000}~1", "9002 states");
    refused(json!({ "pattern": "(((((a{999}){999}){999}){999}){999}){999}" }), "/pattern", "linear time");
    // Optional parts and groups count as well: matching steps through each copy without consuming input.
    compiled(json!({ "pattern": "(.?){2730}" }));
    refused(json!({ "pattern": "(.?){2731}" }), "/pattern", "8193 states");
}

#[test]
fn one_regular_expression_has_so_many_bytes_and_no_more() {
    refused(json!({ "pattern": r"\p{L}{999}" }), "/pattern", "more than 10 MiB while it is compiled; shorten counted");
    refused(json!({ "pattern": r"\s".repeat(1000) }), "/pattern", "too many classes");
    compiled(json!({ "pattern": r"\s".repeat(200) }));
    refused(json!({ "pattern": format!("(?i){}", r"\p{L}".repeat(3000)) }), "/pattern", "too many classes");
}

#[test]
fn all_regular_expressions_of_a_schema_have_so_many_bytes_together() {
    let some = (0..6).map(|n| format!(r"\p{{L}}{{{}}}", 40 + n));
    compiled(members(some));
    let many = members((0..100).map(|n| format!(r"\p{{L}}{{{}}}", 40 + n)));
    refused(many.clone(), "/properties/p18/pattern", "take more than 8 MiB when compiled");
    // The limit also covers patterns of property names.
    let names: serde_json::Map<_, _> = (0..9).map(|n| (format!(r"\p{{L}}{{{}}}", 90 + n), json!(true))).collect();
    let Err(error) = crate::schema::Schema::compile(&json!({ "patternProperties": names }), false) else {
        panic!("accepted")
    };
    assert!(error.pointer.starts_with("/patternProperties/"), "{error}");
    // Parts that are never compiled cost nothing, such as unused definitions and data.
    let used = json!({ "$defs": many["properties"], "$ref": "#/$defs/p3" });
    assert!(!compiled(used).is_valid(&json!("1")));
    let data =
        json!({ "const": many, "default": many, "examples": [many], "properties": { "pattern": { "const": 1 } } });
    compiled(data);
    let ignored = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": { "a": { "type": "string" } },
        "properties": { "a": { "$ref": "#/definitions/a", "pattern": "(a{999}){999}" } },
    });
    compiled(ignored);
}

#[test]
fn the_regular_expressions_that_judge_one_value_have_so_many_states_together() {
    let all = |count: usize| {
        json!({ "properties": { "a": { "allOf": vec![json!({ "$ref": "#/$defs/long" }); count] } },
            "$defs": { "long": { "pattern": "^.{1,2000}$" } } })
    };
    compiled(all(4));
    refused(all(5), "/properties/a", "more than 8192 states together");
    // Expressions of different members judge different values.
    compiled(members((0..20).map(|n| format!("^[a-z]{{1,{}}}$", 4000 + n))));
}

#[test]
fn a_plan_that_would_compile_too_much_again_is_not_made() {
    let nested = |lengths: &[usize]| {
        let names = members(lengths.iter().map(|length| format!(r"^\p{{L}}{{1,{length}}}$")));
        let people = json!({ "type": "array", "items": names });
        json!({ "properties": { "teams": { "items": { "properties": { "people": people } } } } })
    };
    let plan = |schema: &Value| StateSchema::compile(schema, false).expect("a schema of a test");
    assert!(!plan(&nested(&[100])).is_opaque());
    assert!(plan(&nested(&[150, 200])).is_opaque());
}
