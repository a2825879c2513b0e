//! Validation of messages and parameters. The library's own errors would state no reason, or only the method.

use axum::http::header::CONTENT_LENGTH;
use axum::response::{IntoResponse as _, Response};
use rmcp::model::{
    CallToolRequestParams, ErrorCode, InitializeRequestParams, PaginatedRequestParams, ReadResourceRequestParams,
    SubscriptionsListenRequestParams,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::worker_server::NAME_MAX;
use crate::serve::problem::{Code, Problem};
use crate::text::short;

const REASON_CHARS_MAX: usize = 300;

pub(super) fn wrong_message(message: &Value) -> Option<Problem> {
    let wrong = if message.is_array() {
        "batches are not taken: send one message at a time, over stdin each on a line of its own"
    } else if !message.is_object() {
        "a message is an object"
    } else if message["jsonrpc"] != "2.0" {
        "a message says \"jsonrpc\": \"2.0\""
    } else if message.get("id").is_some_and(|id| !is_id(id)) {
        "the id of a message is a text or a whole number"
    } else if !["method", "result", "error"].iter().any(|name| message.get(name).is_some()) {
        "a message has a method, or it is an answer with a result or an error"
    } else if message.get("method").is_some_and(|method| !method.is_string()) {
        "the method of a message is a text"
    } else if message.get("params").is_some_and(|params| !params.is_object() && !params.is_null()) {
        "the params of a message are an object"
    } else if message["params"].get("_meta").is_some_and(|meta| !meta.is_object() && !meta.is_null()) {
        "the _meta of params is an object"
    } else {
        return None;
    };
    Some(Problem::from_code(Code::BadBody, wrong))
}

/// Returns true if the value can identify a request.
pub fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_i64()
}

/// Checks the parameters of a request against its method. Returns the error response, if they do not fit.
pub(super) fn wrong_params(message: &Value) -> Option<Value> {
    let (id, method) = (message.get("id")?, message["method"].as_str()?);
    let params = message.get("params").filter(|params| !params.is_null()).cloned().unwrap_or_else(|| Map::new().into());
    let wrong = match method {
        "initialize" => wrong::<InitializeRequestParams>(params),
        "tools/call" => wrong::<CallToolRequestParams>(params),
        "tools/list" | "resources/list" => wrong::<PaginatedRequestParams>(params),
        "resources/read" => wrong::<ReadResourceRequestParams>(params),
        "subscriptions/listen" => wrong::<SubscriptionsListenRequestParams>(params),
        _ => None,
    }?;
    let problem = Problem::from_code(Code::BadBody, format!("the params of {method} are not what it wants: {wrong}"));
    Some(error(id, ErrorCode::INVALID_PARAMS, &problem))
}

fn wrong<T: DeserializeOwned>(params: Value) -> Option<String> {
    // The error may quote the input, which may be large.
    serde_json::from_value::<T>(params).err().map(|error| short(&error.to_string(), REASON_CHARS_MAX))
}

/// Adds an explanation to a response that reports an unknown method; returns others unchanged.
pub(super) async fn explain_unknown_method(message: &Value, response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    // The body is in memory already.
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return Problem::from_code(Code::Internal, "the message was not answered").into_response();
    };
    let answer: Answer = serde_json::from_slice(&bytes).unwrap_or_default();
    if answer.error.is_none_or(|error| error.code != ErrorCode::METHOD_NOT_FOUND.0) {
        return Response::from_parts(parts, bytes.into());
    }
    let method = short(message["method"].as_str().unwrap_or_default(), NAME_MAX);
    let problem = Problem::from_code(Code::NoSuchMethod, format!("there is no method {method}"));
    let error_response = error(&message["id"], ErrorCode::METHOD_NOT_FOUND, &problem);
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, error_response.to_string().into())
}

/// Response, as far as its error code is needed.
#[derive(Deserialize, Default)]
struct Answer {
    error: Option<AnswerError>,
}

#[derive(Deserialize)]
struct AnswerError {
    code: i32,
}

fn error(id: &Value, code: ErrorCode, problem: &Problem) -> Value {
    let data = problem.json();
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code.0, "message": data["detail"], "data": data}})
}
