//! A daemon in the process of an agent, for all who edit one directory: on this machine only, for who may read a file of its
//! owner's, with a board that there always is.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use patchboard_agents::config::{Config, Directory, Environment};
use patchboard_agents::seats::{Inline, Seats};
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::id::BoardId;
use patchboard_kernel::lint;
use patchboard_kernel::record::{End, Ended};
use patchboard_kernel::source::Source;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::alone::ALREADY_SERVED;
use super::problem::Problem;
use super::service::Daemon;
use super::settings::Settings;
use super::{Listening, listen, tokens};
use crate::failure::Failure;
use crate::workspace::place::{Address, Place};

/// What the boards are made of.
const BLUEPRINT: &str = include_str!("../../../blueprints/workspace.yaml");

/// What its workspace calls the directory.
const DIRECTORY: &str = "workspace";

/// How often it is looked whether the board can go on.
const LOOK: Duration = Duration::from_millis(500);

/// How often a daemon is started again where another process has just let its data go, and after what time.
const OPENED_AT_MOST: u32 = 20;
const OPENED_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How long those that ask something are waited for when the host goes, and the board.
const DRAIN: Duration = Duration::from_secs(1);
const STOP: Duration = Duration::from_secs(5);

/// A host; there is one for a directory.
pub(crate) struct Host {
    daemon: Arc<Daemon>,
    listening: Listening,
    following: JoinHandle<()>,
    place: Arc<Place>,
    /// Held until all is stopped.
    _lock: std::fs::File,
}

/// What the boards of a host are made of.
pub(crate) fn blueprint() -> Blueprint {
    let source = Source::read("workspace.yaml", BLUEPRINT).expect("the blueprint can be read");
    lint::check(&source).blueprint.expect("the blueprint is sound")
}

impl Host {
    /// Becomes the host of a directory; none if somebody is.
    pub(crate) async fn start(place: &Arc<Place>) -> Result<Option<Self>, Failure> {
        let Some(lock) = place.host()? else { return Ok(None) };
        // It led to one who is gone.
        place.withdraw();
        let mut config = Config::default();
        config.workspaces.insert(DIRECTORY.to_owned(), Directory::at(place.directory().to_owned()));
        let settings = Settings::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let token = tokens::random()?;
        let daemon = daemon(&place.data()?, &config, &settings, &token).await?;
        let begun = async {
            let board = board(&daemon).await?;
            let listening = listen(&daemon, &settings)?;
            let (port, pid) = (listening.address.port(), std::process::id());
            let address = Address { port, token, board: board.to_string(), pid };
            place.announce(&address)?;
            Ok((listening, address))
        };
        let (listening, address) = match begun.await {
            Ok(begun) => begun,
            Err(failure) => {
                daemon.stop().await;
                return Err(failure);
            }
        };
        tracing::info!(board = address.board, port = address.port, "this process is the host of the directory");
        let following = tokio::spawn(follow(Arc::clone(&daemon), Arc::clone(place), address));
        Ok(Some(Self { daemon, listening, following, place: Arc::clone(place), _lock: lock }))
    }

    /// Ends it: what is decided is durable, and the next host goes on with it.
    pub(crate) async fn stop(self) {
        self.following.abort();
        self.place.withdraw();
        self.daemon.stops();
        self.listening.handle.graceful_shutdown(Some(DRAIN));
        let all = async {
            drop(self.listening.serving.await);
            self.daemon.stop().await;
        };
        drop(timeout(STOP, all).await);
    }
}

/// Starts the daemon, also where the one before is still on its way out.
async fn daemon(data: &Path, config: &Config, settings: &Settings, token: &str) -> Result<Arc<Daemon>, Failure> {
    let mut tries = 0;
    loop {
        let seats = Seats::new(config.clone(), &Environment::default(), Inline::Refused);
        tries += 1;
        match Daemon::start(data, seats, false, settings.limits).await {
            Err(Failure::Told(told)) if told.code == ALREADY_SERVED && tries < OPENED_AT_MOST => {
                tokio::time::sleep(OPENED_AGAIN_AFTER).await;
            }
            started => return Ok(Arc::new(started?.opened_by(token))),
        }
    }
}

/// The newest board that can go on, or a new one.
async fn board(daemon: &Arc<Daemon>) -> Result<BoardId, Failure> {
    let blueprint = blueprint();
    let boards = daemon.boards().map_err(told)?;
    for summary in boards.iter().rev().filter(|board| matches!(board.ended, None | Some(End::Quiescent))) {
        let is_ours = daemon.blueprint(&summary.id).await.is_ok_and(|known| *known == blueprint);
        if is_ours {
            opened(daemon, &summary.id).await?;
            return Ok(summary.id.clone());
        }
    }
    new_board(daemon).await
}

async fn new_board(daemon: &Arc<Daemon>) -> Result<BoardId, Failure> {
    let (board, _) = daemon.create(blueprint(), json!({}), None).await.map_err(told)?;
    opened(daemon, &board).await?;
    Ok(board)
}

/// Waits until the directory of a board is open.
async fn opened(daemon: &Arc<Daemon>, board: &BoardId) -> Result<(), Failure> {
    daemon.open(board).await.map_err(told)?;
    let Err(error) = daemon.workspaces().of(board).await else { return Ok(()) };
    // Who tries again takes it up again.
    daemon.let_go(board).await;
    Err(Failure::failed("workspace_failed", error)
        .help("does a daemon or a run have the directory open as a workspace?"))
}

/// Sees to it that there is a board that can go on.
async fn follow(daemon: Arc<Daemon>, place: Arc<Place>, mut address: Address) {
    let mut board = BoardId::from(address.board.as_str());
    loop {
        tokio::time::sleep(LOOK).await;
        let ended = daemon.running(&board).map(|running| running.snapshot().ended);
        if matches!(ended, Some(None | Some(Ended { end: End::Quiescent, .. }))) {
            continue;
        }
        // One directory serves one board at a time.
        daemon.let_go(&board).await;
        let announced = async {
            board = self::board(&daemon).await?;
            address.board = board.to_string();
            place.announce(&address)
        };
        match announced.await {
            Ok(()) => tracing::info!(%board, "the board before has ended: this one goes on"),
            Err(Failure::Told(told)) => tracing::error!(code = told.code, "there is no board: {}", told.message),
            Err(Failure::StdoutClosed) => {}
        }
    }
}

fn told(problem: Problem) -> Failure {
    let detail = problem.json()["detail"].as_str().unwrap_or_default().to_owned();
    Failure::failed(problem.code, detail)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_blueprint_that_is_shipped_is_sound() {
        let blueprint = super::blueprint();
        assert_eq!(blueprint.workspace.map(|workspace| workspace.dir).as_deref(), Some(super::DIRECTORY));
    }
}
