//! What it costs to check a workflow and to put it in order, beside a topological sort of the same graph by petgraph.

use std::process::ExitCode;
use std::time::Duration;

use patchboard_kernel::workflow::{self, Definition, Node};
use patchboard_tests::boards::Rng;
use patchboard_tests::measure::{Goal, Laps, Row, Side, on_cpu, run};
use petgraph::algo::toposort;
use petgraph::graph::{DiGraph, NodeIndex};

const SEED: u64 = 9;
/// Dependencies of a node, on average.
const NEEDS: usize = 3;
/// Nodes; the first are what the others are compared with.
const SIZES: [(&str, usize); 4] =
    [("1,000", 1_000), ("10,000", 10_000), ("100,000", 100_000), ("1,000,000", 1_000_000)];
/// As many times as much work may take so many times as long.
const GROWTH_MAX: f64 = 3.0;

fn main() -> ExitCode {
    run("workflow", |bench| {
        let (quick, huge) = (bench.options.quick, bench.options.huge);
        let most = if quick {
            10_000
        } else if huge {
            1_000_000
        } else {
            100_000
        };
        let wanted: Vec<(&str, usize)> = SIZES.into_iter().filter(|(_, nodes)| *nodes <= most).collect();
        if !wanted.iter().any(|(size, _)| bench.wants("check", size)) {
            return;
        }
        let given: Vec<(Definition, DiGraph<(), ()>)> = wanted.iter().map(|(_, nodes)| workflow(*nodes)).collect();
        let mut sides: Vec<Side<'_>> = Vec::new();
        for (definition, graph) in &given {
            sides.push(Box::new(move |laps: &mut Laps| {
                let (order, time) = on_cpu(|| workflow::check(definition));
                assert_eq!(order.map(|order| order.order.len()), Ok(definition.nodes.len()));
                laps.note("check", time);
            }));
            sides.push(Box::new(move |laps: &mut Laps| {
                let (order, time) = on_cpu(|| toposort(graph, None));
                assert_eq!(order.map(|order| order.len()).ok(), Some(graph.node_count()));
                laps.note("petgraph", time);
            }));
        }
        let laps = bench.interleave(Duration::from_secs(20), &mut sides);
        let mut first = None;
        for (at, (size, nodes)) in wanted.iter().enumerate() {
            let check = laps[2 * at].stats("check").expect("it was timed");
            let petgraph = laps[2 * at + 1].stats("petgraph").expect("it was timed");
            let (first_nodes, first_check) = *first.get_or_insert((*nodes, check));
            let times = *nodes as f64 / first_nodes as f64;
            let growth = check.times_as_long(&first_check) / times;
            let label = format!("{size} nodes, {} dependencies", nodes * NEEDS);
            bench.add(
                Row::time("check", size, &format!("workflow::check of {label}"), check)
                    .ratio(check.times_as_long(&petgraph), "petgraph"),
            );
            bench.add(Row::time("check", size, "petgraph::algo::toposort of the same graph, made before", petgraph));
            if times > 1.0 {
                let row = Row::number("check", size, "time of a node, beside that of 1,000 nodes", growth, "x");
                bench.add(row.goal(Goal::at_most(GROWTH_MAX, growth, "x")));
            }
        }
    })
}

/// A workflow whose nodes depend on three others each, but for the first, under names that are in no order.
fn workflow(count: usize) -> (Definition, DiGraph<(), ()>) {
    let mut rng = Rng::new(SEED);
    let names: Vec<String> = (0..count).map(|_| format!("node-{:016x}", rng.number())).collect();
    let (mut definition, mut graph) = (Definition::default(), DiGraph::with_capacity(count, count * NEEDS));
    let places: Vec<NodeIndex> = (0..count).map(|_| graph.add_node(())).collect();
    for (at, name) in names.iter().enumerate() {
        let mut node = Node { agent_id: "agent".to_owned(), ..Node::default() };
        for _ in 0..NEEDS {
            if at > 0 {
                let needed = rng.below(at);
                node.dependencies.push(names[needed].clone());
                graph.add_edge(places[needed], places[at], ());
            }
        }
        definition.nodes.insert(name.clone(), node);
    }
    (definition, graph)
}
