//! Test fixture: a daemon in its own directory, and requests to it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A blueprint with a worker that takes a step at the start and at each signal `more`.
pub(crate) const STEPS: &str = include_str!("steps.yaml");

/// A data directory and, while it runs, a daemon on it.
pub(crate) struct Daemon {
    directory: TempDir,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Limit of the daemon's data in MiB (`RLIMIT_DATA`), anonymous mappings included.
    pub(crate) data_mib: Option<u64>,
    running: Option<Running>,
}

struct Running {
    child: Child,
    address: String,
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Returns the body; fails unless the status matches.
    pub(crate) fn expect_status(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        if self.text.is_empty() { Value::Null } else { self.json() }
    }

    /// Returns the problem document; fails unless status and code match.
    pub(crate) fn expect_problem(&self, status: u16, code: &str) -> Value {
        let problem = self.expect_status(status);
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        problem
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.headers.get("idempotency-replayed").is_some_and(|replayed| replayed == "true")
    }
}

impl Daemon {
    /// Starts a daemon on an empty directory.
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// Like [`Self::new`], with further arguments.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        let mut daemon = Self::not_started(arguments);
        daemon.start();
        daemon
    }

    /// Returns an empty directory without a running daemon.
    pub(crate) fn not_started(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { directory, arguments, environment: Vec::new(), data_mib: None, running: None }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes the operator's configuration.
    pub(crate) fn configure(&self, text: &str) {
        std::fs::write(self.path().join("patchboard.toml"), text).expect("a file can be written");
    }

    /// Sets an environment variable of the daemon.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Returns the daemon's stderr so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).expect("the log is text")
    }

    fn stderr(&self) -> Stdio {
        let log = File::options().create(true).append(true).open(self.path().join("log"));
        log.expect("a file can be written").into()
    }

    /// Returns a command of the binary in this directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        // Benchmarks name a release build.
        let binary = std::env::var_os("PATCHBOARD_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_patchboard").into());
        let mut command = Command::new(binary);
        command.current_dir(self.path()).args(arguments).args(["--data-dir", "boards", "--output", "json"]);
        for variable in
            ["PATCHBOARD_DATA_DIR", "PATCHBOARD_LISTEN", "PATCHBOARD_LOG_FORMAT", "RUST_LOG", "OPENAI_API_KEY"]
        {
            command.env_remove(variable);
        }
        if self.path().join("patchboard.toml").is_file() {
            command.env("PATCHBOARD_CONFIG", "patchboard.toml");
        }
        command
    }

    /// Creates a token and returns its secret.
    pub(crate) fn token(&self, scope: &str) -> String {
        let made = self.command(&["token", "create", "--scope", scope]).output().expect("the binary can be run");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
        made["token"].as_str().expect("a text").to_owned()
    }

    pub(crate) fn start(&mut self) {
        assert!(self.running.is_none());
        let further: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let arguments: Vec<&str> = ["serve", "--listen", "127.0.0.1:0"].into_iter().chain(further).collect();
        let mut command = self.command(&arguments);
        if let Some(mebibytes) = self.data_mib {
            command = limited(&command, mebibytes);
        }
        let mut child = command
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(self.stderr())
            .spawn()
            .expect("the binary can be run");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("stdout is text");
        let started: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let address = started["listen"].as_str().expect("an address").to_owned();
        self.running = Some(Running { child, address });
    }

    /// Stops the daemon as a service manager does; returns its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        let mut running = self.running.take().expect("it runs");
        send("-TERM", running.child.id());
        running.child.wait().expect("it ends").code()
    }

    /// Kills the daemon, as a loss of power would.
    pub(crate) fn kill(&mut self) {
        let mut running = self.running.take().expect("it runs");
        running.child.kill().expect("it can be killed");
        running.child.wait().expect("it ends");
    }

    pub(crate) fn process(&self) -> u32 {
        self.running.as_ref().expect("it runs").child.id()
    }

    pub(crate) fn address(&self) -> &str {
        &self.running.as_ref().expect("it runs").address
    }

    /// Sends a request with these headers and reads the whole response.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Answer {
        let response = self.send(method, path, headers, body).await;
        let (status, headers) = (response.status(), response.headers().clone());
        Answer { status, headers, text: response.text().await.expect("a text") }
    }

    /// Like [`Self::request`], without reading the body, which may be an endless stream.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Response {
        // Another test of this process may have installed it.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = Client::builder().no_proxy().build().expect("a client");
        let mut request = client.request(method, format!("http://{}{path}", self.address()));
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header's name");
            request = request.header(name, HeaderValue::from_str(value).expect("a header's value"));
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        request.send().await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request(Method::GET, path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, body, &[]).await
    }

    /// Sends a request with an idempotency key.
    pub(crate) async fn post_once(&self, path: &str, body: &Value, key: &str) -> Answer {
        self.post_with(path, body, &[("idempotency-key", key)]).await
    }

    pub(crate) async fn post_with(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
        let headers: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
        self.request(Method::POST, path, &headers, Some(body.to_string())).await
    }

    /// Creates a board of [`STEPS`] and returns its id.
    pub(crate) async fn board(&self) -> String {
        let made = self.post("/v1/boards", &json!({"source": STEPS})).await.expect_status(201);
        made["board"].as_str().expect("an id").to_owned()
    }

    /// Waits until a board has this status.
    pub(crate) async fn until(&self, board: &str, status: &str) -> Value {
        self.until_with(board, status, &[]).await
    }

    /// Like [`Self::until`], with headers for each request.
    pub(crate) async fn until_with(&self, board: &str, status: &str, headers: &[(&str, &str)]) -> Value {
        for _ in 0..1000 {
            let shown =
                self.request(Method::GET, &format!("/v1/boards/{board}"), headers, None).await.expect_status(200);
            if shown["status"] == status {
                return shown;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("{board} never was {status}");
    }

    /// Returns a shipped blueprint with its fragments merged into one document, and these workers as remote ones.
    pub(crate) fn shipped(&self, name: &str, remote: &[&str]) -> Value {
        let path = format!("{}/../blueprints/{name}", env!("CARGO_MANIFEST_DIR"));
        let whole = self.command(&["check", "--whole", &path]).output().expect("the binary can be run");
        assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));
        let mut blueprint: Value = serde_json::from_slice(&whole.stdout).expect("JSON");
        for name in remote {
            let worker = blueprint["workers"][name].as_object_mut().expect("a worker");
            worker.insert("agent".to_owned(), json!("remote"));
            worker.remove("script");
            worker.insert("limits".to_owned(), json!({"timeout": "1h"}));
        }
        blueprint
    }
}

/// Returns [`STEPS`] with a remote walker, whose entry has these further lines.
pub(crate) fn remote_steps(lines: &str) -> String {
    let script = "agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]";
    let remote = STEPS.replace(script, &format!("agent: remote{lines}"));
    assert_ne!(remote, STEPS);
    remote
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.kill();
        }
        // Prints the log of failing tests only.
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", std::fs::read_to_string(self.path().join("log")).unwrap_or_default());
        }
    }
}

/// Returns a command limited to this many MiB of data (`RLIMIT_DATA`), anonymous mappings included.
pub(crate) fn limited(command: &Command, mebibytes: u64) -> Command {
    let mut limited = Command::new("sh");
    limited.arg("-c").arg(format!("ulimit -d {} && exec \"$0\" \"$@\"", mebibytes * 1024));
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        limited.current_dir(directory);
    }
    limited
}

pub(crate) fn send(signal: &str, process: u32) {
    let sent = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{signal} can be sent");
}
