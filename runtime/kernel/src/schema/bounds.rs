//! Bounds on schemas, so that validation neither overflows the stack nor takes too long.
//!
//! Validation recurses through the subschemas. Some steps descend into the instance, others (`allOf`, `$ref`, …) stay
//! at the same value. The longest such walk is measured here, once per schema. The limits leave half of a two-megabyte
//! thread stack free in an unoptimised build. `meter` limits the number of walks while a document is validated.

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use serde_json::Value;

use super::SchemaError;
use super::map::{Id, SchemaMap};
use super::meter::Weight;
use super::regexes::{Regexes, STATES_MAX};
use crate::json;

/// Maximum instance depth for which walks are measured; the default depth limit of a board's state (SPEC section 12).
pub(super) const INSTANCE_DEPTH: usize = 64;
/// Maximum number of nested subschemas that apply to the same instance.
const IN_PLACE_MAX: usize = 64;
/// Maximum number of subschemas on one walk into an instance of depth [`INSTANCE_DEPTH`].
const WALK_MAX: usize = 1500;
/// Maximum number of subschema applications to the same instance.
const APPLIED_MAX: usize = 50_000;

/// Rejects a document nested deeper than `max`.
pub(super) fn check_nesting(document: &Value, max: usize) -> Result<(), SchemaError> {
    let mut level = vec![document];
    for _ in 0..=max {
        level = level.into_iter().flat_map(json::parts).collect();
        if level.is_empty() {
            return Ok(());
        }
    }
    Err(SchemaError::new("", format!("a schema is nested at most {max} deep; put the inner parts under $defs")))
}

/// Rejects a schema with too long walks or too many branches; returns its cost per value otherwise.
pub(super) fn check_walks(map: &SchemaMap, regexes: &Regexes) -> Result<Weight, SchemaError> {
    let refuse = |id: Id, message: String| Err(SchemaError::new(map.node(id).pointer.clone(), message));
    let groups = groups_in_place(map);
    let mut group_of = vec![0; map.len()];
    for (at, group) in groups.iter().enumerate() {
        group.iter().for_each(|&id| group_of[id] = at);
    }

    // Groups are in dependency order, each after all that it applies, so one pass suffices.
    let mut chain = vec![0; groups.len()];
    let mut applied = vec![0_usize; groups.len()];
    let mut states = vec![0_usize; groups.len()];
    let mut weights = vec![0_usize; groups.len()];
    for (at, group) in groups.iter().enumerate() {
        let next =
            || group.iter().flat_map(|&id| map.node(id).in_place()).map(|id| group_of[id]).filter(|&to| to != at);
        chain[at] = group.len() + next().map(|to| chain[to]).max().unwrap_or(0);
        // A cycle is traversed once, from any of its members.
        let once = next().fold(group.len(), |sum, to| sum.saturating_add(applied[to]));
        applied[at] = once.saturating_mul(group.len());
        let matched = |of: &dyn Fn(Id) -> usize, others: &[usize]| {
            let own = group.iter().map(|&id| of(id)).fold(0, usize::saturating_add);
            next().fold(own, |sum, to| sum.saturating_add(others[to])).saturating_mul(group.len())
        };
        states[at] = matched(&|id| regexes.states(id), &states);
        weights[at] = matched(&|id| regexes.weight(id), &weights);
        if chain[at] > IN_PLACE_MAX {
            return refuse(
                group[0],
                format!("more than {IN_PLACE_MAX} schemas judge the same value one inside the other ($ref, allOf, …)"),
            );
        }
        if applied[at] > APPLIED_MAX {
            return refuse(
                group[0],
                format!(
                    "$ref, allOf, anyOf and the like branch so often here that more than {APPLIED_MAX} schemas judge one value"
                ),
            );
        }
        if states[at] > STATES_MAX {
            return refuse(
                group[0],
                format!(
                    "one value is matched with regular expressions of more than {STATES_MAX} states together; shorten \
                     counted repetitions, or let `maxLength` bound the text"
                ),
            );
        }
    }

    let mut walk = vec![0; groups.len()];
    for _ in 0..=INSTANCE_DEPTH {
        let shallower = std::mem::take(&mut walk);
        walk = vec![0; groups.len()];
        for (at, group) in groups.iter().enumerate() {
            let beside = group.iter().flat_map(|&id| map.node(id).in_place()).map(|id| group_of[id]);
            let beside = beside.filter(|&to| to != at).map(|to| walk[to]).max().unwrap_or(0);
            let inside = group.iter().flat_map(|&id| map.node(id).deeper()).map(|id| shallower[group_of[id]]).max();
            walk[at] = group.len() + beside.max(inside.unwrap_or(0));
        }
    }
    match (0..groups.len()).max_by_key(|&at| walk[at]) {
        Some(at) if walk[at] > WALK_MAX => refuse(
            groups[at][0],
            format!(
                "a value nested {INSTANCE_DEPTH} deep would pass {} schemas one inside the other, more than {WALK_MAX}",
                walk[at]
            ),
        ),
        _ => {
            let most = |numbers: Vec<usize>| numbers.into_iter().max().unwrap_or(0);
            Ok(Weight { applied: most(applied), states: most(weights) })
        }
    }
}

/// Groups the subschemas: those that apply each other to the same instance in a cycle form one group. Each group comes
/// after all groups that it leads to.
fn groups_in_place(map: &SchemaMap) -> Vec<Vec<Id>> {
    let graph = graph_in_place(map);
    // Kosaraju's algorithm, because Tarjan's recurses as deep as the longest chain of references.
    kosaraju_scc(&graph).into_iter().map(|group| group.into_iter().map(NodeIndex::index).collect()).collect()
}

/// Returns the graph of the subschemas that apply others to the same instance.
pub(super) fn graph_in_place(map: &SchemaMap) -> DiGraph<(), (), usize> {
    let mut graph = DiGraph::default();
    for _ in 0..map.len() {
        graph.add_node(());
    }
    for id in 0..map.len() {
        for to in map.node(id).in_place() {
            graph.add_edge(NodeIndex::new(id), NodeIndex::new(to), ());
        }
    }
    graph
}
