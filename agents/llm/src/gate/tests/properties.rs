//! Random sequences of events: limits hold, no request is lost, and a wait always ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::deferral::{Deferral, DeferralReason};
use proptest::prelude::*;

use super::super::core::Core;
use super::super::types::{Endpoint, Limits, Request, Ticket};
use super::{at_most, digest, jitter, key, millis, secs};

#[derive(Clone, Debug)]
enum Step {
    Ask { board: u8, first: usize, chain: usize, tokens: u64, prompt: usize },
    Cancel(usize),
    Answer(usize),
    Refuse { call: usize, reason: usize, wait: Option<u64>, is_ambiguous: bool },
    Finish(usize),
    Hold { model: usize, wait: u64 },
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..4_u8, 0..3_usize, 1..4_usize, 0..5000_u64, 0..6_usize)
            .prop_map(|(board, first, chain, tokens, prompt)| Step::Ask { board, first, chain, tokens, prompt }),
        1 => (0..50_usize).prop_map(Step::Cancel),
        3 => (0..50_usize).prop_map(Step::Answer),
        2 => (0..50_usize, 0..9_usize, proptest::option::of(0..40_000_u64), any::<bool>())
            .prop_map(|(call, reason, wait, is_ambiguous)| Step::Refuse { call, reason, wait, is_ambiguous }),
        4 => (0..50_usize).prop_map(Step::Finish),
        1 => (0..3_usize, 0..40_000_u64).prop_map(|(model, wait)| Step::Hold { model, wait }),
        3 => (0..30_000_u64).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..150)
}

/// Core with the checks that hold after every event.
struct Checked {
    core: Core,
    now: Duration,
    concurrency: Vec<Option<u32>>,
    waiting: BTreeSet<Ticket>,
    calls: BTreeMap<Ticket, usize>,
    models: Vec<Arc<Endpoint>>,
}

impl Checked {
    fn check(&mut self) {
        for admitted in self.core.take_effects().admitted {
            self.waiting.remove(&admitted.ticket);
            let index = self.models.iter().position(|model| model.key == admitted.endpoint.key).expect("a known model");
            assert!(self.calls.insert(admitted.ticket, index).is_none(), "admitted once");
        }
        for (index, most) in self.concurrency.iter().enumerate() {
            let in_flight = self.calls.values().filter(|model| **model == index).count();
            assert!(most.is_none_or(|most| in_flight <= most as usize), "{in_flight} calls of {most:?}");
        }
        assert_eq!(self.core.has_waiters(), !self.waiting.is_empty(), "no waiting request is lost");
        if !self.waiting.is_empty() && self.calls.is_empty() {
            assert!(self.core.wake_at().is_some(), "a wait with nothing in flight has an end");
        }
    }

    fn nth<T>(items: &BTreeMap<Ticket, T>, index: usize) -> Option<Ticket> {
        items.keys().nth(index % items.len().max(1)).copied()
    }

    fn play(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Ask { board, first, chain, tokens, prompt } => {
                let mut chain: Vec<_> = self.models.iter().cycle().skip(first).take(chain).cloned().collect();
                let endpoint = chain.remove(0);
                let board = format!("board-{board}").as_str().into();
                let request = Request { board, endpoint, fallbacks: chain, tokens, prompt: digest(prompt) };
                let ticket = self.core.ask(now, request);
                self.waiting.insert(ticket);
            }
            Step::Cancel(index) => {
                if let Some(ticket) = self.waiting.iter().nth(index % self.waiting.len().max(1)).copied() {
                    self.waiting.remove(&ticket);
                    self.core.cancel(now, ticket);
                }
            }
            Step::Answer(index) => {
                if let Some(ticket) = Self::nth(&self.calls, index) {
                    self.core.on_answer(now, ticket);
                }
            }
            Step::Refuse { call, reason, wait, is_ambiguous } => {
                if let Some(ticket) = Self::nth(&self.calls, call) {
                    let reason = DeferralReason::ALL[reason];
                    let deferral = Deferral { wait_ms: wait, is_ambiguous, ..Deferral::new(reason) };
                    self.core.on_rejection(now, ticket, &deferral);
                }
            }
            Step::Finish(index) => {
                if let Some(ticket) = Self::nth(&self.calls, index) {
                    self.calls.remove(&ticket);
                    self.core.on_finish(now, ticket);
                }
            }
            Step::Hold { model, wait } => {
                self.core.hold(now, &self.models[model].key.clone(), DeferralReason::RateLimited, millis(wait));
            }
            Step::Pass(milliseconds) => {
                let end = now + millis(milliseconds);
                let mut wakes = 0;
                while let Some(at) = self.core.wake_at().filter(|at| *at <= end) {
                    wakes += 1;
                    assert!(wakes < 5000, "the timer does not spin");
                    self.now = self.now.max(at);
                    self.core.advance(self.now);
                    self.check();
                }
                self.now = end;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn limits_hold_and_every_wait_ends(
        steps in steps(),
        concurrency in proptest::collection::vec(proptest::option::of(1..4_u32), 3),
        rates in proptest::collection::vec((proptest::option::of(1..200_u32), proptest::option::of(1..20_000_u32)), 3),
        after in 0..20_u64,
        seed in any::<u64>(),
    ) {
        let models: Vec<_> = (0..3).map(|index| {
            let limits = Limits {
                concurrency: concurrency[index].and_then(at_most),
                requests_per_minute: rates[index].0.and_then(at_most),
                tokens_per_minute: rates[index].1.and_then(at_most),
            };
            Arc::new(Endpoint { key: key(&format!("m{index}")), limits, fallback_after: secs(after) })
        }).collect();
        let mut checked = Checked {
            core: Core::new(jitter(seed)),
            now: Duration::ZERO,
            concurrency,
            waiting: BTreeSet::new(),
            calls: BTreeMap::new(),
            models,
        };
        for step in steps {
            checked.play(step);
            checked.check();
        }
        // From here on every call is answered at once, so all waiting requests are served in the end.
        for _ in 0..100_000 {
            if let Some(ticket) = checked.calls.keys().next().copied() {
                checked.calls.remove(&ticket);
                checked.core.on_answer(checked.now, ticket);
                checked.core.on_finish(checked.now, ticket);
            } else if let Some(at) = checked.core.wake_at() {
                checked.now = checked.now.max(at);
                checked.core.advance(checked.now);
            } else {
                break;
            }
            checked.check();
        }
        prop_assert!(checked.waiting.is_empty() && checked.calls.is_empty(), "{} wait", checked.waiting.len());
    }
}
