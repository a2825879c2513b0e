//! Processor-time quota for callers that are not administrators: together they get a share of the machine.
//!
//! Work is measured by the clock of its thread: polls of a request, the work of a board for it, journal reads,
//! connection I/O. Used time becomes debt, which is paid off at the rate of the share. While there is debt, requests of
//! these callers wait; a caller with little recent use starts to wait later. Connections have half of the share and
//! wait for that alone, so that `/healthz` never waits for requests.
//!
//! [`DebtAccount`] decides on plain data, with the time as an argument; [`ProcessorQuota`] holds the current debt.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Body;
use futures_util::{StreamExt as _, stream};
use http_body::Body as _;
use parking_lot::Mutex;
use patchboard_runtime::cpu_time::{self, thread_time};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use super::rate_key::{CALLERS_MAX, RateKey};

/// Debt allowed before callers wait. They then wait until it is paid off, so that waiters are polled seldom.
const BURST: Duration = Duration::from_millis(100);

/// Debt allowed for connections.
const BURST_OF_CONNECTIONS: Duration = Duration::from_millis(25);

/// Debt allowed for callers with little recent use.
const LENIENCE: Duration = Duration::from_secs(5);

/// Divisor of the share: use of up to a quarter of it counts as little.
const LIGHT_USE_DIVISOR: u32 = 4;

/// Fraction of the share assigned to measured work. The rest covers group commits, snapshots, and the operating
/// system's work for connections.
const MEASURED: f64 = 0.75;

/// Maximum debt of connections, and so the longest wait of one. Debt beyond it is dropped here, and kept in the account
/// of all work.
const CONNECTIONS_OWE_MAX: Duration = Duration::from_millis(60);

/// Maximum debt of all work, longer than any request may take.
const OWED_MAX: Duration = Duration::from_secs(600);

/// Concurrent journal reads of these callers.
const READS_AT_ONCE: usize = 2;

/// Processor-time debt of callers, as the time at which it is paid off.
struct DebtAccount {
    /// Seconds to pay off one second of processor time.
    pace: f64,
    /// Debt allowed before callers wait, and maximum debt.
    burst: Duration,
    most: Duration,
    paid_at: Duration,
    /// Pay-off time per caller, at a quarter of the rate.
    own: HashMap<RateKey, Duration>,
}

impl DebtAccount {
    fn new(pace: f64, burst: Duration, most: Duration) -> Self {
        Self { pace, burst, most, paid_at: Duration::ZERO, own: HashMap::new() }
    }

    fn charge(&mut self, by: RateKey, used: Duration, now: Duration) {
        let owed = used.mul_f64(self.pace);
        self.paid_at = (self.paid_at.max(now) + owed).min(now.saturating_add(self.most));
        if !self.own.contains_key(&by) && self.own.len() >= CALLERS_MAX {
            // Evicts the half with the least debt.
            let mut all: Vec<Duration> = self.own.values().copied().collect();
            let (_, median, _) = all.select_nth_unstable(CALLERS_MAX / 2);
            let median = *median;
            self.own.retain(|_, paid_at| *paid_at > median);
        }
        let own = self.own.entry(by).or_default();
        *own = ((*own).max(now) + owed * LIGHT_USE_DIVISOR).min(now.saturating_add(self.most * LIGHT_USE_DIVISOR));
    }

    /// Returns the time that a caller must wait; `None` if it may continue.
    fn wait(&self, by: RateKey, now: Duration) -> Option<Duration> {
        let owed = Some(self.paid_at.saturating_sub(now)).filter(|owed| *owed > self.burst)?;
        let own = self.own.get(&by).map_or(Duration::ZERO, |paid_at| paid_at.saturating_sub(now));
        if own > self.burst {
            return Some(owed.min(own));
        }
        let wait = owed.saturating_sub(LENIENCE);
        (!wait.is_zero()).then(|| wait.max(self.burst))
    }
}

/// Processor-time debt of callers that are not administrators.
pub(crate) struct ProcessorQuota {
    since: Instant,
    /// All work, connections included.
    all: Mutex<DebtAccount>,
    /// Connections only.
    connections: Mutex<DebtAccount>,
    reads: Arc<Semaphore>,
}

impl ProcessorQuota {
    pub(crate) fn new(percent: u32) -> Self {
        let (all, connections) = paces(percent);
        Self {
            since: Instant::now(),
            all: Mutex::new(DebtAccount::new(all, BURST, OWED_MAX)),
            connections: Mutex::new(DebtAccount::new(connections, BURST_OF_CONNECTIONS, CONNECTIONS_OWE_MAX)),
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
        }
    }

    /// Replaces the share and keeps the debt.
    pub(crate) fn replace(&self, percent: u32) {
        (self.all.lock().pace, self.connections.lock().pace) = paces(percent);
    }

    fn wait(&self, account: &Mutex<DebtAccount>, by: RateKey) -> Option<Duration> {
        account.lock().wait(by, self.since.elapsed())
    }
}

/// Returns the seconds to pay off one second, for the share and for the connections' half of it. A share of 100% is
/// unlimited.
fn paces(percent: u32) -> (f64, f64) {
    if percent >= 100 {
        return (0.0, 0.0);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let all = 100.0 / (MEASURED * f64::from(percent) * cores as f64);
    (all, 2.0 * all)
}

#[derive(Clone)]
pub(crate) struct MeteredCaller {
    shares: Arc<ProcessorQuota>,
    by: RateKey,
}

tokio::task_local! {
    static PAYER: MeteredCaller;
}

impl MeteredCaller {
    pub(crate) fn new(shares: Arc<ProcessorQuota>, by: RateKey) -> Self {
        Self { shares, by }
    }

    /// Returns the payer of the current task; `None` if it is not measured.
    pub(crate) fn current() -> Option<Self> {
        PAYER.try_with(Clone::clone).ok()
    }

    pub(crate) async fn wait_turn(&self) {
        while let Some(wait) = self.shares.wait(&self.shares.all, self.by) {
            tokio::time::sleep(wait).await;
        }
    }

    /// Waits for a journal-read permit, then checks the debt that accrued during the wait.
    pub(crate) async fn read(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            self.wait_turn().await;
            let place = Arc::clone(&self.shares.reads).acquire_owned().await.ok()?;
            if self.shares.wait(&self.shares.all, self.by).is_none() {
                return Some(place);
            }
        }
    }

    pub(crate) fn run_charged<T>(&self, task: impl FnOnce() -> T) -> T {
        self.run_charged_unless(|_| false, task)
    }

    /// Runs work and charges it, unless `is_free` accepts its result.
    pub(crate) fn run_charged_unless<T>(&self, is_free: impl FnOnce(&T) -> bool, task: impl FnOnce() -> T) -> T {
        let (done, used) = cpu_time::metered(task);
        if !is_free(&done) {
            self.shares.all.lock().charge(self.by, used, self.shares.since.elapsed());
        }
        done
    }

    /// Runs a request, paced by the quota of its caller.
    pub(crate) async fn run_paced<F: Future>(self, request: F) -> F::Output {
        let payer = self.clone();
        PAYER.scope(self, Paced { request: Box::pin(request), payer, wait: None }).await
    }

    /// Paces the rest of a streamed response body.
    pub(crate) fn paced_body(self, body: Body) -> Body {
        if body.size_hint().exact().is_some() {
            return body;
        }
        let parts = stream::unfold((self, body.into_data_stream()), |(payer, mut parts)| async move {
            let part = payer.clone().run_paced(parts.next()).await?;
            Some((part, (payer, parts)))
        });
        Body::from_stream(parts)
    }
}

/// Request paced by the quota of its caller.
struct Paced<F> {
    request: Pin<Box<F>>,
    payer: MeteredCaller,
    wait: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for Paced<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let shares = &this.payer.shares;
        ready!(poll_wait(&mut this.wait, context, || shares.wait(&shares.all, this.payer.by)));
        this.payer.run_charged(|| this.request.as_mut().poll(context))
    }
}

/// Resolves once there is nothing to wait for.
fn poll_wait(
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
    /// Measured connection served by this thread, and the thread time at which that began. These threads serve
    /// connections only.
    static SERVED: RefCell<Option<(Arc<MeteredConnection>, Duration)>> = const { RefCell::new(None) };
}

pub(crate) struct MeteredConnection {
    shares: Arc<ProcessorQuota>,
    from: RateKey,
    /// True while its latest request had an administrator's token.
    is_free: AtomicBool,
}

impl MeteredConnection {
    pub(crate) fn new(shares: Arc<ProcessorQuota>, from: IpAddr) -> Arc<Self> {
        Arc::new(Self { shares, from: RateKey::Address(from), is_free: AtomicBool::new(false) })
    }

    /// Records whether its latest request came from an administrator.
    pub(crate) fn set_administrator(&self, is_administrator: bool) {
        self.is_free.store(is_administrator, Ordering::Relaxed);
    }

    /// Starts serving the connection on this thread, and charges the time since the last call to the connection served
    /// before. An administrator's connection is not measured: reading the clock of the thread is a system call.
    pub(crate) fn start_serving(self: &Arc<Self>) {
        let is_measured = !self.is_free.load(Ordering::Relaxed);
        SERVED.with_borrow_mut(|served| {
            if served.is_none() && !is_measured {
                return;
            }
            let now = thread_time();
            let before = std::mem::replace(served, is_measured.then(|| (Arc::clone(self), now)));
            let Some((line, since)) = before else { return };
            if !line.is_free.load(Ordering::Relaxed) {
                let (used, at) = (now.saturating_sub(since), line.shares.since.elapsed());
                line.shares.all.lock().charge(line.from, used, at);
                line.shares.connections.lock().charge(line.from, used, at);
            }
        });
    }

    /// Returns the delay before the next read; `None` if it may be read now.
    pub(crate) fn wait(&self) -> Option<Duration> {
        if self.is_free.load(Ordering::Relaxed) { None } else { self.shares.wait(&self.shares.connections, self.from) }
    }
}

#[cfg(test)]
mod tests;
