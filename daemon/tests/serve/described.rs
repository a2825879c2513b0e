//! The description of the API as a check: answers have the members that it describes, and no others.

use jsonschema::draft202012;
use reqwest::Method;
use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon};

/// Description of the API, as a daemon gives it.
pub(crate) struct Description(Value);

impl Description {
    /// Asks a daemon for its description.
    pub(crate) async fn of(daemon: &Daemon, headers: &[(&str, &str)]) -> Self {
        Self(daemon.request(Method::GET, "/v1/openapi.json", headers, None).await.expect_status(200))
    }

    /// Checks an answer of a route; does nothing for routes and statuses without a described JSON answer.
    pub(crate) fn check(&self, method: &Method, route: &str, answer: &Answer) {
        let operation = &self.0["paths"][route][method.as_str().to_lowercase()];
        let described = &operation["responses"][answer.status.as_str()]["content"]["application/json"]["schema"];
        let is_json = answer.headers.get("content-type").is_some_and(|kind| kind == "application/json");
        if described.is_null() || !is_json {
            return;
        }
        let name = described["$ref"].as_str().unwrap_or_else(|| panic!("{method} {route}: the answer has no name"));
        let mut schema = json!({"$ref": name, "components": self.0["components"]});
        // The members of JSON-RPC messages are described by MCP.
        if !name.ends_with("/JsonRpcMessage") {
            schema["unevaluatedProperties"] = false.into();
        }
        let validator = draft202012::new(&schema).unwrap_or_else(|error| panic!("{method} {route}: {error}"));
        let body = answer.json();
        let errors: Vec<String> =
            validator.iter_errors(&body).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{method} {route}: {errors:?}\n{body:#}");
    }
}
