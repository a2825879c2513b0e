//! Statistics of made-up records.

use super::*;
use patchboard_kernel::digest::{Digest, Hasher, Salt};
use patchboard_kernel::id::{Seq, Timestamp, Version};
use patchboard_kernel::record::{Committed, EditOrigin, Rejected};
use patchboard_kernel::rejection::{Code, Rejection, Stage, Violation};
use serde_json::json;

fn edit(of: bool, name: Option<&str>, paths: &[&str]) -> String {
    let changes: Vec<_> = paths.iter().map(|path| json!({"path": path, "lines": 1, "bytes": 1})).collect();
    let mut edit = json!({"reads": [], "changes": changes});
    if of {
        edit["of"] = json!({"invocation": 1, "attempt": 1});
    }
    if let Some(name) = name {
        edit["name"] = json!(name);
    }
    edit.to_string()
}

fn author(worker: &str) -> Author {
    Author {
        worker: worker.into(),
        attempt: None,
        token: None,
        base: Version(0),
        usage: None,
        approval: None,
        edit: Some(EditOrigin::default()),
    }
}

fn made(worker: &str, written: String) -> Body {
    Body::Committed(Committed {
        by: author(worker),
        version: Version(1),
        state: Digest([0; 32]),
        patch: json!([]),
        intent: None,
        expand: Vec::new(),
        written: Some(written),
        raw: None,
    })
}

fn refused(worker: &str, code: Code, reply: String) -> Body {
    let rejection = Rejection::new(Stage::Freshness, vec![Violation::new(code, "", "no")]);
    let by = author(worker);
    Body::Rejected(Box::new(Rejected {
        by,
        stage: Stage::Freshness,
        code,
        is_final: false,
        rejection,
        elided: None,
        reply,
        written: None,
        raw: None,
    }))
}

fn counted(bodies: Vec<Body>) -> Metrics {
    let hasher = Hasher::new(&Salt([7; 32]));
    let (mut records, mut last) = (Vec::new(), Digest([0; 32]));
    for (seq, body) in bodies.into_iter().enumerate() {
        let record = Record::seal(last, Seq(seq as u64), Timestamp(0), body, &hasher);
        last = record.hash;
        records.push(record);
    }
    metrics(&records).expect("records that can be read")
}

#[test]
fn attempts_are_counted_by_author_and_by_what_became_of_them() {
    let metrics = counted(vec![
        made("ada", edit(true, None, &["a.py"])),
        refused("bob", Code::StaleTarget, edit(true, None, &["a.py"])),
        refused("bob", Code::Reserved, edit(true, None, &["a.py"])),
        made("bob", edit(true, None, &["a.py"])),
        made("bob", edit(true, None, &["a.py"])),
        made("external", edit(false, None, &["b.py"])),
    ]);
    assert_eq!((metrics.total.attempts, metrics.total.accepted, metrics.external), (5, 3, 1));
    assert_eq!(metrics.total.acceptance(), Some(0.6));
    let bob = &metrics.authors["bob"];
    assert_eq!((bob.attempts, bob.accepted, bob.rejections()), (4, 2, 2));
    assert_eq!(bob.rejected, BTreeMap::from([("stale_target".to_owned(), 1), ("reserved".to_owned(), 1)]));
    assert_eq!(bob.retries, 2, "the one after the first refusal, and the one after the second");
    assert_eq!(metrics.authors["ada"].retries, 0);
}

#[test]
fn authors_meet_in_files_that_more_than_one_has_tried() {
    let metrics = counted(vec![
        made("seat", edit(true, Some("ada"), &["a.py", "b.py"])),
        made("seat", edit(true, Some("bob"), &["b.py"])),
        refused("seat", Code::StaleTarget, edit(true, Some("bob"), &["a.py"])),
        made("seat", edit(true, Some("bob"), &["c.py", "d.py"])),
    ]);
    assert_eq!(metrics.overlap(), Some(0.5));
    let shared: Vec<_> = metrics.shared().map(FilePath::as_str).collect();
    assert_eq!(shared, ["b.py"], "what was refused has changed nothing");
    assert_eq!(metrics.authors.keys().collect::<Vec<_>>(), ["ada", "bob"]);
}

#[test]
fn lines_that_another_had_put_there_are_distinguished() {
    let edit = |name: &str, hunks: serde_json::Value, lines: u32| {
        let change = json!({"path": "a.py", "hash": Digest([1; 32]), "lines": lines, "bytes": 1, "hunks": hunks});
        json!({"of": {"invocation": 1, "attempt": 1}, "name": name, "reads": [], "changes": [change]}).to_string()
    };
    let metrics = counted(vec![
        made("seat", edit("ada", json!([{"at": 1, "was": "", "now": "1\n2\n3\n4\n"}]), 4)),
        made("seat", edit("bob", json!([{"at": 2, "was": "2\n", "now": "two\nzwei\n"}]), 5)),
        // Removes one line of Ada's and one of Bob's, then replaces one of Ada's.
        made(
            "seat",
            edit("ada", json!([{"at": 1, "was": "1\ntwo\n", "now": ""}, {"at": 5, "was": "4\n", "now": "vier\n"}]), 3),
        ),
    ]);
    assert_eq!((metrics.taken, metrics.taken_of_others), (4, 2));
    let scopes = BTreeMap::from([("bob".to_owned(), BTreeSet::from(["b.py".to_owned()]))]);
    let drift = metrics.drift(&scopes);
    let path = FilePath::parse("a.py").expect("a name");
    assert_eq!(drift, [Drift { author: "bob".to_owned(), path, edits: 1 }]);
}

#[test]
fn without_edits_there_is_nothing_to_divide_by() {
    let metrics = counted(vec![Body::Tick(patchboard_kernel::record::Empty {})]);
    assert_eq!((metrics.total.acceptance(), metrics.overlap()), (None, None));
}
