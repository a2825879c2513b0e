//! Lazy selection of a view equals the full reference selection, and is independent of irrelevant inputs.

use std::sync::Arc;

use jsonptr::PointerBuf;
use proptest::prelude::*;
use serde_json::json;

use super::super::budget::{self, Bounds};
use super::super::*;
use super::{document, patterns, read_patterns, reference, section, start, view, worker};
use crate::digest::{Hasher, Salt};
use crate::pattern::PathSyntax;
use crate::tree::Edit;

const UNBOUNDED: Bounds = Bounds {
    misses: usize::MAX,
    laid_out: usize::MAX,
    steps: usize::MAX,
    summarised: summarised_places::SUMMARISED_MAX,
};

fn edit(at: u32, salt: u8) -> Edit {
    Edit { revision: at, hasher: Arc::new(Hasher::new(&Salt([salt; 32]))) }
}

/// Collects all places of a document except the root.
fn places(node: &Node, place: &PointerBuf, found: &mut Vec<PointerBuf>) {
    for (step, child) in node.parts() {
        let mut below = place.clone();
        match step {
            crate::tree::PathSegment::Index(index) => below.push_back(index),
            crate::tree::PathSegment::Key(key) => below.push_back(key.as_str()),
        }
        found.push(below.clone());
        places(child, &below, found);
    }
}

/// Changes random places, each with its own version.
fn live(state: &mut Node, changes: &[(usize, u8)]) {
    for (at, (which, kind)) in (1..).zip(changes) {
        let mut found = Vec::new();
        places(state, &PointerBuf::new(), &mut found);
        let Some(place) = found.get(which % found.len().max(1)) else { return };
        let edit = edit(at, 0);
        let parent = place.parent().and_then(|parent| state.get(parent)).expect("it was found");
        match (kind, parent) {
            (0, Node::Array(_)) => state.insert(place, Node::from_value(&json!({"new": at}), &edit), &edit),
            (1, _) => drop(state.remove(place, &edit)),
            (2, _) => {
                let moved = state.get(place).expect("it was found").clone();
                state.replace(place, Node::from_value(&json!([moved.to_value(), "x".repeat(70)]), &edit), &edit);
            }
            _ => state.replace(place, Node::from_value(&json!(format!("changed {at}")), &edit), &edit),
        }
    }
}

/// Returns the place that triggered the worker.
pub(super) fn first(trigger: Option<&str>) -> Vec<PriorityPlace<'static>> {
    let place = trigger.map(|trigger| PointerBuf::parse(trigger).expect("a pointer"));
    place.map(|place| PriorityPlace { place, why: OutcomeReason::Trigger, from: None }).into_iter().collect()
}

/// Returns inputs with these places first, without a reserve or a writer.
pub(super) fn wanted<'a>(appendable: &'a dyn Fn(&str) -> bool, first: &'a [PriorityPlace<'a>]) -> SelectionInput<'a> {
    SelectionInput { appendable, first, newest: 0, compiler: COMPILER, reserve: 0, writer: None }
}

fn compiled(reads: &[String]) -> Vec<Pattern> {
    reads.iter().map(|pattern| Pattern::parse(pattern).expect("the pattern reads")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_lazy_choice_is_the_eager_one(
        state in document(),
        changes in prop::collection::vec((any::<usize>(), 0_u8..5), 0..12),
        reads in read_patterns(),
        limit in prop_oneof![0_usize..200, 100_usize..1500, Just(20_000)],
        trigger in prop_oneof![Just(None), Just(Some("/a")), Just(Some("/a/0")), Just(Some("/b/c")), Just(Some("/c/1/a"))],
    ) {
        let mut state = Node::from_value(&state, &edit(0, 0));
        live(&mut state, &changes);
        let reads = compiled(&reads);
        let appendable = |place: &str| place.ends_with("/a");
        let eager = reference::choose(&state, &reads, limit, &appendable, trigger);
        let lazy = budget::choose(&state, &reads, limit, UNBOUNDED, &wanted(&appendable, &first(trigger)));
        prop_assert_eq!(&lazy.text, &eager.text);
        prop_assert_eq!(&lazy.reads, &eager.reads);
        prop_assert_eq!(&lazy.members, &eager.members);
        prop_assert_eq!(&lazy.summarised.pointers(), &eager.summarised);
        prop_assert_eq!(lazy.summarised.len(), eager.summarised.len());
    }

    #[test]
    fn view_reads_are_in_the_text_and_members_are_containers(
        state in document(),
        changes in prop::collection::vec((any::<usize>(), 0_u8..5), 0..12),
        reads in read_patterns(),
        limit in 0_usize..1500,
    ) {
        let mut state = Node::from_value(&state, &edit(0, 0));
        live(&mut state, &changes);
        let reads = compiled(&reads);
        let shown = budget::choose(&state, &reads, limit, Bounds::for_limit(limit), &wanted(&|_| false, &[]));
        prop_assert!(text::chars(&shown.text) <= limit);
        let mut size = 0;
        for read in &shown.reads {
            size += text::chars(read);
            let read = PointerBuf::parse(read).expect("a pointer");
            let mut below = vec![read.clone()];
            places(state.get(&read).expect("it is there"), &read, &mut below);
            for place in below {
                let value = state.get(&place).expect("it is there");
                if !value.has_parts() {
                    prop_assert!(shown.text.contains(&value.to_string()), "{} of {}: {}", place, read, shown.text);
                }
            }
        }
        prop_assert!(size <= limit, "a record is bounded by the budget");
        for member in &shown.members {
            let place = PointerBuf::parse(member).expect("a pointer");
            prop_assert!(matches!(state.get(&place), Some(Node::Array(_) | Node::Object(_))), "{}", member);
            let is_named = reads.iter().any(|pattern| pattern.covers(&place) || pattern.reaches_below(&place));
            prop_assert!(is_named, "{} is none of the contract's", member);
            let is_read = shown.reads.iter().any(|read| place.starts_with(&PointerBuf::parse(read).expect("a pointer")));
            prop_assert!(!is_read, "{} is read wholly", member);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn neither_the_salt_nor_the_history_is_seen(
        count in 33_usize..120,
        shuffle in any::<u64>(),
        limit in 0_usize..3000,
        reads in prop_oneof![Just("/people"), Just("/people/*"), Just("/people/*/name"), Just("/**/name"), Just("")],
    ) {
        let name = |n: usize| format!("p{:03}", n * 7919 % 1000);
        let person = |n: usize| json!({"name": format!("person {n}"), "of": [n, {"rank": n % 3}]});
        let people: serde_json::Map<_, _> = (0..count).map(|n| (name(n), person(n))).collect();
        let whole = Node::from_value(&json!({"people": people}), &edit(0, 1));
        let mut grown = Node::from_value(&json!({"people": {"gone": 1}}), &edit(0, 2));
        let place = |name: &str| PointerBuf::parse(format!("/people/{name}")).expect("a pointer");
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|n| (u64::try_from(*n).expect("small") + 1).wrapping_mul(shuffle | 1));
        for n in order {
            grown.insert(&place(&name(n)), Node::from_value(&person(n), &edit(0, 2)), &edit(0, 2));
        }
        grown.remove(&place("gone"), &edit(0, 2));
        prop_assert_eq!(&whole, &grown);
        let reads = compiled(&[reads.to_owned()]);
        let shown = [&whole, &grown].map(|state| {
            let first = first(Some("/people/p000"));
            let shown = budget::choose(state, &reads, limit, Bounds::for_limit(limit), &wanted(&|_| false, &first));
            (shown.text, shown.reads, shown.members, shown.summarised)
        });
        prop_assert_eq!(&shown[0], &shown[1]);
    }
}

#[test]
fn over_budget_what_changed_last_comes_first() {
    let worker = worker(json!({"agent": "llm", "reads": ["/claims", "/names/*"]}));
    let claims: Vec<Value> =
        (0..200).map(|n| json!({"text": format!("claim number {n:03}"), "status": "draft"})).collect();
    let names: serde_json::Map<_, _> = (0..200).map(|n| (format!("n{n:03}"), json!("somebody"))).collect();
    let mut state = Node::from_value(&json!({"claims": claims, "names": names}), &edit(0, 0));
    for (at, place) in (1..).zip(["/claims/17/status", "/names/n005", "/claims/3/text", "/names/n150"]) {
        let place = PointerBuf::parse(place).expect("a pointer");
        state.replace(&place, Node::text("changed"), &edit(at, 0));
    }
    let reads = patterns(&worker);
    let (trigger, fragment) = (start(), |_: &Pattern| None);
    let shown = Parts {
        worker: &worker,
        reads: &reads,
        fixed: &FixedParts::with(&worker, Interface::Patch, PathSyntax::Plain, &fragment),
        state: &state,
        trigger: &trigger,
        feedback: &[],
        expand: &[],
        newest: 0,
        may_expand: false,
        compiler: COMPILER,
        writer: &|_| None,
        limit: 900,
        is_explained: true,
    }
    .compile();
    let lines = section(&shown.text, render::SEE_HEADING);
    let index = |line: &str| lines.iter().position(|other| other.starts_with(line));
    for line in
        ["/claims/3: ", "/claims/17: ", "/claims/199: ", "/names/n150: \"ch", "/names/n005: \"ch", "/names/n199: "]
    {
        assert!(index(line).is_some(), "{line} in {}", shown.text);
    }
    assert!(index("/claims/198: ") < index("/claims/199: ") && index("/claims/3: ") < index("/claims/17: "));
    assert!(lines[0].starts_with("/claims: 200 elements; not shown: 0 to 2, 4 to 16, 18 to 1"), "{}", shown.text);
    assert_eq!(shown.members, ["/claims", "/names"]);
}

#[test]
fn membership_is_read_where_its_number_or_all_of_it_is_shown() {
    let state = json!({
        "claims": [{"text": "a"}, {"text": "b"}],
        "empty": [],
        "tree": {"x": {"name": 1}},
        "long": vec!["y".repeat(90); 40],
    });
    let members = |reads: &[&str], budget| {
        let view = view(&worker(json!({"agent": "llm", "reads": reads})), &state, &start(), &[], budget);
        (view.members, view.reads)
    };
    let pointers = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(members(&["/claims"], 4000), (vec![], pointers(&["/claims"])), "its whole value is read");
    assert_eq!(members(&["/claims/*"], 4000), (pointers(&["/claims"]), pointers(&["/claims/0", "/claims/1"])));
    assert_eq!(members(&["/claims/*/text"], 4000).0, pointers(&["/claims"]));
    assert_eq!(members(&["/claims/0"], 4000).0, pointers(&[]), "nothing is said of the others");
    assert_eq!(members(&["/empty/*"], 4000).0, pointers(&["/empty"]), "that it is empty is known");
    assert_eq!(members(&["/tree/**/name"], 4000).0, pointers(&["/tree", "/tree/x"]));
    assert_eq!(members(&["/claims/*", "/claims"], 4000).0, pointers(&[]));
    let (members, reads) = members(&["/long"], 1000);
    assert_eq!(members, pointers(&["/long"]), "its elements are counted");
    assert!(!reads.is_empty() && reads.len() < 40);
}
