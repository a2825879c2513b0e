//! Each change is made once, completely or not at all.

use patchboard_kernel::canonical;
use proptest::prelude::*;
use serde_json::json;

use super::super::declared_tests::tests::{changed, notes};
use super::super::types::Row;
use super::*;

fn resolved(action: &str, ids: &[i64], slots: Value) -> Resolution {
    let slots = slots.as_object().cloned().expect("slots");
    Resolution { ids: ids.to_vec(), ..Resolution::new(Status::Found, action, slots) }
}

fn done(storage: &Storage, key: &str, resolved: &Resolution) -> Outcome {
    execute(storage, &notes(), key, resolved, Timestamp(1000), 10_000).expect("no fault")
}

fn rows(storage: &Storage) -> Vec<Value> {
    storage.rows(&notes()).expect("rows").into_iter().map(|row| Value::Object(row.values)).collect()
}

fn tea() -> Value {
    json!({"list": "office", "item": "tea"})
}

#[test]
fn a_call_that_is_made_again_gets_what_it_got_and_changes_nothing() {
    let storage = Storage::in_memory();
    let add = resolved("add", &[], tea());
    let first = done(&storage, "b:1", &add);
    assert_eq!((first.status, first.verified), (OutcomeStatus::Done, true));
    let of = |ids: &[i64], slots: Value| resolved("move", ids, slots);
    let moved = done(&storage, "b:2", &of(&[1], json!({"list": "office", "item": "tea", "new_list": "household"})));
    assert_eq!(moved.status, OutcomeStatus::Done);
    // Also holds after other calls, and if the repeated call asks for another change.
    assert_eq!(done(&storage, "b:1", &add), first);
    assert_eq!(done(&storage, "b:1", &resolved("remove", &[1], json!({}))), first);
    assert_eq!(rows(&storage), [json!({"list": "household", "item": "tea"})]);
    // Errors are stored as well.
    let wrong = done(&storage, "b:3", &of(&[7], json!({"new_list": "office"})));
    assert_eq!((wrong.status, wrong.verified), (OutcomeStatus::Error, false));
    assert_eq!(done(&storage, "b:3", &of(&[1], json!({"new_list": "office"}))), wrong);
}

#[test]
fn a_row_that_is_not_what_was_found_any_more_is_left_alone() {
    let storage = Storage::in_memory();
    done(&storage, "b:1", &resolved("add", &[], tea()));
    for (key, ids, slots) in [
        ("b:2", &[1][..], json!({"list": "household", "item": "tea"})),
        ("b:3", &[2], tea()),
        ("b:4", &[], tea()),
        ("b:5", &[1, 1], tea()),
    ] {
        let outcome = done(&storage, key, &resolved("remove", ids, slots));
        assert_eq!((outcome.status, outcome.rows.len()), (OutcomeStatus::Error, 0), "{key}");
    }
    assert_eq!(rows(&storage), [tea()]);
    assert_eq!(done(&storage, "b:6", &resolved("remove", &[1], tea())).status, OutcomeStatus::Done);
    assert_eq!(rows(&storage), [] as [Value; 0]);
}

#[test]
fn invalid_values_leave_the_rows_unchanged() {
    let storage = Storage::in_memory();
    let of = |slots: Value| done(&storage, &slots.to_string(), &resolved("add", &[], slots)).wrong;
    let unfit = ChangeError::Unfit { field: "list".to_owned(), value: json!("garage") };
    assert_eq!(of(json!({"list": "garage", "item": "tea"})), Some(unfit));
    assert_eq!(of(json!({"list": "office"})), Some(ChangeError::Missing { field: "item".to_owned() }));
    assert!(of(json!({"list": "office", "item": "x".repeat(201)})).is_some());
    assert!(of(json!({"list": "office", "item": 7})).is_some());
    let open = Resolution { status: Status::Open, ..resolved("add", &[], tea()) };
    assert_eq!(done(&storage, "open", &open).status, OutcomeStatus::Error);
    assert_eq!(done(&storage, "burn", &resolved("burn", &[], tea())).status, OutcomeStatus::Error);
    assert_eq!(rows(&storage), [] as [Value; 0]);
}

#[test]
fn numbers_are_the_same_however_they_are_written() {
    let department = changed(|manifest| {
        manifest["storage"]["fields"]["price"] = json!({"type": "number"});
        manifest["actions"]["add"]["sets"] = json!(["item", "list", "price"]);
        manifest["actions"]["remove"]["finds"] = json!(["item", "price"]);
    });
    let prices = [json!(2), json!(2.0), json!(2.25), json!(-0.0), json!(1e17), json!(100_000_000_000_000_000_i64)];
    for (at, price) in prices.into_iter().enumerate() {
        let storage = Storage::in_memory();
        let slots = json!({"item": "tea", "list": "office", "price": price});
        let done = |key: &str, resolved: &Resolution| {
            execute(&storage, &department, key, resolved, Timestamp(1), 10_000).expect("it works")
        };
        assert_eq!(done("a", &resolved("add", &[], slots)).wrong, None, "{at}: {price}");
        let shown = &storage.rows(&department).expect("rows")[0].values["price"];
        assert_eq!(shown.as_f64(), price.as_f64(), "{at}");
        // In the journal's canonical form, which has one notation for a number.
        let canonical: Value = serde_json::from_str(&canonical::to_string(&price)).expect("JSON");
        let slots = json!({"item": "tea", "price": canonical});
        assert_eq!(done("b", &resolved("remove", &[1], slots)).wrong, None, "{at}: {price}");
    }
}

#[test]
fn writes_altered_by_a_database_trigger_are_rolled_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let storage = Storage::in_dir(dir.path());
    assert_eq!(rows(&storage), [] as [Value; 0]);
    let meddle = "CREATE TRIGGER meddle AFTER INSERT ON documents WHEN NEW.value ->> '$.values.item' = 'tea'
        BEGIN UPDATE documents SET value = json_set(value, '$.values.item', 'coffee') WHERE key = NEW.key; END";
    let connection = rusqlite::Connection::open(dir.path().join("departments.sqlite")).expect("a file");
    connection.execute_batch(meddle).expect("a trigger");
    let outcome = done(&storage, "b:1", &resolved("add", &[], tea()));
    assert_eq!((outcome.status, outcome.verified), (OutcomeStatus::Error, false));
    assert_eq!(outcome.wrong, Some(ChangeError::Unverified));
    assert_eq!(rows(&storage), [] as [Value; 0]);
    let forever = Timestamp(i64::MAX);
    assert_eq!(storage.rows_as_of(&notes(), forever, forever).expect("rows"), []);
    assert_eq!(
        done(&storage, "b:2", &resolved("add", &[], json!({"list": "office", "item": "milk"}))).status,
        OutcomeStatus::Done
    );
}

#[test]
fn a_selection_is_as_long_as_there_is_room_for() {
    let storage = Storage::in_memory();
    let ids: Vec<i64> = (1..=150).collect();
    for id in &ids {
        done(
            &storage,
            &format!("b:{id}"),
            &resolved("add", &[], json!({"list": "office", "item": format!("item {id}")})),
        );
    }
    let all = done(&storage, "s", &resolved("show", &ids, json!({"list": "office"})));
    assert_eq!((all.status, all.count, all.rows.len()), (OutcomeStatus::Done, 150, SHOWN_MAX));
    let few = execute(&storage, &notes(), "s", &resolved("show", &ids, json!({})), Timestamp(0), 200).expect("rows");
    assert_eq!((few.count, few.rows.len()), (150, 3));
}

#[test]
fn values_are_only_values() {
    let storage = Storage::in_memory();
    for (index, item) in
        ["x'); DROP TABLE outcomes; --", "\"; DELETE FROM department_notes", "?1", "%_\\"].iter().enumerate()
    {
        let slots = json!({"list": "office", "item": item});
        assert_eq!(
            done(&storage, &format!("'{index}\" OR 1=1"), &resolved("add", &[], slots.clone())).status,
            OutcomeStatus::Done
        );
        assert_eq!(rows(&storage)[index], slots);
    }
    assert_eq!(done(&storage, "'0\" OR 1=1", &resolved("show", &[], json!({}))).count, 0);
    assert_eq!(rows(&storage).len(), 4);
}

/// One change, applied to a model of the rows.
#[derive(Clone, Debug)]
enum Deed {
    Add(&'static str, &'static str),
    Remove(usize),
    Move(usize, &'static str),
}

fn deed() -> impl Strategy<Value = Deed> {
    let list = || prop_oneof![Just("household"), Just("office")];
    let item = prop_oneof![Just("tea"), Just("milk"), Just("Tea")];
    prop_oneof![
        3 => (list(), item).prop_map(|(list, item)| Deed::Add(list, item)),
        1 => (0..4usize).prop_map(Deed::Remove),
        2 => (0..4usize, list()).prop_map(|(at, list)| Deed::Move(at, list)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Every past state can be read, a repeated call changes nothing, and no two rows are equal.
    #[test]
    fn history_is_complete_and_repeating_changes_nothing(
        deeds in proptest::collection::vec((deed(), any::<bool>(), -2..3i64), 1..14),
    ) {
        let (storage, notes) = (Storage::in_memory(), notes());
        let mut now = 1000;
        // State and time after each change.
        let mut states: Vec<(i64, Vec<Row>)> = Vec::new();
        for (index, (deed, again, step)) in deeds.iter().enumerate() {
            // The clock may stop or go backwards.
            now += step;
            let before = storage.rows(&notes).expect("rows");
            let at = |at: usize| before.get(at % before.len().max(1));
            let resolved = match deed {
                Deed::Add(list, item) => resolved("add", &[], json!({"list": list, "item": item})),
                Deed::Remove(index) => match at(*index) {
                    Some(row) => resolved("remove", &[row.id], Value::Object(row.values.clone())),
                    None => continue,
                },
                Deed::Move(index, list) => match at(*index) {
                    Some(row) => {
                        let mut slots = row.values.clone();
                        slots.insert("new_list".into(), (*list).into());
                        resolved("move", &[row.id], Value::Object(slots))
                    }
                    None => continue,
                },
            };
            let key = format!("b:{index}");
            let outcome = execute(&storage, &notes, &key, &resolved, Timestamp(now), 10_000).expect("no fault");
            let after = storage.rows(&notes).expect("rows");
            if outcome.status == OutcomeStatus::Error {
                prop_assert_eq!(&before, &after);
            }
            if *again {
                let repeated = execute(&storage, &notes, &key, &resolved, Timestamp(now + 9), 10_000).expect("no fault");
                prop_assert_eq!(&repeated, &outcome);
                prop_assert_eq!(&storage.rows(&notes).expect("rows"), &after);
            }
            let same: std::collections::BTreeSet<String> =
                after.iter().map(|row| format!("{} {}", row.values["list"], row.values["item"]).to_lowercase()).collect();
            prop_assert_eq!(same.len(), after.len());
            let table = storage.with_documents(|documents| wait(Table::read(documents, &notes.name, true))).expect("states");
            states.push((table.states().map(|state| state.recorded_from).max().unwrap_or_default(), after));
        }
        // Among changes with equal times, the last one counts. If the clock went back, a row's own time still advances.
        let forever = Timestamp(i64::MAX - 1);
        if let Some((_, last)) = states.last() {
            prop_assert_eq!(&storage.rows_as_of(&notes, forever, forever).expect("rows"), last);
        }
        let is_in_order = deeds.iter().all(|(_, _, step)| *step > 1);
        for (at, state) in states.iter().filter(|_| is_in_order) {
            prop_assert_eq!(&storage.rows_as_of(&notes, Timestamp(*at), Timestamp(*at)).expect("rows"), state);
            // Later knowledge of that time is equal.
            prop_assert_eq!(&storage.rows_as_of(&notes, Timestamp(*at), forever).expect("rows"), state);
        }
    }
}
