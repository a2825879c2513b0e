//! Small cases exhaustively: every order of four proposals from three workers, and a crash at every place in each.

use patchboard_kernel::board::{Board, From, Genesis, Input, Proposal, ReplyBody, Step};
use patchboard_kernel::digest::Salt;
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_kernel::mode::Mode;
use patchboard_kernel::plan::Own;
use patchboard_kernel::record::Record;
use patchboard_kernel::replay;
use serde_json::{Value, json};

use super::invariants::Invariants;
use super::world::{blueprint, tally};
use patchboard_faults::random::Random;

/// The four proposals: an append, two writers of one field, and one that only holds once another was committed.
fn proposals() -> [(&'static str, Value); 4] {
    let task = json!({"title": "b", "status": "open", "checked": false});
    [
        ("planner", json!([{"op": "add", "path": "/tasks/-", "value": task}])),
        ("doer", json!([{"op": "replace", "path": "/tasks/0/status", "value": "done"}])),
        (
            "doer",
            json!([{"op": "test", "path": "/tasks/0/status", "value": "open"},
                        {"op": "replace", "path": "/tasks/0/status", "value": "doing"}]),
        ),
        ("checker", json!([{"op": "replace", "path": "/tasks/0/checked", "value": true}])),
    ]
}

#[test]
fn every_order_of_four_proposals_from_three_workers_is_a_serial_history() {
    let mut finals = std::collections::BTreeMap::<String, usize>::new();
    let mut orders = 0;
    for order in permutations(4) {
        let whole = play(&order, None);
        // Wherever the process dies, the journal brings back the same history.
        for crash in 0..=order.len() {
            let crashed = play(&order, Some(crash));
            assert_eq!(whole.0, crashed.0, "order {order:?}, crash before {crash}");
        }
        *finals.entry(whole.0.to_string()).or_default() += 1;
        orders += 1;
    }
    assert_eq!(orders, 24);
    // By hand. Task 0 ends `done` and checked when `done` comes after the guarded write or voids its guard, and the
    // check comes after `done` with nothing in between to break it; the append commutes with all of it.
    let expected = [
        (r#"[["done",true],2]"#, 12), // check after done: 3 of the 6 orders of the three, times 4 places of the append
        (r#"[["done",false],2]"#, 12),
    ];
    let expected: std::collections::BTreeMap<_, _> =
        expected.into_iter().map(|(last, count)| (last.to_owned(), count)).collect();
    assert_eq!(finals, expected);
}

/// Plays the proposals in this order; dies and recovers before the `crash`th. Returns what became of task 0 and how
/// many tasks there are.
fn play(order: &[usize], crash: Option<usize>) -> (Value, Vec<&'static str>) {
    let mut random = Random::new(0);
    let mut blueprint = blueprint(&mut random);
    blueprint.rules.clear();
    blueprint.done = None;
    blueprint.state.initial = json!({
        "tasks": [{"title": "a", "status": "open", "checked": false}], "notes": [], "vault": "nobody-may-read-this",
    });
    let genesis = Genesis {
        board: BoardId::from("orders"),
        blueprint,
        mode: Mode::default(),
        architect: None,
        request: json!({"goal": "order"}),
        salt: Salt([1; 32]),
        at: Timestamp(0),
    };
    let (mut board, first) = Board::create(genesis, &Own).expect("the request fits");
    let mut invariants = Invariants::new(0, &board);
    let mut records: Vec<Record> = first.records.clone();
    let mut outcomes = Vec::new();
    let mut take = |board: &mut Board, input: Input, invariants: &mut Invariants| -> Step {
        let step = board.step(Timestamp(1), input.clone());
        invariants.after_step(Some(&input), &step, board);
        records.extend(step.records.iter().cloned());
        if crash.is_some() {
            let recovered = Board::recover(&records).expect("the journal is enough");
            invariants.same(board, &recovered);
        }
        step
    };
    for (place, index) in order.iter().enumerate() {
        if crash == Some(place) {
            take(&mut board, Input::TakeOver { epoch: 1, writer: "next".into() }, &mut invariants);
        }
        let (worker, patch) = proposals()[*index].clone();
        let from = From::Direct { token: None, base: None };
        let reply = ReplyBody::Json(patch);
        let input = Input::Propose(Proposal { from, worker: worker.into(), reply, usage: None });
        outcomes.push(take(&mut board, input, &mut invariants).outcome);
    }
    invariants.at_the_end(&board, &records);
    replay::replay(&records, None).expect("the run follows from its records");
    let state = &board.state().root().to_value();
    let task = &state["tasks"][0];
    let tasks = state["tasks"].as_array().map_or(0, Vec::len);
    let names = tally(&outcomes).into_iter().flat_map(|(name, count)| std::iter::repeat_n(name, count)).collect();
    (json!([[task["status"], task["checked"]], tasks]), names)
}

fn permutations(of: usize) -> Vec<Vec<usize>> {
    if of == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(of - 1) {
        for place in 0..=shorter.len() {
            let mut longer = shorter.clone();
            longer.insert(place, of - 1);
            all.push(longer);
        }
    }
    all
}
