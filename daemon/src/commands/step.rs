//! `patchboard dry-run`: runs one worker again on an earlier state of the board, without side effects on it.

mod outcome;
mod point;

use std::path::{Path, PathBuf};

use clap::Args;
use patchboard_kernel::blueprint::AgentKind;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::WorkerName;
use patchboard_kernel::record::Record;
use patchboard_roles::blackboard;
use patchboard_runtime::agent::{self, Call, Reply};

use self::outcome::{DryRunResult, RecordedOutcome};
use self::point::DryRunPoint;
use crate::arguments::BoardArgument;
use crate::failure::{Exit, Failure, Outcome};
use crate::input;
use crate::output::Output;
use crate::reader::bad_board;
use crate::worker_agents::{AgentArguments, PlayedRecording};

const REPLY_BYTES_MAX: u64 = 16 << 20;

/// Run one worker again on the board as it was before a record, and show what it would commit
///
/// If the record is an attempt of the worker (`invoked`) or its outcome, the worker gets the view of that attempt.
/// Otherwise it gets a view of the board before the record, with its latest trigger. Only its agent is called, or
/// `--reply` provides the reply, and the kernel judges it as it would have at that moment. If the journal has the
/// actual outcome, the two are compared: `same` means the same patch, the same rejection or the same failure.
///
/// The roles of departments use the time of the attempt, or of the record, and the rows at that time. For a nested
/// board give the recording of the outermost board: it includes the nested calls.
///
/// Nothing changes. The journal is only read, even while another process runs the board; no record is written, and the
/// call is not charged to the board (the model server still bills it). Agents that edit files would change them, so a
/// worker with `files` requires `--reply`. Side effects of programs are not prevented.
///
/// Exits with 0 if the reply would be committed, would change nothing or would wait for a person; with 1 if it would be
/// rejected, or the agent fails.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard log last                                  which record was it?
  patchboard dry-run last --at 7 --worker extractor --cassette blueprints/evidence-review/cassette.jsonl
  patchboard dry-run last --at 7 --worker extractor --model-url http://127.0.0.1:8080/v1 --model qwen2.5
  echo '[{\"op\":\"add\",\"path\":\"/answer\",\"value\":\"42\"}]' | patchboard dry-run last --at 7 --worker writer --reply -
  patchboard dry-run last --at 7 --worker extractor --output json | jq '.outcome, .recorded.same'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    board: BoardArgument,
    /// The record before which the board is reconstructed
    #[arg(long, value_name = "SEQ")]
    at: u64,
    /// The worker, by its name in the blueprint
    #[arg(long, value_name = "WORKER")]
    worker: String,
    /// Judge this reply instead of calling an agent: a file, or - for standard input
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["cassette", "model_url", "model", "api_key_env", "temperature", "allow_inline"])]
    reply: Option<PathBuf>,
    #[command(flatten)]
    agents: AgentArguments,
}

pub(crate) async fn run(arguments: &Arguments, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
    let (reader, summary) = arguments.board.open(data_dir)?;
    let records = reader.records(&summary.id)?;
    let worker = WorkerName::from(arguments.worker.as_str());
    let at = position(&records, arguments.at)?;
    let moment = DryRunPoint::find(&records, at, &worker)?;
    let call = moment.call();
    let answer = match &arguments.reply {
        Some(path) => Ok(blackboard::made(&call, Reply::new(read_reply(path)?, None))),
        None => {
            let before = &records[..moment.outcome.unwrap_or(at)];
            let (name, mut records) = reader.related_records(&summary, moment.time)?;
            records.push(before.to_vec());
            let played = PlayedRecording { name: &name, records: &records };
            ask(&arguments.agents, &moment, &call, &played, data_dir, config).await?
        }
    };
    let result = DryRunResult::from_answer(&moment, &records[at], answer);
    let recorded = moment.outcome.map(|index| RecordedOutcome::compare(&records[index], &result));
    if output.is_json() {
        output.json(&result.json(&moment, arguments.at, recorded.as_ref()))?;
    } else {
        output.text(&result.text(&moment, arguments.at, recorded.as_ref()))?;
    }
    reader.exit_after_listing(&summary.id)?;
    Ok(if result.is_accepted() { Exit::Done } else { Exit::Failed })
}

/// Returns the record's index, if the board before it can be reconstructed.
fn position(records: &[Record], seq: u64) -> Result<usize, Failure> {
    let last = records.last().map_or(0, |record| record.seq.0);
    if seq > last {
        let message = format!("the journal ends with record {last}, before {seq}");
        return Err(Failure::invalid_input("no_such_record", message)
            .help("`patchboard log BOARD` lists the records")
            .detail("last", last.into()));
    }
    let position = usize::try_from(seq).unwrap_or(usize::MAX);
    if position == 0 {
        return Err(Failure::invalid_input("no_such_record", "before record 0 there is no board")
            .help("name the record of an attempt or of its outcome: `patchboard log BOARD`"));
    }
    // A missing record is as bad as an altered one.
    if let Some(missing) = (0..=position).find(|&at| records.get(at).is_none_or(|record| record.seq.0 != at as u64)) {
        return Err(Failure::failed("bad_record", format!("record {missing} is missing"))
            .help("`patchboard verify BOARD` says what else is wrong")
            .detail("seq", missing.into()));
    }
    for record in &records[..position] {
        if record.redaction_marker().map_err(bad_board)?.is_some() {
            let message =
                format!("record {} holds values that are erased, so the board after it is not what it was", record.seq);
            return Err(Failure::invalid_input("values_erased", message)
                .help(format!("only records up to {} can be stepped", record.seq))
                .detail("seq", record.seq.0.into()));
        }
    }
    Ok(position)
}

fn read_reply(path: &Path) -> Result<String, Failure> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Failure::invalid_input("reply_unreadable", format!("the reply {} cannot be read: {why}", path.display()))
            .help("name a file that holds a JSON Patch or an envelope around one, or - for standard input")
    };
    let bytes = input::read_bytes(path, REPLY_BYTES_MAX).map_err(|why| unreadable(&why))?;
    String::from_utf8(bytes).map_err(|error| unreadable(&error))
}

async fn ask(
    agents: &AgentArguments,
    moment: &DryRunPoint,
    call: &Call,
    played: &PlayedRecording<'_>,
    data_dir: &Path,
    config: Option<&Path>,
) -> Result<agent::CallResult, Failure> {
    let (seat, worker) = (call.worker_config(), &call.worker);
    let by_hand = "give the reply by hand with --reply FILE, or --reply - for standard input";
    if seat.files.is_some() {
        let message = format!("worker {worker} edits files, and a step must change nothing");
        return Err(Failure::invalid_input("uses_files", message).help(by_hand));
    }
    let is_unreachable = match &seat.agent {
        AgentKind::Human | AgentKind::Remote => !agents.is_played(),
        // A nested board would have its own journal records; recordings hold only the calls inside it.
        kind => *kind == AgentKind::Board,
    };
    if is_unreachable {
        let message = format!("worker {worker} has the agent {}, which cannot be asked from here", seat.agent);
        return Err(Failure::invalid_input("nobody_to_ask", message).help(by_hand));
    }
    let agent = agents.single_agent(moment.board.blueprint(), data_dir, worker, moment.time, played, config)?;
    let answered = tokio::select! {
        answered = tokio::time::timeout(call.timeout, agent.call(call)) => answered,
        _ = tokio::signal::ctrl_c() => return Err(Failure::failed("interrupted", "the call was given up")),
    };
    agent.on_board_ended(&call.board);
    Ok(answered.unwrap_or_else(|_| {
        let message = format!("it did not answer within {} ms", call.timeout.as_millis());
        Err(agent::Failure { code: FailureCode::Timeout, message, usage: None, deferral: None })
    }))
}
