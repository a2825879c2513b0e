//! A view of a large state visits no more values than its budget can hold.

use serde_json::json;

use super::super::budget::{self, Bounds};
use super::super::*;
use super::VISITS;
use super::lazy::{first, wanted};

fn claims(count: usize) -> Value {
    let claim = |n: usize| {
        json!({
            "id": format!("c{n}"), "text": format!("claim number {n} says something of note"), "status": "draft",
            "score": n, "by": "extractor", "checked": false, "source": format!("/sources/{n}"), "tags": ["a", "b"],
        })
    };
    (0..count).map(claim).collect()
}

/// Returns states of at least `bytes` in three shapes: an array of objects, one large object, nested collections.
fn states(bytes: usize) -> [Value; 3] {
    let elements = bytes / 165;
    let names = bytes / 25;
    let claims_with_evidence = bytes / 850;
    let evidence = |n: usize| json!({"quote": format!("quote {n}"), "source": n, "weight": 1});
    [
        json!({"claims": claims(elements)}),
        json!({"claims": (0..names).map(|n| (format!("name{n}"), json!(format!("value {n}")))).collect::<serde_json::Map<_, _>>()}),
        json!({"claims": (0..claims_with_evidence).map(|n| json!({"text": format!("claim {n}"), "evidence": (0..20).map(evidence).collect::<Value>()})).collect::<Value>()}),
    ]
}

const READS: [&[&str]; 10] = [
    &["/claims"],
    &["/claims/*"],
    &["/**"],
    &[""],
    &["/claims/*/text"],
    &["/claims/*/evidence/*"],
    &["/**/needle"],
    &["/**/text", "/claims/*/evidence/*/quote"],
    &["/claims/7", "/claims/*"],
    &["/*/*/*", "/claims/*"],
];

/// Returns the number of values that a view visits.
fn visits(state: &Node, reads: &[&str], limit: usize) -> usize {
    let reads: Vec<Pattern> = reads.iter().map(|read| Pattern::parse(read).expect("the pattern reads")).collect();
    VISITS.with(|visits| visits.set(0));
    let shown = budget::choose(
        state,
        &reads,
        limit,
        Bounds::for_limit(limit),
        &wanted(&|_| false, &first(Some("/claims/5/text"))),
    );
    assert!(text::chars(&shown.text) <= limit);
    assert!(shown.reads.len() + shown.members.len() <= limit / 5 + 256 && shown.summarised.len() <= 256);
    VISITS.with(std::cell::Cell::get)
}

#[test]
fn a_view_looks_at_no_more_than_its_budget_holds() {
    for state in &states(1_000_000) {
        let state = Node::from(state);
        assert!(state.bytes() > 900_000, "{} bytes", state.bytes());
        for reads in READS {
            for limit in [200, 1000, 4000] {
                let visited = visits(&state, reads, limit);
                let bounds = Bounds::for_limit(limit);
                // Values are laid out once to check whether all fit, and once by priority. Patterns are searched for
                // existing values and for the latest changes. Names of hidden values are added last.
                let most = 2 * bounds.laid_out + 3 * bounds.steps * reads.len() + 2 * summarised_places::SUMMARISED_MAX;
                assert!(visited <= most, "{visited} values at {limit} characters of {reads:?}");
                let is_direct = reads.iter().all(|read| read.ends_with('*') && read.matches('*').count() == 1);
                assert!(
                    !is_direct || visited <= 128 + limit / 8,
                    "{visited} values at {limit} characters of {reads:?}"
                );
            }
        }
    }
}
