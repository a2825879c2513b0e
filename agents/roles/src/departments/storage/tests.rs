//! Department files: creation, reopening, schema changes and sharing.

use patchboard_kernel::redaction::Needles;
use serde_json::json;

use super::super::crud::execute;
use super::super::declared_tests::tests::{changed, notes};
use super::super::types::{OutcomeStatus, Resolution, Status};
use super::*;

impl State {
    /// Returns true if the row existed at `valid`, as far as that was known at `recorded`.
    fn is_at(&self, valid: Timestamp, recorded: Timestamp) -> bool {
        let is_within = |from: i64, to: Option<i64>, at: i64| from <= at && to.is_none_or(|to| at < to);
        !self.deleted
            && is_within(self.valid_from, self.valid_to, valid.0)
            && is_within(self.recorded_from, self.recorded_to, recorded.0)
    }
}

impl Storage {
    /// Returns the rows as they were at `valid`, as far as that was known at `recorded`. Blocks.
    pub(in crate::departments) fn rows_as_of(
        &self,
        department: &Department,
        valid: Timestamp,
        recorded: Timestamp,
    ) -> Result<Vec<Row>, StorageError> {
        let table = self.with_documents(|documents| wait(Table::read(documents, &department.name, true)))?;
        let mut then: Vec<&State> = table.states().filter(|state| state.is_at(valid, recorded)).collect();
        then.sort_by_key(|state| state.id);
        Ok(then.into_iter().cloned().map(State::into_row).collect())
    }
}

fn add(storage: &Storage, department: &Department, key: &str, item: &str) -> Result<OutcomeStatus, StorageError> {
    let slots = json!({"list": "office", "item": item}).as_object().cloned().expect("slots");
    let found = Resolution::new(Status::Found, "add", slots);
    execute(storage, department, key, &found, Timestamp(5), 1000).map(|outcome| outcome.status)
}

fn items(storage: &Storage, department: &Department) -> Vec<Value> {
    storage.rows(department).expect("rows").into_iter().map(|mut row| row.values.remove("item").expect("one")).collect()
}

#[test]
fn rows_are_there_when_the_file_is_opened_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    add(&Storage::in_dir(&data), &notes(), "b:1", "tea").expect("it is written");
    let storage = Storage::in_dir(&data);
    assert_eq!(items(&storage, &notes()), [json!("tea")]);
    let copy = Storage::copy_before(&data, Timestamp(6));
    add(&copy, &notes(), "b:2", "milk").expect("it is written");
    assert_eq!(items(&copy, &notes()), [json!("tea"), json!("milk")]);
    assert_eq!(items(&storage, &notes()), [json!("tea")], "a copy is a copy");
    assert_eq!(items(&Storage::copy_before(&dir.path().join("nothing"), Timestamp(6)), &notes()), [] as [Value; 0]);
    assert!(!dir.path().join("nothing").exists());
    let fault = Storage::unconfigured().rows(&notes()).expect_err("there is no place");
    assert_eq!(Failure::from(fault).code, FailureCode::NotConfigured);
}

#[test]
fn rows_with_an_erased_text_are_emptied_in_every_state_and_in_every_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let storage = Storage::in_dir(dir.path());
    let notes = notes();
    let texts = Needles::new(["Zaphod".to_owned()].into(), "");
    assert!(erase::erase(dir.path(), &texts).expect("nothing to do").is_empty());
    for (key, item) in [("b:1", "tea"), ("b:2", "call Zaphod"), ("b:3", "ask Zaphod")] {
        add(&storage, &notes, key, item).expect("it is written");
    }
    // Rows of every time are found, including deleted ones.
    let slots = json!({"list": "office", "item": "ask Zaphod"}).as_object().cloned().expect("slots");
    let removed = Resolution { ids: vec![3], ..Resolution::new(Status::Found, "remove", slots) };
    let remove = || execute(&storage, &notes, "b:4", &removed, Timestamp(9), 1000).expect("no fault");
    assert_eq!(remove().status, OutcomeStatus::Done);

    let expected = erase::TextMatches { rows: [(notes.name.clone(), [2, 3].into())].into(), outcomes: 3 };
    assert_eq!(erase::find(dir.path(), &texts).expect("it is read"), expected);
    assert_eq!(items(&storage, &notes), [json!("tea"), json!("call Zaphod")], "only looked for");
    assert_eq!(erase::erase(dir.path(), &texts).expect("it is erased"), expected);
    for file in std::fs::read_dir(dir.path()).expect("files") {
        let bytes = std::fs::read(file.expect("a file").path()).expect("bytes");
        assert!(!bytes.windows(6).any(|window| window == b"Zaphod"));
    }
    assert!(erase::erase(dir.path(), &texts).expect("nothing to do").is_empty());
    assert_eq!(items(&storage, &notes), [json!("tea")]);
    let then = storage.rows_as_of(&notes, Timestamp(6), Timestamp(6)).expect("rows");
    assert_eq!(then.into_iter().map(|row| row.id).collect::<Vec<_>>(), [1]);
    // A repeated call returns its stored result, and row numbers are not reused.
    assert_eq!(remove().rows[0].before.as_ref().expect("it was there")["item"], "$redacted");
    add(&storage, &notes, "b:5", "milk").expect("it is written");
    assert_eq!(storage.rows(&notes).expect("rows")[1].id, 4);
}

#[test]
fn a_change_is_in_the_file_and_not_in_its_log_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let storage = Storage::in_dir(dir.path());
    add(&storage, &notes(), "b:1", "tea").expect("it is written");
    let log = std::fs::metadata(dir.path().join(format!("{FILE}-wal"))).expect("it is open");
    assert_eq!(log.len(), 0);
}

#[test]
fn a_copy_is_of_what_was_there_before_a_moment() {
    let dir = tempfile::tempdir().expect("a directory");
    let storage = Storage::in_dir(dir.path());
    let notes = notes();
    let found = |action: &str, item: &str, ids: &[i64]| {
        let slots = json!({"list": "office", "item": item}).as_object().cloned().expect("slots");
        Resolution { ids: ids.to_vec(), ..Resolution::new(Status::Found, action, slots) }
    };
    let done = |storage: &Storage, key: &str, found: &Resolution, at: i64| {
        execute(storage, &notes, key, found, Timestamp(at), 1000).expect("no fault")
    };
    let mut came = vec![(10, done(&storage, "b:1", &found("add", "tea", &[]), 10))];
    came.push((20, done(&storage, "b:2", &found("add", "milk", &[]), 20)));
    came.push((30, done(&storage, "b:3", &found("remove", "tea", &[1]), 30)));
    assert_eq!(items(&storage, &notes), [json!("milk")]);
    let then = [&[][..], &["tea"], &["tea", "milk"], &["milk"]];
    for (moment, expected) in [10, 20, 30, 31].into_iter().zip(then) {
        let copy = Storage::copy_before(dir.path(), Timestamp(moment));
        assert_eq!(items(&copy, &notes), expected, "before {moment}");
        let known = Timestamp(moment - 1);
        assert_eq!(copy.rows(&notes).expect("rows"), storage.rows_as_of(&notes, known, known).expect("rows"));
    }
    // Each call repeats its change in the copy, because its outcome is not known there yet.
    let again = [found("add", "tea", &[]), found("add", "milk", &[]), found("remove", "tea", &[1])];
    for (number, (found, (at, outcome))) in again.iter().zip(&came).enumerate() {
        assert_eq!(outcome.status, OutcomeStatus::Done);
        let copy = Storage::copy_before(dir.path(), Timestamp(*at));
        assert_eq!(done(&copy, &format!("b:{}", number + 1), found, *at), *outcome);
        assert_eq!(items(&copy, &notes), then[number + 1]);
    }
    // Later the outcome is known, and nothing is changed.
    let copy = Storage::copy_before(dir.path(), Timestamp(31));
    assert_eq!(done(&copy, "b:1", &again[0], 40), came[0].1);
    assert_eq!(items(&storage, &notes), [json!("milk")], "the file stays as it is");
}

#[test]
fn new_fields_are_added_and_others_are_reported() {
    let storage = Storage::in_memory();
    add(&storage, &notes(), "b:1", "tea").expect("it is written");
    let wider = changed(|of| {
        of["storage"]["fields"]["price"] = json!({"type": "number"});
        of["storage"]["fields"]["bought"] = json!({"type": "boolean"});
        of["actions"]["add"]["sets"] = json!(["list", "item", "price", "bought"]);
    });
    assert_eq!(items(&storage, &wider), [json!("tea")]);
    let values = json!({"list": "office", "item": "oil", "price": 2.5, "bought": true});
    let found = Resolution::new(Status::Found, "add", values.as_object().cloned().expect("slots"));
    let outcome = execute(&storage, &wider, "b:2", &found, Timestamp(6), 1000).expect("no fault");
    assert_eq!((outcome.status, outcome.verified), (OutcomeStatus::Done, true));
    assert_eq!(Value::Object(storage.rows(&wider).expect("rows").remove(1).values), values);
    for (other, said) in [
        (notes(), "has no field bought"),
        (changed(|of| of["storage"]["fields"]["item"] = json!({"type": "integer"})), "has no field bought"),
    ] {
        let fault = storage.rows(&other).expect_err("rows have what it has not");
        assert!(matches!(&fault, StorageError::NotConfigured(why) if why.contains(said)), "{fault}");
    }
    let retyped = changed(|of| {
        of["storage"]["fields"]["price"] = json!({"type": "string"});
        of["storage"]["fields"]["bought"] = json!({"type": "boolean"});
    });
    let fault = storage.rows(&retyped).expect_err("of another type");
    assert!(fault.to_string().contains("price is of type string, and in its rows it is number"), "{fault}");
    assert_eq!(items(&storage, &wider).len(), 2, "nothing is lost by that");
}

#[test]
fn any_name_is_quoted() {
    let storage = Storage::in_memory();
    add(&storage, &notes(), "b:1", "tea").expect("it is written");
    // Manifests with such names are rejected earlier; this tests the second line of defence.
    let evil = "x\" TEXT); DROP TABLE department_notes; CREATE TABLE \"y";
    let department = changed(|of| {
        of["name"] = json!(format!("notes\"; {evil}"));
        of["storage"]["fields"] =
            json!({"item": {"type": "string"}, (evil): {"type": "string"}, "select": {"type": "string"}});
        of["storage"]["identity"] = json!([evil]);
        of["actions"] = json!({"add": {"does": "insert", "sets": ["item", evil, "select"], "confirm": "x"}});
    });
    assert!(!department.validation_errors().is_empty());
    let slots = json!({"item": "a", (evil): "b", "select": "c"}).as_object().cloned().expect("slots");
    let found = Resolution::new(Status::Found, "add", slots.clone());
    let outcome = execute(&storage, &department, "b:2", &found, Timestamp(5), 1000).expect("no fault");
    assert_eq!(outcome.status, OutcomeStatus::Done, "{outcome:?}");
    assert_eq!(storage.rows(&department).expect("rows")[0].values, slots);
    assert_eq!(items(&storage, &notes()), [json!("tea")]);
}

#[test]
fn a_file_that_is_not_ours_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(FILE);
    for (pragma, said) in [("application_id = 7", "no file of departments"), ("user_version = 99", "newer version")] {
        let _ = std::fs::remove_file(&path);
        let foreign = rusqlite::Connection::open(&path).expect("a file");
        foreign.execute_batch(&format!("PRAGMA {pragma}; CREATE TABLE t (x)")).expect("a table");
        drop(foreign);
        let before = std::fs::read(&path).expect("bytes");
        let fault = Storage::in_dir(dir.path()).rows(&notes()).expect_err("it is not ours");
        assert!(matches!(&fault, StorageError::NotConfigured(why) if why.contains(said)), "{fault}");
        assert_eq!(std::fs::read(&path).expect("bytes"), before);
    }
    std::fs::write(&path, "no database at all, but long enough to be looked at as one".repeat(20)).expect("written");
    assert!(matches!(Storage::in_dir(dir.path()).rows(&notes()), Err(StorageError::Documents(_))));
}

#[test]
fn several_that_write_at_once_all_write_and_each_row_is_there_once() {
    let dir = tempfile::tempdir().expect("a directory");
    // Two connections, as in two processes, with two threads each; every call is made twice.
    let storages = [Storage::in_dir(dir.path()), Storage::in_dir(dir.path())];
    std::thread::scope(|scope| {
        for (index, storage) in storages.iter().chain(&storages).enumerate() {
            scope.spawn(move || {
                for number in 0..25 {
                    // Both threads of a pair make the same calls.
                    let item = format!("item {} {number}", index / 2);
                    let key = format!("b:{}:{number}", index / 2);
                    assert_eq!(add(storage, &notes(), &key, &item).expect("it is written"), OutcomeStatus::Done);
                    // All threads want this row, and one of them gets it.
                    let wanted = add(storage, &notes(), &format!("w:{index}:{number}"), &format!("wanted {number}"));
                    assert!(wanted.is_ok(), "{wanted:?}");
                }
            });
        }
    });
    let found = items(&storages[0], &notes());
    let different: std::collections::BTreeSet<String> = found.iter().map(Value::to_string).collect();
    assert_eq!((found.len(), different.len()), (75, 75));
}

/// Returns the rows as JSON: number, version and values.
fn listed(rows: Vec<Row>) -> Value {
    rows.into_iter().map(|row| json!([row.id, row.version, row.values])).collect()
}

#[test]
fn a_file_with_tables_of_its_own_for_each_department_is_read_copied_and_continued() {
    let data = "runtime/storage/tests/data/departments.sql";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|root| root.join(data).is_file());
    let dump = std::fs::read_to_string(root.expect("the repository").join(data)).expect("a dump");
    let dir = tempfile::tempdir().expect("a directory");
    let file = rusqlite::Connection::open(dir.path().join(FILE)).expect("a file");
    file.execute_batch(&dump).expect("tables");
    drop(file);
    let notes = changed(|of| {
        of["storage"]["fields"]["price"] = json!({"type": "number"});
        of["storage"]["fields"]["bought"] = json!({"type": "boolean"});
        of["storage"]["fields"]["pieces"] = json!({"type": "integer"});
    });
    let copy = Storage::copy_before(dir.path(), Timestamp(55));
    let before = listed(copy.rows(&notes).expect("rows"));
    let texts = Needles::new(["Rome".to_owned()].into(), "");
    let found = erase::find(dir.path(), &texts).expect("it is read");
    assert_eq!(found, erase::TextMatches { rows: [("places".to_owned(), [1].into())].into(), outcomes: 1 });
    let storage = Storage::in_dir(dir.path());
    let tea = json!({"item": "tea", "list": "household"});
    let oil = json!({"bought": true, "item": "\"oil\" 'ö'", "list": "office", "pieces": 12, "price": 2});
    let salt = json!({"bought": false, "item": "salt", "list": "office", "pieces": -3, "price": 0.25});
    assert_eq!(listed(storage.rows(&notes).expect("rows")), json!([[1, 2, tea], [3, 1, oil], [4, 1, salt]]));
    let at = |at| listed(storage.rows_as_of(&notes, Timestamp(at), Timestamp(at)).expect("rows"));
    let [first, milk] = ["tea", "milk"].map(|item| json!({"item": item, "list": "office"}));
    assert_eq!((at(4), at(5)), (json!([]), json!([[1, 1, first], [2, 1, milk]])));
    assert_eq!((at(20), at(30)), (json!([[1, 2, tea], [2, 1, milk]]), json!([[1, 2, tea]])));
    assert_eq!((at(55), before), (json!([[1, 2, tea], [3, 1, oil]]), json!([[1, 2, tea], [3, 1, oil]])));
    // A call of before gets its outcome, and a new row a new number.
    assert_eq!(add(&storage, &notes, "b1:5", "anything").expect("known"), OutcomeStatus::Error);
    assert_eq!(add(&storage, &notes, "b1:8", "milk").expect("written"), OutcomeStatus::Done);
    assert_eq!(storage.rows(&notes).expect("rows").last().map(|row| row.id), Some(5));
    assert_eq!(erase::erase(dir.path(), &texts).expect("erased"), found);
}

#[test]
fn a_row_with_more_states_than_one_batch_changes_is_erased() {
    let dir = tempfile::tempdir().expect("a directory");
    let storage = Storage::in_dir(dir.path());
    add(&storage, &notes(), "b:1", "Zaphod").expect("written");
    let table = storage.with_documents(|documents| wait(Table::read(documents, &notes().name, true))).expect("states");
    let state = &table.rows[&1];
    for part in 0..2 {
        let states = (0..900).map(|number| {
            let (recorded_from, item) = (10 + part * 900 + number, if number % 2 == 0 { "tea" } else { "Zaphod" });
            let values = json!({"list": "office", "item": item}).as_object().cloned().expect("values");
            State { recorded_from, recorded_to: Some(recorded_from + 1), values, ..state.clone() }.put("notes")
        });
        let states = states.collect();
        storage.with_documents(|documents| Ok(wait(documents.change(states))?)).expect("written");
    }
    let texts = Needles::new(["Zaphod".to_owned()].into(), "");
    assert_eq!(erase::erase(dir.path(), &texts).expect("erased").rows["notes"], [1].into());
    let table = storage.with_documents(|documents| wait(Table::read(documents, &notes().name, true))).expect("states");
    assert_eq!((table.rows.len(), table.history.len()), (0, 1801));
    assert!(table.states().all(|state| state.deleted && state.values.is_empty()));
    assert_eq!(add(&storage, &notes(), "b:2", "tea").expect("written"), OutcomeStatus::Done);
    assert_eq!(storage.rows(&notes()).expect("rows")[0].id, 2);
}
