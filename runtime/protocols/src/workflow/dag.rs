//! Computes the order of a workflow, or the problems that prevent one.
//!
//! Ids are found by hash. The cycle check and the stages visit each node and dependency once (Kahn's algorithm, W68).
//! The order, smallest ready node first, costs a further logarithmic factor.
//!
//! Memory latency dominates for large workflows, so nodes are numbers, and all their lists share one vector ([`Csr`]).

mod output_conflicts;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
#[expect(clippy::disallowed_types, reason = "it is asked and never walked, so nothing depends on its order")]
use std::collections::HashMap;

use petgraph::Directed;
use petgraph::csr::Csr;

use super::{
    Definition, ExecutionOrder, NODES_MAX, Node, PROBLEMS_MAX, RUNNING_NODES_MAX, Warning, WorkflowError, is_node_name,
};

/// Number of a node: the rank of its id. There are at most [`NODES_MAX`].
pub(super) type Number = u32;

/// Lists of numbers of all nodes, each sorted and without duplicates.
type Lists = Csr<(), (), Directed, Number>;

/// Dependency graph with numbered nodes, in id order.
pub(super) struct Dag<'d> {
    ids: Ids<'d>,
    /// Dependencies of each node.
    needs: Lists,
    /// Dependents of each node.
    feeds: Lists,
}

/// Stages of a workflow in which each node starts once its dependencies are done.
pub(super) struct Stages {
    stage_of: Vec<usize>,
    /// Number of dependencies that each node still waits for; zero unless there is a cycle.
    left: Vec<usize>,
    /// Number of nodes and dependencies visited.
    pub(super) steps: usize,
}

/// Returns the order of a workflow. Fails with the first twenty problems: all problems of single nodes, or else one
/// cycle.
pub(super) fn check(definition: &Definition) -> Result<ExecutionOrder<'_>, Vec<WorkflowError>> {
    let dag = Dag::new(definition)?;
    let Stages { stage_of, left, steps } = dag.stages();
    if left.iter().any(|left| *left > 0) {
        return Err(vec![WorkflowError::Cycle { nodes: dag.cycle(&left) }]);
    }
    debug_assert_eq!(steps, dag.count() + dag.needs.edge_count(), "each node and dependency is taken once");
    let order = dag.order();
    let mut stages = vec![Vec::new(); stage_of.iter().max().map_or(0, |last| last + 1)];
    for (stage, id) in stage_of.into_iter().zip(&dag.ids.sorted) {
        stages[stage].push(*id);
    }
    let without = |lists: &Lists| -> Vec<&str> {
        dag.numbers().filter(|node| lists.neighbors_slice(*node).is_empty()).map(|node| dag.ids.name(node)).collect()
    };
    let mut warnings = dag.unreachable(definition, &order);
    warnings.extend(output_conflicts::outputs(&dag, definition, &order));
    warnings.extend(dag.limit_warnings());
    let (roots, leaves) = (without(&dag.needs), without(&dag.feeds));
    let order = order.into_iter().map(|node| dag.ids.name(node)).collect();
    Ok(ExecutionOrder { roots, leaves, stages, order, warnings })
}

impl<'d> Dag<'d> {
    pub(super) fn new(definition: &'d Definition) -> Result<Self, Vec<WorkflowError>> {
        let count = definition.nodes.len();
        if count == 0 || count > NODES_MAX {
            return Err(vec![WorkflowError::Size { nodes: count }]);
        }
        let ids = Ids::new(definition.nodes.keys().map(String::as_str).collect());
        let mut needs = Vec::new();
        let mut problems = Vec::new();
        for (node, (id, said)) in (0..).zip(&definition.nodes) {
            if let Some(says) = said.node_id.as_ref().filter(|says| *says != id) {
                problems.push(WorkflowError::IdMismatch { node: id.clone(), node_id: says.clone() });
            }
            for dependency in &said.dependencies {
                match ids.find(dependency) {
                    None => {
                        let (node, dependency) = (id.clone(), dependency.clone());
                        problems.push(WorkflowError::UnknownDependency { node, dependency });
                    }
                    Some(_) if dependency == id => problems.push(WorkflowError::SelfDependency { node: id.clone() }),
                    Some(needed) => needs.push((node, needed)),
                }
            }
            if problems.len() >= PROBLEMS_MAX {
                problems.truncate(PROBLEMS_MAX);
                return Err(problems);
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let feeds = needs.iter().map(|(node, needed)| (*needed, *node)).collect();
        Ok(Self { ids, feeds: lists(count, feeds), needs: lists(count, needs) })
    }

    const fn count(&self) -> usize {
        self.ids.sorted.len()
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = Number> + use<> {
        0..number(self.count())
    }

    pub(super) fn name(&self, node: Number) -> &'d str {
        self.ids.name(node)
    }

    pub(super) fn dependents(&self, node: Number) -> &[Number] {
        self.feeds.neighbors_slice(node)
    }

    /// Returns the number of dependencies of each node.
    fn dependency_counts(&self) -> Vec<usize> {
        self.numbers().map(|node| self.needs.neighbors_slice(node).len()).collect()
    }

    /// Computes the stages with a first-in, first-out queue.
    pub(super) fn stages(&self) -> Stages {
        let (mut left, mut stage_of, mut steps) = (self.dependency_counts(), vec![0; self.count()], 0);
        let mut ready: Vec<Number> = self.numbers().filter(|node| left[index(*node)] == 0).collect();
        let mut at = 0;
        while let Some(node) = ready.get(at).copied() {
            at += 1;
            steps += 1;
            for next in self.feeds.neighbors_slice(node).iter().map(|next| index(*next)) {
                steps += 1;
                left[next] -= 1;
                if left[next] == 0 {
                    // Nodes are taken in stage order, so the last dependency taken has the highest stage.
                    stage_of[next] = stage_of[index(node)] + 1;
                    ready.push(number(next));
                }
            }
        }
        Stages { stage_of, left, steps }
    }

    /// Returns all nodes of an acyclic workflow, always the smallest ready node first.
    fn order(&self) -> Vec<Number> {
        let mut left = self.dependency_counts();
        let mut ready: BinaryHeap<Reverse<Number>> =
            self.numbers().filter(|node| left[index(*node)] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(self.count());
        while let Some(Reverse(node)) = ready.pop() {
            order.push(node);
            for next in self.feeds.neighbors_slice(node) {
                let left = &mut left[index(*next)];
                *left -= 1;
                if *left == 0 {
                    ready.push(Reverse(*next));
                }
            }
        }
        order
    }

    /// Returns the nodes that never start, and those that wait for them, in workflow order.
    fn unreachable(&self, definition: &Definition, order: &[Number]) -> Vec<Warning<'d>> {
        let mut never: Vec<bool> = definition.nodes.values().map(Node::never_starts).collect();
        if !never.contains(&true) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for node in order {
            let waits_for = self.needs.neighbors_slice(*node).iter().find(|needed| never[index(**needed)]);
            if never[index(*node)] || waits_for.is_some() {
                // A node's own reason takes precedence.
                let waits_for = waits_for.filter(|_| !never[index(*node)]).map(|needed| self.ids.name(*needed));
                found.push(Warning::Unreachable { node: self.ids.name(*node), waits_for });
                never[index(*node)] = true;
            }
        }
        found
    }

    /// Returns violations of the limits for blueprint workflows; at most twenty bad names.
    fn limit_warnings(&self) -> Vec<Warning<'d>> {
        let nodes = self.count();
        let size = (nodes > RUNNING_NODES_MAX).then_some(Warning::TooLarge { nodes });
        let is_bad = |id: &&&str| !is_node_name(id);
        let names = self.ids.sorted.iter().filter(is_bad).map(|node| Warning::NodeName { node }).take(PROBLEMS_MAX);
        size.into_iter().chain(names).collect()
    }

    /// Returns one cycle among the waiting nodes. Each of them depends on another waiting node, so walking backwards
    /// revisits a node.
    fn cycle(&self, left: &[usize]) -> Vec<String> {
        let waits = |node: &Number| left[index(*node)] > 0;
        let Some(mut node) = self.numbers().find(waits) else { return Vec::new() };
        let mut visited = vec![None; self.count()];
        let mut way = Vec::new();
        let from = loop {
            match visited[index(node)] {
                Some(at) => break at,
                None => visited[index(node)] = Some(way.len()),
            }
            way.push(node);
            let Some(before) = self.needs.neighbors_slice(node).iter().copied().find(waits) else { return Vec::new() };
            node = before;
        };
        let mut cycle = way.split_off(from);
        // The walk went backwards.
        cycle.reverse();
        let smallest = cycle.iter().enumerate().min_by_key(|(_, node)| **node).map_or(0, |(at, _)| at);
        cycle.rotate_left(smallest);
        cycle.into_iter().map(|node| self.ids.name(node).to_owned()).collect()
    }
}

/// Sorted ids, with a lookup by id.
struct Ids<'d> {
    sorted: Vec<&'d str>,
    #[expect(clippy::disallowed_types, reason = "it is asked and never walked, so nothing depends on its order")]
    numbers: HashMap<&'d str, Number>,
}

impl<'d> Ids<'d> {
    fn new(sorted: Vec<&'d str>) -> Self {
        let numbers = sorted.iter().copied().zip(0..).collect();
        Self { sorted, numbers }
    }

    fn name(&self, node: Number) -> &'d str {
        self.sorted[index(node)]
    }

    fn find(&self, id: &str) -> Option<Number> {
        self.numbers.get(id).copied()
    }
}

/// Makes the lists of all nodes from pairs of a node and an entry of its list; a pair counts once.
fn lists(nodes: usize, mut pairs: Vec<(Number, Number)>) -> Lists {
    pairs.sort_unstable();
    pairs.dedup();
    let mut lists = Lists::from_sorted_edges(&pairs).unwrap_or_default();
    debug_assert_eq!(lists.edge_count(), pairs.len(), "the pairs are sorted");
    while lists.node_count() < nodes {
        lists.add_node(());
    }
    lists
}

pub(super) const fn index(node: Number) -> usize {
    node as usize
}

/// Converts an index to a node number.
///
/// # Panics
/// Panics beyond [`NODES_MAX`], which [`Dag::new`] has checked.
pub(super) fn number(index: usize) -> Number {
    Number::try_from(index).expect("there are at most a million nodes")
}
