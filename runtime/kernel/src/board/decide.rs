//! From an input to records: the outcome, the breaker's move, the schedule, the end if there is one.
//!
//! Every record is applied before the next is decided, so each decision sees what the ones before it did.

mod approval;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::apply::{Beside, outside, request_digest, request_token};
use super::tokens::Known;
use super::{Blob, Board, Effect, From, Input, Outcome, Proposal, ReplyBody, Step, object};
use crate::blueprint::{Action, AgentKind, Freshness, Restart, Unit};
use crate::breaker::{Branch, Change, Move, Reason};
use crate::digest::Digest;
use crate::event::events;
use crate::failure::FailureCode;
use crate::freshness;
use crate::id::{InvocationId, RuleName, Seq, Timestamp, Token, Version, WorkerName};
use crate::invariant;
use crate::ledger::Usage;
use crate::pipeline::{self, Made, Reply};
use crate::plan::WakesOn;
use crate::planted::{self, Bug};
use crate::record::{
    ADMINISTRATOR, Answer, Attempt, Author, Body, Breaker, Budget, Cause, Committed, Empty, End, Ended, Epoch,
    Expanded, Failed, Invoked, Late, NoOp, Record, Rejected, Reserved, Resource, Scheduled, Signal, Skipped, Snapshot,
    Steered, Trigger,
};
use crate::rejection::{Code, Rejection, Stage, Violation};
use crate::scheduler::{self, Next, Occasion, Open, Wish};
use crate::shown::Shown;
use crate::snapshot::LAYOUT;
use crate::state::State;
use crate::tree::{At, Node, Since};
use crate::view::{self, Prompt};

/// More commits than that have no stamp of their own, whatever the blueprint allows.
const COMMITS_MAX: u64 = At::MAX as u64 - 1;

/// How often an invocation's call may be lost with a process before it is given up: it may be what ends the process.
const LOST_MAX: u32 = 8;

impl Board {
    /// The only way anything of a board changes. `at` is now; recorded time never goes back.
    pub fn step(&mut self, at: Timestamp, input: Input) -> Step {
        let mut step = Step::default();
        let mut draft = Draft { at: at.max(self.last_at), board: self, step: &mut step, ending: None };
        draft.decide(input);
        step
    }

    /// What begins with the board.
    pub(super) fn start(&mut self, at: Timestamp, step: &mut Step) {
        let mut draft = Draft { at, board: self, step, ending: None };
        draft.consider_done(None);
        draft.schedule(&Occasion::Start);
        draft.go_on();
    }
}

/// A step in the making.
struct Draft<'a> {
    at: Timestamp,
    board: &'a mut Board,
    step: &'a mut Step,
    /// How the board ends with this step, if it does.
    ending: Option<Ended>,
}

impl Draft<'_> {
    fn decide(&mut self, input: Input) {
        match input {
            Input::Propose(proposal) => self.propose(proposal),
            Input::AgentFailed { invocation, attempt, code, message, usage } => {
                self.agent_failed(invocation, attempt, code, message, usage);
            }
            Input::Tick => self.tick(),
            Input::Signal { name, value, token } => self.signal(Signal { name, value, token }),
            Input::Pause { token } => self.steer(Body::Paused(Steered { token }), !self.board.paused),
            Input::Resume { token } => self.steer(Body::Resumed(Steered { token }), self.board.paused),
            Input::Answer { of, by, digest, agrees, reason, text } => {
                self.answer(Answer { of, by, digest, agrees, reason, text });
            }
            Input::Cancel if !self.is_over() => self.end_from_outside(End::Cancelled, Cause::Cancelled),
            Input::Meltdown if self.board.ended.is_none() => self.end_from_outside(End::Failed, Cause::Meltdown),
            Input::Cancel | Input::Meltdown => {}
            Input::Snapshot { of, digest } => self.snapshot(of, digest),
            Input::Amend { path, value } => self.amend(path, value),
            Input::Redact(redacted) => drop(self.push(Body::Redacted(redacted))),
            Input::TakeOver { epoch, writer } => self.take_over(epoch, writer),
        }
    }

    // Inputs, one function each.

    fn propose(&mut self, proposal: Proposal) {
        let Proposal { from, worker, reply, usage } = proposal;
        let usage = usage.map(Usage::bounded);
        let token = match &from {
            From::Attempt { invocation, attempt } => Some(Token::of(*invocation, *attempt)),
            From::Direct { token, .. } => token.as_ref().map(|token| outside(&worker, token)),
        };
        let known = match &token {
            Some(token) => self.board.tokens.look_up(token, || reply.digest(&self.board.hasher), self.at),
            None => Known::New,
        };
        match known {
            Known::Same(verdict) => {
                self.step.outcome = Some(Outcome::Duplicate(verdict));
                return;
            }
            Known::Other => {
                let message = "the token was used before, with another patch";
                return self.refuse_late(from, worker, &reply, usage, Code::TokenConflict, message);
            }
            Known::New => {}
        }
        let (by, branch) = match from {
            From::Attempt { invocation, attempt } => {
                let open = self.board.scheduler.open().get(&invocation);
                let Some(open) = open.filter(|open| open.calling && open.attempt == attempt) else {
                    let message = "the invocation is over; what it was asked for is not wanted any more";
                    return self.refuse_late(from, worker, &reply, usage, Code::InvocationClosed, message);
                };
                if open.queued.branch.worker != worker {
                    let message = "the invocation is another worker's";
                    return self.refuse_late(from, worker, &reply, usage, Code::WrongWorker, message);
                }
                let usage = usage.or_else(|| self.estimate(open, &reply));
                (author(open, usage), Some(open.queued.branch.clone()))
            }
            From::Direct { .. } if self.is_over() => {
                let message = "the board has ended";
                return self.refuse_late(from, worker, &reply, usage, Code::BoardNotRunning, message);
            }
            From::Direct { token, base } => {
                let base = base.map_or(self.board.version(), |base| base.min(self.board.version()));
                (Author { worker, attempt: None, token, base, usage, approval: None }, None)
            }
        };
        let board = &*self.board;
        let asked = by.attempt.is_some().then(|| board.plan.seats.get(&by.worker)).flatten();
        let interface = asked.map(|seat| seat.interface).unwrap_or_default();
        let verdict = self.in_context(&by, |context| {
            pipeline::judge(&board.plan, &board.state, &by.worker, &reply, interface, context)
        });
        self.conclude(by, branch, &reply, verdict);
    }

    /// What the pipeline says of a proposal now.
    fn in_context(
        &self,
        by: &Author,
        judge: impl FnOnce(&freshness::Context<'_>) -> pipeline::Verdict,
    ) -> pipeline::Verdict {
        let board = &*self.board;
        let reservations = board.reservations.at(self.at);
        let invocation = by.attempt.as_ref().map(|attempt| attempt.invocation);
        let open = invocation.and_then(|invocation| board.scheduler.open().get(&invocation));
        judge(&freshness::Context {
            base: by.base,
            basis: open.map(|open| &*open.basis),
            invocation,
            expansions_left: open.map_or(0, |open| open.queued.expansion.left()),
            reservations: &reservations,
            commits: &board.commits,
        })
    }

    /// Records what comes of a proposal, and what follows.
    fn conclude(&mut self, by: Author, branch: Option<Branch>, reply: &ReplyBody, verdict: pipeline::Verdict) {
        match verdict {
            pipeline::Verdict::Accepted(accepted) => match &accepted.approval {
                Some(approval) if by.approval.is_none() => {
                    let approval = approval.clone();
                    self.ask(by, branch, accepted.reply, &approval);
                }
                Some(_) | None => self.commit(by, branch.as_ref(), accepted, reply),
            },
            pipeline::Verdict::NoOp(reply) if reply.clarify.is_some() => {
                // The pipeline lets nobody ask who has nobody to ask.
                let asked = self.board.plan.seats.get(&by.worker).and_then(|seat| seat.worker.clarify.clone());
                if let Some(asked) = asked {
                    self.ask(by, branch, reply, &asked);
                }
            }
            pipeline::Verdict::NoOp(Reply { patch, intent, expand, .. }) if !expand.is_empty() => {
                let follows = self.asking(by.attempt.as_ref().map(|attempt| attempt.invocation));
                let seq = self.push(Body::Expanded(Expanded { by, patch, intent, expand: expand.clone() }));
                self.step.outcome = Some(Outcome::Expanded { seq });
                self.move_breakers(branch.as_ref());
                self.go_on_with(follows, &expand);
            }
            pipeline::Verdict::NoOp(reply) => {
                let seq = self.push(Body::NoOp(NoOp {
                    by,
                    patch: reply.patch,
                    intent: reply.intent,
                    written: reply.written,
                }));
                self.step.outcome = Some(Outcome::NoOp { seq });
                self.move_breakers(branch.as_ref());
                self.schedule(&Occasion::Completed);
            }
            pipeline::Verdict::Rejected { rejection, contested } => {
                self.reject(by, branch, reply, rejection, contested);
            }
        }
        self.go_on();
    }

    fn reject(
        &mut self,
        by: Author,
        branch: Option<Branch>,
        reply: &ReplyBody,
        rejection: Rejection,
        contested: Vec<jsonptr::PointerBuf>,
    ) {
        let invocation = by.attempt.as_ref().map(|attempt| attempt.invocation);
        let (stage, code) = (rejection.stage, rejection.code);
        let is_final = invocation.is_some_and(|invocation| match (stage, code) {
            (Stage::Freshness, _) => self.is_last_conflict(invocation),
            // Who did not answer once will hardly answer the next attempt.
            (_, Code::ApprovalExpired) => true,
            _ => self.is_last(invocation),
        });
        let worker = by.worker.clone();
        let body = Rejected { by, stage, code, is_final, rejection: rejection.clone(), reply: reply.text() };
        let seq = self.push(Body::Rejected(Box::new(body)));
        self.step.outcome = Some(Outcome::Rejected { seq, rejection });
        if let Some(invocation) = invocation.filter(|_| !is_final) {
            self.reserve(invocation, worker, contested);
        }
        self.move_breakers(branch.as_ref());
    }

    fn commit(&mut self, by: Author, branch: Option<&Branch>, accepted: pipeline::Accepted, body: &ReplyBody) {
        let pipeline::Accepted { mut reply, made, posted, .. } = accepted;
        if let (Some(posted), Value::Array(ops)) = (posted, &mut reply.patch) {
            ops.push(posted);
            reply.written = Some(body.text());
        }
        let worker = by.worker.clone();
        let before: State = self.board.state.clone();
        let wakes = self.board.plan.rules.iter().any(|rule| matches!(rule.wakes_on, WakesOn::Event { .. }));
        let (changes, patch) = match wakes {
            true => (made.changes.clone(), reply.patch.clone()),
            // Nobody looks at them.
            false => (Vec::new(), Value::Null),
        };
        let version = self.board.version().next();
        let state = made.state.digest();
        let Reply { patch: mut stored, intent, expand, written, .. } = reply;
        if planted::is(Bug::ShortRecord) {
            stored.as_array_mut().filter(|ops| ops.len() > 1).map(Vec::pop);
        }
        let invocation = by.attempt.as_ref().map(|attempt| attempt.invocation);
        let follows = self.asking(invocation.filter(|_| !expand.is_empty()));
        let body = Committed { by, version, state, patch: stored, intent, expand: expand.clone(), written };
        let seq = self.push_made(Body::Committed(body), Some(made));
        self.step.outcome = Some(Outcome::Committed { seq, version, state });
        self.move_breakers(branch);
        self.consider_done(Some(before.at()));
        let events = events(&changes);
        self.schedule(&Occasion::Commit {
            events: &events,
            patch: &patch,
            before: before.root(),
            worker: &worker,
            version,
        });
        if expand.is_empty() {
            self.schedule(&Occasion::Completed);
        } else {
            self.go_on_with(follows, &expand);
        }
    }

    fn agent_failed(
        &mut self,
        invocation: InvocationId,
        attempt: u32,
        code: FailureCode,
        message: String,
        usage: Option<Usage>,
    ) {
        let open = self.board.scheduler.open().get(&invocation);
        // A failure of an attempt that is over changes nothing: it was settled when it ended.
        let Some(open) = open.filter(|open| open.calling && open.attempt == attempt) else { return };
        let branch = open.queued.branch.clone();
        let by = author(open, usage.map(Usage::bounded).or_else(|| cost_of(code)));
        let is_final = self.is_last(invocation) || !code.is_worth_another_attempt();
        self.push(Body::Failed(Failed { by, code, is_final, message }));
        self.move_breakers(Some(&branch));
        self.go_on();
    }

    fn tick(&mut self) {
        let overdue = self.board.scheduler.overdue(self.at);
        let expired = self.board.expired(self.at);
        let running = self.board.running_ms.saturating_add(self.at.ms_since(self.board.last_at));
        let wall_is_over = self.board.is_at_work() && running >= self.board.plan.blueprint.limits.wall.as_ms();
        let is_freed = !self.board.paused && self.board.waits_until().is_some_and(|until| until <= self.at);
        let due: BTreeMap<RuleName, Timestamp> = match self.board.paused {
            true => BTreeMap::new(),
            false => {
                let due = self.board.scheduler.due(&self.board.plan).filter(|(_, due)| *due <= self.at);
                due.map(|(rule, due)| (rule.name.clone(), due)).collect()
            }
        };
        let is_due = !overdue.is_empty() || !expired.is_empty() || !due.is_empty() || wall_is_over || is_freed;
        if self.board.ended.is_some() || !is_due {
            return;
        }
        self.push(Body::Tick(Empty {}));
        for invocation in overdue {
            let Some(open) = self.board.scheduler.open().get(&invocation) else { continue };
            let branch = open.queued.branch.clone();
            let is_final = self.is_last(invocation);
            let by = author(open, None);
            let seconds = self.board.plan.seats[&branch.worker].worker.limits.timeout;
            let message = format!("no answer within {seconds}");
            self.step.effects.push(Effect::Cancel { invocation, worker: branch.worker.clone() });
            self.push(Body::Failed(Failed { by, code: FailureCode::Timeout, is_final, message }));
            self.move_breakers(Some(&branch));
        }
        for question in expired {
            self.expire(question);
        }
        if !due.is_empty() {
            self.schedule(&Occasion::Due(&due));
        }
        self.go_on();
    }

    fn signal(&mut self, signal: Signal) {
        let body = Body::Signal(signal.clone());
        if self.is_repeated(&body) || self.is_over() {
            return;
        }
        let seq = self.push(body);
        self.schedule(&Occasion::Signal { name: &signal.name, value: &signal.value, seq });
        self.go_on();
    }

    /// A pause or its end. One with a token is recorded even if it changes nothing, or its repetition would be a new one.
    fn steer(&mut self, body: Body, changes: bool) {
        if !self.is_repeated(&body) && !self.is_over() && (changes || request_token(&body).is_some()) {
            self.push(body);
            self.go_on();
        }
    }

    /// Whether a request with the token of this one was heard before; then its outcome is that one's, or a refusal.
    fn is_repeated(&mut self, body: &Body) -> bool {
        let Some(token) = request_token(body) else { return false };
        let request = || request_digest(&self.board.hasher, body);
        self.step.outcome = match self.board.tokens.look_up(&token, request, self.at) {
            Known::New => return false,
            Known::Same(verdict) => Some(Outcome::Duplicate(verdict)),
            Known::Other => {
                let message = "the token was used before, for another request";
                let violation = Violation::new(Code::TokenConflict, "", message);
                Some(Outcome::Refused(Rejection::new(Stage::Authorization, vec![violation])))
            }
        };
        true
    }

    /// Nothing follows from it. A board that has ended grows no more, and needs none.
    fn snapshot(&mut self, of: Seq, digest: Digest) {
        if self.board.ended.is_none() && of <= self.board.head.0 {
            self.push(Body::Snapshot(Snapshot { of, layout: LAYOUT, digest }));
        }
    }

    /// What an administrator writes. What it wakes is queued and not called: the board may be at rest.
    fn amend(&mut self, path: String, value: Value) {
        let patch = json!([{"op": "replace", "path": path, "value": value}]);
        let accepted = match self.is_over() {
            true => {
                let violation = Violation::new(Code::BoardNotRunning, "", "the board has ended");
                Err(Rejection::new(Stage::Authorization, vec![violation]))
            }
            false => pipeline::amend(&self.board.plan, &self.board.state, patch),
        };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(rejection) => {
                self.step.outcome = Some(Outcome::Refused(rejection));
                return;
            }
        };
        let worker = WorkerName::from(ADMINISTRATOR);
        let base = self.board.version();
        let by = Author { worker, attempt: None, token: None, base, usage: None, approval: None };
        let body = accepted.reply.to_body();
        self.commit(by, None, accepted, &body);
        if self.ending.is_some() {
            self.go_on();
        }
    }

    fn end_from_outside(&mut self, end: End, cause: Cause) {
        self.ending = Some(Ended { end, cause });
        self.go_on();
    }

    fn take_over(&mut self, epoch: u64, writer: String) {
        if epoch <= self.board.epoch {
            return;
        }
        self.push(Body::Epoch(Epoch { epoch, writer }));
        let mut lost: Vec<_> = self.board.scheduler.open().values().filter(|open| open.calling).cloned().collect();
        if planted::is(Bug::LossOverlooked) && lost.len() > 1 {
            lost.pop();
        }
        for open in lost {
            let worker = &open.queued.branch.worker;
            let seat = &self.board.plan.seats[worker].worker;
            let keeps_state = seat.agent == AgentKind::Command && seat.restart == Some(Restart::Fail);
            // A process outside cannot have ended this one, and may wait through many restarts.
            let is_final = keeps_state || (open.lost >= LOST_MAX && seat.agent != AgentKind::Remote);
            let message = "the process ended while the call was under way".to_owned();
            let by = author(&open, None);
            self.push(Body::Failed(Failed { by, code: FailureCode::Lost, is_final, message }));
            self.move_breakers(Some(&open.queued.branch));
        }
        self.go_on();
    }

    // Parts that inputs share.

    /// Records a proposal that nobody waits for.
    fn refuse_late(
        &mut self,
        from: From,
        worker: WorkerName,
        reply: &ReplyBody,
        usage: Option<Usage>,
        code: Code,
        message: &str,
    ) {
        let (invocation, attempt, token) = match from {
            From::Attempt { invocation, attempt } => (Some(invocation), Some(attempt), None),
            From::Direct { token, .. } => (None, None, token),
        };
        let reply = reply.text();
        let seq = self.push(Body::Late(Late { worker, invocation, attempt, token, code, usage, reply }));
        let rejection = Rejection::new(Stage::Authorization, vec![Violation::new(code, "", message)]);
        self.step.outcome = Some(Outcome::Rejected { seq, rejection });
    }

    /// Keeps what others were faster at for the next try.
    fn reserve(&mut self, invocation: InvocationId, worker: WorkerName, contested: Vec<jsonptr::PointerBuf>) {
        let places = self.board.reservations.at(self.at).vacant(contested, invocation);
        if !places.is_empty() {
            let decisions = self.board.breaker.decisions() + freshness::DECISIONS_MAX;
            let until = self.at.plus_ms(freshness::LASTS_MS);
            let places = places.iter().map(ToString::to_string).collect();
            self.push(Body::Reserved(Reserved { invocation, worker, decisions, until, places }));
        }
    }

    /// Moves the breaker of the branch an outcome belongs to, and those whose cooldown is over with it.
    fn move_breakers(&mut self, branch: Option<&Branch>) {
        let plan = Arc::clone(&self.board.plan);
        if let Some(branch) = branch
            && let Some(due) = self.board.breaker.due(&plan.blueprint.circuit, branch)
        {
            self.trip(branch, due);
        }
        for branch in self.board.breaker.cooled(&plan.blueprint.circuit) {
            self.trip(&branch, Move { reason: Reason::Cooldown, action: None, change: Change::HalfOpened });
        }
    }

    fn trip(&mut self, branch: &Branch, due: Move) {
        let Move { reason, action, change } = due;
        if change == Change::Opened && reason != Reason::Budget {
            for invocation in self.board.open_of(branch) {
                self.step.effects.push(Effect::Cancel { invocation, worker: branch.worker.clone() });
            }
        }
        let (rule, worker) = (branch.rule.clone(), branch.worker.clone());
        self.push(Body::Breaker(Breaker { rule: rule.clone(), worker: worker.clone(), change, reason }));
        match action {
            Some(Action::StopBoard) => {
                let cause = match reason {
                    Reason::Rejections => Cause::Rejections,
                    Reason::NoOps => Cause::NoOps,
                    Reason::Crashes => Cause::Crashes,
                    Reason::Cycles => Cause::Cycles,
                    Reason::Budget => Cause::Budget,
                    Reason::Cooldown | Reason::ProbeCommitted | Reason::ProbeFailed => Cause::Breaker,
                };
                self.ending = self.ending.or(Some(Ended { end: End::Stopped, cause }));
            }
            Some(Action::Wake(woken)) => {
                let woken = Branch { rule: None, worker: woken };
                self.enqueue(woken, Trigger::Breaker { rule, worker, reason });
            }
            Some(Action::ReduceView | Action::StopBranch) | None => {}
        }
    }

    /// Queues what an occasion gives rise to.
    fn schedule(&mut self, occasion: &Occasion<'_>) {
        if self.ending.is_some() {
            return;
        }
        let board = &*self.board;
        let wishes = scheduler::wanted(&board.plan, &board.scheduler, board.state.root(), occasion);
        for wish in wishes {
            match wish {
                Wish::Invoke { rule, worker, trigger } => {
                    self.enqueue(Branch { rule: Some(rule), worker }, trigger);
                }
                Wish::Skip { .. } if planted::is(Bug::SilentRecord) => {}
                Wish::Skip { rule, message } => drop(self.push(Body::Skipped(Skipped { rule: Some(rule), message }))),
            }
        }
    }

    fn enqueue(&mut self, branch: Branch, trigger: Trigger) {
        let limit = match self.board.plan.seats.get(&branch.worker) {
            Some(seat) => seat.worker.limits.invocations,
            None => 0,
        };
        if self.board.scheduler.scheduled_for(&branch.worker) < limit {
            let invocation = self.board.scheduler.next_id();
            let Branch { rule, worker } = branch;
            self.push(Body::Scheduled(Scheduled {
                invocation,
                rule,
                worker,
                follows: None,
                trigger,
                expand: Vec::new(),
            }));
        } else if !self.board.exhausted.contains(&branch.worker) {
            // Said once for each worker. What it was scheduled for before, it still does.
            self.run_short(&branch, None, Resource::Invocations, 1, 0);
        }
    }

    /// What is queued as an open invocation now, which is about to ask to be shown more.
    fn asking(&self, invocation: Option<InvocationId>) -> Option<scheduler::Queued> {
        Some(self.board.scheduler.open().get(&invocation?)?.queued.clone())
    }

    /// Queues what an invocation goes on in, with what it asked to be shown.
    fn go_on_with(&mut self, asked: Option<scheduler::Queued>, expand: &[String]) {
        let Some(asked) = asked.filter(|_| self.ending.is_none()) else { return };
        let scheduler::Queued { invocation: follows, branch: Branch { rule, worker }, trigger, expansion, .. } = asked;
        let (invocation, expand) = (self.board.scheduler.next_id(), expansion.and(expand));
        self.push(Body::Scheduled(Scheduled { invocation, rule, worker, follows: Some(follows), trigger, expand }));
    }

    fn run_short(
        &mut self,
        branch: &Branch,
        invocation: Option<InvocationId>,
        resource: Resource,
        needed: u64,
        left: u64,
    ) {
        let (rule, worker) = (branch.rule.clone(), branch.worker.clone());
        self.push(Body::Budget(Budget { rule, worker, invocation, resource, needed, left }));
        let action = match &self.board.plan.blueprint.circuit.budget.then {
            // A worker whose own budget is used up cannot be what is woken about it.
            Action::Wake(woken) if *woken == branch.worker => Action::StopBranch,
            action => action.clone(),
        };
        let stops_nothing_under_way = matches!(action, Action::StopBranch | Action::ReduceView);
        if resource == Resource::Invocations && stops_nothing_under_way {
            // The limit itself keeps further invocations out.
            return;
        }
        let due = self.board.breaker.move_for(branch, Reason::Budget, action);
        self.trip(branch, due);
    }

    /// Whether the board is done, by its own condition.
    /// It was not at version `since`, if there was one before.
    fn consider_done(&mut self, since: Option<At>) {
        let plan = Arc::clone(&self.board.plan);
        let Some(done) = &plan.done else { return };
        let state = self.board.state.clone();
        let root = state.root();
        let now = since.map_or(Since::anew(root), |since| Since::new(root, 0, since));
        if !invariant::may_be_done(done, &now) {
            return;
        }
        let request = root.child("request").unwrap_or(&Node::Null);
        let variables = [("request", request.into()), ("state", root.into())];
        match done.evaluate(&variables.into_iter().collect()) {
            Ok(true) => self.ending = Some(Ended { end: End::Done, cause: Cause::Done }),
            Ok(false) => {}
            Err(error) => drop(self.push(Body::Skipped(Skipped { rule: None, message: error.to_string() }))),
        }
    }

    /// What follows every input that changed something: limits, dispatches, the end, the next alarm.
    fn go_on(&mut self) {
        // What has ended does not end again, unless it stands still and somebody ends it for good.
        if self.board.ended.is_some() && self.ending.is_none() {
            return;
        }
        let limits = &self.board.plan.blueprint.limits;
        if self.ending.is_none() && self.board.version().0 >= limits.commits.min(COMMITS_MAX) {
            self.ending = Some(Ended { end: End::Stopped, cause: Cause::Commits });
        }
        if self.ending.is_none() && self.board.running_ms >= limits.wall.as_ms() {
            self.ending = Some(Ended { end: End::Stopped, cause: Cause::Wall });
        }
        while self.ending.is_none() && !self.board.paused {
            let board = &*self.board;
            let concurrency = board.plan.blueprint.concurrency;
            let is_held_up = |open: &Open| board.reservations.until(&open.awaits, open.queued.invocation).is_some();
            let waits = |open: &Open| is_held_up(open) && !planted::is(Bug::Haste);
            let next = board.scheduler.next(concurrency, waits, |branch| board.breaker.admits(branch));
            let Some(next) = next else { break };
            if !self.dispatch(next) {
                break;
            }
        }
        if let Some(ended) = self.ending.or_else(|| self.standstill()) {
            for (invocation, open) in self.board.scheduler.open().clone() {
                let worker = open.queued.branch.worker;
                self.step.effects.push(Effect::Cancel { invocation, worker });
            }
            self.push(Body::Ended(ended));
            self.step.effects.push(Effect::Ended(ended));
        }
        if let Some(at) = self.board.wake_at() {
            self.step.effects.push(Effect::WakeAt(at));
        }
    }

    /// How a board ends that nothing moves any more. One without rules is driven from outside and never stands still, and
    /// neither does one that a schedule will wake.
    fn standstill(&self) -> Option<Ended> {
        let board = &*self.board;
        let is_idle = board.scheduler.open().is_empty() && board.pending.is_empty();
        let is_idle = is_idle || (planted::is(Bug::Impatience) && board.waits_for_persons());
        let idle = board.ended.is_none() && !board.paused && is_idle;
        if !idle || board.plan.rules.is_empty() || board.scheduler.due(&board.plan).next().is_some() {
            return None;
        }
        // Whatever is queued now waits for a breaker, and without outcomes no cooldown passes.
        let stopped = board.breaker.any_open() || !board.scheduler.queue().is_empty();
        Some(if board.short {
            Ended { end: End::Stopped, cause: Cause::Exhausted }
        } else if stopped {
            Ended { end: End::Stopped, cause: Cause::Breaker }
        } else {
            let cause = if board.gave_up { Cause::GaveUp } else { Cause::NothingToDo };
            Ended { end: End::Quiescent, cause }
        })
    }

    /// Starts an attempt; false if it has to wait for what calls under way will leave of the budgets.
    fn dispatch(&mut self, next: Next) -> bool {
        let Next { queued, attempt } = next;
        let branch = queued.branch.clone();
        let board = &*self.board;
        let seat = &board.plan.seats[&branch.worker];
        let worker = Arc::clone(&seat.worker);
        let budget = match board.breaker.is_reduced(&branch) {
            true => (worker.view.budget / 2).max(seat.fixed.minimum()).min(worker.view.budget),
            false => worker.view.budget,
        };
        let feedback = board.feedback_of(&branch.worker);
        let (feedback, shown): (Vec<Seq>, Vec<Value>) = feedback.into_iter().unzip();
        let view = view::compile(&view::Inputs {
            worker: &worker,
            contract: &seat.contract,
            fixed: &seat.fixed,
            state: &board.state,
            trigger: &self.shown_trigger(&queued),
            feedback: &shown,
            expand: &queued.expansion.places,
            may_expand: queued.expansion.left() > 0,
            commits: &board.commits,
            budget,
        });
        let prompt = Prompt::new(&worker, &view);
        let reserved = match worker.agent {
            AgentKind::Llm => prompt.estimated_tokens() + u64::from(worker.limits.reply_tokens),
            _ => 0,
        };
        match board.ledger.afford(&board.plan.blueprint, &branch, reserved) {
            Ok(()) => {}
            // Once the calls under way are settled there may be enough: nothing is decided before.
            Err(short) if short.may_be_freed => return false,
            Err(short) => {
                let invocation = Some(queued.invocation);
                self.run_short(&branch, invocation, short.resource, short.needed, short.left);
                return true;
            }
        }
        let occurrence = board.scheduler.attempts_of(&branch.worker);
        let timeout_ms = worker.limits.timeout.as_ms();
        let invoked = Invoked {
            invocation: queued.invocation,
            attempt,
            worker: branch.worker.clone(),
            cause: queued.cause,
            base: board.version(),
            budget,
            unit: worker.view.unit,
            tokenizer: (worker.view.unit == Unit::Tokens).then(|| view::TOKENIZER.to_owned()),
            compiler: view::COMPILER,
            feedback,
            view: view.hash(),
            prompt: prompt.hash(),
            reserved,
            deadline: self.at.plus_ms(timeout_ms),
            reads: view.reads.clone(),
            members: match worker.freshness {
                Freshness::Members => view.members.clone(),
                Freshness::None | Freshness::Target | Freshness::Reads => Vec::new(),
            },
        };
        self.step.blobs.push(Blob { hash: invoked.view, text: view.text.into() });
        self.step.blobs.push(Blob { hash: invoked.prompt, text: prompt.to_json().into() });
        let hash = invoked.view;
        self.push(Body::Invoked(invoked));
        let basis = Arc::clone(&self.board.scheduler.open()[&queued.invocation].basis);
        let may_clarify = worker.clarify.is_some() && queued.expansion.left() > 0;
        let shown = Shown::new(Arc::clone(&self.board.plan), branch.worker.clone(), basis, view.may_expand);
        let shown = shown.map(|shown| shown.with_question(may_clarify));
        self.step.effects.push(Effect::Call {
            invocation: queued.invocation,
            attempt,
            worker: branch.worker,
            view: hash,
            prompt: Arc::new(prompt),
            shown: Arc::new(shown.expect("a seat was invoked")),
            timeout_ms,
            occurrence,
        });
        true
    }

    /// What woke a worker, as it may be shown: no place that it may not read.
    fn shown_trigger(&self, queued: &scheduler::Queued) -> Value {
        let mut shown = match &queued.trigger {
            Trigger::Start => object([("kind", json!("start"))]),
            Trigger::After => object([("kind", json!("after"))]),
            // What is shown depends on no time.
            Trigger::Every { .. } => object([("kind", json!("every"))]),
            Trigger::Signal { name, .. } => {
                let value = queued.value.clone().unwrap_or(Value::Null);
                object([("kind", json!("signal")), ("name", json!(name)), ("value", value)])
            }
            Trigger::Event { op, path, .. } => {
                let mut shown = object([("kind", json!("event")), ("op", json!(op))]);
                let readable = jsonptr::PointerBuf::parse(path.as_str())
                    .is_ok_and(|place| self.board.plan.seats[&queued.branch.worker].contract.may_read(&place));
                if readable {
                    shown.insert("path".to_owned(), json!(path));
                }
                shown
            }
            Trigger::Breaker { rule, worker, reason } => object([
                ("kind", json!("breaker")),
                ("stopped_rule", json!(rule)),
                ("stopped_worker", json!(worker)),
                ("reason", json!(reason)),
            ]),
        };
        if let Some(rule) = &queued.branch.rule {
            shown.insert("rule".to_owned(), json!(rule));
        }
        if !queued.expansion.answers.is_empty() {
            shown.insert("answers".to_owned(), json!(queued.expansion.answers));
        }
        Value::Object(shown)
    }

    /// Whether an invocation has no attempt after the current one. Those lost with a process do not count.
    fn is_last(&self, invocation: InvocationId) -> bool {
        let Some(open) = self.board.scheduler.open().get(&invocation) else { return false };
        let limits = &self.board.plan.seats[&open.queued.branch.worker].worker.limits;
        let attempts = limits.attempts + u32::from(planted::is(Bug::OneAttemptMore));
        open.attempt.saturating_sub(open.lost).saturating_sub(open.conflicts) >= attempts
    }

    /// Whether an invocation is given up with one more refusal because others had been faster.
    fn is_last_conflict(&self, invocation: InvocationId) -> bool {
        let Some(open) = self.board.scheduler.open().get(&invocation) else { return false };
        open.conflicts.saturating_add(1) >= self.board.plan.seats[&open.queued.branch.worker].worker.limits.conflicts
    }

    /// Whether the board has ended for good.
    fn is_over(&self) -> bool {
        self.board.ended.is_some_and(Ended::is_final)
    }

    /// The cost of a language model's reply whose provider does not say.
    fn estimate(&self, open: &Open, reply: &ReplyBody) -> Option<Usage> {
        let worker = &self.board.plan.seats[&open.queued.branch.worker].worker;
        (worker.agent == AgentKind::Llm).then(|| Usage {
            prompt: open.reserved.saturating_sub(u64::from(worker.limits.reply_tokens)),
            completion: (reply.text().chars().count() as u64).div_ceil(4),
            cached: 0,
            estimated: true,
        })
    }

    fn push(&mut self, body: Body) -> Seq {
        self.push_made(body, None)
    }

    /// Seals a record, applies it and adds it to the step.
    fn push_made(&mut self, body: Body, made: Option<Made>) -> Seq {
        let (last, hash) = self.board.head;
        let record = Record::seal(hash, last.next(), self.at, &body, &self.board.hasher);
        let applied = self.board.apply(record.seq, self.at, &body, Beside { made, ..Beside::default() });
        applied.expect("a record is decided so that it applies");
        self.board.head = (record.seq, record.hash);
        self.step.records.push(record);
        self.board.head.0
    }
}

fn author(open: &Open, usage: Option<Usage>) -> Author {
    let attempt =
        Attempt { invocation: open.queued.invocation, number: open.attempt, cause: open.queued.cause, view: open.view };
    let base: Version = open.base;
    Author {
        worker: open.queued.branch.worker.clone(),
        attempt: Some(attempt),
        token: None,
        base,
        usage,
        approval: None,
    }
}

/// What a failed call cost, where its kind says so. Nothing is known of others: they stay charged at what was reserved.
fn cost_of(code: FailureCode) -> Option<Usage> {
    use FailureCode as F;
    match code {
        F::Unreachable | F::NotConfigured | F::CassetteMiss | F::Refused | F::RateLimited => Some(Usage::default()),
        F::Timeout | F::Truncated | F::Empty | F::Protocol | F::Crashed | F::LeaseExpired | F::Lost => None,
    }
}
