//! Calls to seats of kind `remote`, kept until an external process leases and answers them.
//!
//! Owns the leases: the process that may work on an attempt, and until when. The answer does not pass through here.
//! The lease holder sends its proposal to the kernel in the name of the attempt, and the kernel decides whether it
//! still counts; then the call is closed here. A lease that is not renewed ends the attempt as `lease_expired`. The
//! next attempt has another number and may be leased by another process, so that a late answer of the first one is
//! recognised.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, InvocationId, WorkerName};
use patchboard_runtime::agent::{Call, CallResult, Failure};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Bounds of a lease's duration, in seconds.
pub const LEASE_SECONDS: std::ops::RangeInclusive<u64> = 1..=3600;

/// Open calls to remote seats. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    workers: Arc<Mutex<BTreeMap<Place, WorkerCalls>>>,
}

type Place = (BoardId, WorkerName);

#[derive(Debug, Default)]
struct WorkerCalls {
    /// Calls by invocation; few, as the worker's concurrency limit bounds them.
    calls: Vec<PendingCall>,
    /// Notifies one waiting process of a new call.
    new_call: Arc<Notify>,
}

#[derive(Debug)]
struct PendingCall {
    call: Arc<Call>,
    /// Deadline of the attempt, at which the kernel times it out.
    deadline: Instant,
    state: Arc<CallState>,
}

/// State of a call, shared with the task that waits for its end.
#[derive(Debug)]
struct CallState {
    state: Mutex<LeaseState>,
    changed: Notify,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum LeaseState {
    Waiting,
    Leased { until: Instant, taker: LeaseHolder },
    Closed,
}

/// Process that leases a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeaseHolder {
    /// Idempotency key: a repeated request with it gets the existing lease.
    pub key: Option<String>,
    /// Number of the process's API token; the lease ends with the token.
    pub api_token: Option<i64>,
}

/// Right to answer an attempt, for a limited time.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Call of the attempt.
    pub call: Arc<Call>,
    /// Time until the lease expires unless renewed.
    pub expires_in: Duration,
    /// Time until the attempt times out.
    pub time_left: Duration,
}

/// Open call, in the form reported to operators.
#[derive(Clone, Debug)]
pub struct OpenCall {
    /// Call of the attempt.
    pub call: Arc<Call>,
    /// Time until its lease expires unless renewed; none while no process holds it.
    pub expires_in: Option<Duration>,
}

impl Leases {
    /// Keeps a call until it is closed or its lease expires.
    pub(crate) async fn call(&self, call: &Call) -> CallResult {
        let (_keep, state) = self.keep(call);
        loop {
            let now = state.get();
            let expiry = async {
                match now {
                    LeaseState::Waiting => pending().await,
                    LeaseState::Leased { until, .. } => sleep_until(until).await,
                    LeaseState::Closed => {}
                }
            };
            tokio::select! {
                () = expiry => break,
                () = state.changed.notified() => {}
            }
        }
        // No caller waits for the answer of a closed call.
        Err(Failure::new(FailureCode::LeaseExpired, "the process that leased the call has not renewed the lease"))
    }

    fn keep(&self, call: &Call) -> (CallGuard<'_>, Arc<CallState>) {
        let state = Arc::new(CallState { state: Mutex::new(LeaseState::Waiting), changed: Notify::new() });
        let place = (call.board.clone(), call.worker.clone());
        let deadline = Instant::now() + call.timeout;
        let kept = PendingCall { call: Arc::new(call.clone()), deadline, state: Arc::clone(&state) };
        let mut seats = self.workers.lock();
        seats.entry(place.clone()).or_default().add(kept);
        drop(seats);
        (CallGuard { leases: self, place, invocation: call.invocation, attempt: call.attempt }, state)
    }

    /// Leases the oldest waiting call of a seat, or waits for one until `patience` has passed. A request with the key
    /// of an existing lease gets that lease.
    pub async fn lease(
        &self,
        board: &BoardId,
        worker: &WorkerName,
        lasts: Duration,
        patience: Duration,
        taker: LeaseHolder,
    ) -> Option<Lease> {
        let place = (board.clone(), worker.clone());
        let until = Instant::now() + patience;
        let waiting = Waiting { leases: self, new_call: self.new_call(&place), place };
        loop {
            let mut more = pin!(waiting.new_call.notified());
            // Registers for notifications before the check, so that no call is missed.
            more.as_mut().enable();
            if let Some(lease) = self.lease_now(&waiting.place, lasts, &taker) {
                return Some(lease);
            }
            timeout_at(until, more).await.ok()?;
        }
    }

    fn lease_now(&self, place: &Place, lasts: Duration, taker: &LeaseHolder) -> Option<Lease> {
        let seats = self.workers.lock();
        let calls = &seats.get(place)?.calls;
        taker.key.as_ref().and_then(|key| find_leased(calls, key)).or_else(|| {
            let waiting = calls.iter().find(|kept| kept.state.get() == LeaseState::Waiting)?;
            Some(waiting.lease_for(lasts, taker.clone()))
        })
    }

    /// Returns the unexpired lease with this `key`.
    pub fn find_by_key(&self, board: &BoardId, worker: &WorkerName, key: &str) -> Option<Lease> {
        find_leased(&self.workers.lock().get(&(board.clone(), worker.clone()))?.calls, key)
    }

    /// Renews a lease from now on, and assigns it to the process with this token. Returns none if it has expired.
    pub fn renew(
        &self,
        board: &BoardId,
        worker: &WorkerName,
        invocation: InvocationId,
        attempt: u32,
        lasts: Duration,
        token: Option<i64>,
    ) -> Option<Lease> {
        let seats = self.workers.lock();
        let kept = seats.get(&(board.clone(), worker.clone()))?.find(invocation, attempt)?;
        match kept.state.get() {
            LeaseState::Leased { until, taker } if until > Instant::now() => {
                Some(kept.lease_for(lasts, LeaseHolder { api_token: token, ..taker }))
            }
            _ => None,
        }
    }

    /// Closes a call that the kernel has decided about.
    pub fn close(&self, board: &BoardId, worker: &WorkerName, invocation: InvocationId, attempt: u32) {
        let seats = self.workers.lock();
        let worker_calls = seats.get(&(board.clone(), worker.clone()));
        if let Some(kept) = worker_calls.and_then(|worker_calls| worker_calls.find(invocation, attempt)) {
            kept.state.set(LeaseState::Closed);
        }
    }

    /// Returns the numbers of the tokens that hold leases.
    pub fn holder_tokens(&self) -> BTreeSet<i64> {
        let seats = self.workers.lock();
        let calls = seats.values().flat_map(|worker_calls| &worker_calls.calls);
        calls.filter_map(|kept| kept.taker()?.api_token).collect()
    }

    /// Expires the leases of a token now: its holder can no longer answer, and other processes need not wait.
    pub fn expire_for_token(&self, token: i64) {
        let seats = self.workers.lock();
        let calls = seats.values().flat_map(|worker_calls| &worker_calls.calls);
        for (kept, taker) in calls.filter_map(|kept| Some((kept, kept.taker()?))) {
            if taker.api_token == Some(token) {
                kept.lease_for(Duration::ZERO, taker);
            }
        }
    }

    /// Returns the open calls of a board.
    pub fn open_calls(&self, board: &BoardId) -> Vec<OpenCall> {
        let seats = self.workers.lock();
        let now = Instant::now();
        let seats = seats.iter().filter(|((of, _), _)| of == board);
        let calls = seats.flat_map(|(_, worker_calls)| &worker_calls.calls).filter_map(|kept| {
            let lasts = match kept.state.get() {
                LeaseState::Waiting => None,
                LeaseState::Leased { until, .. } => Some(until.saturating_duration_since(now)),
                LeaseState::Closed => return None,
            };
            Some(OpenCall { call: Arc::clone(&kept.call), expires_in: lasts })
        });
        calls.collect()
    }

    fn new_call(&self, place: &Place) -> Arc<Notify> {
        Arc::clone(&self.workers.lock().entry(place.clone()).or_default().new_call)
    }

    /// Removes a seat without calls and without waiting processes.
    fn forget(seats: &mut BTreeMap<Place, WorkerCalls>, place: &Place) {
        if seats
            .get(place)
            .is_some_and(|worker_calls| worker_calls.calls.is_empty() && Arc::strong_count(&worker_calls.new_call) == 1)
        {
            seats.remove(place);
        }
    }
}

impl WorkerCalls {
    /// Adds a call, and notifies a waiting process. The call replaces an earlier attempt, which is over.
    fn add(&mut self, kept: PendingCall) {
        match self.calls.binary_search_by_key(&kept.call.invocation, |kept| kept.call.invocation) {
            Ok(at) => std::mem::replace(&mut self.calls[at], kept).state.set(LeaseState::Closed),
            Err(at) => {
                self.calls.reserve_exact(1);
                self.calls.insert(at, kept);
            }
        }
        self.new_call.notify_one();
    }

    fn find(&self, invocation: InvocationId, attempt: u32) -> Option<&PendingCall> {
        self.calls.iter().find(|kept| kept.is(invocation, attempt))
    }
}

impl CallState {
    fn get(&self) -> LeaseState {
        self.state.lock().clone()
    }

    fn set(&self, state: LeaseState) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }
}

fn find_leased(calls: &[PendingCall], key: &str) -> Option<Lease> {
    calls.iter().find_map(|kept| match kept.state.get() {
        LeaseState::Leased { until, taker } if taker.key.as_deref() == Some(key) && until > Instant::now() => {
            Some(kept.lease(until))
        }
        _ => None,
    })
}

impl PendingCall {
    fn is(&self, invocation: InvocationId, attempt: u32) -> bool {
        (self.call.invocation, self.call.attempt) == (invocation, attempt)
    }

    fn taker(&self) -> Option<LeaseHolder> {
        match self.state.get() {
            LeaseState::Leased { taker, .. } => Some(taker),
            LeaseState::Waiting | LeaseState::Closed => None,
        }
    }

    fn lease_for(&self, lasts: Duration, taker: LeaseHolder) -> Lease {
        let until = self.deadline.min(Instant::now() + lasts);
        self.state.set(LeaseState::Leased { until, taker });
        self.lease(until)
    }

    fn lease(&self, until: Instant) -> Lease {
        let now = Instant::now();
        Lease {
            call: Arc::clone(&self.call),
            expires_in: until.saturating_duration_since(now),
            time_left: self.deadline.saturating_duration_since(now),
        }
    }
}

/// Removes the call once no caller waits for its answer.
struct CallGuard<'a> {
    leases: &'a Leases,
    place: Place,
    invocation: InvocationId,
    attempt: u32,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let mut seats = self.leases.workers.lock();
        if let Some(worker_calls) = seats.get_mut(&self.place) {
            worker_calls.calls.retain(|kept| !kept.is(self.invocation, self.attempt));
        }
        Leases::forget(&mut seats, &self.place);
    }
}

/// Process that waits for a call of a seat.
struct Waiting<'a> {
    leases: &'a Leases,
    place: Place,
    new_call: Arc<Notify>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut seats = self.leases.workers.lock();
        // Releases its own share first, so that it does not count.
        self.new_call = Arc::default();
        Leases::forget(&mut seats, &self.place);
    }
}
