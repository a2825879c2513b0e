//! Outages of a provider: times, reasons, and the times at which the gate retries.
//!
//! A function of seed and time alone, so that the shrinker meets the outages of the first run.

use patchboard_faults::random::Random;
use patchboard_faults::simulation::GateDecision;
use patchboard_kernel::admission::{Admission, WaitingCall};
use patchboard_kernel::board::RequestDeferral;
use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::id::Timestamp;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Longest wait of the gate between two requests to a provider that names no wait.
const WAIT_MAX: u64 = 5 * MINUTE;

/// Time until the gate notices an outage.
const UNNOTICED: u64 = SECOND;

/// Outages that a board may meet, in order of time; none overlap.
#[derive(Clone, Default)]
pub(super) struct Outages(Vec<Outage>);

#[derive(Clone, Debug)]
pub(super) struct Outage {
    begins: Timestamp,
    pub(super) ends: Timestamp,
    /// First request after the end: the gate knows no earlier that the provider is back.
    noticed: Timestamp,
    reason: DeferralReason,
    patience_ms: u64,
    is_served_elsewhere: bool,
    /// Wait that the provider names with each deferral; `None` if the gate doubles its own.
    named_ms: Option<u64>,
}

impl Outages {
    /// Draws the outages of a seed's board; most boards have none.
    pub(super) fn of(seed: u64, begun: Timestamp) -> Self {
        let mut random = Random::new(seed ^ 0x0a7a_6e00);
        match random.percent(30) {
            true => Self::drawn(&mut random, begun),
            false => Self::default(),
        }
    }

    /// Draws one to three outages.
    pub(super) fn drawn(random: &mut Random, begun: Timestamp) -> Self {
        let mut begins = begun.plus_ms(random.below(8 * SECOND));
        let mut outages = Vec::new();
        for _ in 0..1 + random.below(3) {
            let (least, most) = *random.pick(&[
                (SECOND, 10 * SECOND),
                (10 * SECOND, 5 * MINUTE),
                (5 * MINUTE, 3 * HOUR),
                (3 * HOUR, 3 * DAY),
            ]);
            let lasts = least + random.below(most - least);
            let patience_ms = *random.pick(&[5 * SECOND, MINUTE, 30 * MINUTE, DAY]);
            // Short waits all through a long outage would be thousands of requests.
            let named_ms = (lasts > HOUR && patience_ms > HOUR).then(|| lasts / (2 + random.below(8)));
            let ends = begins.plus_ms(lasts);
            let mut outage = Outage {
                begins,
                ends,
                noticed: ends,
                reason: *random.pick(DeferralReason::ALL),
                patience_ms,
                is_served_elsewhere: random.percent(15),
                named_ms,
            };
            outage.noticed = ends.plus_ms(outage.wait_ms(ends));
            begins = outage.noticed.plus_ms(random.below(20 * SECOND));
            outages.push(outage);
        }
        Self(outages)
    }

    /// Finds the outage at a time, with its index.
    pub(super) fn at(&self, at: Timestamp) -> Option<(usize, &Outage)> {
        self.0.iter().enumerate().find(|(_, outage)| outage.begins <= at && at < outage.ends)
    }

    /// Answers for the gate: a call waits for its own deferral, and in an outage until the next request to the
    /// provider.
    pub(super) fn passage(&self, at: Timestamp, call: &WaitingCall) -> GateDecision {
        let own = call.wait.as_ref().map_or(0, |wait| wait.not_before.ms_since(at));
        let outage = self.0.iter().find(|outage| outage.begins <= at && at < outage.noticed);
        match own.max(outage.map_or(0, |outage| outage.held_ms(at))) {
            0 => GateDecision::Now(Admission::default()),
            wait => GateDecision::After(wait),
        }
    }
}

impl Outage {
    /// Time until the gate's next request, for a call without a request of its own.
    fn held_ms(&self, at: Timestamp) -> u64 {
        if at.ms_since(self.begins) < UNNOTICED { 0 } else { self.wait_ms(at) }
    }

    /// Time until the next request to the provider: waits grow from 1 s to 5 min, or are those that it names.
    fn wait_ms(&self, at: Timestamp) -> u64 {
        let elapsed = at.ms_since(self.begins);
        let (mut next, mut wait) = (0, self.named_ms.unwrap_or(UNNOTICED));
        while next <= elapsed {
            next += wait;
            wait = if self.named_ms.is_some() { wait } else { (2 * wait).min(WAIT_MAX) };
        }
        next - elapsed
    }

    /// Returns true if a call has waited for longer than its patience.
    pub(super) fn exceeds_patience(&self, at: Timestamp) -> bool {
        at.ms_since(self.begins) > self.patience_ms
    }

    /// Answer to a request.
    pub(super) fn not_taken(&self, at: Timestamp) -> RequestDeferral {
        RequestDeferral {
            reason: self.reason,
            wait_ms: self.wait_ms(at),
            patience_ms: self.patience_ms,
            is_served_elsewhere: self.is_served_elsewhere,
            message: "the provider is away".to_owned(),
        }
    }
}
