//! Records the tool use of attempts, in the order in which it happens.
//!
//! Answers and tool uses pass one gate, so the recorded order is that of the journal and of the tools' effects.
//! Recording therefore allows one tool use at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use patchboard_kernel::blueprint::{Blueprint, Worker};
use patchboard_kernel::digest::sha256;
use patchboard_kernel::id::{BoardId, Token};
use patchboard_kernel::ledger::Usage;
use patchboard_runtime::agent::{Call, Failure};

use super::gate::Gate;
use super::{Did, Step};
use crate::tools::{Coming, Definition, Memory, Toolbox, Tools, Used};

/// Tool-use notes, shared by a recorder and the tools of the agents that it records.
#[derive(Clone, Default)]
pub struct Notes(Arc<Inner>);

#[derive(Default)]
struct Inner {
    gate: Gate,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next_order: u64,
    /// Steps of attempts that have no answer yet.
    steps: BTreeMap<(BoardId, Token), Vec<Step>>,
}

impl Notes {
    /// Wraps a toolbox so that its use is recorded.
    pub fn of(&self, toolbox: Arc<dyn Toolbox>) -> Arc<dyn Toolbox> {
        Arc::new(NotedBox { notes: self.clone(), toolbox })
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// Sets the first order number, to continue an existing recording.
    pub(super) fn begin_at(&self, order: u64) {
        self.taken().next_order = order;
    }

    /// Returns the order number for the event that is complete now.
    pub(super) fn next_order(&self) -> u64 {
        let mut taken = self.taken();
        taken.next_order += 1;
        taken.next_order - 1
    }

    /// Takes the recorded steps of a finished attempt.
    pub(super) fn take(&self, call: &Call) -> Vec<Step> {
        self.taken().steps.remove(&(call.board.clone(), call.token.clone())).unwrap_or_default()
    }

    fn note(&self, call: &Call, did: Did) {
        let order = self.next_order();
        let steps = &mut self.taken().steps;
        steps.entry((call.board.clone(), call.token.clone())).or_default().push(Step { order, did });
    }

    /// Carries over the recorded steps of an earlier attempt.
    fn carry(&self, call: &Call, steps: Vec<Step>) {
        self.taken().steps.insert((call.board.clone(), call.token.clone()), steps);
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Nothing panics while the lock is held.
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct NotedBox {
    notes: Notes,
    toolbox: Arc<dyn Toolbox>,
}

impl Toolbox for NotedBox {
    fn problems(&self, blueprint: &Blueprint, seat: &Worker) -> Vec<String> {
        self.toolbox.problems(blueprint, seat)
    }

    fn open<'a>(&'a self, call: &'a Call) -> Coming<'a, Result<Option<Box<dyn Tools>>, Failure>> {
        Box::pin(async move {
            let tools = self.toolbox.open(call).await?;
            let noted = |tools| -> Box<dyn Tools> {
                Box::new(NotedTools { notes: self.notes.clone(), call: call.clone(), tools })
            };
            Ok(tools.map(noted))
        })
    }
}

struct NotedTools {
    notes: Notes,
    call: Call,
    tools: Box<dyn Tools>,
}

impl Tools for NotedTools {
    fn definitions(&self) -> Vec<Definition> {
        self.tools.definitions()
    }

    fn at_once(&mut self) {
        self.tools.at_once();
        self.notes.note(&self.call, Did::AtOnce);
    }

    fn call<'a>(&'a mut self, name: &'a str, arguments: &'a str, room: usize) -> Coming<'a, Used> {
        Box::pin(async move {
            let _passage = self.notes.gate().passage(&self.call).await;
            let used = self.tools.call(name, arguments, room).await;
            let result = sha256(used.text.as_bytes());
            let (name, arguments) = (name.to_owned(), arguments.to_owned());
            self.notes.note(&self.call, Did::Used { name, arguments, room, result, is_error: used.is_error });
            used
        })
    }

    fn go_on(&mut self, usage: Option<Usage>, reserve: u64) -> Coming<'_, Result<(), Failure>> {
        Box::pin(async move {
            let _passage = self.notes.gate().passage(&self.call).await;
            let answer = self.tools.go_on(usage, reserve).await;
            self.notes.note(&self.call, Did::WentOn { usage, reserve });
            answer
        })
    }

    fn remembered(&mut self) -> Memory {
        Box::new((self.notes.take(&self.call), self.tools.remembered()))
    }

    /// Attributes all remembered steps to the attempt that answers.
    fn recall(&mut self, memory: Memory) {
        if let Ok(memory) = memory.downcast::<(Vec<Step>, Memory)>() {
            let (steps, memory) = *memory;
            self.notes.carry(&self.call, steps);
            self.tools.recall(memory);
        }
    }
}
