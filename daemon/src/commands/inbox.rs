//! `patchboard inbox`: lists pending approvals and questions, from a data directory or a daemon.

use std::path::Path;

use clap::Args;
use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_storage::blocking::wait;
use serde_json::{Value, json};

use crate::client::{Client, DaemonArgument};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, json_line, one_line, short};
use crate::queries::questions::InboxQuestion;
use crate::questions::until;
use crate::reader::{Reader, storage};
use crate::worker_agents::data_dir_flags;

/// Maximum characters of a patch in a list.
const PATCH_MAX: usize = 400;

/// List pending approvals and questions of all boards that have not ended
///
/// `patchboard approve`, `deny` and `answer` answer one question, by board and number.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard inbox
  patchboard inbox --url http://127.0.0.1:7733 --output json")]
pub(crate) struct Inbox {
    #[command(flatten)]
    daemon: DaemonArgument,
}

impl Inbox {
    pub(crate) async fn run(&self, data_dir: &Path, output: Output) -> Outcome {
        let ((questions, unread), again) = match self.daemon.client()? {
            Some(daemon) => ((list_remote(&daemon).await?, Vec::new()), daemon.to_flags()),
            None => (list_local(data_dir)?, data_dir_flags(data_dir)),
        };
        if output.is_json() {
            output.json(&json!({ "questions": questions }))?;
        } else if questions.is_empty() {
            output.note("no pending approvals or questions");
        }
        if !output.is_json() {
            for question in &questions {
                output.text(&question_with_command(question, &again))?;
            }
        }
        for (board, _) in &unread {
            output.note(&format!("board {board} cannot be read: its questions are not listed"));
        }
        unread.into_iter().next().map_or(Ok(Exit::Done), |(_, failure)| Err(failure))
    }
}

pub(super) async fn list_remote(daemon: &Client) -> Result<Vec<Value>, Failure> {
    let inbox = daemon.get("/v1/inbox").await?;
    Ok(inbox["questions"].as_array().cloned().unwrap_or_default())
}

/// Boards that could not be read, with the reason.
type UnreadableBoards = Vec<(BoardId, Failure)>;

/// Returns the pending questions of a data directory. An unreadable board does not hide the questions of others.
fn list_local(data_dir: &Path) -> Result<(Vec<Value>, UnreadableBoards), Failure> {
    let reader = Reader::open(data_dir)?;
    let (mut questions, mut unread) = (Vec::new(), Vec::new());
    for summary in wait(reader.journal.boards()).map_err(storage)?.iter().filter(|board| board.ended.is_none()) {
        let board = match reader.board(summary, None) {
            Ok(board) => board,
            Err(failure) => {
                unread.push((summary.id.clone(), failure));
                continue;
            }
        };
        let has_programs = board.blueprint().workers.values().any(|worker| !worker.program.is_empty());
        questions.extend(board.pending().iter().map(|(seq, question)| {
            let mut row = json!(InboxQuestion::new(&summary.id, *seq, question));
            if has_programs {
                row["inline"] = true.into();
            }
            row
        }));
    }
    Ok((questions, unread))
}

/// Formats a question and the command that answers it. `again` holds the flags to reach the same board.
pub(super) fn question_with_command(question: &Value, again: &str) -> String {
    let text = |name: &str| one_line(question[name].as_str().unwrap_or_default());
    let (board, seq, worker, approver) = (text("board"), &question["seq"], text("worker"), text("approver"));
    let until = until(question["expires"].as_i64().map(Timestamp));
    // An answer resumes the board, and with it the blueprint's inline programs.
    let again = if question["inline"] == true { &format!("{again} --allow-inline") } else { again };
    let asked = &question["clarify"];
    if let Some(asks) = asked["question"].as_str() {
        let choices: Vec<String> =
            asked["choices"].as_array().into_iter().flatten().filter_map(Value::as_str).map(one_line).collect();
        let choices = if choices.is_empty() { String::new() } else { format!(" ({})", choices.join(", ")) };
        let asks = one_line(asks);
        return format!(
            "{board} {seq}  {worker} asks {approver}{until}: {asks}{choices}\n  patchboard answer {board} {seq} --text TEXT{again}\n"
        );
    }
    let intent =
        question["intent"].as_str().map(|intent| format!(", because: {}", one_line(intent))).unwrap_or_default();
    let patch = short(&json_line(&question["patch"]), PATCH_MAX);
    format!(
        "{board} {seq}  {worker} asks {approver} to agree{until}{intent}\n  {patch}\n  patchboard approve {board} {seq}{again}, or: patchboard deny {board} {seq} --reason TEXT{again}\n"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn the_command_lets_programs_of_the_board_run() {
        let mut question = json!({"board": "b", "seq": 3, "worker": "w", "approver": "boss", "patch": []});
        let line = |question: &serde_json::Value| super::question_with_command(question, " --data-dir d");
        assert!(line(&question).contains("approve b 3 --data-dir d, or: patchboard deny b 3"));
        question["inline"] = true.into();
        assert!(line(&question).contains("approve b 3 --data-dir d --allow-inline, or: patchboard deny b 3"));
    }
}
