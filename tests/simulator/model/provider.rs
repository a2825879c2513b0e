//! Waits for a provider: the duration of each, and the pauses of the board for it.

use std::collections::BTreeMap;

use patchboard_kernel::board::{Input, RequestDeferral, Step};
use patchboard_kernel::deferral::DeferralReason as Reason;
use patchboard_kernel::id::{InvocationId, Timestamp};
use patchboard_kernel::record::{Author, Deferred, PauseCause, PauseRequest};

/// Prediction for a step: the board pauses for its provider, or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Pause {
    #[default]
    Never,
    /// The model does not know whether any call waits.
    May,
    Must,
}

pub(super) struct Provider {
    seed: u64,
    /// First deferral of each unbroken series.
    since: BTreeMap<InvocationId, Timestamp>,
    /// End of patience of each invocation that waits.
    patience: BTreeMap<InvocationId, Timestamp>,
    pause: Pause,
}

impl Provider {
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed, since: BTreeMap::new(), patience: BTreeMap::new(), pause: Pause::Never }
    }

    /// Predicts from an input whether the board is paused. `runs`: it is neither paused nor ended.
    pub(super) fn hears(&mut self, at: Timestamp, input: Option<&Input>, runs: bool, is_any_gated: bool) {
        let is_over = self.patience.values().any(|patience| *patience <= at);
        self.pause = match input {
            Some(Input::Tick) if runs && is_over => Pause::Must,
            Some(Input::Unavailable) if runs && is_any_gated => Pause::May,
            _ => Pause::Never,
        };
    }

    /// Compares a deferral with the input that led to it.
    pub(super) fn deferred(&mut self, at: Timestamp, deferred: &Deferred, input: Option<&Input>, is_paused: bool) {
        let seed = self.seed;
        let Some(Input::Defer { deferral: not_taken, .. }) = input else {
            panic!("SEED={seed}: a deferral that no provider asked for")
        };
        let RequestDeferral { reason, wait_ms, patience_ms, is_served_elsewhere, .. } = *not_taken;
        let invocation =
            invocation(&deferred.by).unwrap_or_else(|| panic!("SEED={seed}: a deferral without an attempt"));
        let since = *self.since.entry(invocation).or_insert(at);
        let (not_before, patience) = (at.plus_ms(wait_ms), since.plus_ms(patience_ms));
        let found = (deferred.reason, deferred.not_before, deferred.patience);
        assert_eq!(found, (reason, not_before, patience), "SEED={seed}: {invocation} waits otherwise");
        self.patience.insert(invocation, patience);
        let needs_operator = matches!(
            reason,
            Reason::KeyRefused | Reason::PaymentRequired | Reason::AccessDenied | Reason::ModelNotFound
        );
        let is_in_vain = (needs_operator && !is_served_elsewhere) || not_before > patience;
        if is_in_vain && !is_paused {
            self.pause = Pause::Must;
        }
    }

    /// Notes that an attempt begins.
    pub(super) fn called(&mut self, invocation: InvocationId) {
        self.patience.remove(&invocation);
    }

    /// Notes that the provider has answered an attempt: a series of deferrals is over.
    pub(super) fn answered(&mut self, by: &Author) {
        if let Some(invocation) = invocation(by) {
            self.since.remove(&invocation);
        }
    }

    /// Notes that every call may be made again.
    pub(super) fn resumed(&mut self) {
        self.since.clear();
        self.patience.clear();
    }

    /// Compares the cause of a pause.
    pub(super) fn paused(&mut self, steered: &PauseRequest) {
        let seed = self.seed;
        match steered.cause {
            Some(PauseCause::ProviderUnavailable) => {
                let pause = std::mem::take(&mut self.pause);
                assert_ne!(pause, Pause::Never, "SEED={seed}: paused for a provider that may yet answer");
            }
            None => assert_eq!(self.pause, Pause::Never, "SEED={seed}: a pause without its cause"),
        }
    }

    /// Extends every wait and patience by a jump of the clock.
    pub(super) fn jumped(&mut self, ms: u64) {
        self.since.values_mut().chain(self.patience.values_mut()).for_each(|time| *time = time.plus_ms(ms));
    }

    /// Checks the end of a step: no pause is missing, and the board wakes up at the end of patience.
    pub(super) fn at_the_end_of_a_step(&mut self, step: &Step, runs: bool, is_open: impl Fn(InvocationId) -> bool) {
        let seed = self.seed;
        let pause = std::mem::take(&mut self.pause);
        assert_ne!(pause, Pause::Must, "SEED={seed}: patience is over, and the board is not paused");
        self.since.retain(|invocation, _| is_open(*invocation));
        self.patience.retain(|invocation, _| is_open(*invocation));
        let alarm = step.effects.wake_at;
        let is_decided = step.effects.awaiting_admission.is_some();
        if let (Some(patience), true, true) = (self.patience.values().min(), runs, is_decided) {
            let is_set = alarm.is_some_and(|alarm| alarm <= *patience);
            assert!(is_set, "SEED={seed}: no alarm at the end of patience, {patience:?}: {alarm:?}");
        }
    }
}

fn invocation(by: &Author) -> Option<InvocationId> {
    by.attempt.as_ref().map(|attempt| attempt.invocation)
}
