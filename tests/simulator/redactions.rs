//! Redactions on simulated boards: no record contains the text afterwards, the journal is sound, and a board that can
//! go on does so as before.

use std::collections::BTreeMap;

use jsonptr::PointerBuf;
use patchboard_faults::random::Random;
use patchboard_kernel::board::{Board, Input};
use patchboard_kernel::digest::{Digest, Hasher};
use patchboard_kernel::id::{Seq, Timestamp};
use patchboard_kernel::placeholder::is_placeholder;
use patchboard_kernel::record::{Body, Ended, GENESIS, Kind, Record};
use patchboard_kernel::redaction::{self, RedactionCode, Request};
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use serde_json::Value;

/// Number of redaction requests per board.
const TRIED: usize = 6;

/// Counts of the outcomes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tried {
    /// Redactions on boards that have ended for good.
    pub(super) over: u64,
    /// Redactions on boards that can go on.
    pub(super) going: u64,
    /// Rejected, because the board still uses the value.
    pub(super) in_use: u64,
}

/// Redacts values of a board with these records, one request at a time.
pub(super) fn tried(seed: u64, records: &[Record]) -> Tried {
    let mut random = Random::new(seed ^ 0xe4a5e);
    let written = written(records);
    let mut tried = Tried::default();
    if written.is_empty() {
        return tried;
    }
    let board = Board::recover(records, &PLANS).unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
    let is_over = board.ended().is_some_and(Ended::is_final);
    for _ in 0..TRIED {
        let (seq, place, text) = &written[random.index(written.len())];
        let mut request = Request { everywhere: true, ..Request::default() };
        match random.percent(50) {
            true => request.records.push(*seq),
            false => request.places.push(place.clone()),
        }
        let context = format!("SEED={seed}: {request:?}");
        let planned = match redaction::plan(&board, records, &mut |_| None, &request) {
            Ok(planned) => planned,
            Err(error) => {
                let in_use = error.code == RedactionCode::StillInUse;
                assert!(in_use || error.code == RedactionCode::NothingToErase, "{context}: {error}");
                assert!(!(in_use && is_over), "{context}: {error}");
                tried.in_use += u64::from(in_use);
                continue;
            }
        };
        let mut going = board.clone();
        let at = records.last().map_or(Timestamp(0), |record| record.at);
        let step = going.step(at, Input::Redact(planned.body));
        let mut redacted: BTreeMap<Seq, Record> = records.iter().map(|record| (record.seq, record.clone())).collect();
        redacted.extend(planned.records.into_iter().chain(step.records).map(|record| (record.seq, record)));
        let redacted: Vec<Record> = redacted.into_values().collect();
        gone(&redacted, text, &context);
        let recovered = sound(&redacted, &context);
        if is_over {
            tried.over += 1;
            continue;
        }
        tried.going += 1;
        assert_eq!(recovered.state().digest(), board.state().digest(), "{context}");
        assert_eq!(recovered.ledger().board(), board.ledger().board(), "{context}");
        assert_eq!(went_on(recovered), went_on(going), "{context}: it goes on otherwise");
    }
    tried
}

/// Returns the texts that commits wrote, with the record and the place as in the patch.
fn written(records: &[Record]) -> Vec<(Seq, PointerBuf, String)> {
    let mut written = Vec::new();
    for record in records.iter().filter(|record| record.kind == Kind::Committed) {
        let Ok(Body::Committed(committed)) = record.body() else { continue };
        for op in committed.patch.as_array().into_iter().flatten() {
            let place = op["path"].as_str().and_then(|path| PointerBuf::parse(path).ok());
            if let (Some(place), Some(value)) = (place, op.get("value")) {
                let mut texts = Vec::new();
                each_text(value, &mut texts);
                written.extend(texts.into_iter().map(|text| (record.seq, place.clone(), text)));
            }
        }
    }
    written
}

fn each_text(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, texts)),
        Value::Object(members) => members.values().for_each(|member| each_text(member, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Checks that no record contains the text, unless it is too short to search for or is part of the blueprint.
fn gone(records: &[Record], text: &str, context: &str) {
    let blueprint = records[0].values().expect("readable")["blueprint"].to_string();
    if text.chars().count() < 4 || is_placeholder(text) || blueprint.contains(text) {
        return;
    }
    let is_erased = records.iter().any(|record| record.is_redacted());
    let holding = records.iter().find(|record| record.payload.contains(text));
    // A redaction by `/-` cannot find the element under its index.
    if is_erased && !context.contains("/-") {
        assert!(holding.is_none(), "{context}: {text:?} is in {holding:?}");
    }
}

/// Checks the chain, the commitments to replaced values, and the replay. Returns the recovered board.
fn sound(records: &[Record], context: &str) -> Board {
    let Ok(Body::Created(created)) = records[0].body() else { panic!("{context}: no beginning") };
    let hasher = Hasher::new(&created.salt);
    let mut previous = GENESIS;
    let mut owed: BTreeMap<Seq, Vec<(Seq, Digest)>> = BTreeMap::new();
    for record in records {
        record.check_chain(previous).unwrap_or_else(|error| panic!("{context}: {}: {error}", record.seq));
        record.check_values(&hasher).unwrap_or_else(|error| panic!("{context}: {}: {error}", record.seq));
        previous = record.hash;
        if let Some((by, commitment)) = record.replacement(&hasher).expect("readable") {
            owed.entry(by).or_default().push((record.seq, commitment));
        }
        if let Ok(Body::Redacted(redacted)) = record.body() {
            let owed = owed.remove(&record.seq).unwrap_or_default();
            assert_eq!(owed, redacted.records, "{context}");
        }
    }
    assert!(owed.is_empty(), "{context}: {owed:?}");
    if let Err(difference) = replay::replay(records, None, &PLANS) {
        panic!("{context}: {difference}");
    }
    Board::recover(records, &PLANS).unwrap_or_else(|error| panic!("{context}: {error}"))
}

/// Continues the board. Returns the kinds of the next records and the workers they name.
fn went_on(mut board: Board) -> Vec<String> {
    let mut context = Vec::new();
    let at = |ms: i64| Timestamp(1 << 40).plus_ms(ms.unsigned_abs());
    let epoch = board.epoch() + 1;
    let inputs = [
        Input::take_over(epoch, "next".into()),
        Input::Resume { key: None },
        Input::Signal { name: "more".into(), value: Value::Null, key: None },
        Input::Tick,
        Input::Tick,
        Input::Cancel,
    ];
    for (input, ms) in inputs.into_iter().zip(0..) {
        for record in board.step(at(ms * 1_000_000), input).records {
            let header: Value = serde_json::from_str(&record.header).expect("JSON");
            context.push(format!("{} {} {} {}", record.seq, record.kind, header["worker"], header["invocation"]));
        }
    }
    context
}
