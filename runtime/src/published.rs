//! Published state of a board and the channel to its kernel, shared by readers and callers with its actors.
//!
//! Outlives the actors, which are replaced when they fail; handles and subscriptions keep it alive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use dashmap::{DashMap, Entry};
use patchboard_kernel::board::Input;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Ended, Principal, Record};
use ractor::{ActorRef, MessagingErr};
use tokio::sync::{Semaphore, broadcast, oneshot, watch};

use crate::actors::board;
use crate::actors::kernel::{Asker, Decided, Message};
use crate::runtime::{Options, RuntimeError};
use crate::snapshot::Snapshot;
use crate::subscription::Live;
use crate::work;

/// The boards of a runtime.
#[derive(Default)]
pub(crate) struct Boards {
    here: DashMap<BoardId, Arc<Published>>,
    /// The runtime is shutting down and accepts no more boards.
    is_shut: AtomicBool,
}

impl Boards {
    /// Adds a board, unless its id is taken or the runtime is shutting down.
    pub(crate) fn add(&self, published: Arc<Published>) -> Result<(), RuntimeError> {
        if self.is_shut.load(Ordering::Acquire) {
            return Err(RuntimeError::Closed(published.board.clone()));
        }
        match self.here.entry(published.board.clone()) {
            Entry::Occupied(_) => Err(RuntimeError::AlreadyRunning(published.board.clone())),
            Entry::Vacant(place) => {
                place.insert(published);
                Ok(())
            }
        }
    }

    /// Rejects further boards.
    pub(crate) fn shut(&self) {
        self.is_shut.store(true, Ordering::Release);
    }

    /// Removes this board, but not a successor with its id.
    pub(crate) fn remove(&self, published: &Arc<Published>) {
        self.here.remove_if(&published.board, |_, present| Arc::ptr_eq(present, published));
    }

    pub(crate) fn get(&self, board: &BoardId) -> Option<Arc<Published>> {
        self.here.get(board).map(|entry| Arc::clone(&entry))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Published>> {
        self.here.iter().map(|entry| Arc::clone(&entry)).collect()
    }
}

/// Published state of one board.
pub(crate) struct Published {
    board: BoardId,
    /// Empty until the board is recovered.
    snapshot: ArcSwapOption<Snapshot>,
    /// Published records; none once the board is gone.
    stream: Mutex<Option<Stream>>,
    status: watch::Sender<Status>,
    door: watch::Sender<Door>,
    admission: Arc<Semaphore>,
    supervisor: watch::Sender<Option<ActorRef<board::Message>>>,
    /// A caller has requested to close it.
    is_closing: AtomicBool,
    /// Set while the board makes no calls, even across a restart of its actors.
    held: ArcSwapOption<Held>,
}

/// Hold on a board that was opened without calls until it is resumed. The board is paused, unless it has ended.
pub(crate) struct Held {
    /// Principal for the record of the pause.
    pub(crate) by: Option<Principal>,
}

/// Stream of records to subscribers.
struct Stream {
    /// Last record sent.
    head: Option<Seq>,
    sender: broadcast::Sender<Arc<Record>>,
}

/// Status of a board, for waiting callers.
#[derive(Clone, Debug)]
pub(crate) enum Status {
    /// Being created or recovered.
    Starting,
    /// Running.
    Running,
    /// Ended. A quiescent board may continue.
    Ended(Ended),
    /// Stopped in this process.
    Gone(RuntimeError),
}

/// Channel to the kernel.
#[derive(Clone)]
enum Door {
    /// The actors are being replaced.
    Shut,
    Open(ActorRef<Message>),
    /// Closed for good.
    Gone(RuntimeError),
}

impl Published {
    pub(crate) fn new(board: BoardId, held: Option<Held>, options: &Options) -> Self {
        let (sender, _) = broadcast::channel(options.subscription.max(1));
        Self {
            board,
            snapshot: ArcSwapOption::empty(),
            stream: Mutex::new(Some(Stream { head: None, sender })),
            status: watch::Sender::new(Status::Starting),
            door: watch::Sender::new(Door::Shut),
            admission: Arc::new(Semaphore::new(options.admission.max(1))),
            supervisor: watch::Sender::new(None),
            is_closing: AtomicBool::new(false),
            held: ArcSwapOption::new(held.map(Arc::new)),
        }
    }

    pub(crate) const fn board(&self) -> &BoardId {
        &self.board
    }

    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.load_full()
    }

    /// Returns the board's supervisor, waiting while it is being started or replaced; none if the board is gone.
    pub(crate) async fn supervisor(&self) -> Option<ActorRef<board::Message>> {
        let mut watched = self.supervisor.subscribe();
        tokio::select! {
            biased;
            supervisor = watched.wait_for(Option::is_some) => supervisor.ok()?.clone(),
            () = self.until_gone() => None,
        }
    }

    // Methods for the board's actors.

    pub(crate) fn supervised_by(&self, supervisor: ActorRef<board::Message>) {
        self.supervisor.send_replace(Some(supervisor));
    }

    /// Marks the supervisor as failed. Callers that close the board wait for its successor.
    pub(crate) fn unsupervised(&self) {
        self.supervisor.send_replace(None);
    }

    /// Publishes a durable state and its records.
    pub(crate) fn publish(&self, snapshot: Snapshot, records: Vec<Record>) {
        let ended = snapshot.ended;
        // Before the records, so that a reader of a record finds its effect in the snapshot.
        self.snapshot.store(Some(Arc::new(snapshot)));
        if let Some(stream) = &mut *self.stream() {
            for record in records {
                stream.head = Some(record.seq);
                // Fails only without subscribers.
                drop(stream.sender.send(Arc::new(record)));
            }
        }
        self.status.send_if_modified(|status| {
            let after = match (&*status, ended) {
                // A board under recovery has ended, or not, only once it has been taken over.
                (Status::Starting | Status::Gone(_), _) => return false,
                (Status::Running | Status::Ended(_), Some(ended)) => Status::Ended(ended),
                (Status::Running | Status::Ended(_), None) => Status::Running,
            };
            *status = after;
            true
        });
    }

    /// Marks the board as taken over and running, unless it has ended.
    pub(crate) fn running(&self) {
        let ended = self.snapshot.load().as_ref().and_then(|snapshot| snapshot.ended);
        self.status.send_replace(ended.map_or(Status::Running, Status::Ended));
    }

    /// Returns the hold of a board that makes no calls; none if it makes them.
    pub(crate) fn held(&self) -> Option<Arc<Held>> {
        self.held.load_full()
    }

    /// Lifts the hold.
    pub(crate) fn release(&self) {
        self.held.store(None);
    }

    pub(crate) fn open(&self, kernel: ActorRef<Message>) {
        self.door.send_replace(Door::Open(kernel));
    }

    pub(crate) fn shut(&self) {
        self.door.send_replace(Door::Shut);
    }

    /// Marks the board as stopped in this process. The first reason is kept.
    pub(crate) fn gone(&self, reason: RuntimeError) {
        self.door.send_if_modified(|door| {
            let first = !matches!(door, Door::Gone(_));
            if first {
                *door = Door::Gone(reason.clone());
            }
            first
        });
        self.status.send_if_modified(|status| {
            let is_open = matches!(status, Status::Starting | Status::Running);
            if is_open {
                *status = Status::Gone(reason);
            }
            is_open
        });
        *self.stream() = None;
    }

    // Methods for callers.

    /// Subscribes to records from now on; returns none if the board is gone.
    pub(crate) fn listen(&self) -> Option<Live> {
        self.stream().as_ref().map(|stream| Live { head: stream.head, records: stream.sender.subscribe() })
    }

    /// Requests to close the board.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    /// Returns true if closing was requested.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Returns true if the board is stopped in this process.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(*self.door.borrow(), Door::Gone(_))
    }

    async fn until_gone(&self) {
        // An error has the same cause: the sender is gone.
        drop(self.door.subscribe().wait_for(|door| matches!(door, Door::Gone(_))).await);
    }

    /// Waits for a status that `wanted` accepts.
    pub(crate) async fn status(&self, wanted: impl FnMut(&Status) -> bool) -> Status {
        let mut watched = self.status.subscribe();
        let status = watched.wait_for(wanted).await.map(|status| status.clone());
        status.unwrap_or_else(|_| Status::Gone(RuntimeError::Closed(self.board.clone())))
    }

    /// Waits until the board's actors have taken it over, newly created or recovered, or it is gone.
    pub(crate) async fn taken_on(&self) -> Status {
        self.status(|status| !matches!(status, Status::Starting)).await
    }

    /// Sends an input to the kernel and waits for the result.
    pub(crate) async fn ask(&self, input: Input, principal: Option<Principal>) -> Result<Decided, RuntimeError> {
        let closed = || RuntimeError::Closed(self.board.clone());
        let place = Arc::clone(&self.admission).acquire_owned().await.map_err(|_| closed())?;
        let (answer, answered) = oneshot::channel();
        let mut message = Message::Decide { input, principal, asker: Some(Asker { answer, _place: place }) };
        let mut door = self.door.subscribe();
        loop {
            let open = door.wait_for(|door| !matches!(door, Door::Shut)).await.map_err(|_| closed())?.clone();
            match open {
                Door::Gone(reason) => return Err(reason),
                Door::Open(kernel) => match kernel.send_message(message) {
                    Ok(()) => break,
                    // The kernel has just ended without reading the message; its successor gets it.
                    Err(MessagingErr::SendErr(unsent)) => message = unsent,
                    Err(_) => return Err(RuntimeError::Interrupted(self.board.clone())),
                },
                Door::Shut => {}
            }
            door.changed().await.map_err(|_| closed())?;
        }
        let Ok((decided, used)) = answered.await else { return Err(RuntimeError::Interrupted(self.board.clone())) };
        work::give(used);
        decided
    }

    /// Ends the kernel actor as a crash would.
    pub(crate) fn kill_kernel(&self) {
        if let Door::Open(kernel) = &*self.door.borrow() {
            kernel.kill();
        }
    }

    fn stream(&self) -> MutexGuard<'_, Option<Stream>> {
        // No code under this lock can panic.
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
