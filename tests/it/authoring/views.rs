//! Checks the views and the feedback of workers in new users' blueprints.

use std::collections::BTreeSet;

use patchboard_kernel::record::{Body, Kind};
use patchboard_kernel::rejection::{Code, Rejection};
use patchboard_tests::scripted_model::{ModelCall, PlayedBoard, blueprint};
use serde_json::{Value, json};

use super::case;

/// Maximum view expansions of an invocation.
const EXPANSIONS_MAX: usize = 3;

/// Plays a blueprint with a language model that requests parts of the document until it has enough; `wanted` returns
/// the next request.
fn read_on(name: &str, text: &str, mut wanted: impl FnMut(&str) -> Option<Value>) -> PlayedBoard {
    PlayedBoard::of(blueprint(name, text), json!({}), |asked: &ModelCall| match wanted(&asked.prompt.user) {
        Some(next) => json!({"patch": [], "expand": [next]}),
        None => json!([{"op": "add", "path": "/answer", "value": "read"}]),
    })
}

fn assert_read(played: &PlayedBoard) {
    assert!(played.asked.len() <= EXPANSIONS_MAX + 1, "{} calls", played.asked.len());
    assert_eq!((played.count(Kind::Rejected), &played.state()["answer"]), (0, &json!("read")));
}

#[test]
fn a_path_of_a_grant_that_is_copied_word_for_word_is_answered_with_the_indices() {
    let Some(text) = case("feedback2.yaml") else { return };
    let played = PlayedBoard::of(blueprint("feedback2.yaml", &text), json!({}), |_| json!([]));
    let rejections = played.records.iter().filter_map(|record| match record.body().expect("a body") {
        Body::Rejected(rejected) => Some(rejected.rejection.clone()),
        _ => None,
    });
    let reported = |rejection: Rejection| (rejection.code, rejection.violations[0].message.clone());
    let expected = [
        (Code::PathNotFound, "name one: 0 to 1; `*` stands for any index".to_owned()),
        (Code::PathNotGranted, "no write grant of this worker matches `/claims/0/text`".to_owned()),
    ];
    assert_eq!(rejections.map(reported).collect::<Vec<_>>(), expected);
    // The other elements continue, even after one was given up.
    assert_eq!(played.state()["claims"][0]["status"], "ok");
}

#[test]
fn a_smaller_view_is_tried_before_a_budget_ends_a_board() {
    let Some(text) = case("budred.yaml") else { return };
    let mut n = 0;
    let played = PlayedBoard::of(blueprint("budred.yaml", &text), json!({}), |_| {
        n += 1;
        json!([{"op": "replace", "path": "/n", "value": n}])
    });
    let sizes: Vec<usize> = played.asked.iter().map(|asked| asked.prompt.user.len()).collect();
    let [whole @ .., last] = &sizes[..] else { panic!("nobody was asked") };
    assert!(whole.len() > 1 && whole.iter().all(|size| last * 2 < *size), "{sizes:?}");
    assert_eq!(played.state()["n"], sizes.len());
}

#[test]
fn every_document_is_shown_or_named_to_who_asks_for_it() {
    let Some(text) = case("expand.yaml") else { return };
    let mut seen = BTreeSet::new();
    let played = read_on("expand.yaml", &text, |view| {
        let documents = (0..40).filter(|n| view.contains(&format!("doc-{n:02}")));
        seen.extend(documents);
        Some(json!({"at": "/docs", "from": (0..40).find(|n| !seen.contains(n))?}))
    });
    assert_read(&played);
    assert_eq!(seen.len(), 40);
}

#[test]
fn a_long_text_is_read_part_by_part() {
    let Some(text) = case("expand_big.yaml") else { return };
    let text = text.replace("  reader:\n    agent: script", "  reader:\n    agent: llm");
    let (mut read, mut asks) = (String::new(), 0);
    let played = read_on("expand_big.yaml", &text, |view| {
        if let Some(shown) = view.lines().find_map(|line| line.strip_prefix("/docs/0/text: ")) {
            let (part, range) = shown.rsplit_once(" (characters ").expect("a part");
            read.push_str(&serde_json::from_str::<String>(part).expect("a text"));
            let last = format!(" to {} of 4000)", read.len());
            assert!(range.ends_with(&last), "{range} after {} characters", read.len());
        }
        asks += 1;
        (asks <= EXPANSIONS_MAX).then(|| json!({"at": "/docs/0/text", "from": read.len()}))
    });
    assert_read(&played);
    let whole = played.state()["docs"][0]["text"].as_str().expect("a text").to_owned();
    assert!(read.len() > 1_000 && whole.starts_with(&read), "{read}");
}

#[test]
fn places_named_by_an_event_are_shown_first() {
    let Some(text) = case("links.yaml") else { return };
    let text = text.replace("  v:\n    agent: script", "  v:\n    agent: llm\n    role: Verify.");
    let played = PlayedBoard::of(
        blueprint("links.yaml", &text),
        json!({}),
        |_| json!([{"op": "replace", "path": "/claims/1/status", "value": "ok"}]),
    );
    let view = &played.asked[0].prompt.user;
    let shown: Vec<&str> = view.lines().filter_map(|line| line.strip_prefix("/evidence/")?.split(':').next()).collect();
    assert_eq!(shown, ["*", "7", "12"], "{view}");
}

#[test]
fn every_identifier_of_a_summary_is_named_to_who_asks_for_it() {
    let Some(text) = case("ids.yaml") else { return };
    let text = text.replace("agent: script", "agent: llm\n    role: Answer.");
    let mut seen = BTreeSet::new();
    let played = read_on("ids.yaml", &text, |view| {
        let summary = view.lines().find(|line| line.starts_with("/m: ")).unwrap_or_default();
        let (_, names) = summary.rsplit_once("not shown: ")?;
        let names = names.split(" and ").next()?.split(", ").filter(|name| *name != "from there on");
        let shown = view.lines().filter_map(|line| line.strip_prefix("/m/")?.split([':', '/']).next());
        seen.extend(names.chain(shown.clone()).map(str::to_owned));
        let last = summary.rsplit_once("not shown: ")?.1.split(" and ").next()?.rsplit(", ").next()?;
        (seen.len() < 60).then(|| json!({"at": "/m", "from": last}))
    });
    assert_read(&played);
    assert_eq!(seen.len(), 60);
}
