//! The daemon under load: a separate process, reached over HTTP, that is killed and restarted.

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use patchboard_llm::transport::install_tls_provider;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde_json::Value;

/// Limits that the measurement must not reach.
const SETTINGS: &str = "[serve.limits]\nconnections = 10000\nstreams = 10000\nrequests_per_second = 1000000\n\
                        requests_burst = 1000000\nprocessor_percent = 100\n";

/// Maximum time until all boards are resumed.
const READY: Duration = Duration::from_secs(600);

/// Data directory, and the daemon process that serves it.
pub(crate) struct Daemon {
    program: PathBuf,
    directory: PathBuf,
    child: Child,
    pub(crate) url: String,
    /// HTTP client for the daemon.
    pub(crate) http: Client,
}

impl Daemon {
    /// Starts a daemon on an empty directory, or on one left by an earlier daemon.
    pub(crate) fn start(program: &Path, directory: &Path) -> Result<Self, Box<dyn Error>> {
        install_tls_provider();
        std::fs::write(directory.join("patchboard.toml"), SETTINGS)?;
        let mut child = Command::new(program)
            .current_dir(directory)
            .args(["serve", "--config", "patchboard.toml", "--listen", "127.0.0.1:0", "--data-dir", "boards"])
            .args(["--output", "json", "--quiet"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let started: Value = serde_json::from_str(&line).map_err(|_| "it said something else than where it listens")?;
        let address = started["listen"].as_str().ok_or("it did not say where it listens")?;
        let http = Client::builder().no_proxy().tls_certs_only([]).redirect(Policy::none()).build()?;
        let (program, directory) = (program.to_owned(), directory.to_owned());
        Ok(Self { program, directory, child, url: format!("http://{address}"), http })
    }

    /// Kills the daemon, as a power failure would, and restarts it.
    pub(crate) fn kill_and_restart(mut self) -> Result<Self, Box<dyn Error>> {
        self.child.kill()?;
        self.child.wait()?;
        let (program, directory) = (self.program.clone(), self.directory.clone());
        Self::start(&program, &directory)
    }

    pub(crate) async fn wait_until_ready(&self) -> Result<(), Box<dyn Error>> {
        let begun = Instant::now();
        while begun.elapsed() < READY {
            let asked = self.http.get(format!("{}/readyz", self.url)).send().await;
            if asked.is_ok_and(|answer| answer.status() == StatusCode::OK) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Err("it did not become ready".into())
    }

    /// Sends a GET request and returns the JSON response; any status but success is an error.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Box<dyn Error>> {
        let answer = self.http.get(format!("{}{path}", self.url)).send().await?;
        Ok(answer.error_for_status()?.json().await?)
    }

    pub(crate) async fn board(&self, source: &str) -> Result<String, Box<dyn Error>> {
        let body = serde_json::json!({ "source": source });
        let answer = self.http.post(format!("{}/v1/boards", self.url)).json(&body).send().await?;
        let made: Value = answer.error_for_status()?.json().await?;
        Ok(made["board"].as_str().ok_or("the board has no id")?.to_owned())
    }

    /// Returns the daemon's resident memory in bytes, if the system reports it.
    pub(crate) fn memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    }

    /// Verifies the whole journal of a board with the program itself.
    pub(crate) fn verifies(&self, board: &str) -> Result<bool, Box<dyn Error>> {
        let mut verify = Command::new(&self.program);
        verify.current_dir(&self.directory).args(["verify", board, "--data-dir", "boards", "--quiet"]);
        Ok(verify.stdout(Stdio::null()).status()?.success())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
