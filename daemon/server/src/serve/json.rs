//! JSON answers.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::{Code, Problem};

/// JSON answer. Objects have their members in the order of their types.
///
/// axum's `Json` would enable a feature of `serde_json` (`raw_value`) that changes values with a member of a reserved
/// name: a board could not be recovered as it was.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
            Err(error) => unwritable(&error),
        }
    }
}

/// JSON answer. Objects have their members in the order of the names, at any depth.
pub(crate) struct SortedJson<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for SortedJson<T> {
    fn into_response(self) -> Response {
        match serde_json::to_value(&self.0) {
            Ok(value) => Json(value).into_response(),
            Err(error) => unwritable(&error),
        }
    }
}

fn unwritable(error: &serde_json::Error) -> Response {
    Problem::from_code(Code::Internal, format!("the answer: {error}")).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::response::IntoResponse as _;
    use serde::Serialize;
    use tokio::runtime::Builder;

    use super::SortedJson;

    #[test]
    fn members_are_in_the_order_of_their_names() {
        #[derive(Serialize)]
        struct Inner {
            z: u8,
            a: Option<u8>,
        }
        #[derive(Serialize)]
        struct Outer {
            second: [Inner; 1],
            #[serde(flatten)]
            first: Inner,
        }
        let answer = Outer { second: [Inner { z: 1, a: None }], first: Inner { z: 2, a: Some(3) } };
        let body = SortedJson(answer).into_response().into_body();
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let text = runtime.block_on(to_bytes(body, 1000)).expect("it is read");
        assert_eq!(text, r#"{"a":3,"second":[{"a":null,"z":1}],"z":2}"#);
    }
}
