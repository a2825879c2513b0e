//! Compares the graph with the declarations and with concrete places.

use std::collections::BTreeSet;

use jsonptr::PointerBuf;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn blueprint(workers: Value, rules: Value) -> Blueprint {
    let value = json!({"blueprint": 1, "name": "drawn", "state": {"schema": true}, "workers": workers, "rules": rules});
    serde_json::from_value(value).expect("a blueprint")
}

/// Returns each edge as a line.
fn lines(graph: &Graph) -> Vec<String> {
    let name = |node: &Node| match node {
        Node::Occasion(text) => format!("({text})"),
        Node::Place(place) => place.text(),
        Node::Files => "(files)".to_owned(),
        Node::Worker(name) => name.to_string(),
    };
    let line = |edge: &Edge| {
        let ops: Vec<&str> = edge.ops.iter().map(|op| op.as_str()).collect();
        let rule = edge.rule.as_ref().map(|rule| format!(" {rule}")).unwrap_or_default();
        let on = edge.on.as_ref().map(|on| format!(" on {on}")).unwrap_or_default();
        format!("{} {} {}{rule}{on} {}", name(&edge.from), edge.kind, name(&edge.to), ops.join(","))
    };
    graph.edges.iter().map(|edge| line(edge).trim_end().to_owned()).collect()
}

fn pair() -> Blueprint {
    blueprint(
        json!({
            "asker": {"agent": "llm", "reads": ["/request", "/claims/**"], "clarify": {"by": "boss"},
                      "writes": [{"path": "/answer"}, {"path": "/answer", "ops": ["remove"]}]},
            "boss": {"agent": "human"},
            "claimant": {"agent": "llm", "reads": ["/request"], "writes": [{"path": "/claims/-"}]},
            "judge": {"agent": "llm", "reads": ["/claims/*/text"], "writes": [{"path": "/claims/*/verdict"}, {"path": "/answer"}]},
        }),
        json!([
            {"name": "begin", "trigger": "start", "run": "claimant"},
            {"name": "judged", "trigger": {"op": "add", "path": "/claims/*"}, "run": "judge"},
            {"name": "then", "trigger": {"after": ["begin", "judged"]}, "run": "asker"},
            {"name": "nudge", "trigger": {"signal": "more"}, "run": "claimant"},
            {"name": "nightly", "trigger": {"every": "0 3 * * *"}, "run": "claimant"},
        ]),
    )
}

#[test]
fn declared_accesses_become_graph_edges() {
    let graph = Graph::from_blueprint(&pair());
    let expected = [
        "/claims reads asker",
        "/claims/*/text reads judge",
        "/request reads asker",
        "/request reads claimant",
        "asker writes /answer add,replace,remove",
        "claimant writes /claims/- add",
        "judge writes /answer add,replace",
        "judge writes /claims/*/verdict add,replace",
        "/claims/- shows_in /claims",
        "/claims/- shows_in /claims/*",
        "/claims/- shows_in /claims/*/text",
        // A change below `/claims/*` is not a change of it, so the rule on `/claims/*` has no such edge.
        "/claims/*/verdict shows_in /claims",
        "(every 0 3 * * *) wakes claimant nightly",
        "(signal more) wakes claimant nudge",
        "(start) wakes claimant begin",
        "/claims/* wakes judge judged on add",
        "claimant wakes asker then on after",
        "judge wakes asker then on after",
        "asker asks boss",
    ];
    let (drawn, expected): (BTreeSet<String>, BTreeSet<String>) =
        (lines(&graph).into_iter().collect(), expected.into_iter().map(str::to_owned).collect());
    assert_eq!(drawn, expected);
    let contested: Vec<String> = graph.contested.keys().map(Place::text).collect();
    assert_eq!(contested, ["/answer"]);
    assert_eq!(graph.contested.values().next().map(BTreeSet::len), Some(2));
}

#[test]
fn the_graph_shows_flows_between_workers_and_the_surroundings_of_one() {
    let graph = Graph::from_blueprint(&pair());
    let flow: Vec<String> = graph
        .flow()
        .iter()
        .map(|feed| {
            let places: Vec<String> = feed.places.iter().map(Place::text).collect();
            format!("{}>{} {}", feed.from, feed.to, places.join(" "))
        })
        .collect();
    assert_eq!(flow, ["claimant>asker /claims/-", "claimant>judge /claims/-", "judge>asker /claims/*/verdict"]);
    let around = lines(&graph.around(&"claimant".into()));
    let outside = ["asker writes /answer add,replace,remove", "asker asks boss", "/claims/*/verdict shows_in /claims"];
    for line in lines(&graph) {
        let is_outside =
            outside.contains(&line.as_str()) || line.starts_with("judge") || line == "/request reads asker";
        assert_eq!(around.contains(&line), !is_outside, "{line}");
    }
}

#[test]
fn patterns_of_one_text_are_one_place() {
    let reads = json!(["/a~1b", "/a~1b/**", "/a~1b/**/**", "/**", ""]);
    let graph = Graph::from_blueprint(&blueprint(json!({"w": {"agent": "llm", "reads": reads}}), json!([])));
    assert_eq!(lines(&graph), [" reads w", "/a~1b reads w"]);
}

#[test]
fn only_appending_is_shared() {
    for (one, other, are) in [
        ("/a", "/a", true),
        ("/a", "/a/b", true),
        ("/a/*/status", "/a/**", true),
        ("/a/*", "/a/*/status", true),
        ("/a/-", "/a/-", false),
        ("/a/-", "/a/*", false),
        ("/a/b", "/a/c", false),
    ] {
        let (first, second) = (Pattern::parse(one).expect("a pattern"), Pattern::parse(other).expect("a pattern"));
        assert_eq!(
            (are_writers_of_one(&first, &second), are_writers_of_one(&second, &first)),
            (are, are),
            "{one} {other}"
        );
    }
}

/// Generates patterns with tokens of a small document, so that they overlap.
fn pattern() -> impl Strategy<Value = String> {
    let token = prop_oneof![Just("a"), Just("b"), Just("0"), Just("*"), Just("**")];
    let last = prop_oneof![4 => Just(""), 1 => Just("/-")];
    (proptest::collection::vec(token, 0..4), last)
        .prop_map(|(tokens, last)| tokens.iter().map(|token| format!("/{token}")).collect::<String>() + last)
        .prop_filter("a pattern", |text| Pattern::parse(text).is_ok())
}

fn seat() -> impl Strategy<Value = Value> {
    let writes = proptest::collection::vec(pattern().prop_map(|path| json!({"path": path})), 0..3);
    (proptest::collection::vec(pattern(), 0..3), writes)
        .prop_map(|(reads, writes)| json!({"agent": "llm", "reads": reads, "writes": writes}))
}

/// Returns every path of at most three of these tokens.
fn places() -> Vec<PointerBuf> {
    let mut found = vec![String::new()];
    let mut last = found.clone();
    for _ in 0..3 {
        last = last.iter().flat_map(|path| ["a", "b", "0", "7"].map(|token| format!("{path}/{token}"))).collect();
        found.extend(last.clone());
    }
    found.iter().map(|path| PointerBuf::parse(path.as_str()).expect("a pointer")).collect()
}

proptest! {
    /// Every read and every write is an edge, and there are no others. A worker that writes at a place readable by
    /// another one feeds it.
    #[test]
    fn all_that_is_declared_and_nothing_else_is_an_edge(seats in proptest::collection::btree_map("[vwx]", seat(), 1..4)) {
        let blueprint = blueprint(json!(seats), json!([]));
        let graph = Graph::from_blueprint(&blueprint);
        let drawn = |kind| graph.edges.iter().filter(move |edge| edge.kind == kind);
        let (mut reads, mut writes) = (BTreeSet::new(), BTreeSet::new());
        for (name, worker) in &blueprint.workers {
            let seat = Node::Worker(name.clone());
            for read in &worker.reads {
                let place = read.path.trim_end_matches("/**");
                let place = Node::Place(Place::named(place, PathSyntax::Plain).expect("a pattern"));
                prop_assert!(drawn(EdgeKind::Reads).any(|edge| edge.from == place && edge.to == seat), "{}", read.path);
                reads.insert((place, seat.clone()));
            }
            for grant in &worker.writes {
                let place = Node::Place(Place::named(&grant.path, PathSyntax::Plain).expect("a pattern"));
                let edge = drawn(EdgeKind::Writes).find(|edge| edge.from == seat && edge.to == place);
                prop_assert!(edge.is_some_and(|edge| grant.effective_ops().iter().all(|op| edge.ops.contains(op))));
                writes.insert((place, seat.clone()));
            }
        }
        prop_assert_eq!(drawn(EdgeKind::Reads).count(), reads.len());
        prop_assert_eq!(drawn(EdgeKind::Writes).count(), writes.len());
        let feeds = graph.flow();
        for (writer, of_writer) in &blueprint.workers {
            for (reader, of_reader) in blueprint.workers.iter().filter(|(reader, _)| *reader != writer) {
                let grants = of_writer.writes.iter().filter_map(|grant| Pattern::parse(&grant.path).ok());
                let reads: Vec<Pattern> = of_reader.reads.iter().filter_map(|read| Pattern::parse(&read.path).ok()).collect();
                for grant in grants {
                    let sees = |place: &PointerBuf| {
                        grant.matches(place) && reads.iter().any(|read| read.covers(place) || read.reaches_below(place))
                    };
                    if places().iter().any(sees) {
                        let place = Place(grant.clone());
                        let fed = |feed: &DataFlow| feed.from == *writer && feed.to == *reader && feed.places.contains(&place);
                        prop_assert!(feeds.iter().any(fed), "{writer} writes {grant}, which {reader} sees");
                    }
                }
            }
        }
    }
}
