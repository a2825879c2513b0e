//! `patchboard mcp --workspace`: processes that edit one directory, without a daemon, through kills and departures.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

const CODE: &str = "def one():\n    return 1\n";

/// A directory with a file.
fn directory() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("a.py"), CODE).expect("a file");
    directory
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_patchboard"));
    command.args(["mcp", "--workspace"]).arg(directory).args(arguments);
    command.env_remove("PATCHBOARD_DATA_DIR").env_remove("PATCHBOARD_URL").env_remove("RUST_LOG");
    command
}

/// What another command says of the journal.
fn journal(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_patchboard"));
    let data = directory.join(".patchboard/workspace");
    let told = command.args(arguments).arg("--data-dir").arg(data).output().expect("the binary can be run");
    assert!(told.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&told.stderr));
    String::from_utf8(told.stdout).expect("UTF-8")
}

/// A process, and its client.
struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    asked: u64,
}

impl Agent {
    /// An agent whose client calls itself `client`.
    fn new(directory: &Path, client: &str, arguments: &[&str]) -> Self {
        let mut child = command(directory, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary can be run");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        let mut agent = Self { child, stdin, stdout: BufReader::new(stdout), asked: 0 };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}});
        let told = agent.ask("initialize", &hello);
        assert_eq!(told["result"]["serverInfo"]["name"], "patchboard", "{told}");
        agent
    }

    fn send(&mut self, method: &str, params: &Value) {
        self.asked += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.asked, "method": method, "params": params});
        writeln!(self.stdin.as_mut().expect("it is open"), "{message}").expect("it reads");
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it writes");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.send(method, params);
        self.hear()
    }

    /// What a tool answers, and its code, if it is an error.
    fn call(&mut self, tool: &str, arguments: &Value) -> (String, Option<String>) {
        let told = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        let result = &told["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{told}")).to_owned();
        let code = (result["isError"] == true)
            .then(|| result["structuredContent"]["code"].as_str().expect("a code").to_owned());
        (text, code)
    }

    fn does(&mut self, tool: &str, arguments: &Value) -> String {
        let (text, code) = self.call(tool, arguments);
        assert_eq!(code, None, "{tool}: {text}");
        text
    }

    fn refuses(&mut self, code: &str, tool: &str, arguments: &Value) -> String {
        let (text, told) = self.call(tool, arguments);
        assert_eq!(told.as_deref(), Some(code), "{tool}: {text}");
        text
    }

    fn replaces(from: &str, to: &str) -> Value {
        // An intent that has the text in it would have it twice in the file.
        let intent = format!("from {} to {}", from.replace(' ', "-"), to.replace(' ', "-"));
        json!({"path": "a.py", "old_str": from, "new_str": to, "intent": intent})
    }

    /// Goes as a client does that is done.
    fn leaves(mut self) {
        drop(self.stdin.take());
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                assert!(status.success(), "{status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it stays");
    }

    /// Goes as a process does that is killed.
    fn killed(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn address(directory: &Path) -> Value {
    let text = std::fs::read(directory.join(".patchboard/host.json")).expect("there is a host");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn agents_share_a_directory_and_hear_of_each_other() {
    let directory = directory();
    let (mut one, mut two) =
        (Agent::new(directory.path(), "Some Editor", &[]), Agent::new(directory.path(), "other", &["--name", "ada"]));
    let tools = one.ask("tools/list", &json!({}));
    let names: Vec<&str> =
        tools["result"]["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["view", "list", "search", "create", "str_replace", "insert", "delete", "rename", "changes"]);
    assert!(
        tools["result"]["tools"][4]["description"]
            .as_str()
            .is_some_and(|text| text.contains("You are `Some_Editor-1`")),
        "{tools}"
    );
    let view = json!({"path": "a.py"});
    assert!(one.does("view", &view).contains("return 1"));
    two.does("view", &view);
    two.does("str_replace", &Agent::replaces("return 1", "return 2"));
    let text = one.refuses("stale_target", "str_replace", &Agent::replaces("return 1", "return 3"));
    assert!(text.contains("+    return 2") && text.contains("ada"), "{text}");
    one.does("str_replace", &Agent::replaces("return 2", "return 3"));
    let code = std::fs::read_to_string(directory.path().join("a.py")).expect("a file");
    assert!(
        code.ends_with("    return 3\n") && code.contains("# Some_Editor-1: from return-2 to return-3\n"),
        "{code}"
    );
    let changes = two.does("changes", &json!({}));
    let lines: Vec<&str> = changes.lines().collect();
    assert_eq!(lines[0], "Some_Editor-1 changed a.py: from return-2 to return-3");
    assert_eq!(lines[1], "ada (you) changed a.py: from return-1 to return-2");
    assert_eq!(lines[2], "external changed a.py");
    // What is ours is not served, and git does not see it.
    one.refuses("not_served", "view", &json!({"path": ".patchboard/host.json"}));
    assert_eq!(std::fs::read_to_string(directory.path().join(".patchboard/.gitignore")).expect("a file"), "*\n");
    one.leaves();
    two.leaves();
    assert!(journal(directory.path(), &["log", "last"]).contains("from return-2 to return-3"));
    assert!(journal(directory.path(), &["why", "last", "/files/a.py"]).contains("Some_Editor-1"));
    journal(directory.path(), &["verify", "last"]);
    journal(directory.path(), &["replay", "last"]);
    assert!(!directory.path().join(".patchboard/host.json").exists());
}

#[test]
fn a_client_that_shows_less_of_a_result_is_told_less_and_has_read_no_more() {
    let directory = directory();
    let text: String = (1..=400).map(|at| format!("line {at}\n")).collect();
    std::fs::write(directory.path().join("a.py"), text).expect("a file");
    let mut agent = Agent::new(directory.path(), "t", &["--room", "2000"]);
    let text = agent.does("view", &json!({"path": "a.py"}));
    assert!(text.chars().count() <= 2_000 && text.contains("shows what follows"), "{text}");
    agent.refuses("unseen_target", "str_replace", &Agent::replaces("line 399\n", "399\n"));
    agent.does("str_replace", &Agent::replaces("line 9\n", "9\n"));
    agent.leaves();
}

#[test]
fn many_that_come_at_once_are_at_one_board() {
    let directory = directory();
    let path = directory.path();
    std::thread::scope(|scope| {
        for agent in 0..6 {
            scope.spawn(move || {
                let mut agent_at = Agent::new(path, "many", &[]);
                let file = json!({"path": format!("file_{agent}.txt"), "file_text": "x\n", "intent": "to be there"});
                agent_at.does("create", &file);
                agent_at.leaves();
            });
        }
    });
    for agent in 0..6 {
        assert!(path.join(format!("file_{agent}.txt")).exists(), "{agent}");
    }
    let boards = journal(path, &["boards", "--output", "json"]);
    assert_eq!(boards.matches("\"blueprint\"").count().max(boards.lines().count()), 1, "{boards}");
    journal(path, &["verify", "last"]);
}

#[test]
fn when_the_host_is_gone_another_is_it_and_nothing_is_done_twice() {
    let directory = directory();
    let view = json!({"path": "a.py"});
    for is_killed in [true, false] {
        std::fs::write(directory.path().join("a.py"), CODE).expect("a file");
        let mut first = Agent::new(directory.path(), "t", &[]);
        first.does("view", &view);
        let mut second = Agent::new(directory.path(), "t", &[]);
        second.does("view", &view);
        second.does("str_replace", &Agent::replaces("return 1", "return 2"));
        let host = address(directory.path())["pid"].clone();
        assert_eq!(host, first.child.id());
        if is_killed {
            first.killed()
        } else {
            first.leaves()
        }
        // It has lost what it had read and is told so, and what it needs comes with the next refusal.
        second.refuses("reads_lost", "str_replace", &Agent::replaces("return 2", "return 3"));
        let text = second.refuses("unseen_target", "str_replace", &Agent::replaces("return 2", "return 3"));
        assert!(text.contains("return 2"), "{text}");
        assert_eq!(address(directory.path())["pid"], second.child.id());
        second.does("str_replace", &Agent::replaces("return 2", "return 3"));
        let mut third = Agent::new(directory.path(), "t", &[]);
        assert!(third.does("view", &view).contains("return 3"));
        third.leaves();
        second.leaves();
        journal(directory.path(), &["verify", "last"]);
        journal(directory.path(), &["replay", "last"]);
    }
    let boards = journal(directory.path(), &["boards"]);
    assert_eq!(boards.matches("workspace").count(), 1, "{boards}");
}

#[test]
fn a_call_that_is_under_way_when_the_host_is_killed_is_answered_by_the_next() {
    let directory = directory();
    let mut first = Agent::new(directory.path(), "t", &[]);
    first.does("list", &json!({}));
    let mut second = Agent::new(directory.path(), "t", &[]);
    second.does("list", &json!({}));
    // The host stands still, so that the call is under way for certain.
    crate::daemon::send("-STOP", first.child.id());
    let file = json!({"name": "create", "arguments": {"path": "new.txt", "file_text": "x\n", "intent": "to be there"}});
    second.send("tools/call", &file);
    std::thread::sleep(Duration::from_millis(300));
    first.killed();
    let told = second.hear();
    assert_eq!(told["result"]["isError"], false, "{told}");
    assert_eq!(std::fs::read_to_string(directory.path().join("new.txt")).expect("a file"), "x\n");
    second.leaves();
}

/// Lets agents that come from now on reach the host through a way on which the answer to the first `insert` is lost; what is
/// done at that moment.
fn loses_an_answer(directory: &Path, then: impl Fn() + Send + Sync + 'static) {
    let mut address = address(directory);
    let host = u16::try_from(address["port"].as_u64().expect("a port")).expect("a port");
    let way = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    address["port"] = json!(way.local_addr().expect("it listens").port());
    std::fs::write(directory.join(".patchboard/host.json"), address.to_string()).expect("written");
    let (then, is_lost) = (Arc::new(then), Arc::new(AtomicBool::new(false)));
    std::thread::spawn(move || {
        for from in way.incoming() {
            let Ok(mut from) = from else { return };
            let Ok(mut to) = TcpStream::connect(("127.0.0.1", host)) else { continue };
            let (mut back_from, mut back_to) = (to.try_clone().expect("a socket"), from.try_clone().expect("a socket"));
            let is_edit = Arc::new(AtomicBool::new(false));
            let (asked, then, is_lost) = (Arc::clone(&is_edit), Arc::clone(&then), Arc::clone(&is_lost));
            std::thread::spawn(move || {
                let mut bytes = [0; 65536];
                while let Ok(read @ 1..) = from.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
                    is_edit.fetch_or(text.contains("insert_text"), Ordering::SeqCst);
                    if to.write_all(&bytes[..read]).is_err() {
                        break;
                    }
                }
                drop(to.shutdown(Shutdown::Both));
            });
            std::thread::spawn(move || {
                let mut bytes = [0; 65536];
                while let Ok(read @ 1..) = back_from.read(&mut bytes) {
                    if asked.load(Ordering::SeqCst) && !is_lost.swap(true, Ordering::SeqCst) {
                        then();
                        break;
                    }
                    if back_to.write_all(&bytes[..read]).is_err() {
                        break;
                    }
                }
                drop((back_to.shutdown(Shutdown::Both), back_from.shutdown(Shutdown::Both)));
            });
        }
    });
}

#[test]
fn an_edit_whose_answer_is_lost_is_made_once_whatever_became_of_the_host() {
    for is_killed in [false, true] {
        let directory = directory();
        let mut first = Agent::new(directory.path(), "t", &[]);
        first.does("list", &json!({}));
        let host = first.child.id();
        loses_an_answer(directory.path(), move || {
            if is_killed {
                crate::daemon::send("-KILL", host);
            }
        });
        let mut second = Agent::new(directory.path(), "t", &[]);
        second.does("view", &json!({"path": "a.py"}));
        let insert = json!({"path": "a.py", "insert_line": 2, "insert_text": "x = 1\n", "intent": "to be there"});
        let told = second.does("insert", &insert);
        let expected = if is_killed { "The edit was made." } else { "a.py was changed; it has version 2" };
        assert!(told.starts_with(expected), "{told}");
        let text = std::fs::read_to_string(directory.path().join("a.py")).expect("a file");
        assert_eq!(text.matches("x = 1").count(), 1, "{text}");
        second.leaves();
        drop(first);
        journal(directory.path(), &["verify", "last"]);
    }
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
    // Nobody comes in without the token.
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

#[test]
fn what_it_cannot_begin_with_is_said_and_links_are_not_followed() {
    let directory = directory();
    let refused = |output: Output, code: &str| {
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains(code), "{code}: {told}");
        assert!(output.stdout.is_empty());
    };
    let run = |mut command: Command| command.stdin(Stdio::null()).output().expect("the binary can be run");
    refused(run(command(&directory.path().join("none"), &[])), "bad_directory");
    refused(run(command(directory.path(), &["--name", "a b"])), "bad_name");
    refused(run(command(directory.path(), &["--name", "external"])), "bad_name");
    refused(run(command(directory.path(), &["--url", "http://127.0.0.1:1"])), "--url");
    refused(run(command(directory.path(), &["--board", "b", "--worker", "w"])), "cannot be used with");
    // A daemon that the environment names is not meant.
    let mut named = command(directory.path(), &[]);
    named.env("PATCHBOARD_URL", "http://127.0.0.1:1");
    assert!(run(named).status.success());

    let elsewhere = tempfile::tempdir().expect("a directory");
    let nothing_there = || assert_eq!(std::fs::read_dir(elsewhere.path()).expect("a directory").count(), 0);
    let own: PathBuf = directory.path().join(".patchboard");
    std::fs::remove_dir_all(&own).expect("removed");
    symlink(elsewhere.path(), &own).expect("a link");
    refused(run(command(directory.path(), &[])), "workspace_untrusted");
    std::fs::remove_file(&own).expect("removed");
    std::fs::create_dir_all(own.join("workspace")).expect("directories");
    symlink(elsewhere.path().join("stolen"), own.join("workspace/patchboard.db")).expect("a link");
    let mut agent = Agent::new(directory.path(), "t", &[]);
    let begun = Instant::now();
    agent.refuses("workspace_untrusted", "list", &json!({}));
    assert!(begun.elapsed() < Duration::from_secs(20), "it is said at once");
    agent.leaves();
    nothing_there();
}
