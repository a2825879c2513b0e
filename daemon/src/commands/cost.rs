//! `patchboard cost`: prints a board's cost by worker, retry and prompt part.

use std::path::Path;

use clap::Args;
use patchboard_kernel::record::{Body, Budget};
use serde_json::json;

use crate::arguments::BoardArgument;
use crate::describe::{self, grouped};
use crate::failure::{Exit, Outcome};
use crate::output::{Output, one_line, table};
use crate::queries::cost::{AccountInfo, CostReport, ModelCost, PromptTokens};
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
    let (reader, summary) = arguments.board.open(data_dir)?;
    let report = CostReport::read(&reader, &summary)?;
    if output.is_json() {
        output.json(&json!(report))?;
    } else {
        output.line(&cost_table(&report))?;
        lines(&report).iter().try_for_each(|line| output.line(line))?;
    }
    Ok(Exit::Done)
}

fn cost_table(report: &CostReport) -> String {
    let sign = if report.estimated { "~" } else { "" };
    let row = |name: &str, account: &AccountInfo| {
        [
            one_line(name),
            grouped(account.calls),
            grouped(account.retries.calls),
            grouped(account.prompt),
            grouped(account.cached),
            grouped(account.completion),
            format!("{sign}{}", grouped(account.spent)),
            grouped(account.retries.tokens),
            account.limit.map_or_else(|| "none".to_owned(), grouped),
        ]
    };
    let architect = report.architect.as_ref().map(|account| row("(architect)", account));
    let workers = report.workers.iter().map(|(name, worker)| row(name.as_str(), &worker.account));
    table(
        ["WORKER", "CALLS", "RETRIES", "PROMPTS", "CACHED", "REPLIES", "TOKENS", "RETRY TOKENS", "LIMIT"],
        architect.into_iter().chain(workers).chain([row("(board)", &report.tokens)]),
    )
}

fn lines(report: &CostReport) -> Vec<String> {
    let (board, money) = (&report.tokens, &report.money);
    let mut lines = Vec::new();
    if !report.drawn.is_empty() {
        lines.push(format!("models drawn: {}", describe::selected_models(&report.drawn)));
    }
    let currency = money.currency.as_deref().unwrap_or_default();
    if report.models.len() > 1 || money.currency.is_some() {
        lines.extend(report.models.iter().map(|(name, ModelCost { calls, tokens, money: cost })| {
            let calls = counted(usize::try_from(*calls).unwrap_or(usize::MAX), "call");
            let cost = money.currency.as_ref().map(|_| format!(", {cost} {currency}"));
            format!("model {}: {calls}, {} tokens{}", one_line(name), grouped(*tokens), cost.unwrap_or_default())
        }));
    }
    if money.currency.is_some() || money.spent.0 > 0 || money.limit.is_some() {
        let of = money.limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
        lines.push(format!("money: {}{of} {currency}", money.spent).trim_end().to_owned());
    }
    for (name, worker) in &report.workers {
        if let Some(limit) = worker.money_limit {
            let (name, spent) = (one_line(name.as_str()), worker.account.money);
            lines.push(format!("money of {name}: {spent} of {limit} {currency}").trim_end().to_owned());
        }
    }
    // The architect's prompts are all instructions and have a separate line.
    let prompts = board.prompt.saturating_sub(report.architect.as_ref().map_or(0, |account| account.prompt));
    if prompts > 0 {
        let PromptTokens { instructions, contract, document, refusals, trigger, tools } = report.prompts;
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
    if board.unanswered > 0 {
        lines.push(format!("charged without an answer: {}", grouped(board.unanswered)));
    }
    if board.reserved > 0 {
        lines.push(format!("reserved for calls under way: {}", grouped(board.reserved)));
    }
    if report.late > 0 {
        lines.push(format!("late replies: {} (charged by their reservations)", grouped(report.late)));
    }
    let mut shortfalls = Vec::<(&Budget, usize)>::new();
    for short in &report.shortfalls {
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
