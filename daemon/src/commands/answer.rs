//! `patchboard approve`, `deny` and `answer`: answer a board's questions. [`super::inbox`] lists them.

use std::path::Path;

use clap::Args;
use patchboard_kernel::board::{Board, Input, Outcome as Decided, PendingQuestion};
use patchboard_kernel::id::Seq;
use patchboard_kernel::record::Answer;
use patchboard_kernel::rejection::Rejection;
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_runtime::error::RuntimeError;
use serde_json::{Value, json};

use super::inbox::{list_remote, question_with_command};
use crate::arguments::BoardArgument;
use crate::client::{Client, DaemonArgument};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, one_line};
use crate::queries::questions::QuestionInfo;
use crate::questions::question_text;
use crate::runner::{self, AcquireMode};
use crate::worker_agents::WorkerAgentArguments;

/// Arguments shared by `approve`, `deny` and `answer`.
#[derive(Args, Debug)]
pub(crate) struct QuestionArguments {
    #[command(flatten)]
    board: BoardArgument,
    /// The question: the seq of its `approval` record. Without it the pending questions are shown
    #[arg(value_name = "SEQ")]
    seq: Option<u64>,
    #[command(flatten)]
    daemon: DaemonArgument,
    /// Reason for the answer; sent to the worker and kept in the journal
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Record the answer and its effects only; `patchboard resume` continues the board
    #[arg(long)]
    no_run: bool,
    #[command(flatten)]
    seats: WorkerAgentArguments,
}

/// Approve a pending proposal, and run the board until it ends or asks again
///
/// The approval covers exactly the proposal shown. The kernel checks it again against its author's read set and
/// commits it if nothing in that has changed. An approval counts once, before the question's deadline.
///
/// For a board that a daemon runs, use --url. A board of another `patchboard run` process cannot be reached: pause that
/// run with Ctrl-C, then answer.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard approve last                                           (shows the question without answering)
  patchboard approve last 17
  patchboard approve last 17 --reason 'checked with accounting'
  patchboard approve last 17 --no-run --output json
  patchboard approve 0199 17 --url http://127.0.0.1:7733")]
pub(crate) struct Approve {
    #[command(flatten)]
    pub(crate) question: QuestionArguments,
}

/// Deny a pending proposal or question, and run the board until it ends or asks again
///
/// The worker receives the reason and may retry, up to its limit of `attempts`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard deny last 17 --reason 'too expensive'
  patchboard deny last 17 --no-run")]
pub(crate) struct Deny {
    #[command(flatten)]
    pub(crate) question: QuestionArguments,
}

/// Answer a worker's question, and run the board until it ends or asks again
///
/// If the question offers choices, the answer must be one of them. The worker is then called again with the answer.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard answer last                                            (shows the question without answering)
  patchboard answer last 17 --text office
  patchboard answer 0199 17 --text 'the one of last week' --url http://127.0.0.1:7733")]
pub(crate) struct AnswerArguments {
    #[command(flatten)]
    pub(crate) question: QuestionArguments,
    /// The answer
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PersonAnswer {
    Agrees,
    Denies,
    /// Text of an answer to a worker's question.
    Text(Option<String>),
}

async fn over_http(daemon: &Client, asked: &QuestionArguments, said: &PersonAnswer, output: Output) -> Outcome {
    let questions = list_remote(daemon).await?;
    let of_board = |question: &&Value| question["board"].as_str().is_some_and(|id| id.starts_with(&asked.board.board));
    let of_board: Vec<&Value> = questions.iter().filter(of_board).collect();
    let found: Vec<&&Value> = of_board.iter().filter(|question| question["seq"].as_u64() == asked.seq).collect();
    let [question] = found.as_slice() else {
        for question in &of_board {
            output.note(&question_with_command(question, &daemon.to_flags()));
        }
        let numbers: Vec<String> = of_board.iter().map(|question| question["seq"].to_string()).collect();
        let failure = match (asked.seq, numbers.is_empty()) {
            (None, false) => Failure::invalid_input("which_question", format!("pending: {}", numbers.join(", "))),
            (Some(seq), _) => {
                Failure::invalid_input("not_pending", format!("no board of that name has a pending question {seq}"))
            }
            (None, true) => Failure::invalid_input("not_pending", "no board of that name has a pending question"),
        };
        return Err(failure
            .help("`patchboard inbox --url URL` lists the questions")
            .detail("questions", json!(of_board)));
    };
    let mut answer = json!({"agrees": *said != PersonAnswer::Denies, "digest": question["digest"]});
    if let PersonAnswer::Text(text) = said {
        answer["text"] = json!(text_of(text.as_ref())?);
    }
    if let Some(reason) = &asked.reason {
        answer["reason"] = json!(reason);
    }
    let path = format!("/v1/boards/{}/approvals/{}", question["board"].as_str().unwrap_or_default(), question["seq"]);
    match daemon.post(&path, &answer).await {
        Ok(came) => {
            output.json_or_line(&came, || one_line(came["outcome"].as_str().unwrap_or_default()))?;
            Ok(Exit::Done)
        }
        // A denial was requested, so the kernel's rejection is success.
        Err(Failure::Error(error)) if *said == PersonAnswer::Denies && error.code == "denied" => {
            output.json_or_line(&json!({"outcome": "rejected"}), || "rejected".to_owned())?;
            Ok(Exit::Done)
        }
        Err(failure) => Err(failure),
    }
}

fn text_of(text: Option<&String>) -> Result<String, Failure> {
    text.cloned().ok_or_else(|| {
        Failure::invalid_input("answer_missing", "the question wants an answer").help("give it with --text")
    })
}

pub(crate) async fn run(
    asked: &QuestionArguments,
    said: PersonAnswer,
    data_dir: &Path,
    config: Option<&Path>,
    output: Output,
) -> Outcome {
    if let Some(daemon) = asked.daemon.client()? {
        return over_http(&daemon, asked, &said, output).await;
    }
    let mut stored = asked.board.read(data_dir)?;
    let (seq, question) = find_question(&stored.board, asked.seq, output)?;
    output.note(&question_text(seq, &question, stored.board.state()));
    let seating = asked.seats.assign_to(&stored, data_dir, config)?;
    let text = match &said {
        PersonAnswer::Text(text) => Some(text_of(text.as_ref())?),
        PersonAnswer::Agrees | PersonAnswer::Denies => None,
    };
    let (agrees, reason) = (said != PersonAnswer::Denies, asked.reason.clone());
    let answer = Answer { of: seq, by: question.approver, digest: question.digest, agrees, reason, text };
    // Dry run: a rejected answer must leave no trace in the journal.
    let judged =
        stored.board.step_as(SystemClock.now(), Input::Answer(answer.clone()), runner::recorded_user(&seating));
    if let Some(Decided::RejectedUnrecorded(rejection)) = judged.outcome {
        return Err(refused(&rejection));
    }
    let how = if asked.no_run { AcquireMode::Paused } else { AcquireMode::Resume };
    let (runtime, board) = runner::acquire_board(data_dir, &seating, &stored.summary.id, how).await?;
    let given = async {
        let outcome = board.answer(answer).await?;
        if !asked.no_run && board.status().paused {
            board.resume(None).await?;
        }
        Ok::<_, RuntimeError>(outcome)
    };
    let outcome = match runner::or_shutdown(&runtime, given.await).await? {
        Decided::RejectedUnrecorded(rejection) => runner::or_shutdown(&runtime, Err(refused(&rejection))).await?,
        outcome => outcome,
    };
    if asked.no_run {
        let head = board.status().head;
        runtime.shutdown().await;
        let came_of_it = match &outcome {
            Decided::Committed { .. } => "committed",
            Decided::NoOp { .. } => "no_op",
            Decided::Expanded { .. } => "expanded",
            Decided::Answered { .. } => "answered",
            _ => "rejected",
        };
        let report = json!({"board": stored.summary.id, "question": seq, "outcome": came_of_it,
            "head": {"seq": head.seq, "hash": head.hash}});
        let resume = || seating.resume_flags.resume_command(&format!("resume {}", stored.summary.id));
        output.json_or_line(&report, || format!("{came_of_it}; go on with: {}", resume()))?;
        return Ok(Exit::Done);
    }
    runner::run_to_completion(runtime, board, Some(stored.summary.head.seq), &seating, output).await
}

fn refused(rejection: &Rejection) -> Failure {
    let code = rejection.code.as_str();
    let message = rejection.violations.first().map_or(code, |violation| violation.message.as_str());
    Failure::invalid_input(code, message).help("`patchboard inbox` lists pending questions")
}

/// Returns the question with this number. Without a number it lists the pending questions and fails, even if there is
/// only one: the pending question may differ from the one that the person has read.
fn find_question(board: &Board, seq: Option<u64>, output: Output) -> Result<(Seq, PendingQuestion), Failure> {
    let pending = board.pending();
    let standing = || {
        let questions: Vec<_> = pending.iter().map(|(seq, question)| QuestionInfo::new(*seq, question)).collect();
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
            let failure = Failure::invalid_input("which_question", format!("pending: {}", numbers()));
            let failure = failure.help(format!("answer one by its number: {}", numbers()));
            return Err(failure.detail("questions", standing()));
        }
    };
    let Some((seq, question)) = found else {
        let message = match seq {
            Some(seq) => format!("question {seq} is not pending: it was answered, expired, or never existed"),
            None => "the board has no pending question".to_owned(),
        };
        let help = if pending.is_empty() {
            "`patchboard log BOARD` prints its records".to_owned()
        } else {
            format!("pending: {}", numbers())
        };
        return Err(Failure::invalid_input("not_pending", message).help(help).detail("questions", standing()));
    };
    Ok((*seq, question.clone()))
}
