//! Small blueprints and bodies that cause much work: each is answered in time and in little memory.
//!
//! Each family of bombs is generated at growing sizes, until the daemon rejects one as too large. So the limits under
//! test are the product's, and the largest accepted bomb is among the measured ones.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::daemon::{Daemon, limited};
use crate::process::{ended_within, forget_peak, is_optimised, peak_mib, processor_time};

/// Returns the limit of processor time for one bomb. An unoptimised build takes twenty times as long.
fn time() -> Duration {
    Duration::from_secs(if is_optimised() { 5 } else { 100 })
}

/// Limit of additional memory in MiB.
const MEMORY_MIB: u64 = 512;

/// Largest size of a family.
const SIZE_MAX: usize = 1 << 17;

/// Generator of the bomb of a size.
type Make = fn(usize) -> String;

/// Returns a blueprint with this schema and initial value of `/a`, and this `done` condition.
fn blueprint(schema: Value, initial: Value, done: &str) -> String {
    let mut schema = schema;
    let definitions = schema.as_object_mut().and_then(|schema| schema.remove("$defs")).unwrap_or_else(|| json!({}));
    let schema = json!({"$defs": definitions, "type": "object", "properties": {"a": schema, "b": {}}});
    with_parts(json!({"schema": schema, "initial": {"a": initial}}), &[("done", json!({"when": done}))])
}

/// Returns a blueprint with this state, and `parts` in place of its own.
fn with_parts(state: Value, parts: &[(&str, Value)]) -> String {
    let mut blueprint = json!({
        "blueprint": 2,
        "name": "bomb",
        "state": state,
        "workers": {"w": {
            "agent": "script", "script": [[]], "reads": ["/a"],
            "writes": [{"path": "/b", "ops": ["add", "replace"]}, {"path": "/a/*", "ops": ["add", "replace"]}],
        }},
        "rules": [{"name": "begin", "trigger": "start", "run": "w"}],
        "done": {"when": "has(state.b)"},
    });
    for (name, part) in parts {
        blueprint[*name] = part.clone();
    }
    blueprint.to_string()
}

/// Returns a value inside this many nested objects.
fn within(levels: usize, innermost: Value) -> Value {
    (0..levels).fold(innermost, |value, _| json!({"x": value}))
}

/// Returns a chain of definitions, each naming the next one twice, and a value of that depth.
fn doubling(levels: usize, keyword: &str) -> String {
    let levels = levels.min(60);
    let mut definitions = Map::new();
    for level in 0..levels {
        let next = json!({"properties": {"x": {"$ref": format!("#/$defs/d{}", level + 1)}}});
        definitions.insert(format!("d{level}"), json!({ keyword: [next, next] }));
    }
    definitions.insert(format!("d{levels}"), json!({"type": "array"}));
    blueprint(json!({"$defs": definitions, "$ref": "#/$defs/d0"}), within(levels.min(55), json!({})), "has(state.b)")
}

fn numbers(count: usize) -> Value {
    (0..count).collect::<Vec<_>>().into()
}

fn many(count: usize, part: impl Fn(usize) -> Value) -> Value {
    (0..count).map(part).collect::<Vec<_>>().into()
}

fn named(count: usize, part: impl Fn(usize) -> (String, Value)) -> Value {
    (0..count).map(part).collect::<Map<_, _>>().into()
}

/// Returns nested loops over a list.
fn loops(depth: usize) -> String {
    let inner = (0..depth).map(|at| format!("v{at}")).collect::<Vec<_>>().join(" + ");
    (0..depth).rev().fold(format!("{inner} >= 0"), |inner, at| format!("state.a.all(v{at}, {inner})"))
}

/// Families of blueprints that are parsed completely.
const BLUEPRINTS: &[(&str, Make)] = &[
    ("anyOf of the same twice", |size| doubling(size, "anyOf")),
    ("allOf of the same twice", |size| doubling(size, "allOf")),
    ("oneOf of the same twice", |size| doubling(size, "oneOf")),
    ("wide allOf", |size| blueprint(json!({"allOf": many(size, |_| json!({"type": "integer"}))}), json!(1), "true")),
    ("wide anyOf", |size| blueprint(json!({"anyOf": many(size, |at| json!({"const": at}))}), json!("x"), "true")),
    ("wide oneOf over many", |size| {
        let schema = json!({"items": {"oneOf": many(size, |at| json!({"minimum": at}))}});
        blueprint(schema, numbers(size), "true")
    }),
    ("contains over many", |size| {
        let parts = many(size, |at| json!({"contains": {"const": {"x": at}}}));
        blueprint(json!({"allOf": parts}), numbers(20 * size), "true")
    }),
    ("negations", |size| {
        blueprint((0..size.min(512)).fold(json!({}), |inner, _| json!({"not": inner})), json!(1), "true")
    }),
    ("a chain of references", |size| {
        let parts =
            named(size, |at| (format!("d{at}"), json!({"$ref": format!("#/$defs/d{}", (at + 1).min(size - 1))})));
        let mut parts = parts;
        parts[format!("d{}", size - 1)] = json!({});
        blueprint(json!({"$defs": parts, "$ref": "#/$defs/d0"}), json!(1), "true")
    }),
    ("references in a circle", |size| {
        let parts =
            named(size, |at| (format!("d{at}"), json!({"items": {"$ref": format!("#/$defs/d{}", (at + 1) % size)}})));
        blueprint(json!({"$defs": parts, "$ref": "#/$defs/d0"}), json!([[[[]]]]), "true")
    }),
    ("patterns that backtrack", |size| {
        blueprint(json!({"pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}), json!("a".repeat(size)), "true")
    }),
    ("repetitions in repetitions", |size| {
        blueprint(
            json!({"pattern": format!("((a{{0,{size}}}){{0,{size}}}){{0,{size}}}b")}),
            json!("a".repeat(60_000)),
            "true",
        )
    }),
    ("long patterns over a text", |size| {
        blueprint(json!({"pattern": format!("^({})*$", "(a|ab)?".repeat(size))}), json!("a".repeat(60_000)), "true")
    }),
    ("patterns of names", |size| {
        let patterns = named(size, |at| (format!("^a*{at}"), json!({"type": "integer"})));
        blueprint(json!({"patternProperties": patterns}), named(size, |at| (format!("aaaa{at}"), json!(1))), "true")
    }),
    ("unique elements", |size| {
        blueprint(json!({"uniqueItems": true}), many(size, |at| json!([at % 2, {"b": at}])), "true")
    }),
    ("an enumeration over many", |size| {
        blueprint(json!({"items": {"enum": many(size, |at| json!([at]))}}), many(size, |at| json!([at])), "true")
    }),
    ("requirements of names", |size| {
        let parts = named(size, |at| (format!("p{at}"), json!([format!("p{}", at + 1)])));
        blueprint(json!({"dependentRequired": parts}), named(size, |at| (format!("p{at}"), json!(1))), "true")
    }),
    ("loops in each other", |size| blueprint(json!({}), numbers(3_000), &loops(size.min(512)))),
    ("two loops over many", |size| blueprint(json!({}), numbers(size), &loops(2))),
    ("a text doubled", |size| {
        let doubled =
            (0..size.min(512)).fold("'aaaaaaaa'".to_owned(), |inner, _| format!("[{inner}].map(x, x + x)[0]"));
        blueprint(json!({}), json!(1), &format!("size({doubled}) > 0"))
    }),
    ("parentheses", |size| blueprint(json!({}), json!(1), &format!("{}true{}", "(".repeat(size), ")".repeat(size)))),
    ("negations in an expression", |size| blueprint(json!({}), json!(1), &format!("{}true", "!".repeat(size)))),
    ("a long sum", |size| blueprint(json!({}), json!(1), &format!("{} > 0", vec!["1"; size].join(" + ")))),
    ("lists in each other", |size| {
        blueprint(json!({}), json!(1), &format!("size({}{}) > 0", "[".repeat(size), "]".repeat(size)))
    }),
    ("choices in each other", |size| blueprint(json!({}), json!(1), &format!("{}true", "true ? true : ".repeat(size)))),
    ("patterns in an expression", |size| {
        let expression = format!("state.a.all(x, '{}b'.matches('^(a+)+$'))", "a".repeat(size));
        blueprint(json!({}), numbers(3_000), &expression)
    }),
    ("workers and rules", |size| {
        let worker = |at| {
            let writes = json!([{"path": format!("/a/w{at}/*"), "ops": ["add", "replace", "remove"]}]);
            (format!("w{at}"), json!({"agent": "script", "script": [[]], "reads": ["/a/*"], "writes": writes}))
        };
        let rule = |at: usize| {
            let trigger = json!({"op": "add", "path": format!("/a/w{}/{{x}}", (at * 7) % size)});
            json!({"name": format!("r{at}"), "trigger": trigger, "run": format!("w{at}")})
        };
        let state = json!({"schema": {}, "initial": {"a": {}}});
        with_parts(state, &[("workers", named(size, worker)), ("rules", many(size, rule))])
    }),
    ("grants", |size| {
        let grant = |at| {
            let value = json!({"anyOf": [{"const": at}, {"type": "null"}]});
            json!({"path": format!("/a/*/{at}/*"), "ops": ["add"], "value": value})
        };
        let worker = json!({"agent": "script", "script": [[]], "reads": ["/a"], "writes": many(size, grant)});
        with_parts(json!({"schema": {}, "initial": {"a": {}}}), &[("workers", json!({ "w": worker }))])
    }),
    ("places to read", |size| {
        let reads = many(size, |at| json!(format!("/a/*/{at}/{{x{}}}", at % 7)));
        let worker = json!({"agent": "script", "script": [[]], "reads": reads});
        with_parts(json!({"schema": {}, "initial": {"a": {}}}), &[("workers", json!({ "w": worker }))])
    }),
    ("invariants for elements", |size| {
        let invariant =
            |at| json!({"name": format!("i{at}"), "for": "/a/*", "expr": "state.a.all(x, x >= 0 && self >= 0)"});
        let state = json!({"schema": {}, "initial": {"a": numbers(3_000)}});
        with_parts(state, &[("invariants", many(size, invariant))])
    }),
    ("laughs", |size| {
        let mut text = "blueprint: 2\nname: n\nstate:\n  schema: {}\n  initial:\n    a0: &a0 [lol, lol]\n".to_owned();
        for level in 1..size {
            text.push_str(&format!("    a{level}: &a{level} [*a{before}, *a{before}]\n", before = level - 1));
        }
        text
    }),
    ("merged maps", |size| {
        let merged = |at: usize| format!("a{at}: &a{at}\n  <<: *a{}\n  k{at}: 1\n", at - 1);
        format!("a0: &a0\n  k: 1\n{}", (1..=size).map(merged).collect::<String>())
    }),
    ("lists of lists", |size| format!("a: {}1{}", "[".repeat(size), "]".repeat(size))),
    ("objects of objects", |size| format!("{}1{}", "{a: ".repeat(size), "}".repeat(size))),
    ("objects that never end", |size| "{\"a\":".repeat(size)),
    ("blocks of blocks", |size| (0..size.min(1_500)).map(|at| format!("{}a:\n", " ".repeat(at))).collect()),
    ("documents", |size| "---\n".repeat(size)),
    ("tags", |size| format!("a: {}1", "!a ".repeat(size))),
    ("a long text", |size| format!("name: {}", "x".repeat(32 * size))),
    ("indentation", |size| format!("{}a: 1", " ".repeat(16 * size))),
    ("names", |size| (0..size).map(|at| format!("n{at}: 1\n")).collect()),
    ("one name again and again", |size| "n: 1\n".repeat(size)),
    ("anchors", |size| (0..size).map(|at| format!("n{at}: &n{at} 1\n")).collect()),
];

/// Returns a workflow; `after` gives the dependencies of each node.
fn workflow(count: usize, after: impl Fn(usize) -> Vec<usize>) -> String {
    let node = |at| {
        let after: Vec<String> = after(at).into_iter().map(|at| format!("n{at}")).collect();
        (format!("n{at}"), json!({"dependencies": after}))
    };
    json!({"workflow": {"nodes": named(count, node)}}).to_string()
}

/// Families of bodies of `POST /v1/workflows/check`.
const WORKFLOWS: &[(&str, Make)] = &[
    ("a chain of nodes", |size| workflow(size, |at| at.checked_sub(1).into_iter().collect())),
    ("a circle of nodes", |size| workflow(size, |at| vec![(at + 1) % size])),
    ("nodes after all before them", |size| workflow(size.min(1_200), |at| (0..at).collect())),
    ("nodes after themselves", |size| workflow(size, |at| vec![at])),
];

/// Families of other bodies of `POST /v1/blueprints/check`.
const BODIES: &[(&str, Make)] = &[
    ("a request of many values", |size| {
        let source = blueprint(json!({}), json!(1), "true");
        json!({"source": source, "request": numbers(8 * size)}).to_string()
    }),
    ("a body of lists in each other", |size| {
        format!("{{\"source\":\"x\",\"request\":{}1{}}}", "[".repeat(16 * size), "]".repeat(16 * size))
    }),
    ("a body of empty lists", |size| format!("{{\"source\":\"x\",\"request\":[{}1]}}", "[],".repeat(16 * size))),
    ("a body of many names", |size| {
        let names: String = (0..4 * size).map(|at| format!("\"{at}\":0,")).collect();
        format!("{{{names}\"source\":\"x\"}}")
    }),
    ("a body of escapes", |size| format!("{{\"source\":\"{}\"}}", "\\u0001".repeat(10 * size))),
];

/// Returns the sizes of a family in ascending order.
fn sizes() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(16), |size| Some(size * 4)).take_while(|size| *size <= SIZE_MAX * 2)
}

/// Worst measurements.
#[derive(Default)]
struct Worst {
    count: usize,
    time: (Duration, String),
    memory_mib: (u64, String),
    faults: Vec<String>,
}

impl Worst {
    fn add(&mut self, name: &str, took: Duration, memory_mib: u64, fault: Option<String>) {
        self.count += 1;
        if took > self.time.0 {
            self.time = (took, name.to_owned());
        }
        if memory_mib > self.memory_mib.0 {
            self.memory_mib = (memory_mib, name.to_owned());
        }
        if let Some(fault) = fault {
            self.faults.push(format!("{name}: {fault}"));
        }
    }

    /// Fails if a bomb took too much time or memory, or got an error that does not blame its author.
    fn is_borne(&self, by: &str) {
        assert!(self.faults.is_empty(), "{}", self.faults.join("\n"));
        let (time, memory) = (&self.time, &self.memory_mib);
        let memory = match memory.0 {
            0 => format!("each within {MEMORY_MIB} MiB"),
            most => format!("the largest in {most} MiB ({})", memory.1),
        };
        println!("bombs to {by}: {} answered; the slowest in {:.2?} ({}), {memory}", self.count, time.0, time.1);
    }
}

#[tokio::test]
async fn every_bomb_over_http_is_answered_in_time_and_in_little_memory() {
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    let read = format!("Bearer {}", daemon.token("read"));
    // Other tests cover the limits per caller.
    daemon.configure("[serve.limits]\nbody_mib_per_minute = 100000\nprocessor_percent = 100\nrequest_seconds = 600\n");
    // A failing bomb must not exhaust the machine's memory.
    daemon.data_mib = Some(4 * MEMORY_MIB);
    daemon.start();
    let headers = [("authorization", read.as_str()), ("content-type", "application/json")];
    let check = "/v1/blueprints/check";
    let as_source = |text: String| json!({ "source": text }).to_string();
    let families = BLUEPRINTS.iter().map(|(name, make)| (*name, *make, check, true));
    let families = families.chain(BODIES.iter().map(|(name, make)| (*name, *make, check, false)));
    let families = families.chain(WORKFLOWS.iter().map(|(name, make)| (*name, *make, "/v1/workflows/check", false)));
    let mut worst = Worst::default();
    for (name, make, path, is_source) in families {
        for size in sizes() {
            let text = make(size);
            let body = if is_source { as_source(text) } else { text };
            forget_peak(daemon.process());
            let before = (peak_mib(daemon.process()).expect("it runs"), processor_time(daemon.process()));
            let answer = daemon.request(Method::POST, path, &headers, Some(body)).await;
            let took = processor_time(daemon.process()) - before.1;
            let more = peak_mib(daemon.process()).expect("it runs").saturating_sub(before.0);
            let is_wrong = answer.status.is_server_error() || took > time() || more > MEMORY_MIB;
            let fault = is_wrong.then(|| format!("{} in {took:.2?}, {more} MiB: {:.300}", answer.status, answer.text));
            worst.add(&format!("{name}, {size}"), took, more, fault);
            // Larger sizes would be rejected for their size, too.
            if answer.status == 413 || answer.text.contains("too_large") {
                break;
            }
        }
    }
    daemon.request(Method::GET, "/healthz", &[], None).await.expect_status(200);
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
    worst.is_borne("the daemon");
}

#[test]
fn every_bomb_to_check_is_answered_in_time_and_in_little_memory() {
    let daemon = Daemon::not_started(&[]);
    let mut worst = Worst::default();
    for (name, make) in BLUEPRINTS {
        // A small size, a medium one and the largest.
        for size in [256, 2_048, SIZE_MAX] {
            fs::write(daemon.path().join("bomb.yaml"), make(size)).expect("a file can be written");
            let mut command = limited(&daemon.command(&["check", "bomb.yaml"]), MEMORY_MIB);
            let log = daemon.path().join("told");
            let file = || fs::File::create(&log).expect("a file can be written");
            let began = Instant::now();
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file()).spawn();
            let status = ended_within(&mut child.expect("the binary can be run"), 4 * time());
            let took = began.elapsed();
            let stderr = fs::read_to_string(&log).unwrap_or_default();
            let is_answered = status.and_then(|status| status.code()).is_some_and(|code| [0, 2].contains(&code));
            let is_wrong = !is_answered || stderr.contains("panicked");
            let fault = is_wrong.then(|| format!("{status:?} in {took:.2?}: {stderr:.300}"));
            worst.add(&format!("{name}, {size}"), took, 0, fault);
        }
    }
    worst.is_borne("`patchboard check`");
}

/// Returns a valid blueprint that is slow to check.
pub(crate) fn heavy() -> String {
    let parts = many(200, |at| json!({"contains": {"const": {"x": at}}}));
    blueprint(json!({"allOf": parts}), many(4_000, |at| json!({"x": at})), "has(state.b)")
}
