//! `patchboard mcp`: MCP server over stdin and stdout, for clients that start a program. Gives access to a worker's
//! seat on a board of a daemon, or to a directory shared by agents.
//!
//! Each line of input is a message. It is forwarded to the daemon's endpoint, or answered in this process if there is
//! no daemon; the response is written as lines. Both paths behave the same, because no decision is made here. Editor
//! commands answered in this process are ordered by `workspace::command_queue`. Stdout carries nothing but messages.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http;
use axum::response::Response;
use clap::Args;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::timeout;

use crate::client::{Client, DaemonArgument, path};
use crate::failure::{Exit, Failure, Outcome};
use crate::serve::{host, mcp};
use crate::workspace::command_queue::{CommandQueue, QueuedCommand, RunningCommand};
use crate::workspace::editor::Editor;
use crate::workspace::host_client::HostClient;
use crate::workspace::host_dir::HostDir;

/// Maximum bytes of a message, equal to the daemon's limit.
const MESSAGE_BYTES_MAX: u64 = 8 << 20;

/// Maximum bytes of an event from the daemon: a view and its schema may be larger than any proposal.
const EVENT_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of concurrent requests; further messages are read when a request finishes.
const UNDER_WAY_MAX: usize = 64;

/// Capacity of the queue of messages to be written.
const UNWRITTEN_MAX: usize = 64;

/// Timeouts for a response and for a stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
const STREAM_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Grace period for pending requests after the client closes stdin.
const DRAIN: Duration = Duration::from_secs(1);

/// Member of a request's `_meta` that holds its protocol version.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Let an MCP client edit a directory together with others, or take a worker's seat on a board of a daemon
///
/// Speaks the Model Context Protocol over stdin and stdout, for clients that start a program.
///
/// With --workspace the client gets an editor for the files of a directory: view, list, search, create, str_replace,
/// insert, delete, rename, and changes. Any number of clients can run this command on the same directory concurrently.
/// An edit is made only if nothing in its author's read set has changed since; otherwise it is rejected, with the
/// current content. No set-up is needed. The first process starts a host process, found through .patchboard in the
/// directory, and all clients connect to it; it exits after the last client. A journal there records everything: use
/// `patchboard log last --data-dir DIR/.patchboard/workspace`, also with why, replay and verify. The table
/// `[workspace]` of DIR/patchboard.toml, which is hidden from the agents, has the settings for all of them: exclude,
/// max_bytes, annotate, granularity, intent.
///
/// With --url the client gets the tools of a seat: read_view, propose_patch, expand, clarify and explain_rejection, and
/// the editor if the worker has files. The token in PATCHBOARD_TOKEN must grant the seat; a token for seat:BOARD/WORKER
/// also selects it.
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
    /// The directory to edit
    #[arg(long, value_name = "DIR", conflicts_with_all = ["board", "worker"])]
    workspace: Option<PathBuf>,
    /// Name of the agent in comments and in the log, with a number if that name is in use; default: the client's name
    /// and a number
    #[arg(long, value_name = "NAME", requires = "workspace")]
    name: Option<String>,
    /// Maximum characters of an editor result that the client displays; results are limited to this, so that each is
    /// read whole [default: 30000]
    #[arg(long, value_name = "CHARACTERS", value_parser = clap::value_parser!(u32).range(1_000..=64_000))]
    room: Option<u32>,
    /// Run as the host of the directory; clients start it themselves, with its lock as stdin
    #[arg(long, hide = true, requires = "workspace", conflicts_with = "name")]
    host: bool,
    #[command(flatten)]
    daemon: DaemonArgument,
    /// The board, by its whole id; the token's board if absent
    #[arg(long, value_name = "BOARD", requires = "worker")]
    board: Option<String>,
    /// The worker, by its name in the blueprint; the token's worker if absent
    #[arg(long, value_name = "WORKER", requires = "board")]
    worker: Option<String>,
}

pub(crate) async fn run(arguments: &Arguments, config: Option<&Path>) -> Outcome {
    let Some(directory) = &arguments.workspace else { return forward_to_daemon(arguments).await };
    if config.is_some() {
        let message = "--workspace takes no --config: the settings of a directory apply to all its agents";
        return Err(Failure::invalid_input("usage", message)
            .help("write it into the table [workspace] of patchboard.toml in the directory"));
    }
    if arguments.daemon.is_given() {
        return Err(Failure::invalid_input("usage", "--workspace needs no daemon, so it does not go with --url"));
    }
    if arguments.host {
        return host::run(directory).await;
    }
    let desk = Arc::new(HostClient::new(HostDir::open(directory)?, arguments.name.as_deref(), arguments.room)?);
    let editor = Editor::new(Arc::clone(&desk));
    let served = tokio::select! {
        served = serve(Destination::Local { editor, turns: Arc::new(CommandQueue::new()) }) => served,
        () = desk.renew_lease() => Ok(Exit::Done),
    };
    desk.leave().await;
    served
}

async fn forward_to_daemon(arguments: &Arguments) -> Outcome {
    let client = arguments.daemon.client()?.ok_or_else(|| {
        Failure::invalid_input("no_daemon", "neither a directory nor a daemon is named")
            .help("name a directory with --workspace, or a daemon with --url, like http://127.0.0.1:7733")
    })?;
    let path = match (&arguments.board, &arguments.worker) {
        (Some(board), Some(worker)) => path(&["mcp", board, worker]),
        _ => "/mcp".to_owned(),
    };
    serve(Destination::Daemon { client, path, room: arguments.room }).await
}

async fn serve(far: Destination) -> Outcome {
    let (answers, unwritten) = mpsc::channel(UNWRITTEN_MAX);
    let mut writing = tokio::spawn(write(unwritten));
    let endpoint = Arc::new(Endpoint { far, answers, version: Mutex::default(), in_progress: Mutex::default() });
    let mut under_way = JoinSet::new();
    let read = tokio::select! {
        read = read(&endpoint, BufReader::new(tokio::io::stdin()), &mut under_way) => read,
        // The client no longer reads the output.
        written = &mut writing => return written_all(written),
    };
    drop(endpoint);
    // A client that writes all requests before it reads still gets the last answers.
    let _ = timeout(DRAIN, async { while under_way.join_next().await.is_some() {} }).await;
    under_way.shutdown().await;
    read.map_err(|error| Failure::failed("input_failed", format!("stdin cannot be read: {error}")))?;
    written_all(writing.await)
}

fn written_all(written: Result<io::Result<()>, JoinError>) -> Outcome {
    let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
    written.map(|()| Exit::Done).map_err(|error| Failure::writing(&error))
}

async fn write(mut unwritten: mpsc::Receiver<OutgoingMessage>) -> io::Result<()> {
    let mut stdout = tokio::io::stdout();
    while let Some((message, turn)) = unwritten.recv().await {
        // Marked before writing: a client that sees the message may respond to it at once.
        if let Some(turn) = &turn {
            turn.mark_received();
        }
        // A message is one line, since JSON escapes line breaks.
        stdout.write_all(format!("{message}\n").as_bytes()).await?;
        stdout.flush().await?;
    }
    Ok(())
}

/// Forwards every line without waiting for earlier responses.
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
            endpoint.send(error(&Value::Null, -32600, "message_too_large", "a message is too large")).await;
            return Ok(());
        }
        let Ok(text) = str::from_utf8(&line) else {
            endpoint.send(error(&Value::Null, -32700, "not_json", "a message is JSON, in UTF-8")).await;
            continue;
        };
        if text.trim().is_empty() {
            continue;
        }
        let Ok(message) = serde_json::from_str::<Value>(text) else {
            endpoint.send(error(&Value::Null, -32700, "not_json", "a message is one line of JSON")).await;
            continue;
        };
        if message["method"] == "notifications/cancelled" {
            endpoint.cancel(&message["params"]["requestId"]);
            continue;
        }
        // Queued before waiting for a free slot: the client has not yet seen answers written meanwhile.
        let queued = endpoint.far.queue(&message);
        while under_way.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        let (to, text) = (Arc::clone(endpoint), text.to_owned());
        let id = message.get("id").map(ToString::to_string);
        // Lock held until the request is registered, so that it cannot finish earlier.
        let mut asked = endpoint.in_progress.lock();
        let own = id.clone();
        let request = under_way.spawn(async move {
            let _place = place;
            to.forward(&message, text, queued).await;
            if let Some(id) = own {
                to.in_progress.lock().remove(&id);
            }
        });
        if let Some(id) = id {
            asked.insert(id, request);
        }
    }
}

enum Destination {
    Daemon { client: Client, path: String, room: Option<u32> },
    Local { editor: Editor, turns: Arc<CommandQueue> },
}

/// Message to write; with the turn that it completes, if it is a command's result.
type OutgoingMessage = (Value, Option<Arc<RunningCommand>>);

impl Destination {
    /// Queues an editor command of this process behind earlier ones. Messages to a daemon are not queued.
    fn queue(&self, message: &Value) -> Option<QueuedCommand> {
        let Self::Local { turns, .. } = self else { return None };
        let tool = message["params"]["name"].as_str().filter(|_| message["method"] == "tools/call");
        tool.is_some_and(mcp::editor::is_tool).then(|| turns.queue())
    }

    async fn answer(
        &self,
        message: &Value,
        turn: Option<&Arc<RunningCommand>>,
        text: String,
        mut headers: HeaderMap,
        within: Duration,
    ) -> Result<Response, Failure> {
        match self {
            Self::Daemon { client, path, room } => {
                if let Some(room) = room {
                    headers.insert(HeaderName::from_static(mcp::ROOM), HeaderValue::from(*room));
                }
                let response = client.send(path, headers, Some(text), within).await?;
                Ok(http::Response::from(response).map(Body::new))
            }
            Self::Local { editor, .. } => {
                editor.note_client_name(message);
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                let editor = turn.map_or_else(|| editor.clone(), |turn| editor.for_command(turn));
                Ok(mcp::answer(editor, &headers, message).await)
            }
        }
    }

    fn broken(&self, error: &axum::Error) -> Failure {
        match self {
            Self::Daemon { client, path, .. } => client.broken(path, error),
            Self::Local { .. } => Failure::failed("internal", format!("the answer broke off: {error}")),
        }
    }
}

struct Endpoint {
    far: Destination,
    answers: mpsc::Sender<OutgoingMessage>,
    /// Protocol version negotiated by `initialize`, if any.
    version: Mutex<Option<String>>,
    /// Requests in progress, by the JSON text of their ids.
    in_progress: Mutex<BTreeMap<String, AbortHandle>>,
}

impl Endpoint {
    /// Queues a message for writing; ignored if the writer has ended.
    async fn send(&self, message: Value) {
        self.send_result(None, message).await;
    }

    async fn send_result(&self, turn: Option<Arc<RunningCommand>>, message: Value) {
        let _ = self.answers.send((message, turn)).await;
    }

    /// Cancels a request. The daemon notices the closed connection; a command already started gets no answer.
    fn cancel(&self, id: &Value) {
        if let Some(request) = self.in_progress.lock().remove(&id.to_string()) {
            request.abort();
        }
    }

    async fn forward(&self, message: &Value, text: String, queued: Option<QueuedCommand>) {
        let turn = if let Some(queued) = queued { queued.turn().await } else { None };
        if let Err(Failure::Error(failure)) = self.exchange(message, text, turn).await
            && let Some(id) = response_id(message)
        {
            self.send(error(&id, -32603, failure.code, &failure.message)).await;
        }
    }

    async fn exchange(&self, message: &Value, text: String, turn: Option<Arc<RunningCommand>>) -> Result<(), Failure> {
        let agreed = self.version.lock().clone();
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
                    self.send(event).await;
                }
            } else {
                body.extend_from_slice(&bytes);
            }
        }
        if is_stream {
            return Ok(());
        }
        let Some(id) = response_id(message) else { return Ok(()) };
        let Ok(answer) = serde_json::from_slice::<Value>(&body) else {
            return Err(Failure::failed(
                "daemon_unreachable",
                format!("the server there does not speak MCP: {status}"),
            ));
        };
        if answer.get("jsonrpc").is_some() {
            if message["method"] == "initialize" {
                *self.version.lock() = answer["result"]["protocolVersion"].as_str().map(str::to_owned);
            }
            self.send_result(turn, answer).await;
        } else {
            // Problem document: the daemon rejected the request before reading the message.
            let code = if status.is_server_error() { -32603 } else { -32600 };
            let detail = answer["detail"].as_str().unwrap_or("the daemon refuses it and does not say why");
            let error = json!({"code": code, "message": detail, "data": answer});
            self.send(json!({"jsonrpc": "2.0", "id": id, "error": error})).await;
        }
        Ok(())
    }
}

/// Returns the id for the response to a message; null for an invalid message without an id. Notifications and responses
/// get no response.
fn response_id(message: &Value) -> Option<Value> {
    let is_answer = message.get("method").is_none() && ["result", "error"].iter().any(|it| message.get(it).is_some());
    let is_notification = message["method"].is_string() && message.get("id").is_none();
    let id = || message.get("id").filter(|id| mcp::is_id(id)).cloned().unwrap_or_default();
    (!is_answer && !is_notification).then(id)
}

/// Returns an error response produced by this process.
fn error(id: &Value, number: i32, code: &str, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": number, "message": message, "data": {"code": code}}})
}

/// Returns the headers that streamable HTTP requires for a message.
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
        // A value invalid as a header is omitted; the daemon reports the missing header.
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(HeaderName::from_static(header), value);
        }
    }
    headers
}

/// Parser of server-sent events, each of them a message.
#[derive(Default)]
struct Events {
    unread: Vec<u8>,
    data: Vec<u8>,
}

impl Events {
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Events, headers_of, path};

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
        assert_eq!(path(&["0199-a/../b?c#é"]), "/0199-a%2F..%2Fb%3Fc%23%C3%A9");
    }
}
