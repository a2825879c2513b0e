//! Pure state machine of the gate: takes events with their time, and produces admissions and transitions.
//!
//! Time is an argument and jitter an injected function. Every operation ends by serving the queues as far as possible.
//! [`Core::wake_at`] returns the time by which [`Core::advance`] must be called if no other event arrives first.

mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::BoardId;

use super::model::{Call, Model, jittered};
use super::route::{Candidate, choose};
use super::types::{Endpoint, LimitWait, ModelKey, RejectionOutcome, Request, Ticket, Transition};

/// Interval at which idle models are evicted.
const SWEEP: Duration = Duration::from_secs(60);

/// Source of jitter: numbers from 0 to 1.
pub(super) type Jitter = Box<dyn FnMut() -> f64 + Send>;

/// Consequences of events, for the shell to carry out.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) admitted: Vec<AdmittedCall>,
    pub(super) transitions: Vec<Transition>,
}

#[derive(Debug)]
pub(super) struct AdmittedCall {
    pub(super) ticket: Ticket,
    pub(super) endpoint: Arc<Endpoint>,
    /// Index within the chain; 0 is the preferred model.
    pub(super) position: usize,
}

#[derive(Debug)]
struct Waiter {
    board: BoardId,
    chain: Vec<Arc<Endpoint>>,
    tokens: u64,
    prompt: Digest,
    /// Index in the chain of the model that it is queued for.
    position: usize,
    asked_at: Duration,
}

#[derive(Debug)]
struct InFlightCall {
    key: ModelKey,
    call: Call,
    chain: Vec<Arc<Endpoint>>,
}

impl Waiter {
    fn key(&self) -> &ModelKey {
        &self.chain[self.position].key
    }

    /// Time that the request waits for this model before it may move to a fallback.
    fn fallback_after(&self) -> Option<Duration> {
        (self.chain.len() > 1).then(|| self.chain[self.position].fallback_after)
    }
}

pub(super) struct Core {
    now: Duration,
    jitter: Jitter,
    next_ticket: u64,
    models: BTreeMap<ModelKey, Model>,
    waiters: BTreeMap<Ticket, Waiter>,
    /// Waiting requests that have fallbacks.
    movable: BTreeSet<Ticket>,
    calls: BTreeMap<Ticket, InFlightCall>,
    /// Calls deferred after a provider's rejection, which ask again later.
    deferred: BTreeMap<ModelKey, usize>,
    swept_at: Duration,
    /// Time until which no request is admitted.
    shut_until: Duration,
    effects: Effects,
}

impl Core {
    pub(super) fn new(jitter: Jitter) -> Self {
        Self {
            now: Duration::ZERO,
            jitter,
            next_ticket: 0,
            models: BTreeMap::new(),
            waiters: BTreeMap::new(),
            movable: BTreeSet::new(),
            calls: BTreeMap::new(),
            deferred: BTreeMap::new(),
            swept_at: Duration::ZERO,
            shut_until: Duration::ZERO,
            effects: Effects::default(),
        }
    }

    /// Requests admission. The ticket is admitted at once (see the effects) or queued.
    pub(super) fn ask(&mut self, now: Duration, request: Request) -> Ticket {
        self.advance(now);
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let Request { board, endpoint, mut fallbacks, tokens, prompt } = request;
        fallbacks.insert(0, endpoint);
        let mut waiter = Waiter { board, chain: fallbacks, tokens, prompt, position: 0, asked_at: self.now };
        waiter.position = self.route(&waiter);
        if waiter.chain.len() > 1 {
            self.movable.insert(ticket);
        }
        let key = waiter.key().clone();
        self.enqueue(ticket, &waiter);
        self.waiters.insert(ticket, waiter);
        self.serve(&key);
        ticket
    }

    /// Counts a call that will ask for admission later.
    pub(super) fn begin_wait(&mut self, key: &ModelKey) {
        *self.deferred.entry(key.clone()).or_default() += 1;
    }

    /// Ends the wait of a call, because it asks now or was dropped.
    pub(super) fn end_wait(&mut self, key: &ModelKey) {
        if let Some(count) = self.deferred.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.deferred.remove(key);
            }
        }
    }

    pub(super) fn cancel(&mut self, now: Duration, ticket: Ticket) {
        self.set_time(now);
        let Some(waiter) = self.waiters.remove(&ticket) else { return };
        self.movable.remove(&ticket);
        if let Some(model) = self.models.get_mut(waiter.key()) {
            model.queue.remove(&waiter.board, ticket, waiter.fallback_after());
        }
        self.serve(waiter.key());
    }

    /// Records that the first bytes of a response arrived.
    pub(super) fn on_answer(&mut self, now: Duration, ticket: Ticket) {
        self.set_time(now);
        let Some(InFlightCall { key, call, .. }) = self.calls.get_mut(&ticket) else { return };
        if call.is_answered || call.is_refused {
            return;
        }
        call.is_answered = true;
        let (key, call) = (key.clone(), *call);
        let Some(model) = self.models.get_mut(&key) else { return };
        if let Some(change) = model.on_answer(self.now, &call) {
            self.effects.transitions.push(Transition { key: key.clone(), change });
            self.reroute(|_| true);
        }
        self.serve(&key);
    }

    /// Counts a further request of a call. If the limits of its model leave no room, returns the time until they do.
    pub(super) fn charge_request(&mut self, now: Duration, ticket: Ticket, tokens: u64) -> Result<(), LimitWait> {
        self.set_time(now);
        let Some(InFlightCall { key, call, .. }) = self.calls.get_mut(&ticket) else { return Ok(()) };
        let Some(model) = self.models.get_mut(key) else { return Ok(()) };
        match model.charge_request(self.now, tokens) {
            Ok(()) => {
                // Each request of a conversation is judged separately.
                (call.sent_at, call.is_answered, call.answers_before) = (self.now, false, model.answers);
                Ok(())
            }
            Err(at) => {
                let until = |at: Duration| at.saturating_sub(self.now);
                Err(LimitWait { next: until(at), whole: until(model.room_at(at, tokens)) })
            }
        }
    }

    pub(super) fn on_rejection(&mut self, now: Duration, ticket: Ticket, rejection: &Deferral) -> RejectionOutcome {
        self.set_time(now);
        let Some(InFlightCall { key, call, .. }) = self.calls.get_mut(&ticket) else {
            return RejectionOutcome::Charged;
        };
        if call.is_answered || call.is_refused {
            return RejectionOutcome::Charged;
        }
        call.is_refused = true;
        let (key, call) = (key.clone(), *call);
        let Some(model) = self.models.get_mut(&key) else { return RejectionOutcome::Charged };
        let verdict = if model.is_own_failure(&call, rejection) {
            model.on_own_failure(ticket, &call, rejection.is_ambiguous);
            RejectionOutcome::Charged
        } else {
            let (at, change) = model.on_rejection(self.now, &call, rejection, (self.jitter)());
            if change.is_some() || rejection.reason.needs_operator() {
                self.reroute(|waiter| waiter.key() == &key);
            }
            self.effects.transitions.extend(change.map(|change| Transition { key: key.clone(), change }));
            RejectionOutcome::Deferred { not_before: at.saturating_sub(self.now) }
        };
        self.serve(&key);
        verdict
    }

    pub(super) fn on_operator_error(&mut self, now: Duration, ticket: Ticket, reason: DeferralReason) {
        self.set_time(now);
        let Some(InFlightCall { key, call, .. }) = self.calls.get_mut(&ticket) else { return };
        call.is_refused = true;
        let key = key.clone();
        let change = self.models.get_mut(&key).and_then(|model| model.on_operator_error(self.now, reason));
        self.effects.transitions.extend(change.map(|change| Transition { key, change }));
    }

    /// Records that the model declined to serve this request. Returns whether another model of the chain may serve it.
    pub(super) fn on_prompt_rejected(&mut self, now: Duration, ticket: Ticket) -> bool {
        self.on_answer(now, ticket);
        let Some(InFlightCall { key, call, chain }) = self.calls.get(&ticket) else { return false };
        if let Some(model) = self.models.get_mut(key) {
            model.on_prompt_rejected(call);
        }
        let has_refused = |endpoint: &Arc<Endpoint>| {
            self.models.get(&endpoint.key).is_some_and(|model| model.has_rejected(&call.prompt))
        };
        !chain.iter().all(has_refused)
    }

    /// Returns whether another model of the chain may serve the request, now or later, without an operator's help.
    pub(super) fn is_served_elsewhere(&self, ticket: Ticket) -> bool {
        let Some(InFlightCall { key, call, chain }) = self.calls.get(&ticket) else { return false };
        chain.iter().filter(|endpoint| endpoint.key != *key).any(|endpoint| {
            self.models.get(&endpoint.key).is_none_or(|model| {
                let needs_operator = model.absence(self.now).is_some_and(|absence| absence.needs_operator);
                !needs_operator && !model.has_rejected(&call.prompt)
            })
        })
    }

    pub(super) fn on_finish(&mut self, now: Duration, ticket: Ticket) {
        self.set_time(now);
        let Some(InFlightCall { key, call, .. }) = self.calls.remove(&ticket) else { return };
        if let Some(model) = self.models.get_mut(&key) {
            model.on_finish(self.now, ticket, &call);
        }
        self.serve(&key);
    }

    pub(super) fn probe_unavailable(&mut self, now: Duration) {
        self.set_time(now);
        for model in self.models.values_mut() {
            model.probe_from(self.now);
        }
        self.serve_all();
    }

    /// Pauses admission until [`Self::open`] is called, for at most `time`.
    pub(super) fn shut(&mut self, now: Duration, time: Duration) {
        self.set_time(now);
        self.shut_until = self.now.saturating_add(time);
    }

    pub(super) fn open(&mut self, now: Duration) {
        self.set_time(now);
        self.shut_until = Duration::ZERO;
        self.serve_all();
    }

    /// Closes a model that no call has used yet for `wait`, as recorded in a journal before a restart.
    pub(super) fn hold(&mut self, now: Duration, key: &ModelKey, reason: DeferralReason, wait: Duration) {
        self.advance(now);
        let wait = jittered(wait.min(Duration::from_secs(24 * 60 * 60)), (self.jitter)());
        let model = self.models.entry(key.clone()).or_insert_with(|| Model::new(self.now));
        if model.admissions > 0 {
            return;
        }
        if let Some(change) = model.hold(self.now, reason, wait) {
            self.effects.transitions.push(Transition { key: key.clone(), change });
            self.reroute(|waiter| waiter.key() == key);
        }
        self.serve(key);
    }

    pub(super) fn advance(&mut self, now: Duration) {
        self.set_time(now);
        let now = self.now;
        if self.swept_at + SWEEP <= now {
            self.swept_at = now;
            self.models.retain(|_, model| !model.is_idle(now));
        }
        if !self.movable.is_empty() {
            self.move_waiters();
        }
        let due = self.models.iter().filter(|(_, model)| model.retry_at.is_some_and(|at| at <= now));
        for key in due.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.serve(&key);
        }
    }

    pub(super) fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Time of the next [`Self::advance`]; `None` if no work is scheduled.
    pub(super) fn wake_at(&self) -> Option<Duration> {
        self.models.values().filter_map(|model| self.wake_of(model)).min()
    }

    pub(super) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Keeps time monotonic: a clock that steps back is treated as stopped.
    fn set_time(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    fn wake_of(&self, model: &Model) -> Option<Duration> {
        let retry_at = model.retry_at.filter(|_| !model.queue.is_empty());
        let absence = model.absence(self.now);
        let fallback_at = absence.and_then(|absence| {
            let elapsed = model.rerouted_at.saturating_sub(absence.since);
            Some(absence.since.saturating_add(model.queue.next_fallback(elapsed)?))
        });
        // A request queued for another model may have to be the probe.
        let probe_at = absence.map(|absence| absence.until).filter(|at| *at > self.now && !self.movable.is_empty());
        [retry_at, fallback_at, probe_at].into_iter().flatten().min()
    }

    fn route(&self, waiter: &Waiter) -> usize {
        let candidate = |endpoint: &Arc<Endpoint>| {
            let model = self.models.get(&endpoint.key);
            Candidate {
                absence: model.and_then(|model| model.absence(self.now)),
                has_rejected: model.is_some_and(|model| model.has_rejected(&waiter.prompt)),
                fallback_after: endpoint.fallback_after,
            }
        };
        let chain: Vec<Candidate> = waiter.chain.iter().map(candidate).collect();
        choose(self.now, &chain)
    }

    fn enqueue(&mut self, ticket: Ticket, waiter: &Waiter) {
        let endpoint = &waiter.chain[waiter.position];
        let model = self.models.entry(endpoint.key.clone()).or_insert_with(|| Model::new(self.now));
        model.limit(self.now, endpoint.limits);
        model.queue.push(&waiter.board, ticket, waiter.fallback_after());
    }

    /// Moves waiting requests to other models of their chains when a fallback or a probe is due.
    fn move_waiters(&mut self) {
        let now = self.now;
        let mut overdue = BTreeSet::new();
        let mut unprobed = Vec::new();
        for (key, model) in &mut self.models {
            let Some(absence) = model.absence(now) else { continue };
            let elapsed = model.rerouted_at.saturating_sub(absence.since);
            if model.queue.next_fallback(elapsed).is_some_and(|after| absence.since.saturating_add(after) <= now) {
                model.rerouted_at = now;
                overdue.insert(key.clone());
            }
            if absence.wants_probe {
                unprobed.push(key.clone());
            }
        }
        for key in &unprobed {
            let is_preferred = |waiter: &Waiter| waiter.chain[..waiter.position].iter().any(|one| one.key == *key);
            // Each is routed as a new request would be; the first one routed to this model becomes the probe.
            let found = self.movable.iter().find(|ticket| {
                let waiter = self.waiters.get(ticket);
                waiter.is_some_and(|waiter| is_preferred(waiter) && waiter.chain[self.route(waiter)].key == *key)
            });
            if let Some(ticket) = found.copied() {
                self.relocate(BTreeSet::from([ticket]));
            }
        }
        if !overdue.is_empty() {
            self.reroute(|waiter| overdue.contains(waiter.key()));
        }
    }

    /// Routes the selected waiting requests again; only those with fallbacks can move.
    fn reroute(&mut self, is_concerned: impl Fn(&Waiter) -> bool) {
        let concerned = self.movable.iter().copied();
        let concerned = concerned.filter(|ticket| self.waiters.get(ticket).is_some_and(&is_concerned)).collect();
        self.relocate(concerned);
    }

    fn relocate(&mut self, tickets: BTreeSet<Ticket>) {
        let mut touched = BTreeSet::new();
        for ticket in tickets {
            let Some(mut waiter) = self.waiters.remove(&ticket) else { continue };
            let position = self.route(&waiter);
            if position != waiter.position {
                if let Some(model) = self.models.get_mut(waiter.key()) {
                    model.queue.remove(&waiter.board, ticket, waiter.fallback_after());
                }
                touched.insert(waiter.key().clone());
                waiter.position = position;
                self.enqueue(ticket, &waiter);
                touched.insert(waiter.key().clone());
            }
            self.waiters.insert(ticket, waiter);
        }
        for key in touched {
            self.serve(&key);
        }
    }

    fn serve_all(&mut self) {
        for key in self.models.keys().cloned().collect::<Vec<_>>() {
            self.serve(&key);
        }
    }

    fn serve(&mut self, key: &ModelKey) {
        let Some(model) = self.models.get_mut(key) else { return };
        model.retry_at = None;
        if self.now < self.shut_until {
            model.retry_at = Some(self.shut_until);
            return;
        }
        while let Some(ticket) = model.queue.peek() {
            let waiter = self.waiters.get(&ticket).expect("a queued request waits");
            match model.admit(self.now, ticket, waiter.tokens, waiter.prompt) {
                Ok(call) => {
                    model.queue.serve(&waiter.board, ticket, waiter.fallback_after());
                    let (endpoint, position) = (Arc::clone(&waiter.chain[waiter.position]), waiter.position);
                    let chain = self.waiters.remove(&ticket).map(|waiter| waiter.chain).unwrap_or_default();
                    self.calls.insert(ticket, InFlightCall { key: key.clone(), call, chain });
                    self.movable.remove(&ticket);
                    self.effects.admitted.push(AdmittedCall { ticket, endpoint, position });
                }
                Err(later) => {
                    model.retry_at = later;
                    return;
                }
            }
        }
    }
}
