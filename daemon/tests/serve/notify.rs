//! Notices: signed and delivered at least once, across kills of the daemon and outages of the receiver.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use patchboard_endpoint::{Endpoint, ScriptedResponse};
use patchboard_kernel::digest::sha256;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::daemon::{Daemon, STEPS};
use crate::metrics::by_a_model;
use crate::people::{asking, lost};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A receiver of webhooks.
struct Receiver {
    port: u16,
    inbox: Arc<Inbox>,
}

/// Received requests, and the status to answer with.
#[derive(Default)]
struct Inbox {
    taken: Mutex<Vec<(HeaderMap, String)>>,
    tries: Mutex<Vec<String>>,
    status: AtomicU16,
    /// Requests that contain this text are never answered.
    hangs_on: Mutex<Option<String>>,
    /// Signals a received request or an accepted notice.
    changed: Notify,
}

async fn take(State(inbox): State<Arc<Inbox>>, headers: HeaderMap, body: String) -> StatusCode {
    inbox.tries.lock().expect("a list").push(body.clone());
    inbox.changed.notify_one();
    let hangs = inbox.hangs_on.lock().expect("a text").as_ref().is_some_and(|text| body.contains(text));
    if hangs {
        std::future::pending::<()>().await;
    }
    let status = StatusCode::from_u16(inbox.status.load(Ordering::Relaxed)).expect("a status");
    if status.is_success() {
        inbox.taken.lock().expect("a list").push((headers, body));
        inbox.changed.notify_one();
    }
    status
}

impl Receiver {
    async fn new(status: u16) -> Self {
        Self::on(0, status).await
    }

    async fn on(port: u16, status: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let inbox = Arc::new(Inbox { status: AtomicU16::new(status), ..Inbox::default() });
        let app = Router::new().fallback(take).with_state(Arc::clone(&inbox));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { port, inbox }
    }

    fn answers(&self, status: u16) {
        self.inbox.status.store(status, Ordering::Relaxed);
    }

    fn table(&self) -> String {
        table(self.port)
    }

    /// Waits for an accepted notice that satisfies `is_it`.
    async fn until(&self, is_it: impl Fn(&Value) -> bool) -> (HeaderMap, String, Value) {
        loop {
            let taken = self.inbox.taken.lock().expect("a list").clone();
            for (headers, body) in taken {
                let notice: Value = serde_json::from_str(&body).expect("JSON");
                if is_it(&notice) {
                    return (headers, body, notice);
                }
            }
            self.changed().await;
        }
    }

    /// Waits for the next request or notice.
    async fn changed(&self) {
        let changed = tokio::time::timeout(Duration::from_secs(30), self.inbox.changed.notified()).await;
        changed.unwrap_or_else(|_| panic!("nothing came; there are {:?}", self.ids()));
    }

    fn ids(&self) -> Vec<String> {
        let taken = self.inbox.taken.lock().expect("a list");
        let id = |(_, body): &(HeaderMap, String)| {
            let notice: Value = serde_json::from_str(body).expect("JSON");
            notice["id"].as_str().expect("an id").to_owned()
        };
        taken.iter().map(id).collect()
    }

    async fn tried(&self) {
        while self.inbox.tries.lock().expect("a list").is_empty() {
            self.changed().await;
        }
    }
}

fn table(port: u16) -> String {
    format!("[notify]\nwebhook = \"http://127.0.0.1:{port}/hook?key=inthepath\"\nsecret_env = \"HOOK_SECRET\"\n")
}

/// HMAC-SHA256 (RFC 2104) of a short key.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let pad = |with: u8| (0..64).map(|at| key.get(at).copied().unwrap_or(0) ^ with).collect::<Vec<u8>>();
    sha256(&[pad(0x5c), sha256(&[pad(0x36), message.to_vec()].concat()).0.to_vec()].concat()).0
}

/// Returns the signature of Standard Webhooks.
fn signature(id: &str, timestamp: &str, body: &str) -> String {
    let key = STANDARD.decode(&SECRET[6..]).expect("base64");
    format!("v1,{}", STANDARD.encode(hmac(&key, format!("{id}.{timestamp}.{body}").as_bytes())))
}

fn assert_signed(headers: &HeaderMap, body: &str) {
    let known = signature("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", r#"{"test": 2432232314}"#);
    assert_eq!(known, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "the standard's example");
    let header = |name: &str| headers[name].to_str().expect("text");
    let timestamp = header("webhook-timestamp");
    assert!(timestamp.parse::<u64>().expect("a number") > 1_700_000_000);
    assert_eq!(header("webhook-signature"), signature(header("webhook-id"), timestamp, body));
    assert_eq!(header("content-type"), "application/json");
}

/// Returns a daemon with this configuration.
fn configured(text: &str) -> Daemon {
    let mut daemon = Daemon::not_started(&[]);
    daemon.set("HOOK_SECRET", SECRET);
    daemon.configure(text);
    daemon
}

async fn metric(daemon: &Daemon, series: &str) -> f64 {
    let text = daemon.get("/metrics").await.text;
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')).map(str::to_owned);
    line.map_or(0.0, |value| value.parse().expect("a number"))
}

/// Waits until a cursor of a board is stored.
async fn stored(daemon: &Daemon, receiver: &str, board: &str) {
    let cursor = daemon.path().join("boards/notify").join(receiver).join(format!("{board}.json"));
    for _ in 0..3000 {
        if cursor.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} is not there", cursor.display());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_comes_signed_and_not_again_after_a_kill() {
    let receiver = Receiver::new(204).await;
    let mut daemon = configured(&receiver.table());
    daemon.start();
    let (board, question) = asking(&daemon).await;
    let (headers, body, notice) = receiver.until(|notice| notice["board"] == board.as_str()).await;
    assert_signed(&headers, &body);
    let seq = &question["seq"];
    assert_eq!(notice["id"], format!("{board}:{seq}:question"));
    assert_eq!(headers["webhook-id"].to_str().ok(), notice["id"].as_str());
    assert_eq!((&notice["kind"], &notice["blueprint"], &notice["seq"]), (&json!("question"), &json!("steps"), seq));
    assert_eq!(notice["command"], format!("patchboard approve {board} {seq}"));
    assert_eq!(notice["request"], format!("POST /v1/boards/{board}/approvals/{seq}"));
    daemon.get(notice["path"].as_str().expect("a path")).await.expect_status(200);
    assert!(notice["message"].as_str().is_some_and(|text| text.contains("editor")), "{notice}");
    stored(&daemon, "webhook", &board).await;
    assert!(
        (metric(&daemon, r#"patchboard_notify_deliveries_total{outcome="delivered",receiver="webhook"}"#).await - 1.0)
            .abs()
            < f64::EPSILON
    );
    daemon.kill();
    daemon.start();
    let (other, question) = lost(&daemon).await;
    let (_, _, notice) = receiver.until(|notice| notice["board"] == other.as_str()).await;
    assert_eq!(notice["command"], format!("patchboard answer {other} {} --text TEXT", question["seq"]));
    assert!(notice["message"].as_str().is_some_and(|text| text.ends_with(": How far?")), "{notice}");
    assert_eq!(receiver.ids().iter().filter(|id| id.starts_with(&board)).count(), 1);
    let log = daemon.log();
    assert!(!log.contains(&SECRET[6..]) && !log.contains("inthepath"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_before_the_delivery_loses_no_notice() {
    let port = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address").port();
    let mut daemon = configured(&table(port));
    daemon.start();
    let (board, question) = asking(&daemon).await;
    let failed = r#"patchboard_notify_deliveries_total{outcome="failed",receiver="webhook"}"#;
    while metric(&daemon, failed).await < 1.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(metric(&daemon, r#"patchboard_notify_oldest_undelivered_seconds{receiver="webhook"}"#).await > 0.0);
    daemon.kill();
    let receiver = Receiver::on(port, 200).await;
    daemon.start();
    let (_, _, notice) = receiver.until(|notice| notice["kind"] == "question").await;
    assert_eq!(notice["id"], format!("{board}:{}:question", question["seq"]));
    while metric(&daemon, r#"patchboard_notify_oldest_undelivered_seconds{receiver="webhook"}"#).await > 0.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let log = daemon.log();
    assert!(log.contains("not delivered yet") && !log.contains("inthepath"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_fails_has_the_same_notice_again_until_it_takes_it() {
    let receiver = Receiver::new(503).await;
    let mut daemon = configured(&receiver.table());
    daemon.start();
    let (board, _) = asking(&daemon).await;
    receiver.tried().await;
    receiver.answers(200);
    receiver.until(|notice| notice["board"] == board.as_str()).await;
    let tries = receiver.inbox.tries.lock().expect("a list").clone();
    assert!(tries.len() > 1 && tries.iter().all(|body| *body == tries[0]), "{tries:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_reported_once_and_the_notice_comes_later() {
    let receiver = Receiver::new(403).await;
    let mut daemon = configured(&receiver.table());
    daemon.start();
    let (board, _) = asking(&daemon).await;
    let refused = r#"patchboard_notify_deliveries_total{outcome="refused",receiver="webhook"}"#;
    while metric(&daemon, refused).await < 1.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(daemon.log().matches("a notice is rejected").count(), 1, "{}", daemon.log());
    daemon.kill();
    receiver.answers(200);
    daemon.start();
    receiver.until(|notice| notice["board"] == board.as_str()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_hangs_holds_up_neither_boards_nor_notices_of_others() {
    let receiver = Receiver::new(200).await;
    *receiver.inbox.hangs_on.lock().expect("a text") = Some(r#""message":"Worker walker asks editor"#.to_owned());
    let mut daemon = configured(&receiver.table());
    daemon.start();
    let (hanging, _) = asking(&daemon).await;
    receiver.tried().await;
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    let lost = STEPS
        .replace(
            "    script: [[{op: add",
            "    clarify: {by: guide}\n    script: [{clarify: {question: How far?}}, [{op: add",
        )
        .replace("rules:\n", "  guide: {agent: human}\nrules:\n");
    let made = daemon.post("/v1/boards", &json!({ "source": lost })).await.expect_status(201);
    receiver.until(|notice| notice["board"] == made["board"]).await;
    assert!(!receiver.ids().iter().any(|id| id.starts_with(&hanging)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_any_moment_lose_no_notice_and_keep_their_order() {
    let receiver = Receiver::new(200).await;
    let mut daemon = configured(&receiver.table());
    let stubborn = STEPS.replace("path: /steps/-, value: 1}", "path: /steps/-, value: 10}");
    let mut boards = Vec::new();
    for moment in 0..6 {
        daemon.start();
        let made = daemon.post("/v1/boards", &json!({ "source": stubborn })).await.expect_status(201);
        boards.push(made["board"].as_str().expect("an id").to_owned());
        // Kills at moments from before the first attempt to after the last delivery.
        tokio::time::sleep(Duration::from_millis(moment * 30)).await;
        daemon.kill();
    }
    daemon.start();
    for board in &boards {
        let is_end = |notice: &Value| notice["command"] == format!("patchboard retry {board}");
        receiver.until(is_end).await;
    }
    let ids = receiver.ids();
    for board in &boards {
        let mut own: Vec<&String> = Vec::new();
        // Kills cause repetitions; the first deliveries are in journal order.
        for id in ids.iter().filter(|id| id.starts_with(board)) {
            if !own.contains(&id) {
                own.push(id);
            }
        }
        let seqs: Vec<u64> = own.iter().filter_map(|id| id.split(':').nth(1)?.parse().ok()).collect();
        assert!(seqs.len() > 1 && seqs.is_sorted(), "{ids:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_has_the_notice_on_its_input_until_it_ends_with_zero() {
    let mut daemon = configured("[notify]\nprogram = [\"./page.sh\", \"notices\"]\non = [\"question\"]\n");
    let script = "#!/bin/sh\nenv > environment\nif [ ! -e tried ]; then : > tried; exit 1; fi\ncat >> \"$1\"\n";
    let page = daemon.path().join("page.sh");
    fs::write(&page, script).expect("it is written");
    fs::set_permissions(&page, fs::Permissions::from_mode(0o755)).expect("it can be run");
    daemon.start();
    let (board, question) = asking(&daemon).await;
    stored(&daemon, "program", &board).await;
    let notices = fs::read_to_string(daemon.path().join("notices")).expect("it was written");
    let notice: Value = serde_json::from_str(notices.lines().next().expect("a line")).expect("JSON");
    assert_eq!(notice["id"], format!("{board}:{}:question", question["seq"]));
    let environment = fs::read_to_string(daemon.path().join("environment")).expect("it was written");
    assert!(environment.contains("PATH=") && !environment.contains("HOOK_SECRET"), "{environment}");
    assert!(daemon.path().join("tried").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_wait_for_a_provider_and_its_end_are_one_notice_each() {
    let receiver = Receiver::new(200).await;
    let is_back = Arc::new(AtomicBool::new(false));
    let endpoint = {
        let is_back = Arc::clone(&is_back);
        Endpoint::serving(move |_| match is_back.load(Ordering::Relaxed) {
            false => ScriptedResponse::Say(503, "", "away".into()),
            true => ScriptedResponse::answer(r#"[{"op":"add","path":"/steps/-","value":1}]"#, 9, 9),
        })
    };
    let model = format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n", endpoint.url);
    let mut daemon = configured(&format!("{model}{}provider_after = \"300ms\"\n", receiver.table()));
    daemon.start();
    let made = daemon.post("/v1/boards", &json!({ "source": by_a_model() })).await.expect_status(201);
    let (_, _, notice) = receiver.until(|notice| notice["kind"] == "provider").await;
    assert_eq!(
        (&notice["board"], &notice["resolved"], &notice["command"]),
        (&made["board"], &json!(false), &Value::Null)
    );
    daemon.kill();
    daemon.start();
    is_back.store(true, Ordering::Relaxed);
    let board = made["board"].as_str().expect("an id");
    daemon.until(board, "quiescent").await;
    receiver.until(|notice| notice["resolved"] == true).await;
    let mut ids = receiver.ids();
    // A kill between a delivery and the storing of its cursor repeats a notice.
    ids.dedup();
    assert_eq!(ids.len(), 2, "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boards_with_unsent_calls_are_reported_and_listed_with_their_reason() {
    let receiver = Receiver::new(200).await;
    let is_back = Arc::new(AtomicBool::new(false));
    let endpoint = {
        let is_back = Arc::clone(&is_back);
        Endpoint::serving(move |_| match is_back.load(Ordering::Relaxed) {
            false => ScriptedResponse::Say(503, "retry-after: 5\r\n", "away".into()),
            true => ScriptedResponse::answer(r#"[{"op":"add","path":"/steps/-","value":1}]"#, 9, 9),
        })
    };
    let model = format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n", endpoint.url);
    let mut daemon = configured(&format!("{model}{}provider_after = \"1s\"\n", receiver.table()));
    daemon.start();
    let mut boards = Vec::new();
    for _ in 0..3 {
        let made = daemon.post("/v1/boards", &json!({ "source": by_a_model() })).await.expect_status(201);
        boards.push(made["board"].as_str().expect("an id").to_owned());
        // The next board finds the model's gate closed.
        while endpoint.bodies().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    for board in &boards {
        receiver.until(|notice| notice["kind"] == "provider" && notice["board"] == board.as_str()).await;
        let live = daemon.get(&format!("/v1/boards/{board}")).await.expect_status(200)["live"]["provider"].clone();
        assert_eq!((&live["reason"], &live["waiting"]), (&json!("overloaded"), &json!(1)), "{live}");
    }
    assert_eq!(endpoint.bodies().len(), 1, "two were never sent");
    let ready = daemon.get("/readyz").await.expect_status(200);
    assert_eq!(ready["models_away"][0]["waiting_calls"], 3, "{ready}");
    is_back.store(true, Ordering::Relaxed);
    for board in &boards {
        daemon.until(board, "quiescent").await;
        receiver.until(|notice| notice["resolved"] == true && notice["board"] == board.as_str()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_for_an_operator_comes_at_once() {
    let receiver = Receiver::new(200).await;
    let refused = ScriptedResponse::Say(401, "", r#"{"error":{"message":"Incorrect API key"}}"#.into());
    let endpoint =
        Endpoint::new(vec![refused, ScriptedResponse::answer(r#"[{"op":"add","path":"/steps/-","value":1}]"#, 9, 9)]);
    let model = format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n", endpoint.url);
    let mut daemon = configured(&format!("{model}{}", receiver.table()));
    daemon.start();
    let made = daemon.post("/v1/boards", &json!({ "source": by_a_model() })).await.expect_status(201);
    let board = made["board"].as_str().expect("an id");
    let (_, _, notice) = receiver.until(|notice| notice["kind"] == "provider").await;
    assert_eq!(notice["command"], format!("patchboard resume {board}"));
    let request = notice["request"].as_str().and_then(|request| request.strip_prefix("POST ")).expect("a request");
    daemon.post(request, &json!({})).await.expect_status(200);
    receiver.until(|notice| notice["resolved"] == true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boards_that_stop_or_give_up_are_reported_in_order() {
    let receiver = Receiver::new(200).await;
    let mut daemon = configured(&receiver.table());
    daemon.start();
    let stubborn = STEPS.replace("path: /steps/-, value: 1}", "path: /steps/-, value: 10}");
    let made = daemon.post("/v1/boards", &json!({ "source": stubborn })).await.expect_status(201);
    let gave_up = made["board"].as_str().expect("an id").to_owned();
    let circuit = format!("{stubborn}circuit:\n  rejections: {{limit: 1, then: stop_branch}}\n");
    let made = daemon.post("/v1/boards", &json!({ "source": circuit })).await.expect_status(201);
    let stopped = made["board"].as_str().expect("an id").to_owned();
    let (_, _, notice) = receiver.until(|notice| notice["kind"] == "stopped").await;
    assert_eq!(
        (&notice["board"], &notice["command"]),
        (&json!(stopped), &json!(format!("patchboard retry {stopped}")))
    );
    let is_end = |notice: &Value| {
        notice["board"] == gave_up.as_str() && notice["command"] == format!("patchboard retry {gave_up}")
    };
    receiver.until(is_end).await;
    let ids = receiver.ids();
    let seqs = |board: &str| {
        let own = ids.iter().filter_map(|id| id.strip_prefix(board)?.split(':').nth(1)?.parse().ok());
        own.collect::<Vec<u64>>()
    };
    // The invocation precedes the board; a stopped branch keeps its invocation.
    assert_eq!((seqs(&gave_up).len(), seqs(&stopped).len()), (2, 1), "{ids:?}");
    assert!(seqs(&gave_up).is_sorted(), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boards_from_before_the_table_are_reported_by_their_open_questions_alone() {
    let receiver = Receiver::new(200).await;
    let mut daemon = configured("");
    daemon.start();
    let stubborn = STEPS.replace("path: /steps/-, value: 1}", "path: /steps/-, value: 10}");
    let made = daemon.post("/v1/boards", &json!({ "source": stubborn })).await.expect_status(201);
    let old = made["board"].as_str().expect("an id").to_owned();
    daemon.until(&old, "quiescent").await;
    let (open, question) = asking(&daemon).await;
    daemon.stop();
    daemon.configure(&receiver.table());
    daemon.start();
    receiver.until(|notice| notice["id"] == format!("{open}:{}:question", question["seq"])).await;
    let (new, _) = asking(&daemon).await;
    receiver.until(|notice| notice["board"] == new.as_str()).await;
    assert!(!receiver.ids().iter().any(|id| id.starts_with(&old)), "{:?}", receiver.ids());
    daemon.post(&format!("/v1/boards/{old}/signals"), &json!({"name": "more"})).await.expect_status(202);
    receiver.until(|notice| notice["board"] == old.as_str()).await;
}

#[test]
fn a_wrong_table_keeps_the_daemon_from_starting_and_names_the_line() {
    let daemon = Daemon::not_started(&[]);
    for (text, line) in [
        ("[serve]\n\n[notify]\n", "line 3"),
        ("[notify]\nwebhook = \"https://ops.example\"\nsecret_env = \"ABSENT_SECRET\"\n", "line 3"),
        ("[notify]\nprogram = [\"p\"]\nonn = []\n", "line 3"),
    ] {
        daemon.configure(text);
        let ran = daemon.command(&["serve", "--listen", "127.0.0.1:0"]).output().expect("the binary can be run");
        let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains("bad_config") && stderr.contains(line) && stderr.contains("patchboard.toml"),
            "{stderr}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_sends_a_test_notice_and_says_what_came_of_it() {
    let receiver = Receiver::new(200).await;
    let daemon = configured(&receiver.table());
    let run = || {
        let mut command = daemon.command(&["notify", "test"]);
        command.env("HOOK_SECRET", SECRET);
        tokio::task::spawn_blocking(move || command.output().expect("the binary can be run"))
    };
    let ran = run().await.expect("it ends");
    let report: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!((ran.status.code(), &report["receivers"][0]["delivered"]), (Some(0), &json!(true)), "{report}");
    let (headers, body, notice) = receiver.until(|notice| notice["kind"] == "test").await;
    assert_signed(&headers, &body);
    assert_eq!(notice["id"], report["id"]);
    receiver.answers(500);
    let ran = run().await.expect("it ends");
    let report: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(ran.status.code(), Some(1), "{report}");
    assert!(report["receivers"][0]["why"].as_str().is_some_and(|why| why.contains("500")), "{report}");
    daemon.configure("");
    assert_eq!(run().await.expect("it ends").status.code(), Some(2));
}

/// Accepts requests over TLS, with a self-signed certificate, and sends their text to the returned channel.
fn behind_tls(listener: std::net::TcpListener) -> (String, std::sync::mpsc::Receiver<String>) {
    drop(rustls::crypto::ring::default_provider().install_default());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = Arc::new(config.with_single_cert(vec![made.cert.der().clone()], key).expect("they fit"));
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut stream = rustls::StreamOwned::new(connection, stream.expect("a connection"));
            let mut text = String::new();
            let mut reader = BufReader::new(&mut stream);
            // A client that does not trust the certificate sends nothing.
            while reader.read_line(&mut text).is_ok_and(|bytes| bytes > 0) && !text.ends_with("\r\n\r\n") {}
            let length = text.to_ascii_lowercase();
            let length = length.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next()?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            if reader.read_exact(&mut body).is_ok() && !body.is_empty() {
                stream.write_all(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n").expect("it listens");
                sender.send(text + &String::from_utf8_lossy(&body)).expect("the test reads");
            }
        }
    });
    (made.cert.pem(), requests)
}

#[test]
fn a_webhook_behind_tls_is_trusted_by_its_certificate() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (certificate, requests) = behind_tls(listener);
    let daemon =
        configured(&format!("[notify]\nwebhook = \"https://localhost:{port}/hook\"\nsecret_env = \"HOOK_SECRET\"\n"));
    fs::write(daemon.path().join("ca.pem"), certificate).expect("a file can be written");
    let run = |trusted: Option<&str>| {
        let mut command = daemon.command(&["notify", "test"]);
        command.env("HOOK_SECRET", SECRET);
        command.envs(trusted.map(|file| ("SSL_CERT_FILE", daemon.path().join(file))));
        let ran = command.output().expect("the binary can be run");
        (ran.status.code(), serde_json::from_slice::<Value>(&ran.stdout).expect("JSON"))
    };
    let (code, report) = run(Some("ca.pem"));
    assert_eq!((code, &report["receivers"][0]["delivered"]), (Some(0), &json!(true)), "{report}");
    let request = requests.recv_timeout(Duration::from_secs(30)).expect("it came");
    assert!(request.starts_with("POST /hook") && request.contains("webhook-signature: v1,"), "{request}");
    let (code, report) = run(None);
    assert_eq!(code, Some(1), "{report}");
    assert!(report["receivers"][0]["why"].as_str().is_some_and(|why| why.contains("certificate")), "{report}");
    assert!(requests.try_recv().is_err(), "nothing is sent to who cannot prove itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_needs_an_operator_is_reported_as_unavailable_until_it_answers() {
    let is_mended = Arc::new(AtomicBool::new(false));
    let endpoint = {
        let is_mended = Arc::clone(&is_mended);
        Endpoint::serving(move |_| match is_mended.load(Ordering::Relaxed) {
            false => ScriptedResponse::Say(401, "", "wrong key".into()),
            true => ScriptedResponse::answer(r#"[{"op":"add","path":"/steps/-","value":1}]"#, 9, 9),
        })
    };
    let mut daemon = configured(&format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n", endpoint.url));
    daemon.start();
    let mut boards = Vec::new();
    for _ in 0..2 {
        let made = daemon.post("/v1/boards", &json!({ "source": by_a_model() })).await.expect_status(201);
        let board = made["board"].as_str().expect("an id").to_owned();
        daemon.until(&board, "paused").await;
        boards.push(board);
    }
    assert_eq!(endpoint.bodies().len(), 2, "each board finds out for itself");
    let away = daemon.get("/readyz").await.expect_status(200)["models_away"][0].clone();
    assert_eq!((&away["reason"], &away["next_try_s"]), (&json!("key_refused"), &Value::Null), "{away}");
    is_mended.store(true, Ordering::Relaxed);
    for board in &boards {
        daemon.post(&format!("/v1/boards/{board}/resume"), &json!({})).await.expect_status(200);
        daemon.until(board, "quiescent").await;
    }
    let ready = daemon.get("/readyz").await.expect_status(200);
    assert_eq!(ready["models_away"], Value::Null, "{ready}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_come_signed_and_verify_takes_them_back() {
    let receiver = Receiver::new(500).await;
    let mut daemon = configured(&format!("{}heads = \"1s\"\non = [\"stopped\"]\n", receiver.table()));
    daemon.start();
    let board = daemon.board().await;
    let ended = daemon.until(&board, "quiescent").await;
    // A rejected notice is retried under its id.
    receiver.tried().await;
    receiver.answers(204);
    let head_of = |message: &Value| {
        let heads = message["heads"].as_array().expect("heads").clone();
        heads.into_iter().find(|head| head["board"] == board.as_str())
    };
    let is_head = |message: &Value, seq: &Value| head_of(message).is_some_and(|head| head["seq"] == *seq);
    let seq = ended["head"]["seq"].clone();
    let (headers, body, message) = receiver.until(|message| is_head(message, &seq)).await;
    assert_signed(&headers, &body);
    assert_eq!((&message["kind"], headers["webhook-id"].to_str().ok()), (&json!("heads"), message["id"].as_str()));
    assert_eq!(message["message"], "Heads of 1 board.");
    assert_eq!(head_of(&message).expect("its head")["hash"], ended["head"]["hash"]);
    // Only the other board has a new head.
    let other = daemon.board().await;
    daemon.until(&other, "quiescent").await;
    let has_other = |message: &Value| {
        message["heads"].as_array().is_some_and(|heads| heads.iter().any(|head| head["board"] == other.as_str()))
    };
    let (_, _, later) = receiver.until(has_other).await;
    assert_eq!(head_of(&later), None, "{later}");
    let ids = receiver.ids();
    daemon.stop();
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    // Kept bodies, one per line.
    let kept = daemon.path().join("heads.jsonl");
    fs::write(&kept, format!("{body}\n{later}\n")).expect("written");
    let kept = kept.to_str().expect("a path");
    let verify =
        |daemon: &Daemon| daemon.command(&["verify", "--heads", kept]).output().expect("the binary can be run");
    let sound = verify(&daemon);
    let stdout = String::from_utf8_lossy(&sound.stdout);
    assert!(sound.status.success() && stdout.contains(&board) && stdout.contains(&other), "{stdout}");
    fs::write(kept, body.replace(ended["head"]["hash"].as_str().expect("a hash"), &"0".repeat(64))).expect("written");
    assert_eq!(verify(&daemon).status.code(), Some(1));
}
