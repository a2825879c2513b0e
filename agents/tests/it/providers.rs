//! The chat agent against a server that deviates as vendors do: every behaviour that the server defines.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use patchboard_agents::config::Model;
use patchboard_agents::llm::{Chat, Variables};
use patchboard_runtime::agent::{Agent as _, Permit};
use serde_json::{Value, json};

use crate::support::{call, seat};

/// Calls that a board makes of one behaviour, deferrals included.
const CALLS: u32 = 7;

/// Behaviours that cannot end with the answer, and words of the failure that a user can act on.
const FAILING: [(&str, &str); 17] = [
    ("401", "401 Unauthorized"),
    ("402", "Insufficient credits"),
    ("403_html", "you have been blocked"),
    ("404_path", "/v1"),
    ("405", "/v1"),
    ("413", "Request Entity Too Large"),
    ("429_always", "Too many requests"),
    ("quota_google", "exceeded your current quota"),
    ("400_empty", "400 Bad Request"),
    ("ctx", "maximum context length is 4096"),
    ("ctx_llamacpp", "exceeds the available context size"),
    ("finish_filter", "content filter"),
    ("refusal", "I can't help with that"),
    ("choices_empty_always", "no choice"),
    ("reasoning_length", "cut off"),
    ("length_partial", "cut off"),
    ("redirect", "redirects to"),
];

/// Replies whose text the kernel judges: they are no JSON, or no patch.
const JUDGED: [&str; 6] = ["single_quotes", "trailing_comma", "rawctl", "huge_num", "lone_surrogate", "bad_utf8"];

/// Behaviours that take longer than a test may.
const SLOW: [&str; 2] = ["drip_long", "hang_once"];

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts a program of the shared directory; none if it, or Python, is missing.
fn start(name: &str) -> Option<(Server, String, Vec<String>, tempfile::TempDir)> {
    let root = std::env::var_os("PATCHBOARD_SHARED").map(PathBuf::from);
    let file = root.map(|root| root.join("cases/providers").join(name)).filter(|file| file.is_file());
    let Some(file) = file else {
        println!("SKIPPED: no {name} (set PATCHBOARD_SHARED to the directory of the cases)");
        return None;
    };
    let source = std::fs::read_to_string(&file).expect("a readable file");
    let names = source.lines().filter_map(|line| line.trim().strip_prefix("def s_")?.split('(').next());
    let names = names.map(str::to_owned).collect();
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Command::new("python3");
    server.arg(file).arg(port.to_string()).arg("requests").current_dir(&dir);
    let Ok(child) = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        println!("SKIPPED: no python3");
        return None;
    };
    let server = Server(child);
    for _ in 0..200 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Some((server, format!("http://127.0.0.1:{port}/v1"), names, dir))
}

/// Calls a model as a board does: again after a deferral that passes, and after a failure.
async fn play(url: &str, name: &str) -> Result<String, String> {
    let chat = Chat::new(&Model::new(url, name), &Variables::new()).expect("a client");
    let fields = json!({"agent": "llm", "writes": [{"path": "/answer"}], "limits": {"reply_tokens": 1024}});
    let mut last = String::new();
    for attempt in 1..=CALLS {
        let mut call = call("w", seat(fields.clone()), "What is shown.", 0);
        call.attempt = attempt;
        call.permit = Some(Permit::ungated());
        match chat.call(&call).await {
            Ok(reply) => return Ok(reply.text),
            Err(failure) if failure.deferral.is_some_and(|deferral| deferral.reason.needs_operator()) => {
                return Err(failure.message);
            }
            Err(failure) => last = failure.message,
        }
    }
    Err(last)
}

#[tokio::test]
async fn every_behaviour_ends_with_the_answer_or_in_words_to_act_on() {
    let Some((_server, url, names, _dir)) = start("fake_vendor.py") else { return };
    let slow = BTreeSet::from(SLOW);
    let names = names.iter().filter(|name| !slow.contains(name.as_str()));
    let mut playing = tokio::task::JoinSet::new();
    for name in names.cloned() {
        let url = url.clone();
        playing.spawn(async move { (play(&url, &name).await, name) });
    }
    let mut wrong = Vec::new();
    while let Some(played) = playing.join_next().await {
        let (outcome, name) = played.expect("no panic");
        let failing = FAILING.iter().find(|(known, _)| *known == name);
        let is_right = match (&outcome, failing) {
            (Err(why), Some((_, words))) => why.contains(words),
            (Ok(_), None) if JUDGED.contains(&name.as_str()) => true,
            (Ok(text), None) => {
                serde_json::from_str::<Value>(text).is_ok_and(|reply| reply.to_string().contains("/answer"))
            }
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{name}: {outcome:?}"));
        }
    }
    wrong.sort();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
