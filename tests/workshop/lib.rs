//! Provides a board with all engineers at work on one directory, driven by hand from tests and examples.
//!
//! Every engineer has one open task, and the owner of the [`Workshop`] plays all of them, command by command.

mod journal;

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::files::{Access, EditAttempt, FileEntry, FilePath};
use patchboard_kernel::id::BoardId;
use patchboard_kernel::record::Record;
use patchboard_protocols::PLANS;
use patchboard_runtime::agent::{Agent, Call, CallResult};
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::options::{Options, RestartPolicy};
use patchboard_runtime::runtime::Runtime;
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::Journal as _;
use patchboard_storage::sqlite::SqliteJournal;
use patchboard_workspace::disk::{Disk, DiskOptions};
use patchboard_workspace::edit_author::EditAuthor;
use patchboard_workspace::service::{OpenedWorkspace, Workspace};
use patchboard_workspace::session::{CommandResult, Session};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use journal::Failing;

/// Time limit for all engineers to start work.
const PATIENCE: Duration = Duration::from_secs(30);

/// Agent that keeps every called worker at work until the test is over.
#[derive(Default)]
struct Busy {
    calls: Mutex<BTreeMap<String, EditAttempt>>,
}

impl Agent for Busy {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        let attempt = EditAttempt { invocation: call.invocation, attempt: call.attempt };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).insert(call.worker.to_string(), attempt);
        Box::pin(pending())
    }
}

/// Engineers at work on a directory.
pub struct Workshop {
    /// Directory of the files.
    pub directory: TempDir,
    data: TempDir,
    busy: Arc<Busy>,
    /// Journal of the board.
    pub journal: Arc<Failing>,
    /// Runtime of the board.
    pub runtime: Runtime,
    /// The board.
    pub board: BoardHandle,
    /// Workspace of the directory and its board.
    pub workspace: Arc<Workspace>,
    /// Number of external changes found when the workspace was last opened.
    pub found: usize,
}

/// Returns the name of an engineer, counted from 0.
pub fn name(engineer: usize) -> String {
    format!("engineer_{}", engineer + 1)
}

/// Parses a file name.
///
/// # Panics
/// If it is invalid.
pub fn path(name: &str) -> FilePath {
    FilePath::parse(name).expect("the name of a file")
}

impl Workshop {
    /// Opens a workshop with `engineers` engineers and these files. `spec` has further members of the workspace, and
    /// may have `invariants` of the board.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub async fn open(engineers: usize, spec: &Value, files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let file = directory.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap_or(Path::new("."))).expect("directories");
            std::fs::write(file, text).expect("a file");
        }
        Self::at(engineers, spec, directory).await
    }

    /// Opens a workshop like [`Self::open`], with the files of a directory.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub async fn at(engineers: usize, spec: &Value, directory: TempDir) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let busy = Arc::new(Busy::default());
        let (runtime, journal) = runtime(data.path(), &busy).await;
        let board = runtime.create(blueprint(engineers, spec), json!({}), None).await.expect("a board");
        let OpenedWorkspace { workspace, found, .. } = opened(&board, directory.path()).await;
        let workshop = Self { directory, data, busy, journal, runtime, board, workspace, found: found.found };
        workshop.all_at_work(engineers).await;
        workshop
    }

    /// Ends like a killed process, and resumes the board and the directory.
    ///
    /// # Panics
    /// If they cannot be resumed.
    pub async fn crashed(self) -> Self {
        let Self { directory, data, runtime, board, workspace, .. } = self;
        let id = board.id().clone();
        let engineers = board.status().blueprint.workers.len();
        drop((workspace, board));
        drop(runtime);
        let busy = Arc::new(Busy::default());
        let (runtime, journal) = self::runtime(data.path(), &busy).await;
        let board = resumed(&runtime, &id).await;
        let OpenedWorkspace { workspace, found, .. } = opened(&board, directory.path()).await;
        let workshop = Self { directory, data, busy, journal, runtime, board, workspace, found: found.found };
        workshop.all_at_work(engineers).await;
        workshop
    }

    /// Ends the workshop, and returns the directory with its files.
    pub fn closed(self) -> TempDir {
        self.directory
    }

    async fn all_at_work(&self, engineers: usize) {
        let begun = tokio::time::Instant::now();
        while self.busy.calls.lock().unwrap_or_else(PoisonError::into_inner).len() < engineers {
            assert!(begun.elapsed() < PATIENCE, "not everybody was called");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns the session of an engineer without any reads yet.
    ///
    /// # Panics
    /// If there is no such engineer.
    pub fn session(&self, engineer: usize) -> Session {
        let worker = name(engineer);
        let of = self.busy.calls.lock().unwrap_or_else(PoisonError::into_inner)[&worker];
        let blueprint = Arc::clone(&self.board.status().blueprint);
        let files = blueprint.workers[worker.as_str()].files.as_ref().expect("an engineer's files");
        let access = Access::compile(files).expect("patterns");
        Session::new(Arc::clone(&self.workspace), EditAuthor { attempt: of, access, worker, name: None })
    }

    /// Returns the board's entry of a file.
    pub fn entry(&self, name: &str) -> Option<FileEntry> {
        FileEntry::load(&self.workspace.state(), &path(name))
    }

    /// Returns the content of a file.
    pub fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.directory.path().join(name)).ok()
    }

    /// Returns all records of the board.
    ///
    /// # Panics
    /// If they cannot be read.
    pub fn records(&self) -> Vec<Record> {
        let journal = SqliteJournal::open(self.data.path()).expect("a journal");
        wait(journal.records(self.board.id(), None, usize::MAX)).expect("records")
    }
}

/// Calls a tool, and returns its result.
pub async fn call(session: &mut Session, arguments: Value) -> CommandResult {
    session.call(arguments).await
}

async fn runtime(data: &Path, busy: &Arc<Busy>) -> (Runtime, Arc<Failing>) {
    let journal = Arc::new(Failing::open(data));
    // The restart limit must allow the journal to fail for as long as a test needs.
    let restarts = RestartPolicy { max: u32::MAX, backoff: Duration::from_millis(1), ..RestartPolicy::default() };
    let mut options = Options::new(Arc::clone(busy) as Arc<dyn Agent>);
    options.restarts = restarts;
    let runtime = Runtime::start(Arc::clone(&journal) as _, options, PLANS).await.expect("a runtime");
    (runtime, journal)
}

/// Resumes a board that another runtime of this process has just released.
async fn resumed(runtime: &Runtime, board: &BoardId) -> BoardHandle {
    let begun = tokio::time::Instant::now();
    loop {
        match runtime.resume(board).await {
            Ok(board) => return board,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn opened(board: &BoardHandle, directory: &Path) -> OpenedWorkspace {
    let begun = tokio::time::Instant::now();
    let exclude = board.status().blueprint.workspace.as_ref().map(|spec| spec.exclude.clone()).unwrap_or_default();
    let options = DiskOptions { exclude, ..DiskOptions::default() };
    let disk = loop {
        match Disk::open(directory, options.clone()) {
            Ok(disk) => break disk,
            // The former owner is still shutting down.
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    Workspace::open(board.clone(), disk).await.expect("a workspace")
}

fn blueprint(engineers: usize, spec: &Value) -> Blueprint {
    let mut workspace = json!({"dir": "code"});
    let mut invariants = json!([]);
    for (member, value) in spec.as_object().into_iter().flatten() {
        let place = if member == "invariants" { &mut invariants } else { &mut workspace[member] };
        *place = value.clone();
    }
    let engineer =
        json!({"agent": "remote", "files": {"edit": ["**"]}, "limits": {"timeout": "10d", "invocations": 2}});
    let names: Vec<String> = (0..engineers).map(name).collect();
    let workers: serde_json::Map<String, Value> = names.iter().map(|name| (name.clone(), engineer.clone())).collect();
    let rules: Vec<Value> = names.iter().map(|name| json!({"name": name, "trigger": "start", "run": name})).collect();
    let blueprint = json!({
        "blueprint": 1, "name": "workshop", "state": {"schema": {}}, "workspace": workspace, "workers": workers,
        "rules": rules, "invariants": invariants, "concurrency": engineers, "limits": {"commits": 10_000_000, "edits": 10_000_000, "wall": "10d"},
    });
    serde_json::from_value(blueprint).expect("a blueprint")
}
