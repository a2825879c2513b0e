//! Decides the next steps of a workflow: a function of its definition, the status of its nodes, and the latest event.
//!
//! All decisions of a turn use the document at its beginning, and a node moves at most once in a turn. So the order
//! in which nodes are visited does not matter; it is that of their ids. If more can be done at once, the turn reports
//! it, and another follows. Values are copied within the document without inspection, except for conditions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Definition, Node, Status, TriggerType, WorkflowCode};
use crate::Role;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::expr::{Expr, Variable, Variables};
use patchboard_kernel::tree;
use patchboard_lint::source::child;

/// Variables of a node's condition.
pub const WHEN_VARIABLES: &[&str] = &["data"];

/// Maximum entries for the workflow's data in a request.
pub const DATA_MAX: usize = 256;

/// Operations after which a turn starts no further node. One node takes at most 131, and the end of a turn two.
const OPS_MAX: usize = 512;

/// Event that a turn responds to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkflowEvent<'h> {
    /// The board was created.
    Start {
        /// True if the member `data` of the request is merged into the workflow's data.
        from_request: bool,
    },
    /// A worker produced an output, or the previous turn left work.
    Progress,
    /// The trigger of a node fired.
    Triggered(&'h str),
    /// No invocation for a node is under way any more.
    Abandoned(&'h str),
    /// A resumption from a node: it and all that depends on it run again.
    Resume(&'h str),
}

/// Result of a turn.
#[derive(Clone, PartialEq, Debug)]
pub struct Turn {
    /// Status changes, by node id.
    pub moves: Vec<NodeTransition>,
    /// JSON Patch (RFC 6902) that applies them, in order.
    pub patch: Vec<Value>,
    /// Resulting status of the workflow: `RUNNING`, `COMPLETED` or `FAILED`.
    pub status: Status,
    /// True if another turn can do more at once.
    pub more: bool,
}

/// Status change of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeTransition {
    /// Id of the node.
    pub node: String,
    /// Old status.
    pub from: Status,
    /// New status.
    pub to: Status,
}

/// Result of a turn.
type Result<T, E = TurnError> = std::result::Result<T, E>;

/// Reason that a turn is not possible.
pub type TurnError = crate::ProtocolError<WorkflowCode>;

/// Computes a turn; `None` if there is nothing to do. Fails with `workflow_no_state` if the document lacks the
/// workflow's state, or `workflow_too_much_data`. A resumption fails also with `workflow_unknown_node`, and with
/// `workflow_illegal_move` if a node to run again is still running.
pub fn compute_turn(definition: &Definition, document: &tree::Node, event: WorkflowEvent<'_>) -> Result<Option<Turn>> {
    let mut work = TurnBuilder::new(definition, document)?;
    match event {
        WorkflowEvent::Start { from_request: true }
            if document["request"]["data"].as_object().is_some_and(|data| !data.is_empty()) =>
        {
            work.take_data(&document["request"]["data"])?;
        }
        WorkflowEvent::Start { .. } | WorkflowEvent::Progress => work.settle()?,
        WorkflowEvent::Triggered(node) => {
            work.record_trigger(node)?;
            work.settle()?;
        }
        WorkflowEvent::Abandoned(node) => {
            work.abandon(node)?;
            work.settle()?;
        }
        // Nodes to run again are settled in the next turn.
        WorkflowEvent::Resume(node) => work.resume(node)?,
    }
    Ok(work.turn(document))
}

/// A failed node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedNode {
    /// Id of the node.
    pub node: String,
    /// Error recorded in the document.
    pub error: String,
}

/// Returns the failed nodes of a board's workflow, sorted by id; none if it has no workflow.
pub fn failed_nodes(blueprint: &Blueprint, document: &tree::Node) -> Vec<FailedNode> {
    if !blueprint.workers.values().any(|worker| worker.agent.is_builtin(Role::Workflow.as_str())) {
        return Vec::new();
    }
    let nodes = document["workflow"]["nodes"].as_object().into_iter().flat_map(tree::Object::iter);
    let failed = nodes.filter(|(_, node)| node["status"].as_str() == Some(Status::Failed.as_str()));
    let failed_node = |(id, node): (_, &tree::Node)| FailedNode {
        node: ToString::to_string(id),
        error: node["error"].as_str().unwrap_or_default().to_owned(),
    };
    failed.map(failed_node).collect()
}

struct NodeState<'a> {
    id: &'a str,
    node: &'a Node,
    status: Status,
    is_triggered: bool,
    entry: &'a tree::Node,
    moved: bool,
}

/// A turn under construction.
struct TurnBuilder<'a> {
    nodes: BTreeMap<&'a str, NodeState<'a>>,
    data: &'a tree::Node,
    moves: Vec<NodeTransition>,
    patch: Vec<Value>,
    /// Copies of outputs into the data, applied after all inputs were taken from the old data.
    output_copies: Vec<Value>,
}

impl<'a> TurnBuilder<'a> {
    fn new(definition: &'a Definition, document: &'a tree::Node) -> Result<Self> {
        let workflow = &document["workflow"];
        let state_of = |(id, node): (&'a String, &'a Node)| {
            let there = &workflow["nodes"][id.as_str()];
            let status = there["status"].as_str().and_then(Status::from_name);
            let message = || format!("the document does not say how far `{id}` is");
            let status = status.ok_or_else(|| TurnError::new(WorkflowCode::NoState, message()))?;
            let came = there.child("came").is_some();
            Ok((id.as_str(), NodeState { id, node, status, is_triggered: came, entry: there, moved: false }))
        };
        let nodes = definition.nodes.iter().map(state_of).collect::<Result<_>>()?;
        Ok(Self { nodes, data: &workflow["data"], moves: Vec::new(), patch: Vec::new(), output_copies: Vec::new() })
    }

    fn known(&mut self, id: &str) -> Result<&mut NodeState<'a>> {
        self.nodes.get_mut(id).ok_or_else(|| {
            let message = format!("there is no node `{id}`");
            TurnError { code: WorkflowCode::UnknownNode, message }
        })
    }

    /// Changes the status of a node; the change must be legal.
    fn advance(&mut self, id: &str, to: Status) -> Result<()> {
        let state = self.known(id)?;
        let from = state.status;
        state.status = from.transition_to(to, id)?;
        state.moved = true;
        self.moves.push(NodeTransition { node: id.to_owned(), from, to });
        self.patch.push(json!({"op": "replace", "path": node_path(id, "status"), "value": to}));
        Ok(())
    }

    fn fail(&mut self, id: &str, error: &str) -> Result<()> {
        self.advance(id, Status::Failed)?;
        self.patch.push(json!({"op": "add", "path": node_path(id, "error"), "value": error}));
        Ok(())
    }

    /// Merges the request's data into the workflow's.
    fn take_data(&mut self, brought: &tree::Node) -> Result<()> {
        if brought.part_count() > DATA_MAX {
            let message = format!("the request brings {} entries, more than {DATA_MAX}", brought.part_count());
            return Err(TurnError { code: WorkflowCode::TooMuchData, message });
        }
        for (key, _) in brought.as_object().into_iter().flat_map(tree::Object::iter) {
            self.patch.push(copy(&child("/request/data", key), &child(DATA, key)));
        }
        Ok(())
    }

    /// Records that a node's trigger fired. The record persists, also if the dependencies are not completed yet.
    fn record_trigger(&mut self, id: &str) -> Result<()> {
        let state = self.known(id)?;
        if !state.is_triggered && matches!(state.status, Status::Pending | Status::Ready) {
            state.is_triggered = true;
            self.patch.push(json!({"op": "add", "path": node_path(id, "came"), "value": true}));
        }
        Ok(())
    }

    /// Fails a running node without an output, because its worker has finished. Otherwise its outcome is known already.
    fn abandon(&mut self, id: &str) -> Result<()> {
        let state = self.known(id)?;
        if state.status == Status::Running && state.entry.child("output").is_none() {
            self.fail(id, "its worker came to no output")?;
        }
        Ok(())
    }

    /// Resets a node and all that depends on it. Its own trigger stays recorded; those of the others must fire again.
    fn resume(&mut self, from: &str) -> Result<()> {
        let from = self.known(from)?.id;
        let mut again = BTreeSet::from([from]);
        loop {
            let depends = |(_, standing): &(&&'a str, &NodeState<'a>)| {
                standing.node.dependencies.iter().any(|needed| again.contains(needed.as_str()))
            };
            let more: Vec<&str> = self.nodes.iter().filter(depends).map(|(id, _)| *id).collect();
            let known = again.len();
            again.extend(more);
            if again.len() == known {
                break;
            }
        }
        for id in again {
            let state = self.known(id)?;
            let (status, there) = (state.status, state.entry);
            if id != from {
                state.is_triggered = false;
            }
            if status != Status::Pending {
                self.advance(id, Status::Pending)?;
            }
            let gone = ["input", "output", "error"].into_iter().chain((id != from).then_some("came"));
            for member in gone.filter(|member| there.child(member).is_some()) {
                self.patch.push(json!({"op": "remove", "path": node_path(id, member)}));
            }
        }
        Ok(())
    }

    /// Makes all possible status changes, within the operation limit.
    fn settle(&mut self) -> Result<()> {
        let before: BTreeMap<&str, Status> = self.nodes.iter().map(|(id, at)| (*id, at.status)).collect();
        let ids: Vec<&str> = before.keys().copied().collect();
        for id in ids {
            if self.patch.len() + self.output_copies.len() >= OPS_MAX {
                break;
            }
            let state = self.known(id)?;
            if state.moved {
                continue;
            }
            let (node, there) = (state.node, state.entry);
            match state.next_status(&before) {
                None => {}
                Some(Status::Ready) => match self.holds(node) {
                    Ok(true) => self.advance(id, Status::Ready)?,
                    Ok(false) => self.advance(id, Status::Skipped)?,
                    Err(why) => self.fail(id, &format!("its `when`: {why}"))?,
                },
                Some(Status::Running) => self.run(id, node)?,
                Some(Status::Completed) => self.complete(id, node, &there["output"])?,
                Some(to) => self.advance(id, to)?,
            }
        }
        Ok(())
    }

    /// Evaluates the condition of a node on the data.
    fn holds(&self, node: &Node) -> Result<bool, String> {
        let Some(when) = &node.when else { return Ok(true) };
        let when = Expr::compile(when, WHEN_VARIABLES).map_err(|why| why.to_string())?;
        let variables: Variables<'_> = [("data", Variable::from(self.data))].into();
        when.evaluate(&variables).map_err(|why| why.to_string())
    }

    /// Starts a node. Input entries that are missing in the data are omitted (W63).
    fn run(&mut self, id: &str, node: &Node) -> Result<()> {
        self.advance(id, Status::Running)?;
        let input = node_path(id, "input");
        self.patch.push(json!({"op": "add", "path": input, "value": {}}));
        for (name, key) in node.input_mapping.iter().filter(|(_, key)| self.data.child(key).is_some()) {
            self.patch.push(copy(&child(DATA, key), &child(&input, name)));
        }
        Ok(())
    }

    /// Completes a node. Only mapped outputs that the worker produced are copied to the data.
    fn complete(&mut self, id: &str, node: &Node, output: &tree::Node) -> Result<()> {
        self.advance(id, Status::Completed)?;
        for (name, key) in node.output_mapping.iter().filter(|(name, _)| output.child(name).is_some()) {
            self.output_copies.push(copy(&child(&node_path(id, "output"), name), &child(DATA, key)));
        }
        Ok(())
    }

    /// Assembles the result of the turn.
    fn turn(mut self, document: &tree::Node) -> Option<Turn> {
        let now: BTreeMap<&str, Status> = self.nodes.iter().map(|(id, at)| (*id, at.status)).collect();
        let more = self.nodes.values().any(|standing| standing.next_status(&now).is_some());
        let is_under_way = |status: &Status| matches!(status, Status::Running | Status::Ready);
        let status = if more || now.values().any(is_under_way) {
            Status::Running
        } else if now.values().any(|status| *status == Status::Failed) {
            // Pending nodes then wait for failed ones.
            Status::Failed
        } else {
            Status::Completed
        };
        let is_known = document["workflow"]["status"].as_str() == Some(status.as_str());
        if self.patch.is_empty() && is_known {
            return None;
        }
        self.patch.append(&mut self.output_copies);
        if !is_known {
            self.patch.push(json!({"op": "replace", "path": "/workflow/status", "value": status}));
        }
        let number = document["workflow"]["round"]["number"].to_value().as_u64().unwrap_or_default();
        let round = json!({"number": number.saturating_add(1), "more": more});
        self.patch.push(json!({"op": "replace", "path": "/workflow/round", "value": round}));
        Some(Turn { moves: self.moves, patch: self.patch, status, more })
    }
}

impl NodeState<'_> {
    /// Returns the next status, given those of the others; `Ready` means that the condition must be evaluated.
    fn next_status(&self, others: &BTreeMap<&str, Status>) -> Option<Status> {
        let is = |id: &String, status: Status| others.get(id.as_str()) == Some(&status);
        let needed = &self.node.dependencies;
        match self.status {
            // Only completion satisfies a dependency, so dependents of a skipped node never run.
            Status::Pending if needed.iter().any(|id| is(id, Status::Skipped)) => Some(Status::Skipped),
            Status::Pending => needed.iter().all(|id| is(id, Status::Completed)).then_some(Status::Ready),
            Status::Ready => {
                let is_started = self.is_triggered || self.node.trigger_type == TriggerType::Dependency;
                is_started.then_some(Status::Running)
            }
            Status::Running => self.entry.child("output").is_some().then_some(Status::Completed),
            Status::Completed | Status::Failed | Status::Skipped => None,
        }
    }
}

const DATA: &str = "/workflow/data";

/// Returns the location of a node's member.
fn node_path(id: &str, member: &str) -> String {
    format!("{}/{member}", child("/workflow/nodes", id))
}

fn copy(from: &str, to: &str) -> Value {
    json!({"op": "copy", "from": from, "path": to})
}

#[cfg(test)]
mod tests;
