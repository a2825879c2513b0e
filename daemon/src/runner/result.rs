//! Result of a run, as it is printed.

use jsonptr::PointerBuf;
use patchboard_kernel::board::{PendingQuestion, UnfinishedWork};
use patchboard_kernel::files::FILES;
use patchboard_kernel::id::Seq;
use patchboard_kernel::ledger::Account;
use patchboard_kernel::record::{Cause, End, Ended};
use patchboard_kernel::text::counted;
use patchboard_kernel::tree::Node;
use patchboard_protocols::workflow::engine::{self, FailedNode};
use patchboard_runtime::status::BoardStatus;
use serde_json::{Map, Value, json};

use crate::describe::{self, UnshownInfo, grouped};
use crate::failure::{Exit, Outcome};
use crate::output::{Output, clean, json_pretty, one_line, short};
use crate::progress::Totals;
use crate::queries::cost::unanswered;
use crate::queries::questions::QuestionInfo;
use crate::questions::question_text;
use crate::worker_agents::ResumeFlags;

/// Result of a board, with the data to print it.
pub(crate) struct RunResult<'a> {
    status: &'a BoardStatus,
    /// End of the board; `None` if it is paused or waits for persons.
    ended: Option<Ended>,
    /// Places of the document that hold the result.
    results: Vec<PointerBuf>,
    totals: &'a Totals,
    /// Work left undone, if the board has ended.
    unfinished: UnfinishedWork,
    /// Failed nodes of its workflow, if the board has ended.
    failed_nodes: Vec<FailedNode>,
    resume_flags: &'a ResumeFlags,
}

fn and_more(all: usize) -> String {
    if all > 1 { format!(" and {} more", all - 1) } else { String::new() }
}

/// Returns the exit code of an end (SPEC section 12).
const fn exit_of(end: End) -> Exit {
    match end {
        End::Done => Exit::Done,
        End::Quiescent => Exit::Quiescent,
        End::Stopped => Exit::Stopped,
        End::Failed | End::Cancelled => Exit::Failed,
    }
}

impl<'a> RunResult<'a> {
    pub(crate) fn new(
        status: &'a BoardStatus,
        ended: Option<Ended>,
        totals: &'a Totals,
        resume_flags: &'a ResumeFlags,
    ) -> Self {
        let (blueprint, root) = (&status.blueprint, status.state.root());
        let failed_nodes = ended.map_or_else(Vec::new, |_| engine::failed_nodes(blueprint, root));
        let unfinished = status.unfinished.as_deref().cloned().unwrap_or_default();
        Self { status, ended, results: blueprint.results(), totals, unfinished, failed_nodes, resume_flags }
    }

    pub(crate) fn print(&self, output: Output) -> Outcome {
        if output.is_json() {
            output.json(&self.json())?;
        } else {
            output.text(&self.text())?;
        }
        for sentence in self.totals.shortages.later() {
            output.note(&sentence);
        }
        if let Some(undone) = self.describe_unfinished() {
            output.note(&undone);
        }
        Ok(self.ended.map_or(Exit::Waiting, |ended| exit_of(ended.end)))
    }

    fn describe_unfinished(&self) -> Option<String> {
        let cause = self.ended.map(|ended| ended.cause)?;
        match cause {
            Cause::Done => return self.abandoned_work(),
            Cause::Cancelled => return None,
            _ => {}
        }
        let mut notes: Vec<String> = self.failed_nodes().into_iter().collect();
        notes.extend(self.unfinished.unmet.first().map(|rule| {
            let more = and_more(self.unfinished.unmet.len());
            format!("rule {rule}{more} has triggered no worker: its `when` does not hold")
        }));
        match cause {
            Cause::NothingToDo => notes.extend(self.not_done()),
            _ => notes.extend(self.retries(cause)),
        }
        (!notes.is_empty()).then(|| notes.join("\n"))
    }

    /// Reports that `done` is false when no work is left.
    fn not_done(&self) -> Option<String> {
        let done = short(&self.status.blueprint.done.as_ref()?.when, 300);
        Some(format!("nothing is left to do, and `done` does not hold: {done}"))
    }

    /// Describes the work that a done board did not wait for.
    fn abandoned_work(&self) -> Option<String> {
        let UnfinishedWork { cut_off, unfired, .. } = &self.unfinished;
        let invocations = (*cut_off > 0).then(|| format!("though {} came to nothing", counted(*cut_off, "invocation")));
        let joins: Vec<String> = unfired.iter().map(ToString::to_string).collect();
        let joins = (!joins.is_empty()).then(|| format!("before {} had fired", joins.join(" and ")));
        let missing = (!self.results.is_empty() && self.results().next().is_none()).then(|| {
            let places: Vec<&str> = self.results.iter().map(|place| place.as_str()).collect();
            format!("though nothing is at {}, the result", places.join(" and "))
        });
        let undecided = self.totals.undecided.first().map(|(rule, place)| {
            let more = and_more(self.totals.undecided.len());
            let place = place.as_ref().map(|place| format!(" at {}", short(place, 200))).unwrap_or_default();
            format!("though rule {rule} could not be decided{place}{more}")
        });
        let missed: Vec<String> = [invocations, undecided, joins, missing].into_iter().flatten().collect();
        (!missed.is_empty()).then(|| format!("`done` held {}", missed.join(", and ")))
    }

    /// Names a failed workflow node, and the command to resume from it.
    fn failed_nodes(&self) -> Option<String> {
        let FailedNode { node, error } = self.failed_nodes.first()?;
        let more = and_more(self.failed_nodes.len());
        let again = self.resume_flags.resume_command(&format!(
            "signal {} resume '{}'",
            self.status.board,
            json!({"node": node})
        ));
        let error = short(error, 300);
        Some(format!(
            "node {node} of the workflow FAILED{more}: {error}\nto go on from it, or from a node that it depends on: {again}"
        ))
    }

    /// Returns the commands that retry abandoned work.
    fn retries(&self, cause: Cause) -> Vec<String> {
        let (what, advice) = match cause {
            Cause::Commits => ("to go on with more commits", ""),
            Cause::Edits => ("to go on with more edits", ""),
            Cause::Wall => ("to go on with more running time", ""),
            Cause::Exhausted | Cause::Budget => (
                "to queue again what no budget was left for",
                " (`log` shows which; --tokens and --money raise limits of the board, --worker W with --worker-tokens and \
                 --worker-money those of a worker)",
            ),
            _ => ("to queue again what was given up", ""),
        };
        let command =
            |options: &str| self.resume_flags.resume_command(&format!("retry {}{options}", self.status.board));
        let retry = format!("{what}: {}{advice}", command(describe::retry_option(cause)));
        let UnfinishedWork { given_up, beyond_limit, undecided, .. } = &self.unfinished;
        let mut notes = Vec::new();
        if let (Cause::GaveUp, Some(first)) = (cause, undecided.first()) {
            let (place, rule, more) = (describe::place(Some(&first.trigger)), &first.rule, and_more(undecided.len()));
            notes.push(format!(
                "rule {rule} could not be decided{place}{more}, so `after` waits for it: fix in the blueprint what its `skipped` \
                 line names (`has(value.member)` asks whether there is one) and run it again"
            ));
        }
        if cause == Cause::Exhausted && !beyond_limit.is_empty() {
            let commands: Vec<String> =
                beyond_limit.iter().map(|worker| command(&format!(" --worker {worker}"))).collect();
            notes.push(format!("to retry invocations beyond the limit of a worker: {}", commands.join(", then: ")));
        }
        // A retry without options queues failed invocations, and is rejected if there are none.
        if notes.is_empty() || *given_up > 0 {
            notes.push(retry);
        }
        notes
    }

    fn question(&self, seq: Seq, question: &PendingQuestion) -> String {
        let board = &self.status.board;
        let command = |words: String| self.resume_flags.resume_command(&words);
        let commands = match question.clarify {
            Some(_) => command(format!("answer {board} {seq} --text TEXT")),
            None => {
                let deny = command(format!("deny {board} {seq} --reason TEXT"));
                format!("{}, or: {deny}", command(format!("approve {board} {seq}")))
            }
        };
        format!("{}\n  {commands}\n", question_text(seq, question, &self.status.state))
    }

    fn json(&self) -> Value {
        json!({
            "board": self.status.board,
            "mode": self.status.mode,
            "end": self.ended.map(|ended| ended.end),
            "cause": self.cause(),
            "paused": self.ended.is_none() && self.status.pending.is_empty(),
            "questions": self.status.pending.iter().map(|(seq, it)| QuestionInfo::new(*seq, it)).collect::<Vec<_>>(),
            "version": self.status.version,
            "state_hash": self.status.state.digest(),
            "tokens": {
                "total": self.status.account.spent,
                "prompt": self.status.account.prompt,
                "completion": self.status.account.completion,
                "cached": self.status.account.cached,
                "unanswered": unanswered(&self.status.account),
                "estimated": self.totals.is_estimated,
            },
            "calls": self.status.account.calls,
            "rejected": self.totals.rejected,
            "failed": self.totals.failed,
            "unshown": self.unshown(),
            "undecided": self.totals.undecided.iter().map(|(rule, at)| json!({"rule": rule, "at": at})).collect::<Vec<_>>(),
            "head": {"seq": self.status.head.seq, "hash": self.status.head.hash},
            "result": self.results().map(|(place, node)| (place.to_string(), node.to_value())).collect::<Map<_, _>>(),
            "state": self.status.state.root(),
        })
    }

    fn unshown(&self) -> Vec<UnshownInfo> {
        let mut unshown = UnshownInfo::of(&self.totals.shortages.first);
        unshown.extend(UnshownInfo::inside(&self.totals.nested_shortages));
        unshown
    }

    /// Returns the cause of the end, or of a pause by the kernel.
    fn cause(&self) -> Option<String> {
        let ended = self.ended.map(|ended| ended.cause.to_string());
        ended.or_else(|| self.status.pause_cause.map(|cause| cause.to_string()))
    }

    fn text(&self) -> String {
        let end = match (self.ended, self.status.pending.len()) {
            (Some(ended), _) => format!("{} ({})", ended.end, ended.cause),
            (None, _) if self.status.pause_cause.is_some() => format!("paused ({})", self.cause().unwrap_or_default()),
            (None, 0) => "paused".to_owned(),
            (None, questions) => format!("waiting for {}", counted(questions, "answer")),
        };
        let sign = if self.totals.is_estimated { "~" } else { "" };
        let Account { spent, prompt, completion, .. } = self.status.account;
        let (total, prompt, completion) = (grouped(spent), grouped(prompt), grouped(completion));
        let unanswered = match unanswered(&self.status.account) {
            0 => String::new(),
            tokens => format!(", {} without an answer", grouped(tokens)),
        };
        let failed = self.totals.last_failure.as_ref().map(|(code, message)| {
            let calls = counted(usize::try_from(self.totals.failed).unwrap_or(usize::MAX), "call");
            format!("failed   {calls}; last: {code}: {}\n", short(message, 200))
        });
        let failed = failed.unwrap_or_default();
        let refused = self.totals.last_provider_error.as_ref().filter(|_| self.status.pause_cause.is_some());
        let refused = refused.map(|message| format!("provider {}\n", short(message, 200))).unwrap_or_default();
        let mode =
            if self.status.mode.is_default() { String::new() } else { format!("mode     {}\n", self.status.mode) };
        let questions =
            self.status.pending.iter().map(|(seq, question)| self.question(*seq, question)).collect::<String>();
        let result = self.result();
        let (files, document) = self.document();
        let document = match result.is_empty() {
            true => document,
            false => format!("document {}", self.resume_flags.inspect_command(&format!("state {}", self.status.board))),
        };
        format!(
            "{result}board    {}\n{mode}end      {end}\n{questions}version  {}\ntokens   {sign}{total} ({prompt} in prompts, {completion} in \
             replies{unanswered})\n{failed}{refused}{files}{document}\n",
            self.status.board, self.status.version
        )
    }

    /// Returns the existing result places with their values.
    fn results(&self) -> impl Iterator<Item = (&PointerBuf, &Node)> {
        self.results.iter().filter_map(|place| Some((place, self.status.state.root().get(place)?)))
    }

    /// Formats the result, with each place's name if there are several; empty if it is missing, or the board is not
    /// done.
    fn result(&self) -> String {
        if self.ended.is_none_or(|ended| ended.end != End::Done) {
            return String::new();
        }
        let is_one = self.results.len() == 1;
        let values = self.results().map(|(place, node)| {
            let value = node.as_str().map_or_else(|| json_pretty(node), |text| clean(text).into_owned());
            if is_one { format!("{value}\n\n") } else { format!("{}\n{value}\n\n", one_line(place.as_str())) }
        });
        values.collect()
    }

    /// Formats the document for people; of the files, possibly thousands, only their number.
    fn document(&self) -> (String, String) {
        let root = self.status.state.root();
        let Some(files) = root.child(FILES).filter(|_| self.status.blueprint.workspace.is_some()) else {
            return (String::new(), json_pretty(root));
        };
        let files_line = format!(
            "files    {}; see `patchboard edit-stats {}`\n",
            grouped(files.part_count() as u64),
            self.status.board
        );
        let mut document = root.to_value();
        if let Value::Object(members) = &mut document {
            members.remove(FILES);
        }
        (files_line, json_pretty(&document))
    }
}
