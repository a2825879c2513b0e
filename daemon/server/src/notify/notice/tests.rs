//! Records, and the notices derived from them.

use patchboard_kernel::digest::{Digest, Hasher, Salt};
use patchboard_llm::gate::Outage;
use serde_json::{Value, json};

use super::*;

/// Returns the author of a record: an attempt of an invocation.
fn by(invocation: u64) -> Value {
    let attempt = json!({"invocation": invocation, "number": 1, "cause": 1, "view": "ab".repeat(32)});
    json!({"worker": "writer", "attempt": attempt, "base": 0})
}

fn deferred(invocation: u64) -> Value {
    json!({"kind": "deferred", "by": by(invocation), "reason": "overloaded", "not_before": 0, "patience": 0, "message": "m"})
}

fn failed(invocation: u64, code: &str, is_final: bool) -> Value {
    json!({"kind": "failed", "by": by(invocation), "code": code, "final": is_final, "message": "SECRET"})
}

fn committed(invocation: u64) -> Value {
    json!({"kind": "committed", "by": by(invocation), "version": 1, "state": "0f".repeat(32), "patch": ["SECRET"]})
}

fn rejected(is_final: bool) -> Value {
    let rejection = json!({"stage": "schema", "code": "schema_violation", "violations": [], "allowed": []});
    json!({"kind": "rejected", "by": by(1), "stage": "schema", "code": "schema_violation", "final": is_final,
        "rejection": rejection, "reply": "SECRET"})
}

fn question(more: &Value) -> Value {
    let mut question = json!({"kind": "approval", "by": by(1), "approver": "editor", "expires": 0, "digest": "0f".repeat(32),
        "patch": ["SECRET"]});
    question.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    question
}

fn ended(end: &str, cause: &str) -> Value {
    json!({"kind": "ended", "end": end, "cause": cause})
}

fn paused() -> Value {
    json!({"kind": "paused", "cause": "provider_unavailable"})
}

/// Returns records with these bodies and times in seconds.
fn records(bodies: &[(i64, Value)]) -> Vec<Record> {
    let hasher = Hasher::new(&Salt([0; 32]));
    let seal = |(seq, (second, body)): (u64, &(i64, Value))| {
        let body: Body = serde_json::from_value(body.clone()).unwrap_or_else(|error| panic!("{error}: {body}"));
        Record::seal(Digest([0; 32]), Seq(seq), Timestamp(second * 1000), body, &hasher)
    };
    (1..).zip(bodies).map(seal).collect()
}

fn board() -> BoardId {
    "b".into()
}

/// Returns the notices of records and of the time after them; the cursor is serialised and restored before each record.
fn notices(bodies: &[(i64, Value)], now: i64) -> Vec<Notice> {
    let board = board();
    let context = Context { board: &board, blueprint: "steps", provider_after: Duration::from_secs(300) };
    let (mut cursor, mut all) = (Cursor::default(), Vec::new());
    for record in records(bodies) {
        let stored = serde_json::to_string(&cursor).expect("JSON");
        cursor = serde_json::from_str(&stored).expect("a cursor");
        let (notices, unreadable) = cursor.step(&record, &context);
        assert_eq!(unreadable, None);
        assert_eq!(cursor.after, Some(record.seq));
        all.extend(notices);
    }
    all.extend(cursor.overdue(Timestamp(now * 1000), &context));
    all
}

/// Like [`notices`], as ids; a notice that resolves another is marked.
fn ids(bodies: &[(i64, Value)], now: i64) -> Vec<String> {
    let id = |notice: Notice| format!("{}{}", notice.id, if notice.resolved { " resolved" } else { "" });
    notices(bodies, now).into_iter().map(id).collect()
}

/// Name, bodies with their seconds, current second, and ids of the expected notices.
type Row = (&'static str, Vec<(i64, Value)>, i64, Vec<&'static str>);

#[test]
fn records_give_these_notices() {
    let tick = || json!({"kind": "tick"});
    let resumed = || json!({"kind": "resumed"});
    let table: Vec<Row> = vec![
        ("a question", vec![(0, tick()), (1, question(&json!({})))], 1, vec!["b:2:question"]),
        ("an invocation given up", vec![(0, failed(1, "timeout", true))], 0, vec!["b:1:gave_up"]),
        ("a failed attempt", vec![(0, failed(1, "timeout", false))], 0, vec![]),
        ("a last rejection", vec![(0, rejected(true))], 0, vec!["b:1:gave_up"]),
        ("a rejection", vec![(0, rejected(false))], 0, vec![]),
        ("done", vec![(0, ended("done", "done"))], 0, vec![]),
        ("cancelled", vec![(0, ended("cancelled", "cancelled"))], 0, vec![]),
        ("at rest", vec![(0, ended("quiescent", "nothing_to_do"))], 0, vec![]),
        ("gave up", vec![(0, ended("quiescent", "gave_up"))], 0, vec!["b:1:gave_up"]),
        ("a breaker", vec![(0, ended("stopped", "breaker"))], 0, vec!["b:1:stopped"]),
        ("exhausted", vec![(0, ended("stopped", "exhausted"))], 0, vec!["b:1:stopped"]),
        ("a meltdown", vec![(0, ended("failed", "meltdown"))], 0, vec!["b:1:stopped"]),
        ("a pause by an operator", vec![(0, json!({"kind": "paused"})), (9, resumed())], 999, vec![]),
        ("a short wait", vec![(0, deferred(1))], 299, vec![]),
        ("a wait", vec![(0, tick()), (0, deferred(1))], 300, vec!["b:2:provider"]),
        ("a wait that was repeated", vec![(0, deferred(1)), (200, deferred(1))], 300, vec!["b:1:provider"]),
        ("a wait that ended in time", vec![(0, deferred(1)), (299, committed(1))], 999, vec![]),
        (
            "a wait that ended",
            vec![(0, deferred(1)), (301, committed(1))],
            999,
            vec!["b:1:provider", "b:2:provider resolved"],
        ),
        (
            "one outage of two invocations",
            vec![(0, deferred(1)), (100, deferred(2)), (400, committed(1)), (401, committed(2))],
            999,
            vec!["b:1:provider", "b:4:provider resolved"],
        ),
        (
            "short waits, one after the other",
            (0_i64..9)
                .flat_map(|n| [(n * 100, deferred(n.unsigned_abs())), (n * 100 + 150, committed(n.unsigned_abs()))])
                .collect(),
            999,
            vec![],
        ),
        (
            "another invocation's commit",
            vec![(0, deferred(1)), (100, committed(2)), (200, failed(1, "lost", false))],
            300,
            vec!["b:1:provider"],
        ),
        (
            "a pause and a resumption",
            vec![(0, deferred(1)), (0, paused()), (9, resumed()), (10, committed(1))],
            999,
            vec!["b:2:provider", "b:3:provider resolved"],
        ),
        (
            "a retry ends a pause",
            vec![(0, paused()), (9, json!({"kind": "retried"}))],
            999,
            vec!["b:1:provider", "b:2:provider resolved"],
        ),
        (
            "a pause after a wait that was told needs an operator",
            vec![(0, deferred(1)), (400, paused()), (500, resumed())],
            999,
            vec!["b:1:provider", "b:2:provider", "b:3:provider resolved"],
        ),
        (
            "paused again after a resumption that mended nothing",
            vec![(0, deferred(1)), (0, paused()), (9, resumed()), (9, deferred(1)), (9, paused())],
            999,
            vec!["b:2:provider", "b:3:provider resolved", "b:5:provider"],
        ),
        (
            "a branch that is stopped while it waits",
            vec![
                (0, deferred(1)),
                (9, json!({"kind": "breaker", "worker": "writer", "change": "opened", "reason": "rejections"})),
            ],
            999,
            vec![],
        ),
        (
            "an end during an outage",
            vec![(0, deferred(1)), (400, ended("stopped", "wall"))],
            999,
            vec!["b:1:provider", "b:2:provider resolved", "b:2:stopped"],
        ),
    ];
    for (name, bodies, now, expected) in table {
        assert_eq!(ids(&bodies, now), expected, "{name}");
    }
}

#[test]
fn a_notice_says_what_happened_and_where_and_nothing_of_the_state() {
    let clarify = json!({"clarify": {"question": format!("How far?\u{1b}[31m {}", "x".repeat(5000))}});
    let bodies = [
        (1, question(&clarify)),
        (2, question(&json!({"intent": "to add a step"}))),
        (3, failed(7, "timeout", true)),
        (4, paused()),
        (
            5,
            json!({"kind": "budget", "worker": "writer", "invocation": 8, "resource": "board_tokens", "needed": 2, "left": 1}),
        ),
    ];
    let notices = notices(&bodies, 5);
    let of = |notice: &Notice| {
        (notice.message.clone(), notice.command.clone().unwrap_or_default(), notice.request.clone().unwrap_or_default())
    };
    let (message, command, request) = of(&notices[0]);
    assert!(
        message.starts_with("Worker writer asks editor: How far?<U+001B>[31m xxx") && message.ends_with('…'),
        "{message}"
    );
    assert!(message.chars().count() < 600, "{message}");
    assert_eq!(
        (command.as_str(), request.as_str()),
        ("patchboard answer b 1 --text TEXT", "POST /v1/boards/b/approvals/1")
    );
    let (message, command, _) = of(&notices[1]);
    assert_eq!(message, "Worker writer asks editor to approve a change: to add a step");
    assert_eq!(command, "patchboard approve b 2");
    let (message, command, request) = of(&notices[2]);
    assert_eq!(message, "Invocation 7 of worker writer was given up (timeout).");
    assert_eq!((command.as_str(), request.as_str()), ("patchboard retry b --invocation 7", "POST /v1/boards/b/retry"));
    assert_eq!(of(&notices[3]).1, "patchboard resume b");
    assert_eq!(of(&notices[4]).0, "Invocation 8 of worker writer was given up (board_tokens).");
    assert_eq!(of(&notices[4]).1, "patchboard retry b --invocation 8 --tokens N");
    for notice in &notices {
        let body = notice.body();
        assert!(!body.contains("SECRET"), "{body}");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(
            (&body["board"], &body["blueprint"], &body["path"]),
            (&json!("b"), &json!("steps"), &json!("/v1/boards/b"))
        );
        assert_eq!(body["id"], format!("b:{}:{}", body["seq"], body["kind"].as_str().expect("a kind")));
    }
    assert_eq!(notices[0].at, "1970-01-01T00:00:01.000Z");
}

#[test]
fn a_cursor_is_bounded_and_a_record_that_cannot_be_read_is_passed() {
    let many: Vec<(i64, Value)> = (0..5000).map(|n| (0, deferred(n))).collect();
    let board = board();
    let context = Context { board: &board, blueprint: "steps", provider_after: Duration::from_secs(300) };
    let mut cursor = Cursor::default();
    for record in records(&many) {
        cursor.step(&record, &context);
    }
    assert!(cursor.waits.len() <= WAITS_MAX && serde_json::to_string(&cursor).expect("JSON").len() < 64 * 1024);
    let Record { kind, at, payload, hash, .. } = records(&[(0, paused())]).remove(0);
    let broken = Record::new(Seq(9000), kind, at, "{".into(), payload, hash);
    let (notices, unreadable) = cursor.step(&broken, &context);
    assert!(notices.is_empty() && unreadable.is_some());
    assert_eq!(cursor.after, Some(Seq(9000)));
}

#[test]
fn a_question_before_the_cursor_is_the_same_notice() {
    let board = board();
    let context = Context { board: &board, blueprint: "steps", provider_after: Duration::from_secs(300) };
    let bodies = [(1, question(&json!({})))];
    let again = Cursor::question(&records(&bodies)[0], &context).expect("it is read");
    assert_eq!(again.as_ref(), notices(&bodies, 1).first());
    assert_eq!(Cursor::question(&records(&[(1, paused())])[0], &context), Ok(None));
}

#[test]
fn calls_that_were_never_sent_are_reported_once_and_when_one_is_answered() {
    let board = board();
    let context = Context { board: &board, blueprint: "steps", provider_after: Duration::from_secs(300) };
    let held = |seconds| {
        let lasts = std::time::Duration::from_secs(seconds);
        BoardOutage {
            outage: Outage { reason: DeferralReason::Overloaded, elapsed: lasts, next_try: None },
            calls: 2,
            elapsed: lasts,
        }
    };
    let mut cursor = Cursor::default();
    assert_eq!(cursor.held(Timestamp(1), &held(400), &context), None, "it has no record yet");
    let first = records(&[(0, deferred(7))]).remove(0);
    cursor.after = Some(first.seq);
    assert_eq!(cursor.held(Timestamp(1), &held(299), &context), None);
    let notice = cursor.held(Timestamp(1), &held(300), &context).expect("a notice");
    assert!(notice.message.contains("waited for their provider for 300 s (overloaded)"), "{}", notice.message);
    assert_eq!(cursor.held(Timestamp(2), &held(900), &context), None, "once for an outage");
    let mut again = serde_json::from_str::<Cursor>(&serde_json::to_string(&cursor).expect("JSON")).expect("a cursor");
    assert_eq!(again, cursor);
    for (record, resolved) in records(&[(10, deferred(7)), (20, committed(7))]).iter().zip([0, 1]) {
        let (notices, _) = again.step(record, &context);
        assert_eq!(notices.iter().filter(|notice| notice.resolved).count(), resolved, "{notices:?}");
    }
    assert!(!again.waits());
}
