//! Cost of a board by worker, retry, model and part of the prompt.

use std::collections::BTreeMap;

use patchboard_kernel::admission::Admission;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{BoardId, InvocationId, RuleName, WorkerName};
use patchboard_kernel::ledger::{Account, CallReservation, Usage};
use patchboard_kernel::money::Money;
use patchboard_kernel::record::{Architect, Author, Body, Budget, Continued, Invoked, Record};
use patchboard_kernel::view::{Prompt, PromptParts};
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::BoardSummary;
use serde::Serialize;
use utoipa::ToSchema;

use crate::failure::Failure;
use crate::reader::{Reader, storage};

/// Cost of a board.
#[derive(Serialize, ToSchema)]
pub struct CostReport {
    /// Board id.
    #[schema(value_type = String)]
    pub board: BoardId,
    /// Sums over all calls.
    pub tokens: AccountInfo,
    /// Calls that wrote the blueprint; part of the sums. Null if no model wrote it.
    #[schema(required)]
    pub architect: Option<AccountInfo>,
    /// Money of the board.
    pub money: MoneyReport,
    /// Sums by the operator's name of the serving model.
    pub models: BTreeMap<String, ModelCost>,
    /// Sums by worker.
    #[schema(value_type = BTreeMap<String, WorkerAccountInfo>)]
    pub workers: BTreeMap<WorkerName, WorkerAccountInfo>,
    /// Sums by rule and worker.
    pub branches: Vec<BranchCost>,
    /// Prompt tokens of calls that got a response, by part; estimated by characters.
    pub prompts: PromptTokens,
    /// Models selected for workers that may use several, by worker.
    #[schema(value_type = BTreeMap<String, String>)]
    pub drawn: BTreeMap<WorkerName, String>,
    /// Tokens of replies that arrived after their call had been abandoned; already charged by the reservations.
    pub late: u64,
    /// True if some figures are estimates, because a provider reported none.
    pub estimated: bool,
    /// Calls that were not made for lack of budget, as recorded.
    #[schema(value_type = Vec<Object>)]
    pub shortfalls: Vec<Budget>,
}

/// Sums over calls.
#[derive(Serialize, ToSchema)]
pub struct AccountInfo {
    /// Number of calls.
    pub calls: u64,
    /// Tokens charged.
    pub spent: u64,
    /// Prompt tokens, cached ones included.
    pub prompt: u64,
    /// Prompt tokens that the providers had cached.
    pub cached: u64,
    /// Completion tokens.
    pub completion: u64,
    /// Tokens charged for calls without a response.
    pub unanswered: u64,
    /// Tokens reserved for calls under way.
    pub reserved: u64,
    /// Running time of the calls, in milliseconds.
    pub running_ms: u64,
    /// Calls after the first of their invocations.
    pub retries: Retries,
    /// Token limit; null if there is none.
    #[schema(required)]
    pub limit: Option<u64>,
    /// Money charged, in the currency of the prices.
    #[schema(value_type = f64)]
    pub money: Money,
}

/// Sums over the calls of a worker.
#[derive(Serialize, ToSchema)]
pub struct WorkerAccountInfo {
    /// Sums.
    #[serde(flatten)]
    pub account: AccountInfo,
    /// Money limit; null if there is none.
    #[schema(required, value_type = Option<f64>)]
    pub money_limit: Option<Money>,
}

/// Money of a board, in the currency of the prices.
#[derive(Serialize, ToSchema)]
pub struct MoneyReport {
    /// Money charged.
    #[schema(value_type = f64)]
    pub spent: Money,
    /// Money reserved for calls under way.
    #[schema(value_type = f64)]
    pub reserved: Money,
    /// Money limit; null if there is none.
    #[schema(required, value_type = Option<f64>)]
    pub limit: Option<Money>,
    /// Currency of the prices; null if there are no prices.
    #[schema(required)]
    pub currency: Option<String>,
}

/// Cost of a rule's calls of a worker.
#[derive(Serialize, ToSchema)]
pub struct BranchCost {
    /// Rule; null for calls by circuit breakers.
    #[schema(required, value_type = Option<String>)]
    pub rule: Option<RuleName>,
    /// Worker.
    #[schema(value_type = String)]
    pub worker: WorkerName,
    /// Tokens charged.
    pub spent: u64,
    /// Number of calls.
    pub calls: u64,
}

impl CostReport {
    /// Reads the cost of a board.
    pub fn read(reader: &Reader, summary: &BoardSummary) -> Result<Self, Failure> {
        let board = reader.board(summary, None)?;
        let (blueprint, ledger) = (board.blueprint(), board.ledger());
        let details = Details::from_records(reader, blueprint, &reader.records(&summary.id)?)?;
        let of_worker = |name: &WorkerName, account: &Account| {
            let limits = board.worker_call_limits(name);
            let retries = details.retries.get(name).copied().unwrap_or_default();
            let account = AccountInfo::new(account, retries, limits.worker_tokens);
            (name.clone(), WorkerAccountInfo { account, money_limit: limits.worker_money.map(Money) })
        };
        let workers = ledger.workers().iter().map(|(name, account)| of_worker(name, account)).collect();
        let branches = ledger.branches().iter().map(|(branch, account)| BranchCost {
            rule: branch.rule.clone(),
            worker: branch.worker.clone(),
            spent: account.spent,
            calls: account.calls,
        });
        let architect = ledger.architect();
        Ok(Self {
            board: summary.id.clone(),
            tokens: AccountInfo::new(ledger.board(), details.retries(), Some(board.limits().tokens)),
            architect: architect.map(|account| AccountInfo::new(account, details.architect_retries(), None)),
            money: MoneyReport {
                spent: Money(ledger.board().money),
                reserved: Money(ledger.board().money_reserved),
                limit: board.limits().money.map(Money),
                currency: details.currency,
            },
            models: details.models,
            workers,
            branches: branches.collect(),
            prompts: details.prompts,
            drawn: details.selected_models,
            late: details.late.total(),
            estimated: details.answered.estimated,
            shortfalls: details.shortfalls,
        })
    }
}

impl AccountInfo {
    fn new(account: &Account, retries: Retries, limit: Option<u64>) -> Self {
        Self {
            calls: account.calls,
            spent: account.spent,
            prompt: account.prompt,
            cached: account.cached,
            completion: account.completion,
            unanswered: unanswered(account),
            reserved: account.reserved,
            running_ms: account.running_ms,
            retries,
            limit,
            money: Money(account.money),
        }
    }
}

/// Returns the tokens charged for calls without a response.
pub const fn unanswered(account: &Account) -> u64 {
    account.spent.saturating_sub(account.prompt.saturating_add(account.completion))
}

/// Calls after the first of their invocations.
#[derive(Clone, Copy, Default, Serialize, ToSchema)]
pub struct Retries {
    /// Number of calls.
    pub calls: u64,
    /// Tokens of these calls.
    pub tokens: u64,
}

/// Sums over the calls of one model.
#[derive(Clone, Copy, Default, Serialize, ToSchema)]
pub struct ModelCost {
    /// Number of calls.
    pub calls: u64,
    /// Tokens charged.
    pub tokens: u64,
    /// Money charged, in the currency of the prices.
    #[schema(value_type = f64)]
    pub money: Money,
}

impl ModelCost {
    const fn add_money(&mut self, money: u64) {
        self.money = Money(self.money.0.saturating_add(money));
    }

    fn add(&mut self, usage: Usage, admitted: &Admission) {
        self.tokens = self.tokens.saturating_add(usage.total());
        self.add_money(admitted.price.as_ref().map_or(0, |price| usage.cost(price)));
    }
}

struct DispatchedCall {
    worker: WorkerName,
    admitted: Admission,
    reply_tokens: u64,
    /// Format version of its record.
    format: u32,
    view: Digest,
    prompt: Digest,
    reserved: u64,
    is_retry: bool,
    /// Prompt tokens of its first request; the excess of later requests is tool output.
    first: Option<u64>,
}

/// Figures that the board's ledger does not hold.
#[derive(Default)]
struct Details {
    retries: BTreeMap<WorkerName, Retries>,
    /// Prompt tokens of calls that got a response.
    prompts: PromptTokens,
    /// Usage of replies that arrived after their call had been abandoned; already charged by the reservations.
    late: Usage,
    /// Usage of all calls that got a response.
    answered: Usage,
    selected_models: BTreeMap<WorkerName, String>,
    models: BTreeMap<String, ModelCost>,
    /// Currency of the prices, if there are prices.
    currency: Option<String>,
    architect: Option<Architect>,
    shortfalls: Vec<Budget>,
}

/// Prompt tokens by part.
#[derive(Clone, Copy, Default, Serialize, ToSchema)]
pub struct PromptTokens {
    /// Instructions.
    pub instructions: u64,
    /// Contract and schema.
    pub contract: u64,
    /// Document.
    pub document: u64,
    /// Earlier rejections.
    pub refusals: u64,
    /// Trigger.
    pub trigger: u64,
    /// Output of tools.
    pub tools: u64,
}

impl PromptTokens {
    /// Distributes the tokens of one prompt over its parts by characters.
    fn add(&mut self, of: PromptParts, tokens: u64) {
        let all = of.instructions + of.contract + of.document + of.rejections + of.trigger;
        let share = |part: usize| u64::try_from(u128::from(tokens) * part as u128 / (all.max(1) as u128)).unwrap_or(0);
        let (contract, document) = (share(of.contract), share(of.document));
        let (refusals, trigger) = (share(of.rejections), share(of.trigger));
        self.contract += contract;
        self.document += document;
        self.refusals += refusals;
        self.trigger += trigger;
        // Includes the remainder of the division.
        self.instructions += tokens - (contract + document + refusals + trigger);
    }
}

impl Details {
    fn from_records(reader: &Reader, blueprint: &Blueprint, records: &[Record]) -> Result<Self, Failure> {
        let mut details = Self::default();
        let mut asked: BTreeMap<(InvocationId, u32), DispatchedCall> = BTreeMap::new();
        let mut known: BTreeMap<Digest, PromptParts> = BTreeMap::new();
        let mut uncounted: BTreeMap<InvocationId, u32> = BTreeMap::new();
        let mut format = 0;
        for body in records.iter().filter_map(|record| record.body().ok()) {
            match body {
                Body::Created(created) => {
                    format = created.format;
                    details.architect.clone_from(&created.architect);
                    details.selected_models.clone_from(&created.drawn);
                    if let Some(architect) = &created.architect {
                        details.answered.add(architect.usage);
                        details.charge_architect(architect);
                    }
                }
                Body::Epoch(epoch) => format = epoch.format.unwrap_or(format),
                Body::Deferred(deferred) => {
                    // The provider did not accept the last request: only the calls before it cost tokens.
                    let Some(attempt) = &deferred.by.attempt else { continue };
                    let usage = deferred.by.usage.unwrap_or_default();
                    if let Some(call) = asked.remove(&(attempt.invocation, attempt.number)) {
                        // A call with usage reached its model, although the model rejected the request.
                        let uncalled = u64::from(usage.total() == 0);
                        details.of_model(&call.admitted, |of| of.calls = of.calls.saturating_sub(uncalled));
                        details.charge_model(&call, usage);
                    }
                    *uncounted.entry(attempt.invocation).or_default() += 1;
                    details.answered.add(usage);
                    continue;
                }
                Body::Invoked(invoked) => {
                    // A previous attempt that is still open was lost.
                    let before = asked.remove(&(invoked.invocation, invoked.attempt.saturating_sub(1)));
                    details.unanswered(before.as_ref());
                    let Invoked { worker, prompt, reserved, attempt, admitted, .. } = invoked;
                    let is_retry = *attempt > 1 + uncounted.get(&invoked.invocation).copied().unwrap_or(0);
                    if is_retry {
                        details.retries.entry(worker.clone()).or_default().calls += 1;
                    }
                    let now = DispatchedCall {
                        worker: worker.clone(),
                        admitted: admitted.clone().unwrap_or_default(),
                        reply_tokens: blueprint
                            .workers
                            .get(worker)
                            .map_or(0, |worker| u64::from(worker.limits.reply_tokens)),
                        format,
                        prompt: *prompt,
                        view: invoked.view,
                        reserved: *reserved,
                        is_retry,
                        first: None,
                    };
                    details.of_model(&now.admitted, |of| of.calls += 1);
                    asked.insert((invoked.invocation, invoked.attempt), now);
                }
                Body::Ended(ended) if ended.is_final() => {
                    std::mem::take(&mut asked).into_values().for_each(|one| details.unanswered(Some(&one)));
                }
                Body::Continued(Continued { by, reserved }) => {
                    let Some(attempt) = &by.attempt else { continue };
                    let place = (attempt.invocation, attempt.number);
                    let Some(mut call) = asked.remove(&place) else { continue };
                    details.count_answer(reader, &mut known, &mut call, by)?;
                    call.reserved = *reserved;
                    details.of_model(&call.admitted, |of| of.calls += 1);
                    asked.insert(place, call);
                }
                Body::Late(late) => details.late.add(late.usage.unwrap_or_default()),
                Body::Budget(budget) if !budget.is_tried_again => details.shortfalls.push(budget.clone()),
                _ => {}
            }
            let Some(by) = body.author() else { continue };
            let Some(attempt) = &by.attempt else { continue };
            // A person's answer was charged when the person was asked.
            if let Some(mut call) = asked.remove(&(attempt.invocation, attempt.number)) {
                details.count_answer(reader, &mut known, &mut call, by)?;
            }
        }
        Ok(details)
    }

    fn count_answer(
        &mut self,
        reader: &Reader,
        known: &mut BTreeMap<Digest, PromptParts>,
        call: &mut DispatchedCall,
        by: &Author,
    ) -> Result<(), Failure> {
        let Some(usage) = by.usage else {
            self.unanswered(Some(call));
            return Ok(());
        };
        self.answered.add(usage);
        self.charge_model(call, usage);
        if call.is_retry {
            self.retried(&call.worker, usage.total());
        }
        if usage.prompt == 0 {
            return Ok(());
        }
        // The view identifies the prompt: its static part depends on the worker only.
        let parts = match known.get(&call.view) {
            Some(parts) => *parts,
            None => {
                let text = |hash| wait(reader.journal.blob(hash)).map_err(storage);
                let (stored, view) = (text(call.prompt)?, text(call.view)?);
                let read = stored.and_then(|stored| Prompt::from_stored(call.format, stored, view.unwrap_or_default()));
                let parts = read.map_or_else(PromptParts::default, |prompt| prompt.parts());
                *known.entry(call.view).or_insert(parts)
            }
        };
        let first = usage.prompt.min(*call.first.get_or_insert(usage.prompt));
        self.prompts.add(parts, first);
        self.prompts.tools += usage.prompt - first;
        Ok(())
    }

    /// Charges a call without a response its reservation.
    fn unanswered(&mut self, call: Option<&DispatchedCall>) {
        let Some(call) = call else { return };
        let hold =
            CallReservation { tokens: call.reserved, reply: call.reply_tokens, price: call.admitted.price.as_ref() };
        self.of_model(&call.admitted, |of| {
            of.tokens = of.tokens.saturating_add(hold.tokens);
            of.add_money(hold.money());
        });
        if call.is_retry {
            self.retried(&call.worker, call.reserved);
        }
    }

    fn charge_model(&mut self, call: &DispatchedCall, usage: Usage) {
        self.of_model(&call.admitted, |of| of.add(usage, &call.admitted));
    }

    fn charge_architect(&mut self, architect: &Architect) {
        let Some(admitted) = &architect.admitted else { return };
        self.of_model(admitted, |of| {
            of.calls += u64::from(architect.calls);
            of.add(architect.usage, admitted);
        });
    }

    fn of_model(&mut self, admitted: &Admission, change: impl FnOnce(&mut ModelCost)) {
        let Some(model) = &admitted.model else { return };
        if let Some(price) = &admitted.price {
            self.currency.get_or_insert_with(|| price.currency.clone());
        }
        change(self.models.entry(model.clone()).or_default());
    }

    fn retried(&mut self, worker: &WorkerName, tokens: u64) {
        let retries = self.retries.entry(worker.clone()).or_default();
        retries.tokens = retries.tokens.saturating_add(tokens);
    }

    /// Returns the architect's calls after its first.
    fn architect_retries(&self) -> Retries {
        self.architect.as_ref().map_or_else(Retries::default, |architect| Retries {
            calls: u64::from(architect.calls.saturating_sub(1)),
            tokens: architect.repairs.total(),
        })
    }

    /// Returns the calls of all workers, and of the architect, after the first of their invocations.
    fn retries(&self) -> Retries {
        self.retries.values().fold(self.architect_retries(), |all, one| Retries {
            calls: all.calls + one.calls,
            tokens: all.tokens.saturating_add(one.tokens),
        })
    }
}
