//! Spans of a run as a collector receives them, with the names of the conventions. Requires the feature `otlp`.

#![cfg(unix)]

mod protobuf;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use patchboard_endpoint::{Endpoint, ScriptedResponse};

use protobuf::{Span, spans};

const BLUEPRINT: &str = r#"
blueprint: 1
name: answer
state:
  schema: {type: object, properties: {answer: {type: string}, request: {}}, additionalProperties: false}
  initial: {}
workers:
  writer:
    agent: llm
    role: Answer.
    reads: [/request]
    writes: [{path: /answer, ops: [add]}]
    limits: {attempts: 2}
rules:
  - {name: begin, trigger: start, run: writer}
done: {when: has(state.answer)}
"#;

/// Starts a collector; returns its address and a channel of request heads and bodies.
fn collector() -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                stream.read_line(&mut head).expect("a head is text");
            }
            let head = head.to_lowercase();
            let length = head.split("content-length:").nth(1).expect("a length").lines().next().expect("a line");
            let mut body = vec![0; length.trim().parse().expect("a number")];
            stream.read_exact(&mut body).expect("the body comes");
            let said = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.get_mut().write_all(said.as_bytes()).expect("it listens");
            drop(sender.send((head, body)));
        }
    });
    (url, receiver)
}

/// Runs the blueprint against an endpoint, with these environment variables, and returns its stderr.
fn run(endpoint: &Endpoint, variables: &[(&str, &str)]) -> String {
    let directory = tempfile::tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("answer.yaml"), BLUEPRINT).expect("a file can be written");
    let ran = Command::new(env!("CARGO_BIN_EXE_patchboard"))
        .current_dir(directory.path())
        .args([
            "run",
            "answer.yaml",
            "--request",
            r#"{"q":"hush-question"}"#,
            "--model-url",
            &endpoint.url,
            "--model",
            "m-7b",
        ])
        .env_remove("RUST_LOG")
        .envs(variables.iter().copied())
        .output()
        .expect("the binary can be run");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    said
}

fn endpoint() -> Endpoint {
    let refusal = ScriptedResponse::complete(
        "hush-reply",
        "stop",
        serde_json::json!({"prompt_tokens": 30, "completion_tokens": 4}),
    );
    let answer = serde_json::json!({
        "id": "chat-1",
        "model": "m-7b-2026",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": r#"[{"op":"add","path":"/answer","value":"hush-reply"}]"#},
            "finish_reason": "stop",
        }],
        "usage": {"prompt_tokens": 40, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 16}},
    });
    Endpoint::new(vec![refusal, ScriptedResponse::Say(200, "", answer.to_string())])
}

#[test]
fn a_collector_sees_agents_and_models_under_the_names_of_the_conventions() {
    let (url, received) = collector();
    let endpoint = endpoint();
    let said = run(
        &endpoint,
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")],
    );
    let (mut all, mut bodies): (Vec<Span>, Vec<u8>) = (Vec::new(), Vec::new());
    // The process has ended and has sent all its spans.
    while let Ok((head, body)) = received.recv_timeout(Duration::from_secs(1)) {
        assert!(head.starts_with("post /v1/traces http/1.1\r\n") && head.contains("x-tenant: blue\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
        all.extend(spans(&body));
        bodies.extend(body);
    }
    let named = |name: &str| all.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let (agents, chats) = (named("invoke_agent writer"), named("chat m-7b"));
    assert_eq!((agents.len(), chats.len()), (2, 2), "{all:#?}\n{said}");
    for (agent, attempt) in agents.iter().zip(["1", "2"]) {
        assert_eq!(agent.kind, 1, "internal");
        agent.has("gen_ai.operation.name", "invoke_agent");
        agent.has("gen_ai.agent.name", "writer");
        agent.has("patchboard.attempt", attempt);
        assert_eq!(agent.attributes["gen_ai.conversation.id"].len(), 36, "a board's id");
    }
    let port = endpoint.url.rsplit_once(':').expect("a port").1.trim_end_matches("/v1");
    for chat in &chats {
        assert_eq!(chat.kind, 3, "client");
        assert!(agents.iter().any(|agent| agent.id == chat.parent && agent.trace == chat.trace), "{chat:?}");
        chat.has("gen_ai.operation.name", "chat");
        chat.has("gen_ai.provider.name", "openai");
        chat.has("gen_ai.request.model", "m-7b");
        chat.has("server.address", "127.0.0.1");
        chat.has("server.port", port);
    }
    chats[0].has("gen_ai.usage.input_tokens", "30");
    chats[1].has("gen_ai.usage.input_tokens", "40");
    chats[1].has("gen_ai.usage.output_tokens", "9");
    chats[1].has("gen_ai.usage.cache_read.input_tokens", "16");
    chats[1].has("gen_ai.response.id", "chat-1");
    chats[1].has("gen_ai.response.model", "m-7b-2026");
    let text = String::from_utf8_lossy(&bodies);
    assert!(text.contains("service.name") && text.contains("patchboard"), "who exports is told");
    // Spans contain no prompts and no replies.
    assert!(!text.contains("hush"), "{text}");
}

#[test]
fn a_failed_call_is_an_error_with_its_code() {
    let (url, received) = collector();
    let endpoint = Endpoint::new(vec![
        // A reply that the content filter blocks is rejected in any form.
        ScriptedResponse::complete(
            "",
            "content_filter",
            serde_json::json!({"prompt_tokens": 1, "completion_tokens": 1}),
        ),
        ScriptedResponse::answer(r#"[{"op":"add","path":"/answer","value":"a"}]"#, 1, 1),
    ]);
    let directory = tempfile::tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("answer.yaml"), BLUEPRINT).expect("a file can be written");
    let ran = Command::new(env!("CARGO_BIN_EXE_patchboard"))
        .current_dir(directory.path())
        .args(["run", "answer.yaml", "--request", "{}", "--model-url", &endpoint.url, "--model", "m"])
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{url}/v1/traces"))
        .output()
        .expect("the binary can be run");
    assert_eq!(ran.status.code(), Some(4), "{}", String::from_utf8_lossy(&ran.stderr));
    let (_, body) = received.recv_timeout(Duration::from_secs(5)).expect("something is exported");
    let all = spans(&body);
    let chat = all.iter().find(|span| span.name == "chat m").expect("it was called");
    chat.has("error.type", "refused");
    assert_eq!(chat.status, 2, "error: {chat:?}");
}

#[test]
fn traces_are_exported_only_to_a_given_endpoint_and_wrong_settings_reported() {
    let (url, received) = collector();
    for variables in [
        &[][..],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_SDK_DISABLED", "true")],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_TRACES_EXPORTER", "none")],
    ] {
        run(&endpoint(), variables);
    }
    let grpc = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    let said = run(&endpoint(), &grpc);
    assert!(said.contains("only http/protobuf is spoken"), "{said}");
    assert!(received.recv_timeout(Duration::from_millis(300)).is_err());
    // An unreachable collector only delays a run by a moment.
    let away = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    run(&endpoint(), &[("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{away}"))]);
}
