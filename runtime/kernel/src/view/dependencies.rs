//! Dependencies of a view: readable places without content yet, and places that the triggering value names by pointers.

use jsonptr::{Pointer, PointerBuf};

use super::text;
use crate::pattern::{Pattern, PatternToken};
use crate::tree::Node;

/// Maximum characters of a line, including the line feed.
pub(super) const LINE_MAX: usize = 160;
/// Maximum places followed that one value names.
const LINKS_MAX: usize = 8;
/// Maximum values searched for them.
const LOOKED_AT_MAX: usize = 256;

/// Returns a line about the read patterns without content: the named place or its container is absent or empty. `None`
/// if all have content.
pub(super) fn missing(state: &Node, reads: &[Pattern]) -> Option<String> {
    let is_missing = |pattern: &&Pattern| {
        let mut node = state;
        for token in pattern.tokens() {
            match token {
                PatternToken::Literal(name) => match node.child(name) {
                    Some(child) => node = child,
                    None => return true,
                },
                _ => return node.part_count() == 0,
            }
        }
        false
    };
    let missing: Vec<String> =
        reads.iter().filter(is_missing).map(|pattern| text::name(&pattern.to_string())).collect();
    line("Nothing yet at: ", &missing)
}

/// Returns the readable places that texts in a value name by JSON Pointers, in document order.
pub(super) fn links(state: &Node, reads: &[Pattern], place: &str) -> Vec<PointerBuf> {
    let mut links: Vec<PointerBuf> = Vec::new();
    let Some(place) = PointerBuf::parse(place).ok() else { return links };
    let mut pending: Vec<&Node> = state.get(&place).into_iter().collect();
    let mut looked_at = 0;
    while let Some(node) = pending.pop() {
        looked_at += 1;
        if looked_at > LOOKED_AT_MAX || links.len() >= LINKS_MAX {
            break;
        }
        let link = node.as_str().filter(|text| text.starts_with('/')).and_then(|text| PointerBuf::parse(text).ok());
        let is_new = |link: &PointerBuf| {
            reads.iter().any(|read| read.covers(link))
                && state.get(link).is_some()
                && !related(link, &place)
                && !links.contains(link)
        };
        links.extend(link.filter(is_new));
        let from = pending.len();
        pending.extend(node.first_parts().map(|(_, part)| part).take(LOOKED_AT_MAX));
        pending[from..].reverse();
    }
    links
}

/// Returns true if one of the places contains the other.
fn related(one: &Pointer, other: &Pointer) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Returns a line about the links outside the completely shown values; empty if there is none.
pub(super) fn unresolved(links: &[PointerBuf], reads: &[String]) -> String {
    let is_shown = |link: &PointerBuf| {
        reads.iter().any(|read| Pointer::parse(read.as_str()).is_ok_and(|read| link.starts_with(read)))
    };
    let open: Vec<String> = links.iter().filter(|link| !is_shown(link)).map(|link| text::name(link.as_str())).collect();
    line("Named by what woke you, not shown: ", &open).unwrap_or_default()
}

/// Returns a line with as many of the names as fit; `None` without names.
fn line(heading: &str, names: &[String]) -> Option<String> {
    /// Maximum characters for the count of the rest.
    const MORE_MAX: usize = 20;
    let mut out = heading.to_owned();
    for (index, name) in names.iter().enumerate() {
        let separator = if index > 0 { ", " } else { "" };
        if text::chars(&out) + separator.len() + text::chars(name) + MORE_MAX > LINE_MAX {
            out.push_str(&format!("{separator}{} more", names.len() - index));
            break;
        }
        out.push_str(separator);
        out.push_str(name);
    }
    (!names.is_empty()).then(|| out + "\n")
}
