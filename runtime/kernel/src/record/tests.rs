//! Every record kind matches its body, and user text appears only in the payload.

use serde_json::{Value, json};

use super::*;
use crate::digest::Salt;

/// Marker in all text by users, documents or models.
const SECRET: &str = "S3CRET";

fn author() -> Value {
    let attempt = json!({"invocation": 7, "number": 2, "cause": 5, "view": "ab".repeat(32)});
    json!({"worker": "writer", "attempt": attempt, "base": 3, "usage": {"prompt": 5, "completion": 6}, "approval": 6})
}

/// Returns a body of every kind, with all its fields set.
fn bodies() -> Vec<Body> {
    let digest = "0f".repeat(32);
    let patch = json!([{"op": "add", "path": format!("/{SECRET}"), "value": SECRET}]);
    let trigger = json!({"kind": "event", "op": "add", "path": format!("/{SECRET}"), "version": 4});
    let violation =
        json!({"code": "schema_violation", "pointer": format!("/{SECRET}"), "message": SECRET, "found": SECRET});
    let rejection = json!({"stage": "schema", "code": "schema_violation", "violations": [violation], "allowed": []});
    let texts = [
        json!({"kind": "created", "format": 3, "board": "0194d2a0-0000-7000-8000-000000000000", "name": "n", "state": digest,
            "blueprint": {"a": SECRET}, "request": SECRET, "salt": "5a".repeat(32)}),
        json!({"kind": "epoch", "epoch": 2, "writer": "w"}),
        json!({"kind": "scheduled", "invocation": 7, "rule": "r", "worker": "writer", "follows": 6, "trigger": trigger,
            "expand": [format!("/{SECRET}"), {"at": format!("/{SECRET}"), "from": SECRET}]}),
        json!({"kind": "invoked", "invocation": 7, "attempt": 2, "worker": "writer", "cause": 5, "base": 3, "budget": 4000,
            "unit": "tokens", "tokenizer": "chars/4", "compiler": 2, "feedback": [4], "view": digest, "prompt": digest, "reserved": 9,
            "deadline": 1000, "reads": [format!("/{SECRET}")], "members": [format!("/{SECRET}")],
            "unshown": [{"at": format!("/{SECRET}"), "shown": 1, "of": 2, "bytes": 3}]}),
        json!({"kind": "deferred", "by": author(), "reason": "rate_limited", "not_before": 1000, "patience": 2000,
            "message": SECRET}),
        json!({"kind": "continued", "by": author(), "reserved": 9}),
        json!({"kind": "committed", "by": author(), "version": 4, "state": digest, "patch": patch, "intent": SECRET,
            "raw": SECRET, "expand": [format!("/{SECRET}")]}),
        json!({"kind": "no_op", "by": author(), "patch": patch, "intent": SECRET, "pass": SECRET, "raw": SECRET, "written": SECRET}),
        json!({"kind": "expanded", "by": author(), "patch": [], "intent": SECRET, "raw": SECRET, "expand": [format!("/{SECRET}")]}),
        json!({"kind": "rejected", "by": author(), "stage": "schema", "code": "schema_violation", "final": true,
            "rejection": rejection, "reply": SECRET, "raw": SECRET, "written": SECRET}),
        json!({"kind": "failed", "by": author(), "code": "timeout", "final": true, "needed": 9, "message": SECRET}),
        json!({"kind": "late", "worker": "writer", "invocation": 7, "attempt": 2, "code": "invocation_closed",
            "usage": {"prompt": 5, "completion": 6}, "reply": SECRET, "raw": SECRET}),
        json!({"kind": "reserved", "invocation": 7, "worker": "writer", "decisions": 8, "until": 1000,
            "places": [format!("/{SECRET}")]}),
        json!({"kind": "skipped", "rule": "r", "message": SECRET}),
        json!({"kind": "approval", "by": author(), "approver": "boss", "expires": 9, "digest": digest, "patch": patch,
            "intent": SECRET, "raw": SECRET, "expand": [format!("/{SECRET}")]}),
        json!({"kind": "answer", "of": 6, "by": "boss", "digest": digest, "agrees": false, "reason": SECRET}),
        json!({"kind": "breaker", "rule": "r", "worker": "writer", "change": "opened", "reason": "no_ops"}),
        json!({"kind": "budget", "rule": "r", "worker": "writer", "invocation": 7, "resource": "board_tokens",
            "needed": 5, "left": 4}),
        json!({"kind": "paused"}),
        json!({"kind": "resumed"}),
        json!({"kind": "retried", "worker": "writer", "invocation": 7, "limits": {"tokens": 9}, "token": "t"}),
        json!({"kind": "tick"}),
        json!({"kind": "signal", "name": "s", "value": {"a": SECRET}}),
        json!({"kind": "jumped", "ms": 86_400_000}),
        json!({"kind": "snapshot", "of": 3, "layout": 1, "digest": digest}),
        json!({"kind": "redacted", "records": [[3, digest]], "texts": [digest], "erased": 2, "salt": true, "asked": digest,
            "token": "t", "targets": [format!("/{SECRET}")]}),
        json!({"kind": "ended", "end": "done", "cause": "done"}),
    ];
    let read = |text: Value| serde_json::from_value(text.clone()).unwrap_or_else(|error| panic!("{error}: {text}"));
    texts.into_iter().map(read).collect()
}

#[test]
fn every_kind_of_record_says_what_its_body_says() {
    let hasher = Hasher::new(&Salt::ZERO);
    let bodies = bodies();
    let kinds: std::collections::BTreeSet<_> = bodies.iter().map(|body| body.kind().as_str()).collect();
    assert_eq!(kinds.len(), Kind::ALL.len(), "one of every kind: {kinds:?}");
    for body in bodies {
        let record = Record::seal(GENESIS, Seq(9), Timestamp(7), body.clone(), &hasher);
        assert_eq!(record.body(), Ok(&body));
        let Record { seq, kind, at, header, payload, hash, .. } = record.clone();
        let read = Record::new(seq, kind, at, header, payload, hash);
        assert_eq!(read.body().expect("it was just written"), &body);
        record.check_chain(GENESIS).expect("it was just written");
        record.check_values(&hasher).expect("it was just written");
    }
}

#[test]
fn user_values_are_in_the_payload_only() {
    let hasher = Hasher::new(&Salt::ZERO);
    let mut with_values = 0;
    for body in bodies() {
        let record = Record::seal(GENESIS, Seq(9), Timestamp(7), body, &hasher);
        assert!(!record.header.contains(SECRET), "{}", record.header);
        let payload: Map<String, Value> = serde_json::from_str(&record.payload).expect("it is JSON");
        let header: Map<String, Value> = serde_json::from_str(&record.header).expect("it is JSON");
        assert!(payload.keys().all(|field| !header.contains_key(field)), "{}", record.header);
        with_values += usize::from(record.payload.contains(SECRET));
    }
    assert_eq!(with_values, 16);
}
