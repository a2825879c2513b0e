//! Regular expressions for places, in a syntax that decoders and validators read alike.
//!
//! The expressions are anchored, and have plain groups and no named classes. They match no names with quotation marks,
//! backslashes or control characters, and no empty names, because decoders copy a match into a JSON text unescaped.

use jsonptr::Pointer;

use super::need::Need;
use crate::pattern::{Pattern, PatternToken, is_index};
use crate::schema::Schema;

/// One token of a pointer.
pub(super) const NAME: &str = r#"([^/~"\\\x00-\x1F]|~[01])+"#;
/// The index of an element.
const INDEX: &str = "(0|[1-9][0-9]*)";
/// Maximum length of a schema's expression that is passed on.
const LENGTH_MAX: usize = 200;

/// Returns an anchored expression that matches any of several expressions.
pub(super) fn any_of(expressions: &[String]) -> String {
    match expressions {
        [only] => format!("^{only}$"),
        many => format!("^({})$", many.join("|")),
    }
}

/// Returns an expression that matches exactly this text.
pub(super) fn literal(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Returns an expression for the places that a pattern may match; with `need`, for those where that operation is
/// possible.
pub(super) fn of_pattern(pattern: &Pattern, schema: &Schema, need: Option<Need>) -> String {
    let inserts = need == Some(Need::Insert);
    let mut expression = String::new();
    for (at, token) in pattern.tokens().iter().enumerate() {
        let is_last = at + 1 == pattern.tokens().len();
        match token {
            PatternToken::Literal(name) => {
                expression.push('/');
                expression.push_str(&literal(jsonptr::Token::new(name.as_str()).encoded()));
            }
            PatternToken::Append => expression.push_str("/-"),
            PatternToken::Deep if is_last && inserts => expression.push_str(&format!("(/{NAME})*/{INDEX}")),
            PatternToken::Deep => expression.push_str(&format!("(/{NAME})*")),
            PatternToken::Bound(name) => expression.push_str(&literal(&format!("/{{{name}}}"))),
            PatternToken::Any => {
                let container = pattern.prefix(at);
                let is_array = !schema.may_be_object(&container) && schema.may_be_array(&container);
                expression.push('/');
                expression.push_str(match need {
                    // A created array element is appended.
                    Some(Need::Create) if is_last && is_array => "-",
                    _ if is_array || is_last && inserts => INDEX,
                    _ => NAME,
                });
            }
        }
    }
    expression
}

/// Returns an expression for the places that match an expression, and those below them.
pub(super) fn at_or_below(expression: &str) -> String {
    format!("{expression}(/{NAME})*")
}

/// Returns an expression for the members of an object with names that match an expression.
pub(super) fn members(object: &Pointer, name: &str) -> String {
    format!("{}/{name}", literal(object.as_str()))
}

/// Returns an expression for a place, with all index tokens generalised to any index.
pub(super) fn shape(place: &Pointer) -> String {
    let mut shape = String::new();
    for token in place.tokens() {
        shape.push('/');
        shape.push_str(&if is_index(token.encoded()) { INDEX.to_owned() } else { literal(token.encoded()) });
    }
    shape
}

/// Returns a schema's expression without its anchors, if it is portable across decoders: anchored at both ends, with
/// plain characters, positive classes, groups and repetitions.
pub(super) fn portable(expression: &str) -> Option<&str> {
    let inner = expression.strip_prefix('^')?.strip_suffix('$')?;
    let (mut depth, mut in_class, mut escaped, mut before) = (0_i32, false, false, ' ');
    for c in inner.chars() {
        let is_plain = match c {
            _ if escaped => r".+*?()|[]{}^$-/".contains(c),
            '\\' => true,
            ']' if in_class => {
                in_class = false;
                true
            }
            '^' | '[' | '"' if in_class => false,
            _ if in_class => true,
            '[' => {
                in_class = true;
                true
            }
            '(' => {
                depth += 1;
                true
            }
            ')' => {
                depth -= 1;
                depth >= 0
            }
            '|' => depth > 0,
            // A second sign makes a repetition lazy or possessive; after an opening parenthesis it starts a special
            // group.
            '?' | '*' | '+' => !"(*+?}".contains(before),
            '.' | '^' | '$' | '"' => false,
            _ => true,
        };
        if !is_plain || c.is_control() {
            return None;
        }
        escaped = c == '\\' && !escaped;
        before = c;
    }
    (depth == 0 && !in_class && !escaped && !inner.is_empty() && expression.len() <= LENGTH_MAX).then_some(inner)
}
