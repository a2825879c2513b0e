//! Boards played by hand: applies inputs one by one and records all effects.

pub(crate) mod files;

use std::sync::Arc;

use patchboard_kernel::ablation::Mode;
use patchboard_kernel::admission;
use patchboard_kernel::bindings::Bindings;
use patchboard_kernel::board::{Board, Call, Input, NewBoard, Outcome, Proposal, ProposalSource, ReplyBody, Step};
use patchboard_kernel::call_context::CallContext;
use patchboard_kernel::id::{BoardId, InvocationId, Timestamp};
use patchboard_kernel::ledger::Usage;
use patchboard_kernel::plan::WorkerPlan;
use patchboard_kernel::record::{Body, Kind, Record};
use patchboard_kernel::rejection::Rejection;
use patchboard_kernel::replay;
use patchboard_kernel::view::Prompt;
use patchboard_protocols::PLANS;
use serde_json::{Value, json};

/// Board with all its records and open calls.
pub(crate) struct Played {
    pub board: Board,
    pub records: Vec<Record>,
    pub calls: Vec<(InvocationId, u32, String)>,
    pub now: i64,
    /// Prompt of the newest call.
    shown: Option<Arc<Prompt>>,
    /// Prompts of the calls since the last look: worker, prompt and its inputs.
    pub prompts: Vec<(String, Arc<Prompt>, Arc<CallContext>)>,
}

impl Played {
    /// Creates a board from these blueprint members; adds a name and a permissive schema.
    pub(crate) fn new(members: Value) -> Self {
        Self::in_mode(Mode::default(), members)
    }

    /// Like [`Self::new`], in another mode.
    pub(crate) fn in_mode(mode: Mode, members: Value) -> Self {
        Self::of(mode, Value::Null, members)
    }

    /// Like [`Self::new`], with a request.
    pub(crate) fn asked(request: Value, members: Value) -> Self {
        Self::of(Mode::default(), request, members)
    }

    fn of(mode: Mode, request: Value, members: Value) -> Self {
        let mut blueprint = json!({"blueprint": 1, "name": "played", "state": {"schema": {}, "initial": {"list": []}}});
        let members = members.as_object().expect("members of a blueprint").clone();
        blueprint.as_object_mut().expect("an object").extend(members);
        let genesis = NewBoard {
            mode,
            ..NewBoard::new(
                BoardId::from("played"),
                serde_json::from_value(blueprint).expect("a blueprint"),
                request,
                Timestamp(0),
            )
        };
        let (mut board, mut step) = Board::create(genesis, &PLANS).expect("a board");
        board.admit(Timestamp(0), &mut step, &mut admission::admit_all);
        let mut played =
            Self { board, records: Vec::new(), calls: Vec::new(), now: 0, shown: None, prompts: Vec::new() };
        played.keep(&step);
        played
    }

    pub(crate) fn keep(&mut self, step: &Step) {
        self.records.extend(step.records.iter().cloned());
        for Call { invocation, attempt, worker, prompt, context: shown, .. } in &step.effects.calls {
            self.shown = Some(Arc::clone(prompt));
            self.prompts.push((worker.to_string(), Arc::clone(prompt), Arc::clone(shown)));
            self.calls.push((*invocation, *attempt, worker.to_string()));
        }
    }

    pub(crate) fn give(&mut self, input: Input) -> Step {
        self.now += 1;
        let step = self.board.step_ungated(Timestamp(self.now), input);
        self.keep(&step);
        step
    }

    pub(crate) fn signal(&mut self) {
        self.give(Input::Signal { name: "go".into(), value: Value::Null, key: None });
    }

    /// Answers the oldest open call.
    pub(crate) fn answer(&mut self, reply: Value, usage: Option<Usage>) -> Outcome {
        let (invocation, attempt, worker) = self.calls.remove(0);
        let from = ProposalSource::Attempt { invocation, attempt };
        let reply = ReplyBody::Text(reply.to_string());
        let proposal = Proposal { from, worker: worker.as_str().into(), reply, usage, raw: None };
        self.give(Input::Propose(proposal)).outcome.expect("an outcome")
    }

    /// Answers the oldest open call with a text.
    pub(crate) fn says(&mut self, text: &str) -> Outcome {
        let (invocation, attempt, worker) = self.calls.remove(0);
        let from = ProposalSource::Attempt { invocation, attempt };
        let reply = ReplyBody::Text(text.to_owned());
        let proposal = Proposal { from, worker: worker.as_str().into(), reply, usage: None, raw: None };
        self.give(Input::Propose(proposal)).outcome.expect("an outcome")
    }

    /// Returns a worker's seat without bound names.
    pub(crate) fn seat(&self, worker: &str) -> Arc<WorkerPlan> {
        self.board.worker_plan(&worker.into(), &Bindings::default()).expect("a worker")
    }

    /// Returns the instructions of the newest call.
    pub(crate) fn instructions(&self) -> &str {
        &self.shown.as_ref().expect("a call").system
    }

    pub(crate) fn direct(&mut self, worker: &str, reply: &str) -> Outcome {
        let from = ProposalSource::Direct { key: None, base: None };
        let reply = ReplyBody::Text(reply.to_owned());
        let proposal = Proposal { from, worker: worker.into(), reply, usage: None, raw: None };
        self.give(Input::Propose(proposal)).outcome.expect("an outcome")
    }

    pub(crate) fn rejection(&mut self, worker: &str, reply: Value) -> Rejection {
        match self.direct(worker, &reply.to_string()) {
            Outcome::Rejected { rejection, .. } => rejection,
            other => panic!("{reply} was {other:?}"),
        }
    }

    /// Returns the view of the newest call.
    pub(crate) fn view(&self) -> &str {
        &self.shown.as_ref().expect("a call").user
    }

    /// Returns the bodies of the records.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = Body> {
        self.records.iter().map(|record| record.body().expect("readable").clone())
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.records.iter().filter(|record| record.kind == kind).count()
    }

    /// Checks that recovery and replay produce the same board.
    pub(crate) fn holds(&self) {
        let recovered = Board::recover(&self.records, &PLANS).expect("the journal is enough");
        assert_eq!(recovered.state().digest(), self.board.state().digest());
        assert_eq!(recovered.ledger().board(), self.board.ledger().board());
        assert_eq!(recovered.ended(), self.board.ended());
        replay::replay(&self.records, None, &PLANS).expect("the run follows from its records");
    }
}
