//! Opening and closing of boards' directories.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use patchboard_agents::config::Directory;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::{FileEntry, FilePath};
use patchboard_kernel::id::BoardId;
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{Agent, Call, CallResult};
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::options::Options;
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::sqlite::SqliteJournal;
use patchboard_workspace::boards::Workspaces;
use serde_json::json;
use tempfile::TempDir;

/// Agent that never answers, and reports the end of boards to the workspaces.
struct Hears(Arc<Workspaces>);

impl Agent for Hears {
    fn call<'a>(&'a self, _: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        Box::pin(pending())
    }

    fn on_board_ended(&self, board: &BoardId) {
        self.0.ended(board);
    }
}

/// Returns whether a future is still pending after one poll.
async fn is_waiting<T>(what: impl Future<Output = T>) -> bool {
    tokio::select! {
        biased;
        _ = what => false,
        () = async {} => true,
    }
}

struct House {
    directory: TempDir,
    _data: TempDir,
    workspaces: Arc<Workspaces>,
    runtime: Runtime,
}

impl House {
    async fn new() -> Self {
        let (directory, data) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let code = ("code".to_owned(), Directory::new(directory.path().to_owned()));
        let workspaces = Arc::new(Workspaces::new(BTreeMap::from([code])));
        let journal = SqliteJournal::open(data.path()).expect("a journal");
        let options = Options::new(Arc::new(Hears(Arc::clone(&workspaces))));
        let runtime = Runtime::start(Arc::new(journal), options, PLANS).await.expect("a runtime");
        Self { directory, _data: data, workspaces, runtime }
    }

    async fn create(&self) -> BoardHandle {
        let blueprint = json!({
            "blueprint": 1, "name": "house", "state": {"schema": {}}, "workspace": {"dir": "code"},
            "workers": {"ada": {"agent": "remote", "files": {"edit": ["**"]}}},
            "rules": [{"name": "ada", "trigger": "start", "run": "ada"}],
        });
        let blueprint: Blueprint = serde_json::from_value(blueprint).expect("a blueprint");
        self.runtime.create(blueprint, json!({}), None).await.expect("a board")
    }
}

#[tokio::test]
async fn lookups_fail_at_once_for_inactive_boards_and_wait_for_activating_ones() {
    let house = House::new().await;
    let begun = Instant::now();
    assert!(house.workspaces.get(&BoardId::from("nobody")).await.is_err());
    let board = house.create().await;
    assert!(house.workspaces.get(board.id()).await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());

    let taking_up = house.workspaces.begin_activation();
    let mut waits = pin!(house.workspaces.get(board.id()));
    assert!(is_waiting(&mut waits).await, "it is coming");
    let opens = taking_up.attach(&board);
    assert!(is_waiting(&mut waits).await, "it is being opened");
    opens.await.expect("it is open").expect("it has a directory");
    drop(waits.await.expect("it was waited for"));

    // A cancelled board has ended for good.
    board.cancel().await.expect("cancelled");
    let gone = async {
        while house.workspaces.get(board.id()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("its directory was let go");
    let taking_up = house.workspaces.begin_activation();
    assert!(taking_up.attach(&board).await.expect("nothing is wrong").is_none(), "nobody edits there any more");
    let next = house.create().await;
    house
        .workspaces
        .begin_activation()
        .attach(&next)
        .await
        .expect("the directory is free")
        .expect("it has a directory");
}

#[tokio::test]
async fn reopening_a_board_waits_until_its_directory_is_released() {
    let house = House::new().await;
    let board = house.create().await;
    let before =
        house.workspaces.begin_activation().attach(&board).await.expect("it is open").expect("it has a directory");
    house.runtime.close(board.id()).await;
    let board = house.runtime.resume(board.id()).await.expect("resumed");
    let mut opened = pin!(house.workspaces.begin_activation().attach(&board));
    // The retries find the directory still locked.
    let looked = tokio::time::timeout(Duration::from_millis(200), &mut opened).await;
    assert!(looked.is_err(), "somebody is still there");
    drop(before);
    opened.await.expect("whoever was there is done").expect("it has a directory");
    house.workspaces.get(board.id()).await.expect("it is open");
}

#[tokio::test]
async fn the_end_of_an_earlier_taking_up_is_not_the_end_of_the_next() {
    let house = House::new().await;
    let board = house.create().await;
    drop(house.workspaces.begin_activation().attach(&board).await.expect("it is open"));
    house.runtime.close(board.id()).await;
    let board = house.runtime.resume(board.id()).await.expect("resumed");
    drop(house.workspaces.begin_activation().attach(&board).await.expect("it is open"));
    // A late notice of the previous activation's end.
    house.workspaces.ended(board.id());
    tokio::time::sleep(Duration::from_millis(200)).await;
    house.workspaces.get(board.id()).await.expect("it is still open");
    house.runtime.close(board.id()).await;
    let gone = async {
        while house.workspaces.get(board.id()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("its directory was let go");
}

#[tokio::test]
async fn external_writes_are_reported_to_the_board_unasked() {
    let house = House::new().await;
    let board = house.create().await;
    let _open =
        house.workspaces.begin_activation().attach(&board).await.expect("it is open").expect("it has a directory");
    let root = house.directory.path();
    let has = |name: &'static str, hash: Option<Digest>| {
        let board = board.clone();
        let has = async move {
            while FileEntry::load(&board.status().state, &FilePath::parse(name).expect("a name"))
                .map(|entry| entry.hash)
                != Some(hash)
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        async {
            tokio::time::timeout(Duration::from_secs(9), has)
                .await
                .expect("the board was told, and not by looking now and then")
        }
    };
    std::fs::create_dir(root.join("src")).expect("made");
    std::fs::write(root.join("src/a.py"), "x = 1\n").expect("written");
    has("src/a.py", Some(sha256(b"x = 1\n"))).await;
    std::fs::write(root.join("src/a.py"), "x = 2\n").expect("written");
    has("src/a.py", Some(sha256(b"x = 2\n"))).await;
    std::fs::remove_file(root.join("src/a.py")).expect("removed");
    has("src/a.py", None).await;

    // Also applies after the directory is reopened.
    std::fs::remove_dir_all(root.join(".patchboard")).expect("removed");
    house.workspaces.get(board.id()).await.expect("it is opened anew");
    std::fs::write(root.join("b.py"), "y = 1\n").expect("written");
    has("b.py", Some(sha256(b"y = 1\n"))).await;
}
