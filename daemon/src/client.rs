//! HTTP client of the commands that talk to a daemon.

use std::fmt::Display;
use std::time::Duration;

use clap::Args;
use patchboard_llm::transport::install_tls_provider;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Client as Http, Method, RequestBuilder, Response, StatusCode, Url, redirect};
use serde_json::Value;

use crate::codes;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::worker_agents::quoted;
pub(crate) use patchboard_server::text::path;

/// Timeouts for the connection and for the whole response.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Environment variable with the API token; arguments would be visible to all users of the machine.
const TOKEN: &str = "PATCHBOARD_TOKEN";

const URL: &str = "PATCHBOARD_URL";

/// Option that selects a daemon.
#[derive(Args, Debug, Clone)]
pub(crate) struct DaemonArgument {
    /// Use the daemon at this address instead of the data directory, with the token in PATCHBOARD_TOKEN, if set
    #[arg(long, value_name = "URL", env = URL)]
    url: Option<String>,
}

impl DaemonArgument {
    pub(crate) fn client(&self) -> Result<Option<Client>, Failure> {
        self.url.as_deref().map(Client::new).transpose()
    }

    /// Returns true if the URL comes from the command line, not from the environment.
    pub(crate) fn is_given(&self) -> bool {
        self.url.is_some() && self.url != std::env::var(URL).ok()
    }
}

pub(crate) struct Client {
    http: Http,
    base: String,
    token: Option<String>,
}

impl Client {
    pub(crate) fn new(url: &str) -> Result<Self, Failure> {
        Self::with(url, std::env::var(TOKEN).ok().filter(|token| !token.is_empty()))
    }

    /// Like [`Client::new`], with an explicit token instead of the environment's.
    pub(crate) fn with_token(url: &str, token: String) -> Result<Self, Failure> {
        Self::with(url, Some(token))
    }

    fn with(url: &str, token: Option<String>) -> Result<Self, Failure> {
        install_tls_provider();
        let mut builder = Http::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            // Redirects are not followed: the token is sent only to the address it was given for.
            .redirect(redirect::Policy::none())
            .user_agent(concat!("patchboard/", env!("CARGO_PKG_VERSION")));
        let base = url.trim_end_matches('/').to_owned();
        if base.starts_with("http://") {
            builder = builder.tls_certs_only([]).no_proxy();
        }
        let http = builder.build().map_err(|error| Failure::failed("no_client", error))?;
        Ok(Self { http, base, token })
    }

    /// Returns the flags (after a space) with which a later command reaches this daemon; empty if the environment
    /// names it.
    pub(crate) fn to_flags(&self) -> String {
        if std::env::var(URL).is_ok() {
            String::new()
        } else {
            format!(" --url {}", quoted(&url_without_secrets(&self.base)))
        }
    }

    /// Sends a GET request and returns the JSON response; null if the body is empty.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.request_json(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.request_json(Method::POST, path, Some(body)).await
    }

    /// Sends a control action to a board, named by its whole id, and prints its status.
    pub(crate) async fn control(&self, board: &str, action: &str, body: &Value, output: Output) -> Outcome {
        let answer = self.post(&path(&["v1", "boards", board, action]), body).await?;
        output.json_or_line(&answer, || format!("board {board}: {}", answer["status"].as_str().unwrap_or_default()))?;
        Ok(Exit::Done)
    }

    /// Sends a POST with a JSON text, or a GET without one, with this timeout; returns the streaming response.
    pub(crate) async fn send(
        &self,
        path: &str,
        headers: HeaderMap,
        text: Option<String>,
        within: Duration,
    ) -> Result<Response, Failure> {
        let request = match text {
            Some(text) => self.request(Method::POST, path).header(CONTENT_TYPE, "application/json").body(text),
            None => self.request(Method::GET, path),
        };
        let sent = request.headers(headers).timeout(within).send().await;
        sent.map_err(|error| self.unreachable(path, error))
    }

    async fn request_json(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| self.unreachable(path, error))?;
        let status = response.status();
        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        let answer: Value = response.json().await.map_err(|error| self.unreachable(path, error))?;
        if status.is_success() { Ok(answer) } else { Err(problem_to_failure(&answer, status.is_server_error())) }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(token) = &self.token { request.bearer_auth(token) } else { request }
    }

    /// Returns the failure for a missing or incomplete response.
    pub(crate) fn unreachable(&self, path: &str, error: reqwest::Error) -> Failure {
        self.broken(path, &error.without_url())
    }

    pub(crate) fn broken(&self, path: &str, error: &dyn Display) -> Failure {
        let url = format!("{}{path}", url_without_secrets(&self.base));
        Failure::failed("daemon_unreachable", format!("{url} does not answer: {error}"))
            .help("is `patchboard serve` running there? --url names its address, like http://127.0.0.1:7733")
    }
}

/// Returns the daemon's address for messages: without user, password, query and fragment.
fn url_without_secrets(base: &str) -> String {
    let Ok(mut url) = Url::parse(base) else {
        // Any part of it may be a password.
        return "the address of the daemon".to_owned();
    };
    if url.set_username("").is_err() || url.set_password(None).is_err() {
        return format!("{}:…", url.scheme());
    }
    url.set_query(None);
    url.set_fragment(None);
    url.as_str().trim_end_matches('/').to_owned()
}

fn problem_to_failure(problem: &Value, is_failed: bool) -> Failure {
    let text = |name: &str| problem[name].as_str();
    let reported_code = text("code").unwrap_or_default();
    let known = codes::entries().map(|entry| entry.code).find(|code| *code == reported_code);
    let code = known.unwrap_or("daemon_refused");
    let detail = text("detail").unwrap_or("the daemon refuses it and does not say why");
    let failure = if is_failed { Failure::failed(code, detail) } else { Failure::invalid_input(code, detail) };
    match (text("help"), code) {
        (_, "unauthorized" | "forbidden") => failure.help(format!("put a token that may do this into {TOKEN}")),
        (Some(help), _) => failure.help(help),
        (None, _) => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::url_without_secrets;

    #[test]
    fn an_address_is_shown_without_secrets() {
        for (base, is_shown) in [
            ("http://127.0.0.1:7733", "http://127.0.0.1:7733"),
            ("https://me:s3cret@h:1/x", "https://h:1/x"),
            ("https://h/x?key=s3cret#s3cret", "https://h/x"),
            ("mailto:s3cret", "mailto:…"),
            ("me:s3cret@h:1", "me:…"),
            ("s3cret", "the address of the daemon"),
        ] {
            assert_eq!(url_without_secrets(base), is_shown);
        }
    }
}
