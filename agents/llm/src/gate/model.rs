//! Bulkhead of one model: its phase, its limits, and the effects of rejections and answers on them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::digest::Digest;

use super::pace::Pace;
use super::queue::Queue;
use super::quota::Quota;
use super::route::Unavailability;
use super::types::{Availability, Limits, Ticket};

/// Bounds of the waits that the gate chooses.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(5 * 60);

/// Bounds of the waits that providers request.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(50);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Greatest fraction by which jitter lengthens a wait that a provider requested.
const RETRY_AFTER_JITTER: f64 = 0.02;

/// Least number of allowed calls at which the slow start ends when no concurrency is configured.
const SLOW_START_MIN: u32 = 128;

const REJECTED_PROMPTS_MAX: usize = 64;

/// Time after its last use at which a model is evicted.
const IDLE: Duration = Duration::from_secs(10 * 60);

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// Number of the admission, from 1.
    pub(super) number: u64,
    pub(super) sent_at: Duration,
    pub(super) prompt: Digest,
    /// Answers of the model at the time when the call was sent.
    pub(super) answers_before: u64,
    pub(super) is_answered: bool,
    pub(super) is_refused: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Open,
    Unavailable {
        reason: DeferralReason,
        since: Duration,
        until: Duration,
        probe: Option<Ticket>,
    },
    /// Slow start. A call admitted after `doubled_at` doubles the number of calls allowed.
    SlowStart {
        allowed: u32,
        doubled_at: u64,
    },
}

/// Time of the next attempt to admit; `None` if only the end of a call makes one possible.
pub(super) type RetryLater = Option<Duration>;

/// Bulkhead of one model.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) queue: Queue,
    /// Next attempt to serve the queue.
    pub(super) retry_at: RetryLater,
    /// Time up to which fallbacks of waiting requests were considered.
    pub(super) rerouted_at: Duration,
    phase: Phase,
    limits: Limits,
    requests: Option<Quota>,
    tokens: Option<Quota>,
    request_is_charged: bool,
    pace: Pace,
    pub(super) in_flight: u32,
    /// Calls in flight that were admitted since the latest outage began.
    in_flight_since_outage: u32,
    pub(super) admissions: u64,
    /// Number of admissions when the latest outage began or probe was rejected. Results of calls up to this number are
    /// stale.
    stale: u64,
    pub(super) answers: u64,
    /// Consecutive rejections; those of one burst count once.
    consecutive_rejections: u32,
    /// Up to two different prompts that were rejected since the last answer.
    suspects: [Option<Digest>; 2],
    rejected_prompts: VecDeque<Digest>,
    pub(super) deferred: BTreeMap<DeferralReason, u64>,
    /// Reason that requires an operator, and the time of the first such rejection; cleared by the next answer.
    pub(super) operator_error: Option<(DeferralReason, Duration)>,
    used_at: Duration,
}

impl Model {
    pub(super) fn new(now: Duration) -> Self {
        Self { rerouted_at: now, used_at: now, ..Self::default() }
    }

    /// Applies limits. The strictest of all given so far are in force.
    pub(super) fn limit(&mut self, now: Duration, limits: Limits) {
        self.used_at = now;
        let limits = self.limits.strictest(limits);
        if limits.requests_per_minute != self.limits.requests_per_minute {
            self.requests = limits.requests_per_minute.map(|allowance| Quota::per_minute(allowance, now));
        }
        if limits.tokens_per_minute != self.limits.tokens_per_minute {
            self.tokens = limits.tokens_per_minute.map(|allowance| Quota::per_minute(allowance, now));
        }
        self.limits = limits;
    }

    /// Admits a call if the phase, the limits and the pace allow it.
    pub(super) fn admit(
        &mut self,
        now: Duration,
        ticket: Ticket,
        tokens: u64,
        prompt: Digest,
    ) -> Result<Call, RetryLater> {
        if self.limits.concurrency.is_some_and(|most| self.in_flight >= most.get()) {
            return Err(None);
        }
        match self.phase {
            Phase::Unavailable { probe: Some(_), .. } => return Err(None),
            Phase::Unavailable { until, .. } if now < until => return Err(Some(until)),
            Phase::SlowStart { allowed, .. } if self.in_flight_since_outage >= allowed => return Err(None),
            Phase::Open | Phase::Unavailable { .. } | Phase::SlowStart { .. } => {}
        }
        // Quotas are checked last, because a check consumes from them.
        self.charge_request(now, tokens).map_err(Some)?;
        if let Phase::Unavailable { probe, .. } = &mut self.phase {
            *probe = Some(ticket);
        }
        self.admissions += 1;
        self.in_flight += 1;
        self.in_flight_since_outage += 1;
        Ok(Call {
            number: self.admissions,
            sent_at: now,
            prompt,
            answers_before: self.answers,
            is_answered: false,
            is_refused: false,
        })
    }

    /// Charges a request to the limits and the pace. If they leave no room, returns the time of the next attempt.
    pub(super) fn charge_request(&mut self, now: Duration, tokens: u64) -> Result<(), Duration> {
        if let Some(at) = self.pace.next_at().filter(|at| now < *at) {
            return Err(at);
        }
        // The request quota stays charged for the next attempt: every request costs one, whatever its tokens.
        if let Some(requests) = self.requests.as_mut().filter(|_| !self.request_is_charged) {
            requests.take(now, 1)?;
            self.request_is_charged = true;
        }
        if let Some(quota) = &mut self.tokens {
            quota.take(now, tokens)?;
        }
        self.request_is_charged = false;
        self.used_at = now;
        self.pace.sent(now);
        Ok(())
    }

    /// Returns the time at which the limits leave room for all of `tokens`, if they leave room for a part at `next`.
    pub(super) fn room_at(&self, next: Duration, tokens: u64) -> Duration {
        self.tokens.as_ref().map_or(next, |quota| quota.whole_at(next, tokens))
    }

    pub(super) fn on_answer(&mut self, now: Duration, call: &Call) -> Option<Availability> {
        self.used_at = now;
        self.answers += 1;
        self.suspects = [None; 2];
        self.rejected_prompts.retain(|prompt| *prompt != call.prompt);
        let is_fresh = call.number > self.stale;
        let change = match &mut self.phase {
            Phase::Unavailable { reason, since, .. } if is_fresh || *reason == DeferralReason::NoAnswer => {
                let after = now.saturating_sub(*since);
                self.consecutive_rejections = 0;
                self.pace.resume(now);
                self.phase = Phase::SlowStart { allowed: 2, doubled_at: self.admissions };
                self.end_slow_start();
                Some(Availability::Recovered { after })
            }
            Phase::SlowStart { allowed, doubled_at } if call.number > *doubled_at => {
                *allowed = allowed.saturating_mul(2);
                *doubled_at = self.admissions;
                self.end_slow_start();
                None
            }
            Phase::Open | Phase::Unavailable { .. } | Phase::SlowStart { .. } => None,
        };
        // An answer to a request sent before the outage does not prove its end.
        let complaint = if self.outage().is_none() { self.operator_error.take() } else { None };
        change.or(complaint.map(|(_, since)| Availability::Recovered { after: now.saturating_sub(since) }))
    }

    /// Records a rejection that only an operator can fix. Other calls still go out, since it may concern this request
    /// only.
    pub(super) fn on_operator_error(&mut self, now: Duration, reason: DeferralReason) -> Option<Availability> {
        self.used_at = now;
        *self.deferred.entry(reason).or_default() += 1;
        let is_known = self.operator_error.is_some() || self.outage().is_some();
        self.operator_error.get_or_insert((reason, now)).0 = reason;
        (!is_known).then_some(Availability::Unavailable { reason, next_try: None })
    }

    fn end_slow_start(&mut self) {
        let Phase::SlowStart { allowed, .. } = self.phase else { return };
        let has_room_for_all = || self.queue.len() + self.in_flight_since_outage as usize <= allowed as usize;
        let is_over = match self.limits.concurrency {
            Some(most) => allowed >= most.get(),
            None => allowed >= SLOW_START_MIN && has_room_for_all(),
        };
        if is_over {
            self.phase = Phase::Open;
        }
    }

    /// Returns whether a rejection is the request's own failure.
    pub(super) fn is_own_failure(&mut self, call: &Call, rejection: &Deferral) -> bool {
        if rejection.reason == DeferralReason::NoAnswer {
            return self.answers > call.answers_before;
        }
        let is_confirmed = call.number <= self.stale
            || matches!(self.phase, Phase::Unavailable { .. })
            || self.suspects.iter().flatten().any(|prompt| *prompt != call.prompt);
        rejection.is_ambiguous && !is_confirmed
    }

    pub(super) fn on_own_failure(&mut self, ticket: Ticket, call: &Call, is_suspect: bool) {
        if is_suspect {
            self.suspect(call.prompt);
        }
        self.forget_probe(ticket);
        self.on_prompt_rejected(call);
    }

    pub(super) fn on_prompt_rejected(&mut self, call: &Call) {
        if !self.rejected_prompts.contains(&call.prompt) {
            if self.rejected_prompts.len() == REJECTED_PROMPTS_MAX {
                self.rejected_prompts.pop_front();
            }
            self.rejected_prompts.push_back(call.prompt);
        }
    }

    /// Records a rejection caused by the model. Returns the time of the next attempt, and the change if an outage
    /// began.
    pub(super) fn on_rejection(
        &mut self,
        now: Duration,
        call: &Call,
        rejection: &Deferral,
        jitter: f64,
    ) -> (Duration, Option<Availability>) {
        self.used_at = now;
        self.suspect(call.prompt);
        *self.deferred.entry(rejection.reason).or_default() += 1;
        self.pace.on_rejection(call.sent_at);
        let is_fresh = call.number > self.stale;
        let requested = rejection.wait_ms.map(Duration::from_millis);
        let requested = requested.map(|wait| jittered(wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX), jitter));
        if is_fresh {
            self.consecutive_rejections = self.consecutive_rejections.saturating_add(1);
        }
        let wait = match requested {
            // A wait shorter than the gate's own minimum is honoured once in a row, so that zero cannot cause a tight
            // loop.
            Some(requested) if requested >= WAIT_MIN || self.consecutive_rejections <= 1 => requested,
            Some(_) | None => backoff(self.consecutive_rejections, jitter),
        };
        if rejection.reason == DeferralReason::RateLimited && (is_fresh || self.outage().is_some()) {
            self.pace.limited(call.sent_at, now, wait);
        }
        if is_fresh {
            let change = self.begin_outage(now, rejection.reason, wait);
            return (now + wait, change);
        }
        // The call was sent before the outage began. Its rejection belongs to that outage, and is stale once the model
        // is back.
        match &mut self.phase {
            Phase::Unavailable { until, probe: None, .. } => {
                *until = (*until).max(requested.map_or(now, |asked| now + asked));
                (*until, None)
            }
            Phase::Open | Phase::Unavailable { .. } | Phase::SlowStart { .. } => (now, None),
        }
    }

    /// Closes the model for at least `wait`; a running outage is extended.
    pub(super) fn hold(&mut self, now: Duration, reason: DeferralReason, wait: Duration) -> Option<Availability> {
        match &mut self.phase {
            Phase::Unavailable { until, .. } => {
                *until = (*until).max(now + wait);
                None
            }
            Phase::Open | Phase::SlowStart { .. } => self.begin_outage(now, reason, wait),
        }
    }

    /// Begins an outage of `wait`, or restarts the wait of the current one.
    pub(super) fn begin_outage(
        &mut self,
        now: Duration,
        reason: DeferralReason,
        wait: Duration,
    ) -> Option<Availability> {
        self.stale = self.admissions;
        self.in_flight_since_outage = 0;
        let begun = match self.phase {
            Phase::Unavailable { since, .. } => Some(since),
            Phase::Open | Phase::SlowStart { .. } => None,
        };
        if begun.is_none() {
            self.rerouted_at = now;
        }
        let until = now + wait;
        self.phase = Phase::Unavailable { reason, since: begun.unwrap_or(now), until, probe: None };
        begun.is_none().then_some(Availability::Unavailable { reason, next_try: Some(wait) })
    }

    pub(super) fn on_finish(&mut self, now: Duration, ticket: Ticket, call: &Call) {
        self.used_at = now;
        self.in_flight = self.in_flight.saturating_sub(1);
        if call.number > self.stale {
            self.in_flight_since_outage = self.in_flight_since_outage.saturating_sub(1);
        }
        self.forget_probe(ticket);
    }

    fn forget_probe(&mut self, ticket: Ticket) {
        if let Phase::Unavailable { probe, .. } = &mut self.phase
            && *probe == Some(ticket)
        {
            *probe = None;
        }
    }

    fn suspect(&mut self, prompt: Digest) {
        match &mut self.suspects {
            [first @ None, _] => *first = Some(prompt),
            [Some(first), second @ None] if *first != prompt => *second = Some(prompt),
            _ => {}
        }
    }

    pub(super) fn absence(&self, now: Duration) -> Option<Unavailability> {
        let Phase::Unavailable { reason, since, until, probe } = self.phase else { return None };
        let has_room = self.limits.concurrency.is_none_or(|most| self.in_flight < most.get());
        let wants_probe = until <= now && probe.is_none() && has_room && self.queue.is_empty();
        Some(Unavailability { since, until, wants_probe, needs_operator: reason.needs_operator() })
    }

    /// Makes the model due for a probe at `now`, if it is away.
    pub(super) fn probe_from(&mut self, now: Duration) {
        if let Phase::Unavailable { until, .. } = &mut self.phase {
            *until = (*until).min(now);
        }
    }

    /// Reason of the outage, and whether a probe is in flight.
    pub(super) fn outage(&self) -> Option<(DeferralReason, bool)> {
        match self.phase {
            Phase::Unavailable { reason, probe, .. } => Some((reason, probe.is_some())),
            Phase::Open | Phase::SlowStart { .. } => None,
        }
    }

    pub(super) fn has_rejected(&self, prompt: &Digest) -> bool {
        self.rejected_prompts.contains(prompt)
    }

    pub(super) fn pace(&self) -> Option<f64> {
        self.pace.rate()
    }

    /// Returns whether the model can be evicted without losing state.
    pub(super) fn is_idle(&self, now: Duration) -> bool {
        let idle_at = match self.phase {
            Phase::Unavailable { until, .. } => self.used_at.max(until) + IDLE,
            Phase::Open | Phase::SlowStart { .. } => self.used_at + IDLE,
        };
        self.in_flight == 0 && self.queue.is_empty() && self.operator_error.is_none() && idle_at <= now
    }
}

/// Adds jitter to a wait that a provider requested; never shortens it.
pub(super) fn jittered(wait: Duration, jitter: f64) -> Duration {
    wait + wait.mul_f64(RETRY_AFTER_JITTER * jitter.clamp(0.0, 1.0))
}

/// Backoff after `strikes` consecutive rejections: exponential, with the upper half random.
pub(super) fn backoff(strikes: u32, jitter: f64) -> Duration {
    let most = WAIT_MIN.saturating_mul(2_u32.saturating_pow(strikes.max(1))).min(WAIT_MAX);
    most.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0)).clamp(WAIT_MIN, WAIT_MAX)
}
