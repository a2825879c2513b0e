//! Rejects wildcards in patches: `*` matches any index or name in a grant, but would be a literal name in a patch.

use jsonptr::{Pointer, PointerBuf, Token};

use crate::bindings::Bindings;
use crate::contract::Readable;
use crate::patch::Op;
use crate::record::SINCE_RANGE_STARTS;
use crate::rejection::{Code, Violation};
use crate::schema::Schema;
use crate::tree::{Node, PathSegment};

/// Maximum number of parts that are examined for a suggestion.
const EXAMINED_MAX: usize = 64;
/// Maximum number of names in a message.
const NAMES_MAX: usize = 8;

/// The document that an operation applies to, and the rights of its author.
pub(super) struct WildcardContext<'a> {
    pub(super) root: &'a Node,
    pub(super) schema: &'a Schema,
    pub(super) readable: &'a Readable<'a>,
    /// Bindings of the author's grants; a token that a name is bound to is literal.
    pub(super) bound: &'a Bindings,
    /// The board's journal format.
    pub(super) format: u32,
}

/// Returns the rejection of an operation in which `*` or `**` matches no member, with the parts that its author may
/// read there.
pub(super) fn reject(op: &Op<'_>, scene: &WildcardContext<'_>) -> Option<Violation> {
    let from = match op {
        Op::Move { from, .. } | Op::Copy { from, .. } => Some((*from, false)),
        _ => None,
    };
    let makes = matches!(op, Op::Add { .. } | Op::Move { .. } | Op::Copy { .. }) && scene.format >= SINCE_RANGE_STARTS;
    from.into_iter().chain([(op.path(), makes)]).find_map(|(path, makes)| {
        let message = of_path(path, makes, scene)?;
        Some(Violation::new(Code::PathNotFound, path.as_str(), message))
    })
}

/// `makes` is true if the last token may be the name of a new member.
fn of_path(path: &Pointer, makes: bool, scene: &WildcardContext<'_>) -> Option<String> {
    let (mut node, mut above) = (scene.root, PointerBuf::new());
    let mut tokens = path.tokens().peekable();
    while let Some(token) = tokens.next() {
        let name = token.decoded();
        let next = node.child(&name);
        let is_wildcard = matches!(name.as_ref(), "*" | "**") && !scene.bound.iter().any(|(_, token)| token == name);
        if is_wildcard && next.is_none() {
            let parts = list_readable(node, &above, scene);
            let is_new = makes && tokens.peek().is_none();
            let is_array = match node {
                Node::Array(_) => true,
                Node::Object(_) => false,
                _ => return None,
            };
            let choice = match is_new && !is_array {
                true => of_new(node, &above, &parts, scene),
                false if scene.format >= SINCE_RANGE_STARTS => format!("name one{parts}"),
                false => format!("write the one that is meant{parts}"),
            };
            let meaning = format!("`{name}` stands for any {}", if is_array { "index" } else { "name" });
            let rest = match is_array {
                true => String::new(),
                false => format!(". A member called `{name}` is written with its object"),
            };
            // The choice comes first because a small view truncates the end.
            return Some(match scene.format >= SINCE_RANGE_STARTS {
                true => format!("{choice}; {meaning}{rest}"),
                false => format!("{meaning}; {choice}{rest}"),
            });
        }
        node = next?;
        above.push_back(name.as_ref());
    }
    None
}

/// Describes the allowed names of a new member: the unused names of the schema, or any.
fn of_new(object: &Node, above: &Pointer, parts: &str, scene: &WildcardContext<'_>) -> String {
    let Some(names) = scene.schema.names_at(above) else {
        let taken =
            if parts.is_empty() { String::new() } else { format!(" (there are{})", parts.trim_start_matches(':')) };
        return format!("name the new member{taken}");
    };
    let is_left = |name: &&String| object.child(name).is_none();
    let left: Vec<String> = names.known.iter().filter(is_left).map(|name| token(name)).collect();
    let matching: Vec<String> =
        names.patterns.iter().map(|pattern| crate::json::shortened(pattern).into_owned()).collect();
    match (left.is_empty(), matching.is_empty()) {
        (false, _) => format!("name one: {}", listed(&left)),
        (true, false) => format!("name one that matches {}", listed(&matching)),
        (true, true) => format!("name one{parts}"),
    }
}

/// Returns a name as a path has it, shortened.
fn token(name: &str) -> String {
    crate::json::shortened(Token::new(name).encoded()).into_owned()
}

/// Lists names, as many as fit into a message.
fn listed(names: &[String]) -> String {
    let more = if names.len() > NAMES_MAX { " and more" } else { "" };
    format!("{}{more}", names[..names.len().min(NAMES_MAX)].join(", "))
}

/// Lists the parts that may be read.
fn list_readable(container: &Node, above: &Pointer, scene: &WildcardContext<'_>) -> String {
    let may_see = |step: &PathSegment<'_>| scene.readable.may_ask_for(&step.below(above));
    let seen = container.first_parts().take(EXAMINED_MAX).map(|(step, _)| step).filter(may_see);
    let seen: Vec<PathSegment<'_>> = seen.collect();
    match (&seen[..], container) {
        ([], _) => String::new(),
        ([PathSegment::Index(0), ..], Node::Array(elements)) if seen.len() == elements.len().min(EXAMINED_MAX) => {
            match elements.len() {
                1 => ": 0".to_owned(),
                many => format!(": 0 to {}", many - 1),
            }
        }
        (seen, _) => {
            let name = |step: &PathSegment<'_>| match step {
                PathSegment::Index(index) => index.to_string(),
                PathSegment::Key(key) if scene.format >= SINCE_RANGE_STARTS => token(key.as_str()),
                PathSegment::Key(key) => crate::json::shortened(key.as_str()).into_owned(),
            };
            let names: Vec<String> = seen.iter().map(name).collect();
            format!(": {}", listed(&names))
        }
    }
}
