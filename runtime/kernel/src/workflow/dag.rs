//! The order of a workflow, or why there is none: Kahn's way, each node and dependency once (W68), beside what it takes to find
//! ids in their order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Definition, NODES_MAX, Order, PROBLEMS_MAX, Problem};

/// The nodes as numbers, in the order of their ids.
struct Dag<'d> {
    ids: Vec<&'d str>,
    /// What each depends on; each once.
    needs: Vec<Vec<usize>>,
    /// What depends on each.
    feeds: Vec<Vec<usize>>,
}

/// In what order a workflow goes.
///
/// # Errors
/// What prevents it, the first twenty: everything that is wrong with single nodes, or else one cycle.
pub fn check(definition: &Definition) -> Result<Order, Vec<Problem>> {
    let dag = Dag::of(definition)?;
    let (order, left) = dag.order();
    if order.len() < dag.ids.len() {
        return Err(vec![Problem::Cycle { nodes: dag.cycle(&left) }]);
    }
    let name = |node: usize| dag.ids[node].to_owned();
    let without = |lists: &[Vec<usize>]| -> Vec<String> {
        lists.iter().enumerate().filter(|(_, list)| list.is_empty()).map(|(node, _)| name(node)).collect()
    };
    let mut stages: Vec<Vec<usize>> = Vec::new();
    let mut stage_of = vec![0; dag.ids.len()];
    for node in &order {
        let stage = dag.needs[*node].iter().map(|needed| stage_of[*needed] + 1).max().unwrap_or(0);
        stage_of[*node] = stage;
        if stage == stages.len() {
            stages.push(Vec::new());
        }
        stages[stage].push(*node);
    }
    for stage in &mut stages {
        stage.sort_unstable();
    }
    Ok(Order {
        roots: without(&dag.needs),
        leaves: without(&dag.feeds),
        stages: stages.into_iter().map(|stage| stage.into_iter().map(name).collect()).collect(),
        order: order.into_iter().map(name).collect(),
    })
}

impl<'d> Dag<'d> {
    fn of(definition: &'d Definition) -> Result<Self, Vec<Problem>> {
        let count = definition.nodes.len();
        if count == 0 || count > NODES_MAX {
            return Err(vec![Problem::Size { nodes: count }]);
        }
        let ids: Vec<&str> = definition.nodes.keys().map(String::as_str).collect();
        let (mut needs, mut feeds) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        let mut problems = Vec::new();
        for (node, (id, said)) in definition.nodes.iter().enumerate() {
            if let Some(says) = said.node_id.as_ref().filter(|says| *says != id) {
                problems.push(Problem::OtherId { node: id.clone(), says: says.clone() });
            }
            for dependency in &said.dependencies {
                match ids.binary_search(&dependency.as_str()) {
                    Err(_) => {
                        let (node, dependency) = (id.clone(), dependency.clone());
                        problems.push(Problem::UnknownDependency { node, dependency });
                    }
                    Ok(needed) if needed == node => problems.push(Problem::SelfDependency { node: id.clone() }),
                    Ok(needed) => needs[node].push(needed),
                }
            }
            if problems.len() >= PROBLEMS_MAX {
                problems.truncate(PROBLEMS_MAX);
                return Err(problems);
            }
            // What is named twice is waited for once.
            needs[node].sort_unstable();
            needs[node].dedup();
            for needed in &needs[node] {
                feeds[*needed].push(node);
            }
        }
        if problems.is_empty() { Ok(Self { ids, needs, feeds }) } else { Err(problems) }
    }

    /// As many nodes as can be put in order, and how much each of the others still waits for.
    fn order(&self) -> (Vec<usize>, Vec<usize>) {
        let mut left: Vec<usize> = self.needs.iter().map(Vec::len).collect();
        let mut ready: BinaryHeap<Reverse<usize>> =
            left.iter().enumerate().filter(|(_, left)| **left == 0).map(|(node, _)| Reverse(node)).collect();
        let mut order = Vec::with_capacity(self.ids.len());
        while let Some(Reverse(node)) = ready.pop() {
            order.push(node);
            for next in &self.feeds[node] {
                left[*next] -= 1;
                if left[*next] == 0 {
                    ready.push(Reverse(*next));
                }
            }
        }
        (order, left)
    }

    /// One cycle among what still waits. Of each such node something that it needs waits, too, so the way back over these
    /// comes to a node for the second time.
    fn cycle(&self, left: &[usize]) -> Vec<String> {
        let waits = |node: &usize| left[*node] > 0;
        let Some(mut node) = (0..self.ids.len()).find(waits) else { return Vec::new() };
        let mut visited = vec![None; self.ids.len()];
        let mut way = Vec::new();
        let from = loop {
            match visited[node] {
                Some(at) => break at,
                None => visited[node] = Some(way.len()),
            }
            way.push(node);
            let Some(before) = self.needs[node].iter().copied().find(waits) else { return Vec::new() };
            node = before;
        };
        let mut cycle = way.split_off(from);
        // It was walked backwards.
        cycle.reverse();
        let smallest = cycle.iter().enumerate().min_by_key(|(_, node)| **node).map_or(0, |(at, _)| at);
        cycle.rotate_left(smallest);
        cycle.into_iter().map(|node| self.ids[node].to_owned()).collect()
    }
}
