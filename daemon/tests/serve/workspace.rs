//! `patchboard mcp --workspace`: processes edit one directory without a daemon, through kills and disconnects.

mod asking;
mod hosts;
mod messages;
mod settings;
mod ways;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

const CODE: &str = "def one():\n    return 1\n";

/// Time limit for a host to notice that it has no clients.
const SOON: Duration = Duration::from_secs(30);

/// A directory with a file; its host ends with the test.
struct Directory(TempDir);

impl Directory {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(address) = try_address(self.path()) {
            drop(Command::new("kill").args(["-KILL", &address["pid"].to_string()]).status());
        }
    }
}

fn directory() -> Directory {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("a.py"), CODE).expect("a file");
    Directory(directory)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_patchboard"));
    command.args(["mcp", "--workspace"]).arg(directory).args(arguments);
    command.env_remove("PATCHBOARD_DATA_DIR").env_remove("PATCHBOARD_URL").env_remove("RUST_LOG");
    command
}

/// Returns the output of a command that reads the journal.
fn journal(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_patchboard"));
    let data = directory.join(".patchboard/workspace");
    let output = command.args(arguments).arg("--data-dir").arg(data).output().expect("the binary can be run");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// An agent process and its client connection.
struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    asked: u64,
}

impl Agent {
    /// Starts an agent with a client that identifies itself as `client`.
    fn new(directory: &Path, client: &str, arguments: &[&str]) -> Self {
        let mut child = command(directory, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary can be run");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        let mut agent = Self { child, stdin, stdout: BufReader::new(stdout), asked: 0 };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}});
        let answer = agent.ask("initialize", &hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "patchboard", "{answer}");
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

    /// Calls a tool; returns its text, and the code if it is an error.
    fn call(&mut self, tool: &str, arguments: &Value) -> (String, Option<String>) {
        let answer = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
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
        let (text, found) = self.call(tool, arguments);
        assert_eq!(found.as_deref(), Some(code), "{tool}: {text}");
        text
    }

    fn replaces(from: &str, to: &str) -> Value {
        // The intent must not contain the text itself, or the text would occur twice in the file.
        let intent = format!("from {} to {}", from.replace(' ', "-"), to.replace(' ', "-"));
        json!({"path": "a.py", "old_str": from, "new_str": to, "intent": intent})
    }

    /// Disconnects as a client does that has finished.
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

    /// Kills the process.
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

fn try_address(directory: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(directory.join(".patchboard/host.json")).ok()?).ok()
}

fn address(directory: &Path) -> Value {
    try_address(directory).expect("there is a host")
}

/// Returns the process id of the host.
fn host(directory: &Path) -> u32 {
    address(directory)["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process")
}

/// Returns the state of a process as `ps` prints it; empty if there is none.
fn state(pid: u32) -> String {
    let output = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().expect("ps can be run");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns true if a process runs. A zombie does not count.
fn lives(pid: u32) -> bool {
    !matches!(state(pid).chars().next(), None | Some('Z'))
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
    let pid = host(directory.path());
    assert!(pid != one.child.id() && pid != two.child.id());
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
    // PatchBoard's own files are not served, and git ignores them.
    one.refuses("not_served", "view", &json!({"path": ".patchboard/host.json"}));
    assert_eq!(std::fs::read_to_string(directory.path().join(".patchboard/.gitignore")).expect("a file"), "*\n");
    one.leaves();
    two.leaves();
    assert!(journal(directory.path(), &["log", "last"]).contains("from return-2 to return-3"));
    assert!(journal(directory.path(), &["why", "last", "/files/a.py"]).contains("Some_Editor-1"));
    journal(directory.path(), &["verify", "last"]);
    journal(directory.path(), &["replay", "last"]);
    // The host was started implicitly, so it ends by itself.
    until("the host stays", || try_address(directory.path()).is_none() && !lives(pid));
}

#[test]
fn a_client_that_shows_less_of_a_result_gets_less_and_has_read_no_more() {
    let directory = directory();
    let text: String = (1..=400).map(|at| format!("line {at}\n")).collect();
    std::fs::write(directory.path().join("a.py"), text).expect("a file");
    let mut agent = Agent::new(directory.path(), "t", &["--room", "2000"]);
    let text = agent.does("view", &json!({"path": "a.py"}));
    assert!(text.chars().count() <= 2_000 && text.contains("shows what follows"), "{text}");
    agent.refuses("unseen_target", "str_replace", &Agent::replaces("line 399\n", "399\n"));
    agent.does("str_replace", &Agent::replaces("line 9\n", "9\n"));
    agent.leaves();
    // Default limit on the length of a result.
    let text: String = (1..=4_000).map(|at| format!("line {at} of many\n")).collect();
    std::fs::write(directory.path().join("b.txt"), text).expect("a file");
    let mut agent = Agent::new(directory.path(), "t", &[]);
    let text = agent.does("view", &json!({"path": "b.txt"}));
    assert!((29_000..=30_000).contains(&text.chars().count()) && text.contains("shows what follows"), "{text}");
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
fn names_are_distinguished_and_what_is_said_in_one_is_kept_by_the_next_host() {
    let directory = directory();
    let path = directory.path();
    let named = ["--name", "ada"];
    // As with a checked-in configuration: both agents have one name.
    let (mut ada, mut other) = (Agent::new(path, "t", &named), Agent::new(path, "t", &named));
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let instructions =
        other.ask("initialize", &hello)["result"]["instructions"].as_str().expect("instructions").to_owned();
    let root = path.canonicalize().expect("it is there").display().to_string();
    assert!(
        instructions.contains("you are called ada-2, as another agent is called ada") && instructions.contains(&root),
        "{instructions}"
    );
    ada.does("view", &json!({"path": "a.py"}));
    ada.does("str_replace", &Agent::replaces("return 1", "return 2"));
    other.does("view", &json!({"path": "a.py"}));
    // After the rename, no current path has an edit by ada on record.
    other.does("rename", &json!({"path": "a.py", "new_path": "b.py", "intent": "another name"}));
    crate::daemon::send("-KILL", host(path));
    other.does("view", &json!({"path": "b.py"}));
    let comment = "    # ada: from return-1 to return-2\n";
    let takes = json!({"path": "b.py", "old_str": comment, "new_str": "", "intent": "to be rid of it"});
    other.refuses("annotation_lost", "str_replace", &takes);
    ada.leaves();
    other.leaves();
}

#[test]
fn paths_and_argument_names_of_other_editors_are_understood() {
    let directory = directory();
    let path = directory.path();
    std::fs::write(path.join("dos.txt"), "one\r\ntwo\r\n").expect("a file");
    let mut agent = Agent::new(path, "t", &[]);
    let root = path.display();
    // Absolute and relative paths of the directory are equivalent.
    assert!(agent.does("view", &json!({"path": format!("{root}/a.py")})).contains("return 1"));
    let replaces =
        json!({"file_path": format!("{root}/a.py"), "old_string": "return 1", "new_string": "return 2", "intent": "x"});
    agent.does("str_replace", &replaces);
    assert!(agent.does("view", &json!({"path": root.to_string()})).contains("a.py  ("));
    let text = agent.refuses("bad_arguments", "view", &json!({"path": "/etc/passwd"}));
    assert!(text.contains("which is the directory that you edit"), "{text}");
    agent.refuses("bad_arguments", "view", &json!({"path": format!("{root}/../a.py")}));
    // A missing directory differs from an empty one.
    std::fs::create_dir(path.join("empty")).expect("a directory");
    agent.refuses("no_such_file", "list", &json!({"path": "none"}));
    assert!(agent.does("list", &json!({"path": "empty"})).contains("There are no files here"));
    // Line endings are preserved.
    let shown = agent.does("view", &json!({"path": "dos.txt"}));
    assert!(shown.lines().next().is_some_and(|head| head.ends_with("lines end in CRLF")), "{shown}");
    agent.does("create", &json!({"path": "dos.txt", "file_text": "one\nzwei\n", "intent": "in German"}));
    assert_eq!(std::fs::read_to_string(path.join("dos.txt")).expect("a file"), "one\r\nzwei\r\n");
    agent.refuses("no_change", "create", &json!({"path": "dos.txt", "file_text": "one\nzwei\n", "intent": "again"}));
    agent.leaves();
}

#[test]
fn invalid_start_arguments_and_linked_folders_are_reported() {
    let directory = directory();
    let refused = |output: Output, code: &str| {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && stderr.contains(code), "{code}: {stderr}");
        assert!(output.stdout.is_empty());
    };
    let run = |mut command: Command| command.stdin(Stdio::null()).output().expect("the binary can be run");
    refused(run(command(&directory.path().join("none"), &[])), "bad_directory");
    refused(run(command(directory.path(), &["--name", "a b"])), "bad_name");
    for name in ["external", "TODO", "note"] {
        refused(run(command(directory.path(), &["--name", name])), "bad_name");
    }
    // `--host` needs the host's lock on stdin, which only an agent that starts a host passes on.
    let output = run(command(directory.path(), &["--host"]));
    assert!(
        output.status.code() == Some(1) && String::from_utf8_lossy(&output.stderr).contains("no_host"),
        "{output:?}"
    );
    refused(run(command(directory.path(), &["--url", "http://127.0.0.1:1"])), "--url");
    refused(run(command(directory.path(), &["--board", "b", "--worker", "w"])), "cannot be used with");
    // `PATCHBOARD_URL` is ignored with `--workspace`.
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
