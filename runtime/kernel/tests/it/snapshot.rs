//! Snapshots: their bytes, rejected ones, and journals of earlier formats.

use std::collections::BTreeMap;
use std::convert::Infallible;

use patchboard_kernel::board::{Board, Input, NewBoard, Outcome, Proposal, ProposalSource, ReplyBody, Step};
use patchboard_kernel::digest::{Digest, Hasher, Salt, sha256};
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use patchboard_kernel::record::{Body, FORMAT, GENESIS, Kind, Record};
use patchboard_kernel::replay;
use patchboard_kernel::snapshot::{LAYOUT, SnapshotError, part_refs};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

fn genesis(salt: Salt) -> NewBoard {
    let blueprint = json!({
        "blueprint": 1, "name": "small", "state": {"schema": {}, "initial": {"list": []}},
        "workers": {"w": {"agent": "script", "writes": [{"path": "/list/-"}]}},
        "rules": [{"name": "go", "trigger": {"signal": "go"}, "run": "w"}],
        "concurrency": 1,
    });
    NewBoard {
        salt,
        ..NewBoard::new(
            BoardId::from("small"),
            serde_json::from_value(blueprint).expect("a blueprint"),
            Value::Null,
            Timestamp(0),
        )
    }
}

/// Returns a board with one commit, one open call and one queued invocation, and its records.
fn small() -> (Board, Vec<Record>) {
    let (mut board, Step { mut records, .. }) = Board::create(genesis(Salt::ZERO), &PLANS).expect("a board");
    let patch = json!([{"op": "add", "path": "/list/-", "value": "one"}]);
    let from = ProposalSource::Direct { key: Some("t".into()), base: None };
    let proposal = Proposal { from, worker: "w".into(), reply: ReplyBody::Json(patch), usage: None, raw: None };
    let signal = Input::Signal { name: "go".into(), value: Value::Null, key: None };
    for (at, input) in [Input::Propose(proposal), signal.clone(), signal].into_iter().enumerate() {
        let at = Timestamp(i64::try_from(at).expect("small"));
        records.extend(board.step(at, input).records);
    }
    (board, records)
}

fn store(board: &Board) -> (Digest, BTreeMap<Digest, String>) {
    let mut parts = BTreeMap::new();
    let Ok(stored) = board.store(true, &mut |part| {
        assert_eq!(part_refs(&part.text).as_ref(), Some(&part.names), "{}", part.text);
        parts.insert(part.hash, part.text.to_string());
        Ok::<_, Infallible>(())
    });
    (stored.manifest.hash, parts)
}

fn restore(first: &Record, digest: Digest, parts: &BTreeMap<Digest, String>) -> Result<Board, SnapshotError> {
    Board::restore(first, digest, &mut |hash| Ok(parts.get(&hash).cloned()), &PLANS)
}

/// Stores a board and restores it.
pub(crate) fn restored(board: &Board, records: &[Record]) -> Board {
    let (digest, parts) = store(board);
    restore(&records[0], digest, &parts).expect("restored")
}

#[test]
fn a_request_of_the_initial_document_is_the_original_one_after_a_restore() {
    let blueprint = json!({
        "blueprint": 1, "name": "own", "state": {"schema": {}, "initial": {"list": [], "request": {"most": 1}}},
        "workers": {"w": {"agent": "script", "writes": [{"path": "/list/-"}, {"path": "/request/most"}]}},
        "invariants": [{"name": "few", "expr": "size(state.list) <= request.most"}],
    });
    let blueprint = serde_json::from_value(blueprint).expect("a blueprint");
    let new = NewBoard::new(BoardId::from("own"), blueprint, Value::Null, Timestamp(0));
    let (mut board, Step { mut records, .. }) = Board::create(new, &PLANS).expect("a board");
    let propose = |board: &mut Board, patch: Value| {
        let from = ProposalSource::Direct { key: None, base: None };
        let reply = ReplyBody::Json(patch);
        board.step(Timestamp(1), Input::Propose(Proposal { from, worker: "w".into(), reply, usage: None, raw: None }))
    };
    records.extend(propose(&mut board, json!([{"op": "replace", "path": "/request/most", "value": 5}])).records);
    let add = json!([{"op": "add", "path": "/list/-", "value": "one"}]);
    for mut board in [restored(&board, &records), Board::recover(&records, &PLANS).expect("recovered")] {
        let outcome = propose(&mut board, add.clone()).outcome;
        assert!(matches!(outcome, Some(Outcome::Committed { .. })), "{outcome:?}");
        let outcome = propose(&mut board, add.clone()).outcome;
        assert!(matches!(outcome, Some(Outcome::Rejected { .. })), "the original request allows one: {outcome:?}");
    }
}

#[test]
fn the_bytes_of_a_snapshot_are_these() {
    let (board, _) = small();
    let (digest, parts) = store(&board);
    let manifest = &parts[&digest];
    let (head, hash) = board.head();
    let seal = Hasher::new(&Salt::ZERO).seal();
    // SHA-256(64 zero bytes ‖ 50).
    let mut block = vec![0; 64];
    block.push(0x50);
    assert_eq!(seal, sha256(&block));
    let state = board.state().digest();
    let begin = format!(
        r#"{{"layout":3,"board":"small","seal":"{seal}","head":[{head},"{hash}"],"trees":[[1,"{state}",["o",0,0,["b",1,0,["list",["a",1,0,["l",1,1,["one"]]]]]]]],"rest":["o",0,0,"#
    );
    assert!(manifest.starts_with(&begin), "{manifest}\nis not\n{begin}");
    // The rest is larger than a small part, so it is stored as a part of its own.
    let rest: Digest = manifest[begin.len() + 1..begin.len() + 65].parse().expect("a hash");
    assert_eq!(manifest[begin.len()..], format!(r#""{rest}"]}}"#));
    assert!(parts[&rest].starts_with(r#"["b",0,0,["bases","#), "{}", parts[&rest]);
}

#[test]
fn part_references_are_read_from_snapshot_texts() {
    let hash = sha256(b"a part");
    let none: &[Digest] = &[];
    for (text, expected) in [
        (r#""HASH""#, Some(none)),
        (r#"["l",1,1,["HASH",["t","HASH"]]]"#, Some(&[hash])),
        (r#"["b",1,1,["HASH","HASH","k",["a",1,0,"HASH"]]]"#, Some(&[hash])),
        (r#"["i",1,["HASH",["l",1,1,[["o",1,0,"HASH"]]]]]"#, Some(&[hash, hash])),
        (r#"["s",1,["HASH",null]]"#, Some(&[hash])),
        (r#"{"layout":3,"trees":[[1,"HASH",["t","HASH"]]],"rest":["o",0,0,"HASH"]}"#, Some(&[hash, hash])),
        (r#"{"layout":2,"trees":[],"rest":["o",0,0,"HASH"]}"#, None),
        (r#"["x","HASH"]"#, None),
        ("[]", None),
        ("HASH", None),
        ("1", None),
    ] {
        assert_eq!(part_refs(&text.replace("HASH", &hash.to_string())).as_deref(), expected, "{text}");
    }
}

#[test]
fn a_restored_board_is_the_board_to_the_last_null() {
    let (board, records) = small();
    let (digest, parts) = store(&board);
    let restored = restore(&records[0], digest, &parts).expect("restored");
    assert_eq!(store(&restored), (digest, parts));
    assert_eq!(restored.scheduler().queue(), board.scheduler().queue());
    assert_eq!(
        restored.scheduler().queue()[0].value.as_deref(),
        Some(&Value::Null),
        "a signal that carries null is no other"
    );
    assert_eq!(restored.scheduler().open(), board.scheduler().open());
    assert_eq!((restored.head(), restored.wake_at()), (board.head(), board.wake_at()));
}

#[test]
fn invalid_snapshots_are_rejected() {
    let (board, records) = small();
    let (digest, parts) = store(&board);
    let refused = |digest, parts: &_| restore(&records[0], digest, parts).err().expect("refused");
    let none = sha256(b"nothing");
    assert_eq!(refused(none, &parts), SnapshotError::Missing(none));
    for hash in parts.keys() {
        let mut parts = parts.clone();
        *parts.get_mut(hash).expect("it is there") += " ";
        assert_eq!(refused(digest, &parts), SnapshotError::Altered(*hash));
        parts.remove(hash);
        assert_eq!(refused(digest, &parts), SnapshotError::Missing(*hash));
    }
    // Manifests with a valid hash and altered content.
    let changed = |from: &str, to: &str| {
        let text = parts[&digest].replacen(from, to, 1);
        assert_ne!(text, parts[&digest]);
        let digest = sha256(text.as_bytes());
        refused(digest, &parts.clone().into_iter().chain([(digest, text)]).collect())
    };
    for other in [2, 99] {
        assert_eq!(changed(r#""layout":3"#, &format!(r#""layout":{other}"#)), SnapshotError::OtherLayout(other));
    }
    for (from, to, why) in [
        (r#""board":"small""#, r#""board":"other""#, "another board"),
        (r#"["one"]"#, r#"["two"]"#, "digest"),
        (r#"["l",1,1"#, r#"["l",1,2"#, "version"),
        (r#"["l",1,1"#, r#"["l",0,1"#, "shape"),
        (r#""trees":[["#, r#""trees":[[0,"x",null],["#, "hexadecimal"),
        (r#""rest":"#, r#""more":1,"rest":"#, "unknown field"),
        (r#"{"layout""#, r#"[{"layout""#, "EOF"),
    ] {
        let error = changed(from, to).to_string();
        assert!(error.contains(why), "{to}: {error}");
    }
    let (_, others) = Board::create(genesis(Salt([1; 32])), &PLANS).expect("a board");
    let error = restore(&others.records[0], digest, &parts).err().expect("refused").to_string();
    assert!(error.contains("another board"), "{error}");
}

#[test]
fn a_snapshot_that_does_not_count_the_edits_of_files_is_not_used() {
    let mut genesis = genesis(Salt::ZERO);
    genesis.blueprint.workspace = Some(serde_json::from_value(json!({"dir": "code"})).expect("a workspace"));
    let (mut board, Step { records, .. }) = Board::create(genesis, &PLANS).expect("a board");
    let of_none = store(&board);
    assert!(restore(&records[0], of_none.0, &of_none.1).is_ok(), "there were no edits");
    let edit = json!({"changes": [{"path": "a.py", "hash": sha256(b"1\n"), "lines": 1, "bytes": 2}]});
    board.step(Timestamp(0), Input::Edit(serde_json::from_value(edit).expect("an edit")));
    let (digest, mut parts) = store(&board);
    assert!(restore(&records[0], digest, &parts).is_ok());
    let tally = r#","files",["o",0,0,["b",0,0,["edits",1,"floor",0]]]"#;
    let digest = without(tally, digest, &mut parts);
    let error = restore(&records[0], digest, &parts).err().expect("refused");
    assert!(matches!(error, SnapshotError::TooOld(_)) && error.to_string().contains("how many edits"), "{error}");
}

#[test]
fn a_snapshot_that_does_not_keep_what_was_given_up_is_used_only_where_nothing_was_scheduled() {
    let since = |parts: &BTreeMap<Digest, String>| {
        let begin = format!(r#","since_admission",["o",0,0,["b",0,0,["format",{},"#, patchboard_kernel::record::FORMAT);
        let found = parts.values().find_map(|part| part.find(&begin).map(|at| part[at..].to_owned()));
        let found = found.expect("it is kept");
        found[..found.find("]]]").expect("it ends") + 3].to_owned()
    };
    let (fresh, step) = Board::create(genesis(Salt::ZERO), &PLANS).expect("a board");
    let (digest, mut parts) = store(&fresh);
    let digest = without(&since(&parts), digest, &mut parts);
    assert!(restore(&step.records[0], digest, &parts).is_ok(), "nothing can have been given up");
    let (board, records) = small();
    let (digest, mut parts) = store(&board);
    let digest = without(&since(&parts), digest, &mut parts);
    let error = restore(&records[0], digest, &parts).err().expect("refused");
    assert!(matches!(error, SnapshotError::TooOld(_)) && error.is_of_another_version(), "{error}");
}

/// Removes a text from the rest of a snapshot, as written by versions that did not have it.
fn without(text: &str, digest: Digest, parts: &mut BTreeMap<Digest, String>) -> Digest {
    let with_rest = parts.values().find(|part| part.contains(text));
    let with_rest = with_rest.unwrap_or_else(|| panic!("{parts:?}")).clone();
    let rest = with_rest.replace(text, "");
    let manifest =
        parts[&digest].replace(&sha256(with_rest.as_bytes()).to_string(), &sha256(rest.as_bytes()).to_string());
    let digest = sha256(manifest.as_bytes());
    parts.extend([rest, manifest].map(|text| (sha256(text.as_bytes()), text)));
    digest
}

/// Runs a test with the default stack size of a thread.
fn on_a_small_stack(test: fn()) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(test).expect("a thread");
    thread.join().expect("it did not fail");
}

#[test]
fn an_endlessly_nested_snapshot_is_rejected_before_the_stack_overflows() {
    on_a_small_stack(|| {
        let (board, records) = small();
        let (digest, parts) = store(&board);
        // Nested arrays, and levels of one array; the document adds one more node.
        for (inner, levels, why) in [
            (false, 100, "digest"),
            (false, 510, "digest"),
            (false, 511, "too deep"),
            (false, 5000, "too deep"),
            (true, 5000, "too deep"),
        ] {
            let mut parts = parts.clone();
            let mut node = r#"["l",1,1,["one"]]"#.to_owned();
            for _ in 0..levels {
                let hash = sha256(node.as_bytes());
                parts.insert(hash, node);
                node =
                    if inner { format!(r#"["i",1,["{hash}"]]"#) } else { format!(r#"["l",1,1,[["a",1,0,"{hash}"]]]"#) };
            }
            let manifest = parts[&digest].replacen(r#"["l",1,1,["one"]]"#, &node, 1);
            let digest = sha256(manifest.as_bytes());
            parts.insert(digest, manifest);
            let error = restore(&records[0], digest, &parts).err().expect("refused").to_string();
            assert!(error.contains(why), "{levels}: {error}");
        }
    });
}

#[test]
fn an_object_split_deeper_than_the_nibbles_of_a_key_is_rejected() {
    let (board, records) = small();
    let (digest, parts) = store(&board);
    for (levels, why) in [(63, "digest"), (64, "shape"), (200, "shape")] {
        let mut parts = parts.clone();
        let bucket = |keys: std::ops::Range<usize>| {
            let members: Vec<_> = keys.map(|key| format!(r#""{key:02}",1"#)).collect();
            format!(r#"["b",1,1,[{}]]"#, members.join(","))
        };
        let mut node = format!(r#"["s",1,[{},{}{}]]"#, bucket(0..20), bucket(20..40), ",null".repeat(14));
        for _ in 0..levels {
            let hash = sha256(node.as_bytes());
            parts.insert(hash, node);
            node = format!(r#"["s",1,["{hash}"{}]]"#, ",null".repeat(15));
        }
        let manifest = parts[&digest].replacen(r#"["l",1,1,["one"]]"#, &format!(r#"["l",1,1,[["o",1,0,{node}]]]"#), 1);
        let digest = sha256(manifest.as_bytes());
        parts.insert(digest, manifest);
        let error = restore(&records[0], digest, &parts).err().expect("refused").to_string();
        assert!(error.contains(why), "{levels}: {error}");
    }
}

#[test]
fn a_board_as_deep_as_boards_get_is_restored_on_a_small_stack() {
    on_a_small_stack(|| {
        // The document is an object that contains 63 nested containers.
        for is_array in [true, false] {
            let mut value = json!("deep");
            for _ in 0..63 {
                let many = (0..300_u32).map(|number| if number == 150 { value.take() } else { json!(number) });
                value = match is_array {
                    true => many.collect(),
                    false => (0..).zip(many).map(|(key, value)| (format!("k{key}"), value)).collect(),
                };
            }
            let mut genesis = genesis(Salt::ZERO);
            genesis.blueprint.state.initial = json!({"list": [], "deep": value});
            let (board, Step { records, .. }) = Board::create(genesis, &PLANS).expect("as deep as may be");
            let (digest, parts) = store(&board);
            let restored = restore(&records[0], digest, &parts).expect("restored");
            assert_eq!(restored.state().digest(), board.state().digest());
            assert_eq!(store(&restored), (digest, parts));
        }
    });
}

#[test]
fn a_snapshot_of_what_has_not_happened_or_of_the_middle_of_a_step_is_found() {
    let (mut board, mut records) = small();
    let digest = board.snapshot_digest();
    let ahead = board.step(Timestamp(9), Input::Snapshot { of: board.head().0.next(), digest });
    assert!(ahead.records.is_empty(), "it cannot be");
    let of = board.head().0;
    records.extend(board.step(Timestamp(9), Input::Snapshot { of, digest }).records);
    let last = records.last().expect("recorded");
    assert_eq!(last.body().expect("readable").kind(), Kind::Snapshot);
    assert!(last.header.contains(&format!(r#""layout":{LAYOUT},"of":{of},"seq":{}"#, of.next())), "{}", last.header);
    replay::replay(&records, None, &PLANS).expect("it follows");
    let middle = records.iter().position(|record| record.kind == Kind::Scheduled).expect("scheduled") as u64;
    let forged = board.step(Timestamp(9), Input::Snapshot { of: Seq(middle), digest }).records;
    records.extend(forged);
    let difference = replay::replay(&records, None, &PLANS).err().expect("it does not follow");
    assert!(difference.what.contains("middle of a step"), "{difference}");
}

#[test]
fn a_board_of_format_1_has_snapshots_like_any_other() {
    let (mut board, Step { mut records, .. }) = Board::create(genesis(Salt::ZERO), &PLANS).expect("a board");
    let patch = json!([{"op": "add", "path": "/list/-", "value": 1}]);
    let from = ProposalSource::Direct { key: None, base: None };
    let proposal = Proposal { from, worker: "w".into(), reply: ReplyBody::Json(patch), usage: None, raw: None };
    records.extend(board.step(Timestamp(0), Input::Propose(proposal)).records);
    let hasher = Hasher::new(&Salt::ZERO);
    let mut previous = GENESIS;
    let mut earlier = Vec::new();
    for record in &records {
        let mut body = record.body().expect("readable").clone();
        if let Body::Created(created) = &mut body {
            assert_eq!(created.format, FORMAT);
            created.format = 1;
        }
        let record = Record::seal(previous, record.seq, record.at, body, &hasher);
        previous = record.hash;
        earlier.push(record);
    }
    let mut recovered = Board::recover(&earlier, &PLANS).expect("recovered");
    assert_eq!(recovered.state().digest(), board.state().digest());
    // Snapshots of the board are like those of any other.
    let (digest, parts) = store(&recovered);
    let of = recovered.head().0;
    earlier.extend(recovered.step(Timestamp(9), Input::Snapshot { of, digest }).records);
    let difference = replay::replay(&earlier, None, &PLANS).err().expect("its rules were others");
    assert!(difference.what.contains("format 1"), "{difference}");
    restore(&earlier[0], digest, &parts).expect("restored");
}

#[test]
fn impossible_record_numbers_are_rejected() {
    let (board, records) = small();
    let (digest, mut parts) = store(&board);
    let head = format!("\"head\":[{},", board.head().0);
    let manifest = parts[&digest].replace(&head, "\"head\":[18446744073709551615,");
    let digest = sha256(manifest.as_bytes());
    parts.insert(digest, manifest);
    let refused = restore(&records[0], digest, &parts).err();
    assert_eq!(refused, Some(SnapshotError::Unreadable("it counts further than a board can".to_owned())));
}

#[test]
fn parts_that_multiply_beyond_their_size_are_rejected() {
    let (board, records) = small();
    let (digest, mut parts) = store(&board);
    // Each part refers to the previous one sixteen times.
    let mut below = r#"["l",0,0,[1]]"#.to_owned();
    for _ in 0..8 {
        let hash = sha256(below.as_bytes());
        parts.insert(hash, below);
        below = format!(r#"["l",0,0,[{}]]"#, vec![format!(r#"["a",0,0,"{hash}"]"#); 16].join(","));
    }
    let (before, _) = parts[&digest].split_once(",\"rest\":").expect("a manifest");
    let manifest = format!(r#"{before},"rest":["a",0,0,{below}]}}"#);
    let digest = sha256(manifest.as_bytes());
    parts.insert(digest, manifest);
    let refused = restore(&records[0], digest, &parts).err();
    assert_eq!(refused, Some(SnapshotError::Unreadable("it repeats the same too often".to_owned())));
}
