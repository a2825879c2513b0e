//! `patchboard pipe`: the pure kernel on standard input and output, without agents, rules, limits or a journal.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use patchboard_kernel::blueprint::{Blueprint, BoardLimits, Circuit, Duration};
use patchboard_kernel::board::{
    Board, BoardError, Input, NewBoard, Outcome, Proposal, ProposalSource, RememberedOutcome, ReplyBody,
};
use patchboard_kernel::digest::Digest;
use patchboard_kernel::id::{IdempotencyKey, Seq, Timestamp, Version, WorkerName};
use patchboard_kernel::json::{self, Limits};
use patchboard_kernel::rejection::{AllowedWrite, Code, Rejection, Stage, VIOLATIONS_MAX, Violation};
use patchboard_kernel::schema::Schema;
use patchboard_protocols::PLANS;
use serde::Serialize;
use serde_json::{Value, json};

use crate::blueprint_file;
use crate::failure::{Exit, Failure};
use crate::input;
use crate::output::{Output, json_line};

/// Maximum bytes of a line; of a longer line only the beginning is kept, for the rejection.
const LINE_MAX: usize = 64 * 1024 * 1024;

/// Bytes of an overlong line passed to the kernel: more than the default limit of a patch.
const LONG_LINE_PREFIX_BYTES: usize = 64 * 1024;

/// Maximum nesting of a line: that of a patch, plus the object around it.
const DEPTH_MAX: usize = 65;

/// Expected shape of a line, for rejections.
const SHAPE: &str = r#"a line is one JSON object, {"worker": NAME, "patch": [...]} or {"worker": NAME, "text": "..."}, with optional "intent" beside a patch, "base" and "token""#;

/// Validate proposals with the kernel: JSON lines in, one outcome per line out
///
/// Runs no agents and no rules, applies no limits and keeps no journal. The blueprint's schema, contracts and
/// invariants judge every proposal as they would in a run. The salt is all zeros, so that state hashes compare between
/// runs and machines.
///
/// A line in is {"worker": NAME, "patch": [...]} or {"worker": NAME, "text": "..."}. Optional members: `intent` beside
/// a patch (its purpose), `base` (the version it was written against, which must exist; default: the current one) and
/// `token` (idempotency key). A line out is one of
///   {"seq":1,"outcome":"committed","version":1,"state_hash":"..."}
///   {"seq":2,"outcome":"no_op"}
///   {"seq":3,"outcome":"rejected","stage":"schema","code":"schema_violation","violations":[...],"allowed":[...]}
///   {"outcome":"duplicate","of":{...the first outcome of the token...}}
/// A line that is not such an object is a rejection, too. Every line in produces one line out, in order.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  echo '{\"worker\":\"w\",\"patch\":[{\"op\":\"add\",\"path\":\"/a\",\"value\":1}]}' | patchboard pipe blueprint.yaml
  patchboard pipe blueprint.yaml --state now.json --print-state < proposals.jsonl")]
pub(crate) struct Arguments {
    /// The blueprint, in YAML or JSON
    #[arg(value_name = "BLUEPRINT")]
    blueprint: PathBuf,
    /// A JSON file with the initial state, instead of the blueprint's; its /request must be valid for `run`
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Print {"state": ...} at the end
    #[arg(long)]
    print_state: bool,
}

pub(crate) fn run(arguments: &Arguments, output: Output) -> Result<Exit, Failure> {
    let accepted = blueprint_file::read_valid(&arguments.blueprint, None, output)?;
    let request_schema = Schema::compile(&accepted.request, accepted.state.assert_formats);
    let request_schema = request_schema.map_err(|error| Failure::invalid_input("bad_blueprint", error))?;
    let mut blueprint = without_rules(accepted);
    if let Some(path) = &arguments.state {
        blueprint.state.initial = state_of(path, &blueprint)?;
    }
    if let Some(request) = blueprint.state.initial.get("request") {
        let mut violations = request_schema.violations(request, VIOLATIONS_MAX);
        for violation in &mut violations {
            violation.pointer.insert_str(0, "/request");
        }
        if !violations.is_empty() {
            return Err(invalid_state(&violations));
        }
    }
    let genesis = NewBoard::new("kernel", blueprint, Value::Null, Timestamp(0));
    let (mut board, _) = Board::create(genesis, &PLANS).map_err(|error| match error {
        BoardError::BadRequest(violations) => invalid_state(&violations),
        other @ (BoardError::BadBlueprint(_) | BoardError::BadRecord { .. }) => {
            Failure::invalid_input("bad_blueprint", other)
        }
    })?;
    let stdin = io::stdin().lock();
    let stdout = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    process_lines(&mut board, stdin, stdout, arguments.print_state)?;
    Ok(Exit::Done)
}

fn invalid_state(violations: &[Violation]) -> Failure {
    let first = violations.first().map(|first| format!("at {:?}: {}", first.pointer, first.message));
    Failure::invalid_input("invalid_state", "the state to begin from is not valid for this blueprint")
        .help(first.unwrap_or_default())
        .detail("violations", json!(violations))
}

/// Removes the parts of a blueprint that make a board act by itself or end: rules, the `done` condition, breakers and
/// limits of the whole board. Keeps those that judge a proposal: schema, contracts, invariants, and the limits of a
/// patch and of the state.
fn without_rules(blueprint: Blueprint) -> Blueprint {
    let limits = BoardLimits {
        commits: u64::MAX,
        edits: Some(u64::MAX),
        tokens: u64::MAX,
        wall: Duration::from_secs(u64::from(u32::MAX)),
        money: None,
        patience: None,
        dedup: None,
        journal: Some(u64::MAX),
        state_bytes: blueprint.limits.state_bytes,
        depth: blueprint.limits.depth,
    };
    Blueprint {
        request: Value::Bool(true),
        rules: Vec::new(),
        done: None,
        circuit: Circuit::default(),
        limits,
        ..blueprint
    }
}

fn state_of(path: &PathBuf, blueprint: &Blueprint) -> Result<Value, Failure> {
    let shown = path.display();
    if path == Path::new(input::STDIN) {
        let message = "standard input carries the proposals, so it cannot carry the state";
        return Err(Failure::invalid_input("state_unreadable", message).help("name a file"));
    }
    let most = blueprint.limits.state_bytes;
    let text = input::read_prefix(path, most)
        .map_err(|why| Failure::invalid_input("state_unreadable", format!("{shown} cannot be read: {why}")))?;
    let limits = Limits {
        bytes: usize::try_from(most).unwrap_or(usize::MAX),
        depth: usize::try_from(blueprint.limits.depth).unwrap_or(usize::MAX),
    };
    json::parse(&text, limits).map_err(|refusal| {
        Failure::invalid_input("state_unreadable", format!("{shown} is no acceptable JSON: {refusal}"))
            .detail("reason", refusal.code.as_str().into())
    })
}

/// Answers every line. Output is flushed only before waiting for more input, so an interactive client sees each answer
/// at once and a long file is not slowed down.
fn process_lines(board: &mut Board, stdin: impl Read, stdout: impl Write, print_state: bool) -> Result<(), Failure> {
    let mut lines = Lines { input: BufReader::with_capacity(1 << 16, stdin), line: Vec::new() };
    let mut stdout = stdout;
    let writing = |error: io::Error| Failure::writing(&error);
    loop {
        let answer = match lines.next(&mut || stdout.flush().map_err(writing))? {
            None => break,
            Some(InputLine::Line(line)) => answer_line(board, line),
            Some(InputLine::TooLong(beginning)) => {
                let text = unreadable(&String::from_utf8_lossy(beginning));
                let why = Violation::new(Code::TooLarge, "", format!("a line has at most {LINE_MAX} bytes"));
                propose(board, "", text, None, None).with_violation(why)
            }
        };
        writeln!(stdout, "{}", json_line(&answer)).map_err(writing)?;
    }
    if print_state {
        writeln!(stdout, "{}", json_line(&json!({"state": board.state().root()}))).map_err(writing)?;
    }
    stdout.flush().map_err(writing)
}

/// Passes the content of a line to the kernel. A line that is no proposal is recorded as received. The answer describes
/// the error in the line, because the kernel's message would describe a reply.
fn answer_line(board: &mut Board, line: &[u8]) -> OutputLine {
    let parsed = std::str::from_utf8(line).map_err(|error| {
        let message = format!("not UTF-8 (at byte {}); {SHAPE}", error.valid_up_to());
        Box::new(Violation::new(Code::InvalidJson, "", message))
    });
    let parsed = parsed.and_then(|_| {
        json::parse(line, Limits { bytes: LINE_MAX, depth: DEPTH_MAX })
            .map_err(|refusal| Box::new(Violation::new(refusal.code, "", format!("{refusal}; {SHAPE}"))))
    });
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(why) => {
            return propose(board, "", unreadable(&String::from_utf8_lossy(line)), None, None).with_violation(*why);
        }
    };
    let worker = parsed["worker"].as_str().unwrap_or_default().to_owned();
    match read_proposal(parsed, board.version()) {
        Ok(Line { reply, token, base }) => propose(board, &worker, reply, token, base),
        Err(InvalidLine { pointer, what }) => {
            // A JSON string is never a patch: the kernel rejects it at `syntax` and records it.
            let text = Value::String(String::from_utf8_lossy(line).into_owned());
            let why = Violation::new(Code::NotAPatch, pointer, format!("{what}; {SHAPE}"));
            propose(board, &worker, ReplyBody::Json(text), None, None).with_violation(why)
        }
    }
}

/// Returns a text reply that never parses as JSON, whatever limits the blueprint sets.
fn unreadable(text: &str) -> ReplyBody {
    ReplyBody::Text(format!("not a line: {text}"))
}

struct Line {
    reply: ReplyBody,
    token: Option<IdempotencyKey>,
    base: Option<Version>,
}

/// Line of JSON that is not a proposal.
struct InvalidLine {
    /// Offending member, as a JSON Pointer into the line.
    pointer: String,
    what: String,
}

fn invalid<T>(pointer: &str, what: impl Into<String>) -> Result<T, InvalidLine> {
    Err(InvalidLine { pointer: pointer.to_owned(), what: what.into() })
}

/// Parses a proposal. `current` is the board's version.
fn read_proposal(line: Value, current: Version) -> Result<Line, InvalidLine> {
    let mut members = match line {
        Value::Object(members) => members,
        other => return invalid("", format!("this is {}", kind_of(&other))),
    };
    match members.remove("worker") {
        Some(Value::String(_)) => {}
        Some(other) => return invalid("/worker", format!("worker is {}, not a name", kind_of(&other))),
        None => return invalid("", "worker is missing"),
    }
    let reply = match (members.remove("patch"), members.remove("text")) {
        (Some(patch @ Value::Array(_)), None) => ReplyBody::Json(patch),
        (None, Some(Value::String(text))) => ReplyBody::Text(text),
        (Some(other), None) => {
            return invalid("/patch", format!("patch is {}, not an array of operations", kind_of(&other)));
        }
        (None, Some(other)) => return invalid("/text", format!("text is {}, not a string", kind_of(&other))),
        (Some(_), Some(_)) => return invalid("", "it has both patch and text"),
        (None, None) => return invalid("", "patch and text are missing"),
    };
    let reply = match (members.remove("intent"), reply) {
        (None | Some(Value::Null), reply) => reply,
        (Some(Value::String(intent)), ReplyBody::Json(patch)) => {
            ReplyBody::Json(json!({"patch": patch, "intent": intent}))
        }
        (Some(Value::String(_)), ReplyBody::Text(_)) => {
            return invalid("/intent", "intent belongs beside a patch; a text contains its own");
        }
        (Some(other), _) => return invalid("/intent", format!("intent is {}, not a string", kind_of(&other))),
    };
    let token = match members.remove("token") {
        None | Some(Value::Null) => None,
        Some(Value::String(token)) => Some(IdempotencyKey::from(token)),
        Some(other) => return invalid("/token", format!("token is {}, not a string", kind_of(&other))),
    };
    let base = match members.remove("base") {
        None | Some(Value::Null) => None,
        Some(base) => match base.as_u64().map(Version) {
            Some(base) if base > current => {
                return invalid("/base", format!("base is {base}, but the board is at version {current}"));
            }
            Some(base) => Some(base),
            None => {
                let what = match &base {
                    Value::Number(number) => number.to_string(),
                    other => kind_of(other).to_owned(),
                };
                return invalid("/base", format!("base is {what}, not a version: an integer from 0 on"));
            }
        },
    };
    if let Some(unknown) = members.keys().next() {
        let pointer = jsonptr::PointerBuf::from_tokens([unknown.as_str()]).to_string();
        return invalid(&pointer, format!("{unknown} is no member of a line"));
    }
    Ok(Line { reply, token, base })
}

const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn propose(
    board: &mut Board,
    worker: &str,
    reply: ReplyBody,
    token: Option<IdempotencyKey>,
    base: Option<Version>,
) -> OutputLine {
    let proposal = Proposal {
        from: ProposalSource::Direct { key: token, base },
        worker: WorkerName::from(worker),
        reply,
        usage: None,
        raw: None,
    };
    let step = board.step(Timestamp(0), Input::Propose(proposal));
    OutputLine::from_outcome(step.outcome.expect("a proposal has an outcome"))
}

/// Line of output; members are in reading order.
#[derive(Serialize, Default)]
struct OutputLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<Seq>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Version>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_hash: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<Stage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
    #[serde(skip_serializing_if = "Option::is_none")]
    violations: Option<Vec<Violation>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<Vec<AllowedWrite>>,
    /// First outcome of a repeated token.
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<Box<OutputLine>>,
}

impl OutputLine {
    fn committed(seq: Seq, version: Version, state: Digest) -> Self {
        let (version, state_hash) = (Some(version), Some(state));
        Self { seq: Some(seq), outcome: "committed", version, state_hash, ..Self::default() }
    }

    fn recorded(outcome: &'static str, seq: Seq) -> Self {
        Self { seq: Some(seq), outcome, ..Self::default() }
    }

    fn rejected(outcome: &'static str, seq: Option<Seq>, rejection: Rejection) -> Self {
        let Rejection { stage, code, violations, allowed } = rejection;
        let (violations, allowed) = (Some(violations), Some(allowed));
        Self { seq, outcome, stage: Some(stage), code: Some(code), violations, allowed, ..Self::default() }
    }

    fn from_outcome(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Committed { seq, version, state } => Self::committed(seq, version, state),
            Outcome::NoOp { seq } => Self::recorded("no_op", seq),
            Outcome::Expanded { seq } => Self::recorded("expanded", seq),
            Outcome::AwaitingApproval { seq } => Self::recorded("awaiting_approval", seq),
            Outcome::Continued { seq } => Self::recorded("continued", seq),
            Outcome::Answered { seq } => Self::recorded("answered", seq),
            Outcome::RejectedUnrecorded(rejection) => Self::rejected("refused", None, rejection),
            Outcome::Rejected { seq, rejection } => Self::rejected("rejected", Some(seq), rejection),
            Outcome::Duplicate(first) => {
                let first = match first {
                    RememberedOutcome::Committed { seq, version, state } => Self::committed(seq, version, state),
                    // Proposals have no tokens of requests, so `Recorded` cannot occur.
                    RememberedOutcome::NoOp { seq } | RememberedOutcome::Recorded { seq } => {
                        Self::recorded("no_op", seq)
                    }
                    RememberedOutcome::Expanded { seq } => Self::recorded("expanded", seq),
                    RememberedOutcome::AwaitingApproval { seq } => Self::recorded("awaiting_approval", seq),
                    RememberedOutcome::Rejected { seq, stage, code } => {
                        Self { stage: Some(stage), code: Some(code), ..Self::recorded("rejected", seq) }
                    }
                };
                Self { outcome: "duplicate", of: Some(Box::new(first)), ..Self::default() }
            }
        }
    }

    /// Replaces the rejection's reason by the error in the line itself.
    fn with_violation(self, why: Violation) -> Self {
        Self { stage: Some(Stage::Syntax), code: Some(why.code), violations: Some(vec![why]), ..self }
    }
}

/// Reader of lines of bounded length, without their newline.
struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
}

/// Line, or the beginning of an overlong one.
enum InputLine<'a> {
    Line(&'a [u8]),
    TooLong(&'a [u8]),
}

impl<R: Read> Lines<R> {
    /// Returns the next line; `None` at the end of the input. Calls `before_waiting` before each read that may block.
    fn next(
        &mut self,
        before_waiting: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<Option<InputLine<'_>>, Failure> {
        self.line.clear();
        let mut length = 0;
        loop {
            if self.input.buffer().is_empty() {
                before_waiting()?;
            }
            let read = match self.input.fill_buf() {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(Failure::failed("input_failed", format!("standard input cannot be read: {error}")));
                }
            };
            if read.is_empty() && length == 0 {
                return Ok(None);
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            length += part.len();
            let room = LINE_MAX.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            let consumed = part.len() + usize::from(end.is_some());
            let at_end = end.is_some() || read.is_empty();
            self.input.consume(consumed);
            if at_end {
                break;
            }
        }
        if length > LINE_MAX {
            return Ok(Some(InputLine::TooLong(&self.line[..LONG_LINE_PREFIX_BYTES])));
        }
        Ok(Some(InputLine::Line(&self.line)))
    }
}
