//! Measures checking and ordering a workflow, beside a topological sort of the same graph by petgraph.

use std::process::ExitCode;
use std::time::Duration;

use patchboard_protocols::workflow::{self, Definition, Node};
use patchboard_tests::boards::Rng;
use patchboard_tests::measure::{Goal, Laps, Row, Side, Stats, on_cpu, run};
use petgraph::algo::toposort;
use petgraph::graph::{DiGraph, NodeIndex};

const SEED: u64 = 9;
/// Dependencies of a node, on average.
const NEEDS: usize = 3;
/// Numbers of nodes; the others are compared with the first.
const SIZES: [(&str, usize); 4] =
    [("1,000", 1_000), ("10,000", 10_000), ("100,000", 100_000), ("1,000,000", 1_000_000)];
/// Growth of the check's time, at most, relative to the growth of the sort's. The sort visits each node and dependency
/// once, so cache misses on larger graphs cancel out. A check of each pair of nodes would grow by ten, then by a
/// hundred.
const GROWTH_MAX: f64 = 2.0;

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
            let [check, petgraph] = [(2 * at, "check"), (2 * at + 1, "petgraph")]
                .map(|(at, what)| laps[at].stats(what).expect("it was timed"));
            let label = format!("{size} nodes, {} dependencies", nodes * NEEDS);
            bench.add(
                Row::time("check", size, &format!("workflow::check of {label}"), check)
                    .ratio(petgraph.times_as_long(&check), "petgraph"),
            );
            bench.add(Row::time("check", size, "petgraph::algo::toposort of the same graph, made before", petgraph));
            let (fewest, its_check, its_petgraph) = *first.get_or_insert((*nodes, check, petgraph));
            if *nodes > fewest {
                let times = *nodes as f64 / fewest as f64;
                let of_node = |small: &Stats, large: &Stats| small.times_as_long(large) / times;
                let (growth, sort) = (of_node(&its_check, &check), of_node(&its_petgraph, &petgraph));
                let row = |what, number| Row::number("check", size, what, number, "×");
                bench.add(row("a node's time in the check, beside one of 1,000 nodes", growth));
                bench.add(row("a node's time in the sort, beside one of 1,000 nodes", sort));
                let beside = growth / sort;
                bench.add(
                    row("growth of the check beside that of the sort", beside)
                        .goal(Goal::at_most(GROWTH_MAX, beside, "×")),
                );
            }
        }
    })
}

/// Returns a workflow of nodes with unordered names. Each depends on three others, except for the first ones.
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
