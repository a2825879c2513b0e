//! JSON answers with sorted members.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::{Code, Problem};

/// JSON answer. Objects have their members in the order of the names, at any depth.
pub(crate) struct SortedJson<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for SortedJson<T> {
    fn into_response(self) -> Response {
        match serde_json::to_value(&self.0) {
            Ok(value) => Json(value).into_response(),
            Err(error) => Problem::from_code(Code::Internal, format!("the answer: {error}")).into_response(),
        }
    }
}
