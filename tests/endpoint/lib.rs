//! Provides a chat endpoint for tests, with scripted responses.
//!
//! It supports as much HTTP/1.1 as a client of `/v1/chat/completions` or `/v1/models` needs, with one request per
//! connection. Its threads end with the process, or with the connection that they serve.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// Response to one request.
#[derive(Clone, Debug)]
pub enum ScriptedResponse {
    /// Answers with status, headers (each ended by CRLF) and body.
    Say(u16, &'static str, String),
    /// Accepts the request and sends nothing until the client disconnects.
    Hang,
    /// Announces a body and breaks off within it.
    BreakOff,
    /// Announces a longer body than this one and breaks off after it.
    CutOff(&'static str, String),
    /// Announces a longer body than this one and sends nothing after it until the client disconnects.
    Begin(&'static str, String),
}

impl ScriptedResponse {
    /// Returns a completion with this content, finish reason and usage.
    pub fn complete(content: &str, finish: &str, usage: Value) -> Self {
        let choice = json!({"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish});
        Self::Say(200, "", json!({"choices": [choice], "usage": usage}).to_string())
    }

    /// Returns a completion with tool calls, each given by id, name and arguments, and with this usage in tokens.
    pub fn call_tools(calls: &[(&str, &str, &str)], prompt: u64, completion: u64) -> Self {
        let call = |(id, name, arguments): &(&str, &str, &str)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        let calls: Vec<Value> = calls.iter().map(call).collect();
        let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
        let choice = json!({"index": 0, "message": message, "finish_reason": "tool_calls"});
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion});
        Self::Say(200, "", json!({"choices": [choice], "usage": usage}).to_string())
    }

    /// Returns a completion with a usage of `prompt` and `completion` tokens.
    pub fn answer(content: &str, prompt: u64, completion: u64) -> Self {
        Self::complete(content, "stop", json!({"prompt_tokens": prompt, "completion_tokens": completion}))
    }
}

/// Endpoint on a port of its own.
pub struct Endpoint {
    /// Base URL for a client's configuration.
    pub url: String,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Endpoint {
    /// Starts an endpoint that performs `acts` in order; the last one repeats.
    ///
    /// # Panics
    /// If `acts` is empty or no port is free.
    pub fn new(acts: Vec<ScriptedResponse>) -> Self {
        let count = AtomicUsize::new(0);
        Self::serving(move |_| {
            let count = count.fetch_add(1, Ordering::Relaxed);
            acts.get(count).or(acts.last()).expect("at least one act").clone()
        })
    }

    /// Starts an endpoint that chooses its act by the request's body.
    ///
    /// # Panics
    /// If no port is free.
    pub fn serving(act: impl Fn(&Value) -> ScriptedResponse + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, act) = (Arc::clone(&requests), Arc::new(act));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, act) = (Arc::clone(&seen), Arc::clone(&act));
                std::thread::spawn(move || serve(stream.expect("a connection"), &*act, &seen));
            }
        });
        Self { url, requests }
    }

    /// Returns the bodies of all requests so far.
    ///
    /// # Panics
    /// If a request was malformed.
    pub fn bodies(&self) -> Vec<Value> {
        self.requests().into_iter().map(|(_, body)| body).collect()
    }

    /// Returns heads (lower case) and bodies of all requests so far.
    ///
    /// # Panics
    /// If a request was malformed.
    pub fn requests(&self) -> Vec<(String, Value)> {
        self.requests.lock().expect("no thread of the endpoint has failed").clone()
    }
}

fn serve(mut stream: TcpStream, act: &dyn Fn(&Value) -> ScriptedResponse, seen: &Mutex<Vec<(String, Value)>>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        // The client disconnected without a request.
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("a head is text").to_lowercase();
    let length = head.split("content-length:").nth(1).map(|rest| rest.lines().next().expect("a line").trim());
    // A request without a length has no body.
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    if stream.read_exact(&mut body).is_err() {
        return;
    }
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).expect("a body is JSON") };
    seen.lock().expect("no other thread has failed").push((head, body.clone()));
    let act = act(&body);
    let is_left_open = matches!(act, ScriptedResponse::Begin(..));
    let said = match act {
        ScriptedResponse::Say(status, headers, body) => {
            let length = body.len();
            format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}")
        }
        ScriptedResponse::CutOff(headers, body) | ScriptedResponse::Begin(headers, body) => {
            format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\n\r\n{body}", body.len() + 100)
        }
        ScriptedResponse::BreakOff => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned(),
        ScriptedResponse::Hang => {
            drop(stream.read(&mut byte));
            return;
        }
    };
    // The client may have disconnected already.
    drop(stream.write_all(said.as_bytes()));
    if is_left_open {
        drop(stream.read(&mut byte));
    }
}
