//! Who reads what, who writes it and what wakes whom, from the declarations of a blueprint alone.
//!
//! Owns the graph as data, and what of it concerns one worker. Runs nothing and draws nothing: notations are the caller's.
//! Order and content depend on the blueprint only. What two workers may both write is decided here for the linter, too.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

use crate::blueprint::{Action, Blueprint, EventOp, GrantOp, Rule, Trigger, WriteCondition, Writers};
use crate::files::FILES;
use crate::id::{RuleName, WorkerName};
use crate::pattern::{Paths, Pattern, PatternToken};
use crate::record::FORMAT;
use crate::rejection::coded;

/// A blueprint as a graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Graph {
    /// The blueprint's name.
    pub blueprint: String,
    /// How many writers it allows a field.
    pub writers: Writers,
    /// What there is, in the order of [`Node`].
    pub nodes: Vec<Node>,
    /// Places that several workers may write, other than by appending, with these.
    pub contested: BTreeMap<Place, BTreeSet<WorkerName>>,
    /// What leads where, in the order of [`Edge`].
    pub edges: Vec<Edge>,
}

/// What edges lead from and to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Node {
    /// What happens without a commit: `start`, `manual`, `signal NAME`, `every CRON`, `breaker`.
    Occasion(String),
    /// Places of the document.
    Place(Place),
    /// The files of the workspace.
    Files,
    /// A seat.
    Worker(WorkerName),
}

/// The places that a declared pattern names: canonical, so that one pattern has one text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place(Pattern);

impl Place {
    /// What a read contract covers. It goes on below what it names, so a `**` at its end says nothing more.
    fn read(text: &str, paths: Paths) -> Option<Self> {
        let pattern = paths.parse(text).ok()?;
        let deep = pattern.tokens().iter().rev().take_while(|token| **token == PatternToken::Deep).count();
        Some(Self(pattern.prefix(pattern.tokens().len() - deep)))
    }

    /// What a grant or a trigger names.
    fn named(text: &str, paths: Paths) -> Option<Self> {
        paths.parse(text).ok().map(Self)
    }

    /// As text; empty for the whole document.
    pub fn text(&self) -> String {
        self.0.to_string()
    }

    fn is_of_files(&self) -> bool {
        matches!(self.0.tokens().first(), Some(PatternToken::Literal(name)) if name == FILES)
    }

    /// Whether what is written at `self` may be seen by who reads `other`.
    fn shows_in(&self, other: &Self) -> bool {
        self.0.collides(&other.0) || self.0.lies_above(&other.0) || other.0.lies_above(&self.0)
    }

    /// Whether what is written at `self` may be a change at `other`: what is above a write is not told of it (SPEC section 6).
    fn happens_at(&self, other: &Self) -> bool {
        self.0.collides(&other.0) || self.0.lies_above(&other.0)
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

coded! {
    /// What an edge says.
    EdgeKind {
        /// From a place to the worker that may read it.
        Reads = "reads",
        /// From a worker to the place it may write.
        Writes = "writes",
        /// From a place that is written to one that is read or waited for under another pattern: it shows there, too.
        ShowsIn = "shows_in",
        /// From what a rule or a breaker waits for to the worker that it wakes.
        Wakes = "wakes",
        /// From a worker to the person it may have to ask.
        Asks = "asks",
    }
}

/// One way that something takes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Edge {
    /// What it says.
    pub kind: EdgeKind,
    /// Where it begins.
    pub from: Node,
    /// Where it ends.
    pub to: Node,
    /// Of what is granted under a condition: the condition; of a write with the place that is `self` in it, `PLACE: EXPRESSION`.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Of a write: the operations that can be used there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<GrantOp>,
    /// Of what wakes: the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleName>,
    /// Of what wakes: the change (`add`, `replace`, `remove`, `change` for any), `after` or `idle`, or the breaker's policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
}

/// One worker writes what another reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Feed {
    /// Who writes.
    pub from: WorkerName,
    /// Who reads.
    pub to: WorkerName,
    /// Where it is written.
    pub places: Vec<Place>,
}

/// Whether two grants of two workers make both of them writers of one field: neither only appends to an array, and what one
/// writes is, holds or is part of what the other writes. A `value` makes no difference: it says what may be written, not by
/// whom.
pub(crate) fn are_writers_of_one(one: &Pattern, other: &Pattern) -> bool {
    let appends = |pattern: &Pattern| pattern.tokens().last() == Some(&PatternToken::Append);
    let meet = || one.overlaps(other) || one.lies_above(other) || other.lies_above(one);
    !appends(one) && !appends(other) && meet()
}

impl Graph {
    /// The graph of a blueprint. Patterns that are none are left out; the linter refuses them.
    pub fn of(blueprint: &Blueprint) -> Self {
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
        let contested = drawing.contested();
        Self {
            blueprint: blueprint.name.clone(),
            writers: blueprint.writers,
            nodes: drawing.nodes.into_iter().collect(),
            contested,
            edges: drawing.edges.into_iter().collect(),
        }
    }

    /// What of it concerns one worker: what it reads, writes and is woken by, and who stands on the other side of that.
    #[must_use]
    pub fn around(&self, worker: &WorkerName) -> Self {
        let centre = Node::Worker(worker.clone());
        let touches = |edge: &&Edge| edge.from == centre || edge.to == centre;
        let inward: BTreeSet<&Node> =
            self.edges.iter().filter(|edge| edge.to == centre).map(|edge| &edge.from).collect();
        let outward: BTreeSet<&Node> =
            self.edges.iter().filter(|edge| edge.from == centre).map(|edge| &edge.to).collect();
        let shows = || self.edges.iter().filter(|edge| edge.kind == EdgeKind::ShowsIn);
        // Where what it sees comes from, and where what it writes goes.
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

    /// Which worker writes what which other reads, in the order of their names. What a worker reads of its own is left out.
    pub fn flow(&self) -> Vec<Feed> {
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
        let feed = |((from, to), places): ((&WorkerName, &WorkerName), BTreeSet<&Place>)| Feed {
            from: from.clone(),
            to: to.clone(),
            places: places.into_iter().cloned().collect(),
        };
        feeds.into_iter().map(feed).collect()
    }
}

/// A graph in the making.
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
        let paths = Paths::of(blueprint.blueprint, FORMAT);
        for (name, worker) in &blueprint.workers {
            let seat = Node::Worker(name.clone());
            for read in &worker.reads {
                let Some(place) = Place::read(&read.path, paths) else { continue };
                self.read.insert(place.clone());
                let (from, to, condition) = (Node::Place(place), seat.clone(), read.condition.clone());
                self.edge(Edge { kind: EdgeKind::Reads, from, to, condition, ops: Vec::new(), rule: None, on: None });
            }
            // What two grants allow at one place is one edge.
            let mut grants: BTreeMap<Place, (BTreeSet<GrantOp>, BTreeSet<Option<String>>)> = BTreeMap::new();
            for grant in &worker.writes {
                let Some(place) = Place::named(&grant.path, paths) else { continue };
                let (ops, conditions) = grants.entry(place).or_default();
                ops.extend(grant.effective_ops());
                conditions.insert(grant.condition.as_ref().map(|WriteCondition { of, expr }| format!("{of}: {expr}")));
            }
            for (place, (ops, conditions)) in grants {
                self.written.entry(place.clone()).or_default().insert(name.clone());
                // What one grant allows under a condition and another without has none.
                let all: Option<Vec<String>> = conditions.into_iter().collect();
                let condition = all.map(|all| all.join(" or "));
                let (from, to, ops) = (seat.clone(), Node::Place(place), ops.into_iter().collect());
                self.edge(Edge { kind: EdgeKind::Writes, from, to, condition, ops, rule: None, on: None });
            }
            let asked = worker.writes.iter().filter_map(|grant| grant.approval.as_ref()).chain(&worker.clarify);
            for asked in asked {
                self.plain(EdgeKind::Asks, seat.clone(), Node::Worker(asked.by.clone()));
            }
            if let Some(files) = &worker.files {
                self.plain(EdgeKind::Reads, Node::Files, seat.clone());
                if !files.edit.is_empty() {
                    self.plain(EdgeKind::Writes, seat, Node::Files);
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
            Trigger::Event { op, path } => {
                let Some(place) = Place::named(path, Paths::of(blueprint.blueprint, FORMAT)) else { return };
                self.awaited.insert(place.clone());
                (vec![Node::Place(place)], Some(op.map_or("change", EventOp::as_str)))
            }
            Trigger::Each(path) => {
                let Some(place) = Place::named(path, Paths::of(blueprint.blueprint, FORMAT)) else { return };
                self.awaited.insert(place.clone());
                (vec![Node::Place(place)], Some("start"))
            }
            Trigger::After(names) | Trigger::Settled(names) | Trigger::AfterFirst(names) | Trigger::Idle(names) => {
                let awaited = blueprint.rules.iter().filter(|other| names.contains(&other.name));
                let workers = awaited.flat_map(|other| blueprint.woken_by(&other.run));
                let workers = workers.cloned().map(Node::Worker).collect();
                (workers, Some(rule.trigger.word()))
            }
        };
        for source in sources {
            for worker in blueprint.woken_by(&rule.run) {
                self.wakes(source.clone(), worker, Some(&rule.name), on);
            }
        }
    }

    /// Joins what is written to what is read or waited for under another pattern.
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
