//! `patchboard doctor` in set-ups that are really broken.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use patchboard_endpoint::{Act, Endpoint};
use serde_json::Value;

use crate::sandbox::{Ran, Sandbox};

/// A data directory with one board in it that has ended.
fn healthy() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "notes.yaml", "--request", r#"{"topic":"x"}"#, "--data-dir", "d", "--quiet"]);
    assert!(sandbox.path().join("d/patchboard.db").exists());
    sandbox
}

fn doctor(sandbox: &Sandbox, arguments: &[&str]) -> Ran {
    let all = ["doctor", "--output", "json", "--data-dir", "d", "--listen", "127.0.0.1:0"];
    sandbox.run(&all.iter().chain(arguments).copied().collect::<Vec<_>>())
}

/// The only finding of a check with this severity; its message and help.
#[track_caller]
fn finding(ran: &Ran, check: &str, severity: &str) -> String {
    let all = ran.json();
    let findings = all["findings"].as_array().expect("a list");
    let of_check: Vec<&Value> = findings.iter().filter(|finding| finding["check"] == check).collect();
    let [found] = of_check.as_slice() else { panic!("{check}: {of_check:?}") };
    assert_eq!(found["severity"], severity, "{found}");
    assert_eq!(found["help"].is_string(), severity != "ok", "{found}");
    format!("{} {}", found["message"], found["help"])
}

#[test]
fn nothing_is_wrong_with_a_set_up_that_works() {
    let sandbox = healthy();
    let ran = doctor(&sandbox, &[]).exits(0);
    assert_eq!(ran.json()["ok"], true);
    for check in ["version", "configuration", "data_dir", "sync", "journal", "boards", "clock", "daemon", "address"] {
        finding(&ran, check, "ok");
    }
    let text = sandbox.run(&["doctor", "--data-dir", "d", "--listen", "127.0.0.1:0"]).exits(0).stdout;
    assert!(text.contains("ok       journal") && text.contains("0 wrong"), "{text}");
    // It has changed nothing, and makes no directory where there is none.
    let ran = sandbox.run(&["doctor", "--output", "json", "--data-dir", "new/d", "--listen", "127.0.0.1:0"]).exits(0);
    assert!(finding(&ran, "data_dir", "ok").contains("can be made"));
    assert!(!sandbox.path().join("new").exists());
    let left = fs::read_dir(sandbox.path().join("d")).expect("a directory").filter_map(Result::ok);
    assert!(!left.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().contains("doctor")));
}

#[test]
fn a_configuration_that_is_refused_is_exit_2_and_the_rest_is_looked_at() {
    let sandbox = healthy();
    for (text, words) in [
        ("[models.default]\nurl = 3\n", "patchboard.toml"),
        ("[serve]\nlissten = 1\n", "[serve]"),
        ("[serve]\nlisten = \"here\"\n", "[serve]"),
        ("nonsense", "patchboard.toml"),
    ] {
        sandbox.write("patchboard.toml", text);
        let ran = doctor(&sandbox, &[]).exits(2);
        assert!(finding(&ran, "configuration", "error").contains(words), "{text}");
        finding(&ran, "journal", "ok");
    }
    fs::remove_file(sandbox.path().join("patchboard.toml")).expect("it is there");
    let ran = doctor(&sandbox, &["--config", "none.toml"]).exits(2);
    assert!(finding(&ran, "configuration", "error").contains("none.toml"));
}

#[test]
fn a_data_directory_that_cannot_be_used_is_found() {
    let sandbox = healthy();
    let at = |dir: &str| sandbox.run(&["doctor", "--output", "json", "--data-dir", dir, "--listen", "127.0.0.1:0"]);
    sandbox.write("file", "");
    assert!(finding(&at("file").exits(1), "data_dir", "error").contains("not a directory"));
    finding(&at("file/below").exits(1), "data_dir", "error");
    // Nobody makes directories there, root neither.
    if cfg!(target_os = "linux") {
        assert!(finding(&at("/proc/patchboard").exits(1), "data_dir", "error").contains("cannot be made"));
        assert!(finding(&at("/proc/self").exits(1), "data_dir", "error").contains("cannot be written to"));
    }
    fs::set_permissions(sandbox.path().join("d"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    assert!(finding(&doctor(&sandbox, &[]).exits(0), "data_dir", "warning").contains("chmod 700"));
}

#[test]
fn a_journal_that_is_damaged_newer_or_none_is_found() {
    for (damage, code) in [
        ("UPDATE boards SET last_hash = 'x'", "journal_corrupt"),
        ("PRAGMA user_version = 99", "journal_newer"),
        ("PRAGMA application_id = 1", "not_a_journal"),
    ] {
        let sandbox = healthy();
        let connection = rusqlite::Connection::open(sandbox.path().join("d/patchboard.db")).expect("SQLite");
        connection.execute_batch(damage).expect("done");
        drop(connection);
        let ran = doctor(&sandbox, &[]).exits(1);
        assert!(finding(&ran, "journal", "error").contains(code), "{damage}");
    }
    // Pages in the middle that are no pages.
    let sandbox = healthy();
    let path = sandbox.path().join("d/patchboard.db");
    let mut bytes = fs::read(&path).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8192].fill(0x5a);
    fs::write(&path, bytes).expect("it can be written");
    let ran = doctor(&sandbox, &[]).exits(1);
    finding(&ran, "journal", "error");
    let sandbox = Sandbox::new();
    sandbox.write("d/patchboard.db", "this is a letter to somebody, and long enough to be taken for more than nothing");
    assert!(finding(&doctor(&sandbox, &[]).exits(1), "journal", "error").contains("not_a_journal"));
}

#[test]
fn a_clock_behind_the_newest_record_is_found() {
    let sandbox = healthy();
    let connection = rusqlite::Connection::open(sandbox.path().join("d/patchboard.db")).expect("SQLite");
    connection.execute_batch("UPDATE boards SET updated_at = updated_at + 3600000").expect("done");
    drop(connection);
    assert!(finding(&doctor(&sandbox, &[]).exits(1), "clock", "error").contains("behind the newest record"));
}

#[test]
fn few_open_files_are_found() {
    let sandbox = healthy();
    for (limit, severity, code) in [("100", "error", 1), ("512", "warning", 0)] {
        let doctor = "doctor --output json --data-dir d --listen 127.0.0.1:0";
        let ran = Command::new("sh")
            .args(["-c", &format!("ulimit -n {limit} && exec \"$0\" {doctor}"), env!("CARGO_BIN_EXE_patchboard")])
            .current_dir(sandbox.path())
            .output()
            .expect("a shell");
        assert!(finding(&Ran::from(ran).exits(code), "files", severity).contains("LimitNOFILE"));
    }
}

#[test]
fn models_are_asked_with_their_keys_which_are_never_shown() {
    const KEY: &str = "hush-key-0123456789";
    let sandbox = healthy();
    let list = |names: &[&str]| {
        let data: Vec<Value> = names.iter().map(|name| serde_json::json!({ "id": name })).collect();
        Act::Say(200, "", serde_json::json!({ "data": data }).to_string())
    };
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    for (act, key, severity, code, words) in [
        (Some(list(&["m"])), KEY, "ok", 0, "has m"),
        (Some(list(&["n"])), KEY, "warning", 0, "does not list m"),
        (Some(Act::Say(200, "", "<html>".into())), KEY, "ok", 0, "answers"),
        (Some(Act::Say(401, "", "bad key hush-key-0123456789".into())), KEY, "error", 1, "does not take the key"),
        (Some(Act::Say(404, "", String::new())), KEY, "warning", 0, "404"),
        (Some(list(&["m"])), "", "error", 1, "set HUSH_KEY"),
        (None, KEY, "error", 1, "start the server"),
    ] {
        let endpoint = act.map(|act| Endpoint::new(vec![act]));
        let url = endpoint.as_ref().map_or(format!("http://{nobody}/v1"), |endpoint| endpoint.url.clone());
        sandbox.write(
            "patchboard.toml",
            format!("[models.default]\nurl = \"{url}\"\nmodel = \"m\"\napi_key_env = \"HUSH_KEY\"\n"),
        );
        let mut command =
            sandbox.command(&["doctor", "--output", "json", "--data-dir", "d", "--listen", "127.0.0.1:0"]);
        let ran = Ran::from(command.env("HUSH_KEY", key).output().expect("the binary can be run")).exits(code);
        assert!(finding(&ran, "models", severity).contains(words), "{words}: {}", ran.stdout);
        assert!(!ran.stdout.contains("hush-key") && !ran.stderr.contains("hush-key"), "{}", ran.stdout);
        if let Some(endpoint) = endpoint.filter(|_| !key.is_empty()) {
            let (head, _) = endpoint.requests().remove(0);
            assert!(head.starts_with("get /v1/models ") && head.contains(&format!("bearer {KEY}\r\n")), "{head}");
        }
    }
}

#[test]
fn the_server_of_embeddings_is_asked_if_there_is_one() {
    let sandbox = healthy();
    let none = doctor(&sandbox, &[]).exits(0).json();
    assert!(none["findings"].as_array().expect("a list").iter().all(|finding| finding["check"] != "embeddings"));
    let endpoint = Endpoint::new(vec![Act::Say(200, "", serde_json::json!({"data": [{"id": "e"}]}).to_string())]);
    sandbox.write("patchboard.toml", format!("[embeddings]\nurl = \"{}\"\nmodel = \"e\"\n", endpoint.url));
    assert!(finding(&doctor(&sandbox, &[]).exits(0), "embeddings", "ok").contains("has e"));
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    sandbox.write("patchboard.toml", format!("[embeddings]\nurl = \"http://{nobody}/v1\"\nmodel = \"e\"\n"));
    assert!(finding(&doctor(&sandbox, &[]).exits(1), "embeddings", "error").contains("start the server"));
}

#[test]
fn programs_that_are_missing_or_not_executable_are_found() {
    let sandbox = healthy();
    sandbox.write("bare.sh", "#!/bin/sh\n");
    for (program, severity, words) in [
        ("program = [\"sh\", \"-c\", \"true\"]", "ok", "/sh"),
        ("program = [\"./bare.sh\"]", "error", "not executable"),
        ("program = [\"./none.sh\"]", "error", "there is no program"),
        ("program = [\"no-such-program-anywhere\"]", "error", "there is no program"),
        ("program = [\"sh\"]\ncwd = \"nowhere\"", "error", "working directory"),
    ] {
        sandbox.write("patchboard.toml", format!("[commands.helper]\n{program}\n"));
        let ran = doctor(&sandbox, &[]).exits(i32::from(severity == "error"));
        assert!(finding(&ran, "commands", severity).contains(words), "{program}");
    }
}

#[test]
fn addresses_and_tokens_that_keep_a_daemon_from_starting_are_found() {
    let sandbox = healthy();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let at = |address: &str| sandbox.run(&["doctor", "--output", "json", "--data-dir", "d", "--listen", address]);
    assert!(finding(&at(&address).exits(1), "address", "error").contains("another program"));
    // An address of documentation, which is nobody's.
    assert!(finding(&at("192.0.2.1:7733").exits(1), "address", "error").contains("cannot be listened on"));
    assert!(finding(&at("0.0.0.0:0").exits(1), "tokens", "error").contains("token create"));
    sandbox.run(&["token", "create", "--scope", "admin", "--data-dir", "d"]).exits(0);
    assert!(finding(&at("0.0.0.0:0").exits(0), "tokens", "ok").contains("1 token"));
    sandbox.write("d/daemon.db", "garbage that is no database, and long enough to look like something");
    for entry in ["d/daemon.db-wal", "d/daemon.db-shm"] {
        let _ = fs::remove_file(sandbox.path().join(entry));
    }
    finding(&at("0.0.0.0:0").exits(1), "tokens", "error");
}

/// Ends with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it ends");
    }
}

#[test]
fn a_daemon_that_runs_is_seen_asked_and_kept_alone() {
    let sandbox = healthy();
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").to_string();
    let ready = || sandbox.run(&["doctor", "--ready", "--data-dir", "d", "--listen", &free]);
    let none = ready().exits(1);
    assert!(none.stderr.contains("daemon_unreachable") && none.stderr.contains("patchboard serve"), "{}", none.stderr);
    let serve = ["serve", "--listen", &free, "--data-dir", "d", "--quiet"];
    let child = sandbox.command(&serve).stdout(Stdio::null()).spawn().expect("the binary can be run");
    let _serving = Serving(child);
    let mut left = 1000;
    while ready().code != 0 {
        left -= 1;
        assert!(left > 0, "it never was ready");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(ready().exits(0).stdout.contains("is ready"));
    let ran = sandbox.run(&["doctor", "--output", "json", "--data-dir", "d", "--listen", &free]).exits(0);
    assert!(finding(&ran, "daemon", "ok").contains("one is running"));
    assert!(finding(&ran, "address", "ok").contains("by the daemon"));
    // A second one would take its boards away.
    let second = sandbox.run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", "d"]).exits(2);
    assert!(second.stderr.contains("already_served"), "{}", second.stderr);
}

#[test]
fn a_board_that_was_interrupted_is_told_of() {
    let sandbox = Sandbox::new();
    // Asks a model that never answers, and is killed.
    let endpoint = Endpoint::new(vec![Act::Hang]);
    sandbox.write("asks.yaml", crate::sandbox::notes_by("llm", ""));
    let arguments = [
        "run",
        "asks.yaml",
        "--request",
        r#"{"topic":"x"}"#,
        "--data-dir",
        "d",
        "--model-url",
        &endpoint.url,
        "--model",
        "m",
    ];
    let mut child = sandbox.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let mut left = 1000;
    while endpoint.requests().is_empty() {
        left -= 1;
        assert!(left > 0, "it never asked");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let running = doctor(&sandbox, &[]).exits(0);
    assert!(finding(&running, "boards", "ok").contains("1 running"));
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    let told = finding(&doctor(&sandbox, &[]).exits(0), "boards", "warning");
    assert!(told.contains("1 interrupted") && told.contains("patchboard resume"), "{told}");
}
