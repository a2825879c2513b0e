//! `patchboard approve` and `patchboard deny`: a person answers what a board asks.

use std::path::Path;

use clap::Args;
use patchboard_kernel::board::{Board, Outcome as Decided, Pending};
use patchboard_kernel::id::Seq;
use patchboard_kernel::record::Answer;
use serde_json::json;

use crate::archive::Archive;
use crate::cli::BoardArgument;
use crate::drive::{self, TakeUp, question_json, question_text};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::seating::SeatArguments;

/// What both commands are given.
#[derive(Args, Debug)]
pub(crate) struct Question {
    #[command(flatten)]
    board: BoardArgument,
    /// The question: the seq of its `approval` record. Without it the questions that stand are shown
    #[arg(value_name = "SEQ")]
    seq: Option<u64>,
    /// Why, in your words; the worker is told, and the journal keeps it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only record the answer and what comes of it; `patchboard resume` lets the board go on
    #[arg(long)]
    no_run: bool,
    #[command(flatten)]
    seats: SeatArguments,
}

/// Agree to a proposal that waits for a person, and let the board go on until it ends or asks again
///
/// The answer counts for exactly what is shown: the proposal is checked once more against what its author had read, and
/// committed if nothing of that has changed. It counts once, and only until the question's time is over.
///
/// A board that another process runs cannot be reached: pause that run with Ctrl-C, then answer.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard approve last                                           (shows what is asked, and answers nothing)
  patchboard approve last 17
  patchboard approve last 17 --reason 'checked with accounting'
  patchboard approve last 17 --no-run --output json")]
pub(crate) struct Approve {
    #[command(flatten)]
    question: Question,
}

/// Refuse a proposal that waits for a person, and let the board go on until it ends or asks again
///
/// The worker is told the reason and may try again, as often as its `attempts` allow.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard deny last 17 --reason 'too expensive'
  patchboard deny last 17 --no-run")]
pub(crate) struct Deny {
    #[command(flatten)]
    question: Question,
}

impl Approve {
    pub(crate) async fn run(&self, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
        answer(&self.question, true, data_dir, config, output).await
    }
}

impl Deny {
    pub(crate) async fn run(&self, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
        answer(&self.question, false, data_dir, config, output).await
    }
}

async fn answer(asked: &Question, agrees: bool, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
    let archive = Archive::open(data_dir)?;
    let summary = archive.find(&asked.board.board)?;
    let records = archive.records_to_go_on(&summary)?;
    let recovered = archive.board(&summary, None)?;
    let (seq, question) = chosen(&recovered, asked.seq, output)?;
    let blueprint = recovered.blueprint().as_ref().clone();
    drop(archive);
    output.note(&question_text(seq, &question, recovered.state()));
    let seating = asked.seats.seat(&blueprint, config)?;
    seating.goes_on(&records);
    let how = if asked.no_run { TakeUp::Paused } else { TakeUp::Plainly };
    let (runtime, board) = drive::take_up(data_dir, &seating, &summary.id, how).await?;
    let answer =
        Answer { of: seq, by: question.approver, digest: question.digest, agrees, reason: asked.reason.clone() };
    let given = async {
        let outcome = board.answer(answer).await?;
        if !asked.no_run && board.snapshot().paused {
            board.resume(None).await?;
        }
        Ok(outcome)
    };
    let outcome = match given.await {
        Ok(outcome) => outcome,
        Err(error) => {
            runtime.shutdown().await;
            return Err(drive::failure(error));
        }
    };
    if let Decided::Refused(rejection) = outcome {
        runtime.shutdown().await;
        let code = rejection.code.as_str();
        let message = rejection.violations.first().map_or(code, |violation| violation.message.as_str());
        return Err(Failure::refused(code, message).help("`patchboard resume` shows what stands now"));
    }
    if asked.no_run {
        let head = board.snapshot().head;
        runtime.shutdown().await;
        let came_of_it = match &outcome {
            Decided::Committed { .. } => "committed",
            Decided::NoOp { .. } => "no_op",
            Decided::Expanded { .. } => "expanded",
            _ => "rejected",
        };
        if output.is_json() {
            output.json(&json!({"board": summary.id, "question": seq, "outcome": came_of_it,
                "head": {"seq": head.seq, "hash": head.hash}}))?;
        } else {
            output.line(&format!("{came_of_it}; go on with: patchboard resume {}", summary.id))?;
        }
        return Ok(Exit::Done);
    }
    let again = format!("patchboard resume {}{}", summary.id, asked.seats.repeated());
    drive::to_the_end(runtime, board, Some(summary.head.seq), &again, &seating, output).await
}

/// The question that is meant.
/// The question of that number, which has not to be guessed: what stands now may be another than the person has read.
fn chosen(board: &Board, seq: Option<u64>, output: Output) -> Result<(Seq, Pending), Failure> {
    let pending = board.pending();
    let standing = || {
        let questions: Vec<_> = pending.iter().map(|(seq, question)| question_json(*seq, question)).collect();
        json!(questions)
    };
    let numbers = || pending.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let found = match seq {
        Some(seq) => pending.get_key_value(&Seq(seq)),
        None if pending.is_empty() => None,
        None => {
            for (seq, question) in pending.iter() {
                output.note(&question_text(*seq, question, board.state()));
            }
            let failure = Failure::refused("which_question", format!("what stands: {}", numbers()));
            let failure = failure.help(format!("answer one by its number: {}", numbers()));
            return Err(failure.detail("questions", standing()));
        }
    };
    let Some((seq, question)) = found else {
        let message = match seq {
            Some(seq) => format!("no question stands under {seq}: it is answered, or over, or never was"),
            None => "the board asks nothing of anybody".to_owned(),
        };
        let help = if pending.is_empty() {
            "`patchboard log BOARD` tells what happened".to_owned()
        } else {
            format!("what stands: {}", numbers())
        };
        return Err(Failure::refused("not_pending", message).help(help).detail("questions", standing()));
    };
    Ok((*seq, question.clone()))
}
