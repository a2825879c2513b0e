//! Order of negotiation events on a board: the fragment's invariants agree with the kernel's table.

use patchboard_kernel::expr::{Expr, Variable, Variables};
use patchboard_lint::source::Source;
use patchboard_protocols::negotiation::{EVENTS_MAX, EventKind, Phase};
use serde_json::{Value, json};

const FRAGMENT: &str = include_str!("../../../../blueprints/fragments/negotiation.yaml");

/// Returns the fragment's invariants for the order of events, by name.
fn invariants() -> Vec<(String, Expr)> {
    let source = Source::read("negotiation.yaml", FRAGMENT).expect("it is YAML");
    let invariants = source.value()["invariants"].as_array().expect("it has invariants").clone();
    let compiled = invariants.iter().map(|invariant| {
        let text = |name: &str| invariant[name].as_str().expect("a text").to_owned();
        (text("name"), Expr::compile(&text("expr"), &["state"]).expect("it can be evaluated"))
    });
    compiled.collect()
}

/// Returns the names of the invariants that a sequence of these kinds violates.
fn broken(invariants: &[(String, Expr)], kinds: &[EventKind]) -> Vec<String> {
    let events: Vec<Value> = kinds.iter().map(|kind| json!({"kind": kind})).collect();
    let state = json!({"negotiation": {"events": events}});
    let known = Variables::from([("state", Variable::from(&state))]);
    let is_broken = |expr: &Expr| !expr.evaluate(&known).expect("it has a value");
    invariants.iter().filter(|(_, expr)| is_broken(expr)).map(|(name, _)| name.clone()).collect()
}

#[test]
fn a_board_takes_the_orders_that_the_kernel_does_and_no_others() {
    let invariants = invariants();
    let (mut sound, mut unsound) = (0, 0);
    let mut orders: Vec<Vec<EventKind>> = vec![Vec::new()];
    // An invalid order stays invalid with any continuation, so only valid orders are extended.
    for _ in 0..6 {
        let mut longer = Vec::new();
        for order in orders {
            let phase = order.iter().try_fold(Phase::New, |phase, kind| phase.after(*kind)).expect("it is in order");
            for kind in EventKind::ALL {
                let next: Vec<EventKind> = order.iter().chain([kind]).copied().collect();
                let broken = broken(&invariants, &next);
                assert_eq!(phase.after(*kind).is_ok(), broken.is_empty(), "{next:?}: {broken:?}");
                if broken.is_empty() {
                    sound += 1;
                    longer.push(next);
                } else {
                    unsound += 1;
                }
            }
        }
        orders = longer;
    }
    assert!(sound > 50 && unsound > 100, "{sound} in order, {unsound} not");
}

#[test]
fn the_last_places_are_for_the_end() {
    let invariants = invariants();
    let of = |count: usize, last: EventKind| {
        let mut kinds = vec![EventKind::Open, EventKind::Policy];
        kinds.resize(count - 1, EventKind::Propose);
        kinds.push(last);
        broken(&invariants, &kinds)
    };
    assert_eq!(of(EVENTS_MAX - 2, EventKind::Counter), [""; 0]);
    assert_eq!(of(EVENTS_MAX - 1, EventKind::Counter), ["negotiation-has-room-to-end"]);
    assert_eq!(of(EVENTS_MAX - 1, EventKind::Decide), [""; 0]);
}
