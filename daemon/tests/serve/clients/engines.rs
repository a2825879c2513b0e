//! Reply schemas in real engines of constrained decoding: llguidance, and llama.cpp's converter of JSON Schemas.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use patchboard_kernel::bindings::Bindings;
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::board::{Board, NewBoard};
use patchboard_kernel::id::Timestamp;
use patchboard_lint::source::{self, Source};
use patchboard_llm::schema;
use patchboard_protocols::PLANS;
use serde_json::{Map, Value, json};

use super::Client;

/// Errors by engine.
type Errors = BTreeMap<String, String>;

/// Files of the shipped blueprints.
struct Shipped;

impl source::FileLoader for Shipped {
    fn text(&mut self, name: &str) -> Result<String, String> {
        fs::read_to_string(blueprints().join(name)).map_err(|error| error.to_string())
    }

    fn folders(&mut self, name: &str) -> Result<Vec<String>, String> {
        let entries = fs::read_dir(blueprints().join(name)).map_err(|error| error.to_string())?;
        Ok(entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect())
    }
}

fn blueprints() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints")
}

/// Returns every shipped blueprint, by name.
fn shipped() -> Vec<(String, Blueprint)> {
    let entries = fs::read_dir(blueprints()).expect("they are shipped").map(|entry| entry.expect("an entry").path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let mut all: Vec<(String, Blueprint)> = files
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let source = Source::read(&name, &fs::read_to_string(&path).expect("UTF-8")).expect("it is YAML");
            let source =
                patchboard_protocols::resolve(source, &mut Shipped).unwrap_or_else(|findings| panic!("{findings:?}"));
            let report = patchboard_protocols::check(&source);
            (name, report.blueprint.unwrap_or_else(|| panic!("{:?}", report.findings)))
        })
        .collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

/// Returns a minimal value of a part of a request's schema.
fn least(root: &Value, part: &Value) -> Value {
    let referred = part["$ref"].as_str().and_then(|place| root.pointer(place.strip_prefix('#')?));
    let schema = referred.unwrap_or(part);
    if let Some(value) = schema.get("const").or_else(|| schema["enum"].get(0)) {
        return value.clone();
    }
    match schema["type"].as_str().unwrap_or("object") {
        "string" => json!("a text of a request"),
        "integer" | "number" => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
        "boolean" => json!(false),
        "array" => (0..schema["minItems"].as_u64().unwrap_or(0)).map(|_| least(root, &schema["items"])).collect(),
        "object" => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            required
                .map(|name| (name.to_owned(), least(root, &schema["properties"][name])))
                .collect::<Map<_, _>>()
                .into()
        }
        _ => Value::Null,
    }
}

/// Creates a board with a minimal or shipped request.
fn board(name: &str, blueprint: Blueprint) -> Board {
    let request = match fs::read_to_string(blueprints().join(name).join("request.json")) {
        Ok(text) => serde_json::from_str(&text).expect("JSON"),
        Err(_) => {
            let schema = &serde_json::to_value(&blueprint).expect("JSON")["request"];
            least(schema, schema)
        }
    };
    let genesis = NewBoard::new("b", blueprint, request, Timestamp(1_750_000_000_000));
    Board::create(genesis, &PLANS).unwrap_or_else(|error| panic!("{name}: {error}")).0
}

/// Returns the kinds of value schemas that a blueprint may contain.
fn kinds() -> Vec<(&'static str, Value)> {
    let object = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let with = |more: Value| {
        let mut schema = object.clone();
        schema.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        schema
    };
    let text = |more: &str, value: &str| json!({"type": "string", more: value});
    vec![
        ("unique", json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true})),
        ("unique-enum", json!({"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": true})),
        ("contains", json!({"type": "array", "contains": {"type": "string"}, "minContains": 2})),
        ("not", json!({"type": "string", "not": {"enum": ["x"]}})),
        ("if", json!({"if": object, "then": object, "else": {"type": "string"}})),
        ("dependent-required", with(json!({"dependentRequired": {"a": ["b"]}}))),
        ("dependent-schemas", with(json!({"dependentSchemas": {"a": {"required": ["b"]}}}))),
        ("names", with(json!({"propertyNames": {"pattern": "^a"}}))),
        ("name-patterns", with(json!({"patternProperties": {"^b": {"type": "string"}}}))),
        ("members", with(json!({"minProperties": 1, "maxProperties": 2}))),
        ("required-members", with(json!({"minProperties": 1, "maxProperties": 2, "required": ["a"]}))),
        ("any-members", json!({"type": "object", "minProperties": 1, "additionalProperties": {"type": "integer"}})),
        ("unevaluated", with(json!({"unevaluatedProperties": false}))),
        ("unevaluated-items", json!({"type": "array", "prefixItems": [{"type": "string"}], "unevaluatedItems": false})),
        ("multiple", json!({"type": "number", "multipleOf": 0.01, "minimum": 0, "exclusiveMaximum": 5})),
        ("date-time", text("format", "date-time")),
        ("unknown-format", text("format", "uri-reference")),
        ("regex-format", text("format", "regex")),
        ("word-boundary", text("pattern", r"\bfoo")),
        ("classes", text("pattern", r"^[a-z]+(-[0-9]{1,3})?$")),
        ("one-of", json!({"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]})),
        ("all-of", json!({"allOf": [object, {"type": "object", "required": ["b"]}]})),
        ("tuple", json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false})),
        ("recursive", json!({"$ref": "#/$defs/tree"})),
        ("true", json!({"type": "object", "properties": {"a": true}})),
        ("false", json!({"type": "object", "properties": {"a": false, "b": {"type": "string"}}})),
        ("constants", json!({"enum": ["a", 1, null, {"b": [2]}]})),
        ("nullable", json!({"type": ["string", "null"], "minLength": 2, "default": null, "title": "t"})),
        ("anything", json!({})),
    ]
}

/// Prints past the test harness's capture of output. A closed terminal is no reason to fail.
fn print(table: &[String]) {
    let _ = writeln!(std::io::stderr(), "{}", table.join("\n"));
}

/// Compiles reply schemas in the engines; returns the errors by schema, and a line for each schema and engine.
fn compile(client: &Client, forms: &[(String, &'static str, Value)]) -> (Vec<String>, Vec<String>) {
    let directory = tempfile::tempdir().expect("a directory");
    for (seat, form, schema) in forms {
        fs::write(directory.path().join(format!("{seat}.{form}.json")), schema.to_string()).expect("written");
    }
    let path = directory.path().to_str().expect("UTF-8");
    let printed = client.run("engines.py", &[path], Duration::from_secs(300));
    let errors: BTreeMap<String, Errors> = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(errors.len(), forms.len());
    let mut counts: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    let mut refused = Vec::new();
    for (file, errors) in &errors {
        let (_, form) = file.rsplit_once('.').expect("a form");
        for (engine, error) in errors {
            let (compiled, all) = counts.entry((form, engine)).or_default();
            *all += 1;
            match error.is_empty() {
                true => *compiled += 1,
                false => refused.push(format!("{file} in {engine}: {error}")),
            }
        }
    }
    let line = |((form, engine), (compiled, all)): (&(&str, &str), &(usize, usize))| {
        format!("{form:<8} {engine:<10} {compiled} of {all} compile")
    };
    (refused, counts.iter().map(line).collect())
}

#[test]
#[ignore = "full tier: packages from registries, and a C++ compiler"]
fn forms_of_all_shipped_blueprints_compile_in_real_engines() {
    let Some(client) = Client::find("engines") else { return };
    let mut forms = Vec::new();
    for (name, blueprint) in shipped() {
        let board = board(&name, blueprint);
        let workers = board.blueprint().workers.iter().filter(|(_, worker)| worker.agent == AgentKind::Llm);
        for (worker, _) in workers {
            let rehearsal = board.dry_run(worker, None, &Bindings::default()).expect("the worker is there");
            let of_seat = schema::all_reply_schemas(&rehearsal.context).into_iter();
            forms.extend(of_seat.map(|(form, schema)| (format!("{name}.{worker}"), form, schema)));
        }
    }
    assert!(forms.len() > 100, "{} forms", forms.len());
    let (refused, table) = compile(&client, &forms);
    print(&table);
    assert_eq!(refused, Vec::<String>::new());
}

#[test]
#[ignore = "full tier: packages from registries, and a C++ compiler"]
fn forms_of_every_kind_of_schema_compile_in_real_engines() {
    let Some(client) = Client::find("engines") else { return };
    let mut forms = Vec::new();
    for (kind, value) in kinds() {
        let tree = json!({"type": "array", "items": {"$ref": "#/$defs/tree"}});
        let properties = json!({"value": value, "list": {"type": "array", "items": value}});
        let blueprint = json!({
            "blueprint": 1,
            "name": kind,
            "state": {
                "schema": {"type": "object", "properties": properties, "$defs": {"tree": tree}},
                "initial": {"list": []},
                "assert_formats": true,
            },
            "workers": {"w": {
                "agent": "llm",
                "reads": ["/list"],
                "writes": [{"path": "/value", "ops": ["add"]}, {"path": "/list/*", "ops": ["add"]}],
            }},
        });
        let board = board(kind, serde_json::from_value(blueprint).expect("a blueprint"));
        let rehearsal = board.dry_run(&"w".into(), None, &Bindings::default()).expect("the worker is there");
        let of_seat = schema::all_reply_schemas(&rehearsal.context);
        assert!(of_seat[0].1.to_string().contains("/value"), "{kind}: {of_seat:?}");
        forms.extend(of_seat.into_iter().map(|(form, schema)| (kind.to_owned(), form, schema)));
    }
    let (refused, table) = compile(&client, &forms);
    print(&table);
    assert_eq!(refused, Vec::<String>::new());
}

#[test]
#[ignore = "full tier: packages from registries, and a C++ compiler"]
fn engines_refuse_what_they_do_not_know() {
    let Some(client) = Client::find("engines") else { return };
    let of = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    let unique = of(json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}));
    let forms = [("unique".to_owned(), "derived", unique), ("false".to_owned(), "derived", of(json!(false)))];
    let (refused, _) = compile(&client, &forms);
    let begins = ["false.derived in llama.cpp: ", "unique.derived in llguidance: "];
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused.iter().zip(begins).all(|(refused, begin)| refused.starts_with(begin)), "{refused:?}");
}
