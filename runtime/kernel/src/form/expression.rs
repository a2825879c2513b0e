//! Regular expressions for places, such as decoders and validators read alike.
//!
//! They are anchored, have plain groups and no classes by name. Names with quotation marks, backslashes or control
//! characters are left out, and so are empty ones: decoders write what an expression matches into a JSON text as it is.

use jsonptr::Pointer;

use super::places::Need;
use crate::pattern::{Pattern, PatternToken, is_index};
use crate::schema::Schema;

/// One token of a pointer.
pub(super) const NAME: &str = r#"([^/~"\\\x00-\x1F]|~[01])+"#;
/// The index of an element.
const INDEX: &str = "(0|[1-9][0-9]*)";
/// The longest expression of a schema that is handed on.
const LENGTH_MAX: usize = 200;

/// What matches one of several expressions, as a whole.
pub(super) fn any_of(expressions: &[String]) -> String {
    match expressions {
        [only] => format!("^{only}$"),
        many => format!("^({})$", many.join("|")),
    }
}

/// The text itself.
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

/// Every place that a pattern may match; if something is needed there, that it can be done at.
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
                    // What an array is given without being inserted is appended.
                    Some(Need::Create) if is_last && is_array => "-",
                    _ if is_array || is_last && inserts => INDEX,
                    _ => NAME,
                });
            }
        }
    }
    expression
}

/// All places below an expression, and those that match it.
pub(super) fn at_or_below(expression: &str) -> String {
    format!("{expression}(/{NAME})*")
}

/// The members of an object, of names that match an expression.
pub(super) fn members(object: &Pointer, name: &str) -> String {
    format!("{}/{name}", literal(object.as_str()))
}

/// A place with every token that is an index standing for all indices.
pub(super) fn shape(place: &Pointer) -> String {
    let mut shape = String::new();
    for token in place.tokens() {
        shape.push('/');
        shape.push_str(&if is_index(token.encoded()) { INDEX.to_owned() } else { literal(token.encoded()) });
    }
    shape
}

/// The expression of a schema without its anchors, if decoders can be trusted with it: anchored at both ends, of plain
/// characters, positive classes, groups and repetitions.
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
            // A second sign makes a repetition lazy or possessive; after a group's beginning it is a special group.
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
