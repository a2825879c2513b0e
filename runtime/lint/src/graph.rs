//! Data-flow graph of a blueprint: the places each worker reads and writes and the triggers of its invocations.
//!
//! Provides the graph as data, and the part that concerns one worker. Runs and draws nothing; callers choose a
//! notation. Order and content depend on the blueprint only. The linter uses the definition of contested places, too.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

use patchboard_kernel::blueprint::{Action, Blueprint, EventOp, GrantOp, Rule, Trigger, WriteCondition, Writers};
use patchboard_kernel::files::FILES;
use patchboard_kernel::id::{RuleName, WorkerName};
use patchboard_kernel::pattern::{PathSyntax, Pattern, PatternToken};
use patchboard_kernel::record::FORMAT;
use patchboard_kernel::rejection::code_enum;

/// Blueprint as a graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Graph {
    /// The blueprint's name.
    pub blueprint: String,
    /// Number of writers it allows a field.
    pub writers: Writers,
    /// Nodes, in the order of [`Node`].
    pub nodes: Vec<Node>,
    /// Places that several workers may write other than by appending, with these workers.
    pub contested: BTreeMap<Place, BTreeSet<WorkerName>>,
    /// Edges, in the order of [`Edge`].
    pub edges: Vec<Edge>,
}

/// Endpoint of edges.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Node {
    /// Trigger without a commit: `start`, `manual`, `signal NAME`, `every CRON`, `breaker`.
    Occasion(String),
    /// Places of the document.
    Place(Place),
    /// The files of the workspace.
    Files,
    /// Worker of the blueprint.
    Worker(WorkerName),
}

/// Places of a declared pattern, in canonical form: one text for each pattern.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place(Pattern);

impl Place {
    /// Returns the places of a read grant. It covers everything below, so a trailing `**` is redundant.
    fn read(text: &str, paths: PathSyntax) -> Option<Self> {
        let pattern = paths.parse(text).ok()?;
        let deep = pattern.tokens().iter().rev().take_while(|token| **token == PatternToken::Deep).count();
        Some(Self(pattern.prefix(pattern.tokens().len() - deep)))
    }

    /// Returns the places of a write grant or a trigger.
    fn named(text: &str, paths: PathSyntax) -> Option<Self> {
        paths.parse(text).ok().map(Self)
    }

    /// Returns the pattern as text; empty for the whole document.
    pub fn text(&self) -> String {
        self.0.to_string()
    }

    fn is_of_files(&self) -> bool {
        matches!(self.0.tokens().first(), Some(PatternToken::Literal(name)) if name == FILES)
    }

    /// Returns true if a write at `self` may be visible to readers of `other`.
    fn shows_in(&self, other: &Self) -> bool {
        self.0.collides(&other.0) || self.0.lies_above(&other.0) || other.0.lies_above(&self.0)
    }

    /// Returns true if a write at `self` may be a change at `other`: ancestors of a write are not notified (SPEC
    /// section 6).
    fn happens_at(&self, other: &Self) -> bool {
        self.0.collides(&other.0) || self.0.lies_above(&other.0)
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

code_enum! {
    /// Meaning of an edge.
    EdgeKind {
        /// From a place to the worker that may read it.
        Reads = "reads",
        /// From a worker to the place it may write.
        Writes = "writes",
        /// From a written place to an overlapping pattern that is read or awaited: the write is visible there, too.
        ShowsIn = "shows_in",
        /// From the trigger of a rule or a breaker to the worker that it triggers.
        Wakes = "wakes",
        /// From a worker to a person that may have to approve or answer.
        Asks = "asks",
    }
}

/// Edge of the graph.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Edge {
    /// Meaning of the edge.
    pub kind: EdgeKind,
    /// Source node.
    pub from: Node,
    /// Target node.
    pub to: Node,
    /// Condition of a conditional grant; for writes `PLACE: EXPRESSION`, with the place that is `self`.
    #[serde(rename = "where")]
    pub condition: Option<String>,
    /// Operations that a write grants.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<GrantOp>,
    /// Rule of a trigger edge.
    pub rule: Option<RuleName>,
    /// Kind of a trigger edge: the change (`add`, `replace`, `remove`, `change` for any), `start`, the kind of wait
    /// (`after`, `settled`, `after_first`, `idle`), or the policy of the breaker.
    pub on: Option<String>,
}

/// Data flow from one worker's writes to another's reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DataFlow {
    /// Writing worker.
    pub from: WorkerName,
    /// Reading worker.
    pub to: WorkerName,
    /// Written places that the reader sees.
    pub places: Vec<Place>,
}

/// Returns true if grants of two workers make both of them writers of one field. Neither only appends to an array, and
/// their places are equal or nested. A `value` makes no difference: it restricts the values, not the writers.
pub(crate) fn are_writers_of_one(one: &Pattern, other: &Pattern) -> bool {
    let appends = |pattern: &Pattern| pattern.tokens().last() == Some(&PatternToken::Append);
    let meet = || one.overlaps(other) || one.lies_above(other) || other.lies_above(one);
    !appends(one) && !appends(other) && meet()
}

impl Graph {
    /// Builds the graph of a blueprint. Malformed patterns are left out; the linter rejects them.
    pub fn from_blueprint(blueprint: &Blueprint) -> Self {
        let mut drawing = Drawing::default();
        for name in blueprint.workers.keys() {
            drawing.nodes.insert(Node::Worker(name.clone()));
        }
        drawing.contracts(blueprint);
        for rule in &blueprint.rules {
            drawing.rule(blueprint, rule);
        }
        for (policy, action) in blueprint.circuit.actions() {
            if let Action::Wake(worker) = action {
                drawing.wakes(Node::Occasion("breaker".to_owned()), worker, None, Some(policy));
            }
        }
        drawing.shows_in();
        let (contested, nodes) = (drawing.contested(), drawing.nodes.into_iter().collect());
        let (name, edges) = (blueprint.name.clone(), drawing.edges.into_iter().collect());
        Self { blueprint: name, writers: blueprint.writers, nodes, contested, edges }
    }

    /// Returns the part that concerns one worker: its reads, writes and triggers, and the workers at their other ends.
    #[must_use]
    pub fn around(&self, worker: &WorkerName) -> Self {
        let centre = Node::Worker(worker.clone());
        let touches = |edge: &&Edge| edge.from == centre || edge.to == centre;
        let inward: BTreeSet<&Node> =
            self.edges.iter().filter(|edge| edge.to == centre).map(|edge| &edge.from).collect();
        let outward: BTreeSet<&Node> =
            self.edges.iter().filter(|edge| edge.from == centre).map(|edge| &edge.to).collect();
        let shows = || self.edges.iter().filter(|edge| edge.kind == EdgeKind::ShowsIn);
        // Sources of its visible values, and destinations of its writes.
        let sources = shows().filter(|edge| inward.contains(&edge.to)).map(|edge| &edge.from);
        let sources: BTreeSet<&Node> = inward.iter().copied().chain(sources).collect();
        let targets = shows().filter(|edge| outward.contains(&edge.from)).map(|edge| &edge.to);
        let targets: BTreeSet<&Node> = outward.iter().copied().chain(targets).collect();
        let edges: Vec<Edge> = self
            .edges
            .iter()
            .filter(|edge| {
                touches(edge)
                    || match edge.kind {
                        EdgeKind::ShowsIn => outward.contains(&edge.from) || inward.contains(&edge.to),
                        EdgeKind::Writes => sources.contains(&edge.to),
                        EdgeKind::Reads | EdgeKind::Wakes => {
                            targets.contains(&edge.from) && !matches!(edge.from, Node::Worker(_))
                        }
                        EdgeKind::Asks => false,
                    }
            })
            .cloned()
            .collect();
        let mut nodes: BTreeSet<Node> = edges.iter().flat_map(|edge| [edge.from.clone(), edge.to.clone()]).collect();
        nodes.insert(centre);
        let is_there = |place: &Place| nodes.contains(&Node::Place(place.clone()));
        let contested = self.contested.iter().filter(|(place, _)| is_there(place));
        let contested = contested.map(|(place, workers)| (place.clone(), workers.clone())).collect();
        Self { contested, edges, nodes: nodes.into_iter().collect(), ..self.clone() }
    }

    /// Lists data flows between workers, in the order of their names. Workers' reads of their own writes are left out.
    pub fn flow(&self) -> Vec<DataFlow> {
        let mut readers: BTreeMap<&Node, BTreeSet<&WorkerName>> = BTreeMap::new();
        for edge in self.edges.iter().filter(|edge| edge.kind == EdgeKind::Reads) {
            if let Node::Worker(reader) = &edge.to {
                readers.entry(&edge.from).or_default().insert(reader);
            }
        }
        let mut reached: BTreeMap<&Node, BTreeSet<&Node>> = BTreeMap::new();
        for edge in self.edges.iter().filter(|edge| edge.kind == EdgeKind::ShowsIn) {
            reached.entry(&edge.from).or_default().insert(&edge.to);
        }
        let mut feeds: BTreeMap<(&WorkerName, &WorkerName), BTreeSet<&Place>> = BTreeMap::new();
        for edge in self.edges.iter().filter(|edge| edge.kind == EdgeKind::Writes) {
            let (Node::Worker(writer), Node::Place(place)) = (&edge.from, &edge.to) else { continue };
            let seen = reached.get(&edge.to).into_iter().flatten().copied().chain([&edge.to]);
            for reader in seen.filter_map(|node| readers.get(node)).flatten().filter(|reader| **reader != writer) {
                feeds.entry((writer, reader)).or_default().insert(place);
            }
        }
        let flows = feeds.into_iter().map(|((from, to), places)| {
            let places = places.into_iter().cloned().collect();
            DataFlow { from: from.clone(), to: to.clone(), places }
        });
        flows.collect()
    }
}

/// Graph under construction.
#[derive(Default)]
struct Drawing {
    nodes: BTreeSet<Node>,
    edges: BTreeSet<Edge>,
    read: BTreeSet<Place>,
    awaited: BTreeSet<Place>,
    written: BTreeMap<Place, BTreeSet<WorkerName>>,
}

impl Drawing {
    fn edge(&mut self, edge: Edge) {
        self.nodes.extend([edge.from.clone(), edge.to.clone()]);
        self.edges.insert(edge);
    }

    fn plain(&mut self, kind: EdgeKind, from: Node, to: Node) {
        self.edge(Edge { kind, from, to, condition: None, ops: Vec::new(), rule: None, on: None });
    }

    fn wakes(&mut self, from: Node, worker: &WorkerName, rule: Option<&RuleName>, on: Option<&str>) {
        let (to, on) = (Node::Worker(worker.clone()), on.map(str::to_owned));
        self.edge(Edge { kind: EdgeKind::Wakes, from, to, condition: None, ops: Vec::new(), rule: rule.cloned(), on });
    }

    fn contracts(&mut self, blueprint: &Blueprint) {
        let paths = PathSyntax::for_formats(blueprint.blueprint, FORMAT);
        for (name, worker) in &blueprint.workers {
            let worker_node = Node::Worker(name.clone());
            for read in &worker.reads {
                let Some(place) = Place::read(&read.path, paths) else { continue };
                self.read.insert(place.clone());
                let (from, to, condition) = (Node::Place(place), worker_node.clone(), read.condition.clone());
                self.edge(Edge { kind: EdgeKind::Reads, from, to, condition, ops: Vec::new(), rule: None, on: None });
            }
            // Grants of one worker at one place become one edge.
            let mut grants: BTreeMap<Place, (BTreeSet<GrantOp>, BTreeSet<Option<String>>)> = BTreeMap::new();
            for grant in &worker.writes {
                let Some(place) = Place::named(&grant.path, paths) else { continue };
                let (ops, conditions) = grants.entry(place).or_default();
                ops.extend(grant.effective_ops());
                conditions.insert(grant.condition.as_ref().map(|WriteCondition { of, expr }| format!("{of}: {expr}")));
            }
            for (place, (ops, conditions)) in grants {
                self.written.entry(place.clone()).or_default().insert(name.clone());
                // A place granted with and without a condition counts as unconditional.
                let all: Option<Vec<String>> = conditions.into_iter().collect();
                let condition = all.map(|all| all.join(" or "));
                let (from, to, ops) = (worker_node.clone(), Node::Place(place), ops.into_iter().collect());
                self.edge(Edge { kind: EdgeKind::Writes, from, to, condition, ops, rule: None, on: None });
            }
            let asked = worker.writes.iter().filter_map(|grant| grant.approval.as_ref()).chain(&worker.clarify);
            for asked in asked {
                self.plain(EdgeKind::Asks, worker_node.clone(), Node::Worker(asked.by.clone()));
            }
            if let Some(files) = &worker.files {
                self.plain(EdgeKind::Reads, Node::Files, worker_node.clone());
                if !files.edit.is_empty() {
                    self.plain(EdgeKind::Writes, worker_node, Node::Files);
                }
            }
        }
    }

    fn rule(&mut self, blueprint: &Blueprint, rule: &Rule) {
        let occasion = |text: String| vec![Node::Occasion(text)];
        let (sources, on) = match &rule.trigger {
            Trigger::Start => (occasion("start".to_owned()), None),
            Trigger::Manual => (occasion("manual".to_owned()), None),
            Trigger::Every(cron) => (occasion(format!("every {cron}")), None),
            Trigger::Signal(name) => (occasion(format!("signal {name}")), None),
            Trigger::Event { path, .. } | Trigger::Each(path) => {
                let Some(place) = Place::named(path, PathSyntax::for_formats(blueprint.blueprint, FORMAT)) else {
                    return;
                };
                self.awaited.insert(place.clone());
                let on = match rule.trigger {
                    Trigger::Event { op, .. } => op.map_or("change", EventOp::as_str),
                    _ => "start",
                };
                (vec![Node::Place(place)], Some(on))
            }
            Trigger::After(names) | Trigger::Settled(names) | Trigger::AfterFirst(names) | Trigger::Idle(names) => {
                let awaited = blueprint.rules.iter().filter(|other| names.contains(&other.name));
                let workers = awaited.flat_map(|other| blueprint.triggered_workers(&other.run));
                let workers = workers.cloned().map(Node::Worker).collect();
                (workers, Some(rule.trigger.word()))
            }
        };
        for source in sources {
            for worker in blueprint.triggered_workers(&rule.run) {
                self.wakes(source.clone(), worker, Some(&rule.name), on);
            }
        }
    }

    /// Links written places to overlapping patterns that are read or awaited.
    fn shows_in(&mut self) {
        let mut found = Vec::new();
        for written in self.written.keys() {
            let read = self.read.iter().filter(|read| written.shows_in(read));
            let awaited = self.awaited.iter().filter(|awaited| written.happens_at(awaited));
            let seen: BTreeSet<&Place> = read.chain(awaited).filter(|place| *place != written).collect();
            found.extend(seen.into_iter().map(|place| (Node::Place(written.clone()), place.clone())));
        }
        if self.nodes.contains(&Node::Files) {
            let of_files = self.read.union(&self.awaited).filter(|place| place.is_of_files());
            found.extend(of_files.map(|place| (Node::Files, place.clone())));
        }
        for (from, place) in found {
            self.plain(EdgeKind::ShowsIn, from, Node::Place(place));
        }
    }

    fn contested(&self) -> BTreeMap<Place, BTreeSet<WorkerName>> {
        let mut contested = BTreeMap::new();
        for place in self.written.keys() {
            let meeting = self.written.iter().filter(|(other, _)| are_writers_of_one(&place.0, &other.0));
            let workers: BTreeSet<WorkerName> = meeting.flat_map(|(_, workers)| workers.clone()).collect();
            if workers.len() > 1 {
                contested.insert(place.clone(), workers);
            }
        }
        contested
    }
}
