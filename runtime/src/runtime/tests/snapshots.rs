//! Snapshots of running boards: starts are bounded, a damaged snapshot only costs time, and old ones are removed.

use std::sync::atomic::AtomicBool;

use patchboard_kernel::board::EncodedSnapshot;
use patchboard_kernel::digest::{Digest, Hasher, sha256};
use patchboard_kernel::record::{self, Body};
use patchboard_kernel::snapshot::{LAYOUT, SnapshotPart};
use patchboard_protocols::PLANS;
use rusqlite::Connection;

use super::faults::Faulty;
use super::*;
use crate::audit::AuditError;
use crate::recovery;
use crate::snapshotter::{self, SnapshotPolicy};
use patchboard_kernel::driver::Head;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::KeptSnapshot;

/// Returns the blueprint of an externally driven board: a list of notes and a table.
fn driven() -> Blueprint {
    let blueprint = json!({
        "blueprint": 1,
        "name": "driven",
        "state": {
            "schema": {
                "type": "object",
                "properties": {"steps": {"type": "array"}, "table": {"type": "object"}, "request": {}},
            },
            "initial": {"steps": [], "table": {}},
        },
        "workers": {
            "walker": {
                "agent": "script",
                "reads": ["/steps"],
                "writes": [{"path": "/steps/-", "ops": ["add"]}, {"path": "/table/*", "ops": ["add", "replace"]}],
            },
        },
        "limits": {"commits": 100_000},
    });
    serde_json::from_value(blueprint).expect("a blueprint")
}

async fn kept_by(journal: impl Journal, policy: SnapshotPolicy) -> Runtime {
    let options = Options { snapshots: policy, ..options(agent(|_| never())) };
    Runtime::start(Arc::new(journal), options, PLANS).await.expect("started")
}

fn every(records: u64) -> SnapshotPolicy {
    SnapshotPolicy { records, waits: true, ..SnapshotPolicy::default() }
}

/// Returns a proposal that writes one entry of a table of 300.
fn entry(number: usize, version: Version) -> Proposal {
    let patch = json!([
        {"op": "add", "path": format!("/table/entry {}", number % 300),
         "value": {"version": version, "text": "t".repeat(80)}},
    ]);
    let from = ProposalSource::Direct { key: None, base: None };
    Proposal { from, worker: "walker".into(), reply: ReplyBody::Json(patch), usage: None, raw: None }
}

async fn commit(board: &BoardHandle, number: usize) {
    let outcome = board.propose(entry(number, board.status().version)).await.expect("answered");
    assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
}

/// Stores a board with this many commits and the policy's snapshots, as a process that waits for each snapshot would.
/// Appends few batches, because tests sync slowly.
async fn long_board(journal: &SqliteJournal, policy: SnapshotPolicy, commits: usize) -> BoardId {
    let id = BoardId::from("long");
    let at = Timestamp(1_700_000_000_000);
    let genesis = NewBoard { salt: Salt([3; 32]), ..NewBoard::new(id.clone(), driven(), Value::Null, at) };
    let (mut board, first) = Board::create(genesis, &PLANS).expect("created");
    let mut batch = Batch { board: id.clone(), epoch: 0, expected: None, records: first.records, blobs: Vec::new() };
    let mut since = 0;
    // The longest boards have the smallest tables, so that the kernel does not dominate.
    let entries = if commits > 1000 { 10 } else { 300 };
    for number in 0..=commits {
        if since == policy.records || number == commits {
            let (seq, hash) = board.head();
            journal.append(batch.clone()).await.expect("appended");
            batch = Batch { expected: Some(Head { seq, hash }), records: Vec::new(), ..batch };
        }
        if since == policy.records {
            let taken = snapshotter::store_snapshot(journal, &board, &AtomicBool::new(false)).expect("stored");
            batch.records = board.step(at, Input::Snapshot { of: taken.of, digest: taken.digest }).records;
            since = 1;
        }
        if number < commits {
            batch.records.extend(board.step(at, Input::Propose(entry(number % entries, board.version()))).records);
            since += 1;
        }
    }
    if !batch.records.is_empty() {
        journal.append(batch).await.expect("appended");
    }
    wait(journal.collect_garbage(&id, 0, 2, &[])).expect("swept");
    id
}

/// Returns the parts that a snapshot of the board stores, the manifest last.
fn all_parts(board: &Board) -> (Vec<SnapshotPart>, EncodedSnapshot<'_>) {
    let mut all = Vec::new();
    let stored = board.store(true, &mut |part| {
        all.push(part);
        Ok::<_, JournalError>(())
    });
    (all, stored.expect("nothing fails"))
}

fn shell(dir: &TempDir) -> Connection {
    Connection::open(dir.path().join(patchboard_storage::sqlite::FILE)).expect("the file opens")
}

fn digests(journal: &dyn Journal, board: &BoardId) -> (Digest, Head) {
    let recovered = recovery::recover(journal, board, &PLANS).expect("recovered");
    let (seq, hash) = recovered.board.head();
    (recovered.board.snapshot_digest(), Head { seq, hash })
}

/// Checks that snapshots and records give equal boards; returns the snapshots.
fn sound(journal: &dyn Journal, board: &BoardId) -> Vec<KeptSnapshot> {
    let records = assert_sound(journal, board);
    let whole = Board::recover(&records, &PLANS).expect("the records are enough");
    assert_eq!(digests(journal, board).0, whole.snapshot_digest(), "a snapshot makes another board");
    wait(journal.snapshots(board)).expect("read")
}

#[tokio::test]
async fn starting_a_long_board_reads_no_more_records_than_the_policy_allows() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let id = long_board(&journal, every(400), 5000).await;
    let counting = Faulty::new(journal.clone());
    let runtime = kept_by(counting.clone(), every(400)).await;
    let board = runtime.resume(&id).await.expect("resumed");
    // Extra reads: the first record twice, the record that names the snapshot, and the one it ends with.
    let read = counting.read.load(Ordering::SeqCst);
    assert!(read <= 400 + 4, "{read} records were read");
    assert_eq!(board.status().version, Version(5000));
    let records = records(&journal, &id);
    assert!(count(&records, Kind::Snapshot) >= 12, "{}", count(&records, Kind::Snapshot));
    for version in [1, 399, 1700, 4999, 5000] {
        let at = recovery::recover_at(&journal, &id, Version(version), &PLANS).expect("there is such a version");
        assert_eq!(at.board.version(), Version(version));
    }
}

#[tokio::test]
async fn a_board_that_was_started_from_a_snapshot_goes_on_as_the_whole_journal_says() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let id = long_board(&journal, every(50), 430).await;
    assert!(!sound(&journal, &id).is_empty());
    let runtime = kept_by(journal.clone(), every(50)).await;
    let board = runtime.resume(&id).await.expect("resumed");
    for number in 0..120 {
        commit(&board, number).await;
    }
    runtime.shutdown().await;
    let kept = sound(&journal, &id);
    assert!(kept.len() >= 2, "{kept:?}");
}

#[tokio::test]
async fn without_waiting_snapshots_come_beside_the_work() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let policy = SnapshotPolicy { records: 30, ..SnapshotPolicy::default() };
    let runtime = kept_by(journal.clone(), policy).await;
    let board = create(&runtime, driven()).await;
    for number in 0..200 {
        commit(&board, number).await;
    }
    let id = board.id().clone();
    runtime.shutdown().await;
    let kept = sound(&journal, &id);
    assert!(!kept.is_empty());
}

#[tokio::test]
async fn old_snapshots_and_their_parts_do_not_pile_up() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let id = long_board(&journal, every(40), 350).await;
    let parts = || -> u64 {
        shell(&dir)
            .query_row("SELECT count(*) FROM parts", (), |row| row.get::<_, i64>(0))
            .expect("counted")
            .unsigned_abs()
    };
    let before = parts();
    let runtime = kept_by(journal.clone(), every(40)).await;
    let board = runtime.resume(&id).await.expect("resumed");
    for number in 0..300 {
        commit(&board, number).await;
    }
    let epoch = board.status().epoch;
    runtime.shutdown().await;
    let after = parts();
    assert!(after < 3 * before, "{before} parts became {after}");
    let swept = wait(journal.collect_garbage(&id, epoch, 2, &[])).expect("swept");
    assert_eq!((swept.kept, sound(&journal, &id).len()), (parts(), 2));
    // A sweep leaves texts of views and prompts alone.
    assert_eq!(wait(journal.collect_garbage(&id, epoch, 0, &[])).expect("swept").kept, 0);
    assert_eq!(parts(), 0);
    sound(&journal, &id);
}

#[tokio::test]
async fn a_damaged_snapshot_costs_time_and_is_replaced() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let id = long_board(&journal, every(100), 450).await;
    let kept = sound(&journal, &id);
    let [newest, older, ..] = kept.as_slice() else { panic!("two are kept: {kept:?}") };
    let spoil = |hash: Digest| {
        let changed = shell(&dir)
            .execute(
                "UPDATE parts SET bytes = CAST(replace(CAST(bytes AS TEXT), 'head', 'HEAD') AS BLOB) WHERE hash = ?1",
                [hash.to_string()],
            )
            .expect("altered");
        assert_eq!(changed, 1);
    };
    spoil(newest.digest);
    let recovered = recovery::recover(&journal, &id, &PLANS).expect("recovered");
    assert_eq!((recovered.from, recovered.unusable), (Some(older.of), vec![newest.of]));
    let fault = audit::verify(&journal, &id, None, &PLANS).expect_err("an altered snapshot is found");
    assert_eq!(fault.code(), "bad_snapshot");
    assert!(
        matches!(&fault, AuditError::Snapshot { of, reason } if *of == newest.of && reason.contains("altered")),
        "{fault}"
    );
    spoil(older.digest);
    let recovered = recovery::recover(&journal, &id, &PLANS).expect("recovered");
    assert_eq!((recovered.from, recovered.unusable.len()), (None, 2));
    assert_eq!(recovered.board.version(), Version(450));
    // A running board discards the damaged snapshots and takes new ones.
    let runtime = kept_by(journal.clone(), every(100)).await;
    let board = runtime.resume(&id).await.expect("resumed");
    for number in 0..130 {
        commit(&board, number).await;
    }
    runtime.shutdown().await;
    let kept = sound(&journal, &id);
    assert!(kept.iter().all(|kept| kept.of > newest.of), "{kept:?}");
}

#[tokio::test]
async fn a_snapshot_that_the_disk_does_not_give_is_neither_called_damaged_nor_given_up() {
    let dir = dir();
    let stored = sqlite(dir.path());
    let id = long_board(&stored, every(100), 250).await;
    let journal = Faulty::new(stored);
    let newest = wait(journal.snapshots(&id)).expect("listed")[0];
    journal.are_parts_unread.store(true, Ordering::SeqCst);
    let recovered = recovery::recover(&journal, &id, &PLANS).expect("the records are enough");
    assert_eq!((recovered.from, recovered.unusable), (None, Vec::new()));
    assert_eq!(recovered.board.version(), Version(250));
    assert_eq!(audit::verify(&journal, &id, None, &PLANS).expect_err("it is not read").code(), "disk_unreadable");
    journal.are_parts_unread.store(false, Ordering::SeqCst);
    assert_eq!(recovery::recover(&journal, &id, &PLANS).expect("recovered").from, Some(newest.of));
    audit::verify(&journal, &id, None, &PLANS).expect("nothing is wrong");
}

#[tokio::test]
async fn a_snapshot_of_an_older_layout_is_passed_over_and_not_called_damaged() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let id = long_board(&journal, SnapshotPolicy::NEVER, 120).await;
    let board = recovery::recover(&journal, &id, &PLANS).expect("recovered").board;
    // As the previous version left it: its manifest is not valid in this layout.
    let older = LAYOUT - 1;
    let (mut parts, _) = all_parts(&board);
    let manifest = parts.last_mut().expect("a manifest");
    let text = manifest.text.replacen(&format!(r#""layout":{LAYOUT}"#), &format!(r#""layout":{older}"#), 1);
    let text = text.replacen(r#""rest":"#, r#""more":1,"rest":"#, 1);
    assert_ne!(text.as_str(), &*manifest.text);
    *manifest = SnapshotPart { hash: sha256(text.as_bytes()), text: text.into(), names: manifest.names.clone() };
    let digest = manifest.hash;
    wait(journal.store_parts(&id, board.epoch(), parts.clone())).expect("stored");
    let (of, hash) = board.head();
    let body = Body::Snapshot(record::Snapshot { of, layout: older, digest });
    let at = Timestamp(1_700_000_000_001);
    let named = Record::seal(hash, of.next(), at, body, &Hasher::new(&Salt([3; 32])));
    let expected = Some(Head { seq: of, hash });
    let batch =
        Batch { board: id.clone(), epoch: board.epoch(), expected, records: vec![named.clone()], blobs: Vec::new() };
    journal.append(batch).await.expect("appended");

    let kept = wait(journal.snapshots(&id)).expect("read");
    assert_eq!(kept, [KeptSnapshot { of, record: named.seq, digest }]);
    let recovered = recovery::recover(&journal, &id, &PLANS).expect("recovered");
    assert_eq!((recovered.from, recovered.unusable), (None, Vec::new()));
    let verified = audit::verify(&journal, &id, None, &PLANS).expect("nothing is wrong");
    assert_eq!((verified.snapshots, verified.unchecked_snapshots), (0, 1));
    assert_sound(&journal, &id);
    // The board continues, and its own snapshots replace that one.
    let runtime = kept_by(journal.clone(), every(100)).await;
    let resumed = runtime.resume(&id).await.expect("resumed");
    for number in 0..250 {
        commit(&resumed, number).await;
    }
    runtime.shutdown().await;
    let kept = sound(&journal, &id);
    assert!(!kept.is_empty() && kept.iter().all(|kept| kept.of > of), "{kept:?}");
}

#[tokio::test]
async fn a_damaged_list_of_snapshots_costs_time_and_is_mended() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let id = long_board(&journal, every(100), 250).await;
    let [newest, older] = sound(&journal, &id)[..] else { panic!("two are kept") };
    let spoil = |value: &str, seq: Seq| {
        let sql = format!("UPDATE snapshots SET {value} WHERE seq = {}", seq.0);
        assert_eq!(shell(&dir).execute(&sql, ()).expect("altered"), 1, "{sql}");
    };
    for value in ["digest = CAST(x'ff' AS TEXT)", "digest = 'x' || substr(digest, 2)"] {
        spoil(value, newest.of);
        let fault = audit::verify(&journal, &id, None, &PLANS).expect_err("it is found");
        assert_eq!(fault.code(), "bad_snapshot_list", "{value}");
        assert!(fault.to_string().contains("list of snapshots") && !fault.to_string().contains("backup"), "{fault}");
        spoil(&format!("digest = '{}'", newest.digest), newest.of);
        sound(&journal, &id);
    }
    spoil("digest = CAST(x'ff' AS TEXT)", newest.of);
    spoil("record = -1", older.of);
    let recovered = recovery::recover(&journal, &id, &PLANS).expect("the records are enough");
    assert_eq!((recovered.from, recovered.board.version()), (None, Version(250)));
    let runtime = kept_by(journal.clone(), every(100)).await;
    let board = runtime.resume(&id).await.expect("resumed");
    for number in 0..110 {
        commit(&board, number).await;
    }
    runtime.shutdown().await;
    assert!(sound(&journal, &id)[0].of > newest.of);
}

#[tokio::test]
async fn garbage_collection_keeps_needed_parts_despite_wrong_notes() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let id = long_board(&journal, every(100), 250).await;
    let kept = sound(&journal, &id);
    let count = |sql: &str| shell(&dir).query_row(sql, (), |row| row.get::<_, i64>(0)).expect(sql).unsigned_abs();
    let parts = || count("SELECT count(*) FROM parts");
    let before = parts();
    assert!(count("SELECT count(*) FROM parts WHERE names != ''") > 3);
    for names in ["''", "CAST(x'ff' AS TEXT)", "hash", "names || ' ' || hash", "substr(names, 66)", "upper(names)"] {
        let sql = format!("UPDATE parts SET names = {names}");
        assert_eq!(shell(&dir).execute(&sql, ()).expect("altered") as u64, before);
        if names != "upper(names)" {
            let fault = audit::verify(&journal, &id, None, &PLANS).expect_err(names);
            assert_eq!(fault.code(), "bad_snapshot_list", "{names}: {fault}");
        }
        let recovered = recovery::recover(&journal, &id, &PLANS).expect("recovered");
        assert_eq!((recovered.from, recovered.unusable), (Some(kept[0].of), Vec::new()), "{names}: it is believed");
        let swept = wait(journal.collect_garbage(&id, 0, 2, &[])).expect("swept");
        assert_eq!((swept.kept, swept.removed, parts()), (before, 0, before), "{names}");
        assert_eq!(sound(&journal, &id), kept, "{names}: the sweep has mended it");
    }
    // An altered text may name any part: the stored names still count, and only its own snapshot is given up.
    let sql = "UPDATE parts SET bytes = CAST('[]' AS BLOB) WHERE hash = ?1";
    assert_eq!(shell(&dir).execute(sql, [kept[1].digest.to_string()]).expect("altered"), 1);
    assert_eq!(wait(journal.collect_garbage(&id, 0, 2, &[])).expect("swept").removed, 0);
    assert_eq!(audit::verify(&journal, &id, None, &PLANS).expect_err("it is found").code(), "bad_snapshot");
    assert!(wait(journal.collect_garbage(&id, 0, 2, &[kept[1].of])).expect("swept").removed > 0);
    assert_eq!(sound(&journal, &id), kept[..1]);
}

#[tokio::test]
async fn a_text_that_looks_like_the_hash_of_a_part_keeps_none_for_ever() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let id = long_board(&journal, every(100), 250).await;
    let mut board = recovery::recover(&journal, &id, &PLANS).expect("recovered").board;
    let dead = SnapshotPart { hash: patchboard_kernel::digest::sha256(b"1"), text: "1".into(), names: Vec::new() };
    wait(journal.store_parts(&id, 0, vec![dead.clone()])).expect("stored");
    // The hash is in the document and in a kept snapshot, yet no part's names are wrong.
    let patch = json!([{"op": "add", "path": "/steps/-", "value": dead.hash.to_string()}]);
    let from = ProposalSource::Direct { key: None, base: None };
    let proposal = Proposal { from, worker: "walker".into(), reply: ReplyBody::Json(patch), usage: None, raw: None };
    let at = Timestamp(1_700_000_000_000);
    let (seq, hash) = board.head();
    let mut records = board.step(at, Input::Propose(proposal)).records;
    let taken = snapshotter::store_snapshot(&journal, &board, &AtomicBool::new(false)).expect("stored");
    records.extend(board.step(at, Input::Snapshot { of: taken.of, digest: taken.digest }).records);
    let expected = Some(Head { seq, hash });
    let batch = Batch { board: id.clone(), epoch: 0, expected, records, blobs: Vec::new() };
    journal.append(batch).await.expect("appended");
    let is_there = || wait(journal.part(&id, dead.hash)).expect("read").is_some();
    assert!(is_there());
    wait(journal.collect_garbage(&id, 0, 2, &[])).expect("swept");
    assert_eq!(sound(&journal, &id)[0].of, taken.of);
    assert!(!is_there(), "what looks like a name is told from one");
}

#[tokio::test]
async fn a_snapshot_that_no_record_names_is_not_believed() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let id = long_board(&journal, every(100), 250).await;
    let newest = sound(&journal, &id)[0];
    for (column, value) in [("seq", newest.of.0 - 1), ("record", newest.record.0 - 1)] {
        let sql = format!("UPDATE snapshots SET {column} = {value} WHERE seq = {}", newest.of.0);
        assert_eq!(shell(&dir).execute(&sql, ()).expect("altered"), 1);
        let recovered = recovery::recover(&journal, &id, &PLANS).expect("recovered");
        assert_ne!(recovered.from, Some(newest.of));
        assert_eq!(recovered.board.version(), Version(250));
        assert_eq!(audit::verify(&journal, &id, None, &PLANS).expect_err("it is found").code(), "bad_snapshot");
        let mended = format!(
            "UPDATE snapshots SET seq = {}, record = {} WHERE digest = '{}'",
            newest.of.0, newest.record.0, newest.digest
        );
        assert_eq!(shell(&dir).execute(&mended, ()).expect("mended"), 1);
    }
    sound(&journal, &id);
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_stored_is_tried_again_and_stops_nothing() {
    let dir = dir();
    let journal = Faulty::new(sqlite(dir.path()));
    journal.lost_stores.store(3, Ordering::SeqCst);
    let runtime = kept_by(journal.clone(), every(40)).await;
    let board = create(&runtime, driven()).await;
    for number in 0..60 {
        commit(&board, number).await;
    }
    assert!(wait(journal.snapshots(board.id())).expect("read").is_empty());
    for number in 60..120 {
        commit(&board, number).await;
    }
    let id = board.id().clone();
    runtime.shutdown().await;
    assert_eq!(journal.lost_stores.load(Ordering::SeqCst), 0);
    assert!(!sound(&journal, &id).is_empty());
    assert_eq!(count(&records(&journal, &id), Kind::Epoch), 0, "nothing was restarted");
}

#[tokio::test]
async fn parts_of_an_interrupted_snapshot_are_harmless() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let id = long_board(&journal, every(1000), 350).await;
    let board = recovery::recover(&journal, &id, &PLANS).expect("recovered").board;
    // Every prefix of a snapshot's parts, as a kill would leave it.
    let (all, _) = all_parts(&board);
    assert!(all.len() > 10, "{}", all.len());
    for stored in 0..all.len() {
        wait(journal.store_parts(&id, board.epoch(), all[stored..=stored].to_vec())).expect("stored");
        assert!(wait(journal.snapshots(&id)).expect("read").is_empty(), "not recorded, so not there");
        assert_eq!(digests(&journal, &id).0, board.snapshot_digest());
    }
    let runtime = kept_by(journal.clone(), every(100)).await;
    let resumed = runtime.resume(&id).await.expect("resumed");
    for number in 0..150 {
        commit(&resumed, number).await;
    }
    let epoch = resumed.status().epoch;
    runtime.shutdown().await;
    assert!(!sound(&journal, &id).is_empty());
    let left =
        |journal: &SqliteJournal| all.iter().filter(|part| wait(journal.part(&id, part.hash)) != Ok(None)).count();
    let swept = wait(journal.collect_garbage(&id, epoch, 2, &[])).expect("swept");
    assert!(left(&journal) < all.len() && swept.kept > 0, "what was left is gone");
    sound(&journal, &id);
}

#[tokio::test]
async fn a_process_that_lost_the_board_stores_no_parts_and_sweeps_none() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let id = long_board(&journal, every(50), 120).await;
    let board = recovery::recover(&journal, &id, &PLANS).expect("recovered").board;
    let runtime = kept_by(journal.clone(), SnapshotPolicy::NEVER).await;
    runtime.resume(&id).await.expect("resumed");
    let go_on = AtomicBool::new(false);
    let taken = snapshotter::store_snapshot(&journal, &board, &go_on).expect_err("it is of an earlier epoch");
    assert_eq!(taken.code(), "journal_fenced");
    let swept = wait(journal.collect_garbage(&id, board.epoch(), 0, &[])).expect_err("it is of an earlier epoch");
    assert_eq!(swept.code(), "journal_fenced");
    let board = recovery::recover(&journal, &id, &PLANS).expect("recovered").board;
    let gone = AtomicBool::new(true);
    assert!(snapshotter::store_snapshot(&journal, &board, &gone).is_err(), "the board is gone from this process");
    let taken = snapshotter::store_snapshot(&journal, &board, &go_on).expect("stored");
    let again = snapshotter::store_snapshot(&journal, &board, &go_on).expect("stored");
    assert_eq!((again.digest, again.new.bytes), (taken.digest, 0), "all of it was there");
    sound(&journal, &id);
}

#[tokio::test]
async fn a_part_is_stored_only_after_those_it_names() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let id = long_board(&journal, SnapshotPolicy::NEVER, 350).await;
    let board = recovery::recover(&journal, &id, &PLANS).expect("recovered").board;
    let (mut all, stored) = all_parts(&board);
    let manifest = all.pop().expect("a manifest");
    let refused = wait(journal.store_parts(&id, board.epoch(), vec![manifest])).expect_err("its parts are missing");
    assert_eq!(refused.code(), "missing_part");
    // A board that believes its parts are stored finds them missing and stores them again.
    stored.confirm();
    let taken = snapshotter::store_snapshot(&journal, &board, &AtomicBool::new(false)).expect("stored");
    assert!(taken.new.bytes > 10_000, "{taken:?}");
}

/// Stores a board with `entries` entries of about 200 bytes.
async fn large_board(journal: &SqliteJournal, entries: usize) -> Board {
    let runtime = kept_by(journal.clone(), SnapshotPolicy::NEVER).await;
    let mut blueprint = driven();
    let table: serde_json::Map<_, _> =
        (0..entries).map(|number| (format!("entry {number}"), json!({"text": "x".repeat(180)}))).collect();
    blueprint.state.initial["table"] = table.into();
    let board = create(&runtime, blueprint).await;
    let id = board.id().clone();
    runtime.shutdown().await;
    recovery::recover(journal, &id, &PLANS).expect("recovered").board
}

/// Commits a patch without appending it.
fn step(board: &mut Board, patch: Value) {
    let from = ProposalSource::Direct { key: None, base: None };
    let input = Input::Propose(Proposal {
        from,
        worker: "walker".into(),
        reply: ReplyBody::Json(patch),
        usage: None,
        raw: None,
    });
    let step = board.step(Timestamp(1_700_000_000_001), input);
    assert!(matches!(step.outcome, Some(Outcome::Committed { .. })), "{:?}", step.outcome);
}

#[tokio::test]
async fn a_snapshot_costs_what_has_changed_since_the_one_before() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let mut board = large_board(&journal, 5000).await;
    assert!(board.state().bytes() > 1_000_000);
    let go_on = AtomicBool::new(false);
    let first = snapshotter::store_snapshot(&journal, &board, &go_on).expect("stored");
    for number in 0..10 {
        let path = format!("/table/entry {}", number * 499);
        step(&mut board, json!([{"op": "replace", "path": path, "value": number}]));
    }
    let second = snapshotter::store_snapshot(&journal, &board, &go_on).expect("stored");
    eprintln!("1 MB: {} bytes at first, {} bytes after 10 commits", first.new.bytes, second.new.bytes);
    assert!(first.new.bytes > 1_000_000);
    assert!(second.new.bytes < 100_000, "10 commits cost {} bytes", second.new.bytes);
}

#[tokio::test]
#[ignore = "prints figures, which only a release build makes sense of"]
async fn figures() {
    for entries in [5_000, 50_000] {
        let dir = dir();
        let journal = sqlite(dir.path());
        let mut board = large_board(&journal, entries).await;
        let id = board.id().clone();
        let go_on = AtomicBool::new(false);
        let first_record = records(&journal, &id).remove(0);
        let timed = |what: &str, board: &Board| {
            let begun = std::time::Instant::now();
            let taken = snapshotter::store_snapshot(&journal, board, &go_on).expect("stored");
            let took = begun.elapsed();
            eprintln!("  {what}: {} bytes, {} parts, {took:.1?}", taken.new.bytes, taken.new.count);
            taken
        };
        eprintln!("{} bytes of JSON", board.state().bytes());
        timed("first", &board);
        timed("nothing changed", &board);
        for number in 0..10 {
            let path = format!("/table/entry {}", number * (entries / 11));
            step(&mut board, json!([{"op": "replace", "path": path, "value": number}]));
        }
        timed("10 commits, spread", &board);
        for number in 0..200 {
            step(&mut board, json!([{"op": "add", "path": "/steps/-", "value": format!("step {number}")}]));
        }
        timed("200 commits, appending", &board);
        for number in 0..200 {
            let path = format!("/table/entry {}", (number * 7919) % entries);
            step(&mut board, json!([{"op": "replace", "path": path, "value": {"text": "y".repeat(180)}}]));
        }
        let last = timed("200 commits, spread", &board);
        let begun = std::time::Instant::now();
        let picture = board.clone();
        eprintln!("  a picture: {:.1?}", begun.elapsed());
        let begun = std::time::Instant::now();
        assert_eq!(picture.snapshot_digest(), last.digest);
        eprintln!("  digest of all, storing nothing: {:.1?}", begun.elapsed());
        let begun = std::time::Instant::now();
        let mut fetch = |hash| Ok(wait(journal.part(&id, hash)).expect("read"));
        let restored = Board::restore(&first_record, last.digest, &mut fetch, &PLANS).expect("restored");
        eprintln!("  restored: {:.1?}", begun.elapsed());
        assert_eq!(restored.state().digest(), board.state().digest());
        let idle = append_latencies(&journal, || false);
        let storing = Arc::new(AtomicBool::new(true));
        let beside = std::thread::spawn({
            let (journal, board, storing) = (journal.clone(), restored.clone(), Arc::clone(&storing));
            move || {
                wait(journal.collect_garbage(board.id(), board.epoch(), 0, &[])).expect("swept");
                // The sweep removed its parts, so all of them are stored again.
                snapshotter::store_snapshot(&journal, &board, &AtomicBool::new(false)).expect("stored");
                storing.store(false, Ordering::SeqCst);
            }
        });
        let busy = append_latencies(&journal, || storing.load(Ordering::SeqCst));
        beside.join().expect("no panic");
        eprintln!("  appends with nothing beside them: {idle}");
        eprintln!("  appends beside a sweep and a whole snapshot: {busy}");
        let begun = std::time::Instant::now();
        let swept = wait(journal.collect_garbage(&id, board.epoch(), 0, &[])).expect("swept");
        eprintln!("  swept: {swept:?}, {:.1?}", begun.elapsed());
    }
}

/// Measures single appends to another board while `goes_on` holds, and at least 200 of them.
fn append_latencies(journal: &SqliteJournal, goes_on: impl Fn() -> bool) -> String {
    let name = if goes_on() { "beside" } else { "idle" };
    let mut writer = patchboard_storage::testing::Writer::new(name);
    let mut took = Vec::new();
    let mut batch = writer.created();
    while took.len() < 200 || (goes_on() && took.len() < 20_000) {
        let begun = std::time::Instant::now();
        futures_now(journal.append(batch)).expect("appended");
        took.push(begun.elapsed());
        batch = writer.signal("s");
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100];
    format!(
        "{} of them, median {:.1?}, 90 % {:.1?}, 99 % {:.1?}, most {:.1?}",
        took.len(),
        at(50),
        at(90),
        at(99),
        at(100)
    )
}

/// Runs a future that never waits.
fn futures_now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn the_record_that_names_a_snapshot_says_of_what() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let runtime = kept_by(journal.clone(), every(60)).await;
    let board = create(&runtime, driven()).await;
    for number in 0..100 {
        commit(&board, number).await;
    }
    let records = records(&journal, board.id());
    let named: Vec<_> = records
        .iter()
        .filter_map(|record| match record.body().expect("readable") {
            Body::Snapshot(snapshot) => Some((record.seq, snapshot)),
            _ => None,
        })
        .collect();
    let [(seq, snapshot)] = named.as_slice() else { panic!("{named:?}") };
    assert_eq!((snapshot.of, *seq), (Seq(60), Seq(61)), "right after the record that made it due");
    let board = Board::recover(&records[..=60], &PLANS).expect("recovered");
    assert_eq!(board.snapshot_digest(), snapshot.digest);
}
