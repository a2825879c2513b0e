//! Write-ahead order: a step's effects are released once its records are durable, and a board ahead of its journal
//! accepts no input.

use std::panic::{AssertUnwindSafe, catch_unwind};

use patchboard_kernel::ablation::Mode;
use patchboard_kernel::admission::Admission;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Board, Input, NewBoard};
use patchboard_kernel::digest::Salt;
use patchboard_kernel::driver::{Driver, Head, Ready};
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_kernel::record::Kind;
use patchboard_protocols::PLANS;
use serde_json::json;

const NOW: Timestamp = Timestamp(5);

fn owner() -> Driver {
    let blueprint: Blueprint = serde_json::from_value(json!({
        "blueprint": 1,
        "name": "owned",
        "state": {"schema": {"type": "object"}, "initial": {}},
        "workers": {"w": {"agent": "llm", "reads": [""]}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
    }))
    .expect("it is a blueprint");
    let (board, mode, salt) = (BoardId::from("owned"), Mode::default(), Salt::ZERO);
    let genesis = NewBoard { mode, salt, ..NewBoard::new(board, blueprint, json!({}), Timestamp(0)) };
    Driver::new(Board::create(genesis, &PLANS).expect("the request fits").0)
}

fn go() -> Input {
    Input::Signal { name: "go".into(), value: json!(null), key: None }
}

#[test]
fn effects_of_a_step_are_released_when_its_records_are_durable() {
    let mut owner = owner();
    let (seq, hash) = owner.board().head();
    let Ready { append: Some(append), released: None } =
        owner.decide_with(NOW, go(), &mut |_, _| Some(Admission::default()))
    else {
        panic!("it is recorded")
    };
    assert_eq!((append.expected, append.epoch), (Some(Head { seq, hash }), 0));
    assert!(append.records.iter().any(|record| record.kind == Kind::Invoked));
    let step = owner.complete_append::<()>(Ok(())).expect("it was appended");
    assert_eq!(step.records, append.records);
    assert!(!step.effects.calls.is_empty());
    assert!(owner.in_flight().is_none());
}

#[test]
fn a_step_without_records_waits_for_nothing() {
    let mut owner = owner();
    let decided = owner.decide(NOW, Input::Resume { key: None });
    assert!(decided.append.is_none() && decided.released.is_some());
    assert!(owner.decide(NOW, go()).append.is_some());
}

#[test]
fn a_failed_append_closes_the_board_to_further_input() {
    let mut owner = owner();
    assert!(owner.decide(NOW, go()).append.is_some());
    let goes_on =
        |owner: &mut Driver| catch_unwind(AssertUnwindSafe(|| owner.decide(NOW, Input::Pause { key: None }))).is_ok();
    assert!(!goes_on(&mut owner), "the journal has not answered");
    assert_eq!(owner.complete_append(Err("full")).err(), Some("full"));
    assert!(!goes_on(&mut owner), "it is ahead of its journal");
}
