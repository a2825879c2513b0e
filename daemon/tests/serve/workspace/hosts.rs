//! Agents at a directory when its host is killed, is suspended, or loses its own files there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::ways::{Then, way};
use super::{Agent, address, directory, host, journal, lives, state, until};

/// Suspends a process with SIGSTOP.
fn stops(pid: u32) {
    crate::daemon::send("-STOP", pid);
    until("it goes on", || state(pid).starts_with('T'));
}

#[test]
fn when_the_host_is_gone_another_is_it_and_nothing_is_done_twice() {
    let directory = directory();
    let view = json!({"path": "a.py"});
    let mut first = Agent::new(directory.path(), "t", &[]);
    first.does("view", &view);
    let mut second = Agent::new(directory.path(), "t", &[]);
    second.does("view", &view);
    second.does("str_replace", &Agent::replaces("return 1", "return 2"));
    let before = host(directory.path());
    crate::daemon::send("-KILL", before);
    // The agent's read set is lost. It gets `reads_lost`, and the next rejection shows the lines that it needs.
    second.refuses("reads_lost", "str_replace", &Agent::replaces("return 2", "return 3"));
    let text = second.refuses("unseen_target", "str_replace", &Agent::replaces("return 2", "return 3"));
    assert!(text.contains("return 2"), "{text}");
    assert_ne!(host(directory.path()), before);
    second.does("str_replace", &Agent::replaces("return 2", "return 3"));
    let mut third = Agent::new(directory.path(), "t", &[]);
    assert!(third.does("view", &view).contains("return 3"));
    for agent in [first, second, third] {
        agent.leaves();
    }
    journal(directory.path(), &["verify", "last"]);
    journal(directory.path(), &["replay", "last"]);
    let boards = journal(directory.path(), &["boards"]);
    assert_eq!(boards.matches("workspace").count(), 1, "{boards}");
}

#[test]
fn other_agents_continue_after_the_first_is_stopped_or_killed() {
    let directory = directory();
    let view = json!({"path": "a.py"});
    let mut first = Agent::new(directory.path(), "t", &[]);
    first.does("view", &view);
    let host = host(directory.path());
    let mut second = Agent::new(directory.path(), "t", &[]);
    second.does("view", &view);
    stops(first.child.id());
    let begun = Instant::now();
    second.does("str_replace", &Agent::replaces("return 1", "return 2"));
    first.killed();
    // The read set is kept.
    second.does("str_replace", &Agent::replaces("return 2", "return 3"));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(self::host(directory.path()), host);
    second.leaves();
}

#[test]
fn a_stopped_host_is_named_soon() {
    let directory = directory();
    let mut agent = Agent::new(directory.path(), "t", &[]);
    agent.does("view", &json!({"path": "a.py"}));
    let host = host(directory.path());
    stops(host);
    let begun = Instant::now();
    let heard = agent.ask("tools/call", &json!({"name": "list", "arguments": {}}));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let error = &heard["result"]["structuredContent"];
    assert_eq!(error["code"], "host_unresponsive", "{heard}");
    assert!(error["help"].as_str().is_some_and(|help| help.contains(&format!("kill -CONT {host}"))), "{error}");
    crate::daemon::send("-CONT", host);
    agent.does("str_replace", &Agent::replaces("return 1", "return 2"));
    agent.leaves();
}

#[test]
fn a_call_that_is_under_way_when_the_host_is_killed_is_answered_by_the_next() {
    let directory = directory();
    let mut agent = Agent::new(directory.path(), "t", &[]);
    agent.does("list", &json!({}));
    // The host is suspended, so that the call is certainly in flight.
    let host = host(directory.path());
    stops(host);
    let file = json!({"name": "create", "arguments": {"path": "new.txt", "file_text": "x\n", "intent": "to be there"}});
    agent.send("tools/call", &file);
    std::thread::sleep(Duration::from_millis(300));
    crate::daemon::send("-KILL", host);
    let answer = agent.hear();
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert_eq!(std::fs::read_to_string(directory.path().join("new.txt")).expect("a file"), "x\n");
    agent.leaves();
}

#[test]
fn when_what_is_theirs_is_taken_away_all_meet_again_at_one_host() {
    for is_emptied in [false, true] {
        let directory = directory();
        let view = json!({"path": "a.py"});
        let mut first = Agent::new(directory.path(), "t", &["--name", "ada"]);
        first.does("view", &view);
        let before = host(directory.path());
        let own = directory.path().join(".patchboard");
        match is_emptied {
            true => {
                for entry in std::fs::read_dir(&own).expect("a directory") {
                    let path = entry.expect("an entry").path();
                    if path.is_dir() {
                        std::fs::remove_dir_all(path).expect("removed");
                    } else {
                        std::fs::remove_file(path).expect("removed");
                    }
                }
            }
            // Like `git clean -fdx`.
            false => std::fs::remove_dir_all(&own).expect("removed"),
        }
        let mut second = Agent::new(directory.path(), "t", &["--name", "bob"]);
        second.does("view", &view);
        second.does("str_replace", &Agent::replaces("return 1", "return 2"));
        first.refuses("reads_lost", "str_replace", &Agent::replaces("return 2", "return 3"));
        first.refuses("unseen_target", "str_replace", &Agent::replaces("return 2", "return 3"));
        first.does("str_replace", &Agent::replaces("return 2", "return 3"));
        let text = second.refuses("stale_target", "str_replace", &Agent::replaces("return 2", "return 4"));
        assert!(text.contains("return 3") && text.contains("ada"), "{text}");
        until("the host before stays", || !lives(before));
        first.leaves();
        second.leaves();
        journal(directory.path(), &["verify", "last"]);
    }
}

#[test]
fn an_edit_with_a_lost_answer_is_made_once_even_after_a_kill() {
    for is_killed in [false, true] {
        let directory = directory();
        let mut first = Agent::new(directory.path(), "t", &[]);
        first.does("list", &json!({}));
        let host = host(directory.path());
        let is_lost = AtomicBool::new(false);
        let loses = move |text: &str| {
            if !text.contains("insert_text") || is_lost.swap(true, Ordering::SeqCst) {
                return Then::Arrives;
            }
            if is_killed {
                crate::daemon::send("-KILL", host);
            }
            Then::IsLost
        };
        way(directory.path(), |_| Then::Arrives, loses);
        let mut second = Agent::new(directory.path(), "t", &[]);
        second.does("view", &json!({"path": "a.py"}));
        let insert = json!({"path": "a.py", "insert_line": 2, "insert_text": "x = 1\n", "intent": "to be there"});
        let shown = second.does("insert", &insert);
        let expected = if is_killed { "The edit was made." } else { "a.py was changed; it has version 2" };
        assert!(shown.starts_with(expected), "{shown}");
        let text = std::fs::read_to_string(directory.path().join("a.py")).expect("a file");
        assert_eq!(text.matches("x = 1").count(), 1, "{text}");
        second.leaves();
        drop(first);
        journal(directory.path(), &["verify", "last"]);
    }
}

#[test]
fn an_edit_to_an_unreachable_host_is_written_once() {
    let directory = directory();
    let mut first = Agent::new(directory.path(), "t", &[]);
    first.does("list", &json!({}));
    let (before, file) = (address(directory.path()), directory.path().join(".patchboard/host.json"));
    let vanishes = move |text: &str| {
        if !text.contains("insert_text") {
            return Then::Arrives;
        }
        std::fs::write(&file, before.to_string()).expect("written");
        Then::Stalls
    };
    way(directory.path(), vanishes, |_| Then::Arrives);
    let mut second = Agent::new(directory.path(), "t", &[]);
    second.does("view", &json!({"path": "a.py"}));
    let insert = json!({"path": "a.py", "insert_line": 2, "insert_text": "x = 1\n", "intent": "to be there"});
    let (text, code) = second.call("insert", &insert);
    assert_ne!(code.as_deref(), Some("host_unresponsive"), "{text}");
    if code.is_some() {
        second.does("insert", &insert);
    }
    let text = std::fs::read_to_string(directory.path().join("a.py")).expect("a file");
    assert_eq!(text.matches("x = 1").count(), 1, "{text}");
    second.leaves();
}

#[test]
fn an_agent_views_and_edits_though_its_host_loses_its_folder() {
    let directory = directory();
    let mut first = Agent::new(directory.path(), "t", &[]);
    first.does("list", &json!({}));
    let (own, is_gone) = (directory.path().join(".patchboard"), AtomicBool::new(false));
    let takes = move |text: &str| {
        if text.contains(r#""command":"view""#) && !is_gone.swap(true, Ordering::SeqCst) {
            std::fs::remove_dir_all(&own).expect("removed");
        }
        Then::Arrives
    };
    way(directory.path(), |_| Then::Arrives, takes);
    let mut second = Agent::new(directory.path(), "t", &[]);
    assert!(second.does("view", &json!({"path": "a.py"})).contains("return 1"));
    second.does("str_replace", &Agent::replaces("return 1", "return 2"));
    second.leaves();
    journal(directory.path(), &["verify", "last"]);
}

#[tokio::test]
async fn when_the_board_has_ended_there_is_another() {
    let directory = directory();
    let mut agent = Agent::new(directory.path(), "t", &[]);
    agent.does("view", &json!({"path": "a.py"}));
    let before = address(directory.path());
    let (port, board) = (before["port"].as_u64().expect("a port"), before["board"].as_str().expect("a board"));
    let url = format!("http://127.0.0.1:{port}/v1/boards/{board}");
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    // Requests without the token are rejected.
    assert_eq!(client.get(&url).send().await.expect("an answer").status(), 401);
    let token = before["token"].as_str().expect("a token");
    let cancelled = client.post(format!("{url}/cancel")).bearer_auth(token).json(&json!({})).send().await;
    assert_eq!(cancelled.expect("an answer").status(), 200);
    agent.refuses("reads_lost", "str_replace", &Agent::replaces("return 1", "return 2"));
    assert!(agent.does("view", &json!({"path": "a.py"})).contains("return 1"));
    agent.does("str_replace", &Agent::replaces("return 1", "return 2"));
    assert_ne!(address(directory.path())["board"], before["board"]);
    agent.leaves();
    let boards = journal(directory.path(), &["boards"]);
    assert!(boards.contains("cancelled") && boards.matches("workspace").count() == 2, "{boards}");
}
