//! `patchboard mcp`: a way in for clients of MCP that start a program and speak to it over stdin and stdout: into a worker's
//! seat on a board of a daemon, or to a directory that agents share.
//!
//! Each line is a message; it is sent to the daemon's endpoint, or answered here where there is none, and what comes back is
//! written as lines. Nothing is decided here, so that both ways in are one; what is asked of an editor here has its turn
//! (`workspace::turns`). Stdout has nothing but messages.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http;
use axum::response::Response;
use clap::Args;
use futures_util::StreamExt as _;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::timeout;

use crate::client::{Client, DaemonArgument};
use crate::failure::{Exit, Failure, Outcome};
use crate::serve::{host, mcp};
use crate::workspace::desk::Desk;
use crate::workspace::editor::Editor;
use crate::workspace::place::Place;
use crate::workspace::turns::{Queued, Turn, Turns};

/// Bytes of a message, as the daemon takes them.
const MESSAGE_BYTES_MAX: u64 = 8 << 20;

/// Bytes of what the daemon says in one event: a view and its schema may be larger than any proposal.
const EVENT_BYTES_MAX: u64 = 64 << 20;

/// Messages that wait for their answers; further ones are read when there is room.
const UNDER_WAY_MAX: usize = 64;

/// Answers that wait to be written.
const UNWRITTEN_MAX: usize = 64;

/// How long an answer may take, and a stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
const STREAM_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// How long what is under way may take once the client has gone.
const DRAIN: Duration = Duration::from_secs(1);

/// Where a request says which version of the protocol it speaks.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Let a client of MCP edit a directory together with others, or take a worker's seat on a board of a daemon
///
/// Speaks the Model Context Protocol over stdin and stdout, for clients that start a program.
///
/// With --workspace the client finds an editor for the files of a directory: view, list, search, create, str_replace,
/// insert, delete, rename, and changes. Any number of clients start this command on the same directory at the same time. An
/// edit is made only if nothing of what its author has read has changed since; otherwise it is refused, with what is there
/// now. Nothing has to be set up or ended: the processes find each other by .patchboard in the directory, the first starts
/// another that all of them speak to, and that ends by itself when the last has gone. What was done is in the journal there,
/// for `patchboard log last --data-dir DIR/.patchboard/workspace`, and for why, replay and verify.
/// The table `[workspace]` of DIR/patchboard.toml, which the agents are not shown, says what holds for all of them: exclude,
/// max_bytes, annotate, granularity, intent.
///
/// With --url the client finds the tools of a seat: read_view, propose_patch, expand, clarify and explain_rejection, and the
/// editor where the worker has files. The token in PATCHBOARD_TOKEN must open the seat; one for seat:BOARD/WORKER names it
/// by itself.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard mcp --workspace .
  patchboard mcp --workspace ~/project --name ada
  patchboard mcp --url http://127.0.0.1:7733 --board 01990b5e-… --worker writer
  PATCHBOARD_TOKEN=pb_… patchboard mcp --url https://boards.example

In the configuration of a client:
  {\"mcpServers\": {\"files\": {\"command\": \"patchboard\", \"args\": [\"mcp\", \"--workspace\", \".\"]}}}")]
pub(crate) struct Arguments {
    /// The directory that is edited
    #[arg(long, value_name = "DIR", conflicts_with_all = ["board", "worker"])]
    workspace: Option<PathBuf>,
    /// What the agent is called in comments and in the log, with a number if another one is called so now; the name of its
    /// client and a number if absent
    #[arg(long, value_name = "NAME", requires = "workspace")]
    name: Option<String>,
    /// Characters that the client shows of a result of the editor; no result has more, so that all of it was read [default:
    /// 30000]
    #[arg(long, value_name = "CHARACTERS", value_parser = clap::value_parser!(u32).range(1_000..=64_000))]
    room: Option<u32>,
    /// Be the host of the directory, to whom others come; they start it themselves, with its lock as stdin
    #[arg(long, hide = true, requires = "workspace", conflicts_with = "name")]
    host: bool,
    #[command(flatten)]
    daemon: DaemonArgument,
    /// The board, by its whole id; that of the token if absent
    #[arg(long, value_name = "BOARD", requires = "worker")]
    board: Option<String>,
    /// The worker, by its name in the blueprint; that of the token if absent
    #[arg(long, value_name = "WORKER", requires = "board")]
    worker: Option<String>,
}

pub(crate) async fn run(arguments: &Arguments, config: Option<&Path>) -> Outcome {
    let Some(directory) = &arguments.workspace else { return passes_on(arguments).await };
    if config.is_some() {
        return Err(Failure::refused(
            "usage",
            "--workspace takes no --config: what holds at a directory holds for all agents",
        )
        .help("write it into the table [workspace] of patchboard.toml in the directory"));
    }
    if arguments.daemon.is_given() {
        return Err(Failure::refused("usage", "--workspace needs no daemon, so it does not go with --url"));
    }
    if arguments.host {
        return host::run(directory).await;
    }
    let desk = Arc::new(Desk::new(Place::open(directory)?, arguments.name.as_deref(), arguments.room)?);
    let editor = Editor::new(Arc::clone(&desk));
    let served = tokio::select! {
        served = serve(Far::Here { editor, turns: Arc::new(Turns::new()) }) => served,
        () = desk.keep() => Ok(Exit::Done),
    };
    desk.leave().await;
    served
}

async fn passes_on(arguments: &Arguments) -> Outcome {
    let client = arguments.daemon.client()?.ok_or_else(|| {
        Failure::refused("no_daemon", "neither a directory nor a daemon is named")
            .help("name a directory with --workspace, or a daemon with --url, like http://127.0.0.1:7733")
    })?;
    let path = match (&arguments.board, &arguments.worker) {
        (Some(board), Some(worker)) => format!("/mcp/{}/{}", segment(board), segment(worker)),
        _ => "/mcp".to_owned(),
    };
    serve(Far::Daemon { client, path, room: arguments.room }).await
}

async fn serve(far: Far) -> Outcome {
    let (answers, unwritten) = mpsc::channel(UNWRITTEN_MAX);
    let mut writing = tokio::spawn(write(unwritten));
    let endpoint = Arc::new(Endpoint { far, answers, version: Mutex::default(), asked: Mutex::default() });
    let mut under_way = JoinSet::new();
    let read = tokio::select! {
        read = read(&endpoint, BufReader::new(tokio::io::stdin()), &mut under_way) => read,
        // Nobody reads any more.
        written = &mut writing => return written_all(written),
    };
    drop(endpoint);
    // What is asked last is answered, too, by one who only writes and then reads.
    let _ = timeout(DRAIN, async { while under_way.join_next().await.is_some() {} }).await;
    under_way.shutdown().await;
    read.map_err(|error| Failure::failed("input_failed", format!("stdin cannot be read: {error}")))?;
    written_all(writing.await)
}

fn written_all(written: Result<io::Result<()>, JoinError>) -> Outcome {
    let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
    written.map(|()| Exit::Done).map_err(|error| Failure::writing(&error))
}

async fn write(mut unwritten: mpsc::Receiver<Answer>) -> io::Result<()> {
    let mut stdout = tokio::io::stdout();
    while let Some((message, turn)) = unwritten.recv().await {
        // Whoever goes on as soon as it is there has heard it.
        if let Some(turn) = &turn {
            turn.heard();
        }
        // A message is one line: JSON escapes what would break it.
        stdout.write_all(format!("{message}\n").as_bytes()).await?;
        stdout.flush().await?;
    }
    Ok(())
}

/// Sends on every line, without waiting for what comes of those before.
async fn read(
    endpoint: &Arc<Endpoint>,
    mut from: impl AsyncBufRead + Unpin,
    under_way: &mut JoinSet<()>,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(UNDER_WAY_MAX));
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut from).take(MESSAGE_BYTES_MAX).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Ok(());
        }
        if !line.ends_with(b"\n") && line.len() as u64 == MESSAGE_BYTES_MAX {
            endpoint.tell(error(&Value::Null, -32600, "message_too_large", "a message is too large")).await;
            return Ok(());
        }
        let Ok(text) = str::from_utf8(&line) else {
            endpoint.tell(error(&Value::Null, -32700, "not_json", "a message is JSON, in UTF-8")).await;
            continue;
        };
        if text.trim().is_empty() {
            continue;
        }
        let Ok(message) = serde_json::from_str::<Value>(text) else {
            endpoint.tell(error(&Value::Null, -32700, "not_json", "a message is one line of JSON")).await;
            continue;
        };
        if message["method"] == "notifications/cancelled" {
            endpoint.cancel(&message["params"]["requestId"]);
            continue;
        }
        // Before it waits for room: what comes meanwhile it has not heard.
        let queued = endpoint.far.queue(&message);
        while under_way.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        let (to, text) = (Arc::clone(endpoint), text.to_owned());
        let id = message.get("id").map(ToString::to_string);
        // Held until it is known how to end the request, so that it cannot be over before.
        let mut asked = locked(&endpoint.asked);
        let own = id.clone();
        let request = under_way.spawn(async move {
            let _place = place;
            to.pass_on(&message, text, queued).await;
            if let Some(id) = own {
                locked(&to.asked).remove(&id);
            }
        });
        if let Some(id) = id {
            asked.insert(id, request);
        }
    }
}

/// Where messages are answered.
enum Far {
    /// At a daemon's endpoint.
    Daemon { client: Client, path: String, room: Option<u32> },
    /// In this process.
    Here { editor: Editor, turns: Arc<Turns> },
}

/// A message to be written, and the turn that it ends, if it is what came of a command.
type Answer = (Value, Option<Arc<Turn>>);

impl Far {
    /// The place of a command of an editor here among those that were asked for before. A daemon takes things as they come.
    fn queue(&self, message: &Value) -> Option<Queued> {
        let Self::Here { turns, .. } = self else { return None };
        let tool = message["params"]["name"].as_str().filter(|_| message["method"] == "tools/call");
        tool.is_some_and(mcp::editor::is_tool).then(|| turns.queue())
    }

    async fn answer(
        &self,
        message: &Value,
        turn: Option<&Arc<Turn>>,
        text: String,
        mut headers: HeaderMap,
        within: Duration,
    ) -> Result<Response, Failure> {
        match self {
            Self::Daemon { client, path, room } => {
                if let Some(room) = room {
                    headers.insert(HeaderName::from_static(mcp::ROOM), HeaderValue::from(*room));
                }
                let response = client.send(path, headers, text, within).await?;
                Ok(http::Response::from(response).map(Body::new))
            }
            Self::Here { editor, .. } => {
                editor.hear(message);
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                let editor = turn.map_or_else(|| editor.clone(), |turn| editor.at(turn));
                Ok(mcp::answer(editor, &headers, message).await)
            }
        }
    }

    /// That an answer broke off.
    fn broken(&self, error: &axum::Error) -> Failure {
        match self {
            Self::Daemon { client, path, .. } => client.broken(path, error),
            Self::Here { .. } => Failure::failed("internal", format!("the answer broke off: {error}")),
        }
    }
}

/// What answers, and what is under way there.
struct Endpoint {
    far: Far,
    answers: mpsc::Sender<Answer>,
    /// The version of the protocol that was agreed on at the beginning, where one was.
    version: Mutex<Option<String>>,
    /// What is under way, by the text of its id.
    asked: Mutex<BTreeMap<String, AbortHandle>>,
}

impl Endpoint {
    /// Writes a message, if somebody reads them.
    async fn tell(&self, message: Value) {
        self.tell_in(None, message).await;
    }

    /// The same, where it is what came of a command.
    async fn tell_in(&self, turn: Option<Arc<Turn>>, message: Value) {
        let _ = self.answers.send((message, turn)).await;
    }

    /// Ends a request: the daemon notices that nobody waits for it. Of a command that has begun, the answer is not written.
    fn cancel(&self, id: &Value) {
        if let Some(request) = locked(&self.asked).remove(&id.to_string()) {
            request.abort();
        }
    }

    /// Has a message answered, and writes what it says.
    async fn pass_on(&self, message: &Value, text: String, queued: Option<Queued>) {
        let turn = match queued {
            Some(queued) => queued.turn().await,
            None => None,
        };
        if let Err(Failure::Told(told)) = self.exchange(message, text, turn).await
            && let Some(id) = answered_as(message)
        {
            self.tell(error(&id, -32603, told.code, &told.message)).await;
        }
    }

    async fn exchange(&self, message: &Value, text: String, turn: Option<Arc<Turn>>) -> Result<(), Failure> {
        let agreed = locked(&self.version).clone();
        let headers = headers_of(message, agreed.as_deref());
        let within = if message["method"] == "subscriptions/listen" { STREAM_TIMEOUT } else { ANSWER_TIMEOUT };
        let response = self.far.answer(message, turn.as_ref(), text, headers, within).await?;
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_stream = kind.starts_with("text/event-stream");
        let mut parts = response.into_body().into_data_stream();
        let (mut events, mut body) = (Events::default(), Vec::new());
        while let Some(bytes) = parts.next().await {
            let bytes = bytes.map_err(|error| self.far.broken(&error))?;
            if is_stream {
                for event in events.read(&bytes)? {
                    self.tell(event).await;
                }
            } else {
                body.extend_from_slice(&bytes);
            }
        }
        if is_stream {
            return Ok(());
        }
        let Some(id) = answered_as(message) else { return Ok(()) };
        let Ok(answer) = serde_json::from_slice::<Value>(&body) else {
            return Err(Failure::failed("daemon_unreachable", format!("what answers there speaks no MCP: {status}")));
        };
        if answer.get("jsonrpc").is_some() {
            if message["method"] == "initialize" {
                *locked(&self.version) = answer["result"]["protocolVersion"].as_str().map(str::to_owned);
            }
            self.tell_in(turn, answer).await;
        } else {
            // A problem document: the daemon did not come to look at the message.
            let code = if status.is_server_error() { -32603 } else { -32600 };
            let detail = answer["detail"].as_str().unwrap_or("the daemon refuses it and does not say why");
            let told = json!({"code": code, "message": detail, "data": answer});
            self.tell(json!({"jsonrpc": "2.0", "id": id, "error": told})).await;
        }
        Ok(())
    }
}

/// Whether something is told of a message, and as the answer to what: to nothing, if it is none and has no id. What only tells
/// something, or answers, is not answered.
fn answered_as(message: &Value) -> Option<Value> {
    let is_answer = message.get("method").is_none() && ["result", "error"].iter().any(|it| message.get(it).is_some());
    let is_told = message["method"].is_string() && message.get("id").is_none();
    let id = || message.get("id").filter(|id| mcp::is_id(id)).cloned().unwrap_or_default();
    (!is_answer && !is_told).then(id)
}

/// An error that the daemon has no part in.
fn error(id: &Value, number: i32, code: &str, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": number, "message": message, "data": {"code": code}}})
}

/// What streamable HTTP wants to have said outside of the message.
fn headers_of(message: &Value, agreed: Option<&str>) -> HeaderMap {
    let params = &message["params"];
    let own = params["_meta"][VERSION].as_str();
    let is_beginning = message["method"] == "initialize";
    let name = match message["method"].as_str() {
        Some("tools/call" | "prompts/get") => params["name"].as_str(),
        Some("resources/read") => params["uri"].as_str(),
        _ => None,
    };
    let said = [
        ("mcp-protocol-version", own.or(agreed).filter(|_| !is_beginning)),
        ("mcp-method", message["method"].as_str()),
        ("mcp-name", name),
    ];
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    for (header, value) in said {
        // What fits into no header is missed by the daemon, which says so.
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(HeaderName::from_static(header), value);
        }
    }
    headers
}

/// Reads a stream of server-sent events, each of which is a message.
#[derive(Default)]
struct Events {
    unread: Vec<u8>,
    data: Vec<u8>,
}

impl Events {
    /// The messages that are whole with these bytes.
    fn read(&mut self, bytes: &[u8]) -> Result<Vec<Value>, Failure> {
        let mut messages = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                self.unread.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.unread);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            if let Some(data) = line.strip_prefix(b"data:") {
                self.data.extend_from_slice(data);
            } else if line.is_empty() && !self.data.is_empty() {
                let data = std::mem::take(&mut self.data);
                messages.extend(serde_json::from_slice::<Value>(&data).ok());
            }
        }
        let kept = self.unread.len().saturating_add(self.data.len()) as u64;
        if kept > EVENT_BYTES_MAX {
            return Err(Failure::failed("message_too_large", "the daemon's message is too large"));
        }
        Ok(messages)
    }
}

/// A text as a segment of a path.
fn segment(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn locked<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is done while it is held that could leave it half done.
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Events, headers_of, segment};

    #[test]
    fn events_are_read_wherever_the_stream_is_cut() {
        let stream = b": ping\r\n\r\nid: 1\ndata: {\"a\":\ndata: 1}\n\ndata:\n\nevent: message\ndata:{\"b\":\"\xc3\xa4\"}\r\n\r\n";
        for cut in 0..stream.len() {
            let mut events = Events::default();
            let mut read = events.read(&stream[..cut]).expect("small");
            read.extend(events.read(&stream[cut..]).expect("small"));
            assert_eq!(read, [json!({"a": 1}), json!({"b": "ä"})], "cut at {cut}");
        }
    }

    #[test]
    fn a_request_says_outside_what_it_says_inside() {
        let said = |message: &Value, agreed| {
            let headers = headers_of(message, agreed);
            ["mcp-protocol-version", "mcp-method", "mcp-name"].map(|name| {
                headers.get(name).map(|value| value.to_str().expect("ASCII").to_owned()).unwrap_or_default()
            })
        };
        let call = json!({"method": "tools/call", "params": {"name": "expand"}});
        assert_eq!(said(&call, Some("2025-11-25")), ["2025-11-25", "tools/call", "expand"]);
        let read = json!({"method": "resources/read", "params": {"uri": "patchboard://board/log",
            "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}});
        assert_eq!(said(&read, Some("2025-11-25")), ["2026-07-28", "resources/read", "patchboard://board/log"]);
        let hello = json!({"method": "initialize", "params": {"protocolVersion": "2025-11-25"}});
        assert_eq!(said(&hello, Some("2025-06-18")), ["", "initialize", ""]);
        assert_eq!(said(&json!({"method": "a\nb: c"}), None), ["", "", ""]);
    }

    #[test]
    fn a_name_cannot_lead_to_another_path() {
        assert_eq!(segment("0199-a/../b?c#é"), "0199-a%2F..%2Fb%3Fc%23%C3%A9");
    }
}
