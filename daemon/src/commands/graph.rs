//! `patchboard graph`: renders the data-flow graph of a blueprint, without running anything.

mod dot;
mod mermaid;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use patchboard_lint::graph::{DataFlow, Edge, EdgeKind, Graph, Node};
use serde_json::json;

use crate::blueprint_file;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, one_line};
use crate::queries::view::no_such_worker;

/// Render the data-flow graph of a blueprint's declarations, without running anything
///
/// Nodes are workers, places of the document as the contracts name them, and triggers without a commit (start, signals,
/// schedules). Arrows lead from a place to its readers, from a worker to the places it writes (with the operations),
/// and from a rule's trigger to the worker it runs. A dotted arrow connects a written place to another pattern that
/// reads it: an append at /claims/- shows in /claims. Places that several workers may write, other than by appending,
/// are marked; with `writers: one` in the blueprint they are errors (`patchboard check`). Output is deterministic: a
/// blueprint always produces the same graph.
///
/// A blueprint with errors is rejected as by `check`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard graph blueprints/evidence-review.yaml                     for Markdown, in a ```mermaid block
  patchboard graph blueprints/evidence-review.yaml --format dot | dot -Tsvg > review.svg
  patchboard graph blueprints/storm.yaml --worker manager_review       neighbours of one worker
  patchboard graph blueprints/evidence-review.yaml --flow              data flow between workers
  patchboard graph blueprints/clipboard.yaml --board notes             the roles of a department
  patchboard graph blueprints/evidence-review.yaml --format json | jq '.edges[] | select(.kind == \"writes\")'")]
pub(crate) struct Arguments {
    /// The blueprint file, in YAML or JSON
    #[arg(value_name = "BLUEPRINT")]
    blueprint: PathBuf,
    /// Output format [default: mermaid, or json with --output json]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Notation>,
    /// Only the reads, writes and triggers of one worker, and the nodes they connect to
    #[arg(long, value_name = "WORKER")]
    worker: Option<String>,
    /// A nested board of the blueprint, such as a department, to draw instead
    #[arg(long, value_name = "BOARD")]
    board: Option<String>,
    /// Only workers, with arrows from writers to readers, labelled with the places
    #[arg(long)]
    flow: bool,
}

/// Output format of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Notation {
    /// Flowchart for Markdown.
    Mermaid,
    /// Graph for Graphviz.
    Dot,
    /// JSON value.
    Json,
}

/// Format-independent drawing of a graph.
struct Figure {
    title: String,
    nodes: Vec<Shape>,
    arrows: Vec<Arrow>,
}

struct Shape {
    kind: ShapeKind,
    label: Vec<String>,
    /// Set if several workers may write the place.
    is_contested: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ShapeKind {
    Trigger,
    Place,
    Worker,
}

/// Edge between two shapes, by their indexes.
struct Arrow {
    from: usize,
    to: usize,
    style: Style,
    /// Label; empty for an unlabelled arrow.
    label: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Dotted,
    Thick,
}

pub(crate) fn run(arguments: &Arguments, output: Output) -> Outcome {
    let notation = match arguments.format {
        Some(Notation::Mermaid | Notation::Dot) if output.is_json() => {
            let message = "--output json writes the graph as JSON, --format says otherwise";
            return Err(Failure::invalid_input("usage", message).help("leave out one of the two"));
        }
        Some(notation) => notation,
        None if output.is_json() => Notation::Json,
        None => Notation::Mermaid,
    };
    let blueprint = blueprint_file::read_valid(&arguments.blueprint, None, output)?;
    let blueprint = match &arguments.board {
        None => &blueprint,
        Some(name) => blueprint.boards.get(name).ok_or_else(|| {
            let known: Vec<String> = blueprint.boards.keys().map(|name| one_line(name)).collect();
            let inside =
                if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
            let message = format!("the blueprint has no board inside called {}", one_line(name));
            Failure::invalid_input("no_such_board", message)
                .help(format!("nested boards are departments and the members of `boards`; {inside}"))
                .detail("boards", json!(known))
        })?,
    };
    let whole = Graph::from_blueprint(blueprint);
    let worker = arguments.worker.as_deref();
    if let Some(worker) = worker.filter(|worker| !blueprint.workers.contains_key(*worker)) {
        return Err(no_such_worker(blueprint, worker));
    }
    let (value, figure) = if arguments.flow {
        let concerns =
            |feed: &DataFlow| worker.is_none_or(|name| [&feed.from, &feed.to].iter().any(|it| it.as_str() == name));
        let feeds: Vec<DataFlow> = whole.flow().into_iter().filter(concerns).collect();
        let is_there = |name: &str| {
            worker.is_none()
                || worker == Some(name)
                || feeds.iter().any(|feed| feed.from.as_str() == name || feed.to.as_str() == name)
        };
        let workers: Vec<&str> =
            blueprint.workers.keys().map(|name| name.as_str()).filter(|name| is_there(name)).collect();
        (
            json!({"blueprint": whole.blueprint, "workers": workers, "feeds": feeds}),
            flow_figure(&whole, &workers, &feeds),
        )
    } else {
        let graph = worker.map_or_else(|| whole.clone(), |worker| whole.around(&worker.into()));
        (json!(graph), graph_figure(&graph))
    };
    match notation {
        Notation::Mermaid => output.text(&mermaid::write(&figure))?,
        Notation::Dot => output.text(&dot::write(&figure))?,
        Notation::Json => output.json(&value)?,
    }
    Ok(Exit::Done)
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "  {what}").expect("a string takes everything");
}

fn graph_figure(graph: &Graph) -> Figure {
    let place = |node: &Node| graph.nodes.iter().position(|other| other == node);
    let arrow = |edge: &Edge| {
        let (style, label) = match edge.kind {
            EdgeKind::Reads | EdgeKind::Writes => {
                let ops = edge.ops.iter().map(|op| op.as_str()).collect::<Vec<_>>().join(", ");
                let condition = edge.condition.as_ref().map(|condition| format!("where {condition}"));
                let words = Some(ops).filter(|ops| !ops.is_empty()).into_iter().chain(condition);
                (Style::Plain, words.collect::<Vec<_>>().join(" "))
            }
            EdgeKind::ShowsIn => (Style::Dotted, String::new()),
            EdgeKind::Asks => (Style::Dotted, "asks".to_owned()),
            EdgeKind::Wakes => {
                let rule = edge.rule.as_ref().map(|rule| one_line(rule.as_str()));
                let words = [edge.on.as_ref().map(|on| format!("on {on}")), rule];
                (Style::Thick, words.into_iter().flatten().collect::<Vec<_>>().join(": "))
            }
        };
        // The graph contains the ends of all edges.
        Some(Arrow { from: place(&edge.from)?, to: place(&edge.to)?, style, label })
    };
    Figure {
        title: one_line(&graph.blueprint),
        nodes: graph.nodes.iter().map(|node| shape(graph, node)).collect(),
        arrows: graph.edges.iter().filter_map(arrow).collect(),
    }
}

fn shape(graph: &Graph, node: &Node) -> Shape {
    let (kind, text) = match node {
        Node::Occasion(text) => (ShapeKind::Trigger, one_line(text)),
        Node::Place(place) if place.text().is_empty() => (ShapeKind::Place, "the whole document".to_owned()),
        Node::Place(place) => (ShapeKind::Place, one_line(&place.text())),
        Node::Files => (ShapeKind::Place, "files of the workspace".to_owned()),
        Node::Worker(name) => (ShapeKind::Worker, one_line(name.as_str())),
    };
    let writers = match node {
        Node::Place(place) => graph.contested.get(place),
        Node::Occasion(_) | Node::Files | Node::Worker(_) => None,
    };
    let mut label = vec![text];
    label.extend(writers.map(|writers| format!("{} writers", writers.len())));
    Shape { kind, label, is_contested: writers.is_some() }
}

/// Returns the figure of the workers only.
fn flow_figure(graph: &Graph, workers: &[&str], feeds: &[DataFlow]) -> Figure {
    let place = |name: &str| workers.iter().position(|other| *other == name);
    let arrow = |feed: &DataFlow| {
        let places: Vec<String> = feed.places.iter().map(|place| one_line(&place.text())).collect();
        let (from, to) = (place(feed.from.as_str())?, place(feed.to.as_str())?);
        Some(Arrow { from, to, style: Style::Plain, label: places.join(", ") })
    };
    let node = |name: &&str| Shape { kind: ShapeKind::Worker, label: vec![one_line(name)], is_contested: false };
    Figure {
        title: one_line(&graph.blueprint),
        nodes: workers.iter().map(node).collect(),
        arrows: feeds.iter().filter_map(arrow).collect(),
    }
}
