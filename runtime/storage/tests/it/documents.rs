//! Documents: batches, expectations, pages, revisions, changes of other handles.

mod files;
mod legacy;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use patchboard_storage::blocking::wait;
use patchboard_storage::documents::{
    CHANGES_MAX, Change, Document, DocumentError, Documents, NAME_BYTES_MAX, PAGE_MAX, VALUE_BYTES_MAX, all, transact,
};
use patchboard_storage::sqlite::SqliteDocuments;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::drivers::{Store, on_each};

fn open(path: &Path) -> Store {
    Arc::new(SqliteDocuments::open(path).expect("it opens"))
}

fn value(store: &Store, key: &str) -> Option<Value> {
    wait(store.get("c", key)).expect("it is read").map(|document| document.value)
}

fn keys(documents: &[Document]) -> Vec<&str> {
    documents.iter().map(|document| document.key.as_str()).collect()
}

#[test]
fn a_batch_is_applied_wholly_or_not_at_all() {
    on_each(|driver, [here, there]| {
        let first = wait(here.change(vec![Change::put("c", "a", json!(1)), Change::put("c", "b", json!({"x": null}))]));
        let first = first.expect("applied");
        assert_eq!(wait(there.revision()), Ok(first), "{driver}");
        let found = wait(there.get("c", "b")).expect("read");
        assert_eq!(found, Some(Document { key: "b".to_owned(), revision: first, value: json!({"x": null}) }));
        for unexpected in [
            Change::put("c", "a", json!(2)).expecting(None),
            Change::put("c", "a", json!(2)).expecting(Some(first + 1)),
            Change::put("c", "new", json!(2)).expecting(Some(first)),
            Change::remove("c", "new").expecting(Some(first)),
        ] {
            let key = unexpected.key.clone();
            let batch = vec![Change::put("c", "b", json!(2)), Change::remove("c", "c"), unexpected];
            let refused = wait(there.change(batch)).expect_err("it is refused");
            assert_eq!(refused, DocumentError::Conflict { collection: "c".to_owned(), key }, "{driver}");
            assert_eq!(refused.code(), "document_conflict");
            assert_eq!((value(&here, "b"), wait(here.revision())), (Some(json!({"x": null})), Ok(first)), "{driver}");
        }
        let second = vec![Change::put("c", "a", json!(3)).expecting(Some(first)), Change::remove("c", "b")];
        assert!(wait(there.change(second)).expect("applied") > first);
        assert_eq!((value(&here, "a"), value(&here, "b")), (Some(json!(3)), None), "{driver}");
    });
}

#[test]
fn changes_beyond_a_limit_are_rejected() {
    on_each(|driver, [store, _]| {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let many = |count: usize| (0..count).map(|number| Change::put("c", number.to_string(), json!(0))).collect();
        for batch in [
            vec![Change::put("c", &long, json!(1))],
            vec![Change::put(&long, "k", json!(1))],
            vec![Change::put("c", "k", json!("x".repeat(VALUE_BYTES_MAX)))],
            vec![Change::put("c", "k", json!(1)), Change::remove("c", "k")],
            many(CHANGES_MAX + 1),
        ] {
            let refused = wait(store.change(batch)).expect_err("it is refused");
            assert_eq!(refused.code(), "bad_change", "{driver}");
        }
        assert_eq!(wait(all(&*store, "c")), Ok(Vec::new()), "{driver}");
        wait(store.change(many(CHANGES_MAX))).expect("applied");
        let most = [Change::put(&long[1..], &long[1..], json!("x".repeat(VALUE_BYTES_MAX - 2)))];
        wait(store.change(most.into())).expect("applied");
    });
}

#[test]
fn pages_are_in_order_of_keys_and_end() {
    on_each(|driver, [store, _]| {
        for half in 0..2 {
            let written =
                (0..PAGE_MAX).map(|number| Change::put("c", format!("{:05}", 2 * number + half), json!(half)));
            wait(store.change(written.collect())).expect("applied");
        }
        wait(store.change(vec![Change::put("b", "x", json!(0)), Change::put("d", "", json!(0))])).expect("applied");
        let page = |after: Option<&str>, limit| wait(store.page("c", after, limit)).expect("read");
        assert_eq!(keys(&page(None, 2)), ["00000", "00001"], "{driver}");
        assert_eq!(keys(&page(Some("00001"), 2)), ["00002", "00003"], "{driver}");
        assert_eq!(keys(&page(Some("000015"), 1)), ["00002"], "{driver}");
        assert_eq!((page(None, usize::MAX).len(), page(None, 0).len()), (PAGE_MAX, 0), "{driver}");
        assert_eq!(page(Some("01999"), 9), [], "{driver}");
        assert_eq!(wait(all(&*store, "c")).expect("read").len(), 2 * PAGE_MAX, "{driver}");
        assert_eq!(keys(&wait(all(&*store, "d")).expect("read")), [""], "{driver}");
    });
}

#[test]
fn revisions_only_rise_also_when_a_document_comes_back() {
    on_each(|driver, [here, there]| {
        let mut last = wait(here.revision()).expect("read");
        for round in 0..3 {
            for store in [&here, &there] {
                let written = wait(store.change(vec![Change::put("c", "k", json!(round))])).expect("applied");
                assert!(written > last, "{driver}");
                let removed = wait(store.change(vec![Change::remove("c", "k").expecting(Some(written))]));
                last = removed.expect("applied");
                let stale = Change::put("c", "k", json!("stale")).expecting(Some(written));
                assert!(wait(store.change(vec![stale])).is_err(), "{driver}");
            }
        }
    });
}

/// Adds a row with the next number, and counts it in a header.
async fn add(store: &dyn Documents) -> Result<u64, DocumentError> {
    let decide = async || {
        let header = store.get("header", "rows").await?;
        let count = header.as_ref().and_then(|header| header.value.as_u64()).unwrap_or_default();
        let counted = Change::put("header", "rows", json!(count + 1));
        let row = Change::put("rows", format!("{count:05}"), json!(count)).expecting(None);
        Ok((count, vec![row, counted.expecting(header.map(|header| header.revision))]))
    };
    transact(store, decide).await
}

#[test]
fn many_writers_at_once_decide_one_after_the_other() {
    on_each(|driver, stores| {
        let made: Vec<u64> = std::thread::scope(|scope| {
            let writers = stores.iter().chain(&stores).map(|store| {
                scope.spawn(move || (0..25).map(|_| wait(add(&**store)).expect("applied")).collect::<Vec<_>>())
            });
            let writers: Vec<_> = writers.collect();
            writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect()
        });
        let different: std::collections::BTreeSet<u64> = made.iter().copied().collect();
        assert_eq!(different, (0..100).collect(), "{driver}");
        let rows = wait(all(&*stores[1], "rows")).expect("read");
        assert!(rows.iter().zip(0..).all(|(row, number)| row.value == json!(number)) && rows.len() == 100, "{driver}");
    });
}

#[test]
fn a_change_of_another_handle_is_seen() {
    on_each(|driver, [here, there]| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            for writer in [&here, &there] {
                let before = here.revision().await.expect("read");
                let waits = tokio::time::timeout(Duration::from_millis(20), here.changed(before)).await;
                assert!(waits.is_err(), "{driver}: nothing has changed");
                let written = async {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    writer.change(vec![Change::put("c", "k", json!(before))]).await
                };
                let (seen, written) = tokio::join!(here.changed(before), written);
                assert_eq!((seen, here.changed(before).await), (written.clone(), written), "{driver}");
            }
        });
    });
}

/// Change of a model of the documents.
#[derive(Clone, Debug)]
struct Step {
    key: u8,
    value: Option<i64>,
    is_fresh: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (0..6u8, proptest::option::of(any::<i64>()), any::<bool>()).prop_map(|(key, value, is_fresh)| Step {
        key,
        value,
        is_fresh,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_driver_does_what_a_map_does(steps in proptest::collection::vec(step(), 1..20)) {
        on_each(|driver, stores| {
            let mut model: BTreeMap<String, i64> = BTreeMap::new();
            for (Step { key, value, is_fresh }, store) in steps.iter().zip(stores.iter().cycle()) {
                let key = key.to_string();
                let change = match value {
                    Some(value) => Change::put("c", &key, json!(value)),
                    None => Change::remove("c", &key),
                };
                let is_refused = *is_fresh && model.contains_key(&key);
                let change = if *is_fresh { change.expecting(None) } else { change };
                assert_eq!(wait(store.change(vec![change])).is_err(), is_refused, "{driver}");
                match value {
                    _ if is_refused => {}
                    Some(value) => drop(model.insert(key, *value)),
                    None => drop(model.remove(&key)),
                }
                for store in &stores {
                    let found = wait(all(&**store, "c")).expect("read").into_iter();
                    let found: Vec<_> = found.map(|document| (document.key, document.value)).collect();
                    let expected: Vec<_> = model.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
                    assert_eq!(found, expected, "{driver}");
                }
            }
        });
    }
}
