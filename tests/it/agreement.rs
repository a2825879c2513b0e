//! Checks that the published meta-schema and `check` agree on the form of blueprints: an editor marks an error
//! exactly where `check` rejects.

use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use patchboard_lint::source::{FileLoader, Source};
use patchboard_lint::{Diagnostic, META_SCHEMA};
use serde_json::{Value, json};

/// Number of generated blueprints.
const MUTANTS: u64 = 500;

/// Directory of blueprints.
struct Folder(PathBuf);

impl FileLoader for Folder {
    fn text(&mut self, name: &str) -> Result<String, String> {
        fs::read_to_string(self.0.join(name)).map_err(|error| error.to_string())
    }

    fn folders(&mut self, name: &str) -> Result<Vec<String>, String> {
        let entries = fs::read_dir(self.0.join(name)).map_err(|error| error.to_string())?;
        let entries = entries.flatten().filter(|entry| entry.path().is_dir());
        Ok(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    }
}

/// A shipped blueprint and its path.
struct Shipped {
    path: PathBuf,
    text: String,
}

impl Shipped {
    /// Lists the shipped blueprints: every YAML file of blueprints and examples that has a format.
    fn all() -> Vec<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let (mut found, mut folders) = (Vec::new(), vec![root.join("blueprints"), root.join("examples")]);
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "yaml") {
                    let text = fs::read_to_string(&path).expect("a text");
                    found.push(Self { path, text });
                }
            }
        }
        found.retain(|shipped| shipped.text.lines().any(|line| line.starts_with("blueprint: ")));
        found.sort_by(|one, other| one.path.cmp(&other.path));
        found
    }

    fn value(&self) -> Value {
        Source::read("shipped", &self.text).expect("YAML").value().clone()
    }

    fn folder(&self) -> Folder {
        Folder(self.path.parent().expect("a folder").to_owned())
    }
}

/// Returns the result of `check` for a text.
fn checked(text: &str, mut folder: Folder) -> (bool, Vec<Diagnostic>) {
    let source = match Source::read("mutant", text) {
        Ok(source) => source,
        Err(finding) => return (false, vec![finding]),
    };
    match patchboard_protocols::resolve(source, &mut folder) {
        Ok(source) => {
            let report = patchboard_protocols::check(&source);
            (report.blueprint.is_some(), report.findings)
        }
        Err(findings) => (false, findings),
    }
}

/// Returns true if a finding is about the form of the blueprint itself, not of a fragment that it uses.
fn is_of_form(finding: &Diagnostic, value: &Value) -> bool {
    let has_fragments = value["use"].as_array().is_some_and(|names| !names.is_empty());
    match finding.code {
        "missing_field" => !(finding.pointer.is_empty() && has_fragments),
        "unknown_field" | "bad_type" | "infinite_budget" | "yaml_syntax" => true,
        "bad_value" => finding.pointer.is_empty(),
        _ => false,
    }
}

fn validator() -> Validator {
    jsonschema::draft202012::new(&serde_json::from_str(META_SCHEMA).expect("JSON")).expect("a schema")
}

/// Describes how the two differ about a blueprint, if they do.
fn difference(validator: &Validator, value: &Value, folder: Folder) -> Option<String> {
    let errors: Vec<String> =
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    let (is_read, findings) = checked(&value.to_string(), folder);
    let of_form: Vec<&Diagnostic> = findings.iter().filter(|finding| is_of_form(finding, value)).collect();
    if errors.is_empty() && !of_form.is_empty() {
        return Some(format!("the schema accepts what `check` refuses: {of_form:?}"));
    }
    (is_read && !errors.is_empty()).then(|| format!("`check` accepts what the schema refuses: {errors:?}"))
}

#[test]
fn every_shipped_blueprint_is_valid_to_both() {
    let (validator, shipped) = (validator(), Shipped::all());
    assert!(shipped.len() > 15, "{}", shipped.len());
    for shipped in shipped {
        let errors: Vec<String> = validator.iter_errors(&shipped.value()).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", shipped.path.display());
        let (is_read, findings) = checked(&shipped.text, shipped.folder());
        assert!(is_read, "{}: {findings:?}", shipped.path.display());
    }
}

#[test]
fn members_supplied_by_fragments_or_protocols_are_optional() {
    let validator = validator();
    let named = |more: Value| {
        let mut value = json!({"blueprint": 2, "name": "b"});
        value.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        value
    };
    let (state, workers) = (json!({"schema": true}), json!({"w": {"agent": "llm"}}));
    let workflow = json!({"nodes": {"w": {}}});
    for (more, is_valid) in [
        (json!({"state": state, "workers": workers}), true),
        (json!({"workflow": workflow, "workers": workers}), true),
        (json!({"use": ["f.yaml"]}), true),
        (
            json!({"state": state, "departments": {"from": "d", "promises": {"text": "/a"}, "into": "/b/-", "group": "g"}}),
            true,
        ),
        (json!({"workers": workers}), false),
        (json!({"state": state}), false),
        (json!({"state": state, "use": []}), false),
        (json!({"workflow": workflow}), false),
        (
            json!({"workers": workers, "departments": {"from": "d", "promises": {"text": "/a"}, "into": "/b/-", "group": "g"}}),
            false,
        ),
    ] {
        let value = named(more);
        assert_eq!(validator.is_valid(&value), is_valid, "{value}");
        let (_, findings) = checked(&value.to_string(), Folder(PathBuf::from("/nowhere")));
        let is_of_form = findings.iter().any(|finding| is_of_form(finding, &value));
        assert!(!is_valid || !is_of_form, "{value}: {findings:?}");
        assert!(is_valid || !findings.is_empty(), "{value}");
    }
}

#[test]
fn both_judge_generated_blueprints_alike() {
    let (validator, shipped) = (validator(), Shipped::all());
    let values: Vec<Value> = shipped.iter().map(Shipped::value).collect();
    let (mut valid, mut differences) = (0, Vec::new());
    for seed in 0..MUTANTS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let at = random.below(values.len());
        let mut value = values[at].clone();
        for _ in 0..=random.below(2) {
            mutate(&mut value, &values, &mut random);
        }
        valid += usize::from(validator.is_valid(&value));
        if let Some(difference) = difference(&validator, &value, shipped[at].folder()) {
            differences.push(format!("SEED={seed} {}: {difference}", shipped[at].path.display()));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!((100..400).contains(&valid), "{valid} of {MUTANTS} are valid");
}

/// SplitMix64 generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("it is below a size")
    }

    fn one<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len())]
    }
}

/// Removes a part, or replaces it by another value or by an equally named part of another blueprint.
fn mutate(value: &mut Value, others: &[Value], random: &mut Random) {
    let own = places(value);
    let place = random.one(&own).clone();
    let (holder, name) = place.rsplit_once('/').expect("a place below the root");
    let put = match random.below(4) {
        0 => None,
        1 | 2 => Some(random.one(&simple()).clone()),
        _ => {
            let other = random.one(others);
            let alike: Vec<String> =
                places(other).into_iter().filter(|at| at.rsplit('/').next() == Some(name)).collect();
            let found = (!alike.is_empty())
                .then(|| other.pointer(&alike[random.below(alike.len())]).expect("it is there").clone());
            Some(found.unwrap_or_else(|| random.one(&simple()).clone()))
        }
    };
    match (value.pointer_mut(holder).expect("it is there"), put) {
        (Value::Object(members), put) => {
            let name = name.replace("~1", "/").replace("~0", "~");
            match (put, random.below(8)) {
                (Some(put), 0) => drop(members.insert(format!("{name}x"), put)),
                (Some(put), _) => drop(members.insert(name, put)),
                (None, _) => drop(members.remove(&name)),
            }
        }
        (Value::Array(elements), put) => {
            let index: usize = name.parse().expect("an index");
            match put {
                Some(put) => elements[index] = put,
                None => drop(elements.remove(index)),
            }
        }
        _ => {}
    }
}

/// Returns values of all types, at the ends of their ranges.
fn simple() -> Vec<Value> {
    let numbers = [
        json!(0),
        json!(1),
        json!(2),
        json!(-1),
        json!(70),
        json!(5_000_000_000_u64),
        json!(u64::MAX),
        json!(i64::MIN),
    ];
    let floats = [1.0, 2.0, 2.5, 0.5, 1e3, 1e15, 1e30].map(Value::from);
    let long = ["a", "ä"].into_iter().flat_map(|c| [64, 65, 400, 2_049].map(|count| Value::from(c.repeat(count))));
    let texts = [
        "",
        "a",
        "A b",
        "a-b",
        "-a",
        "a\nb",
        "5m",
        "0s",
        "05m",
        "5 m",
        "true",
        "state.a == 1",
        "/a",
        "/a/*",
        "llm",
        "builtin:",
        "never",
    ];
    let others = [
        Value::Null,
        json!(true),
        json!(false),
        json!([]),
        json!({}),
        json!(["a"]),
        json!(["a", "a"]),
        json!([1]),
        json!({"a": 1}),
    ];
    numbers.into_iter().chain(floats).chain(long).chain(texts.map(Value::from)).chain(others).collect()
}

/// Returns the places of a blueprint that have a prescribed form; schemas and data below them may hold anything.
fn places(value: &Value) -> Vec<String> {
    let (mut found, mut pending) = (Vec::new(), vec![(String::new(), value)]);
    while let Some((pointer, value)) = pending.pop() {
        let last = pointer.rsplit('/').next().unwrap_or_default();
        let is_data = matches!(
            last,
            "schema" | "initial" | "request" | "value" | "script" | "with" | "data" | "metadata" | "boards"
        );
        if !is_data {
            let members = value.as_object().into_iter().flatten();
            let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
            pending.extend(members.map(|(key, member)| (format!("{pointer}/{}", escaped(key)), member)));
            let elements = value.as_array().into_iter().flatten().enumerate();
            pending.extend(elements.map(|(index, element)| (format!("{pointer}/{index}"), element)));
        }
        if !pointer.is_empty() {
            found.push(pointer);
        }
    }
    found
}
