//! Processor time of callers who may not administer the daemon: all of them together have a share of the machine's.
//!
//! Work is measured by the clock of the thread that does it: a poll of a request, the work of a board for it, a question to
//! the journal, the reading and writing of a connection. What was used is owed, and paid off at the rate of the share. While
//! it is owed, the requests of those callers wait. A caller who has used little lately waits later than the others. Connections
//! have half of the share, and wait for that alone, so that `/healthz` waits for no request.
//!
//! [`Account`] decides, as plain data with the time as an argument; [`Shares`] holds what is owed now.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Body;
use futures_util::{StreamExt as _, stream};
use http_body::Body as _;
use patchboard_runtime::work::{self, thread_time};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use super::limits::{CALLERS_MAX, Counted};

/// Time that may be owed before anything waits. Then it waits until nothing is owed, so that those who wait are looked at seldom.
const BURST: Duration = Duration::from_millis(100);

/// The same for connections.
const BURST_OF_CONNECTIONS: Duration = Duration::from_millis(25);

/// The same for callers who have used little lately.
const LENIENCE: Duration = Duration::from_secs(5);

/// The part of the share up to which the use of one caller is little.
const LITTLE: u32 = 4;

/// The part of the share that is given out for work that is measured. The rest is for writes of several boards together,
/// snapshots, and the system's work for a connection.
const MEASURED: f64 = 0.75;

/// The most time that connections owe, and so the longest that one waits: what a round of many of them takes beyond that is
/// forgotten, and remembered for all.
const CONNECTIONS_OWE_MAX: Duration = Duration::from_millis(60);

/// The most time that is owed for all: longer than any request may take.
const OWED_MAX: Duration = Duration::from_secs(600);

/// Questions of these callers to the journal that are answered at the same time.
const READS_AT_ONCE: usize = 2;

/// Use of a rate by callers, and the time at which it is paid off.
struct Account {
    /// Seconds in which one second of processor time is paid off.
    pace: f64,
    /// The most that is owed before anything waits, and at all.
    burst: Duration,
    most: Duration,
    paid_at: Duration,
    /// The same for each caller, who pays off a quarter in that time.
    own: HashMap<Counted, Duration>,
}

impl Account {
    fn new(pace: f64, burst: Duration, most: Duration) -> Self {
        Self { pace, burst, most, paid_at: Duration::ZERO, own: HashMap::new() }
    }

    /// Adds what a caller has used.
    fn charge(&mut self, by: Counted, used: Duration, now: Duration) {
        let owed = used.mul_f64(self.pace);
        self.paid_at = (self.paid_at.max(now) + owed).min(now.saturating_add(self.most));
        if !self.own.contains_key(&by) && self.own.len() >= CALLERS_MAX {
            // Those that owe least are those that are forgotten.
            let mut all: Vec<Duration> = self.own.values().copied().collect();
            let (_, median, _) = all.select_nth_unstable(CALLERS_MAX / 2);
            let median = *median;
            self.own.retain(|_, paid_at| *paid_at > median);
        }
        let own = self.own.entry(by).or_default();
        *own = ((*own).max(now) + owed * LITTLE).min(now.saturating_add(self.most * LITTLE));
    }

    /// Returns how long a caller waits; none if it may go on.
    fn wait(&self, by: Counted, now: Duration) -> Option<Duration> {
        let owed = Some(self.paid_at.saturating_sub(now)).filter(|owed| *owed > self.burst)?;
        let own = self.own.get(&by).map_or(Duration::ZERO, |paid_at| paid_at.saturating_sub(now));
        if own > self.burst {
            return Some(owed.min(own));
        }
        let wait = owed.saturating_sub(LENIENCE);
        (!wait.is_zero()).then(|| wait.max(self.burst))
    }
}

/// Processor time that is owed by callers who may not administer.
pub(crate) struct Shares {
    since: Instant,
    /// For all work, that of connections included.
    all: Mutex<Account>,
    /// For connections alone.
    connections: Mutex<Account>,
    reads: Arc<Semaphore>,
}

impl Shares {
    pub(crate) fn new(percent: u32) -> Self {
        let (all, connections) = paces(percent);
        Self {
            since: Instant::now(),
            all: Mutex::new(Account::new(all, BURST, OWED_MAX)),
            connections: Mutex::new(Account::new(connections, BURST_OF_CONNECTIONS, CONNECTIONS_OWE_MAX)),
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
        }
    }

    /// Puts another share in place; what is owed stays.
    pub(crate) fn replace(&self, percent: u32) {
        (locked(&self.all).pace, locked(&self.connections).pace) = paces(percent);
    }

    fn wait(&self, account: &Mutex<Account>, by: Counted) -> Option<Duration> {
        locked(account).wait(by, self.since.elapsed())
    }
}

/// Seconds in which a second is paid off, of a share and of the half of it that connections have. All of the machine is no
/// limit.
fn paces(percent: u32) -> (f64, f64) {
    if percent >= 100 {
        return (0.0, 0.0);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let all = 100.0 / (MEASURED * f64::from(percent) * cores as f64);
    (all, 2.0 * all)
}

fn locked<T>(owed: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in between leaves it off by one charge.
    owed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A caller whose work is measured.
#[derive(Clone)]
pub(crate) struct Payer {
    shares: Arc<Shares>,
    by: Counted,
}

tokio::task_local! {
    /// The caller of the request that a task works on.
    static PAYER: Payer;
}

impl Payer {
    pub(crate) fn new(shares: Arc<Shares>, by: Counted) -> Self {
        Self { shares, by }
    }

    /// Returns the payer of what the current task does; none if it is not measured.
    pub(crate) fn current() -> Option<Self> {
        PAYER.try_with(Clone::clone).ok()
    }

    /// Waits until the caller may go on.
    pub(crate) async fn turn(&self) {
        while let Some(wait) = self.shares.wait(&self.shares.all, self.by) {
            tokio::time::sleep(wait).await;
        }
    }

    /// Waits for a place among the questions of such callers. What was used while it waited is owed by then.
    pub(crate) async fn read(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            self.turn().await;
            let place = Arc::clone(&self.shares.reads).acquire_owned().await.ok()?;
            if self.shares.wait(&self.shares.all, self.by).is_none() {
                return Some(place);
            }
        }
    }

    /// Does work and charges it.
    pub(crate) fn charged<T>(&self, task: impl FnOnce() -> T) -> T {
        self.charged_unless(|_| false, task)
    }

    /// Does work, and charges it unless what came of it says that the caller pays for nothing.
    pub(crate) fn charged_unless<T>(&self, is_free: impl FnOnce(&T) -> bool, task: impl FnOnce() -> T) -> T {
        work::taken();
        let began = thread_time();
        let done = task();
        if !is_free(&done) {
            let used = thread_time().saturating_sub(began) + work::taken();
            locked(&self.shares.all).charge(self.by, used, self.shares.since.elapsed());
        }
        done
    }

    /// Works on a request as fast as its caller may.
    pub(crate) async fn paced<F: Future>(self, request: F) -> F::Output {
        let payer = self.clone();
        PAYER.scope(self, Paced { request: Box::pin(request), payer, wait: None }).await
    }
}

impl Payer {
    /// Makes what is still to come of an answer as fast as the caller may.
    pub(crate) fn paced_body(self, body: Body) -> Body {
        if body.size_hint().exact().is_some() {
            return body;
        }
        let parts = stream::unfold((self, body.into_data_stream()), |(payer, mut parts)| async move {
            let part = payer.clone().paced(parts.next()).await?;
            Some((part, (payer, parts)))
        });
        Body::from_stream(parts)
    }
}

/// A request that goes on when its caller may.
struct Paced<F> {
    request: Pin<Box<F>>,
    payer: Payer,
    wait: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for Paced<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let shares = &this.payer.shares;
        ready!(waited(&mut this.wait, context, || shares.wait(&shares.all, this.payer.by)));
        this.payer.charged(|| this.request.as_mut().poll(context))
    }
}

/// Ready once there is nothing to wait for.
fn waited(
    slot: &mut Option<Pin<Box<Sleep>>>,
    context: &mut Context<'_>,
    wait: impl Fn() -> Option<Duration>,
) -> Poll<()> {
    loop {
        if let Some(sleep) = slot {
            ready!(sleep.as_mut().poll(context));
            *slot = None;
        }
        match wait() {
            Some(wait) => *slot = Some(Box::pin(tokio::time::sleep(wait))),
            None => return Poll::Ready(()),
        }
    }
}

thread_local! {
    /// The connection that this thread has served since a moment of its clock. Threads that serve do nothing else.
    static SERVED: RefCell<Option<(Arc<Line>, Duration)>> = const { RefCell::new(None) };
}

/// A connection, as far as its work is measured.
pub(crate) struct Line {
    shares: Arc<Shares>,
    from: Counted,
    /// True once it has brought the token of an administrator.
    is_free: AtomicBool,
}

impl Line {
    pub(crate) fn new(shares: Arc<Shares>, from: IpAddr) -> Arc<Self> {
        Arc::new(Self { shares, from: Counted::Address(from), is_free: AtomicBool::new(false) })
    }

    /// Notes whose request came last on it.
    pub(crate) fn is_of(&self, is_administrator: bool) {
        self.is_free.store(is_administrator, Ordering::Relaxed);
    }

    /// Begins to serve it on this thread, and charges what the thread has done before to the connection that it served.
    pub(crate) fn served(self: &Arc<Self>) {
        let now = thread_time();
        let before = SERVED.with_borrow_mut(|served| served.replace((Arc::clone(self), now)));
        let Some((line, since)) = before else { return };
        if !line.is_free.load(Ordering::Relaxed) {
            let (used, at) = (now.saturating_sub(since), line.shares.since.elapsed());
            locked(&line.shares.all).charge(line.from, used, at);
            locked(&line.shares.connections).charge(line.from, used, at);
        }
    }

    /// Returns how long it waits before it is read from; none if it may be.
    pub(crate) fn wait(&self) -> Option<Duration> {
        if self.is_free.load(Ordering::Relaxed) {
            return None;
        }
        self.shares.wait(&self.shares.connections, self.from)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use patchboard_faults::random::Random;

    use super::{Account, BURST, LENIENCE, OWED_MAX};
    use crate::serve::limits::Counted;

    fn caller(number: u8) -> Counted {
        Counted::Address([10, 0, 0, number].into())
    }

    #[test]
    fn callers_have_no_more_than_their_share() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut account = Account::new(5.0, BURST, OWED_MAX);
            let (mut now, mut used) = (Duration::ZERO, Duration::ZERO);
            while now < Duration::from_secs(1000) {
                let by = caller(u8::try_from(random.below(4)).expect("few"));
                match account.wait(by, now) {
                    Some(wait) => now += wait,
                    None => {
                        let work = Duration::from_millis(1 + random.below(400));
                        account.charge(by, work, now);
                        used += work;
                        now += work;
                    }
                }
            }
            let share = used.as_secs_f64() / now.as_secs_f64();
            assert!((0.18..=0.21).contains(&share), "seed {seed}: {share}");
        }
    }

    #[test]
    fn a_caller_who_uses_little_does_not_wait_for_those_who_use_much() {
        let mut account = Account::new(5.0, BURST, OWED_MAX);
        let second = Duration::from_secs(1);
        account.charge(caller(1), second.mul_f64(0.5), second);
        assert!(account.wait(caller(1), second) > Some(second), "2.5 s are owed");
        assert_eq!(account.wait(caller(2), second), None);
        // Callers who all use little wait all the same.
        for number in 10..200 {
            account.charge(caller(number), Duration::from_millis(10), second);
        }
        assert!(account.wait(caller(2), second) > Some(second));
        assert_eq!(account.wait(caller(1), second + LENIENCE * 3), None);
    }

    #[test]
    fn what_is_owed_is_paid_off() {
        let mut account = Account::new(5.0, BURST, OWED_MAX);
        account.charge(caller(1), Duration::from_secs(2), Duration::ZERO);
        let wait = account.wait(caller(1), Duration::ZERO).expect("it waits");
        assert_eq!(wait, Duration::from_secs(10));
        assert_eq!(account.wait(caller(1), wait), None);
        let mut free = Account::new(0.0, BURST, OWED_MAX);
        free.charge(caller(1), Duration::from_secs(2), Duration::ZERO);
        assert_eq!(free.wait(caller(1), Duration::ZERO), None);
    }
}
