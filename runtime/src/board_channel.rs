//! Published state of a board and the channel to its kernel, shared by readers and callers with its actors.
//!
//! Outlives the actors, which are replaced when they fail; handles and subscriptions keep it alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use dashmap::{DashMap, Entry};
use parking_lot::Mutex;
use patchboard_kernel::board::Input;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Ended, Principal, Record};
use ractor::{ActorRef, MessagingErr};
use tokio::sync::{Semaphore, broadcast, oneshot, watch};

use crate::actors::messages::{InputResult, KernelMessage, WaitingCaller};
use crate::cpu_time;
use crate::error::RuntimeError;
use crate::options::Options;
use crate::status::BoardStatus;
use crate::subscription::Live;

#[derive(Default)]
pub(crate) struct Boards {
    here: DashMap<BoardId, Arc<BoardChannel>>,
    /// The runtime is shutting down and accepts no more boards.
    is_shutting_down: AtomicBool,
}

impl Boards {
    /// Adds a board, unless its id is taken or the runtime is shutting down.
    pub(crate) fn add(&self, published: Arc<BoardChannel>) -> Result<(), RuntimeError> {
        if self.is_shutting_down.load(Ordering::Acquire) {
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
    pub(crate) fn stop_accepting(&self) {
        self.is_shutting_down.store(true, Ordering::Release);
    }

    /// Removes this board, but not a successor with its id.
    pub(crate) fn remove(&self, published: &Arc<BoardChannel>) {
        self.here.remove_if(&published.board, |_, present| Arc::ptr_eq(present, published));
    }

    pub(crate) fn get(&self, board: &BoardId) -> Option<Arc<BoardChannel>> {
        self.here.get(board).map(|entry| Arc::clone(&entry))
    }

    pub(crate) fn all(&self) -> Vec<Arc<BoardChannel>> {
        self.here.iter().map(|entry| Arc::clone(&entry)).collect()
    }
}

/// Published state of one board.
pub(crate) struct BoardChannel {
    board: BoardId,
    /// Empty until the board is recovered.
    status: ArcSwapOption<BoardStatus>,
    /// Published records; none once the board is gone.
    stream: Mutex<Option<RecordStream>>,
    lifecycle: watch::Sender<Lifecycle>,
    kernel: watch::Sender<KernelAddr>,
    admission: Arc<Semaphore>,
    /// A caller has requested to close it.
    is_closing: AtomicBool,
    /// Set while the board makes no calls, even across a restart of its actors.
    hold: ArcSwapOption<DispatchHold>,
}

/// Hold on a board that was opened without calls until it is resumed. The board is paused, unless it has ended.
pub(crate) struct DispatchHold {
    /// Principal for the record of the pause.
    pub(crate) by: Option<Principal>,
}

struct RecordStream {
    /// Last record sent.
    head: Option<Seq>,
    /// Sender to the subscribers; none without any, because its buffer is larger than all else of an idle board.
    sender: Option<broadcast::Sender<Arc<Record>>>,
    /// Records that wait for the slowest subscriber, at most.
    buffer: usize,
}

/// Status of a board, for waiting callers.
#[derive(Clone, Debug)]
pub(crate) enum Lifecycle {
    /// Being created or recovered.
    Starting,
    Running,
    /// Ended. A quiescent board may continue.
    Ended(Ended),
    /// Stopped in this process.
    Closed(RuntimeError),
}

#[derive(Clone)]
enum KernelAddr {
    /// The actors are being replaced.
    Restarting,
    Available(ActorRef<KernelMessage>),
    Closed(RuntimeError),
}

impl BoardChannel {
    pub(crate) fn new(board: BoardId, held: Option<DispatchHold>, options: &Options) -> Self {
        let buffer = options.subscription_buffer.max(1);
        Self {
            board,
            status: ArcSwapOption::empty(),
            stream: Mutex::new(Some(RecordStream { head: None, sender: None, buffer })),
            lifecycle: watch::Sender::new(Lifecycle::Starting),
            kernel: watch::Sender::new(KernelAddr::Restarting),
            admission: Arc::new(Semaphore::new(options.request_queue_max.max(1))),
            is_closing: AtomicBool::new(false),
            hold: ArcSwapOption::new(held.map(Arc::new)),
        }
    }

    pub(crate) const fn board(&self) -> &BoardId {
        &self.board
    }

    pub(crate) fn status(&self) -> Option<Arc<BoardStatus>> {
        self.status.load_full()
    }

    // Methods for the board's actors.

    pub(crate) fn publish(&self, snapshot: BoardStatus, records: Vec<Record>) {
        let ended = snapshot.ended;
        // Before the records, so that a reader of a record finds its effect in the snapshot.
        self.status.store(Some(Arc::new(snapshot)));
        if let Some(stream) = &mut *self.stream.lock() {
            stream.sender.take_if(|sender| sender.receiver_count() == 0);
            for record in records {
                stream.head = Some(record.seq);
                if let Some(sender) = &stream.sender {
                    // Fails only without subscribers.
                    drop(sender.send(Arc::new(record)));
                }
            }
        }
        self.lifecycle.send_if_modified(|status| {
            let after = match (&*status, ended) {
                // A board under recovery has ended, or not, only once it has been taken over.
                (Lifecycle::Starting | Lifecycle::Closed(_), _) => return false,
                (Lifecycle::Running | Lifecycle::Ended(_), Some(ended)) => Lifecycle::Ended(ended),
                (Lifecycle::Running | Lifecycle::Ended(_), None) => Lifecycle::Running,
            };
            *status = after;
            true
        });
    }

    /// Marks the board as taken over and running, unless it has ended.
    pub(crate) fn mark_running(&self) {
        let ended = self.status.load().as_ref().and_then(|snapshot| snapshot.ended);
        self.lifecycle.send_replace(ended.map_or(Lifecycle::Running, Lifecycle::Ended));
    }

    /// Returns the hold of a board that makes no calls; none if it makes them.
    pub(crate) fn hold(&self) -> Option<Arc<DispatchHold>> {
        self.hold.load_full()
    }

    pub(crate) fn release_hold(&self) {
        self.hold.store(None);
    }

    pub(crate) fn set_kernel(&self, kernel: ActorRef<KernelMessage>) {
        self.kernel.send_replace(KernelAddr::Available(kernel));
    }

    /// Withholds the kernel from callers, which wait for its successor; returns it, unless it was withheld before.
    pub(crate) fn clear_kernel(&self) -> Option<ActorRef<KernelMessage>> {
        let mut withheld = None;
        self.kernel.send_if_modified(|door| {
            let KernelAddr::Available(kernel) = door else { return false };
            withheld = Some(kernel.clone());
            *door = KernelAddr::Restarting;
            true
        });
        withheld
    }

    /// Marks the board as stopped in this process. The first reason is kept.
    pub(crate) fn mark_closed(&self, reason: RuntimeError) {
        self.kernel.send_if_modified(|door| {
            let first = !matches!(door, KernelAddr::Closed(_));
            if first {
                *door = KernelAddr::Closed(reason.clone());
            }
            first
        });
        self.lifecycle.send_if_modified(|status| {
            let is_open = matches!(status, Lifecycle::Starting | Lifecycle::Running);
            if is_open {
                *status = Lifecycle::Closed(reason);
            }
            is_open
        });
        *self.stream.lock() = None;
    }

    // Methods for callers.

    /// Subscribes to records from now on; returns none if the board is gone.
    pub(crate) fn listen(&self) -> Option<Live> {
        self.stream.lock().as_mut().map(|stream| {
            let sender = stream.sender.get_or_insert_with(|| broadcast::Sender::new(stream.buffer));
            Live { head: stream.head, records: sender.subscribe() }
        })
    }

    pub(crate) fn request_close(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    /// Returns true if closing was requested.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Returns true if the board is stopped in this process.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(*self.kernel.borrow(), KernelAddr::Closed(_))
    }

    /// Waits until the board is stopped in this process.
    pub(crate) async fn until_closed(&self) {
        // An error has the same cause: the sender is gone.
        drop(self.kernel.subscribe().wait_for(|door| matches!(door, KernelAddr::Closed(_))).await);
    }

    /// Waits for a status that `wanted` accepts.
    pub(crate) async fn wait_for_lifecycle(&self, wanted: impl FnMut(&Lifecycle) -> bool) -> Lifecycle {
        let mut watched = self.lifecycle.subscribe();
        let status = watched.wait_for(wanted).await.map(|status| status.clone());
        status.unwrap_or_else(|_| Lifecycle::Closed(RuntimeError::Closed(self.board.clone())))
    }

    /// Waits until the board's actors have taken it over, newly created or recovered, or it is gone.
    pub(crate) async fn until_started(&self) -> Lifecycle {
        self.wait_for_lifecycle(|status| !matches!(status, Lifecycle::Starting)).await
    }

    /// Sends an input to the kernel and waits for the result.
    pub(crate) async fn ask(&self, input: Input, principal: Option<Principal>) -> Result<InputResult, RuntimeError> {
        let closed = || RuntimeError::Closed(self.board.clone());
        let place = Arc::clone(&self.admission).acquire_owned().await.map_err(|_| closed())?;
        let (answer, answered) = oneshot::channel();
        let mut message = KernelMessage::Decide {
            input: Box::new(input),
            principal,
            caller: Some(WaitingCaller { answer, is_metered: cpu_time::is_metered(), _place: place }),
        };
        let mut door = self.kernel.subscribe();
        loop {
            let open =
                door.wait_for(|door| !matches!(door, KernelAddr::Restarting)).await.map_err(|_| closed())?.clone();
            match open {
                KernelAddr::Closed(reason) => return Err(reason),
                KernelAddr::Available(kernel) => match kernel.send_message(message) {
                    Ok(()) => break,
                    // The kernel has just ended without reading the message; its successor gets it.
                    Err(MessagingErr::SendErr(unsent)) => message = unsent,
                    Err(_) => return Err(RuntimeError::Interrupted(self.board.clone())),
                },
                KernelAddr::Restarting => {}
            }
            door.changed().await.map_err(|_| closed())?;
        }
        let Ok((decided, used)) = answered.await else { return Err(RuntimeError::Interrupted(self.board.clone())) };
        cpu_time::credit(used);
        decided
    }

    /// Ends the kernel actor as a crash would.
    pub(crate) fn kill_kernel(&self) {
        if let KernelAddr::Available(kernel) = &*self.kernel.borrow() {
            kernel.kill();
        }
    }
}
