//! Records the tool use of attempts, in the order in which it happens.
//!
//! Answers and tool uses pass one gate, so the recorded order is that of the journal and of the tools' effects.
//! Recording therefore allows one tool use at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use patchboard_kernel::blueprint::{Blueprint, Worker};
use patchboard_kernel::digest::sha256;
use patchboard_kernel::id::{BoardId, IdempotencyKey};
use patchboard_kernel::ledger::Usage;
use patchboard_runtime::agent::{Call, Failure};

use super::sequencer::Sequencer;
use super::{Step, StepKind};
use patchboard_runtime::tools::{BoxFuture, Memory, ToolDefinition, ToolOutput, Toolbox, Tools};

/// Tool-use notes, shared by a recorder and the tools of the agents that it records.
#[derive(Clone, Default)]
pub struct ToolRecorder(Arc<Inner>);

#[derive(Default)]
struct Inner {
    sequencer: Sequencer,
    recorded: Mutex<RecordedSteps>,
}

#[derive(Default)]
struct RecordedSteps {
    next_order: u64,
    /// Steps of attempts that have no answer yet.
    steps: BTreeMap<(BoardId, IdempotencyKey), Vec<Step>>,
}

impl ToolRecorder {
    /// Wraps a toolbox so that its use is recorded.
    pub fn wrap(&self, toolbox: Arc<dyn Toolbox>) -> Arc<dyn Toolbox> {
        Arc::new(RecordingToolbox { notes: self.clone(), toolbox })
    }

    pub(super) fn sequencer(&self) -> &Sequencer {
        &self.0.sequencer
    }

    /// Sets the first order number, to continue an existing recording.
    pub(super) fn begin_at(&self, order: u64) {
        self.0.recorded.lock().next_order = order;
    }

    /// Returns the order number for the event that is complete now.
    pub(super) fn next_order(&self) -> u64 {
        let mut recorded = self.0.recorded.lock();
        recorded.next_order += 1;
        recorded.next_order - 1
    }

    /// Takes the recorded steps of a finished attempt.
    pub(super) fn take(&self, call: &Call) -> Vec<Step> {
        self.0.recorded.lock().steps.remove(&(call.board.clone(), call.idempotency_key.clone())).unwrap_or_default()
    }

    fn note(&self, call: &Call, did: StepKind) {
        let order = self.next_order();
        let steps = &mut self.0.recorded.lock().steps;
        steps.entry((call.board.clone(), call.idempotency_key.clone())).or_default().push(Step { order, did });
    }

    /// Carries over the recorded steps of an earlier attempt.
    fn carry(&self, call: &Call, steps: Vec<Step>) {
        self.0.recorded.lock().steps.insert((call.board.clone(), call.idempotency_key.clone()), steps);
    }
}

struct RecordingToolbox {
    notes: ToolRecorder,
    toolbox: Arc<dyn Toolbox>,
}

impl Toolbox for RecordingToolbox {
    fn config_errors(&self, blueprint: &Blueprint, worker: &Worker) -> Vec<String> {
        self.toolbox.config_errors(blueprint, worker)
    }

    fn open<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Option<Box<dyn Tools>>, Failure>> {
        Box::pin(async move {
            let tools = self.toolbox.open(call).await?;
            let noted = |tools| -> Box<dyn Tools> {
                Box::new(RecordingTools { notes: self.notes.clone(), call: call.clone(), tools })
            };
            Ok(tools.map(noted))
        })
    }
}

struct RecordingTools {
    notes: ToolRecorder,
    call: Call,
    tools: Box<dyn Tools>,
}

impl Tools for RecordingTools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        self.tools.definitions()
    }

    fn begin_batch(&mut self) {
        self.tools.begin_batch();
        self.notes.note(&self.call, StepKind::BatchStart);
    }

    fn call<'a>(&'a mut self, name: &'a str, arguments: &'a str, room: usize) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let _passage = self.notes.sequencer().passage(&self.call).await;
            let used = self.tools.call(name, arguments, room).await;
            let result = sha256(used.text.as_bytes());
            let (name, arguments) = (name.to_owned(), arguments.to_owned());
            self.notes.note(&self.call, StepKind::ToolUse { name, arguments, room, result, is_error: used.is_error });
            used
        })
    }

    fn checkpoint(&mut self, usage: Option<Usage>, reserve: u64) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let _passage = self.notes.sequencer().passage(&self.call).await;
            let answer = self.tools.checkpoint(usage, reserve).await;
            self.notes.note(&self.call, StepKind::Checkpoint { usage, reserve });
            answer
        })
    }

    fn take_memory(&mut self) -> Memory {
        Box::new((self.notes.take(&self.call), self.tools.take_memory()))
    }

    /// Attributes all remembered steps to the attempt that answers.
    fn restore_memory(&mut self, memory: Memory) {
        if let Ok(memory) = memory.downcast::<(Vec<Step>, Memory)>() {
            let (steps, memory) = *memory;
            self.notes.carry(&self.call, steps);
            self.tools.restore_memory(memory);
        }
    }
}
