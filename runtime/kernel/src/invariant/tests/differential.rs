//! Differential test: incremental evaluation of invariants agrees with full evaluation, for histories of random
//! changes.

use super::*;

/// Number of histories, one per seed.
const SEEDS: u64 = 1050;
/// Candidates per history.
const CANDIDATES: u32 = 10;
/// Size of the pool of random invariants.
const INVARIANTS: usize = 600;
/// Number of invariants per board.
const CHOSEN: usize = 8;

/// Small seeded random number generator, identical on all platforms.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }

    fn scalar(&mut self) -> Value {
        match self.roll(6) {
            0 => Value::Null,
            1 => json!(self.roll(2) == 0),
            2 => json!(self.pick(&["a", "b"])),
            _ => json!(self.roll(5)),
        }
    }

    fn list(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> Value) -> Value {
        (0..self.roll(most + 1)).map(|_| one(self)).collect()
    }

    fn members(&mut self, names: &[&str], depth: usize) -> Value {
        let names = names.iter().filter(|_| self.roll(3) > 0).collect::<Vec<_>>();
        names.into_iter().map(|name| ((*name).to_owned(), self.value(depth))).collect::<serde_json::Map<_, _>>().into()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.roll(if depth == 0 { 1 } else { 4 }) {
            1 => self.list(3, |dice| dice.value(depth - 1)),
            2 => self.members(&["n", "x", "sub"], depth - 1),
            3 => self.task(),
            _ => self.scalar(),
        }
    }

    fn task(&mut self) -> Value {
        json!({"n": self.roll(5), "deps": self.list(3, Self::scalar), "sub": self.members(&["x", "y"], 0)})
    }

    fn document(&mut self) -> Value {
        let wide = [4, 4, 40][self.roll(3)];
        let index: serde_json::Map<_, _> =
            (0..self.roll(wide)).map(|n| (format!("k{n}"), self.members(&["n", "sub"], 1))).collect();
        let tasks = [3, 3, 20][self.roll(3)];
        json!({
            "request": self.members(&["limit", "tags"], 1), "tasks": self.list(tasks, Self::task), "index": index,
            "evidence": self.list(4, Self::scalar), "flag": self.scalar(), "sub": self.members(&["sub", "x"], 2),
            "nested": self.list(3, |dice| dice.list(3, |dice| dice.value(1))),
        })
    }

    fn pattern(&mut self) -> &'static str {
        self.pick(&[
            "",
            "",
            "/**",
            "/tasks/*",
            "/tasks/*",
            "/tasks/0",
            "/tasks/1/deps/*",
            "/tasks/*/deps/0",
            "/**/0/n",
            "/**/n",
            "/index/*",
            "/index/*/n",
            "/index/k3",
            "/**/sub/**",
            "/nested/*/*",
            "/nested/0/*/1",
            "/**/1/**",
            "/*/0",
            "/evidence/*",
            "/evidence/1",
            "/request/*",
            "/tasks/-",
            "/**/sub/x",
            "/*/*/*",
        ])
    }

    fn expression(&mut self, about_self: bool, depth: usize) -> String {
        match self.roll(if depth == 0 { 3 } else { 6 }) {
            3 => format!("!({})", self.expression(about_self, depth - 1)),
            4 => format!("({} || {})", self.expression(about_self, depth - 1), self.expression(about_self, depth - 1)),
            5 => format!("({} && {})", self.expression(about_self, depth - 1), self.expression(about_self, depth - 1)),
            0 | 1 if about_self => self.about_self().to_owned(),
            _ => self.about_state().to_owned(),
        }
    }

    fn about_self(&mut self) -> &'static str {
        self.pick(&[
            "self != 4",
            "self != 1",
            "self.n < 4",
            "self.n < 4 || true",
            "has(self.n)",
            "has(self.sub.x)",
            "self == 'a'",
            "size(self) < 3",
            "self[0] != 1",
            "self.deps.all(d, d != 3)",
            "self.sub.x != self.n",
            "self in state.evidence",
            "self == null",
            "self.n in state.evidence",
            "size(self.deps) < 3",
            "self.sub.x in state.evidence",
            "self != state.flag",
            "self != before.flag",
            "key != 2",
            "key != 'k3' || self == null",
            "!(key in state.evidence)",
        ])
    }

    fn about_state(&mut self) -> &'static str {
        self.pick(&[
            "state.flag",
            "state.flag != 1",
            "size(state.tasks) < 4",
            "size(state) < 8",
            "has(state.index.k3)",
            "!has(state.index.k5)",
            "state.index.k1.n != 1",
            "has(request.limit)",
            "request.limit == state.flag",
            "request == null",
            "size(request.tags) > 1",
            "state.tasks.all(t, t.n < 4)",
            "state.tasks[0].n != 2",
            "state.sub.sub.x != 1",
            "has(state.sub.sub.x)",
            "has(state.new)",
            "state.nested.exists(l, size(l) == 2)",
            "state.evidence.all(e, e != 2)",
            "size(patch) < 2",
            "before.flag == state.flag",
            "1 in state.evidence",
            "'x' in state.sub",
            "state.sub == state.index.k0",
            "size(state.index) < 5",
        ])
    }

    fn invariant(&mut self) -> Invariant {
        let each = self.pattern();
        // The root as an instance; the helper treats an empty pattern as no pattern.
        let is_root = each.is_empty() && self.roll(4) == 0;
        let expr = self.expression(is_root || !each.is_empty(), 2);
        let mut made = invariant(if is_root { "/**" } else { each }, &expr);
        if is_root {
            made.each = Some(Pattern::parse("").expect("a pattern"));
        }
        made
    }

    /// Returns a random place of the tree, sometimes the root.
    fn place(&mut self, tree: &Node) -> PointerBuf {
        let (mut place, mut here) = (PointerBuf::root(), tree);
        while here.has_parts() && self.roll(5) > 0 {
            let at = self.roll(here.part_count());
            let (token, below) = match here {
                Node::Array(array) => (at.to_string(), array.get(at)),
                Node::Object(object) => {
                    let (name, node) = object.iter().nth(at).expect("a member");
                    (name.to_string(), Some(node))
                }
                _ => return place,
            };
            place.push_back(token);
            here = below.expect("it has parts");
        }
        place
    }

    /// Replaces the value at an existing place, or creates a place for it.
    fn put(&mut self, tree: &mut Node, node: Node, edit: &Edit, replaced: &mut Revision) {
        let mut at = self.place(tree);
        match tree.get(&at) {
            Some(Node::Array(array)) if self.roll(4) > 0 => {
                match self.roll(3) {
                    0 => at.push_back(self.roll(array.len() + 1)),
                    _ => at.push_back("-"),
                }
                tree.insert(&at, node, edit);
            }
            Some(Node::Object(_)) if self.roll(4) > 0 => {
                at.push_back(self.pick(&["n", "x", "y", "sub", "new", "k0", "k3", "k5", "deps", "flag", "limit"]));
                match tree.get(&at) {
                    Some(_) => tree.replace(&at, node, edit),
                    None => tree.insert(&at, node, edit),
                }
            }
            // The whole document is replaced only rarely, because such a change is easy to judge.
            _ if at.is_root() && self.roll(6) > 0 => {}
            _ => {
                tree.replace(&at, node, edit);
                if at.is_root() {
                    *replaced = edit.revision;
                }
            }
        }
    }

    fn change(&mut self, tree: &mut Node, edit: &Edit, replaced: &mut Revision) {
        let at = self.place(tree);
        match self.roll(6) {
            0 | 1 if !at.is_root() => drop(tree.remove(&at, edit)),
            2 if !at.is_root() => {
                // A moved value keeps its old stamps.
                let node = tree.remove(&at, edit);
                self.put(tree, node, edit, replaced);
            }
            3 if tree.bytes() < 4000 => {
                let node = tree.get(&at).expect("it is there").clone();
                self.put(tree, node, edit, replaced);
            }
            _ => {
                let value = if self.roll(2) == 0 { self.task() } else { self.value(2) };
                self.put(tree, Node::from_value(&value, edit), edit, replaced);
            }
        }
    }
}

/// Coverage counters, so that the test cannot pass for lack of cases.
#[derive(Default, Debug)]
struct Seen {
    candidates: usize,
    broken: usize,
    violations: usize,
    evaluated: usize,
    left_out: usize,
}

/// Returns the violated places of an invariant and their errors. Unlike [`check`], it evaluates everywhere, on values
/// instead of trees.
fn everywhere(one: &Invariant, before: &Value, after: &Value, patch: &Value) -> Vec<(String, Option<Value>)> {
    let mut variables = Variables::from([
        ("request", after.get("request").unwrap_or(&Value::Null).into()),
        ("state", after.into()),
        ("before", before.into()),
        ("patch", patch.into()),
    ]);
    let places = match &one.each {
        Some(pattern) => pattern.instances_of_value(after, usize::MAX),
        None => vec![PointerBuf::root()],
    };
    let mut violated = Vec::new();
    for place in places {
        if let Some(pattern) = &one.each {
            let is_list = |above: &Pointer| after.pointer(above.as_str()).is_some_and(Value::is_array);
            variables.insert("key", key(pattern, &place, is_list).into());
            variables.insert("self", after.pointer(place.as_str()).expect("it was found").into());
        }
        let trouble = match one.expr.evaluate(&variables) {
            Ok(true) => continue,
            Ok(false) => None,
            Err(error) => Some(error.to_string().into()),
        };
        violated.push((place.to_string(), trouble));
    }
    violated.truncate(VIOLATIONS_MAX);
    violated
}

fn history(seed: u64, pool: &[Invariant], seen: &mut Seen) {
    let mut dice = Dice(seed);
    let mut tree = Node::from_value(&dice.document(), &edit(0));
    let mut replaced = 0;
    let mut chosen: Vec<&Invariant> = Vec::new();
    for at in 1..=CANDIDATES {
        // New invariants are added if they hold.
        let initial = tree.to_value();
        for _ in 0..20 {
            let one = &pool[dice.roll(pool.len())];
            let holds = || everywhere(one, &initial, &initial, &json!([])).is_empty();
            if chosen.len() < CHOSEN && holds() {
                assert_eq!(check_whole([one], &tree), [], "seed {seed}, version {at}: {}", one.expr.source());
                chosen.push(one);
            }
        }
        let (mut candidate, mut replaced_by) = (tree.clone(), replaced);
        for _ in 0..=dice.roll(3) {
            dice.change(&mut candidate, &edit(at), &mut replaced_by);
        }
        let patch = dice.list(3, |_| Value::Null);
        let since = ChangesSince::new(&candidate, replaced_by, at - 1);
        let whole = ChangesSince::all_changed(&candidate);
        let (before, after) = (tree.to_value(), candidate.to_value());
        let context = || {
            let source = |one: &&Invariant| format!("for {:?}: {}", one.each, one.expr.source());
            let chosen: Vec<_> = chosen.iter().map(source).collect();
            format!("seed {seed}, version {at}:\n{tree}\n{candidate}\n{}", chosen.join("\n"))
        };
        let mut broken = Vec::new();
        for (index, one) in chosen.iter().enumerate() {
            let found = checked_up_to([*one], &tree, &since, &patch, INSTANCES_MAX);
            let found: Vec<_> = found.into_iter().map(|violation| (violation.pointer, violation.found)).collect();
            assert_eq!(found, everywhere(one, &before, &after, &patch), "{}", context());
            seen.violations += found.len();
            if !found.is_empty() {
                broken.push(index);
            }
            let few = due(one, &since, INSTANCES_MAX).instances.len();
            seen.evaluated += few;
            seen.left_out += due(one, &whole, INSTANCES_MAX).instances.len() - few;
        }
        seen.candidates += 1;
        seen.broken += usize::from(!broken.is_empty());
        // A violating candidate is dropped, or the violated invariants are.
        if broken.is_empty() || dice.roll(3) == 0 {
            (tree, replaced) = (candidate, replaced_by);
            let mut index = 0..;
            chosen.retain(|_| !broken.contains(&index.next().expect("without end")));
        }
    }
}

#[test]
fn leaving_out_what_cannot_have_changed_changes_no_verdict() {
    let mut dice = Dice(0);
    let pool: Vec<Invariant> = (0..INVARIANTS).map(|_| dice.invariant()).collect();
    let mut seen = Seen::default();
    (0..SEEDS).for_each(|seed| history(seed, &pool, &mut seen));
    assert!(seen.candidates >= 10_000 && seen.broken > seen.candidates / 10, "{seen:?}");
    assert!(seen.left_out > seen.evaluated, "{seen:?}");
}
