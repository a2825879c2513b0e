//! Early notice of external changes in the directory.
//!
//! A notice is a hint: it may be late or repeated, or name files that are not served or have not changed. Only a read
//! shows the actual content. With one watch per directory, directories that are not served are not watched.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use patchboard_kernel::files::FilePath;
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::error::DiskError;
use super::scan::WalkEntry;
use super::{Disk, ignore_rules};

/// Quiet period before changes are reported, and the longest delay of a report.
const QUIET: Duration = Duration::from_millis(20);
const HELD_BACK_MAX: Duration = Duration::from_millis(200);
/// Maximum number of files named individually; above it, any file may have changed.
const NAMED_MAX: usize = 1000;
/// Capacity of the channel to the receiver, and of that to the watcher thread.
const NOTICES_MAX: usize = 16;
const EVENTS_MAX: usize = 4096;

/// True if each directory has its own watch, as with inotify; otherwise the root has a recursive one.
const WATCH_PER_DIRECTORY: bool = cfg!(target_os = "linux");

/// Files that may have changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeNotice {
    /// The named files.
    Files(BTreeSet<FilePath>),
    /// Any file, or the set of served files.
    All,
    /// The watch limit of the operating system is reached and the watch has ended: rescan at intervals.
    TooManyWatches,
}

/// An active watch, stopped on drop.
#[derive(Debug)]
pub struct Watch {
    noticed: mpsc::Receiver<ChangeNotice>,
    stop: SyncSender<WatcherMessage>,
    is_over: Arc<AtomicBool>,
}

impl Watch {
    /// Waits for the next changes; `None` if the watch has ended.
    pub async fn next(&mut self) -> Option<ChangeNotice> {
        self.noticed.recv().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // If the channel is full, its events wake the thread anyway.
        self.stop.try_send(WatcherMessage::Stop).ok();
    }
}

enum WatcherMessage {
    Event(notify::Result<Event>),
    Stop,
}

/// State of the watcher thread.
struct Watcher {
    disk: Weak<Disk>,
    root: PathBuf,
    watcher: RecommendedWatcher,
    watched: BTreeSet<PathBuf>,
    /// Set when the event channel overflowed.
    overflow: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    news: PendingChanges,
    /// Directories were created, removed or renamed.
    is_moved: bool,
}

#[derive(Default)]
pub(super) struct PendingChanges {
    files: BTreeSet<FilePath>,
    /// Any file may have changed.
    is_all: bool,
}

impl PendingChanges {
    fn are_none(&self) -> bool {
        !self.is_all && self.files.is_empty()
    }

    pub(super) fn note(&mut self, file: FilePath) {
        if !self.is_all {
            self.files.insert(file);
        }
        if self.files.len() > NAMED_MAX {
            self.note_all();
        }
    }

    fn note_all(&mut self) {
        self.is_all = true;
        self.files.clear();
    }

    /// Reports the pending changes if the channel has room; `false` if the receiver is gone.
    pub(super) fn send(&mut self, sender: &mpsc::Sender<ChangeNotice>) -> bool {
        if self.are_none() {
            return true;
        }
        match sender.try_reserve() {
            Ok(place) => {
                let Self { files, is_all } = std::mem::take(self);
                place.send(if is_all { ChangeNotice::All } else { ChangeNotice::Files(files) });
                true
            }
            Err(mpsc::error::TrySendError::Full(())) => true,
            Err(mpsc::error::TrySendError::Closed(())) => false,
        }
    }
}

/// Starts to watch a directory.
pub fn watch(disk: &Arc<Disk>) -> Result<Watch, DiskError> {
    let (stop, events) = sync_channel(EVENTS_MAX);
    let (sender, noticed) = mpsc::channel(NOTICES_MAX);
    let (overflow, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (event_sender, full) = (stop.clone(), Arc::clone(&overflow));
    let handler = move |event: notify::Result<Event>| {
        if event.as_ref().is_ok_and(is_reading) {
            return;
        }
        if let Err(TrySendError::Full(_)) = event_sender.try_send(WatcherMessage::Event(event)) {
            full.store(true, Ordering::Release);
        }
    };
    let config = notify::Config::default().with_follow_symlinks(false);
    let watcher = RecommendedWatcher::new(handler, config).map_err(|error| failed(&error))?;
    let mut watcher = Watcher {
        disk: Arc::downgrade(disk),
        root: disk.path.clone(),
        watcher,
        watched: BTreeSet::new(),
        overflow,
        is_over: Arc::clone(&is_over),
        news: PendingChanges::default(),
        is_moved: false,
    };
    watcher.watch_all(disk)?;
    let run = move || watcher.run(&events, &sender);
    thread::Builder::new()
        .name("workspace-watch".into())
        .spawn(run)
        .map_err(|error| DiskError::io("the directory cannot be watched", error))?;
    Ok(Watch { noticed, stop, is_over })
}

impl Watcher {
    fn run(mut self, events: &Receiver<WatcherMessage>, sender: &mpsc::Sender<ChangeNotice>) {
        loop {
            let first = if self.news.are_none() {
                events.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                events.recv_timeout(HELD_BACK_MAX)
            };
            let held_back = Instant::now();
            let mut next = first;
            loop {
                match next {
                    Ok(WatcherMessage::Event(event)) => self.take(event),
                    Err(RecvTimeoutError::Timeout) => break,
                    Ok(WatcherMessage::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                }
                if self.is_over.load(Ordering::Acquire) {
                    return;
                }
                let Some(left) = HELD_BACK_MAX.checked_sub(held_back.elapsed()) else { break };
                next = events.recv_timeout(left.min(QUIET));
            }
            if self.overflow.swap(false, Ordering::AcqRel) {
                self.news.note_all();
            }
            if (self.is_moved || self.news.is_all) && WATCH_PER_DIRECTORY {
                let Some(disk) = self.disk.upgrade() else { return };
                self.is_moved = false;
                if let Err(DiskError::TooManyWatches) = self.watch_all(&disk) {
                    sender.blocking_send(ChangeNotice::TooManyWatches).ok();
                    return;
                }
            }
            if !self.news.send(sender) {
                return;
            }
        }
    }

    fn take(&mut self, event: notify::Result<Event>) {
        let event = match event {
            Ok(event) if !event.need_rescan() => event,
            Ok(_) | Err(_) => return self.news.note_all(),
        };
        let may_be_directory = matches!(
            event.kind,
            EventKind::Any | EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
        );
        for path in &event.paths {
            let Some(name) = path.strip_prefix(&self.root).ok().and_then(Path::to_str) else { continue };
            let is_own =
                |part: &str| part.eq_ignore_ascii_case(".git") || part.eq_ignore_ascii_case(ignore_rules::PRIVATE);
            if name.split('/').any(is_own) {
                continue;
            }
            let is_directory = || self.watched.contains(path) || path.symlink_metadata().is_ok_and(|at| at.is_dir());
            if may_be_directory && is_directory() {
                self.is_moved = true;
                self.news.note_all();
            } else if name.rsplit('/').next() == Some(".gitignore") {
                self.news.note_all();
            } else if let Ok(file) = FilePath::parse(name) {
                self.news.note(file);
            }
        }
    }

    /// Watches all served directories, including those already watched: one of the same name may be a new directory.
    fn watch_all(&mut self, disk: &Disk) -> Result<(), DiskError> {
        if !WATCH_PER_DIRECTORY {
            return self.watcher.watch(&self.root, RecursiveMode::Recursive).map_err(|error| failed(&error));
        }
        let mut watched = BTreeSet::from([self.root.clone()]);
        let walked = disk.walk(&mut |passed| {
            if let WalkEntry::Directory(name) = passed {
                watched.insert(self.root.join(name));
            }
            if watched.len() > disk.options.max_files { Err(DiskError::TooManyWatches) } else { Ok(()) }
        });
        for path in &watched {
            match self.watcher.watch(path, RecursiveMode::NonRecursive).map_err(|error| failed(&error)) {
                Err(DiskError::TooManyWatches) => return Err(DiskError::TooManyWatches),
                Err(error) if *path == self.root => return Err(error),
                // The directory was removed meanwhile.
                Ok(()) | Err(_) => {}
            }
        }
        self.watched = watched;
        walked
    }
}

/// Returns whether the event is only a read, which the workspace itself causes all the time.
fn is_reading(event: &Event) -> bool {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => !event.need_rescan(),
        _ => false,
    }
}

fn failed(error: &notify::Error) -> DiskError {
    let is_limit = |error: &io::Error| Errno::from_io_error(error).is_some_and(|errno| errno == Errno::MFILE);
    match &error.kind {
        ErrorKind::MaxFilesWatch => DiskError::TooManyWatches,
        ErrorKind::Io(error) if is_limit(error) => DiskError::TooManyWatches,
        _ => DiskError::io("the directory cannot be watched", io::Error::other(error.to_string())),
    }
}
