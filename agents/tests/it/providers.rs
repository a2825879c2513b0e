//! The chat agent with a server that deviates as vendors do, in every behaviour that the server defines.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use jsonptr::PointerBuf;
use patchboard_agents::config::Model;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Worker;
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::digest::{Hasher, Salt};
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::freshness::{CommitLookup, ProposalContext, ReadSet, Reservations};
use patchboard_kernel::id::{Seq, Version, WorkerName};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::pipeline::{self, ReplyBody, Verdict};
use patchboard_kernel::plan::PlanSource as _;
use patchboard_kernel::rejection::{Code, Rejection};
use patchboard_kernel::scheduler::AttemptHistory;
use patchboard_kernel::state::State;
use patchboard_llm::{Chat, Variables};
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{Agent as _, Call, CallResult, Failure, Permit};
use patchboard_runtime::tools::{BoxFuture, ToolDefinition, ToolOutput, Tools};
use serde_json::{Value, json};

use crate::support::{call, seat};

/// Maximum number of deferrals of one attempt.
const DEFERRALS_MAX: u32 = 6;

/// Expected end of a behaviour.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// Reply with this value at `/answer`.
    Answer(&'static str),
    /// Rejection by the kernel, with this code and these words.
    Rejected(Code, &'static str),
    /// Failure with this code, and words that a user can act on.
    Fails(FailureCode, &'static str),
}

/// Returns the expected end of a behaviour; the default is the answer 42.
fn expected(name: &str) -> Expected {
    use Expected::{Answer, Fails, Rejected};
    use FailureCode as F;
    match name {
        "401" => Fails(F::Refused, "401 Unauthorized"),
        "402" => Fails(F::Refused, "Insufficient credits"),
        "403_html" => Fails(F::Refused, "you have been blocked"),
        "404_path" | "405" => Fails(F::Refused, "/v1"),
        "413" => Fails(F::Refused, "Request Entity Too Large"),
        "429_always" => Fails(F::RateLimited, "Too many requests"),
        "quota_google" => Fails(F::Refused, "exceeded your current quota"),
        "400_empty" => Fails(F::Refused, "400 Bad Request"),
        "ctx" => Fails(F::Refused, "maximum context length is 4096"),
        "ctx_llamacpp" => Fails(F::Refused, "exceeds the available context size"),
        "finish_filter" => Fails(F::Refused, "content filter"),
        "refusal" => Fails(F::Refused, "I can't help with that"),
        "choices_empty_always" => Fails(F::Protocol, "no choice"),
        "reasoning_length" | "length_partial" => Fails(F::Truncated, "cut off"),
        "redirect" => Fails(F::Refused, "redirects to"),
        "drip_long" => Fails(F::Timeout, "no answer from the model within"),
        "single_quotes" | "trailing_comma" | "rawctl" => Rejected(Code::InvalidJson, "a reply is one JSON object"),
        "lone_surrogate" => Rejected(Code::InvalidJson, "hex escape"),
        "huge_num" => Rejected(Code::NumberOutOfRange, "number"),
        "single_op" | "wrapped" => Rejected(Code::NotAPatch, "patch"),
        "lone_surrogate_raw" => Answer("\u{fffd}"),
        "bad_utf8" => Answer("4\u{fffd}"),
        "latin1" => Answer("caf\u{e9}"),
        "nul" => Answer("a\0b"),
        _ => Answer("42"),
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts a program of the shared directory; returns none if it or Python is missing.
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

/// Actual end of a behaviour.
#[derive(Debug)]
enum Outcome {
    Answer(Value),
    Rejected(Rejection),
    Failed(Failure),
}

/// Calls a model as a board does. Retries after a temporary deferral, and after a failure or rejection as often as the
/// seat allows. Waits are shortened.
async fn play(url: String, name: String, expected: Expected, files: Option<PathBuf>) -> Result<(), String> {
    // These take longer than a test may; a short timeout shows their behaviour earlier.
    let timeout = if matches!(name.as_str(), "drip_long" | "hang_once") { 1500 } else { 20_000 };
    let chat = Chat::new(&Model::new(url, name.clone()), &Variables::new()).expect("a client");
    let (mut outcome, mut past) = (None, AttemptHistory::default());
    for attempt in 1..=writer(files.is_some()).limits.attempts {
        let mut call = call("writer", writer(files.is_some()), "What is shown.", 0);
        call.decided.context = Arc::new(shown(files.is_some()));
        (call.decided.attempt, call.decided.earlier_attempts) = (attempt, past.clone());
        call.permit = Some(Permit::ungated());
        call.timeout = Duration::from_millis(timeout);
        let mut answer = ask(&chat, &call, files.as_deref()).await;
        for _ in 0..DEFERRALS_MAX {
            let is_passing = |failure: &Failure| failure.deferral.is_some_and(|one| !one.reason.needs_operator());
            if !answer.as_ref().is_err_and(is_passing) {
                break;
            }
            answer = ask(&chat, &call, files.as_deref()).await;
        }
        let found = match answer {
            Ok(reply) => judged(&call, &reply.text),
            Err(failure) => Outcome::Failed(failure),
        };
        let is_last = match &found {
            Outcome::Answer(_) => true,
            Outcome::Rejected(_) => false,
            Outcome::Failed(failure) => failure.deferral.is_some() || !failure.code.is_retryable(),
        };
        match &found {
            Outcome::Failed(failure) => past.failures.push(failure.code),
            Outcome::Rejected(_) => {
                past = AttemptHistory {
                    failures: Vec::new(),
                    rejected_views: vec![call.view_hash; past.rejected_views.len() + 1],
                }
            }
            Outcome::Answer(_) => {}
        }
        outcome = Some(found);
        if is_last {
            break;
        }
    }
    let outcome = outcome.expect("an attempt");
    let is_right = match (&outcome, expected) {
        (Outcome::Answer(value), Expected::Answer(expected)) => value == expected,
        (Outcome::Rejected(rejection), Expected::Rejected(code, words)) => {
            rejection.code == code && rejection.violations.iter().any(|one| one.message.contains(words))
        }
        (Outcome::Failed(failure), Expected::Fails(code, words)) => {
            failure.code == code && failure.message.contains(words)
        }
        _ => false,
    };
    if is_right { Ok(()) } else { Err(format!("{name}: {outcome:?}, not {expected:?}")) }
}

async fn ask(chat: &Chat, call: &Call, files: Option<&Path>) -> CallResult {
    match files {
        Some(files) => chat.run_tool_loop(call, &mut Disk(files.to_owned())).await,
        None => chat.call(call).await,
    }
}

/// Plays all behaviours of a server of the shared directory.
async fn play_all(server: &str, expected: fn(&str) -> Expected, files: Option<&Path>) {
    let Some((_server, url, names, _dir)) = start(server) else { return };
    assert!(names.len() > 20, "{names:?}");
    let mut playing = tokio::task::JoinSet::new();
    for name in names {
        let expected = expected(&name);
        playing.spawn(play(url.clone(), name, expected, files.map(Path::to_owned)));
    }
    let mut wrong: Vec<String> = playing.join_all().await.into_iter().filter_map(Result::err).collect();
    wrong.sort();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the seat of the calling worker.
fn writer(has_files: bool) -> Worker {
    let mut fields = json!({"agent": "llm", "reads": ["/answer"], "limits": {"reply_tokens": 1024},
        "writes": [{"path": "/answer", "ops": ["replace"]}]});
    if has_files {
        fields["files"] = json!({"view": ["**"], "iterations": 6});
    }
    seat(fields)
}

/// Tools that read a directory.
struct Disk(PathBuf);

impl Tools for Disk {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let path = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let none = json!({"type": "object", "properties": {}});
        let tool =
            |name: &str, parameters| ToolDefinition { name: name.into(), description: "Reads.".into(), parameters };
        vec![tool("view", path), tool("list", none)]
    }

    fn call<'a>(&'a mut self, name: &'a str, arguments: &'a str, _: usize) -> BoxFuture<'a, ToolOutput> {
        let arguments: Value = serde_json::from_str(arguments).expect("they were read before");
        let used = match (name, arguments["path"].as_str()) {
            ("view", Some(path)) => match std::fs::read_to_string(self.0.join(path)) {
                Ok(text) => ToolOutput::done(text),
                Err(error) => ToolOutput::error(error.to_string()),
            },
            ("list", _) => ToolOutput::done("a.py"),
            _ => ToolOutput::error("no path"),
        };
        Box::pin(std::future::ready(used))
    }

    fn checkpoint(&mut self, _: Option<Usage>, _: u64) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Returns the values in view: a board without an answer.
fn shown(has_files: bool) -> CallContext {
    let schema = json!({"type": "object", "properties": {"answer": {"type": "string"}}});
    let blueprint =
        json!({"blueprint": 1, "name": "one", "state": {"schema": schema}, "workers": {"writer": writer(has_files)}});
    let plan = PLANS.plan(serde_json::from_value(blueprint).expect("a blueprint"), &Mode::default()).expect("a plan");
    let state = State::new(&json!({"answer": ""}), &Hasher::new(&Salt::ZERO));
    let basis = ReadSet { state, reads: vec![PointerBuf::from_tokens(["answer"])], members: Vec::new() };
    CallContext::new(plan, "writer".into(), Arc::new(basis), false).expect("the worker is there")
}

struct NoCommits;

impl CommitLookup for NoCommits {
    fn commit_of(&self, _: Version) -> Option<(Seq, WorkerName)> {
        None
    }
}

/// Judges a reply as the kernel does: the answer on the board, or its rejection.
fn judged(call: &Call, reply: &str) -> Outcome {
    let basis = call.context.basis();
    let context = ProposalContext {
        expansions_left: 0,
        base: basis.state.version(),
        basis: Some(basis),
        invocation: Some(call.invocation),
        reservations: &Reservations::default(),
        commits: &NoCommits,
    };
    let (body, interface) = (ReplyBody::Text(reply.to_owned()), call.context.worker_plan().interface);
    let by = pipeline::Proposer { worker: &call.worker, worker_plan: Some(call.context.worker_plan()) };
    match pipeline::judge(call.context.plan(), &basis.state, by, &body, interface, &context) {
        Verdict::Accepted(accepted) => {
            let answer = accepted.made.state.get(&PointerBuf::from_tokens(["answer"])).expect("it is there");
            Outcome::Answer(serde_json::to_value(answer).expect("JSON"))
        }
        Verdict::NoOp(_) => panic!("42 is no empty text"),
        Verdict::Rejected { rejection, .. } => Outcome::Rejected(rejection),
    }
}

#[tokio::test]
async fn every_behaviour_ends_with_the_answer_or_in_words_to_act_on() {
    play_all("fake_vendor.py", expected, None).await;
}

#[tokio::test]
async fn every_behaviour_with_tools_ends_with_the_answer_or_in_words_to_act_on() {
    let expected = |name: &str| match name {
        "notools400" | "notools_auto" => Expected::Fails(FailureCode::Refused, "the server takes no tools"),
        _ => Expected::Answer("1"),
    };
    let root = std::env::var_os("PATCHBOARD_SHARED").map(PathBuf::from);
    let files = root.map(|root| root.join("cases/providers/wsrc")).unwrap_or_default();
    play_all("fake_vendor_tools.py", expected, Some(&files)).await;
}
