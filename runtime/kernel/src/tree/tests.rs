//! Properties of trees: a tree equals its value after any operation, and every change is found by its stamps.

mod stored;

use std::sync::Arc;

use jsonptr::{Pointer, PointerBuf};
use serde_json::{Value, json};

use super::*;
use crate::digest::{Hasher, Salt};

/// Small seeded random number generator, identical on all platforms.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % sides
    }

    fn scalar(&mut self) -> Value {
        match self.roll(7) {
            0 => Value::Null,
            1 => json!(self.roll(2) == 0),
            2 => json!(self.roll(3)),
            3 => json!(-1.5 * f64::from(u32::try_from(self.roll(9)).expect("small"))).pipe(normal),
            4 => json!("x".repeat(self.roll(4) * 100)),
            5 => json!(format!("\"\\\n{}", self.roll(5))),
            _ => json!(i64::MIN),
        }
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.roll(if depth == 0 { 1 } else { 4 }) {
            2 => {
                let len = self.size();
                (0..len).map(|_| self.value(depth - 1)).collect()
            }
            3 => {
                let len = self.size();
                (0..len)
                    .map(|_| (format!("k{}", self.roll(90)), self.value(depth - 1)))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }
            _ => self.scalar(),
        }
    }

    /// Mostly small, sometimes beyond the limits of buckets and levels.
    fn size(&mut self) -> usize {
        let most = [3, 3, 5, 20, 45][self.roll(5)];
        self.roll(most)
    }
}

trait Pipe: Sized {
    fn pipe<T>(self, f: impl FnOnce(Self) -> T) -> T {
        f(self)
    }
}
impl Pipe for Value {}

fn normal(mut value: Value) -> Value {
    crate::json::normalise(&mut value);
    value
}

fn edit(at: Revision) -> Edit {
    Edit { revision: at, hasher: Arc::new(Hasher::new(&Salt([7; 32]))) }
}

/// Returns a random container of the value, or the value itself.
fn container(dice: &mut Dice, value: &Value) -> PointerBuf {
    let mut place = PointerBuf::new();
    let mut here = value;
    loop {
        let deeper: Vec<String> = match here {
            Value::Array(items) => (0..items.len())
                .filter(|i| items[*i].is_array() || items[*i].is_object())
                .map(|i| i.to_string())
                .collect(),
            Value::Object(members) => {
                members.iter().filter(|(_, v)| v.is_array() || v.is_object()).map(|(k, _)| k.clone()).collect()
            }
            _ => return place,
        };
        if deeper.is_empty() || dice.roll(3) == 0 {
            return place;
        }
        let token = &deeper[dice.roll(deeper.len())];
        here = match here {
            Value::Array(items) => &items[token.parse::<usize>().expect("an index")],
            other => &other[token.as_str()],
        };
        place.push_back(token.as_str());
    }
}

/// Makes one random change to both.
fn change(dice: &mut Dice, tree: &mut Node, value: &mut Value, edit: &Edit) {
    let place = container(dice, value);
    let put = dice.value(2);
    let node = Node::from_value(&put, edit);
    let at = |token: &str| place.with_trailing_token(token);
    match value.pointer_mut(place.as_str()).expect("it was found") {
        Value::Array(items) => match dice.roll(5) {
            0 if !items.is_empty() => {
                let index = dice.roll(items.len());
                items.remove(index);
                tree.remove(&at(&index.to_string()), edit);
            }
            1 if !items.is_empty() => {
                let index = dice.roll(items.len());
                items[index] = put;
                tree.replace(&at(&index.to_string()), node, edit);
            }
            2 => {
                let index = dice.roll(items.len() + 1);
                items.insert(index, put);
                tree.insert(&at(&index.to_string()), node, edit);
            }
            _ => {
                items.push(put);
                tree.insert(&at("-"), node, edit);
            }
        },
        Value::Object(members) => {
            let key = format!("k{}", dice.roll(90));
            match (members.contains_key(&key), dice.roll(3)) {
                (true, 0) => {
                    members.remove(&key);
                    tree.remove(&at(&key), edit);
                }
                (true, _) => {
                    members.insert(key.clone(), put);
                    tree.replace(&at(&key), node, edit);
                }
                (false, _) => {
                    members.insert(key.clone(), put);
                    tree.insert(&at(&key), node, edit);
                }
            }
        }
        scalar => {
            *scalar = put;
            *tree = node;
        }
    }
}

fn check(tree: &Node, value: &Value, edit: &Edit) {
    assert_eq!(tree.to_value(), *value);
    assert_eq!(*tree, *value);
    assert_eq!(tree.to_string(), value.to_string());
    assert_eq!(tree.bytes(), crate::json::size(value));
    assert_eq!(usize::from(tree.depth()), crate::json::depth(value));
    assert_eq!(edit.hasher.tree(tree), edit.hasher.document(value));
    parts(tree, value);
}

/// Checks that every part is found at its place, and that iteration yields them in order.
fn parts(tree: &Node, value: &Value) {
    match value {
        Value::Array(items) => {
            let array = tree.as_array().expect("an array");
            assert_eq!(array.iter().len(), items.len());
            for (index, item) in items.iter().enumerate() {
                assert_eq!(*array.get(index).expect("an element"), *item);
            }
            assert!(array.get(items.len()).is_none());
        }
        Value::Object(members) => {
            let object = tree.as_object().expect("an object");
            assert!(object.iter().map(|(key, _)| key.as_str()).eq(members.keys()));
            for (key, member) in members {
                parts(object.get(key).expect("a member"), member);
            }
            assert!(object.get("no such").is_none());
            for from in members.keys().map(String::as_str).chain(["", "m", "~"]) {
                let rest = members.keys().filter(|key| key.as_str() >= from);
                assert!(
                    object.iter_from(from).map(|(key, _)| key.as_str()).eq(rest.map(String::as_str)),
                    "from {from:?}"
                );
            }
        }
        _ => assert_eq!(*tree, *value),
    }
}

/// Parses a number that `cargo xtask differential` sets at compile time: the kernel reads no environment variables.
fn setting(number: Option<&str>, otherwise: u64) -> u64 {
    number.map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn a_tree_is_the_value_whatever_is_done_to_it() {
    const EDITS: Revision = 40;
    let (cases, first) =
        (setting(option_env!("DIFFERENTIAL_CASES"), 20_000), setting(option_env!("DIFFERENTIAL_SEED"), 1));
    let mut again = 0;
    for seed in (first..).take(usize::try_from(cases.div_ceil(u64::from(EDITS))).expect("it fits")) {
        let mut dice = Dice(seed);
        let mut value = dice.value(3);
        let mut tree = Node::from_value(&value, &edit(0));
        let mut kept = Vec::new();
        for at in 1..=EDITS {
            if dice.roll(8) == 0 {
                kept.push((tree.clone(), value.clone()));
            }
            change(&mut dice, &mut tree, &mut value, &edit(at));
            if dice.roll(8) == 0 {
                // Digests computed before the next change must not outlive it.
                check(&tree, &value, &edit(at));
            }
        }
        assert_eq!(tree, Node::from_value(&value, &edit(0)), "seed {seed}");
        kept.push((tree, value));
        let hasher = edit(0).hasher;
        for (index, (tree, value)) in kept.iter().enumerate() {
            check(tree, value, &edit(0));
            for (earlier, other) in &kept[..index] {
                let is_same = hasher.tree(tree) == hasher.tree(earlier);
                assert_eq!(is_same, value == other, "seed {seed}: {value} {other}");
                again += usize::from(is_same);
            }
        }
    }
    assert!(again > 0 || cases < 50_000, "no document came to be again by other edits");
}

/// Collects the highest places that differ.
fn differences(before: &Value, after: &Value, place: &PointerBuf, found: &mut Vec<String>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Array(a), Value::Array(b)) if a.len() <= b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(a, b, &place.with_trailing_token(index), found);
            }
            found.extend((a.len()..b.len()).map(|index| place.with_trailing_token(index).to_string()));
        }
        (Value::Object(a), Value::Object(b)) if a.keys().all(|key| b.contains_key(key)) => {
            for (key, b) in b {
                let place = place.with_trailing_token(key.as_str());
                match a.get(key) {
                    Some(a) => differences(a, b, &place, found),
                    None => found.push(place.to_string()),
                }
            }
        }
        _ => found.push(place.to_string()),
    }
}

/// Returns true if following the touched parts leads to the change at `place` since `at`.
fn leads_to(tree: &Node, place: &Pointer, at: Revision) -> bool {
    let Some((token, rest)) = place.split_front() else { return true };
    let token = token.decoded();
    let found = match tree {
        Node::Array(array) => {
            let touched = array.changed_since(at).into_iter();
            touched.map(|(index, node, stamp)| (index.to_string(), node, stamp)).find(|(name, ..)| *name == token)
        }
        Node::Object(object) => {
            let touched = object.changed_since(at).into_iter();
            touched.map(|(key, node, stamp)| (key.to_string(), node, stamp)).find(|(name, ..)| *name == token)
        }
        _ => None,
    };
    found.is_some_and(|(_, node, stamp)| stamp.changed > at || leads_to(node, rest, at))
}

#[test]
fn every_change_is_found_by_what_is_touched() {
    let mut found = 0;
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let mut value = dice.value(3);
        let mut tree = Node::from_value(&value, &edit(0));
        let (mut before, mut read) = (value.clone(), 0);
        for at in 1..30 {
            change(&mut dice, &mut tree, &mut value, &edit(at));
            let mut places = Vec::new();
            differences(&before, &value, &PointerBuf::new(), &mut places);
            for place in places.iter().filter(|place| !place.is_empty()) {
                let place = Pointer::parse(place).expect("a pointer");
                let shifted = place.parent().and_then(|parent| tree.get(parent)).is_some_and(|parent| match parent {
                    Node::Array(array) => (0..array.len()).any(|index| array.shifted_since(index, read).is_some()),
                    _ => false,
                });
                // Shifted elements keep their stamps: the array records the first shifted index.
                let above = std::iter::successors(place.parent(), |place| place.parent());
                let lost = above.filter_map(|place| tree.get(place)).any(|node| match node {
                    Node::Array(array) => array.shifted_since(usize::MAX, read).is_some(),
                    _ => false,
                });
                assert!(leads_to(&tree, place, read) || shifted || lost, "seed {seed}, version {at}: {place}");
                found += 1;
            }
            if dice.roll(5) == 0 {
                (before, read) = (value.clone(), at);
            }
        }
    }
    assert!(found > 10_000, "{found}");
}

#[test]
fn removals_count_only_for_elements_present_at_the_read() {
    let mut tree = Node::from_value(&json!({"a": [0, 1, 2]}), &edit(0));
    let place = |text: &str| PointerBuf::parse(text).expect("a pointer");
    tree.insert(&place("/a/-"), Node::Null, &edit(1));
    tree.insert(&place("/a/-"), Node::Null, &edit(2));
    tree.remove(&place("/a/4"), &edit(3));
    let array = tree.get(&place("/a")).and_then(Node::as_array).expect("an array");
    assert_eq!((array.removed_since(0), array.removed_since(1), array.removed_since(2)), (None, None, Some(3)));
    assert_eq!((array.shifted_since(3, 2), array.shifted_since(4, 2)), (None, Some(3)));
    assert_eq!((array.slot(3).map(|slot| slot.1), array.members_changed()), (Some(Stamp::new(1)), 3));
    tree.remove(&place("/a/0"), &edit(4));
    let array = tree.get(&place("/a")).and_then(Node::as_array).expect("an array");
    assert_eq!((array.removed_since(0), array.removed_since(3), array.removed_since(4)), (Some(4), Some(4), None));
}

#[test]
fn nodes_are_small() {
    assert_eq!(size_of::<Node>(), 24);
    assert_eq!((size_of::<Array>(), size_of::<Object>()), (16, 16));
    assert_eq!((size_of::<array::chunk::Chunk>(), size_of::<object::trie::Trie>()), (96, 96));
    assert_eq!((size_of::<Long>(), size_of::<stamp::Stamps>()), (72, 16));
}

/// Compares the lazy order of every container with a full sort of its parts; returns the number of containers.
fn latest(node: &Node, floor: Revision) -> usize {
    let parts: Vec<(PathSegment<'_>, &Node, Stamp)> = match node {
        Node::Array(array) => (0..array.len())
            .map(|index| (index, array.slot(index).expect("an element")))
            .map(|(index, (node, stamp))| (PathSegment::Index(index), node, stamp.under(floor)))
            .collect(),
        Node::Object(object) => object
            .iter()
            .map(|(key, _)| (key, object.slot(key).expect("a member")))
            .map(|(key, (node, stamp))| (PathSegment::Key(key), node, stamp.under(floor)))
            .collect(),
        _ => return 0,
    };
    let changed = |(_, node, stamp): &(PathSegment<'_>, &Node, Stamp)| stamp.changed.max(node.modified_at());
    for ties in [TieOrder::First, TieOrder::Last] {
        let mut sorted = parts.clone();
        if ties == TieOrder::Last {
            sorted.reverse();
        }
        sorted.sort_by_key(|part| std::cmp::Reverse(changed(part)));
        let plain = |(step, node, stamp): &(PathSegment<'_>, &Node, Stamp)| format!("{step:?} {node} {stamp:?}");
        let lazy: Vec<String> = node.latest(floor, ties).map(|part| plain(&part)).collect();
        assert_eq!(lazy, sorted.iter().map(plain).collect::<Vec<_>>());
    }
    1 + parts.iter().map(|(_, node, stamp)| latest(node, stamp.changed)).sum::<usize>()
}

#[test]
fn latest_changes_agree_with_sorting() {
    let mut containers = 0;
    for seed in 0..50 {
        let mut dice = Dice(seed);
        let mut value = dice.value(3);
        let mut tree = Node::from_value(&value, &edit(0));
        for at in 1..40 {
            change(&mut dice, &mut tree, &mut value, &edit(at));
            let floor = u32::try_from(dice.roll(3)).expect("small") * at / 2;
            if dice.roll(4) == 0 {
                containers += latest(&tree, floor);
            }
        }
    }
    assert!(containers > 3000, "{containers}");
}

#[test]
fn latest_changes_are_found_without_a_full_scan() {
    let mut value = json!({"list": vec![json!({"n": 0}); 5000], "names": {}});
    value["names"] = (0..5000).map(|n| (format!("n{n:04}"), json!([n]))).collect::<serde_json::Map<_, _>>().into();
    let mut tree = Node::from_value(&value, &edit(0));
    let place = |text: &str| PointerBuf::parse(text).expect("a pointer");
    tree.replace(&place("/list/1234/n"), Node::Null, &edit(1));
    tree.replace(&place("/names/n0777/0"), Node::Null, &edit(2));
    // Removed parts must not lead the search to their old places.
    for n in 1000..4000 {
        tree.remove(&place(&format!("/names/n{n}")), &edit(n));
    }
    let (list, names) = (&tree["list"], &tree["names"]);
    for (container, first, second) in [(list, "1234", "4999"), (names, "n0777", "n4999")] {
        let mut latest = container.latest(0, TieOrder::Last);
        let mut name = || match latest.next().expect("there are thousands").0 {
            PathSegment::Index(index) => index.to_string(),
            PathSegment::Key(key) => key.to_string(),
        };
        assert_eq!((name().as_str(), name().as_str()), (first, second));
        // Visited nodes stay on the heap: the children of a node for each level of two descents.
        assert!(latest.looked_at() < 2 * 4 * 32, "{} candidates", latest.looked_at());
    }
}
