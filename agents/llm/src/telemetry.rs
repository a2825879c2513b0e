//! Spans of calls, under the names of OpenTelemetry's conventions for generative AI.
//!
//! These are still in development (open-telemetry/semantic-conventions-genai): only this file contains their names.
//! Spans contain neither prompts nor replies.

use patchboard_kernel::ledger::Usage;
use patchboard_runtime::agent::{Call, Failure};
use reqwest::Url;
use serde_json::Value;
use tracing::Span;
use tracing::field::Empty;

use crate::config::Model;
use patchboard_kernel::text::one_line;

/// Characters of a tool's name that are kept.
const NAME_MAX: usize = 64;

/// Creates the span of a call of a worker's agent.
pub fn invoke_agent(call: &Call) -> Span {
    tracing::info_span!(
        "invoke_agent",
        otel.name = format!("invoke_agent {}", call.worker),
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = %call.worker,
        gen_ai.conversation.id = %call.board,
        patchboard.invocation = %call.invocation,
        patchboard.attempt = call.attempt,
        error.r#type = Empty,
    )
}

/// Creates the span of a model call, retries included. The provider behind an endpoint is unknown and recorded as
/// `openai`.
pub(crate) fn chat(model: &Model, reply_tokens: u32) -> Span {
    let url = Url::parse(&model.url).ok();
    tracing::info_span!(
        "chat",
        otel.name = format!("chat {}", model.model),
        otel.kind = "client",
        otel.status_code = Empty,
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = "openai",
        gen_ai.request.model = model.model,
        gen_ai.request.max_tokens = reply_tokens,
        gen_ai.request.temperature = model.temperature,
        gen_ai.request.seed = model.seed,
        gen_ai.response.id = Empty,
        gen_ai.response.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        server.address = url.as_ref().and_then(Url::host_str),
        server.port = url.as_ref().and_then(Url::port_or_known_default),
        error.r#type = Empty,
    )
}

pub(crate) fn embeddings(model: &Model) -> Span {
    let url = Url::parse(&model.url).ok();
    tracing::info_span!(
        "embeddings",
        otel.name = format!("embeddings {}", model.model),
        otel.kind = "client",
        otel.status_code = Empty,
        gen_ai.operation.name = "embeddings",
        gen_ai.provider.name = "openai",
        gen_ai.request.model = model.model,
        server.address = url.as_ref().and_then(Url::host_str),
        server.port = url.as_ref().and_then(Url::port_or_known_default),
        error.r#type = Empty,
    )
}

pub(crate) fn record_response(span: &Span, answer: &Value) {
    for (name, value) in [("gen_ai.response.id", &answer["id"]), ("gen_ai.response.model", &answer["model"])] {
        if let Some(value) = value.as_str() {
            span.record(name, value);
        }
    }
}

/// Creates the span of a tool use.
pub fn execute_tool(name: &str, id: &str) -> Span {
    // The name may be a model's invention.
    let name = one_line(name, NAME_MAX);
    tracing::info_span!(
        "execute_tool",
        otel.name = format!("execute_tool {name}"),
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = name,
        gen_ai.tool.r#type = "function",
        gen_ai.tool.call.id = one_line(id, NAME_MAX),
        error.r#type = Empty,
    )
}

/// Records the error of a tool.
pub fn record_tool_result(span: &Span, is_error: bool) {
    if is_error {
        span.record("error.type", "tool_error");
        span.record("otel.status_code", "ERROR");
    }
}

/// Records the outcome of a call.
pub fn record_outcome(span: &Span, outcome: Result<Option<Usage>, &Failure>) {
    let usage = match outcome {
        Ok(usage) => usage,
        Err(failure) => {
            span.record("error.type", failure.code.as_str());
            span.record("otel.status_code", "ERROR");
            failure.usage
        }
    };
    // Estimates are omitted.
    let Some(usage) = usage.filter(|usage| !usage.estimated) else { return };
    // OTLP uses signed integers.
    let number = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    span.record("gen_ai.usage.input_tokens", number(usage.prompt));
    span.record("gen_ai.usage.output_tokens", number(usage.completion));
    if usage.cached > 0 {
        span.record("gen_ai.usage.cache_read.input_tokens", number(usage.cached));
    }
}
