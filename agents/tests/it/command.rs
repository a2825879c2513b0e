//! The command agent, with real programs.

use std::path::Path;
use std::time::{Duration, Instant};

use patchboard_agents::command::ProgramRunner;
use patchboard_agents::config::{Environment, Program};
use patchboard_kernel::failure::FailureCode;
use patchboard_runtime::agent::{Call, CallResult};
use serde_json::{Value, json};

use crate::support::{call, is_alive, is_soon_gone, pid_in, seat, sh};

fn command_call() -> Call {
    let seat = seat(json!({"agent": "command", "patch": {"max_bytes": 500}}));
    call("counter", seat, "What is\nshown.", 2)
}

async fn ask(program: &Program, call: &Call) -> CallResult {
    ProgramRunner::new(&Environment::from_process()).answer(program, call).await
}

#[tokio::test]
async fn a_program_gets_one_line_and_answers_with_one() {
    let reply = ask(&sh("read -r line; printf '{\"patch\":[],\"got\":%s}\\n' \"$line\""), &command_call()).await;
    let reply: Value = serde_json::from_str(&reply.expect("a reply").text).expect("JSON");
    let expected = json!({"protocol": 1, "board": "b", "worker": "counter", "invocation": 3, "attempt": 1,
        "token": "counter:3:1", "view": "What is\nshown.",
        "shown": {"/seen": {"count": 2}}, "trigger": null, "system": "You are a test."});
    assert_eq!(reply["got"], expected);
}

#[tokio::test]
async fn program_outcomes_map_to_replies_and_failure_codes() {
    for (script, expected) in [
        ("echo '[]'", Ok("[]")),
        ("printf '[]'", Ok("[]")),
        // A value may span lines; text after it is ignored.
        (
            "printf '\\n{\\n  \"patch\": [\\n  ],\\n  \"intent\": \"a } \\\\\" b\"\\n}\\nbye\\n'",
            Ok("{\n  \"patch\": [\n  ],\n  \"intent\": \"a } \\\" b\"\n}"),
        ),
        ("printf '{\\n\"patch\": [\\n'", Ok("{\n\"patch\": [")),
        ("echo; echo '  [] '; echo ignored", Ok("[]")),
        ("echo '[]'; exit 3", Ok("[]")),
        ("echo 'not json'", Ok("not json")),
        ("printf '%s' '{\"error\":\"disk\\nfull\"}'", Err((FailureCode::Refused, "the program says: disk full"))),
        ("exit 0", Err((FailureCode::Empty, "the program wrote nothing"))),
        ("echo one >&2; echo two >&2; exit 7", Err((FailureCode::Crashed, "exit status: 7: two"))),
        ("kill -9 $$", Err((FailureCode::Crashed, "signal: 9"))),
        ("exec >&-; sleep 5", Err((FailureCode::Empty, "did not end"))),
        ("printf '\\377\\n'", Err((FailureCode::Protocol, "UTF-8"))),
    ] {
        match (ask(&sh(script), &command_call()).await, expected) {
            (Ok(reply), Ok(text)) => assert_eq!(reply.text, text, "{script}"),
            (Err(failure), Err((code, words))) => {
                assert_eq!(failure.code, code, "{script}: {failure}");
                assert!(failure.message.contains(words), "{script}: {failure}");
            }
            (answer, _) => panic!("{script}: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn a_large_request_and_a_talkative_program_do_not_block_each_other() {
    let mut call = command_call();
    call.decided.prompt =
        std::sync::Arc::new(patchboard_kernel::view::Prompt { system: String::new(), user: "x".repeat(1 << 20) });
    let script = "head -c 300000 /dev/zero | tr '\\0' 'e' >&2; head -c 200000 >/dev/null; cat >/dev/null; echo '[]'";
    assert_eq!(ask(&sh(script), &call).await.expect("a reply").text, "[]");
    assert_eq!(ask(&sh("echo '[]'"), &call).await.expect("answered without reading").text, "[]");
}

#[tokio::test]
async fn an_overlong_line_is_rejected_without_being_read_to_its_end() {
    let limit = 1000;
    let line = |length: usize| format!("head -c {length} /dev/zero | tr '\\0' 1; echo");
    assert_eq!(ask(&sh(&line(limit)), &command_call()).await.expect("just short enough").text.len(), limit);
    for script in [line(limit + 1), "yes 1 | tr -d '\\n'".to_owned(), "yes ''".to_owned()] {
        let started = Instant::now();
        let failure = ask(&sh(&script), &command_call()).await.expect_err("too long");
        assert_eq!(failure.code, FailureCode::Protocol, "{script}: {failure}");
        assert!(started.elapsed() < Duration::from_secs(5), "{script}");
    }
}

#[tokio::test]
async fn at_its_time_limit_a_program_is_killed_with_all_it_has_started() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("pid");
    let script = format!("trap '' TERM; sh -c 'echo $$ > {}; sleep 60; :' & sleep 60; :", file.display());
    let mut call = command_call();
    call.timeout = Duration::from_secs(1);
    let program = sh(&script);
    let asking = ask(&program, &call);
    let (answer, pid) = tokio::join!(asking, pid_in(&file));
    assert_eq!(answer.expect_err("no answer").code, FailureCode::Timeout);
    assert!(is_soon_gone(&pid).await, "the grandchild {pid} still runs");
}

#[tokio::test]
async fn an_abandoned_call_is_killed_with_its_children() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("pid");
    let script = format!("sh -c 'echo $$ > {}; sleep 60; :' & sleep 60; :", file.display());
    let asking = tokio::spawn(async move { ask(&sh(&script), &command_call()).await });
    let pid = pid_in(&file).await;
    assert!(is_alive(&pid));
    asking.abort();
    assert!(is_soon_gone(&pid).await, "the grandchild {pid} still runs");
}

#[tokio::test]
async fn nothing_that_a_program_has_started_outlives_its_answer() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("pid");
    let script =
        format!("sh -c 'echo $$ > {0}; sleep 60; :' & while [ ! -s {0} ]; do :; done; echo '[]'", file.display());
    let started = Instant::now();
    ask(&sh(&script), &command_call()).await.expect("a reply");
    assert!(started.elapsed() < Duration::from_secs(5));
    let pid = pid_in(&file).await;
    assert!(is_soon_gone(&pid).await, "the grandchild {pid} still runs");
}

#[tokio::test]
async fn a_program_sees_only_the_variables_it_was_given() {
    let path = std::env::var("PATH").expect("a path");
    let pairs = [("PATH", path.as_str()), ("HOME", "/h"), ("LANG", "C"), ("TMPDIR", "/t"), ("OPENAI_API_KEY", "hush")];
    let env = Environment::from_iter(pairs);
    let mut program = Program::new(vec!["env".into(), "-0".into()]);
    program.env.insert("EXTRA".into(), "e".into());
    let answer = ProgramRunner::new(&env).answer(&program, &command_call()).await;
    let text = answer.expect("a line").text;
    let mut names: Vec<&str> = text.split_terminator('\0').filter_map(|pair| pair.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["EXTRA", "HOME", "LANG", "PATH", "TMPDIR"]);
}

#[tokio::test]
async fn a_program_runs_in_the_directory_that_is_configured() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut program = Program::new(vec!["pwd".into()]);
    program.cwd = Some(dir.path().canonicalize().expect("a path"));
    let text = ask(&program, &command_call()).await.expect("a line").text;
    assert_eq!(Some(Path::new(&text)), program.cwd.as_deref());
}

#[tokio::test]
async fn a_program_that_is_not_there_is_a_matter_of_configuration() {
    for program in [vec!["no-such-program-here".to_owned()], vec!["/dev/null".to_owned()], vec![]] {
        let failure = ask(&Program::new(program), &command_call()).await.expect_err("cannot start");
        assert_eq!(failure.code, FailureCode::NotConfigured, "{failure}");
    }
}
