//! `patchboard cost`: prints a board's cost by worker, retry and prompt part.

use std::path::Path;

use clap::Args;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::ledger::{Account, Ledger};
use patchboard_kernel::money::Money;
use patchboard_kernel::record::{Body, Budget};
use serde_json::json;

use crate::arguments::BoardArgument;
use crate::describe::{self, grouped};
use crate::failure::{Exit, Outcome};
use crate::output::{Output, one_line, table};
use crate::queries::cost::{CostReport, Details, ModelCost, PromptTokens, Retries, unanswered};
use crate::reader::Reader;
use patchboard_kernel::text::counted;

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
        output.json(&json!(CostReport::read(&reader, &summary)?))?;
        return Ok(Exit::Done);
    }
    let board = reader.board(&summary, None)?;
    let (blueprint, ledger) = (board.blueprint(), board.ledger());
    let limit_of = |worker: &WorkerName| board.worker_call_limits(worker).worker_tokens;
    let details = Details::from_records(&reader, blueprint, &reader.records(&summary.id)?)?;
    output.line(&cost_table(&details, ledger, &limit_of, board.limits().tokens))?;
    let worker_money = |name: &WorkerName| board.worker_call_limits(name).worker_money;
    for line in lines(&details, ledger, board.limits().money, &worker_money) {
        output.line(&line)?;
    }
    Ok(Exit::Done)
}

fn cost_table(
    details: &Details,
    ledger: &Ledger,
    limit: &dyn Fn(&WorkerName) -> Option<u64>,
    board_limit: u64,
) -> String {
    let sign = if details.answered.estimated { "~" } else { "" };
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
        .map(|(name, account)| row(name.as_str(), account, details.retries_of(name), limit(name)));
    let architect = ledger.architect().map(|account| row("(architect)", account, details.architect_retries(), None));
    let board = row("(board)", ledger.board(), details.retries(), Some(board_limit));
    table(
        ["WORKER", "CALLS", "RETRIES", "PROMPTS", "CACHED", "REPLIES", "TOKENS", "RETRY TOKENS", "LIMIT"],
        architect.into_iter().chain(workers).chain([board]),
    )
}

fn lines(
    details: &Details,
    ledger: &Ledger,
    money_limit: Option<u64>,
    worker_money: &dyn Fn(&WorkerName) -> Option<u64>,
) -> Vec<String> {
    let board = ledger.board();
    let mut lines = Vec::new();
    if !details.selected_models.is_empty() {
        lines.push(format!("models drawn: {}", describe::selected_models(&details.selected_models)));
    }
    let currency = details.currency.as_deref().unwrap_or_default();
    if details.models.len() > 1 || details.currency.is_some() {
        lines.extend(details.models.iter().map(|(name, ModelCost { calls, tokens, money })| {
            let calls = counted(usize::try_from(*calls).unwrap_or(usize::MAX), "call");
            let money = details.currency.as_ref().map(|_| format!(", {money} {currency}"));
            format!("model {}: {calls}, {} tokens{}", one_line(name), grouped(*tokens), money.unwrap_or_default())
        }));
    }
    if details.currency.is_some() || board.money > 0 || money_limit.is_some() {
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
        let PromptTokens { instructions, contract, document, refusals, trigger, tools } = details.prompts;
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
    if details.late.total() > 0 {
        lines.push(format!(
            "replies that came too late: {} (charged by their reservations)",
            grouped(details.late.total())
        ));
    }
    let mut shortfalls = Vec::<(&Budget, usize)>::new();
    for short in &details.shortfalls {
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
