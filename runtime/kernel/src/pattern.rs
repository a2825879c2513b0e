//! Path patterns: JSON Pointers with `*`, `**`, `-` and, in a path template, `{name}`.
//!
//! Implements matching by tokens, never by string prefix, and the intersection of patterns. Knows neither schemas
//! ([`crate::schema`]) nor grants ([`crate::contract`]).
//!
//! A template is bound before it is used: `Pattern::bind` replaces names by literal tokens. An unbound name matches no
//! place. The intersection of patterns assumes that a name may be bound to any token.
//!
//! A whole token `*`, `**` or `-` always has its special meaning, so no pattern can name a member called `*` alone. In
//! a longer token (`a*`) the asterisk is an ordinary character. The escapes are those of RFC 6901, `~0` for `~` and
//! `~1` for `/`.

mod instances;
mod intersection;

use std::fmt;

use jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use crate::record::SINCE_BINDINGS;

pub use instances::Instance;

/// Maximum tokens of a pattern; a set of positions in it fits in one 64-bit word.
const TOKENS_MAX: usize = 32;
/// Maximum number of `**` in a pattern.
const DEEP_MAX: usize = 4;
/// Maximum bytes of a pattern.
const BYTES_MAX: usize = 2048;
/// Maximum bytes of a name in a template.
const NAME_BYTES_MAX: usize = 64;

/// Grammar of a blueprint's paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathSyntax {
    /// `{name}` is a literal token.
    Plain,
    /// `{name}` matches one token, to which the trigger of an invocation binds it.
    Named,
}

impl PathSyntax {
    /// Returns the grammar for a blueprint of this format on a board of this journal format.
    pub const fn for_formats(blueprint: u32, journal: u32) -> Self {
        if blueprint >= 2 && journal >= SINCE_BINDINGS { Self::Named } else { Self::Plain }
    }

    /// Parses a pattern. Fails like [`Pattern::parse`], and for a token in braces that is no name.
    pub fn parse(self, text: &str) -> Result<Pattern, PatternError> {
        let mut pattern = Pattern::parse(text)?;
        if self == Self::Named {
            for token in &mut pattern.tokens {
                let PatternToken::Literal(literal) = token else { continue };
                let Some(name) = literal.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else { continue };
                if !is_name(name) {
                    return Err(PatternError(format!(
                        "`{literal}` is no name: write at most {NAME_BYTES_MAX} letters, digits and `_`, no digit first"
                    )));
                }
                *token = PatternToken::Bound(name.to_owned());
            }
        }
        Ok(pattern)
    }
}

/// Returns true for a name that is an identifier of expressions, too.
pub fn is_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(is_letter)
        && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

/// A token of a pattern.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PatternToken {
    /// Exactly this (decoded) token.
    Literal(String),
    /// `*`: any one token, the append position included.
    Any,
    /// `-`: the append position of an array. Always the last token, because nothing lies below it.
    Append,
    /// `**`: zero or more tokens.
    Deep,
    /// `{name}`: the one token to which the name is bound.
    Bound(String),
}

/// A path pattern, e.g. `/claims/*/status`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pattern {
    // At most `TOKENS_MAX`; `Append` only at the end.
    tokens: Vec<PatternToken>,
}

/// Error for a text that is no pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(pub String);

/// Progress of matching a path in an existing document: the rest of a pattern below a place.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'p> {
    pattern: &'p Pattern,
    positions: Positions,
}

impl<'p> Walk<'p> {
    /// Returns the rest of the pattern below a child, or `None` if it matches nothing there. `append` allows the token
    /// `-` to be the append position.
    pub(crate) fn step(self, token: &str, append: bool) -> Option<Self> {
        let positions = self.pattern.step(self.positions, token, append);
        (positions != 0).then_some(Self { positions, ..self })
    }

    /// Returns true if the place is matched.
    pub(crate) fn is_end(self) -> bool {
        self.pattern.is_end(self.positions)
    }

    /// Returns the pattern tokens that may match next.
    pub(crate) fn next_tokens(self) -> impl Iterator<Item = &'p PatternToken> {
        let Self { pattern, positions } = self;
        pattern.tokens.iter().enumerate().filter(move |(at, _)| positions >> at & 1 == 1).map(|(_, token)| token)
    }
}

/// Set of positions in a pattern: bit `i` means "the tokens before `i` are matched".
type Positions = u64;

impl Pattern {
    /// Parses a pattern; escapes are those of RFC 6901. The empty text is the pattern of the whole document. Fails for
    /// a missing leading `/`, an escape other than `~0` and `~1`, or `-` before the end; also for more than 32 tokens,
    /// 4 `**` or 2048 bytes.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let refuse = |why: String| Err(PatternError(why));
        if text.len() > BYTES_MAX {
            return refuse(format!("a path pattern has at most {BYTES_MAX} bytes, this one has {}", text.len()));
        }
        if text.is_empty() {
            return Ok(Self { tokens: Vec::new() });
        }
        let Some(rest) = text.strip_prefix('/') else {
            // Suggests a path for one written as in an expression.
            let below = text.strip_prefix("state.").map(|path| path.replace('.', "/"));
            let path = below.as_deref().unwrap_or(text);
            return refuse(format!("a path pattern begins with `/`: write `/{path}`"));
        };
        let tokens = rest.split('/').map(token).collect::<Result<Vec<_>, _>>()?;
        if tokens.len() > TOKENS_MAX {
            return refuse(format!("a path pattern has at most {TOKENS_MAX} tokens, this one has {}", tokens.len()));
        }
        let deep = tokens.iter().filter(|token| **token == PatternToken::Deep).count();
        if deep > DEEP_MAX {
            return refuse(format!("a path pattern has at most {DEEP_MAX} `**`, this one has {deep}"));
        }
        if tokens.iter().rev().skip(1).any(|token| *token == PatternToken::Append) {
            return refuse(
                "`-` is the append position of an array: nothing lies below it, so it ends a pattern".into(),
            );
        }
        Ok(Self { tokens })
    }

    /// Returns a pattern that matches exactly one place, with all names taken literally; `None` if the place is too
    /// deep.
    pub(crate) fn from_place(place: &Pointer) -> Option<Self> {
        let tokens: Vec<_> = place.tokens().map(|token| PatternToken::Literal(token.decoded().into_owned())).collect();
        (tokens.len() <= TOKENS_MAX).then_some(Self { tokens })
    }

    /// Returns true if it has only literal tokens.
    pub fn is_place(&self) -> bool {
        self.tokens.iter().all(|token| matches!(token, PatternToken::Literal(_)))
    }

    /// Returns the names that must be bound, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().filter_map(|token| match token {
            PatternToken::Bound(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Replaces names by their bindings; `to` returns `None` for an unbound name.
    #[must_use]
    pub(crate) fn bind<'b>(&self, to: impl Fn(&str) -> Option<&'b str>) -> Self {
        self.replace_names(|name| to(name).map(|to| PatternToken::Literal(to.into())))
    }

    /// Returns the pattern that matches all places matched under any binding.
    #[must_use]
    pub fn under_any_binding(&self) -> Self {
        self.replace_names(|_| Some(PatternToken::Any))
    }

    /// Turns each name into a literal token in braces.
    #[must_use]
    pub fn with_literal_names(&self) -> Self {
        self.replace_names(|name| Some(PatternToken::Literal(format!("{{{name}}}"))))
    }

    fn replace_names(&self, by: impl Fn(&str) -> Option<PatternToken>) -> Self {
        let replaced = |token: &PatternToken| match token {
            PatternToken::Bound(name) => by(name).unwrap_or_else(|| token.clone()),
            _ => token.clone(),
        };
        Self { tokens: self.tokens.iter().map(replaced).collect() }
    }

    /// Returns the tokens.
    pub fn tokens(&self) -> &[PatternToken] {
        &self.tokens
    }

    /// Returns the pattern of the first `tokens` tokens.
    pub fn prefix(&self, tokens: usize) -> Self {
        Self { tokens: self.tokens[..tokens].to_vec() }
    }

    /// Matches decoded tokens exactly and returns the captures of `*` and `**` in order. A `**` captures a pointer,
    /// empty for no token. The token `-` of a path is matched by `-`, `*` and `**`.
    ///
    /// If several `**` can share the tokens in different ways, the earlier one takes as few as possible.
    pub fn captures(&self, path: &[&str]) -> Option<Vec<String>> {
        // For every index in the path, the positions from which the rest of the path can be matched.
        let mut can_end = vec![0; path.len() + 1];
        can_end[path.len()] = self.before_end();
        for (at, token) in path.iter().enumerate().rev() {
            can_end[at] = self.step_back(can_end[at + 1], token);
        }
        let ends_from = |position: usize, at: usize| can_end[at] >> position & 1 == 1;
        if !ends_from(0, 0) {
            return None;
        }
        let mut captures = Vec::new();
        let mut at = 0;
        for (position, token) in self.tokens.iter().enumerate() {
            match token {
                PatternToken::Literal(_) | PatternToken::Append | PatternToken::Bound(_) => at += 1,
                PatternToken::Any => {
                    captures.push(path[at].to_owned());
                    at += 1;
                }
                PatternToken::Deep => {
                    let from = at;
                    while !ends_from(position + 1, at) {
                        at += 1;
                    }
                    captures.push(PointerBuf::from_tokens(path[from..at].iter().copied()).to_string());
                }
            }
        }
        Some(captures)
    }

    /// Like [`Pattern::captures`], for a place.
    pub(crate) fn captures_at(&self, place: &Pointer) -> Option<Vec<String>> {
        self.captures(&decoded(place).iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Returns true if it matches the pointer exactly.
    pub fn matches(&self, path: &Pointer) -> bool {
        self.is_end(self.after(path))
    }

    /// Returns true if it matches the pointer or an ancestor of it (read grants cover this way).
    pub fn covers(&self, path: &Pointer) -> bool {
        let mut positions = self.start();
        for token in path.tokens() {
            if self.is_end(positions) {
                return true;
            }
            positions = self.step(positions, &token.decoded(), true);
        }
        self.is_end(positions)
    }

    /// Returns true if it may match the pointer or a place below it, so that a reader must descend.
    pub fn reaches_below(&self, path: &Pointer) -> bool {
        // Every position has some path that completes the match.
        self.after(path) != 0
    }

    /// Like [`Self::instances`], for a document that is not a tree.
    pub fn instances_of_value(&self, document: &Value, max: usize) -> Vec<PointerBuf> {
        let mut found = Vec::new();
        // An explicit stack, because a document may be nested too deeply for recursion.
        let mut pending = vec![(PointerBuf::root(), document, self.start())];
        while let Some((place, value, positions)) = pending.pop() {
            if found.len() == max {
                break;
            }
            let mut below = Vec::new();
            let mut visit = |token: &str, child| {
                let positions = self.step(positions, token, false);
                if positions != 0 {
                    below.push((place.with_trailing_token(token), child, positions));
                }
            };
            match value {
                Value::Object(members) => members.iter().for_each(|(name, child)| visit(name, child)),
                Value::Array(items) => {
                    items.iter().enumerate().for_each(|(index, child)| visit(&index.to_string(), child));
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
            if self.is_end(positions) {
                found.push(place);
            }
            pending.extend(below.into_iter().rev());
        }
        found
    }

    /// Starts a walk at the root.
    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk { pattern: self, positions: self.start() }
    }

    /// Returns the positions before any token is matched.
    fn start(&self) -> Positions {
        self.past_deep(1)
    }

    /// Returns the positions after a whole path.
    fn after(&self, path: &Pointer) -> Positions {
        let mut positions = self.start();
        for token in path.tokens() {
            if positions == 0 {
                break;
            }
            positions = self.step(positions, &token.decoded(), true);
        }
        positions
    }

    /// Returns the positions after one more token. `append` allows the token `-` to be the append position; in an
    /// existing document it is an ordinary member.
    fn step(&self, positions: Positions, token: &str, append: bool) -> Positions {
        let mut next = 0;
        for (at, wanted) in self.tokens.iter().enumerate().filter(|(at, _)| positions >> at & 1 == 1) {
            next |= match wanted {
                PatternToken::Deep => 1 << at,
                one if admits(one, token, append) => 1 << (at + 1),
                _ => 0,
            };
        }
        self.past_deep(next)
    }

    /// Returns the positions from which this token leads into one of `next`.
    fn step_back(&self, next: Positions, token: &str) -> Positions {
        let mut positions: Positions = 0;
        for (at, wanted) in self.tokens.iter().enumerate().rev() {
            let leads = match wanted {
                // Either it takes the token and stays, or it ends and the following token takes it.
                PatternToken::Deep => next >> at & 1 == 1 || positions >> (at + 1) & 1 == 1,
                one => next >> (at + 1) & 1 == 1 && admits(one, token, true),
            };
            positions |= Positions::from(leads) << at;
        }
        positions
    }

    /// Adds the positions after every `**`, which may match no token.
    fn past_deep(&self, mut positions: Positions) -> Positions {
        for (at, token) in self.tokens.iter().enumerate() {
            if *token == PatternToken::Deep && positions >> at & 1 == 1 {
                positions |= 1 << (at + 1);
            }
        }
        positions
    }

    /// Returns the positions from which the pattern can end.
    fn before_end(&self) -> Positions {
        let deep = self.tokens.iter().rev().take_while(|token| **token == PatternToken::Deep).count();
        (self.tokens.len() - deep..=self.tokens.len()).fold(0, |positions, at| positions | 1 << at)
    }

    fn is_end(&self, positions: Positions) -> bool {
        positions >> self.tokens.len() & 1 == 1
    }

    /// Estimates the steps of comparing it with another pattern; with `**`, all of both is compared.
    pub fn steps(&self) -> u64 {
        let tokens = self.tokens.len() as u64 + 1;
        if self.tokens.contains(&PatternToken::Deep) { 10 * tokens } else { 1 }
    }
}

/// Returns the tokens of a pointer, without escapes.
pub(crate) fn decoded(pointer: &Pointer) -> Vec<String> {
    pointer.tokens().map(|token| token.decoded().into_owned()).collect()
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for token in &self.tokens {
            match token {
                PatternToken::Literal(name) => write!(f, "/{}", jsonptr::Token::new(name.as_str()).encoded())?,
                PatternToken::Any => f.write_str("/*")?,
                PatternToken::Append => f.write_str("/-")?,
                PatternToken::Deep => f.write_str("/**")?,
                PatternToken::Bound(name) => write!(f, "/{{{name}}}")?,
            }
        }
        Ok(())
    }
}

/// Returns true if a token is an array index as defined by RFC 6901: digits without leading zeros.
pub fn is_index(token: &str) -> bool {
    token == "0" || (!token.starts_with('0') && !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit()))
}

fn token(text: &str) -> Result<PatternToken, PatternError> {
    Ok(match text {
        "*" => PatternToken::Any,
        "-" => PatternToken::Append,
        "**" => PatternToken::Deep,
        name => {
            let token = jsonptr::Token::from_encoded(name)
                .map_err(|_| PatternError(format!("`~` is written `~0` and `/` in a name `~1`, not as in `{name}`")))?;
            PatternToken::Literal(token.decoded().into_owned())
        }
    })
}

/// Returns true if a token of a pattern, other than `**`, matches a token of a path.
fn admits(wanted: &PatternToken, token: &str, append: bool) -> bool {
    match wanted {
        PatternToken::Literal(name) => name == token,
        PatternToken::Any | PatternToken::Deep => true,
        PatternToken::Append => append && token == "-",
        PatternToken::Bound(_) => false,
    }
}

#[cfg(test)]
mod tests;
