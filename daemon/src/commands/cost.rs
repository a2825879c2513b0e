//! `patchboard cost`: prints a board's cost by worker, retry and prompt part.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use patchboard_kernel::admission::Admission;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{InvocationId, WorkerName};
use patchboard_kernel::ledger::{Account, CallReservation, Ledger, Usage};
use patchboard_kernel::money::Money;
use patchboard_kernel::record::{Architect, Author, Body, Budget, Continued, Invoked, Record};
use patchboard_kernel::view::{Prompt, PromptParts};
use patchboard_runtime::journal::{BoardSummary, Journal as _};
use serde_json::{Value, json};

use crate::blueprint_file::plural;
use crate::cli::BoardArgument;
use crate::describe::{self, grouped};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, one_line, table};
use crate::reader::{Reader, storage};

/// Print the cost of a board: tokens by worker, tokens of retries, composition of prompts
///
/// The tokens spent on writing the blueprint (`run --architect`) are a separate line and part of the board's sum; its
/// calls after the first are its RETRIES.
///
/// With several models, or with prices, each model has a line. Costs use the price recorded with the call.
///
/// All figures come from the journal. A call is charged the usage its provider reported, or an estimate (marked ~)
/// if it reported none. A call without a response is charged its reservation, once, even after crashes. RETRIES are
/// attempts after the first of an invocation. The composition of prompts is estimated by characters. A nested board is
/// one call of its worker, with its total spending; the nested board's own `cost` counts the calls in it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard cost last
  patchboard cost last --output json | jq '.workers | map_values(.spent)'
  patchboard cost last --output json | jq .prompts")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
}

pub(crate) fn run(arguments: &Arguments, data_dir: &Path, output: Output) -> Outcome {
    let reader = Reader::open(data_dir)?;
    let summary = reader.find(&arguments.board.board)?;
    if output.is_json() {
        output.json(&json(&reader, &summary)?)?;
        return Ok(Exit::Done);
    }
    let board = reader.board(&summary, None)?;
    let (blueprint, ledger) = (board.blueprint(), board.ledger());
    let limit_of = |worker: &WorkerName| board.worker_call_limits(worker).worker_tokens;
    let details = Details::from_records(&reader, blueprint, &reader.records(&summary.id)?)?;
    output.line(&details.table(ledger, &limit_of, board.limits().tokens))?;
    let worker_money = |name: &WorkerName| board.worker_call_limits(name).worker_money;
    for line in details.lines(ledger, board.limits().money, &worker_money) {
        output.line(&line)?;
    }
    Ok(Exit::Done)
}

/// Returns a board's cost as JSON.
pub(crate) fn json(reader: &Reader, summary: &BoardSummary) -> Result<Value, Failure> {
    let board = reader.board(summary, None)?;
    let (blueprint, ledger) = (board.blueprint(), board.ledger());
    let details = Details::from_records(reader, blueprint, &reader.records(&summary.id)?)?;
    let workers: BTreeMap<&WorkerName, Value> = board
        .ledger()
        .workers()
        .iter()
        .map(|(name, account)| {
            let limits = board.worker_call_limits(name);
            let mut of_worker = account_json(account, details.retries_of(name), limits.worker_tokens);
            of_worker["money_limit"] = json!(limits.worker_money.map(Money));
            (name, of_worker)
        })
        .collect();
    let branches: Vec<Value> = board
            .ledger()
            .branches()
            .iter()
            .map(|(branch, account)| json!({"rule": branch.rule, "worker": branch.worker, "spent": account.spent, "calls": account.calls}))
            .collect();
    Ok(json!({
        "board": summary.id,
        "tokens": account_json(board.ledger().board(), details.retries(), Some(board.limits().tokens)),
        "architect": ledger.architect().map(|account| account_json(account, details.architect_retries(), None)),
        "money": {
            "spent": Money(ledger.board().money),
            "reserved": Money(ledger.board().money_reserved),
            "limit": board.limits().money.map(Money),
            "currency": details.currency,
        },
        "models": details.models.iter().map(|(name, of)| (name.clone(), of.json())).collect::<BTreeMap<_, _>>(),
        "workers": workers,
        "branches": branches,
        "prompts": {
            "instructions": details.prompts.instructions,
            "contract": details.prompts.contract,
            "document": details.prompts.document,
            "refusals": details.prompts.refusals,
            "trigger": details.prompts.trigger,
            "tools": details.prompts.tools,
        },
        "drawn": details.selected_models,
        "late": details.late.total(),
        "estimated": details.answered.estimated,
        "shortfalls": details.shortfalls,
    }))
}

/// Calls after the first of their invocations.
#[derive(Clone, Copy, Default)]
struct Retries {
    calls: u64,
    tokens: u64,
}

/// Sums over the calls of one model.
#[derive(Clone, Copy, Default)]
struct ModelCost {
    calls: u64,
    tokens: u64,
    money: u64,
}

impl ModelCost {
    fn add(&mut self, usage: Usage, admitted: &Admission) {
        self.tokens = self.tokens.saturating_add(usage.total());
        self.money = self.money.saturating_add(admitted.price.as_ref().map_or(0, |price| price.cost(usage)));
    }

    fn json(self) -> Value {
        json!({"calls": self.calls, "tokens": self.tokens, "money": Money(self.money)})
    }
}

/// Call that was dispatched.
struct DispatchedCall {
    worker: WorkerName,
    /// Admission by the gate.
    admitted: Admission,
    /// Reply tokens reserved for it.
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
    answered: Usage,
    /// Models selected, by worker.
    selected_models: BTreeMap<WorkerName, String>,
    /// Sums by the operator's name of the serving model.
    models: BTreeMap<String, ModelCost>,
    currency: Option<String>,
    /// Usage of the calls that wrote the blueprint.
    architect: Option<Architect>,
    shortfalls: Vec<Budget>,
}

/// Prompt tokens by part.
#[derive(Clone, Copy, Default)]
struct PromptTokens {
    instructions: u64,
    contract: u64,
    document: u64,
    refusals: u64,
    trigger: u64,
    tools: u64,
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
            match &body {
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

    /// Accounts for a finished call of an attempt.
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
                let text = |hash| reader.journal.blob(hash).map_err(storage);
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
            of.money = of.money.saturating_add(hold.money());
        });
        if call.is_retry {
            self.retried(&call.worker, call.reserved);
        }
    }

    /// Adds tokens of a call, and their money, to its model.
    fn charge_model(&mut self, call: &DispatchedCall, usage: Usage) {
        self.of_model(&call.admitted, |of| of.add(usage, &call.admitted));
    }

    /// Adds the calls that wrote the blueprint to their model.
    fn charge_architect(&mut self, architect: &Architect) {
        let Some(admitted) = &architect.admitted else { return };
        self.of_model(admitted, |of| {
            of.calls += u64::from(architect.calls);
            of.add(architect.usage, admitted);
        });
    }

    /// Updates the sums of a model.
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

    fn retries_of(&self, worker: &WorkerName) -> Retries {
        self.retries.get(worker).copied().unwrap_or_default()
    }

    /// Returns the architect's calls after its first.
    fn architect_retries(&self) -> Retries {
        self.architect.as_ref().map_or_else(Retries::default, |architect| Retries {
            calls: u64::from(architect.calls.saturating_sub(1)),
            tokens: architect.repairs.total(),
        })
    }

    fn retries(&self) -> Retries {
        self.retries.values().fold(self.architect_retries(), |all, one| Retries {
            calls: all.calls + one.calls,
            tokens: all.tokens.saturating_add(one.tokens),
        })
    }

    fn table(&self, ledger: &Ledger, limit: &dyn Fn(&WorkerName) -> Option<u64>, board_limit: u64) -> String {
        let sign = if self.answered.estimated { "~" } else { "" };
        let row = |name: &str, account: &Account, retries: Retries, limit: Option<u64>| {
            [
                one_line(name),
                grouped(account.calls),
                grouped(retries.calls),
                grouped(account.prompt),
                grouped(account.cached),
                grouped(account.completion),
                format!("{sign}{}", grouped(account.spent)),
                grouped(retries.tokens),
                limit.map_or_else(|| "none".to_owned(), grouped),
            ]
        };
        let workers = ledger
            .workers()
            .iter()
            .map(|(name, account)| row(name.as_str(), account, self.retries_of(name), limit(name)));
        let architect = ledger.architect().map(|account| row("(architect)", account, self.architect_retries(), None));
        let board = row("(board)", ledger.board(), self.retries(), Some(board_limit));
        table(
            ["WORKER", "CALLS", "RETRIES", "PROMPTS", "CACHED", "REPLIES", "TOKENS", "RETRY TOKENS", "LIMIT"],
            architect.into_iter().chain(workers).chain([board]),
        )
    }

    fn lines(
        &self,
        ledger: &Ledger,
        money_limit: Option<u64>,
        worker_money: &dyn Fn(&WorkerName) -> Option<u64>,
    ) -> Vec<String> {
        let board = ledger.board();
        let mut lines = Vec::new();
        if !self.selected_models.is_empty() {
            lines.push(format!("models drawn: {}", describe::selected_models(&self.selected_models)));
        }
        let currency = self.currency.as_deref().unwrap_or_default();
        if self.models.len() > 1 || self.currency.is_some() {
            lines.extend(self.models.iter().map(|(name, ModelCost { calls, tokens, money })| {
                let calls = plural(usize::try_from(*calls).unwrap_or(usize::MAX), "call");
                let money = self.currency.as_ref().map(|_| format!(", {} {currency}", Money(*money)));
                format!("model {}: {calls}, {} tokens{}", one_line(name), grouped(*tokens), money.unwrap_or_default())
            }));
        }
        if self.currency.is_some() || board.money > 0 || money_limit.is_some() {
            let of = money_limit.map(|limit| format!(" of {}", Money(limit))).unwrap_or_default();
            lines.push(format!("money: {}{of} {currency}", Money(board.money)).trim_end().to_owned());
        }
        for (name, account) in ledger.workers() {
            if let Some(limit) = worker_money(name) {
                let (name, spent) = (one_line(name.as_str()), Money(account.money));
                lines.push(format!("money of {name}: {spent} of {} {currency}", Money(limit)).trim_end().to_owned());
            }
        }
        // The architect's prompts are all instructions and have a separate line.
        let prompts = board.prompt.saturating_sub(ledger.architect().map_or(0, |account| account.prompt));
        if prompts > 0 {
            let PromptTokens { instructions, contract, document, refusals, trigger, tools } = self.prompts;
            let share = |part: u64| format!("{} ({} %)", grouped(part), part * 100 / prompts);
            lines.push(format!(
                "prompts: instructions {}, contract and schema {}, document {}, refusals {}, trigger {}{}",
                share(instructions),
                share(contract),
                share(document),
                share(refusals),
                share(trigger),
                if tools > 0 { format!(", tools {}", share(tools)) } else { String::new() }
            ));
        }
        let unanswered = unanswered(board);
        if unanswered > 0 {
            lines.push(format!("charged without an answer: {}", grouped(unanswered)));
        }
        if board.reserved > 0 {
            lines.push(format!("reserved for calls under way: {}", grouped(board.reserved)));
        }
        if self.late.total() > 0 {
            lines.push(format!(
                "replies that came too late: {} (charged by their reservations)",
                grouped(self.late.total())
            ));
        }
        let mut shortfalls = Vec::<(&Budget, usize)>::new();
        for short in &self.shortfalls {
            let is_same = |(other, _): &&mut (&Budget, usize)| {
                (&other.rule, &other.worker, other.resource) == (&short.rule, &short.worker, short.resource)
            };
            match shortfalls.iter_mut().find(is_same) {
                Some((_, more)) => *more += 1,
                None => shortfalls.push((short, 0)),
            }
        }
        for (short, more) in shortfalls {
            let more = if more > 0 { format!(" (and {} more)", grouped(more as u64)) } else { String::new() };
            lines.push(format!(
                "not called for lack of budget: {}{more}",
                describe::body_text(&Body::Budget(short.clone()))
            ));
        }
        lines
    }
}

/// Returns the tokens charged for calls without a response.
pub(crate) const fn unanswered(account: &Account) -> u64 {
    account.spent.saturating_sub(account.prompt.saturating_add(account.completion))
}

fn account_json(account: &Account, retries: Retries, limit: Option<u64>) -> Value {
    json!({
        "calls": account.calls,
        "spent": account.spent,
        "prompt": account.prompt,
        "cached": account.cached,
        "completion": account.completion,
        "unanswered": unanswered(account),
        "reserved": account.reserved,
        "running_ms": account.running_ms,
        "retries": {"calls": retries.calls, "tokens": retries.tokens},
        "limit": limit,
        "money": Money(account.money),
    })
}
