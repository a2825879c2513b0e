//! A chat endpoint that says what a test tells it to, one answer after the other; the last repeats.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// What it does with one request.
#[derive(Clone)]
pub(crate) enum Act {
    /// Answers with this content; it costs 100 tokens of the prompt, 20 of them cached, and 10 of the reply.
    Say(String),
    /// Takes the request and never answers.
    Hang,
}

/// The tokens that an answer costs.
pub(crate) const ANSWER_TOKENS: u64 = 110;

/// An endpoint on a port of its own.
pub(crate) struct Endpoint {
    /// Its address, as `--model-url` takes it.
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Value>>>,
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

    /// The bodies of the requests so far.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.requests.lock().expect("nobody panicked").clone()
    }
}

fn serve(mut stream: TcpStream, act: Act, seen: &Mutex<Vec<Value>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).unwrap_or(0) > 2 {
        if let Some((name, value)) =
            line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        {
            length = value.trim().parse().unwrap_or_else(|_| panic!("{name} is a number"));
        }
        line.clear();
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    seen.lock().expect("nobody panicked").push(serde_json::from_slice(&body).expect("a request is JSON"));
    match act {
        // Until whoever asks goes away.
        Act::Hang => drop(reader.read(&mut [0; 1])),
        Act::Say(content) => {
            let choice = json!({"message": {"role": "assistant", "content": content}, "finish_reason": "stop"});
            let usage =
                json!({"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 20}});
            let body = json!({"choices": [choice], "usage": usage}).to_string();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length";
            let _ = write!(stream, "{head}: {}\r\n\r\n{body}", body.len());
        }
    }
}
