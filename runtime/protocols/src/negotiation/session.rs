//! Advances a negotiation: a function of its events, the policy and the time.

use std::collections::BTreeSet;

use serde_json::json;

use super::event::{content_of, tokens_of};
use super::report::{
    DecidedBy, DecisionReport, Diff, EvaluationReport, HumanAnswer, Outcome, RecordedEvaluation, RejectedEvent, Report,
    Version,
};
use super::state::{
    Addition, Advance, AdvanceInput, EffectivePolicy, OpenRequest, Participants, Question, RoundStart, Session,
};
use super::stop_rules::{self, HumanChoice, NOISE, RoundAction, RoundSummary};
use super::{
    Check, Checks, Draft, EVENTS_MAX, Evaluation, Event, NegotiationCode, NegotiationError, Phase, Policy, Profile,
    StopReason, blend, confidence, delta, deterministic, effective_policy, messages, patch,
};
use patchboard_kernel::id::Timestamp;

/// Events reserved for the end: a decision or an abort, and one late event.
const RESERVED: usize = 2;
/// Maximum number of reasons reported for an invalid draft.
const PROBLEMS_MAX: usize = 20;

/// Returns the next additions to a negotiation. After they are added, no further step is possible until new input: an
/// event, a round's timeout or a person's answer.
///
/// Opens the negotiation if requested, derives the policy, and judges drafts and evaluations in the order of events.
/// Then it ends the negotiation or begins another round ([`next`](super::next_action)). An `abort` by another sender is
/// reported. Fails with [`NegotiationCode::BadSetup`].
pub fn advance(
    session: &Session,
    seats: &Participants,
    request: &OpenRequest,
    woken: &AdvanceInput,
) -> Result<Advance, NegotiationError> {
    let setup = &session.setup;
    if seats.parties.is_empty() {
        let message = "there is no party, so nobody could make a draft";
        return Err(NegotiationError::new(NegotiationCode::BadSetup, message));
    }
    let checks = Checks::compile(setup.schema.as_ref(), &setup.examples)?;
    let (session, participants, now) = (session.clone(), seats, woken.now);
    let (evaluations, added) = (Vec::new(), Vec::new());
    let mut work = SessionUpdate { session, checks, participants, now, opened: None, evaluations, added };
    let mut phase = work.judge();
    if let (Phase::New, Some(topic)) = (phase, &request.topic) {
        let (corr, profile) = (request.corr.clone().unwrap_or_default(), request.profile.clone());
        work.add_event(Event::Open { ts: json!(work.now), topic: topic.clone(), corr, profile });
        phase = Phase::Opened;
    }
    if phase == Phase::Opened {
        phase = work.set_policy(request)?;
    }
    let ask = match (phase, &work.session.policy) {
        (Phase::New | Phase::Opened, _) => None,
        (Phase::Ended, _) => {
            work.report_withdrawal();
            None
        }
        (Phase::Agreed | Phase::Drafted, Some(effective)) => {
            let policy = effective.policy;
            work.decide(&policy, woken)?
        }
        (Phase::Agreed | Phase::Drafted, None) => {
            return Err(NegotiationError::new(NegotiationCode::BadSetup, "a policy was told that is not there"));
        }
    };
    Ok(Advance { ask: ask.filter(|_| work.added.is_empty()), additions: work.added })
}

/// Content of the `open` event.
#[derive(Clone)]
struct Opened {
    topic: String,
    corr: String,
    profile: Option<String>,
}

/// A negotiation under evaluation, with the additions so far.
struct SessionUpdate<'s> {
    session: Session,
    checks: Checks,
    participants: &'s Participants,
    now: Timestamp,
    opened: Option<Opened>,
    /// Evaluations of the last round.
    evaluations: Vec<Evaluation>,
    added: Vec<Addition>,
}

impl SessionUpdate<'_> {
    fn add(&mut self, added: Addition) {
        match &added {
            Addition::Event(event) => self.session.events.push(json!(event)),
            Addition::Policy(policy) => self.session.policy = Some(policy.as_ref().clone()),
            Addition::Round(round) => self.session.rounds.push(round.clone()),
            Addition::Version(version) => self.session.versions.push(version.clone()),
            Addition::RejectedEvent(refused) => self.session.refused.push(refused.clone()),
            Addition::Diff(diff) => self.session.diffs.push(diff.clone()),
            Addition::Report(report) => self.session.reports.push(report.clone()),
        }
        self.added.push(added);
    }

    fn add_event(&mut self, event: Event) {
        if let Event::Open { topic, corr, profile, .. } = &event {
            self.opened = Some(Opened { topic: topic.clone(), corr: corr.clone(), profile: profile.clone() });
        }
        self.add(Addition::Event(Box::new(event)));
    }

    fn corr(&self) -> Option<String> {
        self.opened.as_ref().map(|opened| opened.corr.clone())
    }

    /// Judges the pending events of the last round, and returns the resulting phase.
    fn judge(&mut self) -> Phase {
        let since = self.session.rounds.last().map_or(usize::MAX, |round| round.since);
        let known: BTreeSet<usize> = self.session.refused.iter().map(|refused| refused.event).collect();
        let mut phase = Phase::New;
        for at in 0..self.session.events.len() {
            let read = Event::parse(&self.session.events[at]);
            let allowed = read.and_then(|event| match phase.after(event.kind()) {
                Ok(next) => {
                    phase = next;
                    Ok(event)
                }
                Err(code) => Err(NegotiationError::new(code, format!("`{}` may not come here", event.kind()))),
            });
            let judged = match allowed {
                _ if known.contains(&at) => continue,
                Err(why) => Err((why.code, vec![why.message], String::new(), false)),
                Ok(Event::Open { topic, corr, profile, .. }) => {
                    self.opened = Some(Opened { topic, corr, profile });
                    Ok(())
                }
                Ok(Event::Propose(draft) | Event::Counter(draft)) if at >= since => {
                    let is_turn = self.session.rounds.last().is_some_and(|round| round.turn == draft.from);
                    let judged = self.draft(at, &draft);
                    judged.map_err(|(code, why)| (code, why, draft.from, is_turn && code != NegotiationCode::OutOfTurn))
                }
                Ok(Event::Evaluate(evaluation)) if at >= since => {
                    let from = evaluation.from.clone();
                    self.evaluation(at, evaluation).map_err(|why| (why.code, vec![why.message], from, false))
                }
                Ok(_) => Ok(()),
            };
            if let Err((code, problems, from, again)) = judged {
                let round = self.session.rounds.len();
                self.add(Addition::RejectedEvent(RejectedEvent { event: at, round, from, code, problems, again }));
            }
        }
        phase
    }

    /// Returns the version of the last round.
    fn version(&self) -> Option<&Version> {
        self.session.versions.last().filter(|version| version.n == self.session.rounds.len())
    }

    /// Judges a draft of the last round: adds it as a version, or returns the reasons for its rejection.
    fn draft(&mut self, at: usize, draft: &Draft) -> Result<(), (NegotiationCode, Vec<String>)> {
        let plain = |why: NegotiationError| (why.code, vec![why.message]);
        let turn = self.session.rounds.last().map(|round| round.turn.clone()).unwrap_or_default();
        let refused = |why: String| Err((NegotiationCode::OutOfTurn, vec![why]));
        match self.version() {
            Some(version) if version.event == at => return Ok(()),
            Some(version) => return refused(format!("round {} has its draft already", version.n)),
            None if draft.from != turn => return refused(format!("it is the turn of {turn}")),
            None => {}
        }
        self.check_corr(draft.corr.as_deref()).map_err(plain)?;
        let content = draft.content().map_err(plain)?;
        let scoring = self.session.policy.as_ref().map(|effective| effective.policy.scoring).unwrap_or_default();
        let checks = self.checks.run(&content, (scoring.require_schema_valid, scoring.require_examples_pass));
        let describe = |check: &Check| -> Vec<String> {
            check.problems.iter().map(|problem| format!("{}: {problem}", check.name)).collect()
        };
        let failed: Vec<&Check> = checks.iter().filter(|check| check.required && !check.passed).collect();
        if !failed.is_empty() {
            let problems = failed.into_iter().flat_map(describe).take(PROBLEMS_MAX).collect();
            return Err((NegotiationCode::InvalidDraft, problems));
        }
        let before = self.session.versions.last().map(|version| (version.n, version.event));
        let diff = before.and_then(|(from, event)| {
            let before = content_of(self.session.events.get(event)?)?;
            let (delta, patch) = (delta(&before, &content), patch(&before, &content));
            Some(Diff { from, to: self.session.rounds.len(), delta, patch })
        });
        self.add(Addition::Version(Version {
            n: self.session.rounds.len(),
            event: at,
            from: draft.from.clone(),
            ct: draft.ct.clone(),
            at: self.now,
            content: content.value(),
            checks,
        }));
        if let Some(diff) = diff {
            self.add(Addition::Diff(diff));
        }
        Ok(())
    }

    /// Accepts an evaluation of the last round, or returns the reason for its rejection.
    fn evaluation(&mut self, at: usize, evaluation: Evaluation) -> Result<(), NegotiationError> {
        let refused = |code, why: String| Err(NegotiationError::new(code, why));
        let Evaluation { from, score, .. } = &evaluation;
        if !(0.0..=1.0).contains(score) {
            return refused(NegotiationCode::BadScore, format!("the score is {score}; scores go from 0 to 1"));
        }
        if !self.participants.evaluators.contains(from) {
            return refused(NegotiationCode::NotEvaluator, format!("{from} is no evaluator"));
        }
        self.check_corr(evaluation.corr.as_deref())?;
        if self.version().is_none_or(|version| version.event > at) {
            return refused(NegotiationCode::NoDraft, "there is no draft in this round".to_owned());
        }
        if self.evaluations.iter().any(|heard| heard.from == *from) {
            return refused(NegotiationCode::Repeated, format!("{from} has evaluated this draft already"));
        }
        self.evaluations.push(evaluation);
        Ok(())
    }

    /// Checks that an event's `corr`, if present, is the one of this negotiation.
    fn check_corr(&self, said: Option<&str>) -> Result<(), NegotiationError> {
        let (Some(said), Some(corr)) = (said, self.corr()) else { return Ok(()) };
        if said == corr {
            return Ok(());
        }
        let why = format!("its `corr` is `{said}`, and that of this negotiation is `{corr}`");
        Err(NegotiationError::new(NegotiationCode::OtherCorr, why))
    }

    /// Derives the policy and begins the first round, or aborts if the requested profile is unknown.
    fn set_policy(&mut self, request: &OpenRequest) -> Result<Phase, NegotiationError> {
        let Some(opened) = self.opened.clone() else { return Ok(Phase::New) };
        let setup = &self.session.setup;
        let plain = Profile { policy: setup.policy, strictest: setup.strictest };
        let profile = match &opened.profile {
            None => Some(plain),
            Some(name) => setup.profiles.get(name).copied(),
        };
        let ts = json!(self.now);
        let Some(profile) = profile else {
            self.abort(&Policy::default(), &[], StopReason::UnknownProfile);
            return Ok(Phase::Ended);
        };
        let policy = effective_policy(&profile, setup.preferences.values().chain(request.preferences.values()));
        if let Some(problem) = policy.validation_errors().into_iter().next() {
            return Err(NegotiationError::new(NegotiationCode::BadSetup, format!("the policy: {problem}")));
        }
        let Opened { corr, profile, .. } = opened;
        let negotiation_id = corr.clone();
        let effective = EffectivePolicy { negotiation_id: negotiation_id.clone(), profile: profile.clone(), policy };
        self.add_event(Event::Policy { ts, negotiation_id, profile, policy, corr: Some(corr) });
        self.add(Addition::Policy(Box::new(effective)));
        let first = self.participants.parties.first().cloned().unwrap_or_default();
        self.begin_round(first, policy.round_timeout_ms);
        Ok(Phase::Agreed)
    }

    fn begin_round(&mut self, turn: String, timeout_ms: u64) {
        let (n, since) = (self.session.rounds.len() + 1, self.session.events.len());
        self.evaluations.clear();
        self.add(Addition::Round(RoundStart { n, turn, since, started_at: self.now, timeout_ms }));
    }

    /// Applies the outcome of the rounds; returns the question for a person if one must be asked first.
    fn decide(&mut self, policy: &Policy, woken: &AdvanceInput) -> Result<Option<Question>, NegotiationError> {
        self.report(policy);
        // A person's answer rules out a further pause, so the loop runs at most twice.
        loop {
            let rounds = self.rounds();
            let round = rounds.len();
            let mut now = self.now;
            if let Some(last) = rounds.last() {
                now = match woken.timed_out == Some(round) {
                    true => now.max(last.started_at.plus_ms(policy.round_timeout_ms)),
                    false if woken.has_timer => last.started_at,
                    false => now,
                };
            }
            let is_full = self.session.events.len() + RESERVED >= EVENTS_MAX;
            match stop_rules::next_action(policy, &rounds, self.session.setup.invalid_drafts, now) {
                RoundAction::Accept => return self.accept(policy, &rounds).map(|()| None),
                RoundAction::Stop(reason) => self.abort(policy, &rounds, reason),
                RoundAction::Wait | RoundAction::Continue | RoundAction::Pause(_) if is_full => {
                    self.abort(policy, &rounds, StopReason::TooManyEvents);
                }
                RoundAction::Wait => {}
                RoundAction::Continue => {
                    self.report_continue(policy, &rounds);
                    let author = self.version().map(|version| version.from.clone()).unwrap_or_default();
                    self.begin_round(next_party(&self.participants.parties, &author), policy.round_timeout_ms);
                }
                RoundAction::Pause(pause) => {
                    let topic = self.opened.as_ref().map(|opened| opened.topic.as_str()).unwrap_or_default();
                    let heard = self.judgement(round).map(|is| is.evaluations.as_slice()).unwrap_or_default();
                    let question = messages::question(topic, policy, &rounds, pause, self.version(), heard);
                    let Some(word) = human_answer(&question, round, woken) else { return Ok(Some(question)) };
                    self.add(Addition::Report(Report::Person(word)));
                    continue;
                }
            }
            return Ok(None);
        }
    }

    /// Reports the scores of the last round's version once all evaluators have answered.
    fn report(&mut self, policy: &Policy) {
        let round = self.session.rounds.len();
        let is_heard = |name: &String| self.evaluations.iter().any(|heard| heard.from == *name);
        let Some(version) = self.version() else { return };
        if self.judgement(round).is_some() || !self.participants.evaluators.iter().all(is_heard) {
            return;
        }
        let (deterministic, confidence) = (deterministic(&version.checks), confidence(&self.evaluations));
        let recorded = |heard: &Evaluation| {
            let Evaluation { from, score, notes, .. } = heard.clone();
            RecordedEvaluation { from, score, notes }
        };
        let judgement = EvaluationReport {
            round,
            checks: version.checks.clone(),
            deterministic,
            evaluations: self.evaluations.iter().map(recorded).collect(),
            confidence,
            score: blend(deterministic, confidence, policy.scoring.llm_weight),
            magnitude: self.magnitude(round),
            tokens: self.tokens(round),
        };
        self.add(Addition::Report(Report::Evaluation(judgement)));
    }

    fn judgement(&self, round: usize) -> Option<&EvaluationReport> {
        self.session.reports.iter().find_map(|report| match report {
            Report::Evaluation(judgement) if judgement.round == round => Some(judgement),
            _ => None,
        })
    }

    fn human_choice(&self, round: usize) -> Option<HumanChoice> {
        self.session.reports.iter().find_map(|report| match report {
            Report::Person(word) if word.round == round => Some(word.said),
            _ => None,
        })
    }

    fn magnitude(&self, round: usize) -> Option<f64> {
        self.session.diffs.iter().find(|diff| diff.to == round).map(|diff| diff.delta.magnitude)
    }

    /// Returns the tokens of a round's events, without rejected events of other senders: they cannot exhaust its
    /// budget.
    fn tokens(&self, round: usize) -> u64 {
        let Some(begun) = self.session.rounds.get(round.wrapping_sub(1)) else { return 0 };
        let end = self.session.rounds.get(round).map_or(self.session.events.len(), |next| next.since);
        let events = self.session.events.get(begun.since..end).unwrap_or_default();
        let is_foreign = |at: usize| self.session.refused.iter().any(|refused| refused.event == at && !refused.again);
        let counted = events.iter().enumerate().filter(|(at, _)| !is_foreign(begun.since + at));
        counted.fold(0, |sum, (_, event)| sum.saturating_add(tokens_of(event)))
    }

    fn rounds(&self) -> Vec<RoundSummary> {
        let round = |begun: &RoundStart| {
            let judgement = self.judgement(begun.n);
            let is_invalid = |refused: &&RejectedEvent| refused.again && refused.round == begun.n;
            let invalid_drafts = self.session.refused.iter().filter(is_invalid).count();
            RoundSummary {
                started_at: begun.started_at,
                score: judgement.map(|judgement| judgement.score),
                is_valid: judgement.is_some_and(|is| is.checks.iter().all(|check| check.passed || !check.required)),
                magnitude: self.magnitude(begun.n),
                tokens: judgement.map_or_else(|| self.tokens(begun.n), |judgement| judgement.tokens),
                invalid_drafts: u32::try_from(invalid_drafts).unwrap_or(u32::MAX),
                human_choice: self.human_choice(begun.n),
            }
        };
        self.session.rounds.iter().map(round).collect()
    }

    fn accept(&mut self, policy: &Policy, rounds: &[RoundSummary]) -> Result<(), NegotiationError> {
        let Some(version) = self.version().cloned() else { return Ok(()) };
        let event = self.session.events.get(version.event);
        let Some(Ok(Event::Propose(draft) | Event::Counter(draft))) = event.map(Event::parse) else { return Ok(()) };
        let score = rounds.last().and_then(|round| round.score).unwrap_or_default();
        let is_met = score >= policy.score_threshold - NOISE;
        let evaluations =
            self.judgement(rounds.len()).map(|judgement| judgement.evaluations.as_slice()).unwrap_or_default();
        let agree = |evaluation: &RecordedEvaluation| evaluation.score >= policy.score_threshold - NOISE;
        let decided_by = match rounds.last().and_then(|round| round.human_choice) {
            Some(_) => DecidedBy::Hitl,
            None if !evaluations.is_empty() && evaluations.iter().all(agree) => DecidedBy::Consensus,
            None => DecidedBy::Policy,
        };
        let stop_reason = if is_met { StopReason::ThresholdMet } else { StopReason::Hitl };
        let rationale = messages::why_accepted(&version, decided_by, score, policy);
        self.conclude(rounds, Outcome::Accepted, decided_by, Some(stop_reason), rationale);
        let (ts, by, corr) = (json!(self.now), self.participants.by.clone(), self.corr());
        self.add_event(Event::Decide { ts, by, ct: draft.ct.clone(), result_b64: draft.to_base64()?, corr });
        Ok(())
    }

    fn abort(&mut self, policy: &Policy, rounds: &[RoundSummary], reason: StopReason) {
        let decided_by = if reason == StopReason::Hitl { DecidedBy::Hitl } else { DecidedBy::Policy };
        let rationale = messages::why_aborted(policy, rounds, reason);
        self.conclude(rounds, Outcome::Aborted, decided_by, Some(reason), rationale);
        let (ts, corr) = (json!(self.now), self.corr());
        self.add_event(Event::Abort { ts, reason: reason.as_str().to_owned(), from: None, corr });
    }

    /// Reports that another round follows.
    fn report_continue(&mut self, policy: &Policy, rounds: &[RoundSummary]) {
        let decided_by = match rounds.last().and_then(|round| round.human_choice) {
            Some(_) => DecidedBy::Hitl,
            None => DecidedBy::Policy,
        };
        self.conclude(rounds, Outcome::Continue, decided_by, None, messages::why_continued(decided_by, rounds, policy));
    }

    /// Reports an `abort` by another sender, once.
    fn report_withdrawal(&mut self) {
        let is_end = |report: &Report| matches!(report, Report::Decision(one) if one.outcome != Outcome::Continue);
        if self.session.reports.iter().any(is_end) {
            return;
        }
        // Events after the end are ignored, so the first `abort` is the one that ended it.
        let said = self.session.events.iter().find_map(|event| {
            let Ok(Event::Abort { from, reason, .. }) = Event::parse(event) else { return None };
            Some((from?, reason))
        });
        let Some((from, reason)) = said else { return };
        let takes_part = self.participants.parties.contains(&from) || self.participants.evaluators.contains(&from);
        let decided_by = if takes_part { DecidedBy::Party } else { DecidedBy::Hitl };
        let rationale = format!("{from} has ended it: {reason}");
        self.conclude(&self.rounds(), Outcome::Aborted, decided_by, Some(StopReason::Withdrawn), rationale);
    }

    fn conclude(
        &mut self,
        rounds: &[RoundSummary],
        outcome: Outcome,
        decided_by: DecidedBy,
        stop_reason: Option<StopReason>,
        rationale: String,
    ) {
        let scores = rounds.iter().filter_map(|round| round.score).collect();
        let round = rounds.len();
        let decision = DecisionReport { round, outcome, decided_by, stop_reason, scores, rationale };
        self.add(Addition::Report(Report::Decision(decision)));
    }
}

/// Returns a person's answer to a question; `stop` if the question expired.
fn human_answer(question: &Question, round: usize, woken: &AdvanceInput) -> Option<HumanAnswer> {
    let answer = woken.answers.iter().find(|answer| answer.question == question.text);
    let said = answer.and_then(|answer| Some((answer.by.clone(), HumanChoice::from_name(answer.text.trim())?)));
    match said {
        Some((by, said)) => Some(HumanAnswer { round, by: Some(by), said }),
        None if woken.is_unanswered => Some(HumanAnswer { round, by: None, said: HumanChoice::Stop }),
        None => None,
    }
}

/// Returns the next party in turn order after `author`.
fn next_party(parties: &[String], author: &str) -> String {
    let next = parties.iter().position(|party| party == author).map_or(0, |at| at + 1);
    parties.get(next).or(parties.first()).cloned().unwrap_or_default()
}
