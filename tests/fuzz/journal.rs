//! Fuzzes the journal's records: arbitrary ones, and those of boards after damage.
//!
//! A board is played by choices, and replaying or recovering its records must give an equal board. Then the records are
//! damaged. Without a new hash chain, verification and replay must notice. With a new hash chain the records may be
//! false, but must not cause a panic.

use std::sync::OnceLock;
use std::time::Duration;

use patchboard_kernel::admission;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::board::{Board, Input, NewBoard, Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::canonical;
use patchboard_kernel::digest::{Digest, Hasher, Salt, sha256};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, IdempotencyKey, InvocationId, Seq, Timestamp, Version, WorkerName};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::record::{self, Answer, GENESIS, Kind, Record, RecordError};
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use serde_json::{Map, Value, json};

use crate::bytes::Bytes;
use crate::{values, within};

/// Time limit for reading, replaying and recovering a journal of this size.
const BOUND: Duration = Duration::from_secs(10);
/// Approximate limit of the records of a board that is played.
const RECORDS_MAX: usize = 80;

/// Selects a check by the first byte: 0 plays a board; 1 damages the journal of a played board; 2 does so and rebuilds
/// the hash chain. Any other input is a header, a line break and a payload.
pub fn journal(data: &[u8]) {
    within(BOUND, "reading a journal", || match data.split_first() {
        Some((0, choices)) => check_sound(&play(&mut Bytes::new(choices))),
        Some((1, choices)) => check_damaged(&mut Bytes::new(choices)),
        Some((2, choices)) => check_forged(&mut Bytes::new(choices)),
        _ => check_record(data),
    });
}

/// Salt of every board here, with which its records are sealed.
pub(crate) const SALT: Salt = Salt([7; 32]);

fn hasher() -> Hasher {
    Hasher::new(&SALT)
}

/// Checks an arbitrary record.
fn check_record(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (header, payload) = text.split_once('\n').unwrap_or((&text, "{}"));
    let kind = serde_json::from_str::<Value>(header).ok().and_then(|header| {
        let name = header.get("kind")?.as_str()?;
        Kind::ALL.iter().copied().find(|kind| kind.as_str() == name)
    });
    let (kind, is_kind_known) = (kind.unwrap_or(Kind::Tick), kind.is_some());
    let columns = serde_json::from_str::<Value>(header).unwrap_or_default();
    let seq = Seq(columns.get("seq").and_then(Value::as_u64).unwrap_or(3));
    let at = Timestamp(columns.get("at").and_then(Value::as_i64).unwrap_or(5));
    let hash = chained(GENESIS, header);
    let record = Record::new(seq, kind, at, header.to_owned(), payload.to_owned(), hash);
    read_all(&record);
    assert_eq!(record.check_chain(Digest([1; 32])), Err(RecordError::Hash));
    let body = record.body();
    if let Ok(body) = &body {
        assert!(is_kind_known && body.kind() == kind, "{body:?}");
        let sealed = Record::seal(GENESIS, Seq(1), Timestamp(2), (*body).clone(), &hasher());
        sealed.check_chain(GENESIS).expect("it was just sealed");
        sealed.check_values(&hasher()).expect("it was just sealed");
        // Numbers that a header cannot hold exactly never come from a sealed record: such bodies may be rejected.
        if let Ok(again) = reread(&sealed).body() {
            let twice = Record::seal(GENESIS, Seq(1), Timestamp(2), again.clone(), &hasher());
            assert_eq!(twice.header, sealed.header, "{body:?}");
        }
    }
    let records = [record];
    let _ = replay::replay(&records, None, &PLANS);
    let _ = Board::recover(&records, &PLANS);
}

/// Returns the record with nothing but its stored parts.
fn reread(record: &Record) -> Record {
    let Record { seq, kind, at, header, payload, hash, .. } = record.clone();
    Record::new(seq, kind, at, header, payload, hash)
}

/// Runs everything that reads a single record; none of it may panic.
fn read_all(record: &Record) {
    let _ = record.body();
    let _ = record.check_chain(GENESIS);
    let _ = record.check_values(&hasher());
    let _ = record::merge_fields(record);
    let _ = record.to_json();
}

/// Checks records that a board has made.
fn check_sound(records: &[Record]) {
    let records: &[Record] = &records.iter().map(reread).collect::<Vec<_>>();
    verify(records).expect("what was recorded is sound");
    let replayed = replay::replay(records, None, &PLANS).unwrap_or_else(|difference| panic!("{difference}"));
    let recovered = Board::recover(records, &PLANS).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(replayed.board.snapshot_digest(), recovered.snapshot_digest());
    let middle = records.len() / 2;
    let part =
        replay::replay(records, Some(Seq(middle as u64)), &PLANS).unwrap_or_else(|difference| panic!("{difference}"));
    assert_eq!(part.board.head().0, Seq(middle as u64));
}

/// Checks changed records without a valid hash chain.
fn check_damaged(bytes: &mut Bytes<'_>) {
    let mut records = sound().to_vec();
    for _ in 0..=bytes.below(3) {
        damage(&mut records, bytes);
    }
    records.iter().for_each(read_all);
    // A chain cannot show that records were cut off at the end, or that a whole other journal was substituted. A hash
    // kept elsewhere can.
    let journals = [sound(), other_board()];
    let is_beginning = journals.iter().any(|journal| journal.starts_with(&records));
    let verified = verify(&records);
    assert!(verified.is_err() || is_beginning, "nobody noticed");
    if is_beginning {
        assert_eq!(verified, Ok(()));
    }
    assert!(replay::replay(&records, None, &PLANS).is_err() || is_beginning, "replay did not notice");
    if let Ok(board) = Board::recover(&records, &PLANS) {
        // Recovery trusts the values, but checks the chain itself.
        let chain = |records: &[Record]| {
            let chained = |record: &Record| (record.seq, record.kind, record.at, record.header.clone(), record.hash);
            records.iter().map(chained).collect::<Vec<_>>()
        };
        let is_chained = journals.iter().any(|journal| chain(journal).starts_with(&chain(&records)));
        assert!(is_chained, "recovery did not notice");
        assert_eq!(board.head().0.0 + 1, records.len() as u64);
    }
}

/// Checks changed records with a hash chain that a forger rebuilt, knowing the salt.
fn check_forged(bytes: &mut Bytes<'_>) {
    let mut records = sound().to_vec();
    for _ in 0..=bytes.below(4) {
        damage(&mut records, bytes);
    }
    rechain(&mut records);
    records.iter().for_each(read_all);
    let recovered = Board::recover(&records, &PLANS);
    match replay::replay(&records, None, &PLANS) {
        // Another history, but one that a board could have had.
        Ok(replayed) => {
            let recovered = recovered.as_ref().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(replayed.board.snapshot_digest(), recovered.snapshot_digest());
        }
        Err(difference) => {
            assert!(!difference.what.is_empty());
            // Replay up to the record before the difference must not panic.
            let _ = replay::replay(&records, Some(Seq(difference.seq.0.saturating_sub(1))), &PLANS);
        }
    }
    if let Ok(mut board) = recovered {
        // A recovered board continues, or rejects the input.
        let at = board.wake_at().unwrap_or(Timestamp(2_000_000));
        let _ = board.step(at, Input::Tick);
        let _ = board.step(at, Input::take_over(board.epoch().saturating_add(1), "next".to_owned()));
    }
}

/// Checks records as `patchboard verify` does: gapless numbers, the hash chain, and the values with their meaning.
fn verify(records: &[Record]) -> Result<(), RecordError> {
    let mut previous = GENESIS;
    for (index, record) in records.iter().enumerate() {
        if record.seq != Seq(index as u64) {
            return Err(RecordError::Column("seq"));
        }
        record.check_chain(previous)?;
        record.check_values(&hasher())?;
        record.body()?;
        previous = record.hash;
    }
    Ok(())
}

/// Returns the hash of a record, as defined in SPEC section 10.
fn chained(previous: Digest, header: &str) -> Digest {
    sha256(&[previous.0.as_slice(), header.as_bytes()].concat())
}

/// Renumbers the records, commits to their present payloads, and rebuilds the hash chain.
fn rechain(records: &mut [Record]) {
    let mut previous = GENESIS;
    for (index, record) in records.iter_mut().enumerate() {
        record.seq = Seq(index as u64);
        let header = serde_json::from_str::<Map<String, Value>>(&record.header);
        let payload = serde_json::from_str::<Map<String, Value>>(&record.payload);
        if let (Ok(mut header), Ok(payload)) = (header, payload) {
            header.insert("seq".to_owned(), json!(index));
            header.insert("at".to_owned(), json!(record.at));
            header.insert("kind".to_owned(), json!(record.kind.as_str()));
            let commit = |(field, value): (&String, &Value)| {
                (field.clone(), json!(hasher().commitment(index as u64, field, value).to_string()))
            };
            header.remove("values");
            if !payload.is_empty() {
                header.insert("values".to_owned(), Value::Object(payload.iter().map(commit).collect()));
            }
            record.header = canonical::to_string(&Value::Object(header));
            record.payload = Value::Object(payload).to_string();
        }
        record.hash = chained(previous, &record.header);
        *record = reread(record);
        previous = record.hash;
    }
}

/// Words of headers and payloads.
const WORDS: &[&str] = &[
    "kind",
    "seq",
    "at",
    "values",
    "by",
    "worker",
    "attempt",
    "number",
    "base",
    "usage",
    "prompt",
    "completion",
    "version",
    "state",
    "patch",
    "intent",
    "expand",
    "written",
    "invocation",
    "rule",
    "trigger",
    "event",
    "start",
    "follows",
    "view",
    "reserved",
    "deadline",
    "reads",
    "members",
    "compiler",
    "stage",
    "code",
    "final",
    "rejection",
    "reply",
    "of",
    "layout",
    "digest",
    "agrees",
    "reason",
    "epoch",
    "writer",
    "end",
    "cause",
    "done",
    "failed",
    "timeout",
    "lost",
    "planner",
    "checker",
    "boss",
    "nobody",
    "begin",
    "new",
    "/tasks/0",
    "/tasks/0/status",
    "/notes/a",
    "/",
    "",
];

/// Changes the records at a random place.
fn damage(records: &mut Vec<Record>, bytes: &mut Bytes<'_>) {
    if records.is_empty() {
        return;
    }
    let index = bytes.below(records.len());
    let other = bytes.below(records.len());
    let record = &mut records[index];
    match bytes.below(14) {
        0 => flip(&mut record.header, bytes),
        1 => flip(&mut record.payload, bytes),
        2 => record.hash.0[bytes.below(32)] ^= 1 << bytes.below(8),
        3 => record.seq = Seq(bytes.number()),
        4 => record.at = Timestamp(bytes.number() as i64),
        5 => record.kind = *bytes.pick(Kind::ALL),
        6 => drop(records.remove(index)),
        7 => {
            let copy = record.clone();
            records.insert(other, copy);
        }
        8 => records.swap(index, other),
        9 => records.truncate(index),
        10 => {
            let others = other_board();
            records[index] = others[other.min(others.len() - 1)].clone();
        }
        11 => {
            let others = other_board();
            let from = other.min(others.len());
            records.truncate(index);
            records.extend_from_slice(&others[from..]);
        }
        12 => rewrite(&mut record.header, bytes, WORDS),
        _ => rewrite(&mut record.payload, bytes, WORDS),
    }
    // Drops what was parsed from the record as it was.
    records.iter_mut().for_each(|record| *record = reread(record));
}

/// Replaces or removes a character, or inserts a space before it, which may have no effect.
pub(crate) fn flip(text: &mut String, bytes: &mut Bytes<'_>) {
    let mut characters: Vec<char> = text.chars().collect();
    if characters.is_empty() {
        return;
    }
    let at = bytes.below(characters.len());
    match bytes.byte() {
        0 => drop(characters.remove(at)),
        1 => characters.insert(at, ' '),
        byte => characters[at] = char::from(byte),
    }
    *text = characters.into_iter().collect();
}

/// Changes a value in a JSON text, and writes it in the format of records.
pub(crate) fn rewrite(text: &mut String, bytes: &mut Bytes<'_>, words: &[&'static str]) {
    if let Ok(mut value) = serde_json::from_str::<Value>(text) {
        values::change(&mut value, bytes, words);
        *text = value.to_string();
    }
}

/// Seed of the board with the most kinds of records, out of a few thousand.
const SOUND: u32 = 1524;

/// Returns the records of a board with nearly every kind of event.
pub(crate) fn sound() -> &'static [Record] {
    static RECORDS: OnceLock<Vec<Record>> = OnceLock::new();
    RECORDS.get_or_init(|| {
        let records = play(&mut Bytes::new(&choices(SOUND)));
        check_sound(&records);
        let kinds: std::collections::BTreeSet<Kind> = records.iter().map(|record| record.kind).collect();
        assert!(kinds.len() >= 18, "little happened: {kinds:?}");
        records
    })
}

/// Returns a board's choices, drawn from a seed.
fn choices(seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..400).map(|_| draw()).collect()
}

/// Returns the records of another board with an equal salt.
fn other_board() -> &'static [Record] {
    static RECORDS: OnceLock<Vec<Record>> = OnceLock::new();
    RECORDS.get_or_init(|| play(&mut Bytes::new(&[0, 0, 1, 0, 1, 2, 0, 2, 1, 3])))
}

/// Returns the blueprint of the boards that are played.
fn contract() -> Blueprint {
    let value = json!({
        "blueprint": 1,
        "name": "played",
        "state": {
            "schema": {
                "type": "object",
                "required": ["tasks", "notes"],
                "additionalProperties": false,
                "properties": {
                    "request": true,
                    "notes": {"type": "object", "additionalProperties": {"type": "string"}},
                    "tasks": {"type": "array", "maxItems": 6, "items": {
                        "type": "object", "required": ["status"], "properties": {"status": {"enum": ["open", "done"]}}
                    }},
                },
            },
            "initial": {"tasks": [], "notes": {}},
        },
        "workers": {
            "boss": {"agent": "human"},
            "planner": {
                "agent": "llm",
                "reads": ["/tasks", "/notes"],
                "writes": [
                    {"path": "/tasks/-", "ops": ["add"]},
                    {"path": "/notes/*", "approval": {"by": "boss", "expires": "30s"}},
                ],
                "limits": {"attempts": 3, "timeout": "10s"},
            },
            "checker": {
                "agent": "llm",
                "reads": ["/tasks/*/status"],
                "writes": [{"path": "/tasks/*/status", "ops": ["replace"]}],
                "limits": {"attempts": 2, "timeout": "10s"},
            },
        },
        "rules": [
            {"name": "begin", "trigger": "start", "run": "planner"},
            {"name": "new", "trigger": {"op": "add", "path": "/tasks/*"}, "when": "value.status == 'open'", "run": "checker"},
            {"name": "odd", "trigger": {"op": "add", "path": "/notes/*"}, "when": "value.nothing == 1", "run": "planner"},
            {"name": "more", "trigger": {"signal": "more"}, "run": "planner"},
        ],
        "invariants": [{"name": "tasks-stay", "expr": "size(state.tasks) >= size(before.tasks)"}],
        "done": {"when": "size(state.tasks) >= 5"},
        "circuit": {"rejections": {"limit": 3, "then": "reduce_view"}, "no_ops": {"limit": 2, "then": "stop_branch"}, "cooldown": 2},
        "limits": {"commits": 20, "tokens": 60_000, "wall": "10m"},
        "concurrency": 2,
    });
    serde_json::from_value(value).expect("a blueprint")
}

/// Replies of all kinds.
const REPLIES: [&str; 12] = [
    r#"[{"op":"add","path":"/tasks/-","value":{"status":"open"}}]"#,
    r#"[{"op":"replace","path":"/tasks/0/status","value":"done"}]"#,
    r#"{"patch":[{"op":"add","path":"/notes/a","value":"b"}],"intent":"to note it"}"#,
    "[]",
    r#"{"expand":["/tasks"]}"#,
    r#"[{"op":"add","path":"/tasks/-","value":{"status":"lost"}}]"#,
    r#"[{"op":"remove","path":"/tasks/0"}]"#,
    "Here is my patch: []",
    r#"[{"op":"test","path":"/tasks/0/status","value":"open"},{"op":"replace","path":"/tasks/0/status","value":"done"}]"#,
    r#"[{"op":"add","path":"/notes/c","value":{"d":1e300}}]"#,
    r#"[{"op":"add","path":"/tasks/-","value":{"status":"open","note":[1.5,{"é":null}]}}]"#,
    "",
];

/// Plays a board by the choices, and returns its records.
pub(crate) fn play(bytes: &mut Bytes<'_>) -> Vec<Record> {
    let mut now = Timestamp(1_000_000);
    let genesis = NewBoard {
        salt: SALT,
        ..NewBoard::new(BoardId::from("played"), contract(), json!({"goal": bytes.below(3)}), now)
    };
    let (mut board, mut step) = Board::create(genesis, &PLANS).expect("the request fits");
    board.admit(now, &mut step, &mut admission::admit_all);
    let mut records = Vec::new();
    let mut calls: Vec<(InvocationId, u32, WorkerName)> = Vec::new();
    loop {
        records.append(&mut step.records);
        calls.extend(step.effects.calls.into_iter().map(|call| (call.invocation, call.attempt, call.worker)));
        if bytes.is_empty() || records.len() > RECORDS_MAX {
            return records;
        }
        now = now.plus_ms(*bytes.pick(&[0, 1, 500, 12_000, 40_000]));
        let input = input(&board, &mut calls, bytes);
        step = board.step_ungated(now, input);
    }
}

/// Returns the next input of a board.
fn input(board: &Board, calls: &mut Vec<(InvocationId, u32, WorkerName)>, bytes: &mut Bytes<'_>) -> Input {
    let kind = bytes.below(20);
    let usage = |bytes: &mut Bytes<'_>| match bytes.below(3) {
        0 => None,
        1 => Some(Usage { prompt: 100, completion: 20, ..Usage::default() }),
        _ => Some(Usage { prompt: bytes.number(), completion: bytes.number(), ..Usage::default() }),
    };
    match kind {
        0..9 if !calls.is_empty() => {
            let (invocation, attempt, worker) = match bytes.below(4) {
                0 => calls[0].clone(),
                _ => calls.pop().expect("there is a call"),
            };
            if kind == 8 {
                let code = *bytes.pick(FailureCode::ALL);
                if code == FailureCode::BudgetExhausted {
                    // The board itself detects this failure.
                    return Input::Continue { invocation, attempt, usage: usage(bytes), reserve: bytes.number() };
                }
                return Input::AgentFailed {
                    invocation,
                    attempt,
                    code,
                    message: "it broke".to_owned(),
                    usage: usage(bytes),
                };
            }
            let from = ProposalSource::Attempt { invocation, attempt };
            // Not drawn from the bytes, so that the boards of the corpus stay unchanged.
            let raw = (attempt == 2).then(|| "<think>hm</think>[]".to_owned());
            Input::Propose(Proposal { from, worker, reply: reply(bytes), usage: usage(bytes), raw })
        }
        0..11 => {
            let token = [None, Some("once"), Some("twice")];
            let token = bytes.pick(&token).map(IdempotencyKey::from);
            let base = (bytes.below(4) == 0).then(|| Version(bytes.below(4) as u64));
            let worker = WorkerName::from(*bytes.pick(&["planner", "checker", "boss", "nobody"]));
            Input::Propose(Proposal {
                from: ProposalSource::Direct { key: token, base },
                worker,
                reply: reply(bytes),
                usage: usage(bytes),
                raw: None,
            })
        }
        11 | 12 => Input::Tick,
        13 => {
            let name = bytes.pick(&["more", "begin", "nothing"]).to_string();
            // Not drawn from the bytes, so that the boards of the corpus stay unchanged.
            let token = (name == "begin").then(|| "once".into());
            Input::Signal { name, value: values::value(bytes, 2), key: token }
        }
        14 => Input::Pause { key: None },
        15 => Input::Resume { key: Some("once".into()) },
        16 => Input::Snapshot { of: board.head().0, digest: board.snapshot_digest() },
        17 => {
            if bytes.below(2) == 0 {
                calls.clear();
            }
            Input::take_over(board.epoch() + 1, "another".to_owned())
        }
        18 if bytes.below(8) == 0 => Input::Cancel,
        _ => match board.pending().first_key_value() {
            Some((of, question)) => Input::Answer(Answer {
                text: None,
                of: *of,
                by: question.approver.clone(),
                digest: question.digest,
                agrees: bytes.below(4) > 0,
                reason: (bytes.below(2) == 0).then(|| "so be it".to_owned()),
            }),
            None => Input::Tick,
        },
    }
}

fn reply(bytes: &mut Bytes<'_>) -> ReplyBody {
    match bytes.below(16) {
        known if known < REPLIES.len() => ReplyBody::Text(REPLIES[known].to_owned()),
        12 => ReplyBody::Json(values::value(bytes, 3)),
        13 => ReplyBody::Text(values::value(bytes, 3).to_string()),
        14 => ReplyBody::Json(json!([{"op": "add", "path": "/tasks/-", "value": values::value(bytes, 2)}])),
        _ => {
            let length = bytes.below(30);
            ReplyBody::Text(String::from_utf8_lossy(bytes.take(length)).into_owned())
        }
    }
}
