//! Workflow order, and rejections of workflows without one; public test vectors are in `tests/it/sw4rm.rs`.

use proptest::prelude::*;

use super::*;

fn definition(nodes: &[(&str, &[&str])]) -> Definition {
    let node =
        |needs: &[&str]| Node { dependencies: needs.iter().map(|id| (*id).to_owned()).collect(), ..Node::default() };
    let nodes = nodes.iter().map(|(id, needs)| ((*id).to_owned(), node(needs))).collect();
    Definition { nodes, ..Definition::default() }
}

#[test]
fn of_what_could_be_next_the_smallest_id_is() {
    // `b` becomes ready before `c` is done, and precedes it.
    let given = definition(&[("a", &[]), ("b", &["a", "a"]), ("c", &[]), ("d", &["b", "c"])]);
    let order = check(&given).expect("sound");
    assert_eq!(order.order, ["a", "b", "c", "d"]);
    assert_eq!(order.stages, [vec!["a", "c"], vec!["b"], vec!["d"]]);
    assert_eq!((order.roots, order.leaves), (vec!["a", "c"], vec!["d"]));
}

/// Returns a workflow with this many nodes. Each depends on the nodes at these distances before it, with every
/// dependency named twice. Names are unordered.
fn of_size(nodes: usize, apart: &[usize]) -> Definition {
    let name = |at: usize| format!("{:016x}", (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let needs = |at: usize| {
        let needed = apart.iter().filter_map(move |apart| at.checked_sub(*apart));
        needed.flat_map(|needed| [name(needed), name(needed)]).collect()
    };
    let nodes = (0..nodes).map(|at| (name(at), Node { dependencies: needs(at), ..Node::default() })).collect();
    Definition { nodes, ..Definition::default() }
}

#[test]
fn each_node_and_each_dependency_is_taken_once() {
    for nodes in [1_usize, 10, 100, 1_000, 10_000] {
        for apart in [&[][..], &[1], &[1, 2, 7]] {
            let given = of_size(nodes, apart);
            let dependencies: usize = apart.iter().map(|apart| nodes.saturating_sub(*apart)).sum();
            let dag = dag::Dag::new(&given).expect("it is sound");
            assert_eq!(dag.stages().steps, nodes + dependencies, "{nodes} nodes, {apart:?} apart");
            assert_eq!(check(&given).map(|order| order.order.len()), Ok(nodes));
        }
    }
}

#[test]
fn everything_that_is_wrong_with_nodes_is_reported_at_once() {
    let mut wrong = definition(&[("a", &["a"]), ("b", &["x", "y"]), ("c", &[])]);
    wrong.nodes.get_mut("c").expect("it is there").node_id = Some("d".to_owned());
    let problems = check(&wrong).expect_err("it is wrong");
    let codes: Vec<&str> = problems.iter().map(|problem| problem.code().as_str()).collect();
    assert_eq!(
        codes,
        ["workflow_self_dependency", "workflow_unknown_dependency", "workflow_unknown_dependency", "workflow_node_id"]
    );
    assert_eq!(problems[0].cycle(), Some(vec!["a"]));
    assert_eq!(problems[1].to_string(), "`b` depends on `x`, and there is no such node");
    let many: Vec<String> = (0..100).map(|number| format!("x{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(check(&definition(&[("a", &many)])).expect_err("none is there").len(), PROBLEMS_MAX);
    assert_eq!(check(&definition(&[])).expect_err("nothing")[0].code(), WorkflowCode::Empty);
}

#[test]
fn a_cycle_is_reported_by_its_nodes_alone() {
    let given = definition(&[("a", &[]), ("b", &["a", "d"]), ("c", &["b"]), ("d", &["c"]), ("e", &["d"])]);
    let found = check(&given);
    let nodes: Vec<String> = ["b", "c", "d"].map(str::to_owned).into();
    let problem = WorkflowError::Cycle { nodes };
    assert_eq!(problem.to_string(), "nodes wait for each other: b -> c -> d -> b");
    assert_eq!(found, Err(vec![problem]));
}

/// Returns the warnings: code, node, and the other node of a shared output.
fn warned(given: &Definition) -> Vec<(&'static str, String, String)> {
    let describe = |one: &Warning<'_>| {
        let other = if let Warning::SharedOutput { other, .. } = one { other } else { "" };
        (one.code(), one.node().unwrap_or_default().to_owned(), other.to_owned())
    };
    check(given).expect("sound").warnings.iter().map(describe).collect()
}

fn writes(given: &mut Definition, node: &str, key: &str) {
    let node = given.nodes.get_mut(node).expect("it is there");
    node.output_mapping.insert(format!("made-{}", node.output_mapping.len()), key.to_owned());
}

#[test]
fn nodes_waiting_for_the_signal_of_the_workflow_itself_get_a_warning() {
    let mut given = definition(&[("a", &[]), ("b", &[]), ("resume", &[])]);
    let mut waits = |node: &str, signal: Option<&str>| {
        let node = given.nodes.get_mut(node).expect("it is there");
        node.trigger_type = TriggerType::Event;
        node.signal = signal.map(str::to_owned);
    };
    waits("a", Some("resume"));
    waits("b", Some("go"));
    waits("resume", None);
    let taken = |node: &str| ("workflow_bad_trigger", node.to_owned(), String::new());
    assert_eq!(warned(&given), [taken("a"), taken("resume")]);
    // A manual node with this id waits for no signal.
    given.nodes.get_mut("resume").expect("it is there").trigger_type = TriggerType::Manual;
    assert_eq!(warned(&given), [taken("a")]);
}

#[test]
fn outputs_of_unordered_nodes_to_one_place_get_a_warning() {
    let shared = |node: &str, other: &str| ("workflow_shared_output", node.to_owned(), other.to_owned());
    let nodes: &[(&str, &[&str])] =
        &[("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"]), ("e", &["d"]), ("f", &[])];
    for (writers, expected) in [
        (&["a", "b", "d", "e"][..], None),
        (&["a", "e"], None),
        (&["b", "c"], Some(shared("b", "c"))),
        (&["a", "b", "c", "e"], Some(shared("b", "c"))),
        (&["a", "d", "f"], Some(shared("d", "f"))),
        (&["b", "b"], Some(shared("b", "b"))),
        (&["b"], None),
    ] {
        let mut given = definition(nodes);
        writers.iter().for_each(|node| writes(&mut given, node, "total"));
        writes(&mut given, "f", "its own");
        assert_eq!(warned(&given), Vec::from_iter(expected), "{writers:?}");
    }
    let mut given = definition(nodes);
    for node in ["b", "c", "f"] {
        writes(&mut given, node, "total");
        given.nodes.get_mut(node).expect("it is there").when = Some("data.x > 0".to_owned());
    }
    assert_eq!(warned(&given), [], "they may be alternatives");
    given.nodes.get_mut("f").expect("it is there").when = None;
    assert_eq!(warned(&given), [shared("c", "f")], "and one of them is none");
}

#[test]
fn looking_for_shared_outputs_comes_to_an_end_in_a_large_workflow() {
    // A chain of nodes that write one output, and later as many independent ones.
    let id = |number: usize| format!("n{number:05}");
    let mut given = Definition::default();
    for number in 0..20_000 {
        let dependencies = if number == 0 || number >= 10_000 { Vec::new() } else { vec![id(number - 1)] };
        given.nodes.insert(id(number), Node { dependencies, ..Node::default() });
    }
    (0..10_000).for_each(|number| writes(&mut given, &id(number), "total"));
    let codes = |given: &Definition| -> Vec<&str> { warned(given).iter().map(|one| one.0).collect() };
    assert_eq!(codes(&given), ["workflow_too_large"]);
    (10_000..20_000).for_each(|number| writes(&mut given, &id(number), "total"));
    assert_eq!(codes(&given), ["workflow_shared_output", "workflow_too_large"]);
}

#[test]
fn node_names_and_counts_beyond_board_limits_get_a_warning() {
    let long = "x".repeat(ID_CHARS_MAX + 1);
    let given = definition(&[("to write", &[]), ("-x", &[]), ("", &[]), (&long, &[]), ("sound_1-a", &[])]);
    let found = warned(&given);
    let named = |node: &str| ("workflow_node_name", node.to_owned(), String::new());
    assert_eq!(found, [named(""), named("-x"), named("to write"), named(&long)]);
    let of = |count: usize| {
        let nodes = (0..count).map(|number| (format!("n{number}"), Node::default())).collect();
        warned(&Definition { nodes, ..Definition::default() }).len()
    };
    assert_eq!((of(RUNNING_NODES_MAX), of(RUNNING_NODES_MAX + 1)), (0, 1));
}

#[test]
fn a_list_of_members_is_no_definition() {
    for (given, expected) in [
        (serde_json::json!({"nodes": {"a": {}}}), None),
        (serde_json::json!({"nodes": {"a": []}}), Some("the node `a` is no object")),
        (serde_json::json!(["id", {"a": {}}]), Some("it is no object")),
    ] {
        assert_eq!(Definition::parse(given.clone()).err().as_deref(), expected, "{given}");
    }
    assert!(Definition::parse(serde_json::json!({"nodes": []})).is_err());
}

proptest! {
    /// Ids share prefixes, and end in bytes that a comparison could mistake for the end of an id.
    #[test]
    fn a_dependency_is_found_whatever_ids_have_in_common(
        begin in "[ab]{0,10}",
        ids in prop::collection::btree_set("[a\0]{0,2}[ab]{0,9}[\0é]{0,2}", 1..12),
        asked in prop::collection::vec(("[ab]{0,10}", "[a\0]{0,2}[ab]{0,9}[\0é]{0,2}", any::<prop::sample::Index>()), 0..12),
    ) {
        let ids: Vec<String> = ids.into_iter().map(|id| format!("{begin}{id}")).collect();
        let mut given = definition(&[]);
        given.nodes.extend(ids.iter().map(|id| (id.clone(), Node::default())));
        // The last node depends on all others, and on ids that may not exist.
        let last = ids.last().expect("one at least").clone();
        let absent: Vec<String> = asked.iter().flat_map(|(begin, id, near)| {
            let near = near.get(&ids);
            [format!("{begin}{id}"), format!("{near}\0"), near.chars().take(near.chars().count().saturating_sub(1)).collect()]
        }).filter(|id| !ids.contains(id)).collect();
        let node = given.nodes.get_mut(&last).expect("it is there");
        node.dependencies = ids.iter().filter(|id| **id != last).cloned().collect();
        prop_assert_eq!(check(&given).expect("all are there").leaves, [&last]);
        for dependency in absent {
            let node = given.nodes.get_mut(&last).expect("it is there");
            node.dependencies = vec![dependency.clone()];
            let problem = WorkflowError::UnknownDependency { node: last.clone(), dependency };
            prop_assert_eq!(check(&given), Err(vec![problem]));
        }
    }

    #[test]
    fn an_order_keeps_every_dependency_and_a_cycle_is_one(edges in prop::collection::vec((0..12usize, 0..12usize), 0..30)) {
        let mut given = definition(&[]);
        for node in 0..12 {
            given.nodes.insert(format!("n{node:02}"), Node::default());
        }
        for (node, needed) in edges.into_iter().filter(|(node, needed)| node != needed) {
            given.nodes.get_mut(&format!("n{node:02}")).expect("it is there").dependencies.push(format!("n{needed:02}"));
        }
        let needs = |node: &str, other: &str| given.nodes[node].dependencies.iter().any(|needed| needed == other);
        match check(&given) {
            Ok(found) => {
                let place = |id: &str| found.order.iter().position(|other| *other == id).expect("it is in the order");
                let stage = |id: &str| found.stages.iter().position(|stage| stage.contains(&id));
                prop_assert_eq!(found.order.len(), 12);
                for (id, node) in &given.nodes {
                    for needed in &node.dependencies {
                        prop_assert!(place(needed) < place(id) && stage(needed) < stage(id));
                    }
                }
            }
            Err(problems) => {
                let [WorkflowError::Cycle { nodes }] = problems.as_slice() else { panic!("{problems:?}") };
                prop_assert!(nodes.len() > 1);
                for (at, node) in nodes.iter().enumerate() {
                    prop_assert!(needs(node, &nodes[(at + nodes.len() - 1) % nodes.len()]), "{:?}", nodes);
                }
            }
        }
    }
}
