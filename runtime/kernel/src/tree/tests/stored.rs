//! Storage of trees: reading back yields the same tree with its stamps, and no part is stored twice.

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::*;
use crate::digest::Digest;
use crate::snapshot::{PART_BYTES_MIN, SnapshotError, SnapshotPart};

/// Stored parts by hash.
type Parts = BTreeMap<Digest, SnapshotPart>;

/// Stores a tree; `all` rewrites every part without confirming the marks. Returns the root part and the number of
/// bytes written.
fn stored(tree: &Node, all: bool, parts: &mut Parts) -> (SnapshotPart, usize) {
    let mut bytes = 0;
    let mut sink = |part: SnapshotPart| {
        assert!(part.names.iter().all(|name| parts.contains_key(name)), "a part names what was not handed out");
        assert_eq!(crate::snapshot::part_refs(&part.text).as_ref(), Some(&part.names));
        bytes += part.text.len();
        parts.insert(part.hash, part);
        Ok::<_, Infallible>(())
    };
    let mut writer = Writer::new(all, &mut sink);
    let Ok(_) = writer.value(tree);
    let (root, marks) = writer.finish();
    if !all {
        marks.into_iter().for_each(Mark::confirm);
    }
    (root, bytes)
}

fn restored(root: &str, latest: Revision, parts: &Parts) -> Result<Node, SnapshotError> {
    let mut fetch = |hash| Ok(parts.get(&hash).map(|part| part.text.to_string()));
    let value = serde_json::from_str(root).expect("what was stored is JSON");
    Reader::new(&mut fetch, &edit(0).hasher, latest).value(value)
}

#[test]
fn a_restored_tree_is_the_tree_with_all_its_stamps_and_goes_on_as_it_would() {
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let mut value = json!({"list": dice.value(3), "map": dice.value(3), "many": {}, "text": "x".repeat(3000)});
        for number in 0..dice.roll(900) {
            value["many"][format!("key {number}")] = json!({"number": number, "text": "y".repeat(dice.roll(60))});
        }
        let mut tree = Node::from_value(&value, &edit(0));
        let mut copy = tree.clone();
        let mut parts = Parts::new();
        for at in 1..30 {
            for _ in 0..dice.roll(4) {
                let before = dice.0;
                change(&mut dice, &mut tree, &mut value, &edit(at));
                let (mut again, mut shadow) = (Dice(before), copy.to_value());
                change(&mut again, &mut copy, &mut shadow, &edit(at));
            }
            if dice.roll(3) == 0 {
                let (root, _) = stored(&tree, false, &mut parts);
                copy = restored(&root.text, at, &parts).unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
            }
            let (mine, theirs) = (stored(&tree, true, &mut Parts::new()).0, stored(&copy, true, &mut Parts::new()).0);
            assert_eq!(mine, theirs, "SEED={seed}: after version {at}");
            assert_eq!(edit(0).hasher.tree(&tree), edit(0).hasher.tree(&copy), "SEED={seed}: after version {at}");
            assert_eq!(copy.bytes(), tree.bytes(), "SEED={seed}: after version {at}");
            assert_eq!(copy.depth(), tree.depth(), "SEED={seed}: after version {at}");
        }
    }
}

#[test]
fn stored_parts_are_reused() {
    let items: Vec<_> = (0..4000).map(|number| json!({"id": number, "text": "z".repeat(200)})).collect();
    let mut tree = Node::from_value(&json!({"items": items}), &edit(0));
    let mut parts = Parts::new();
    let (_, first) = stored(&tree, false, &mut parts);
    assert!(first > 800_000, "{first}");
    assert!(parts.values().all(|part| part.text.len() < 32 * PART_BYTES_MIN), "no part is large");
    assert_eq!(stored(&tree, false, &mut parts).1, 0, "nothing changed");
    let place = PointerBuf::parse("/items/777/text").expect("a pointer");
    tree.replace(&place, Node::text("changed"), &edit(1));
    let (root, second) = stored(&tree, false, &mut parts);
    assert!(second < 10_000, "one change: {second} bytes");
    assert_eq!(restored(&root.text, 1, &parts).expect("it is stored"), tree);
    // Two trees share their common parts after restoring, too.
    let mut other = tree.clone();
    other.replace(&place, Node::text("otherwise"), &edit(2));
    let (other, _) = stored(&other, false, &mut parts);
    let mut fetched = 0;
    let mut fetch = |hash| {
        fetched += 1;
        Ok(parts.get(&hash).map(|part| part.text.to_string()))
    };
    let hasher = edit(0).hasher;
    let mut reader = Reader::new(&mut fetch, &hasher, 2);
    for root in [root, other] {
        reader.value(serde_json::from_str(&root.text).expect("JSON")).expect("it is stored");
    }
    assert!(fetched < parts.len(), "{fetched} fetched of {}", parts.len());
}

#[test]
fn a_document_as_deep_as_documents_get_is_stored_and_restored() {
    let mut value = json!("deep");
    for level in 0..crate::json::DEPTH_MAX {
        value = if level % 2 == 0 { json!([value]) } else { json!({"a": value}) };
    }
    let tree = Node::from(&value);
    let mut parts = Parts::new();
    let (root, _) = stored(&tree, false, &mut parts);
    assert_eq!(restored(&root.text, 0, &parts).expect("it is stored"), tree);
}

#[test]
fn an_altered_or_lost_part_is_rejected_by_name() {
    let items: Vec<_> = (0..600).map(|number| json!({"id": number, "text": "z".repeat(100)})).collect();
    let tree = Node::from_value(&json!({"items": items, "long": "w".repeat(5000)}), &edit(0));
    let mut parts = Parts::new();
    let (root, _) = stored(&tree, false, &mut parts);
    assert!(parts.len() > 40);
    for hash in parts.keys().copied().collect::<Vec<_>>() {
        let part = parts.remove(&hash).expect("it is stored");
        assert_eq!(restored(&root.text, 0, &parts), Err(SnapshotError::Missing(hash)));
        let text = part.text.replacen('z', "Z", 1).replacen("w", "W", 1) + " ";
        parts.insert(hash, SnapshotPart { text: text.into(), ..part.clone() });
        assert_eq!(restored(&root.text, 0, &parts), Err(SnapshotError::Altered(hash)));
        parts.insert(hash, part);
    }
    assert_eq!(restored(&root.text, 0, &parts), Ok(tree));
}

#[test]
fn no_text_makes_reading_a_snapshot_panic() {
    for seed in 0..3000 {
        let mut dice = Dice(seed);
        let value = dice.value(3);
        let mut tree = Node::from_value(&value, &edit(0));
        let mut shadow = value;
        for at in 1..4 {
            change(&mut dice, &mut tree, &mut shadow, &edit(at));
        }
        let (root, _) = stored(&tree, false, &mut Parts::new());
        let mut form: Value = serde_json::from_str(&root.text).expect("what was stored is JSON");
        for _ in 0..=dice.roll(3) {
            spoil(&mut dice, &mut form);
        }
        if let Ok(node) = restored(&form.to_string(), 3, &Parts::new()) {
            // An accepted form is a tree like any other.
            edit(0).hasher.tree(&node);
            drop(node.to_value());
        }
    }
}

/// Makes a random change of a stored form.
fn spoil(dice: &mut Dice, form: &mut Value) {
    let mut here = form;
    while let Value::Array(items) = here {
        if items.is_empty() || dice.roll(6) == 0 {
            match dice.roll(3) {
                0 => items.push(json!(dice.roll(9))),
                1 => drop(items.pop()),
                _ => items.reverse(),
            }
            return;
        }
        let next = dice.roll(items.len());
        here = &mut items[next];
    }
    *here = match dice.roll(6) {
        0 => json!(["l", "i", "b", "s", "a", "o", "t"][dice.roll(7)]),
        1 => json!("0".repeat(64)),
        2 => json!(u64::MAX),
        3 => json!([]),
        4 => json!({}),
        _ => json!(dice.roll(4)),
    };
}
