//! Finds the parts that a stored value names, without building it; [`crate::snapshot`] defines the format.
//!
//! A malformed value names no parts here; the reader reports the error. Recursion is as deep as the nesting of one
//! part, which the JSON parser bounds.

use serde_json::Value;

use crate::digest::Digest;
use crate::snapshot::LAYOUT;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartKind {
    Text,
    /// A node of an array.
    Chunk,
    /// A node of an object.
    Trie,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PartRef {
    pub(crate) kind: PartKind,
    pub(crate) hash: Digest,
}

/// Collects the parts that a value names, in written order.
pub(crate) fn collect_from_value(value: &Value, names: &mut Vec<PartRef>) {
    let Value::Array(fields) = value else { return };
    match (fields.first().and_then(Value::as_str), fields.as_slice()) {
        (Some("t"), [_, Value::String(hash)]) => name(PartKind::Text, hash, names),
        (Some("a"), [_, _, _, node]) => collect_from_node(PartKind::Chunk, node, names),
        (Some("o"), [_, _, _, node]) => collect_from_node(PartKind::Trie, node, names),
        _ => {}
    }
}

/// Returns the parts that a stored text names, in written order, for a manifest or a part; `None` if it is neither.
pub(crate) fn refs_in_text(text: &str) -> Option<Vec<Digest>> {
    let mut names = Vec::new();
    match serde_json::from_str(text).ok()? {
        Value::Object(manifest) => {
            if manifest.get("layout")?.as_u64() != Some(u64::from(LAYOUT)) {
                return None;
            }
            for tree in manifest.get("trees")?.as_array()? {
                collect_from_value(tree.get(2)?, &mut names);
            }
            collect_from_value(manifest.get("rest")?, &mut names);
        }
        Value::String(_) => {}
        node => {
            let kind = match node.get(0)?.as_str()? {
                "l" | "i" => PartKind::Chunk,
                "b" | "s" => PartKind::Trie,
                _ => return None,
            };
            collect_from_part(kind, &node, &mut names);
        }
    }
    Some(names.into_iter().map(|name| name.hash).collect())
}

pub(crate) fn collect_from_part(kind: PartKind, form: &Value, names: &mut Vec<PartRef>) {
    if form.is_array() {
        collect_from_node(kind, form, names);
    }
}

fn collect_from_node(kind: PartKind, node: &Value, names: &mut Vec<PartRef>) {
    let fields = match node {
        Value::String(hash) => return name(kind, hash, names),
        Value::Array(fields) => fields,
        _ => return,
    };
    let Some(Value::Array(below)) = fields.last() else { return };
    match fields.first().and_then(Value::as_str) {
        Some("l") => below.iter().for_each(|value| collect_from_value(value, names)),
        Some("b") => below.iter().skip(1).step_by(2).for_each(|value| collect_from_value(value, names)),
        Some("i" | "s") => below.iter().for_each(|node| collect_from_node(kind, node, names)),
        _ => {}
    }
}

fn name(kind: PartKind, hash: &str, names: &mut Vec<PartRef>) {
    names.extend(hash.parse().ok().map(|hash| PartRef { kind, hash }));
}
