//! Simulation: boards with items, one provider and the core between them, on a virtual clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::deferral::Deferral;

use super::super::core::Core;
use super::super::types::{Endpoint, ModelKey, RejectionOutcome, Request, Ticket, Transition};
use super::{digest, jitter};

/// Reply of a provider to one request.
pub(super) enum Reply {
    /// Bytes arrive, and the call ends, after this time.
    Answer(Duration),
    /// The call fails after this time.
    Refuse(Duration, Deferral),
}

/// Request as the provider sees it.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) at: Duration,
    pub(super) board: usize,
    pub(super) item: usize,
    pub(super) key: ModelKey,
    /// Calls in flight, this one included.
    pub(super) in_flight: usize,
}

enum Event {
    Ask(Job),
    End(Ticket, Option<Deferral>),
}

#[derive(Clone, Copy)]
struct Job {
    board: usize,
    item: usize,
    attempt: u32,
    asked_at: Duration,
}

pub(super) struct World<'a> {
    pub(super) core: Core,
    pub(super) now: Duration,
    pub(super) chain: Vec<Arc<Endpoint>>,
    provider: Box<dyn FnMut(&Sent) -> Reply + 'a>,
    events: BTreeMap<(Duration, u64), Event>,
    sequence: u64,
    waiting: BTreeMap<Ticket, Job>,
    calls: BTreeMap<Ticket, Job>,
    /// Items of each board that are not requested yet.
    items: Vec<VecDeque<usize>>,
    pub(super) sent: Vec<Sent>,
    /// Board, item, and time of each item done.
    pub(super) done: Vec<(usize, usize, Duration)>,
    /// Total time that each board waited for admission.
    pub(super) waited: Vec<Duration>,
    /// Items that ran out of attempts.
    pub(super) lost: BTreeSet<usize>,
    pub(super) transitions: Vec<Transition>,
    pub(super) wakes: usize,
}

impl<'a> World<'a> {
    pub(super) fn new(chain: Vec<Arc<Endpoint>>, seed: u64, provider: impl FnMut(&Sent) -> Reply + 'a) -> Self {
        Self {
            core: Core::new(jitter(seed)),
            now: Duration::ZERO,
            chain,
            provider: Box::new(provider),
            events: BTreeMap::new(),
            sequence: 0,
            waiting: BTreeMap::new(),
            calls: BTreeMap::new(),
            items: Vec::new(),
            sent: Vec::new(),
            done: Vec::new(),
            waited: Vec::new(),
            lost: BTreeSet::new(),
            transitions: Vec::new(),
            wakes: 0,
        }
    }

    /// Adds a board with at most `concurrency` calls in flight; items are numbered from `first`.
    pub(super) fn board(&mut self, first: usize, items: usize, concurrency: usize) {
        let board = self.items.len();
        self.items.push((first..first + items).collect());
        self.waited.push(Duration::ZERO);
        for _ in 0..concurrency {
            self.begin_next(board);
        }
    }

    /// Runs until no event is left. Fails if that takes more events than `most`.
    pub(super) fn run(&mut self, most: usize) {
        for _ in 0..most {
            let event_at = self.events.first_key_value().map(|((at, _), _)| *at);
            let wake_at = self.core.wake_at();
            match (event_at, wake_at) {
                (None, None) => {
                    assert!(self.waiting.is_empty(), "{} requests wait and nothing wakes them", self.waiting.len());
                    return;
                }
                (event_at, Some(at)) if event_at.is_none_or(|event_at| at < event_at) => {
                    self.now = self.now.max(at);
                    self.wakes += 1;
                    self.core.advance(self.now);
                }
                _ => {
                    let ((at, _), event) = self.events.pop_first().expect("there is an event");
                    self.now = at;
                    self.handle(event);
                }
            }
            self.carry_out();
        }
        panic!("no end after {most} events, at {:?}", self.now);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ask(job) => {
                let (endpoint, fallbacks) = self.chain.split_first().expect("a chain has a model");
                let request = Request {
                    board: format!("board-{:03}", job.board).into(),
                    endpoint: Arc::clone(endpoint),
                    fallbacks: fallbacks.to_vec(),
                    tokens: 100,
                    prompt: digest(job.item),
                };
                let ticket = self.core.ask(self.now, request);
                self.waiting.insert(ticket, Job { asked_at: self.now, ..job });
            }
            Event::End(ticket, None) => {
                self.core.on_answer(self.now, ticket);
                self.core.on_finish(self.now, ticket);
                let job = self.calls.remove(&ticket).expect("the call is in flight");
                self.done.push((job.board, job.item, self.now));
                self.begin_next(job.board);
            }
            Event::End(ticket, Some(refusal)) => {
                let verdict = self.core.on_rejection(self.now, ticket, &refusal);
                self.core.on_finish(self.now, ticket);
                let job = self.calls.remove(&ticket).expect("the call is in flight");
                match verdict {
                    RejectionOutcome::Deferred { not_before } => self.schedule(self.now + not_before, Event::Ask(job)),
                    RejectionOutcome::Charged if job.attempt < 2 => {
                        self.schedule(self.now, Event::Ask(Job { attempt: job.attempt + 1, ..job }));
                    }
                    RejectionOutcome::Charged => {
                        self.lost.insert(job.item);
                        self.begin_next(job.board);
                    }
                }
            }
        }
    }

    fn begin_next(&mut self, board: usize) {
        if let Some(item) = self.items[board].pop_front() {
            self.schedule(self.now, Event::Ask(Job { board, item, attempt: 1, asked_at: self.now }));
        }
    }

    fn carry_out(&mut self) {
        let effects = self.core.take_effects();
        self.transitions.extend(effects.transitions);
        for admitted in effects.admitted {
            let job = self.waiting.remove(&admitted.ticket).expect("it waits");
            self.waited[job.board] += self.now - job.asked_at;
            self.calls.insert(admitted.ticket, job);
            let in_flight = self.calls.len();
            let key = admitted.endpoint.key.clone();
            let sent = Sent { at: self.now, board: job.board, item: job.item, key, in_flight };
            let (after, refusal) = match (self.provider)(&sent) {
                Reply::Answer(after) => (after, None),
                Reply::Refuse(after, refusal) => (after, Some(refusal)),
            };
            self.sent.push(sent);
            self.schedule(self.now + after, Event::End(admitted.ticket, refusal));
        }
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }
}
