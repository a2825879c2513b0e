//! Finds entries of a workflow's data that several outputs write in no defined order.

use super::{Dag, Number, index, number};
use crate::workflow::{Definition, Node, PROBLEMS_MAX, Warning};

/// Maximum number of dependency steps in searches for paths; conflicts beyond it are not reported.
const STEPS_MAX: usize = 1 << 22;

/// Returns the first two writers of each such entry, at most [`PROBLEMS_MAX`] entries. Two nodes that both have a
/// `when` may be alternatives, and are not reported.
pub(super) fn outputs<'d>(dag: &Dag<'d>, definition: &'d Definition, order: &[Number]) -> Vec<Warning<'d>> {
    let nodes = || dag.numbers().zip(definition.nodes.values());
    let keys = |(number, node): (Number, &'d Node)| {
        node.output_mapping.values().map(move |key| (key.as_str(), number)).collect::<Vec<_>>()
    };
    let mut writers: Vec<(&str, Number)> = nodes().flat_map(keys).collect();
    if writers.len() < 2 {
        return Vec::new();
    }
    let mut places = vec![0; order.len()];
    for (place, node) in order.iter().enumerate() {
        places[index(*node)] = number(place);
    }
    writers.sort_unstable_by_key(|(key, node)| (*key, places[index(*node)]));
    let is_choice = nodes().map(|(_, node)| node.when.is_some()).collect();
    let mut paths = Paths { dag, places, is_choice, seen: Vec::new(), search: 0, steps: STEPS_MAX };
    let shared = |of_key: &[(&'d str, Number)]| {
        let nodes: Vec<Number> = of_key.iter().map(|(_, node)| *node).collect();
        let (node, other) = paths.without(&nodes)?;
        Some(Warning::SharedOutput { key: of_key.first()?.0, node: dag.name(node), other: dag.name(other) })
    };
    writers.chunk_by(|one, other| one.0 == other.0).filter_map(shared).take(PROBLEMS_MAX).collect()
}

/// Reachability search between nodes.
struct Paths<'a, 'd> {
    dag: &'a Dag<'d>,
    /// Position of each node in the order.
    places: Vec<Number>,
    /// True for nodes with a `when`.
    is_choice: Vec<bool>,
    /// Last search that reached each node.
    seen: Vec<u32>,
    search: u32,
    /// Remaining search steps.
    steps: usize,
}

impl Paths<'_, '_> {
    /// Returns two of these nodes without a path between them. `nodes` are in workflow order.
    fn without(&mut self, nodes: &[Number]) -> Option<(Number, Number)> {
        if let Some(twice) = nodes.windows(2).find(|pair| pair.first() == pair.last()) {
            return Some((*twice.first()?, *twice.last()?));
        }
        let mut is_chain = true;
        for at in (0..nodes.len().saturating_sub(1)).rev() {
            let (node, later) = (nodes[at], &nodes[at + 1..]);
            // While the later nodes form a chain, reaching the first of them reaches all.
            if is_chain && self.not_reached(node, &later[..1]).is_empty() {
                continue;
            }
            is_chain = false;
            let missed = self.not_reached(node, later);
            let is_alternative = |other: &Number| self.is_choice[index(node)] && self.is_choice[index(*other)];
            if let Some(other) = missed.into_iter().find(|other| !is_alternative(other)) {
                return Some((node, other));
            }
        }
        None
    }

    /// Returns the sought nodes that are not reachable from a node; empty if the search steps run out. `sought` is in
    /// workflow order.
    fn not_reached(&mut self, from: Number, sought: &[Number]) -> Vec<Number> {
        let Some(last) = sought.last() else { return Vec::new() };
        self.seen.resize(self.places.len(), 0);
        self.search += 1;
        let mut next = vec![from];
        while let Some(node) = next.pop() {
            for fed in self.dag.dependents(node) {
                let Some(left) = self.steps.checked_sub(1) else { return Vec::new() };
                self.steps = left;
                if sought.len() == 1 && fed == last {
                    return Vec::new();
                }
                let is_before = self.places[index(*fed)] <= self.places[index(*last)];
                if is_before && self.seen[index(*fed)] != self.search {
                    self.seen[index(*fed)] = self.search;
                    next.push(*fed);
                }
            }
        }
        sought.iter().copied().filter(|node| self.seen[index(*node)] != self.search).collect()
    }
}
