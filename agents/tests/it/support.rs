//! Calls to make, and a chat endpoint that says what a test tells it to.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jsonptr::PointerBuf;
use patchboard_agents::config::Program;
use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::digest::{Hasher, Salt, sha256};
use patchboard_kernel::freshness::Basis;
use patchboard_kernel::id::{BoardId, InvocationId, Token};
use patchboard_kernel::mode::Mode;
use patchboard_kernel::plan::{Own, Plans as _};
use patchboard_kernel::shown::Shown;
use patchboard_kernel::state::State;
use patchboard_kernel::view::Prompt;
use patchboard_runtime::agent::Call;
use serde_json::{Value, json};

/// A seat, given as in a blueprint.
pub(crate) fn seat(fields: Value) -> Worker {
    serde_json::from_value(fields).expect("a seat")
}

/// The n-th call of a worker, which shows it `shown`.
pub(crate) fn call(worker: &str, seat: Worker, shown: &str, occurrence: u32) -> Call {
    let invocation = InvocationId(u64::from(occurrence) + 1);
    Call {
        board: BoardId::from("b"),
        invocation,
        attempt: 1,
        occurrence,
        token: Token::from(format!("{worker}:{invocation}:1")),
        worker: worker.into(),
        model: None,
        view_hash: sha256(shown.as_bytes()),
        prompt: Arc::new(Prompt { system: "You are a test.".into(), user: shown.into() }),
        shown: Arc::new(values(worker, &seat)),
        timeout: Duration::from_secs(10),
    }
}

/// What a worker with this seat is shown of a small board.
fn values(worker: &str, seat: &Worker) -> Shown {
    let blueprint = json!({"blueprint": 1, "name": "b", "state": {"schema": true}, "workers": {worker: seat}});
    let plan = Own.of(serde_json::from_value(blueprint).expect("a blueprint"), &Mode::default()).expect("a plan");
    let state = State::new(&json!({"seen": {"count": 2}, "hidden": 3}), &Hasher::new(&Salt::ZERO));
    let basis = Basis { state, reads: vec![PointerBuf::from_tokens(["seen"])], members: Vec::new() };
    Shown::new(plan, worker.into(), Arc::new(basis), false).expect("the worker is there")
}

/// What the endpoint does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Answers with status, headers (each ended by CRLF) and body.
    Say(u16, &'static str, String),
    /// Takes the request and says nothing.
    Hang,
    /// Announces a body and breaks off in it.
    BreakOff,
}

impl Act {
    /// A completion with this content, reason to finish and usage.
    pub(crate) fn complete(content: &str, finish: &str, usage: Value) -> Self {
        let choice = json!({"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish});
        Self::Say(200, "", json!({"choices": [choice], "usage": usage}).to_string())
    }
}

/// An endpoint on a port of its own; the last act repeats.
pub(crate) struct Endpoint {
    /// Its address, as it would be configured.
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Endpoint {
    pub(crate) fn new(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for (count, stream) in listener.incoming().enumerate() {
                let act = acts.get(count).or(acts.last()).expect("at least one act").clone();
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || serve(stream.expect("a connection"), act, &seen));
            }
        });
        Self { url, requests }
    }

    /// Heads (lower case) and bodies of all requests so far.
    pub(crate) fn requests(&self) -> Vec<(String, Value)> {
        self.requests.lock().expect("no thread of the endpoint has failed").clone()
    }
}

fn serve(mut stream: TcpStream, act: Act, seen: &Mutex<Vec<(String, Value)>>) {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).expect("a head") == 0 {
            return;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).expect("a head is text").to_lowercase();
    let length = head.split("content-length:").nth(1).expect("a length").lines().next().expect("a line").trim();
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).expect("a body");
    let body = serde_json::from_slice(&body).expect("a body is JSON");
    seen.lock().expect("no other thread has failed").push((head, body));
    let said = match act {
        Act::Say(status, headers, body) => {
            let length = body.len();
            format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}")
        }
        Act::BreakOff => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned(),
        Act::Hang => {
            // Until the client goes away.
            drop(stream.read(&mut byte));
            return;
        }
    };
    // The client may have given up already.
    drop(stream.write_all(said.as_bytes()));
}

/// A program made of a script.
pub(crate) fn sh(script: &str) -> Program {
    Program::new(vec!["sh".into(), "-c".into(), script.into()])
}

/// Whether a process runs; one that waits to be reaped does not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    status.is_ok_and(|text| !text.rsplit(')').next().expect("a state").trim_start().starts_with('Z'))
}

/// Waits for a process to end, because a kill takes effect a little later.
pub(crate) async fn is_soon_gone(pid: &str) -> bool {
    for _ in 0..200 {
        if !is_alive(pid) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

/// The number that a process has written to a file.
pub(crate) async fn pid_in(file: &Path) -> String {
    for _ in 0..500 {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if text.ends_with('\n') {
            return text.trim().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no process has written its number");
}
