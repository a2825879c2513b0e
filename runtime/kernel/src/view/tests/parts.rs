//! View sections: handles, expansion requests, referenced places, rejections of others, and explanations.

use serde_json::json;

use super::super::*;
use super::{NoCommits, VISITS, patterns, section, start, worker};
use crate::pattern::PathSyntax;
use crate::schema::Schema;

/// Returns a view with expansion requests, and a writer for every version.
fn asked(worker: &Worker, state: &Value, trigger: &Value, expand: &[&str], budget: u32) -> View {
    wanted(worker, state, trigger, expand.iter().map(|place| ExpandRequest::from(*place)).collect(), budget)
}

fn wanted(worker: &Worker, state: &Value, trigger: &Value, expand: Vec<ExpandRequest>, budget: u32) -> View {
    let writer = |at: Revision| (at == 0).then(|| "planner".to_owned());
    Parts {
        worker,
        reads: &patterns(worker),
        fixed: &FixedParts::with(worker, Interface::Patch, PathSyntax::Plain, &|_| None),
        state: &Node::from(state),
        trigger,
        feedback: &[],
        expand: &expand,
        newest: expand.len(),
        may_expand: true,
        compiler: COMPILER,
        writer: &writer,
        limit: limit(worker, budget),
        is_explained: true,
    }
    .compile()
}

fn sources(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({"id": format!("s{n}"), "text": format!("<{n}>{}", "x".repeat(70))})).collect()
}

fn of(view: &View, place: &str) -> Option<(PlaceOutcome, OutcomeReason)> {
    view.items.iter().find(|item| item.place == place).map(|item| (item.fate, item.why))
}

#[test]
fn a_summary_is_a_handle_with_count_ids_and_who_wrote_last() {
    let worker = worker(json!({"agent": "llm", "reads": ["/sources", "/people", "/long"]}));
    let people: serde_json::Map<_, _> = (0..40).map(|n| (format!("p{n}"), json!("somebody".repeat(5)))).collect();
    let state = json!({"sources": sources(40), "people": people, "long": "l".repeat(3000)});
    let view = asked(&worker, &state, &start(), &[], 1300);
    let lines = section(&view.text, render::SEE_HEADING);
    assert!(lines[0].starts_with("/sources: 40 elements; not shown: 0 (s0) to 3"), "{}", view.text);
    assert!(lines[0].ends_with("; last by planner"), "{}", lines[0]);
    let of = |start: &str| *lines.iter().find(|line| line.starts_with(start)).expect("a line");
    assert!(of("/people: an object with 40 members; not shown: p").ends_with("; last by planner"));
    assert_eq!(of("/long: "), "/long: a text of 3000 characters, not shown; last by planner");
    assert_eq!(*lines.last().expect("a line"), render::RANGE_HINTS[0].trim_end());
}

#[test]
fn requested_places_come_first_and_are_cut_where_they_do_not_fit() {
    let worker = worker(json!({"agent": "llm", "reads": ["/sources/*", "/long"]}));
    let state = json!({"sources": sources(40), "long": "é".repeat(3000)});
    let trigger = json!({"kind": "event", "rule": "r", "op": "add", "path": "/sources/20"});
    let view = asked(&worker, &state, &trigger, &["/long", "/sources/3", "/sources/9"], 1300);
    for place in ["/sources/3", "/sources/9"] {
        assert_eq!(of(&view, place), Some((PlaceOutcome::Shown, OutcomeReason::Asked)), "{}", view.text);
    }
    assert_eq!(of(&view, "/sources/20"), Some((PlaceOutcome::Shown, OutcomeReason::Trigger)));
    assert_eq!(of(&view, "/long"), Some((PlaceOutcome::Begun, OutcomeReason::Asked)));
    assert!(
        view.text.contains("/long: \"ééé")
            && view.text.contains("é\" (characters 1 to ")
            && view.text.contains(" of 3000)"),
        "{}",
        view.text
    );
    assert!(!view.reads.contains(&"/long".to_owned()), "what is shown in part was not read");
    assert!(text::chars(&view.text) <= 1300);
    let (hidden, why) = of(&view, "/sources/0").expect("an item");
    assert_eq!((hidden, why), (PlaceOutcome::Summarised, OutcomeReason::NoRoom));
}

/// Returns a view of requested parts.
fn from(worker: &Worker, state: &Value, at: &str, from: &Value, budget: u32) -> View {
    wanted(
        worker,
        state,
        &start(),
        vec![ExpandRequest::parse(&json!({"at": at, "from": from})).expect("a range")],
        budget,
    )
}

#[test]
fn a_range_is_shown_from_its_first_part_on_and_names_what_has_no_room() {
    let worker = worker(json!({"agent": "llm", "reads": ["/people", "/sources", "/texts/*", "/long"]}));
    let person = |n: usize| (format!("p{n:03}"), json!(format!("<{n}>{}", "x".repeat(80))));
    let people: serde_json::Map<_, _> = (0..400).map(person).collect();
    let texts: serde_json::Map<_, _> = (0..400).map(person).collect();
    let long: String = ('a'..='z').map(|letter| letter.to_string().repeat(100)).collect();
    let state = json!({"people": people, "texts": texts, "sources": sources(200), "long": long});
    let line = |view: &View, start: &str| {
        let lines = section(&view.text, render::SEE_HEADING);
        (*lines.iter().find(|line| line.starts_with(start)).expect("a line")).to_owned()
    };
    // By name in an object, with or without a pattern as the read.
    for (at, label) in [("/people", "/people: an object with 400 members"), ("/texts", "/texts/*: 400 places")] {
        let view = from(&worker, &state, at, &json!("p100"), 3000);
        for shown in ["p100", "p101", "p105"] {
            assert_eq!(
                of(&view, &format!("{at}/{shown}")),
                Some((PlaceOutcome::Shown, OutcomeReason::Asked)),
                "{}",
                view.text
            );
        }
        let named = line(&view, label);
        assert!(named.contains("; not shown: from there on, p1") && named.contains(" and more"), "{named}");
        assert!(text::chars(&named) > 400, "names have a quarter of the budget: {named}");
        assert!(text::chars(&view.text) <= 3000 && view.finds_room);
    }
    // By index or by `id` in an array.
    for first in [json!(100), json!("s100"), json!("100")] {
        let view = from(&worker, &state, "/sources", &first, 3000);
        assert_eq!(of(&view, "/sources/100"), Some((PlaceOutcome::Shown, OutcomeReason::Asked)), "{}", view.text);
        let named = line(&view, "/sources: 200 elements");
        assert!(named.contains("not shown: from there on, 1") && named.contains(" (s1"), "{named}");
    }
    // By character offset in a text.
    let view = from(&worker, &state, "/long", &json!(1250), 1500);
    let part = line(&view, "/long: ");
    assert!(part.starts_with("/long: \"mmm") && part.contains(" (characters 1251 to "), "{part}");
    assert!(
        part.ends_with(" of 2600)") && of(&view, "/long") == Some((PlaceOutcome::Begun, OutcomeReason::Asked)),
        "{part}"
    );
    // The whole text, if there is room.
    assert!(line(&from(&worker, &state, "/long", &json!(1250), 9000), "/long: ").starts_with("/long: \"aaa"));
    // For a request of the whole value without enough room, names are listed from the first on.
    let view = asked(&worker, &state, &start(), &["/people"], 3000);
    let named = line(&view, "/people: ");
    assert!(named.contains("; not shown: p000, p001, ") && text::chars(&named) > 400, "{named}");
}

#[test]
fn names_of_what_may_not_be_read_are_not_reported() {
    let long = "x".repeat(800);
    let state = json!({
        "m": {"a": {"t": long, "SECRET": 1}, "SECRET2": {"v": 1}, "b": {"t": long}},
        "list": [{"t": long, "id": "q"}, {"id": "SECRET3"}, 2, {"t": long}],
    });
    for reads in ["/m/**/t", "/**/t", "/*/*/t", "/list/*/t"] {
        let worker = worker(json!({"agent": "llm", "reads": [reads]}));
        for at in ["", "/m", "/m/a", "/list", "/list/0"] {
            for from in [json!(null), json!(0), json!(1), json!(""), json!("SECRET"), json!("SECRET3"), json!("a")] {
                let asked = if from.is_null() { json!(at) } else { json!({"at": at, "from": from}) };
                let view = wanted(&worker, &state, &start(), vec![ExpandRequest::parse(&asked).expect("a place")], 600);
                assert!(!view.text.contains("SECRET"), "{reads} {asked}: {}", view.text);
                let names = view.text.lines().find(|line| line.starts_with("/list: not shown: "));
                assert!(
                    !names.is_some_and(|names| names.contains('1') || names.contains('2')),
                    "{reads} {asked}: {}",
                    view.text
                );
            }
        }
    }
}

#[test]
fn requested_places_take_room_before_summary_lines() {
    let shows = |reads: Value, state: &Value, asked: &Value, part: &str, budget: u32| {
        let worker = worker(json!({"agent": "llm", "reads": reads}));
        let view = wanted(&worker, state, &start(), vec![ExpandRequest::parse(asked).expect("a place")], budget);
        assert!(view.text.contains(part) && view.finds_room, "{asked} within {budget}: {}", view.text);
        assert!(text::chars(&view.text) <= budget as usize);
    };
    // Among many places, each with its own line.
    let many: serde_json::Map<_, _> =
        (0..60).map(|n| (format!("p{n}"), json!(format!("<{n}>{}", "x".repeat(600))))).collect();
    let places: Value = many.keys().map(|name| format!("/{name}")).collect();
    shows(places, &json!(many), &json!("/p50"), "<50>xxx", 4000);
    // Deeply nested.
    let mut deep = json!({"text": "y".repeat(20_000)});
    for _ in 0..12 {
        deep = json!({"in": deep, "side": "u".repeat(600)});
    }
    let place = format!("{}/text", "/in".repeat(12));
    for (asked, part) in
        [(json!(place), "(characters 1 to "), (json!({"at": place, "from": 500}), "(characters 501 to ")]
    {
        shows(json!(["/in"]), &deep, &asked, part, 2000);
    }
    // Inside a value that is a single line if there is room.
    let lines: Vec<Value> =
        (0..5).map(|n| json!({"id": format!("e{n}"), "text": format!("<{n}>{}", "t".repeat(430))})).collect();
    let lines = json!({"things": lines});
    shows(json!(["/things"]), &lines, &json!("/things/3/id"), "/things/3/id: \"e3\"", 700);
    shows(json!(["/things"]), &lines, &json!("/things/3"), "/things/3/text: \"<3>ttt", 700);
    shows(json!(["/things"]), &lines, &json!({"at": "/things/3/text", "from": 100}), "(characters 101 to ", 700);
    // After parts that are entirely unreadable.
    let gaps: serde_json::Map<_, _> = (0..80)
        .map(|n| {
            (
                format!("k{n:03}"),
                if (10..40).contains(&n) { json!({"priv": 1}) } else { json!({"pub": "x".repeat(40)}) },
            )
        })
        .collect();
    shows(
        json!(["/things/*/pub"]),
        &json!({"things": gaps}),
        &json!({"at": "/things", "from": "k010"}),
        "/things/k040/pub: ",
        700,
    );
}

#[test]
fn parts_of_which_nothing_may_be_read_are_passed_over_up_to_a_bound() {
    let worker = worker(json!({"agent": "llm", "reads": ["/things/*/pub"]}));
    let things: serde_json::Map<_, _> = (0..30_000).map(|n| (format!("k{n:05}"), json!({"priv": 1}))).collect();
    let state = json!({"things": things});
    VISITS.with(|visits| visits.set(0));
    let view = from(&worker, &state, "/things", &json!("k00010"), 1000);
    let visited = VISITS.with(std::cell::Cell::get);
    assert!(visited < 5_000, "{visited} values were looked at");
    assert!(!view.finds_room && !view.text.contains("k000"), "{}", view.text);
}

#[test]
fn a_view_reports_whether_the_last_request_finds_room() {
    let worker = worker(json!({"agent": "llm", "reads": ["/long", "/short"]}));
    let state = json!({"long": "x".repeat(3000), "short": "s"});
    let view = |budget| wanted(&worker, &state, &start(), vec!["/long".into()], budget);
    assert!(view(1000).finds_room && view(1000).text.contains(" (characters 1 to "), "{}", view(1000).text);
    assert!(!view(260).finds_room, "{}", view(260).text);
    let behind = wanted(
        &worker,
        &json!({"long": {"a": 1, "b": "x".repeat(3000)}}),
        &start(),
        vec![ExpandRequest::parse(&json!({"at": "/long", "from": "z"})).expect("a range")],
        1000,
    );
    assert!(!behind.finds_room && behind.text.contains("not shown: b"), "{}", behind.text);
    let gone = wanted(&worker, &state, &start(), vec!["/gone".into()], 1000);
    assert!(!gone.finds_room, "{}", gone.text);
}

#[test]
fn a_requested_place_names_its_hidden_parts() {
    let element = |kind: &str, n: usize, chars: usize| match kind {
        "texts" => json!(format!("<{n}>{}", "x".repeat(chars))),
        "named" => json!({"id": format!("e{n}"), "text": "x".repeat(chars)}),
        _ => json!({"text": "x".repeat(chars)}),
    };
    for kind in ["texts", "nameless", "named", "map"] {
        for (budget, chars) in [(1200, 30), (2000, 400), (3000, 100), (8000, 100)] {
            let list: Vec<Value> = (0..200).map(|n| element(kind, n, chars)).collect();
            let list = match kind {
                "map" => list.into_iter().enumerate().map(|(n, value)| (format!("k{n:03}"), value)).collect(),
                _ => Value::from(list),
            };
            let from = |first: usize| if kind == "map" { json!(format!("k{first:03}")) } else { json!(first) };
            let state = json!({"request": {"lines": list, "other": "o"}});
            for reads in [vec!["/request"], vec!["/request/lines"], vec!["/request/lines/*"]] {
                let worker = worker(json!({"agent": "llm", "reads": reads}));
                let at = "/request/lines";
                let all = ["plain", "0", "40"].map(|which| match which {
                    "plain" => json!([at]),
                    first => json!([{"at": at, "from": from(first.parse().expect("a number"))}]),
                });
                for asked in all {
                    let expand = serde_json::from_value(asked.clone()).expect("what is asked for");
                    let view = wanted(&worker, &state, &start(), expand, budget);
                    let is_about =
                        |line: &&str| line.starts_with("/request/lines: ") || line.starts_with("/request/lines/*: ");
                    let is_noted = view.text.lines().filter(is_about).any(|line| line.contains("not shown: "));
                    assert!(is_noted, "{kind} {budget} {chars} {reads:?} {asked}:\n{}", view.text);
                }
            }
        }
    }
}

#[test]
fn equal_rejections_are_reported_once() {
    let refused =
        |code: &str| json!({"stage": "schema", "code": code, "violations": [{"pointer": "/a", "message": "no"}]});
    let text = render::feedback(&[refused("a"), refused("b"), refused("a"), refused("a")], true, 2000);
    assert_eq!(text, "## Refused before\n- schema/b\n  /a: no\n- schema/a, 3 times\n  /a: no\n");
    let text = render::feedback(&[refused("a"), refused("a")], false, 2000);
    assert_eq!(text, "## Refused before\n- schema/a\n  /a: no\n- schema/a\n  /a: no\n", "as before format 13");
}

#[test]
fn places_named_by_the_trigger_are_shown_or_listed() {
    let worker = worker(json!({"agent": "llm", "reads": ["/claims/*", "/evidence/*", "/plan"]}));
    let evidence: Vec<Value> =
        (0..40).map(|n| json!(format!("[{n}]{}", "e".repeat(if n == 7 { 2000 } else { 60 })))).collect();
    let names = json!({"text": "c", "evidence": ["/evidence/3", "/evidence/7", "/nowhere", "/secret", "/claims/0"]});
    let state = json!({"claims": [names], "evidence": evidence, "secret": "s"});
    let trigger = json!({"kind": "event", "rule": "r", "op": "add", "path": "/claims/0"});
    let view = asked(&worker, &state, &trigger, &[], 1200);
    assert_eq!(of(&view, "/evidence/3"), Some((PlaceOutcome::Shown, OutcomeReason::Named)), "{}", view.text);
    let lines = section(&view.text, render::SEE_HEADING);
    let tail =
        ["Nothing yet at: /plan", "Named by what woke you, not shown: /evidence/7", render::RANGE_HINTS[1].trim_end()];
    assert_eq!(lines[lines.len() - 3..], tail, "{}", view.text);
    assert_eq!(of(&view, "/secret"), Some((PlaceOutcome::LeftOut, OutcomeReason::NotReadable)));

    let all = asked(&worker, &state, &trigger, &[], 9000);
    assert!(!all.text.contains("Named by") && !all.text.contains("expand"), "{}", all.text);
    assert_eq!(of(&all, "/evidence/7"), Some((PlaceOutcome::Shown, OutcomeReason::Everything)));
}

#[test]
fn every_line_has_a_reason() {
    let worker = worker(json!({"agent": "llm", "reads": ["/goal", "/topic", "/notes", "/sources/*"]}));
    let state =
        json!({"goal": "g".repeat(180), "topic": "t".repeat(230), "notes": "n".repeat(1500), "sources": sources(30)});
    let view = asked(&worker, &state, &start(), &[], 2100);
    for (place, expected) in [
        ("/goal", (PlaceOutcome::Shown, OutcomeReason::ShortField)),
        ("/sources/29", (PlaceOutcome::Shown, OutcomeReason::ChangedLast)),
        ("/topic", (PlaceOutcome::Shown, OutcomeReason::LongField)),
        ("/sources/26", (PlaceOutcome::Shown, OutcomeReason::Room)),
        ("/notes", (PlaceOutcome::Summarised, OutcomeReason::TooLong)),
    ] {
        assert_eq!(of(&view, place), Some(expected), "{place}: {:#?}\n{}", view.items, view.text);
    }
    let lines = section(&view.text, render::SEE_HEADING).len();
    let shown = view.items.iter().filter(|item| item.fate == PlaceOutcome::Shown || item.place == "/notes").count();
    assert_eq!(shown + 2, lines, "and the summary of the sources, and the hint: {}", view.text);
}

#[test]
fn a_compiled_view_says_who_made_a_version() {
    struct Scribe;
    impl CommitLookup for Scribe {
        fn commit_of(&self, version: Version) -> Option<(crate::id::Seq, crate::id::WorkerName)> {
            (version == Version(0)).then(|| (crate::id::Seq(1), "scribe".into()))
        }
    }
    let worker = worker(json!({"agent": "llm", "reads": ["/sources"]}));
    let schema = Schema::compile(&json!({}), false).expect("a schema");
    let contract = crate::contract::Contract::compile(
        &worker,
        &json!({}),
        &crate::expressions::ExpressionCompiler::new(PathSyntax::Plain),
    )
    .expect("a contract");
    let hasher = crate::digest::Hasher::new(&crate::digest::Salt::ZERO);
    let state = &State::new(&json!({"sources": sources(40)}), &hasher);
    let (fixed, trigger) = (&FixedParts::new(&worker, &schema, Interface::Patch, PathSyntax::Plain), &start());
    let readable = &contract.readable(state.root());
    let (worker, feedback, expand, may_expand) = (&worker, &[][..], &[][..], false);
    let with = |commits| {
        let budget = 900;
        compile(&Inputs {
            worker,
            readable,
            fixed,
            state,
            trigger,
            feedback,
            expand,
            newest: 0,
            may_expand,
            compiler: COMPILER,
            commits,
            budget,
        })
        .text
    };
    assert!(with(&Scribe).contains("; last by scribe\n"), "{}", with(&Scribe));
    assert!(!with(&NoCommits).contains("last by"));
}
