//! Validation of a retry, before it becomes an input and as one.

use std::collections::BTreeSet;

use super::apply::dedup_key_of_request;
use super::{Board, UndecidedRule};
use crate::blueprint::{AgentKind, BoardLimits};
use crate::breaker::Branch;
use crate::id::{RuleName, WorkerName};
use crate::ledger::{BudgetExceeded, CallReservation};
use crate::limits::EffectiveLimits;
use crate::money::Money;
use crate::mutants::{self, Mutant};
use crate::plan::Rule;
use crate::record::{Body, Cause, Resource, Retried, SINCE_FULL_RETRY, WorkerLimitOverrides};
use crate::rejection::{Code, Rejection, Stage, Violation};
use crate::rules::{self, TriggerEvent};
use crate::scheduler::QueuedInvocation;

/// Work that a board leaves undone at its end.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct UnfinishedWork {
    /// Number of invocations that a retry queues again.
    pub given_up: usize,
    /// Workers triggered beyond their invocation limit; a retry that names the worker includes the excess.
    pub beyond_limit: BTreeSet<WorkerName>,
    /// Undecided rules that hold up a join.
    pub undecided: Vec<UndecidedRule>,
    /// Number of given-up invocations of a board that is done, including those that its end cut off.
    pub cut_off: usize,
    /// Joins that had not fired when the board was done.
    pub unfired: Vec<RuleName>,
    /// Joins of a board with nothing left to do, with false conditions and workers that were never triggered.
    pub unmet: Vec<RuleName>,
}

impl Board {
    /// Returns the work that the board leaves undone.
    pub fn unfinished_work(&self) -> UnfinishedWork {
        let beyond = self.given_up.iter().filter(|queued| queued.is_beyond_limit);
        let is_done = self.ended.is_some_and(|ended| ended.cause == Cause::Done);
        let has_nothing_to_do = self.ended.is_some_and(|ended| ended.cause == Cause::NothingToDo);
        let joins = self.joins_to_fire().map(|(name, _)| name.clone());
        UnfinishedWork {
            cut_off: if is_done { self.given_up.iter().filter(|queued| !queued.is_ineffective).count() } else { 0 },
            unfired: if is_done { joins.collect() } else { Vec::new() },
            unmet: if has_nothing_to_do { self.unmet_joins() } else { Vec::new() },
            given_up: self.selected_by(&Retried::default()).len(),
            beyond_limit: beyond.map(|queued| queued.branch.worker.clone()).collect(),
            undecided: self.undecided().into_iter().cloned().collect(),
        }
    }

    /// Returns the joins with false conditions and workers that were never triggered.
    fn unmet_joins(&self) -> Vec<RuleName> {
        let is_unmet = |rule: &&Rule| {
            let rested = BTreeSet::from([rule.name.clone()]);
            let occasion = TriggerEvent::Rested(&rested);
            rule.rest_once().is_some()
                && rule.when.is_some()
                && rule.workers.iter().all(|worker| self.scheduler.scheduled_for(worker) == 0)
                && rules::activations(&self.plan, &self.scheduler, self.state.root(), &occasion).is_empty()
        };
        self.plan.rules.iter().filter(is_unmet).map(|rule| rule.name.clone()).collect()
    }

    /// Checks a retry before it becomes an input. A named limit must exceed the one in force and stay within the
    /// maximum. A repeated request, by its token, is judged as an input. Fails with [`Code::BoardNotRunning`] if the
    /// board is done or cancelled; [`Code::NothingGivenUp`] if the named work was not given up; [`Code::BadLimit`],
    /// with a violation for each invalid limit; [`Code::LimitReached`] if a limit still stops the board.
    pub fn judge_retry(&self, retried: &Retried) -> Result<(), Rejection> {
        if dedup_key_of_request(&Body::Retried(retried.clone())).is_some_and(|token| self.dedup.contains(&token)) {
            return Ok(());
        }
        let refused = |violations| Err(Rejection::new(Stage::Application, violations));
        if let Some(why) = self.is_beyond_retry() {
            return refused(vec![Violation::new(Code::BoardNotRunning, "", why)]);
        }
        let is_named_in_vain = !self.has_to_retry(retried) && retried.worker_limits.is_none();
        if let Some(message) = not_given_up(retried).filter(|_| is_named_in_vain) {
            return refused(vec![Violation::new(Code::NothingGivenUp, "", message)]);
        }
        let violations: Vec<Violation> =
            self.bad_limits(retried).map(|message| Violation::new(Code::BadLimit, "", message)).collect();
        if !violations.is_empty() {
            return refused(violations);
        }
        self.retry_violation(retried, &self.selected_by(retried)).map_or(Ok(()), |why| refused(vec![why]))
    }

    /// Returns the invocations that a retry queues again.
    pub(super) fn selected_by(&self, retried: &Retried) -> Vec<QueuedInvocation> {
        self.given_up.iter().filter(|queued| retried.selects(queued)).cloned().collect()
    }

    /// Returns the branches that a retry half-opens: stopped ones, and those with a probe that ended with the board.
    pub(super) fn half_opened_by(&self, retried: &Retried) -> Vec<Branch> {
        let open = self.scheduler.open();
        let stopped = self.breaker.stopped_branches(|invocation| open.contains_key(&invocation));
        let stopped = stopped.filter(|branch| retried.covers(branch) && !mutants::is_active(Mutant::RetryStaysStopped));
        stopped.cloned().collect()
    }

    /// Returns the worker for which a retry raises limits.
    pub(super) fn worker_of(&self, retried: &Retried) -> Option<WorkerName> {
        let invocation = || self.given_up.iter().find(|queued| Some(queued.invocation) == retried.invocation);
        retried.worker.clone().or_else(|| invocation().map(|queued| queued.branch.worker.clone()))
    }

    /// Returns the reason for which a retry is rejected as an input.
    pub(super) fn retry_violation(&self, retried: &Retried, chosen: &[QueuedInvocation]) -> Option<Violation> {
        let refused = |code, message: String| Some(Violation::new(code, "", message));
        if let Some(why) = self.is_beyond_retry() {
            return refused(Code::BoardNotRunning, why.to_owned());
        }
        if let Some(message) = self.limit_reached(retried, chosen) {
            return refused(Code::LimitReached, message);
        }
        let is_raised = self.limits().raised_by(retried.limits) != self.limits() || !retried.worker_limits.is_none();
        if !self.has_to_retry(retried) && !is_raised {
            let nothing = || match self.given_up.iter().rfind(|queued| queued.is_beyond_limit) {
                Some(QueuedInvocation { branch, .. }) => {
                    let worker = &branch.worker;
                    format!("invocations of worker {worker} are beyond its limit: name the worker to take them up")
                }
                None if !self.undecided().is_empty() => {
                    let rules: BTreeSet<&str> = self.undecided().iter().map(|it| it.rule.as_str()).collect();
                    let rules = rules.into_iter().collect::<Vec<_>>().join(", ");
                    format!(
                        "no invocation was given up; it could not be decided whether rule {rules} should have fired"
                    )
                }
                None => "no invocation was given up, and no limit is raised".to_owned(),
            };
            return refused(Code::NothingGivenUp, not_given_up(retried).unwrap_or_else(nothing));
        }
        None
    }

    fn is_beyond_retry(&self) -> Option<&'static str> {
        match self.ended?.cause {
            Cause::Done => Some("the board is done"),
            Cause::Cancelled => Some("the board was cancelled"),
            _ => None,
        }
    }

    /// Returns true if a retry queues invocations again, or half-opens a branch.
    fn has_to_retry(&self, retried: &Retried) -> bool {
        let is_chosen = self.given_up.iter().any(|queued| retried.selects(queued));
        is_chosen || (retried.invocation.is_none() && !self.half_opened_by(retried).is_empty())
    }

    fn bad_limits(&self, retried: &Retried) -> impl Iterator<Item = String> {
        let EffectiveLimits { commits, edits, tokens, wall_ms, journal, money } = self.limits();
        let (raised, of_worker) = (retried.limits, retried.worker_limits);
        let board = "the board";
        let none = |of: &str| format!("the blueprint has no {of} that could be raised");
        let no_files = || "the blueprint has no workspace, and so no edits of files".to_owned();
        let edits = self.plan.blueprint.workspace.is_some().then_some(edits).ok_or_else(no_files);
        let of_commits = |count: u64| format!("{count} commits");
        let of_edits = |count: u64| format!("{count} edits of files");
        let of_time = |ms: u64| format!("{} s of running time", ms / 1000);
        let of_journal = |bytes: u64| format!("{bytes} bytes of journal");
        let of_tokens = |tokens: u64| format!("{tokens} tokens");
        let of_money = |units: u64| format!("{} of money", Money(units));
        let of_board = [
            check_limit(raised.commits, Ok(commits), board, BoardLimits::COMMITS_MAX, of_commits),
            check_limit(raised.edits, edits, board, BoardLimits::COMMITS_MAX, of_edits),
            check_limit(raised.tokens, Ok(tokens), board, BoardLimits::TOKENS_MAX, of_tokens),
            check_limit(raised.wall_ms, Ok(wall_ms), board, BoardLimits::WALL_MS_MAX, of_time),
            check_limit(raised.money, money.ok_or_else(|| none("`limits.money`")), board, u64::MAX, of_money),
            check_limit(raised.journal, Ok(journal), board, BoardLimits::JOURNAL_MAX, of_journal),
        ];
        let worker = self.worker_of(retried);
        let owner = worker.as_ref().map_or_else(String::new, |worker| format!("worker {worker}"));
        let limits = |of: &str| match &worker {
            Some(worker) => none(&format!("`limits.{of}` of worker {worker}")),
            None => "a limit of a worker is raised with the worker's name".to_owned(),
        };
        let by_rule = || worker.iter().flat_map(|worker| self.limits_by_rule(worker));
        let least = by_rule().flat_map(|limits| [limits.worker_tokens, limits.rule_tokens]).flatten().min();
        let least = least.ok_or_else(|| limits("tokens"));
        let money = by_rule().find_map(|limits| limits.worker_money);
        let of_worker = [
            check_limit(of_worker.tokens, least, &owner, BoardLimits::TOKENS_MAX, of_tokens),
            check_limit(of_worker.money, money.ok_or_else(|| limits("money")), &owner, u64::MAX, of_money),
        ];
        of_board.into_iter().chain(of_worker).flatten()
    }

    /// Returns the message about a limit that is reached even after the retry.
    fn limit_reached(&self, retried: &Retried, chosen: &[QueuedInvocation]) -> Option<String> {
        let EffectiveLimits { commits, edits, tokens, wall_ms, journal, money } =
            self.limits().raised_by(retried.limits);
        let made = self.version().0.saturating_sub(self.files.edits);
        if made >= commits {
            return Some(format!("{made} of {commits} commits are made: raise the limit of commits"));
        }
        let edited = self.files.edits;
        if edited >= edits && self.format >= SINCE_FULL_RETRY {
            return Some(format!("{edited} of {edits} edits of files are made: raise the limit of edits"));
        }
        if self.running_ms >= wall_ms {
            let (ran, wall) = (self.running_ms.div_ceil(1000), wall_ms / 1000);
            return Some(format!("the board ran {ran} of {wall} s: raise the limit of running time"));
        }
        if self.journal_bytes >= journal {
            let bytes = self.journal_bytes;
            return Some(format!("the journal has {bytes} of {journal} bytes: raise the limit of the journal"));
        }
        let spent = self.ledger.board().committed();
        if spent >= tokens {
            return Some(format!("{spent} of {tokens} tokens are spent: raise the limit of tokens"));
        }
        let spent = self.ledger.board().committed_money();
        if let Some(money) = money.filter(|money| spent >= *money) {
            return Some(format!("{} of {} are spent: raise the limit of money", Money(spent), Money(money)));
        }
        // A running board may raise its limits, independent of its invocations.
        if self.format < SINCE_FULL_RETRY || self.ended.is_none() {
            return None;
        }
        let (worker, BudgetExceeded { resource, needed, left, .. }) = self.shortfall_of_all(retried, chosen)?;
        let owner = match resource {
            Resource::BranchTokens | Resource::WorkerTokens | Resource::WorkerMoney => "worker",
            Resource::Invocations | Resource::BoardTokens | Resource::BoardMoney => "board",
        };
        let unit = resource.unit();
        Some(format!(
            "a call of worker {worker} needs {needed} {unit}, and of {resource} {left} are left: raise the limit of the {owner}"
        ))
    }

    /// Returns a shortfall if no chosen invocation is affordable, nor any that waits for a half-opened branch. Checks
    /// one invocation per branch.
    fn shortfall_of_all(&self, retried: &Retried, chosen: &[QueuedInvocation]) -> Option<(WorkerName, BudgetExceeded)> {
        let (mut first, mut tried) = (None, BTreeSet::new());
        let half_opened = self.half_opened_by(retried);
        let waiting = self.scheduler.queue().iter().filter(|queued| half_opened.contains(&queued.branch));
        for queued in chosen.iter().chain(waiting).filter(|queued| tried.insert(&queued.branch)) {
            match self.check_retry_budget(retried, queued) {
                Err(short) if !short.may_be_freed => drop(first.get_or_insert((queued.branch.worker.clone(), short))),
                Ok(()) | Err(_) => return None,
            }
        }
        first
    }

    /// Returns an error if an invocation is not affordable under the limits of a retry. Prices are not known yet.
    fn check_retry_budget(&self, retried: &Retried, queued: &QueuedInvocation) -> Result<(), BudgetExceeded> {
        let branch = &queued.branch;
        let is_its_worker = self.worker_of(retried).as_ref() == Some(&branch.worker);
        let of_worker = retried.worker_limits;
        let of_worker = if is_its_worker { of_worker } else { WorkerLimitOverrides::default() };
        let limits = self.call_limits(branch).raised_by(retried.limits, of_worker);
        if let Some((_, 0)) = self.ledger.money_left(&limits, &branch.worker) {
            return Err(BudgetExceeded { resource: Resource::WorkerMoney, needed: 1, left: 0, may_be_freed: false });
        }
        let worker = &self.plan.workers[&branch.worker].worker;
        let reply = u64::from(worker.limits.reply_tokens);
        let tokens = match worker.agent {
            AgentKind::Llm => self.compile_call(queued).prompt.estimated_tokens().saturating_add(reply),
            _ => 0,
        };
        self.ledger.check_budget(&limits, branch, CallReservation { tokens, reply, price: None })
    }
}

/// Returns the message that the named invocation or worker gave nothing up; `None` if a retry names neither.
fn not_given_up(retried: &Retried) -> Option<String> {
    match (retried.invocation, &retried.worker) {
        (Some(invocation), _) => Some(format!("invocation {invocation} was not given up")),
        (None, Some(worker)) => Some(format!("no invocation of worker {worker} was given up")),
        (None, None) => None,
    }
}

/// Returns the objection to a limit that an operator names; `None` if it is higher than the one in force, or not named.
fn check_limit(
    named: Option<u64>,
    in_force: Result<u64, String>,
    owner: &str,
    most: u64,
    words: impl Fn(u64) -> String,
) -> Option<String> {
    let named = named?;
    match in_force {
        Err(why) => Some(why),
        Ok(in_force) if named <= in_force => {
            Some(format!("{owner} may use {} already: name more than that", words(in_force)))
        }
        Ok(_) if named > most => Some(format!("{} are too many: {} at most", words(named), words(most))),
        Ok(_) => None,
    }
}
