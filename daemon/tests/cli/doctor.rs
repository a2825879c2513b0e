//! `patchboard doctor` in broken setups.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::Value;

use crate::sandbox::{CommandResult, Sandbox};

/// Returns a data directory with one ended board.
fn healthy() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "notes.yaml", "--request", r#"{"topic":"x"}"#, "--data-dir", "d", "--quiet"]);
    assert!(sandbox.path().join("d/patchboard.db").exists());
    sandbox
}

fn doctor(sandbox: &Sandbox, arguments: &[&str]) -> CommandResult {
    let all = ["doctor", "--output", "json", "--data-dir", "d", "--listen", "127.0.0.1:0"];
    sandbox.run(&all.iter().chain(arguments).copied().collect::<Vec<_>>())
}

/// Returns message and help of a check's only finding with this severity.
#[track_caller]
fn finding(ran: &CommandResult, check: &str, severity: &str) -> String {
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
    let ran = doctor(&sandbox, &[]).expect_exit(0);
    assert_eq!(ran.json()["ok"], true);
    for check in ["version", "configuration", "data_dir", "sync", "journal", "boards", "clock", "daemon", "address"] {
        finding(&ran, check, "ok");
    }
    let text = sandbox.run(&["doctor", "--data-dir", "d", "--listen", "127.0.0.1:0"]).expect_exit(0).stdout;
    assert!(text.contains("ok       journal") && text.contains("0 errors"), "{text}");
    // `doctor` changes nothing and creates no missing directory.
    let ran =
        sandbox.run(&["doctor", "--output", "json", "--data-dir", "new/d", "--listen", "127.0.0.1:0"]).expect_exit(0);
    assert!(finding(&ran, "data_dir", "ok").contains("can be made"));
    assert!(!sandbox.path().join("new").exists());
    let left = fs::read_dir(sandbox.path().join("d")).expect("a directory").filter_map(Result::ok);
    assert!(!left.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().contains("doctor")));
}

#[test]
fn an_invalid_configuration_exits_with_2_and_other_checks_continue() {
    let sandbox = healthy();
    for (text, words) in [
        ("[models.default]\nurl = 3\n", "patchboard.toml"),
        ("[serve]\nlissten = 1\n", "line 2, column 1: unknown field `lissten`"),
        ("[serve]\nlisten = \"here\"\n", "line 2, column 10: listen"),
        ("nonsense", "patchboard.toml"),
    ] {
        sandbox.write("patchboard.toml", text);
        let ran = doctor(&sandbox, &[]).expect_exit(2);
        assert!(finding(&ran, "configuration", "error").contains(words), "{text}");
        finding(&ran, "journal", "ok");
    }
    fs::remove_file(sandbox.path().join("patchboard.toml")).expect("it is there");
    let ran = doctor(&sandbox, &["--config", "none.toml"]).expect_exit(2);
    assert!(finding(&ran, "configuration", "error").contains("none.toml"));
}

#[test]
fn a_data_directory_that_cannot_be_used_is_found() {
    let sandbox = healthy();
    let at = |dir: &str| sandbox.run(&["doctor", "--output", "json", "--data-dir", dir, "--listen", "127.0.0.1:0"]);
    sandbox.write("file", "");
    assert!(finding(&at("file").expect_exit(1), "data_dir", "error").contains("not a directory"));
    finding(&at("file/below").expect_exit(1), "data_dir", "error");
    // No user can create directories there, not even root.
    if cfg!(target_os = "linux") {
        assert!(finding(&at("/proc/patchboard").expect_exit(1), "data_dir", "error").contains("cannot be made"));
        assert!(finding(&at("/proc/self").expect_exit(1), "data_dir", "error").contains("cannot be written to"));
    }
    fs::set_permissions(sandbox.path().join("d"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    assert!(finding(&doctor(&sandbox, &[]).expect_exit(0), "data_dir", "warning").contains("chmod 700"));
}

#[test]
fn a_journal_that_is_damaged_newer_or_none_is_found() {
    for (damage, code) in [
        ("UPDATE boards SET last_hash = 'x'", "journal_corrupt"),
        ("PRAGMA user_version = 99", "journal_newer"),
        ("PRAGMA application_id = 1", "not_a_journal"),
        ("UPDATE records SET payload = replace(payload, 'topic', 't0pic') WHERE seq = 0", "bad_record"),
        ("DELETE FROM records WHERE seq = 2", "bad_record"),
        ("DELETE FROM blobs", "bad_record"),
        ("UPDATE boards SET version = version + 1", "bad_summary"),
    ] {
        let sandbox = healthy();
        let connection = rusqlite::Connection::open(sandbox.path().join("d/patchboard.db")).expect("SQLite");
        connection.execute_batch(damage).expect("done");
        drop(connection);
        let ran = doctor(&sandbox, &[]).expect_exit(1);
        assert!(finding(&ran, "journal", "error").contains(code), "{damage}");
    }
    // Invalid pages in the middle of the file.
    let sandbox = healthy();
    let path = sandbox.path().join("d/patchboard.db");
    let mut bytes = fs::read(&path).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8192].fill(0x5a);
    fs::write(&path, bytes).expect("it can be written");
    let ran = doctor(&sandbox, &[]).expect_exit(1);
    finding(&ran, "journal", "error");
    let sandbox = Sandbox::new();
    sandbox.write("d/patchboard.db", "this is a letter to somebody, and long enough to be taken for more than nothing");
    assert!(finding(&doctor(&sandbox, &[]).expect_exit(1), "journal", "error").contains("not_a_journal"));
}

#[test]
fn a_clock_behind_the_newest_record_is_found() {
    let sandbox = healthy();
    let connection = rusqlite::Connection::open(sandbox.path().join("d/patchboard.db")).expect("SQLite");
    connection.execute_batch("UPDATE boards SET updated_at = updated_at + 3600000").expect("done");
    drop(connection);
    assert!(finding(&doctor(&sandbox, &[]).expect_exit(1), "clock", "error").contains("behind the newest record"));
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
        assert!(finding(&CommandResult::from(ran).expect_exit(code), "files", severity).contains("LimitNOFILE"));
    }
}

#[test]
fn models_are_asked_with_their_keys_which_are_never_shown() {
    const KEY: &str = "hush-key-0123456789";
    let sandbox = healthy();
    let list = |names: &[&str]| {
        let data: Vec<Value> = names.iter().map(|name| serde_json::json!({ "id": name })).collect();
        ScriptedResponse::Say(200, "", serde_json::json!({ "data": data }).to_string())
    };
    let unused = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    for (act, key, severity, code, words) in [
        (Some(list(&["m"])), KEY, "ok", 0, "has m"),
        (Some(list(&["n"])), KEY, "warning", 0, "does not list m"),
        (Some(ScriptedResponse::Say(200, "", "<html>".into())), KEY, "ok", 0, "answers"),
        (
            Some(ScriptedResponse::Say(401, "", "bad key hush-key-0123456789".into())),
            KEY,
            "error",
            1,
            "does not take the key",
        ),
        (Some(ScriptedResponse::Say(404, "", String::new())), KEY, "warning", 0, "404"),
        (Some(list(&["m"])), "", "error", 1, "set HUSH_KEY"),
        (None, KEY, "error", 1, "start the server"),
    ] {
        let endpoint = act.map(|act| Endpoint::new(vec![act]));
        let url = endpoint.as_ref().map_or(format!("http://{unused}/v1"), |endpoint| endpoint.url.clone());
        sandbox.write(
            "patchboard.toml",
            format!("[models.default]\nurl = \"{url}\"\nmodel = \"m\"\napi_key_env = \"HUSH_KEY\"\n"),
        );
        let mut command =
            sandbox.command(&["doctor", "--output", "json", "--data-dir", "d", "--listen", "127.0.0.1:0"]);
        let ran = CommandResult::from(command.env("HUSH_KEY", key).output().expect("the binary can be run"))
            .expect_exit(code);
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
    let none = doctor(&sandbox, &[]).expect_exit(0).json();
    assert!(none["findings"].as_array().expect("a list").iter().all(|finding| finding["check"] != "embeddings"));
    let endpoint =
        Endpoint::new(vec![ScriptedResponse::Say(200, "", serde_json::json!({"data": [{"id": "e"}]}).to_string())]);
    sandbox.write("patchboard.toml", format!("[embeddings]\nurl = \"{}\"\nmodel = \"e\"\n", endpoint.url));
    assert!(finding(&doctor(&sandbox, &[]).expect_exit(0), "embeddings", "ok").contains("has e"));
    let unused = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    sandbox.write("patchboard.toml", format!("[embeddings]\nurl = \"http://{unused}/v1\"\nmodel = \"e\"\n"));
    assert!(finding(&doctor(&sandbox, &[]).expect_exit(1), "embeddings", "error").contains("start the server"));
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
        let ran = doctor(&sandbox, &[]).expect_exit(i32::from(severity == "error"));
        assert!(finding(&ran, "commands", severity).contains(words), "{program}");
    }
}

#[test]
fn addresses_and_tokens_that_keep_a_daemon_from_starting_are_found() {
    let sandbox = healthy();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let at = |address: &str| sandbox.run(&["doctor", "--output", "json", "--data-dir", "d", "--listen", address]);
    assert!(finding(&at(&address).expect_exit(1), "address", "error").contains("another program"));
    // An address reserved for documentation.
    assert!(finding(&at("192.0.2.1:7733").expect_exit(1), "address", "error").contains("cannot be listened on"));
    assert!(finding(&at("0.0.0.0:0").expect_exit(1), "tokens", "error").contains("token create"));
    sandbox.run(&["token", "create", "--scope", "admin", "--data-dir", "d"]).expect_exit(0);
    assert!(finding(&at("0.0.0.0:0").expect_exit(0), "tokens", "ok").contains("1 token"));
    sandbox.write("d/daemon.db", "garbage that is no database, and long enough to look like something");
    for entry in ["d/daemon.db-wal", "d/daemon.db-shm"] {
        let _ = fs::remove_file(sandbox.path().join(entry));
    }
    finding(&at("0.0.0.0:0").expect_exit(1), "tokens", "error");
}

/// A daemon, killed at the end of the test.
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
    let none = ready().expect_exit(1);
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
    assert!(ready().expect_exit(0).stdout.contains("is ready"));
    let ran = sandbox.run(&["doctor", "--output", "json", "--data-dir", "d", "--listen", &free]).expect_exit(0);
    assert!(finding(&ran, "daemon", "ok").contains("one is running"));
    assert!(finding(&ran, "address", "ok").contains("by the daemon"));
    // A second daemon would take over the boards.
    let second = sandbox.run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", "d"]).expect_exit(2);
    assert!(second.stderr.contains("already_served"), "{}", second.stderr);
}

#[test]
fn a_board_that_was_interrupted_is_reported() {
    let sandbox = Sandbox::new();
    // The run waits for a model that never answers, and is killed.
    let endpoint = Endpoint::new(vec![ScriptedResponse::Hang]);
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
    let running = doctor(&sandbox, &[]).expect_exit(0);
    assert!(finding(&running, "boards", "ok").contains("1 running"));
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    let warning = finding(&doctor(&sandbox, &[]).expect_exit(0), "boards", "warning");
    assert!(warning.contains("1 interrupted") && warning.contains("patchboard resume"), "{warning}");
}

/// Returns a streamed completion.
fn events(text: &str) -> ScriptedResponse {
    let choice = serde_json::json!({"index": 0, "delta": {"content": text}, "finish_reason": "stop"});
    let chunk = serde_json::json!({
        "choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 1}
    });
    ScriptedResponse::Say(200, "content-type: text/event-stream\r\n", format!("data: {chunk}\n\ndata: [DONE]\n\n"))
}

/// Answers as a server with every capability.
fn able(body: &Value) -> ScriptedResponse {
    match body {
        Value::Null => ScriptedResponse::Say(200, "", serde_json::json!({"data": [{"id": "m"}]}).to_string()),
        body if body["stream"] == true => events("yes"),
        body if body["tools"].is_array() => ScriptedResponse::call_tools(&[("c", "note", r#"{"text":"hi"}"#)], 9, 3),
        _ => ScriptedResponse::answer(r#"{"ok":"yes"}"#, 10, 5),
    }
}

fn refuse(words: &str) -> ScriptedResponse {
    ScriptedResponse::Say(400, "", serde_json::json!({"error": {"message": words}}).to_string())
}

/// Probes the model of such a server; returns the run and the bodies of its requests.
fn asked(
    configured: &str,
    act: impl Fn(&Value) -> ScriptedResponse + Send + Sync + 'static,
) -> (CommandResult, Vec<Value>) {
    let sandbox = Sandbox::new();
    let endpoint = Endpoint::serving(act);
    let text = format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n{configured}", endpoint.url);
    sandbox.write("patchboard.toml", text);
    let ran = doctor(&sandbox, &["--models"]);
    let bodies = endpoint.bodies().into_iter().filter(|body| !body.is_null()).collect();
    (ran, bodies)
}

/// Returns the capabilities of the only model.
#[track_caller]
fn abilities(ran: &CommandResult) -> Value {
    finding(ran, "abilities", "ok");
    let all = ran.json();
    let findings = all["findings"].as_array().expect("a list");
    let found = findings.iter().find(|finding| finding["check"] == "abilities").expect("one");
    assert_eq!(found["model"], "default", "{found}");
    found["abilities"].clone()
}

#[test]
fn a_model_that_can_do_everything_is_asked_four_times_and_costs_its_price() {
    let price = "price = { input = 1, output = 10 }\n";
    let (ran, bodies) = asked(price, able);
    let found = abilities(&ran.expect_exit(0));
    for name in ["tools", "stream", "system", "temperature", "seed", "top_p", "stop", "reasoning_effort", "usage"] {
        assert_eq!(found[name]["state"], "yes", "{name}: {found}");
    }
    assert_eq!((&found["form"], &found["token_limit"]), (&"derived".into(), &"max_tokens".into()));
    // Two plain answers, one call and one stream: 10 + 10 + 9 + 7 and 5 + 5 + 3 + 1.
    assert_eq!(found["tokens"], serde_json::json!({"prompt": 36, "completion": 14}));
    assert_eq!(found["cost"], serde_json::json!({"amount": 0.000_176, "currency": "USD"}));
    assert_eq!(bodies.len(), 4);
    assert!(bodies.iter().all(|body| body["max_tokens"] == 32), "{bodies:?}");
}

#[test]
fn unsupported_parameters_of_a_server_are_found_by_trying() {
    type Refuses = fn(&Value) -> Option<&'static str>;
    type Case<'a> = (&'a str, Refuses, &'a [(&'a str, Value)]);
    let cases: [Case<'_>; 12] = [
        (
            "closed",
            |body| {
                let is_open = body["response_format"]["json_schema"]["strict"] == false;
                is_open.then_some("additionalProperties must be false")
            },
            &[("/form", "strict".into()), ("/tools/state", "yes".into())],
        ),
        (
            "json_schema",
            |body| (body["response_format"]["type"] == "json_schema").then_some("json_schema is not supported"),
            &[("/form", "json_object".into()), ("/stream/state", "yes".into())],
        ),
        ("response_format", |body| body.get("response_format").map(|_| "unknown member"), &[("/form", "none".into())]),
        (
            "tools",
            |body| body.get("tools").map(|_| "this model does not support tools"),
            &[("/tools/state", "no".into()), ("/form", "derived".into())],
        ),
        ("wordless tools", |body| body.get("tools").map(|_| "bad request"), &[("/tools/state", "no".into())]),
        (
            "streams",
            |body| (body["stream"] == true).then_some("streaming is not supported"),
            &[("/stream/state", "no".into()), ("/tools/state", "yes".into())],
        ),
        (
            "no stream",
            |body| (body["stream"] != true).then_some("only stream=true is served"),
            &[("/stream/state", "yes".into()), ("/stream/note", "the server serves nothing else".into())],
        ),
        (
            "max_tokens",
            |body| body.get("max_tokens").map(|_| "use max_completion_tokens"),
            &[("/token_limit", "max_completion_tokens".into())],
        ),
        (
            "temperature",
            |body| body.get("temperature").map(|_| "temperature is deprecated"),
            &[("/temperature/state", "no".into()), ("/seed/state", "yes".into())],
        ),
        (
            "zero",
            |body| (body["temperature"] == 0.0).then_some("temperature must be positive"),
            &[("/temperature/state", "yes".into()), ("/temperature/note", "above 0 only".into())],
        ),
        (
            "seed and effort",
            |body| {
                let effort = body.get("reasoning_effort").map(|_| "unknown member reasoning_effort");
                body.get("seed").map(|_| "unknown member seed").or(effort)
            },
            &[
                ("/seed/state", "no".into()),
                ("/reasoning_effort/state", "no".into()),
                ("/top_p/state", "yes".into()),
                ("/stop/state", "yes".into()),
            ],
        ),
        (
            "system",
            |body| (body["messages"][0]["role"] == "system").then_some("system role not supported"),
            &[("/system/state", "no".into()), ("/temperature/state", "yes".into())],
        ),
    ];
    for (name, refuses, expected) in cases {
        let (ran, _) = asked("", move |body| refuses(body).map_or_else(|| able(body), refuse));
        let found = abilities(&ran.expect_exit(0));
        for (pointer, value) in expected {
            assert_eq!(found.pointer(pointer), Some(value), "{name}: {found}");
        }
    }
}

#[test]
fn a_server_that_streams_unasked_or_never_and_counts_nothing_is_found() {
    let silent = |body: &Value| match body {
        Value::Null => able(body),
        _ => ScriptedResponse::complete("yes", "length", Value::Null),
    };
    let (ran, _) = asked("", silent);
    let found = abilities(&ran.expect_exit(0));
    assert_eq!((&found["stream"]["state"], &found["usage"]["state"]), (&"no".into(), &"no".into()), "{found}");
    assert_eq!((&found["tools"]["state"], &found["tokens"]["estimated"]), (&"unknown".into(), &true.into()));
    let (ran, bodies) = asked("", |body| if body.is_null() { able(body) } else { events("yes") });
    let found = abilities(&ran.expect_exit(0));
    assert_eq!((&found["stream"]["state"], &found["stream"]["note"]), (&"yes".into(), &Value::Null), "{found}");
    assert_eq!(bodies.len(), 3);
}

#[test]
fn members_of_another_protocol_are_not_asked_for_and_its_streams_are_read() {
    let answer = |body: &Value| match body {
        Value::Null => able(body),
        body if body["stream"] == true => {
            let events = [
                r#"{"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 4, "output_tokens": 1}}}"#,
                r#"{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}"#,
                r#"{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "yes"}}"#,
                r#"{"type": "message_stop"}"#,
            ];
            let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
            ScriptedResponse::Say(200, "content-type: text/event-stream\r\n", stream)
        }
        _ => ScriptedResponse::Say(
            200,
            "",
            serde_json::json!({
                "type": "message", "content": [{"type": "text", "text": "yes"}], "stop_reason": "end_turn",
                "usage": {"input_tokens": 4, "output_tokens": 1}
            })
            .to_string(),
        ),
    };
    let (ran, bodies) = asked("api = \"anthropic\"\n", answer);
    let found = abilities(&ran.expect_exit(0));
    assert_eq!((&found["seed"]["state"], &found["stop"]["state"]), (&"unknown".into(), &"yes".into()), "{found}");
    assert_eq!((&found["stream"]["state"], &found["stream"]["note"]), (&"yes".into(), &Value::Null), "{found}");
    assert_eq!((&found["tokens"]["prompt"], bodies.len()), (&16.into(), 4));
}

#[test]
fn a_model_that_does_not_answer_is_an_error_with_advice_and_without_its_key() {
    const KEY: &str = "hush-key-0123456789";
    for (act, words, help) in [
        (ScriptedResponse::Say(401, "", format!("bad key {KEY}")), "bad key", "right key"),
        (ScriptedResponse::Say(404, "", r#"{"error":{"message":"no model m"}}"#.into()), "no model m", "correct model"),
        (ScriptedResponse::Say(402, "", "no credit".into()), "no credit", "pay the provider"),
        (ScriptedResponse::Say(429, "", "slow down".into()), "slow down", "ask again"),
        (ScriptedResponse::Say(400, "", "I do not like you".into()), "I do not like you", "extra_body"),
        (ScriptedResponse::Say(200, "", "<html>".into()), "a web page", "base of a chat endpoint"),
        (ScriptedResponse::Say(200, "", "{}".into()), "no choice", "base of a chat endpoint"),
        (ScriptedResponse::Hang, "within 1 s", "--timeout"),
    ] {
        let endpoint = Endpoint::serving(move |body| if body.is_null() { able(body) } else { act.clone() });
        let sandbox = Sandbox::new();
        let model = |name: &str| {
            format!("[models.{name}]\nurl = \"{}\"\nmodel = \"m\"\napi_key_env = \"HUSH_KEY\"\n", endpoint.url)
        };
        sandbox.write("patchboard.toml", model("default"));
        let all = ["doctor", "--models", "--timeout", "1", "--output", "json", "--data-dir", "d", "--listen"];
        let mut command = sandbox.command(&[&all[..], &["127.0.0.1:0"]].concat());
        let ran =
            CommandResult::from(command.env("HUSH_KEY", KEY).output().expect("the binary can be run")).expect_exit(1);
        let found = finding(&ran, "abilities", "error");
        assert!(found.contains(words) && found.contains(help), "{words}: {found}");
        assert!(!ran.stdout.contains(KEY) && !ran.stderr.contains(KEY), "{}", ran.stdout);
    }
}

#[test]
fn abilities_are_printed_for_every_model_of_the_file_and_of_the_flags() {
    let sandbox = Sandbox::new();
    let endpoint = Endpoint::serving(able);
    sandbox.write("patchboard.toml", format!("[models.b]\nurl = \"{}\"\nmodel = \"n\"\n", endpoint.url));
    let flags = ["--model-url", &endpoint.url, "--model", "m", "--data-dir", "d", "--listen", "127.0.0.1:0"];
    let text = sandbox.run(&[&["doctor", "--models"], &flags[..]].concat()).expect_exit(0).stdout;
    for words in ["b: it answers", "default: it answers", "json_schema, derived", "max_tokens"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(endpoint.bodies().iter().filter(|body| body["model"] == "n").count(), 4);
    sandbox.run(&["doctor", "--models", "--offline"]).expect_exit(2);
    sandbox.run(&["doctor", "--timeout", "3"]).expect_exit(2);
    sandbox.run(&["doctor", "--models", "--timeout", "0"]).expect_exit(2);
    let help = sandbox.run(&["doctor", "--help"]).expect_exit(0).stdout;
    assert!(help.contains("COSTS TOKENS"), "{help}");
}
