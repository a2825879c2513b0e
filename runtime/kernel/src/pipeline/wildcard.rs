//! Refuses a wildcard in a patch: in a grant `*` stands for any index or name, in a patch it would be a name.

use jsonptr::{Pointer, PointerBuf};

use crate::bindings::Bindings;
use crate::contract::Readable;
use crate::patch::Op;
use crate::rejection::{Code, Violation};
use crate::tree::{Node, Step};

/// Maximum number of parts that are looked at for what may be written instead.
const LOOKED_AT_MAX: usize = 64;
/// Maximum number of names in a message.
const NAMES_MAX: usize = 8;

/// Returns the refusal of an operation that names no part by `*` or `**`, with the parts that its author may read there. A
/// token that a name is bound to is meant as it is.
pub(super) fn refuse(op: &Op<'_>, root: &Node, readable: &Readable<'_>, bound: &Bindings) -> Option<Violation> {
    let from = match op {
        Op::Move { from, .. } | Op::Copy { from, .. } => Some(*from),
        _ => None,
    };
    from.into_iter().chain([op.path()]).find_map(|path| {
        let message = of_path(path, root, readable, bound)?;
        Some(Violation::new(Code::PathNotFound, path.as_str(), message))
    })
}

fn of_path(path: &Pointer, root: &Node, readable: &Readable<'_>, bound: &Bindings) -> Option<String> {
    let (mut node, mut above) = (root, PointerBuf::new());
    for token in path.tokens() {
        let name = token.decoded();
        let next = node.child(&name);
        let is_wildcard = matches!(name.as_ref(), "*" | "**") && !bound.iter().any(|(_, token)| token == name);
        if is_wildcard && next.is_none() {
            let parts = told(node, &above, readable);
            return match node {
                Node::Array(_) => Some(format!("`{name}` stands for any index; write the one that is meant{parts}")),
                Node::Object(_) => Some(format!(
                    "`{name}` stands for any name; write the one that is meant{parts}. A member called `{name}` is written with \
                     its object"
                )),
                _ => None,
            };
        }
        node = next?;
        above.push_back(name.as_ref());
    }
    None
}

/// Says which parts there are, of those that may be read.
fn told(container: &Node, above: &Pointer, readable: &Readable<'_>) -> String {
    let may_see = |step: &Step<'_>| {
        let mut place = above.to_buf();
        match step {
            Step::Index(index) => place.push_back(*index),
            Step::Key(key) => place.push_back(key.as_str()),
        }
        readable.may_ask_for(&place)
    };
    let seen = container.first_parts().take(LOOKED_AT_MAX).map(|(step, _)| step).filter(may_see);
    let seen: Vec<Step<'_>> = seen.collect();
    match (&seen[..], container) {
        ([], _) => String::new(),
        ([Step::Index(0), ..], Node::Array(elements)) if seen.len() == elements.len().min(LOOKED_AT_MAX) => {
            match elements.len() {
                1 => ": 0".to_owned(),
                many => format!(": 0 to {}", many - 1),
            }
        }
        (seen, _) => {
            let name = |step: &Step<'_>| match step {
                Step::Index(index) => index.to_string(),
                Step::Key(key) => crate::json::shortened(key.as_str()).into_owned(),
            };
            let names: Vec<String> = seen.iter().take(NAMES_MAX).map(name).collect();
            let more = if seen.len() > NAMES_MAX { " and more" } else { "" };
            format!(": {}{more}", names.join(", "))
        }
    }
}
