//! What a view's places point at: readable places of which there is nothing yet, and places that what woke the worker
//! names by their pointers.

use jsonptr::{Pointer, PointerBuf};

use super::text;
use crate::pattern::{Pattern, PatternToken};
use crate::tree::Node;

/// Characters of a line, line feed included.
pub(super) const LINE_MAX: usize = 160;
/// How many places are followed that one value names.
const LINKS_MAX: usize = 8;
/// How many values are looked at for such.
const LOOKED_AT_MAX: usize = 256;

/// A line about the read patterns of which there is nothing yet: what they name, or what holds what they match, is not
/// there or empty. None if there is something of all.
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

/// The readable places that texts in the value at a place name by JSON Pointers, in the order of the document.
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

/// Whether one of the places lies in the other.
fn related(one: &Pointer, other: &Pointer) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// A line about those of the links that are not in what is shown wholly; empty if there is none.
pub(super) fn unresolved(links: &[PointerBuf], reads: &[String]) -> String {
    let is_shown = |link: &PointerBuf| {
        reads.iter().any(|read| Pointer::parse(read.as_str()).is_ok_and(|read| link.starts_with(read)))
    };
    let open: Vec<String> = links.iter().filter(|link| !is_shown(link)).map(|link| text::name(link.as_str())).collect();
    line("Named by what woke you, not shown: ", &open).unwrap_or_default()
}

/// As many of the names as fit on a line; none if there is none.
fn line(heading: &str, names: &[String]) -> Option<String> {
    /// Room for the count of the rest.
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
