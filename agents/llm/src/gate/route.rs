//! Chooses a model of a chain from the states of its models.

use std::time::Duration;

/// State of one model of a chain, for one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) absence: Option<Unavailability>,
    /// True if the model rejected this request as the request's own failure.
    pub(super) has_rejected: bool,
    /// Time that the request waits for this model before it uses the next one.
    pub(super) fallback_after: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Unavailability {
    pub(super) since: Duration,
    /// Time of the next probe.
    pub(super) until: Duration,
    /// True if a probe is due and this request would be it.
    pub(super) wants_probe: bool,
    /// True if only an operator can end it.
    pub(super) needs_operator: bool,
}

impl Candidate {
    fn is_usable(&self, now: Duration) -> bool {
        !self.has_rejected
            && self.absence.is_none_or(|absence| {
                let is_short = now < absence.since.saturating_add(self.fallback_after);
                absence.wants_probe || (is_short && !absence.needs_operator)
            })
    }
}

/// Index of the model to use: the first usable one, otherwise the one that may be tried first.
pub(super) fn choose(now: Duration, chain: &[Candidate]) -> usize {
    if let Some(index) = chain.iter().position(|candidate| candidate.is_usable(now)) {
        return index;
    }
    let next_try = |candidate: &Candidate| candidate.absence.map_or(now, |absence| absence.until);
    let rest = chain.iter().enumerate().min_by_key(|(_, candidate)| (candidate.has_rejected, next_try(candidate)));
    rest.map_or(0, |(index, _)| index)
}
