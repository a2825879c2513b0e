//! Fuzzes stored snapshots: intact, damaged and forged ones, and handwritten parts.
//!
//! Storing and restoring must give an equal board. A damaged snapshot must be rejected. Forged parts with recomputed
//! hashes may hold false values, but must not cause a panic.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::OnceLock;
use std::time::Duration;

use jsonptr::PointerBuf;
use patchboard_kernel::board::{Board, Input, Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::digest::{Digest, Hasher, sha256};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{InvocationId, Timestamp};
use patchboard_kernel::record::Record;
use patchboard_kernel::snapshot::{LAYOUT, SnapshotError, part_refs};
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

use crate::bytes::Bytes;
use crate::journal::{SALT, flip, play, rewrite, sound};
use crate::{values, within};

/// Time limit for storing and restoring a board of this size.
const BOUND: Duration = Duration::from_secs(10);

/// Selects a check by the first byte: 0 plays, stores and restores a board; 1 damages the stored parts; 2 changes them
/// and recomputes their hashes. Any other input is lines: parts, each referenced by its number as `"#0"` in later ones,
/// and finally a value.
pub fn snapshot(data: &[u8]) {
    within(BOUND, "reading a snapshot", || match data.split_first() {
        Some((0, choices)) => check_sound(&play(&mut Bytes::new(choices))),
        Some((1, choices)) => check_damaged(&mut Bytes::new(choices)),
        Some((2, choices)) => check_forged(&mut Bytes::new(choices)),
        _ => check_written(&String::from_utf8_lossy(data)),
    });
}

/// Stored parts of a board in the order in which they were handed out, the manifest last.
type Parts = Vec<(Digest, String)>;

fn check_sound(records: &[Record]) {
    let board = Board::recover(records, &PLANS).expect("what a board recorded is a board");
    let parts = stored(&board);
    let (digest, _) = parts.last().expect("there is a manifest");
    let restored = restored(&records[0], &parts).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(restored.snapshot_digest(), *digest);
    assert_eq!((restored.head(), restored.state()), (board.head(), board.state()));
    // Both boards must continue in the same way.
    let (mut one, mut other) = (board, restored);
    for input in next(&one) {
        let at = one.wake_at().unwrap_or(Timestamp(2_000_000));
        assert_eq!(one.step(at, input.clone()).records, other.step(at, input).records);
    }
    assert_eq!(one.snapshot_digest(), other.snapshot_digest());
}

/// Checks changed parts under their old hashes.
fn check_damaged(bytes: &mut Bytes<'_>) {
    let (records, sound) = parts();
    let mut parts = sound.clone();
    for _ in 0..=bytes.below(3) {
        let (index, other) = (bytes.below(parts.len()), bytes.below(parts.len()));
        match bytes.below(4) {
            0 => flip(&mut parts[index].1, bytes),
            1 => rewrite(&mut parts[index].1, bytes, WORDS),
            2 => parts[index].1 = parts[other].1.clone(),
            // The last part is restored as the manifest, and an inner part is not a valid one.
            _ => parts.truncate(index.max(1)),
        }
    }
    match restored(&records[0], &parts) {
        Ok(board) => assert_eq!(board.snapshot_digest(), sound.last().expect("a manifest").0, "nobody noticed"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Checks changed parts with recomputed hashes, also in all parts that reference them.
fn check_forged(bytes: &mut Bytes<'_>) {
    let (records, sound) = parts();
    let mut changed = BTreeSet::new();
    for _ in 0..*bytes.pick(&[1, 1, 1, 2, 4]) {
        changed.insert(bytes.below(sound.len()));
    }
    let mut renamed: Vec<(String, String)> = Vec::new();
    let mut parts = Parts::new();
    for (index, (hash, text)) in sound.iter().enumerate() {
        let mut text = text.clone();
        for (from, to) in &renamed {
            text = text.replace(from, to);
        }
        if changed.contains(&index) {
            for _ in 0..*bytes.pick(&[1, 1, 1, 3]) {
                match bytes.below(6) {
                    0 => flip(&mut text, bytes),
                    1 => rewrite(&mut text, bytes, WORDS),
                    _ => renumber(&mut text, bytes),
                }
            }
        }
        let now = sha256(text.as_bytes());
        if now != *hash {
            renamed.push((hash.to_string(), now.to_string()));
        }
        parts.push((now, text));
    }
    go_on(&records[0], &parts);
}

/// Replaces one number by another.
fn renumber(text: &mut String, bytes: &mut Bytes<'_>) {
    let Ok(mut value) = serde_json::from_str::<Value>(text) else { return };
    // Node stamps are skipped: they are checked against each other, and changes of other numbers reach more code.
    let is_stamp = |place: &PointerBuf| {
        let node = place.parent().and_then(|node| node.resolve(&value).ok()?.get(0)?.as_str());
        node.is_some_and(|tag| tag.len() == 1)
    };
    let is_number = |place: &PointerBuf| place.resolve(&value).is_ok_and(Value::is_number) && !is_stamp(place);
    let numbers: Vec<PointerBuf> = values::places(&value, 10_000).into_iter().filter(is_number).collect();
    if numbers.is_empty() {
        return;
    }
    let number = match bytes.below(6) {
        0 => bytes.number(),
        1 => u64::MAX,
        2 => u64::from(u32::MAX),
        3 => i64::MAX as u64,
        _ => bytes.below(8) as u64,
    };
    if let Ok(place) = bytes.pick(&numbers).resolve_mut(&mut value) {
        *place = number.into();
        *text = value.to_string();
    }
}

/// Checks handwritten parts: the last line replaces the document, and then the rest of the board.
fn check_written(text: &str) {
    let (records, sound_parts) = parts();
    let mut parts = Parts::new();
    let mut lines: Vec<&str> = text.lines().collect();
    let value = lines.pop().unwrap_or_default();
    let named = |text: &str, parts: &Parts| {
        let name = |text: String, (index, (hash, _)): (usize, &(Digest, String))| {
            text.replace(&format!("\"#{index}\""), &format!("\"{hash}\""))
        };
        parts.iter().enumerate().fold(text.to_owned(), name)
    };
    // Each replaced reference becomes a longer hash, so only a few lines are used.
    for line in lines.into_iter().take(32) {
        let text = named(line, &parts);
        let _ = part_refs(&text);
        parts.push((sha256(text.as_bytes()), text));
    }
    let value = named(value, &parts);
    let seal = Hasher::new(&SALT).seal();
    let ((_, manifest), sound_parts) = sound_parts.split_last().expect("there is a manifest");
    let manifest: Value = serde_json::from_str(manifest).expect("a manifest is JSON");
    let trees = &manifest["trees"];
    for (trees, rest) in
        [(format!("[[1,\"{}\",{value}]]", Digest([0; 32])), "null".to_owned()), (trees.to_string(), value.clone())]
    {
        let manifest = format!(
            "{{\"layout\":{LAYOUT},\"board\":\"played\",\"seal\":\"{seal}\",\"head\":[1,\"{seal}\"],\"trees\":{trees},\"rest\":{rest}}}"
        );
        let all = sound_parts.iter().chain(&parts).cloned();
        let last = (sha256(manifest.as_bytes()), manifest);
        go_on(&records[0], &all.chain([last]).collect());
    }
}

/// Restores a board from untrusted parts. If that succeeds, the board must be storable and restorable as it is, and
/// accept or reject further inputs.
fn go_on(created: &Record, parts: &Parts) {
    for (_, text) in parts {
        let _ = part_refs(text);
    }
    let Ok(mut board) = restored(created, parts) else { return };
    let again = stored(&board);
    let twice = restored(created, &again).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(twice.snapshot_digest(), board.snapshot_digest());
    for input in next(&board) {
        let at = board.wake_at().unwrap_or(Timestamp(2_000_000));
        let _ = board.step(at, input);
    }
    let _ = board.snapshot_digest();
}

/// Returns inputs for a restored board.
fn next(board: &Board) -> Vec<Input> {
    let reply = ReplyBody::Json(json!([{"op": "add", "path": "/tasks/-", "value": {"status": "open"}}]));
    let propose = |from| {
        Input::Propose(Proposal { from, worker: "planner".into(), reply: reply.clone(), usage: None, raw: None })
    };
    let mut inputs = vec![propose(ProposalSource::Direct { key: None, base: None }), Input::Tick];
    // Answers or fails every open invocation.
    for number in 1..=12 {
        let (invocation, attempt) = (InvocationId(number), 1);
        inputs.push(Input::Continue { invocation, attempt, usage: None, reserve: 500 });
        inputs.push(propose(ProposalSource::Attempt { invocation, attempt }));
        let (code, message) = (FailureCode::Timeout, "too late".to_owned());
        inputs.push(Input::AgentFailed { invocation, attempt, code, message, usage: None });
    }
    inputs.push(Input::take_over(board.epoch().saturating_add(1), "next".to_owned()));
    inputs.push(Input::Signal { name: "more".to_owned(), value: json!(1), key: None });
    inputs.push(Input::Tick);
    inputs
}

fn stored(board: &Board) -> Parts {
    let mut parts = Parts::new();
    let Ok(stored) = board.store(true, &mut |part| {
        assert_eq!(part_refs(&part.text).as_ref(), Some(&part.names), "{}", part.text);
        parts.push((part.hash, part.text.to_string()));
        Ok::<_, Infallible>(())
    });
    assert_eq!(parts.last().map(|(hash, _)| *hash), Some(stored.manifest.hash));
    parts
}

/// Restores the board of the last stored manifest.
fn restored(created: &Record, parts: &Parts) -> Result<Board, SnapshotError> {
    let by_hash: BTreeMap<Digest, &String> = parts.iter().map(|(hash, text)| (*hash, text)).collect();
    let digest = parts.last().map_or(Digest([0; 32]), |(hash, _)| *hash);
    Board::restore(created, digest, &mut |hash| Ok(by_hash.get(&hash).map(|text| (*text).clone())), &PLANS)
}

/// Returns a board with nearly every kind of event, stored while calls are open.
fn parts() -> &'static (Vec<Record>, Parts) {
    static PARTS: OnceLock<(Vec<Record>, Parts)> = OnceLock::new();
    PARTS.get_or_init(|| {
        let records = sound();
        let boards = (1..=records.len())
            .filter_map(|end| Board::recover(&records[..end], &PLANS).ok().map(|board| (end, board)));
        let largest = boards.map(|(end, board)| (stored(&board), end));
        let (parts, end) = largest.max_by_key(|(parts, _)| parts.len()).expect("there is a board");
        check_sound(&records[..end]);
        (records[..end].to_vec(), parts)
    })
}

/// Words of parts.
const WORDS: &[&str] = &[
    "a",
    "o",
    "t",
    "l",
    "i",
    "b",
    "s",
    "layout",
    "board",
    "seal",
    "head",
    "trees",
    "rest",
    "epoch",
    "paused",
    "ended",
    "scheduler",
    "breaker",
    "ledger",
    "tokens",
    "commits",
    "bases",
    "pending",
    "signal",
    "planner",
    "checker",
    "boss",
    "/tasks/0",
    "/notes/a",
    "done",
    "",
];
