//! Admission of calls to models: one bulkhead per endpoint and model, shared by all boards of a process.
//!
//! A call asks [`Gate::admit`] before it is sent. The gate answers now or later, and the [`Permit`] reports back: bytes
//! came, or the provider did not take the request. While a model is away, one call probes and the others wait, queued
//! per board and served in turns; afterwards the calls in flight double from one. Rate limits are kept by the
//! operator's numbers, and after a rejection by a pace that the provider sustains.
//!
//! The decisions are in `core` and below, pure and without a clock. This file owns the lock, the clock and the timer:
//! one for the whole gate, running only while requests wait.

mod core;
mod model;
mod pace;
mod queue;
mod quota;
mod route;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::id::BoardId;
use tokio::sync::{Notify, broadcast, oneshot};
use tokio::time::{Instant, sleep_until};

use self::core::{AdmittedCall, Core, Jitter};
use self::types::Ticket;
pub use self::types::{
    Availability, BoardOutage, Endpoint, LimitWait, Limits, ModelKey, ModelState, Outage, RejectionOutcome, Request,
    Transition,
};

/// Transitions that a slow subscriber may be behind before it misses the oldest.
const TRANSITIONS_MAX: usize = 256;

/// Gate in front of all models of a process. Clones share one state.
#[derive(Clone)]
pub struct Gate {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Notifies the timer task.
    changed: Arc<Notify>,
    transitions: broadcast::Sender<Transition>,
    begin: Instant,
}

struct State {
    core: Core,
    senders: BTreeMap<Ticket, oneshot::Sender<Permit>>,
    is_timer_running: bool,
    /// Time that the timer task sleeps until.
    timer_at: Option<Duration>,
}

/// Answer to a request for admission.
pub enum AdmitResult {
    /// The call may be sent.
    Now(Permit),
    /// The call waits for its turn.
    Later(PendingPermit),
}

/// Right to one call. The call is over when the permit is dropped.
#[must_use]
pub struct Permit {
    inner: Arc<Inner>,
    ticket: Ticket,
    endpoint: Arc<Endpoint>,
    position: usize,
}

/// Future of a permit. Dropping it cancels the request.
#[must_use]
pub struct PendingPermit {
    inner: Arc<Inner>,
    ticket: Ticket,
    permit: oneshot::Receiver<Permit>,
}

impl Gate {
    /// Builds a gate that knows no models yet.
    pub fn new() -> Self {
        Self::with_jitter(Box::new(random))
    }

    fn with_jitter(jitter: Jitter) -> Self {
        let state =
            State { core: Core::new(jitter), senders: BTreeMap::new(), is_timer_running: false, timer_at: None };
        let inner = Inner {
            state: Mutex::new(state),
            changed: Arc::new(Notify::new()),
            transitions: broadcast::Sender::new(TRANSITIONS_MAX),
            begin: Instant::now(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Asks for admission of one call. The answer is immediate if the model is available, no request waits for it and
    /// its limits allow one more call.
    pub fn admit(&self, request: Request) -> AdmitResult {
        let inner = &self.inner;
        let (own, waiting) = inner.change(|state, now| {
            let ticket = state.core.ask(now, request);
            let effects = state.core.take_effects();
            let (own, others): (Vec<_>, Vec<_>) =
                effects.admitted.into_iter().partition(|admitted| admitted.ticket == ticket);
            let waiting = own.is_empty().then(|| {
                let (sender, permit) = oneshot::channel();
                state.senders.insert(ticket, sender);
                PendingPermit { inner: Arc::clone(inner), ticket, permit }
            });
            ((own, waiting), others, effects.transitions)
        });
        match waiting {
            Some(waiting) => AdmitResult::Later(waiting),
            None => {
                let own = own.into_iter().next().expect("a request that does not wait is admitted");
                AdmitResult::Now(inner.permit(own))
            }
        }
    }

    /// Waits before a call that a provider deferred is retried. The call counts as waiting for its model.
    pub async fn wait(&self, key: ModelKey, time: Duration) {
        self.inner.event(|core, _| core.begin_wait(&key));
        let _deferred = Deferred { inner: Arc::clone(&self.inner), key };
        tokio::time::sleep(time).await;
    }

    /// Blocks admission until [`Gate::open`], for a time at most, so that resumed boards report first which models are
    /// away.
    pub fn shut(&self, time: Duration) {
        self.inner.event(|core, now| core.shut(now, time));
    }

    /// Resumes admission.
    pub fn open(&self) {
        self.inner.event(Core::open);
    }

    /// Closes a model for a while before its first call, as a journal demands after a restart.
    pub fn hold(&self, key: &ModelKey, reason: DeferralReason, wait: Duration) {
        self.inner.event(|core, now| core.hold(now, key, reason, wait));
    }

    /// Allows an immediate probe of every model that is away, because an operator reports that they are back.
    pub fn probe_unavailable(&self) {
        self.inner.event(Core::probe_unavailable);
    }

    /// Reports on every recently used model.
    pub fn state(&self) -> Vec<ModelState> {
        self.inner.event(Core::state)
    }

    /// Reports on the requests of a board that wait for models that are away; none if no request of it does.
    pub fn board_outage(&self, board: &BoardId) -> Option<BoardOutage> {
        self.inner.event(|core, now| core.board_outage(now, board))
    }

    /// Names the boards with requests that wait for models that are away.
    pub fn boards_waiting(&self) -> BTreeSet<BoardId> {
        self.inner.event(Core::boards_waiting)
    }

    /// Subscribes to outages and returns of models. A subscriber that falls behind misses the oldest ones.
    pub fn subscribe(&self) -> broadcast::Receiver<Transition> {
        self.inner.transitions.subscribe()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Permit {
    /// Returns the model that the call is to be sent to.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Returns the index of the model within the chain: 0 is the preferred one, `n` the fallback `n - 1`.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Reports that bytes of an answer came: the model works, even if the answer is bad.
    pub fn report_answer(&self) {
        self.inner.event(|core, now| core.on_answer(now, self.ticket));
    }

    /// Counts a further request of the call against the limits and the pace of its model.
    /// The error is the time until they leave room for it.
    pub fn charge_request(&self, tokens: u64) -> Result<(), LimitWait> {
        self.inner.event(|core, now| core.charge_request(now, self.ticket, tokens))
    }

    /// Reports that the provider answered by rejecting the request. Returns true if another model of the chain may
    /// take it.
    pub fn report_prompt_rejected(&self) -> bool {
        self.inner.event(|core, now| core.on_prompt_rejected(now, self.ticket))
    }

    /// Returns true if another model of the chain may take the request, now or without an operator's help.
    pub fn is_served_elsewhere(&self) -> bool {
        self.inner.event(|core, _| core.is_served_elsewhere(self.ticket))
    }

    /// Reports that the provider rejected the request for a reason that only an operator can fix. The model stays
    /// open.
    pub fn report_operator_error(&self, reason: DeferralReason) {
        self.inner.event(|core, now| core.on_operator_error(now, self.ticket, reason));
    }

    /// Reports that the provider did not take the request. A call that was answered before is charged.
    pub fn report_rejection(&self, rejection: Deferral) -> RejectionOutcome {
        self.inner.event(|core, now| core.on_rejection(now, self.ticket, &rejection))
    }
}

/// Wait of a deferred call; dropping it ends the wait.
struct Deferred {
    inner: Arc<Inner>,
    key: ModelKey,
}

impl Drop for Deferred {
    fn drop(&mut self) {
        self.inner.event(|core, _| core.end_wait(&self.key));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.inner.event(|core, now| core.on_finish(now, self.ticket));
    }
}

impl Future for PendingPermit {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        if let Poll::Ready(permit) = Pin::new(&mut self.permit).poll(context) {
            return Poll::Ready(permit.expect("the gate keeps the sender until it sends the permit"));
        }
        self.inner.ensure_timer();
        Poll::Pending
    }
}

impl Drop for PendingPermit {
    fn drop(&mut self) {
        // A permit that is on its way already is dropped with the receiver.
        self.inner.change(|state, now| {
            if state.senders.remove(&self.ticket).is_some() {
                state.core.cancel(now, self.ticket);
            }
            let effects = state.core.take_effects();
            ((), effects.admitted, effects.transitions)
        });
    }
}

impl Inner {
    fn permit(self: &Arc<Self>, AdmittedCall { ticket, endpoint, position }: AdmittedCall) -> Permit {
        Permit { inner: Arc::clone(self), ticket, endpoint, position }
    }

    /// Hands an event to the core and carries out its consequences.
    fn event<T>(self: &Arc<Self>, event: impl FnOnce(&mut Core, Duration) -> T) -> T {
        self.change(|state, now| {
            let value = event(&mut state.core, now);
            let effects = state.core.take_effects();
            (value, effects.admitted, effects.transitions)
        })
    }

    fn change<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut State, Duration) -> (T, Vec<AdmittedCall>, Vec<Transition>),
    ) -> T {
        let (value, deliveries) = {
            let mut state = self.state.lock();
            let now = self.begin.elapsed();
            let (value, admitted, transitions) = change(&mut state, now);
            let deliveries: Vec<_> = admitted
                .into_iter()
                .filter_map(|admitted| Some((state.senders.remove(&admitted.ticket)?, admitted)))
                .collect();
            // Sent under the lock, so that they arrive in order; sending does not block.
            for transition in transitions {
                // Fails only if there is no subscriber.
                drop(self.transitions.send(transition));
            }
            let wake_at = state.core.wake_at();
            let is_earlier = wake_at.is_some_and(|at| state.timer_at.is_none_or(|timer_at| at < timer_at));
            if state.is_timer_running && (is_earlier || !state.core.has_waiters()) {
                self.changed.notify_one();
            }
            (value, deliveries)
        };
        // A permit that finds no receiver is dropped, which takes the lock.
        for (sender, admitted) in deliveries {
            drop(sender.send(self.permit(admitted)));
        }
        value
    }

    fn ensure_timer(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if !state.is_timer_running {
            state.is_timer_running = true;
            state.timer_at = None;
            tokio::spawn(run_timer(TimerGuard(Arc::downgrade(self)), Arc::clone(&self.changed)));
        }
    }

    /// Runs the events that are due. Returns the time of the next call; none, and no timer, if no request waits.
    fn tick(self: &Arc<Self>) -> Option<Option<Instant>> {
        self.event(Core::advance);
        let mut state = self.state.lock();
        if !state.core.has_waiters() {
            state.is_timer_running = false;
            return None;
        }
        state.timer_at = state.core.wake_at();
        Some(state.timer_at.map(|at| self.begin + at))
    }
}

/// Marks the timer as stopped if its runtime ends before the gate does.
struct TimerGuard(Weak<Inner>);

impl Drop for TimerGuard {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.state.lock().is_timer_running = false;
        }
    }
}

async fn run_timer(mut guard: TimerGuard, changed: Arc<Notify>) {
    loop {
        let Some(inner) = guard.0.upgrade() else { return };
        let Some(wake_at) = inner.tick() else {
            // `tick` has marked the timer as stopped, and the next timer may run by now.
            guard.0 = Weak::new();
            return;
        };
        drop(inner);
        match wake_at {
            Some(at) => tokio::select! {
                () = sleep_until(at) => {}
                () = changed.notified() => {}
            },
            None => changed.notified().await,
        }
    }
}

fn random() -> f64 {
    // Without randomness there is no jitter; the gate still works.
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}
