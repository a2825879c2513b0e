//! Request rate that a provider sustains, learnt from its rate-limit rejections.
//!
//! The provider is modelled as a token bucket that holds one second of its rate. The requests that it accepted before
//! the first rejection therefore give its rate. Requests are spaced evenly at that pace, without bursts. Each further
//! rejection lowers the pace by what the bucket can have refilled since. The pace rises after a long period without
//! rejections; the longer the wait that a rejection cost, the longer that period.

use std::collections::VecDeque;
use std::time::Duration;

/// Fraction of the estimated rate that is used.
const MARGIN: f64 = 0.9;

/// Fraction of a request assumed to be left in the bucket at a rejection; the true value lies between zero and one.
const REST: f64 = 0.25;

/// Bounds of the factor that a further rejection applies.
const DECREASE: (f64, f64) = (0.5, 0.9);

const INCREASE: f64 = 1.1;

/// Fraction of the last rejected pace up to which the pace rises at full speed, and the slowdown factor above it.
const CAUTION: f64 = 0.95;
const CAUTION_SLOWDOWN: u32 = 4;

/// Least period without rejections before an increase, absolute and in multiples of the wait that a rejection cost.
const CALM_MIN: Duration = Duration::from_secs(10);
const CALM_WAITS: u32 = 8;

/// Requests required before an increase: an idle model proves nothing.
const CALM_REQUESTS: u32 = 5;

/// Bounds of the pace, in requests per second; a pace above the upper one is dropped.
const RATE: (f64, f64) = (1.0 / 600.0, 1000.0);

/// Time span and number of requests that an estimate considers.
const HISTORY: Duration = Duration::from_secs(30);
const HISTORY_MAX: usize = 1024;

/// Idle time after which the pace is dropped.
const FORGET: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Pace {
    rate: Option<f64>,
    /// Estimated number of requests that the provider accepts in one burst.
    burst: f64,
    /// Requests per second at the last rejection.
    refused_rate: Option<f64>,
    /// Times of the latest requests that were not rejected, oldest first.
    accepted: VecDeque<Duration>,
    last: Option<Duration>,
    /// Time of the latest rejected request that is not yet part of the estimate.
    rejected_at: Option<Duration>,
    /// Time at which its rejection arrived; requests sent until then met the same bucket.
    rejection_received_at: Duration,
    /// Value of `refused_at` in the previous estimate.
    estimated_at: Option<Duration>,
    /// Requests since then that were not rejected. [`Self::resume`] leaves those sent after `rejection_received_at` to
    /// the next estimate.
    taken_since: u32,
    /// Wait that the last rejection cost.
    wait: Duration,
    calm_requests: u32,
    raise_at: Duration,
}

impl Pace {
    /// Requests per second, if limited.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rate
    }

    pub(super) fn next_at(&self) -> Option<Duration> {
        Some(self.last? + Duration::from_secs_f64(1.0 / self.rate?))
    }

    pub(super) fn sent(&mut self, now: Duration) {
        if self.last.is_some_and(|last| now.saturating_sub(last) > FORGET) {
            *self = Self::default();
        }
        self.last = Some(now);
        while self.accepted.len() >= HISTORY_MAX || self.accepted.front().is_some_and(|at| *at + HISTORY < now) {
            self.accepted.pop_front();
        }
        self.accepted.push_back(now);
        self.taken_since = self.taken_since.saturating_add(1);
        self.calm_requests = self.calm_requests.saturating_add(1);
        self.rise(now);
    }

    /// Records that a request sent at `sent_at` was rejected.
    pub(super) fn on_rejection(&mut self, sent_at: Duration) {
        if let Some(index) = self.accepted.iter().rposition(|at| *at == sent_at) {
            self.accepted.remove(index);
        }
        self.taken_since = self.taken_since.saturating_sub(1);
    }

    /// Records that a request sent at `sent_at` hit the rate limit; called after [`Self::on_rejection`].
    pub(super) fn limited(&mut self, sent_at: Duration, now: Duration, wait: Duration) {
        self.rejection_received_at = now;
        self.wait = if self.rejected_at.is_some() { self.wait.max(wait) } else { wait };
        self.rejected_at = self.rejected_at.max(Some(sent_at));
    }

    /// Updates the pace from the rejections once a request succeeds again. By then earlier requests have their outcome.
    pub(super) fn resume(&mut self, now: Duration) {
        let Some(refused_at) = self.rejected_at.take() else { return };
        let after = self.accepted.iter().rev().take_while(|at| **at > self.rejection_received_at).count();
        let before = self.taken_since.saturating_sub(u32::try_from(after).unwrap_or(u32::MAX));
        match (self.rate, self.estimated_at) {
            (Some(rate), Some(since)) => {
                let count = f64::from(before);
                let factor = MARGIN * (1.0 - self.burst / count.max(self.burst));
                let sustained = count / (refused_at.saturating_sub(since)).as_secs_f64().max(1.0);
                let next = rate * factor.clamp(DECREASE.0, DECREASE.1);
                self.refused_rate = Some(rate);
                self.rate = Some(next.max(MARGIN * sustained).min(rate * DECREASE.1).max(RATE.0));
            }
            _ => {
                let rate = self.first_estimate(refused_at);
                self.burst = rate.max(1.0);
                self.rate = (rate > 0.0).then_some((rate * MARGIN).clamp(RATE.0, RATE.1));
            }
        }
        self.estimated_at = Some(refused_at);
        self.accepted.drain(..self.accepted.len() - after);
        self.taken_since = u32::try_from(after).unwrap_or(u32::MAX);
        self.calm_requests = 0;
        self.raise_at = now + self.calm();
    }

    /// Rate of a one-second bucket that accepts exactly the recorded requests, with [`REST`] left over.
    fn first_estimate(&self, refused_at: Duration) -> f64 {
        let before = self.accepted.iter().rev().skip_while(|at| **at > self.rejection_received_at);
        let spans = before.zip(1_u32..).map(|(at, count)| {
            let span = refused_at.saturating_sub(*at).as_secs_f64();
            (f64::from(count) + if count > 1 { REST } else { 0.0 }) / (1.0 + span)
        });
        spans.fold(0.0, f64::max)
    }

    fn rise(&mut self, now: Duration) {
        let Some(rate) = self.rate else { return };
        if self.rejected_at.is_some() || now < self.raise_at || self.calm_requests < CALM_REQUESTS {
            return;
        }
        let next = rate * INCREASE;
        self.rate = (next <= RATE.1).then_some(next);
        self.calm_requests = 0;
        let is_near = self.refused_rate.is_some_and(|refused| next * INCREASE > refused * CAUTION);
        self.raise_at = now + self.calm() * if is_near { CAUTION_SLOWDOWN } else { 1 };
    }

    fn calm(&self) -> Duration {
        self.wait.saturating_mul(CALM_WAITS).max(CALM_MIN)
    }
}
