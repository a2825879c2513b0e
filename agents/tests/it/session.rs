//! Programs that keep state across calls, run for real.

use std::sync::Arc;
use std::time::{Duration, Instant};

use patchboard_agents::command::ProgramRunner;
use patchboard_agents::command::session::Limits;
use patchboard_agents::config::{Config, Environment};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::BoardId;
use patchboard_runtime::agent::{Agent as _, Call};
use serde_json::{Value, json};

use crate::support::{call, is_alive, is_soon_gone, pid_in, seat, sh};

/// Answers with its process id, the number of lines received, and the length of the last one.
const COUNTER: &str = r#"n=0; while read -r line; do n=$((n+1)); echo "[$$, $n, ${#line}]"; done"#;

fn session(restart: &str, occurrence: u32) -> Call {
    call("w", seat(json!({"agent": "command", "restart": restart, "patch": {"max_bytes": 500}})), "x", occurrence)
}

fn on_board(board: &str, mut call: Call) -> Call {
    call.decided.board = BoardId::from(board);
    call
}

fn runner() -> ProgramRunner {
    ProgramRunner::new(&Environment::from_process())
}

async fn numbers(runner: &ProgramRunner, script: &str, call: &Call) -> Vec<u64> {
    let reply = runner.answer(&sh(script), call).await.expect("a reply");
    serde_json::from_str(&reply.text).expect("numbers")
}

#[tokio::test]
async fn one_process_serves_all_calls_of_a_worker_on_a_board_and_no_other() {
    let runner = runner();
    let first = numbers(&runner, COUNTER, &session("fail", 0)).await;
    let second = numbers(&runner, COUNTER, &session("fail", 1)).await;
    assert_eq!((first[0], first[1], second[1]), (second[0], 1, 2));
    let request = json!({"protocol": 1, "board": "b", "worker": "w", "invocation": 2, "attempt": 1, "token": "w:2:1",
        "view": "x", "shown": {"/seen": {"count": 2}}, "trigger": null, "system": "You are a test."});
    assert_eq!(second[2], request.to_string().len() as u64, "a session's requests are those of any program");

    let mut elsewhere = session("fail", 0);
    elsewhere.decided.board = BoardId::from("other");
    let mut colleague = session("fail", 0);
    colleague.decided.worker = "v".into();
    for (call, owner) in [(elsewhere, "another board's"), (colleague, "another worker's")] {
        let third = numbers(&runner, COUNTER, &call).await;
        assert!(third[0] != first[0] && third[1] == 1, "{owner} process is the same");
    }
    runner.ended(&BoardId::from("b"));
    let failure = runner.answer(&sh(COUNTER), &session("fail", 2)).await.expect_err("it is gone");
    assert_eq!(failure.code, FailureCode::Refused);
}

#[tokio::test]
async fn calls_at_once_are_answered_one_after_the_other_by_the_same_process() {
    let runner = Arc::new(runner());
    // Later calls first, because the order of arrival is otherwise random.
    let calls: Vec<_> = (0..8)
        .rev()
        .map(|n| {
            let runner = Arc::clone(&runner);
            tokio::spawn(async move { numbers(&runner, COUNTER, &session("fail", n)).await })
        })
        .collect();
    let mut seen = Vec::new();
    for call in calls {
        seen.push(call.await.expect("no panic"));
    }
    assert!(seen.iter().all(|numbers| numbers[0] == seen[0][0]), "{seen:?}");
    let mut counted: Vec<_> = seen.iter().map(|numbers| numbers[1]).collect();
    counted.sort_unstable();
    assert_eq!(counted, (1..=8).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_session_process_and_its_children_end_with_their_board_or_owner() {
    for end in ["board", "seats"] {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("pid");
        let script = format!("sh -c 'echo $$ > {}; sleep 60; :' & {COUNTER}", file.display());
        let text = format!("[commands.w]\nprogram = [\"sh\", \"-c\", {}]", json!(script));
        let config = Config::parse(&text, "p").expect("a good file");
        let seats = AgentRegistry::new(config, &Environment::from_process(), InlinePrograms::Denied);
        seats.call(&session("fresh", 0)).await.expect("a reply");
        let pid = pid_in(&file).await;
        assert!(is_alive(&pid));
        if end == "board" {
            seats.on_board_ended(&BoardId::from("another"));
            assert!(is_alive(&pid), "the end of another board is no reason");
            seats.on_board_ended(&BoardId::from("b"));
            assert!(is_soon_gone(&pid).await, "{pid} still runs");
        } else {
            drop(seats);
            assert!(is_soon_gone(&pid).await, "{pid} still runs");
        }
    }
}

#[tokio::test]
async fn a_call_that_breaks_off_ends_the_process_and_what_follows_is_declared() {
    let long = "read -r line; head -c 2000 /dev/zero | tr '\\0' 1; echo; cat";
    for (script, code) in [
        ("read -r line; exit 3", FailureCode::Crashed),
        ("read -r line; exec >&-; sleep 60", FailureCode::Empty),
        ("read -r line; printf '\\377\\n'; cat", FailureCode::Protocol),
        (long, FailureCode::Protocol),
        ("read -r line; sleep 60", FailureCode::Timeout),
    ] {
        // Answered by the second process.
        let dir = tempfile::tempdir().expect("a directory");
        let mark = dir.path().join("mark").display().to_string();
        let script = format!("if [ -e {mark} ]; then {COUNTER}; else : > {mark}; {script}; fi");
        for restart in ["fresh", "fail"] {
            drop(std::fs::remove_file(&mark));
            let runner = runner();
            let mut first = session(restart, 0);
            first.timeout = Duration::from_secs(if code == FailureCode::Timeout { 1 } else { 10 });
            let failure = runner.answer(&sh(&script), &first).await.expect_err("no answer");
            assert_eq!(failure.code, code, "{script}: {failure}");
            let second = session(restart, 1);
            if restart == "fresh" {
                assert_eq!(numbers(&runner, &script, &second).await[1], 1, "{script}");
            } else {
                let failure = runner.answer(&sh(&script), &second).await.expect_err("it has lost its state");
                assert_eq!(failure.code, FailureCode::Refused, "{failure}");
                assert!(failure.message.contains("restart: fail"), "{failure}");
            }
        }
    }
}

#[tokio::test]
async fn a_program_that_cannot_begin_is_started_once_for_a_call_and_says_why() {
    for (script, code, words) in [
        ("echo no such module >&2; exit 3", FailureCode::Crashed, "exit status: 3: no such module"),
        ("exit 0", FailureCode::Empty, "wrote nothing"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let starts = dir.path().join("starts");
        let script = format!("echo >> {}; {script}", starts.display());
        for restart in ["fresh", "fail"] {
            drop(std::fs::remove_file(&starts));
            let failure = runner().answer(&sh(&script), &session(restart, 0)).await.expect_err("it cannot begin");
            assert!(failure.code == code && failure.message.contains(words), "{script}: {failure}");
            assert_eq!(std::fs::read_to_string(&starts).expect("it was started").lines().count(), 1);
        }
    }
}

#[tokio::test]
async fn a_process_that_has_ended_or_spoken_between_calls_is_replaced() {
    for (after, why) in [("exit 0", "it had ended"), ("echo '[0, 0]'; cat", "without being asked"), ("yes ''", "asked")]
    {
        let script = format!("read -r line; echo \"[$$]\"; sleep 0.1; {after}");
        for restart in ["fresh", "fail"] {
            let runner = runner();
            let first = numbers(&runner, &script, &session(restart, 0)).await;
            assert!(is_soon_gone(&first[0].to_string()).await, "{after}");
            let second = runner.answer(&sh(&script), &session(restart, 1)).await;
            match (restart, second) {
                ("fresh", Ok(reply)) => assert_ne!(reply.text, format!("{first:?}"), "{after}"),
                ("fail", Err(failure)) => assert!(failure.message.contains(why), "{after}: {failure}"),
                (_, answer) => panic!("{after}: {restart}: {answer:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_session_program_survives_an_error_that_it_reports() {
    let script = r#"read -r a; echo '{"error":"not now"}'; read -r b; echo '[2]'"#;
    let runner = runner();
    let failure = runner.answer(&sh(script), &session("fail", 0)).await.expect_err("told");
    assert_eq!(failure.message, "the program says: not now");
    assert_eq!(numbers(&runner, script, &session("fail", 1)).await, [2]);
}

#[tokio::test]
async fn an_abandoned_call_ends_its_session_process_and_discards_the_answer() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("pid");
    let script = format!("if [ -e {0} ]; then {COUNTER}; else echo $$ > {0}; read -r a; sleep 60; fi", file.display());
    let runner = Arc::new(runner());
    let asking = {
        let (runner, script) = (Arc::clone(&runner), script.clone());
        tokio::spawn(async move { runner.answer(&sh(&script), &session("fresh", 0)).await })
    };
    let pid = pid_in(&file).await;
    asking.abort();
    assert!(is_soon_gone(&pid).await, "{pid} still runs");
    assert_eq!(numbers(&runner, &script, &session("fresh", 1)).await[1], 1);
}

#[tokio::test]
async fn idle_processes_old_ones_and_too_many_have_limits() {
    let limits =
        |idle, life| Limits { sessions: 2, idle: Duration::from_millis(idle), life: Duration::from_millis(life) };
    for limits in [limits(200, 60_000), limits(60_000, 200)] {
        let runner = runner().with_limits(limits);
        let first = numbers(&runner, COUNTER, &session("fresh", 0)).await;
        assert!(is_soon_gone(&first[0].to_string()).await);
        let second = numbers(&runner, COUNTER, &session("fresh", 1)).await;
        assert_eq!(second[1], 1, "a fresh one");
    }
    let runner = runner().with_limits(limits(60_000, 60_000));
    let on = |board: &str| on_board(board, session("fresh", 0));
    for board in ["a", "b"] {
        assert_eq!(numbers(&runner, COUNTER, &on(board)).await[1], 1);
    }
    let failure = runner.answer(&sh(COUNTER), &on("c")).await.expect_err("one too many");
    assert_eq!(failure.code, FailureCode::Unreachable);
    runner.ended(&BoardId::from("a"));
    assert_eq!(numbers(&runner, COUNTER, &on("c")).await[1], 1, "there is room again");
}

#[tokio::test]
async fn a_process_of_an_earlier_run_is_not_taken_for_running() {
    let started = Instant::now();
    let failure = runner().answer(&sh(COUNTER), &session("fail", 4)).await.expect_err("there is none");
    assert_eq!(failure.code, FailureCode::Refused);
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(numbers(&runner(), COUNTER, &session("fresh", 4)).await[1], 1);
}

#[tokio::test]
async fn large_requests_and_much_on_standard_error_do_not_block() {
    let script = "while read -r line; do head -c 200000 /dev/zero | tr '\\0' e >&2; echo \"[${#line}]\"; done";
    let runner = runner();
    for occurrence in 0..3 {
        let mut call = session("fail", occurrence);
        let user = "x".repeat(300_000);
        call.decided.prompt = Arc::new(patchboard_kernel::view::Prompt { system: String::new(), user });
        assert!(numbers(&runner, script, &call).await[0] > 300_000);
    }
    let (program, call) = (sh("echo '[]'; sleep 60"), on_board("c", session("fail", 0)));
    let reply = runner.answer(&program, &call).await.expect("answered without reading");
    assert_eq!(serde_json::from_str::<Value>(&reply.text).expect("JSON"), json!([]));
}
