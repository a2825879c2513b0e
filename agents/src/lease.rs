//! Calls to seats of kind `remote`, kept until a process outside leases and answers them.
//!
//! Owns who may work on which attempt and until when. The answer does not pass through here: whoever holds a lease puts
//! its proposal to the kernel in the name of the attempt, and the kernel decides whether it still counts. Here the call is
//! closed after that. A lease that is not renewed ends the attempt as `lease_expired`; the next attempt, which has another
//! number, may be leased by somebody else, so that what the first one sends late is known as late.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, InvocationId, WorkerName};
use patchboard_runtime::agent::{Answer, Call};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::failure;

/// The shortest and the longest time of a lease.
pub const LEASE_SECONDS: std::ops::RangeInclusive<u64> = 1..=3600;

/// The calls to remote seats that are under way. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    seats: Arc<Mutex<BTreeMap<Place, Seat>>>,
}

/// A seat on a board.
type Place = (BoardId, WorkerName);

#[derive(Debug, Default)]
struct Seat {
    calls: BTreeMap<InvocationId, Kept>,
    /// Tells one of those that wait for a call that there is one.
    more: Arc<Notify>,
}

/// A call that nobody has answered yet.
#[derive(Debug)]
struct Kept {
    call: Arc<Call>,
    /// When the kernel gives the attempt up, whoever holds it.
    deadline: Instant,
    standing: watch::Sender<Standing>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Standing {
    Waiting,
    Leased { until: Instant, taker: Taker },
    Closed,
}

/// The process that leases a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Taker {
    /// The name under which the process finds its lease again.
    pub key: Option<String>,
    /// The number of the token that the process has; the lease ends with the token.
    pub token: Option<i64>,
}

/// The right to answer an attempt, for a time.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The attempt.
    pub call: Arc<Call>,
    /// How long it lasts unless it is renewed.
    pub lasts: Duration,
    /// How long the attempt itself lasts.
    pub left: Duration,
}

/// A call under way, as those see it who oversee a board.
#[derive(Clone, Debug)]
pub struct UnderWay {
    /// The attempt.
    pub call: Arc<Call>,
    /// How long it is leased unless that is renewed; none while it waits for somebody.
    pub lasts: Option<Duration>,
}

impl Leases {
    /// Keeps a call until it is closed, or a lease of it expires.
    pub(crate) async fn call(&self, call: &Call) -> Answer {
        let (_keep, mut standing) = self.keep(call);
        loop {
            let now = standing.borrow_and_update().clone();
            let expiry = async {
                match now {
                    Standing::Waiting => pending().await,
                    Standing::Leased { until, .. } => sleep_until(until).await,
                    Standing::Closed => {}
                }
            };
            tokio::select! {
                () = expiry => break,
                changed = standing.changed() => if changed.is_err() { break },
            }
        }
        // Of a call that was closed nobody waits for an answer any more.
        Err(failure(FailureCode::LeaseExpired, "the process that leased the call has not renewed the lease"))
    }

    fn keep(&self, call: &Call) -> (Keep<'_>, watch::Receiver<Standing>) {
        let (sender, standing) = watch::channel(Standing::Waiting);
        let place = (call.board.clone(), call.worker.clone());
        let kept = Kept { call: Arc::new(call.clone()), deadline: Instant::now() + call.timeout, standing: sender };
        let mut seats = self.lock();
        let seat = seats.entry(place.clone()).or_default();
        // An earlier attempt that is still here is over.
        seat.calls.insert(call.invocation, kept);
        seat.more.notify_one();
        drop(seats);
        (Keep { leases: self, place, invocation: call.invocation, attempt: call.attempt }, standing)
    }

    /// Leases the oldest call of a seat that waits, or waits for one until `patience` has passed. Whoever asks again with
    /// the same key gets the lease that it has already.
    pub async fn lease(
        &self,
        board: &BoardId,
        worker: &WorkerName,
        lasts: Duration,
        patience: Duration,
        taker: Taker,
    ) -> Option<Lease> {
        let place = (board.clone(), worker.clone());
        let until = Instant::now() + patience;
        let waiting = Waiting { leases: self, more: self.more(&place), place };
        loop {
            let mut more = pin!(waiting.more.notified());
            // From here on it hears of every call, also of one that comes before it waits.
            more.as_mut().enable();
            if let Some(lease) = self.lease_now(&waiting.place, lasts, &taker) {
                return Some(lease);
            }
            timeout_at(until, more).await.ok()?;
        }
    }

    fn lease_now(&self, place: &Place, lasts: Duration, taker: &Taker) -> Option<Lease> {
        let seats = self.lock();
        let calls = &seats.get(place)?.calls;
        taker.key.as_ref().and_then(|key| had(calls, key)).or_else(|| {
            let waiting = calls.values().find(|kept| *kept.standing.borrow() == Standing::Waiting)?;
            Some(waiting.lease_for(lasts, taker.clone()))
        })
    }

    /// The lease that somebody has got with this `key`, if it is not over.
    pub fn held(&self, board: &BoardId, worker: &WorkerName, key: &str) -> Option<Lease> {
        had(&self.lock().get(&(board.clone(), worker.clone()))?.calls, key)
    }

    /// Lets a lease last from now on, as the lease of the process that has this token; none if it is over.
    pub fn renew(
        &self,
        board: &BoardId,
        worker: &WorkerName,
        invocation: InvocationId,
        attempt: u32,
        lasts: Duration,
        token: Option<i64>,
    ) -> Option<Lease> {
        let seats = self.lock();
        let kept = seats.get(&(board.clone(), worker.clone()))?.calls.get(&invocation)?;
        let standing = kept.standing.borrow().clone();
        match standing {
            Standing::Leased { until, taker } if kept.call.attempt == attempt && until > Instant::now() => {
                Some(kept.lease_for(lasts, Taker { token, ..taker }))
            }
            _ => None,
        }
    }

    /// Ends a call that the kernel has decided about.
    pub fn close(&self, board: &BoardId, worker: &WorkerName, invocation: InvocationId, attempt: u32) {
        let seats = self.lock();
        let kept = seats.get(&(board.clone(), worker.clone())).and_then(|seat| seat.calls.get(&invocation));
        if let Some(kept) = kept.filter(|kept| kept.call.attempt == attempt) {
            kept.standing.send_replace(Standing::Closed);
        }
    }

    /// Returns the numbers of the tokens that hold leases.
    pub fn tokens(&self) -> BTreeSet<i64> {
        let seats = self.lock();
        let calls = seats.values().flat_map(|seat| seat.calls.values());
        calls.filter_map(|kept| kept.taker()?.token).collect()
    }

    /// Lets the leases of a token expire now: its holder may answer nothing any more, and others need not wait.
    pub fn end_with_token(&self, token: i64) {
        let seats = self.lock();
        let calls = seats.values().flat_map(|seat| seat.calls.values());
        for (kept, taker) in calls.filter_map(|kept| Some((kept, kept.taker()?))) {
            if taker.token == Some(token) {
                kept.lease_for(Duration::ZERO, taker);
            }
        }
    }

    /// The calls of a board that are under way.
    pub fn of(&self, board: &BoardId) -> Vec<UnderWay> {
        let seats = self.lock();
        let now = Instant::now();
        let seats = seats.iter().filter(|((of, _), _)| of == board);
        let calls = seats.flat_map(|(_, seat)| seat.calls.values()).filter_map(|kept| {
            let lasts = match &*kept.standing.borrow() {
                Standing::Waiting => None,
                Standing::Leased { until, .. } => Some(until.saturating_duration_since(now)),
                Standing::Closed => return None,
            };
            Some(UnderWay { call: Arc::clone(&kept.call), lasts })
        });
        calls.collect()
    }

    fn more(&self, place: &Place) -> Arc<Notify> {
        Arc::clone(&self.lock().entry(place.clone()).or_default().more)
    }

    /// Forgets a seat that has no calls and that nobody waits at.
    fn forget(seats: &mut BTreeMap<Place, Seat>, place: &Place) {
        if seats.get(place).is_some_and(|seat| seat.calls.is_empty() && Arc::strong_count(&seat.more) == 1) {
            seats.remove(place);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Place, Seat>> {
        // Nothing is done while it is held that could leave it half done.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn had(calls: &BTreeMap<InvocationId, Kept>, key: &str) -> Option<Lease> {
    calls.values().find_map(|kept| match &*kept.standing.borrow() {
        Standing::Leased { until, taker } if taker.key.as_deref() == Some(key) && *until > Instant::now() => {
            Some(kept.lease(*until))
        }
        _ => None,
    })
}

impl Kept {
    fn taker(&self) -> Option<Taker> {
        match &*self.standing.borrow() {
            Standing::Leased { taker, .. } => Some(taker.clone()),
            Standing::Waiting | Standing::Closed => None,
        }
    }

    fn lease_for(&self, lasts: Duration, taker: Taker) -> Lease {
        let until = self.deadline.min(Instant::now() + lasts);
        self.standing.send_replace(Standing::Leased { until, taker });
        self.lease(until)
    }

    fn lease(&self, until: Instant) -> Lease {
        let now = Instant::now();
        Lease {
            call: Arc::clone(&self.call),
            lasts: until.saturating_duration_since(now),
            left: self.deadline.saturating_duration_since(now),
        }
    }
}

/// Takes the call out when nobody waits for its answer any more.
struct Keep<'a> {
    leases: &'a Leases,
    place: Place,
    invocation: InvocationId,
    attempt: u32,
}

impl Drop for Keep<'_> {
    fn drop(&mut self) {
        let mut seats = self.leases.lock();
        if let Some(seat) = seats.get_mut(&self.place)
            && seat.calls.get(&self.invocation).is_some_and(|kept| kept.call.attempt == self.attempt)
        {
            seat.calls.remove(&self.invocation);
        }
        Leases::forget(&mut seats, &self.place);
    }
}

/// Somebody who waits for a call of a seat.
struct Waiting<'a> {
    leases: &'a Leases,
    place: Place,
    more: Arc<Notify>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut seats = self.leases.lock();
        // Its own share is given up first, so that it does not count.
        self.more = Arc::default();
        Leases::forget(&mut seats, &self.place);
    }
}
