//! Host of a directory: a daemon for all its editors, on the loopback address, with its token in a file of the owner.
//! The host keeps one board open for as long as an editor is present.
//!
//! The host is a separate process, started by the first client that needs it (`workspace::spawn_host`). It inherits the
//! lock of the directory as stdin, so that there is exactly one host at any moment.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use patchboard_agents::config::{Config, Directory, Environment, WorkspaceConfig};
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::id::BoardId;
use patchboard_kernel::record::{End, Ended, Principal};
use patchboard_lint::source::Source;
use patchboard_workspace::text::author::is_author_name;
use serde_json::json;
use tokio::time::timeout;

use super::instance_lock::ALREADY_SERVED;
use super::problem::Problem;
use super::service::Daemon;
use super::settings::Settings;
use super::{RunningServer, listen, tokens};
use crate::failure::{Exit, Failure, Outcome};
use crate::host_dir::{Address, HostDir, SETTINGS_PATTERN};

const BLUEPRINT: &str = include_str!("../../../../blueprints/workspace.yaml");

/// Name of the directory in the workspace configuration.
const DIRECTORY: &str = "workspace";

/// Polling interval for the use of the host and the state of the board.
const LOOK: Duration = Duration::from_millis(500);

/// Idle time before the host exits, so that a client which reconnects or has just started it finds it.
const LINGER: Duration = Duration::from_secs(5);

/// Attempts to start a daemon while another process releases the data, and the delay between them.
const START_ATTEMPTS_MAX: u32 = 20;
const START_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Shutdown timeouts: for requests under way, and in total.
const DRAIN: Duration = Duration::from_secs(1);
const STOP: Duration = Duration::from_secs(5);

struct Host {
    daemon: Arc<Daemon>,
    listening: RunningServer,
    address: Address,
    place: HostDir,
    lock: File,
    blueprint: Blueprint,
}

/// Returns the blueprint of a host's boards, with the operator's settings for the directory.
pub fn blueprint(settings: &WorkspaceConfig) -> Blueprint {
    let source = Source::read("workspace.yaml", BLUEPRINT).expect("the blueprint can be read");
    let mut blueprint = patchboard_protocols::check(&source).blueprint.expect("the blueprint is sound");
    blueprint.workspace = blueprint.workspace.map(|spec| settings.spec(spec));
    blueprint
}

/// Runs the host of a directory for as long as it is needed. Prints the result of the start as one line of JSON on
/// stdout.
pub async fn run(directory: &Path) -> Outcome {
    // Detaches from the client's terminal and process group, so that its signals do not reach the host. The call fails
    // for a group leader, which is in no group of the client.
    let _ = rustix::process::setsid();
    let started = Host::start(directory).await;
    let said = match &started {
        Err(Failure::Error(error)) => json!({
            "code": error.code, "message": error.message, "help": error.help, "is_refused": error.exit == Exit::InvalidInput,
        }),
        Ok(_) | Err(Failure::StdoutClosed) => json!({}),
    };
    // The client that started the host may be gone; others connect.
    let _ = writeln!(io::stdout(), "{said}");
    started?.run_until_idle().await;
    Ok(Exit::Done)
}

impl Host {
    async fn start(directory: &Path) -> Result<Self, Failure> {
        let place = HostDir::open(directory)?;
        let no_lock = |why: &str| Failure::failed("no_host", format!("the lock of the host {why}"));
        let lock = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(|error| no_lock(&error.to_string()))?);
        if !place.is_host(&lock) {
            return Err(no_lock("is not that of the directory"));
        }
        lock.try_lock().map_err(|_| no_lock("is another process's"))?;
        // Removes the address that a previous host left.
        place.remove_address();
        // The settings stay fixed while the host runs.
        let shared = place.settings()?;
        let blueprint = blueprint(&shared);
        let mut config = Config::default();
        // A removed `.patchboard` contains the journal too: the host ends, and another one takes over.
        let directory = Directory { ends_with_own: true, ..Directory::new(place.directory().to_owned()) };
        let mut directory = shared.directory(directory);
        // Appended last, so that no setting re-includes the file: agents could change what is excluded.
        directory.exclude.push(SETTINGS_PATTERN.to_owned());
        config.workspaces.insert(DIRECTORY.to_owned(), directory);
        let settings = Settings::for_address(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let token = tokens::random()?;
        let daemon = daemon(&place.data()?, &config, &settings, &token).await?;
        let starting = async {
            let board = board(&daemon, &place, &blueprint).await?;
            let listening = listen(&daemon, &settings)?;
            let (port, pid) = (listening.address.port(), std::process::id());
            let address = Address { port, token, board: board.to_string(), pid };
            place.write_address(&address)?;
            Ok((listening, address))
        };
        match starting.await {
            Ok((listening, address)) => {
                tracing::info!(board = address.board, port = address.port, "this process is the host of the directory");
                Ok(Self { daemon, listening, address, place, lock, blueprint })
            }
            Err(failure) => {
                daemon.stop().await;
                Err(failure)
            }
        }
    }

    /// Runs until the host has been idle for a while, or has lost its lock or its board.
    async fn run_until_idle(mut self) {
        let mut needed = Instant::now();
        loop {
            tokio::time::sleep(LOOK).await;
            if !self.place.is_host(&self.lock) {
                tracing::warn!("the host's files in the directory were removed: another host takes over");
                break;
            }
            let board = BoardId::from(self.address.board.as_str());
            // Every connected client renews a lease.
            if self.daemon.leases.open_calls(&board).iter().any(|call| call.expires_in.is_some()) {
                needed = Instant::now();
            } else if needed.elapsed() > LINGER {
                break;
            }
            if let Err(Failure::Error(error)) = self.ensure_board(&board).await {
                tracing::error!(code = error.code, "there is no board: {}", error.message);
                break;
            }
        }
        self.stop().await;
    }

    /// Ensures that a board is open and can continue.
    async fn ensure_board(&mut self, board: &BoardId) -> Result<(), Failure> {
        let ended = self.daemon.running(board).map(|running| running.status().ended);
        if matches!(ended, Some(None | Some(Ended { end: End::Quiescent, .. }))) {
            return Ok(());
        }
        // A directory serves one board at a time.
        self.daemon.evict(board).await;
        let next = self::board(&self.daemon, &self.place, &self.blueprint).await?;
        self.address.board = next.to_string();
        self.place.write_address(&self.address)?;
        tracing::info!(board = %next, "the previous board has ended: this one continues");
        Ok(())
    }

    /// Shuts down. Decided steps are durable; the next host continues the board.
    async fn stop(self) {
        if self.place.is_host(&self.lock) {
            self.place.remove_address();
        }
        self.daemon.begin_shutdown();
        self.listening.handle.graceful_shutdown(Some(DRAIN));
        let all = async {
            drop(self.listening.serving.await);
            self.daemon.stop().await;
        };
        drop(timeout(STOP, all).await);
    }
}

/// Starts the daemon; retries while its predecessor is still shutting down.
async fn daemon(data: &Path, config: &Config, settings: &Settings, token: &str) -> Result<Arc<Daemon>, Failure> {
    let mut tries = 0;
    loop {
        let registry = AgentRegistry::new(config.clone(), &Environment::default(), InlinePrograms::Denied);
        tries += 1;
        match Daemon::start(data, registry, false, settings.limits, Vec::new()).await {
            Err(Failure::Error(error)) if error.code == ALREADY_SERVED && tries < START_ATTEMPTS_MAX => {
                tokio::time::sleep(START_RETRY_DELAY).await;
            }
            started => return Ok(Arc::new(started?.with_own_token(token))),
        }
    }
}

/// Opens the newest board that can continue, or creates one.
async fn board(daemon: &Arc<Daemon>, place: &HostDir, blueprint: &Blueprint) -> Result<BoardId, Failure> {
    let boards = daemon.boards().await.map_err(problem_to_failure)?;
    for summary in boards.iter().rev().filter(|board| matches!(board.ended, None | Some(End::Quiescent))) {
        let is_ours = daemon.blueprint(&summary.id).await.is_ok_and(|known| blueprint.is_that_of(&known));
        if is_ours {
            opened(daemon, place, &summary.id).await?;
            return Ok(summary.id.clone());
        }
    }
    let (board, _) =
        daemon.create(blueprint.clone(), json!({}), None, Principal::Host).await.map_err(problem_to_failure)?;
    opened(daemon, place, &board).await?;
    Ok(board)
}

/// Opens a board and waits until its directory is open.
async fn opened(daemon: &Arc<Daemon>, place: &HostDir, board: &BoardId) -> Result<(), Failure> {
    daemon.open(board).await.map_err(problem_to_failure)?;
    match daemon.workspaces.get(board).await {
        Ok(workspace) => {
            // Registers the known author names, so that comments in files are attributed to authors who have not edited
            // lately.
            place.names().iter().filter(|name| is_author_name(name)).for_each(|name| workspace.register_author(name));
            Ok(())
        }
        Err(error) => {
            // The next attempt opens the board again.
            daemon.evict(board).await;
            Err(Failure::failed("workspace_failed", error)
                .help("does a daemon or a run have the directory open as a workspace?"))
        }
    }
}

fn problem_to_failure(problem: Problem) -> Failure {
    Failure::failed(problem.code, problem.detail)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_blueprint_that_is_shipped_is_sound() {
        let blueprint = super::blueprint(&super::WorkspaceConfig::default());
        assert_eq!(blueprint.workspace.map(|workspace| workspace.dir).as_deref(), Some(super::DIRECTORY));
    }
}
