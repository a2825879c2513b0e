//! Plays a board with a function of this program as its language models, so that the cost of a blueprint can be
//! counted.

use std::collections::VecDeque;
use std::sync::Arc;

use patchboard_kernel::admission;
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::board::{self, Board, Input, NewBoard, Proposal, ProposalSource, ReplyBody, Step};
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp, WorkerName};
use patchboard_kernel::record::{Kind, Record};
use patchboard_kernel::view::Prompt;
use patchboard_protocols::PLANS;
use serde_json::Value;

/// Maximum number of calls that are answered.
const CALLS_MAX: usize = 10_000;

/// Call of a language model.
pub struct ModelCall {
    /// Called worker.
    pub worker: WorkerName,
    /// Prompt of the call.
    pub prompt: Arc<Prompt>,
    /// Values in the worker's view.
    pub shown: Arc<CallContext>,
}

/// A board that was played until no call was under way.
pub struct PlayedBoard {
    /// Final state of the board.
    pub board: Board,
    /// All records of the board.
    pub records: Vec<Record>,
    /// Calls of language models, in the order of their answers.
    pub asked: Vec<ModelCall>,
    /// Largest number of records of one step.
    pub longest_step: usize,
}

struct Call {
    invocation: InvocationId,
    attempt: u32,
    occurrence: u32,
    asked: ModelCall,
}

impl PlayedBoard {
    /// Plays a board; `brain` answers for every language model, workers with a `script` answer with it. The oldest call
    /// is answered first.
    ///
    /// # Panics
    /// If the board is rejected, asks for 10,000 answers, or has workers of another kind.
    pub fn of(blueprint: Blueprint, request: Value, mut brain: impl FnMut(&ModelCall) -> Value) -> Self {
        let genesis = NewBoard::new(BoardId::from("played"), blueprint, request, Timestamp(0));
        let (board, step) = Board::create(genesis, &PLANS).expect("a board");
        let (mut played, mut calls) =
            (Self { board, records: Vec::new(), asked: Vec::new(), longest_step: 0 }, VecDeque::new());
        played.keep(step, 0, &mut calls);
        for now in 1.. {
            let Some(Call { invocation, attempt, occurrence, asked }) = calls.pop_front() else { break };
            assert!(now < CALLS_MAX, "the board asks without an end");
            let seat = &asked.shown.worker_plan().worker;
            let reply = match seat.agent {
                AgentKind::Script => seat.script[seat.script.len().min(occurrence as usize + 1) - 1].clone(),
                AgentKind::Llm => brain(&asked),
                ref other => panic!("{other} workers are not played"),
            };
            let from = ProposalSource::Attempt { invocation, attempt };
            let reply = ReplyBody::Text(reply.to_string());
            let proposal = Proposal { from, worker: asked.worker.clone(), reply, usage: None, raw: None };
            if seat.agent == AgentKind::Llm {
                played.asked.push(asked);
            }
            let at = i64::try_from(now).unwrap_or(i64::MAX);
            let step = played.board.step(Timestamp(at), Input::Propose(proposal));
            played.keep(step, at, &mut calls);
        }
        played
    }

    fn keep(&mut self, mut step: Step, at: i64, calls: &mut VecDeque<Call>) {
        self.board.admit(Timestamp(at), &mut step, &mut admission::admit_all);
        self.longest_step = self.longest_step.max(step.records.len());
        self.records.extend(step.records);
        for board::Call { invocation, attempt, occurrence, worker, prompt, context: shown, .. } in step.effects.calls {
            let asked = ModelCall { worker, prompt, shown };
            calls.push_back(Call { invocation, attempt, occurrence, asked });
        }
    }

    /// Returns the document.
    pub fn state(&self) -> Value {
        self.board.state().root().to_value()
    }

    /// Returns the number of records of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.records.iter().filter(|record| record.kind == kind).count()
    }

    /// Returns the tokens of all prompts, estimated at four characters each.
    pub fn prompt_tokens(&self) -> u64 {
        self.asked.iter().map(|asked| asked.prompt.estimated_tokens()).sum()
    }
}

/// Parses a blueprint.
///
/// # Panics
/// If it is rejected.
pub fn blueprint(name: &str, text: &str) -> Blueprint {
    let source = patchboard_lint::source::Source::read(name, text).expect("YAML");
    let report = patchboard_protocols::check(&source);
    report.blueprint.unwrap_or_else(|| panic!("{name}: {:#?}", report.findings))
}
