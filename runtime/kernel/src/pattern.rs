//! Path patterns: JSON Pointers with `*`, `**`, `-` and, in a path template, `{name}`.
//!
//! Owns matching by tokens, never by string prefix, and what two patterns have in common. Does not know schemas
//! ([`crate::schema`]) or grants ([`crate::contract`]).
//!
//! A template is bound before it is used: `Pattern::bind` puts literal tokens in the places of names. A name that is not
//! bound matches no place. What two patterns have in common counts every token that a name may be bound to.
//!
//! A token that is `*`, `**` or `-` as a whole is always the sign, never the name of a member: no pattern can name a
//! member called `*` alone. In a longer token (`a*`) the asterisk is an ordinary character. The escapes are those of
//! RFC 6901, `~0` for `~` and `~1` for `/`.

mod instances;

use std::fmt;

use jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use crate::record::BINDINGS;

pub use instances::Instance;

/// The most tokens of a pattern; a set of positions in it fits in one 64-bit word.
const TOKENS_MAX: usize = 32;
/// The most `**` of a pattern.
const DEEP_MAX: usize = 4;
/// The most bytes of a pattern.
const BYTES_MAX: usize = 2048;
/// The most bytes of a name in a template.
const NAME_BYTES_MAX: usize = 64;

/// Grammar of a blueprint's paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paths {
    /// `{name}` is a literal token.
    Plain,
    /// `{name}` stands for one token, which the trigger of an invocation binds.
    Named,
}

impl Paths {
    /// The paths of a blueprint of this format, on a board of this journal format.
    pub const fn of(blueprint: u32, journal: u32) -> Self {
        if blueprint >= 2 && journal >= BINDINGS { Self::Named } else { Self::Plain }
    }

    /// Reads a pattern.
    ///
    /// # Errors
    /// As [`Pattern::parse`], and a token in braces that is no name.
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

/// Returns true for a name that expressions can write, too.
pub(crate) fn is_name(name: &str) -> bool {
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
    /// `{name}`: the one token that the name is bound to.
    Bound(String),
}

/// A path pattern, e.g. `/claims/*/status`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pattern {
    // At most `TOKENS_MAX`; `Append` only at the end.
    tokens: Vec<PatternToken>,
}

/// Why a text is no pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(pub String);

/// How far a path into an existing document is matched; what is left of a pattern below some place.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'p> {
    pattern: &'p Pattern,
    positions: Positions,
}

impl<'p> Walk<'p> {
    /// What is left below a child; none if nothing there is matched. `append`: whether the token `-` may be the append
    /// position.
    pub(crate) fn step(self, token: &str, append: bool) -> Option<Self> {
        let positions = self.pattern.step(self.positions, token, append);
        (positions != 0).then_some(Self { positions, ..self })
    }

    /// Whether the place is matched.
    pub(crate) fn is_end(self) -> bool {
        self.pattern.is_end(self.positions)
    }

    /// The tokens that may come next.
    pub(crate) fn wanted(self) -> impl Iterator<Item = &'p PatternToken> {
        let Self { pattern, positions } = self;
        pattern.tokens.iter().enumerate().filter(move |(at, _)| positions >> at & 1 == 1).map(|(_, token)| token)
    }
}

/// A set of positions in a pattern, one bit each: bit `i` stands for "the tokens before `i` are matched".
type Positions = u64;

impl Pattern {
    /// Reads a pattern; escapes are those of RFC 6901. The empty text is the pattern of the whole document.
    ///
    /// # Errors
    /// No leading `/`, an escape other than `~0` and `~1`, `-` before the end, or more than 32 tokens, 4 `**` or
    /// 2048 bytes.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let refuse = |why: String| Err(PatternError(why));
        if text.len() > BYTES_MAX {
            return refuse(format!("a path pattern has at most {BYTES_MAX} bytes, this one has {}", text.len()));
        }
        if text.is_empty() {
            return Ok(Self { tokens: Vec::new() });
        }
        let Some(rest) = text.strip_prefix('/') else {
            // As an expression has it.
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

    /// The pattern of one place and nothing else, whatever the names on its way are; none of one that is too deep.
    pub(crate) fn of_place(place: &Pointer) -> Option<Self> {
        let tokens: Vec<_> = place.tokens().map(|token| PatternToken::Literal(token.decoded().into_owned())).collect();
        (tokens.len() <= TOKENS_MAX).then_some(Self { tokens })
    }

    /// Whether it names one place.
    pub(crate) fn is_place(&self) -> bool {
        self.tokens.iter().all(|token| matches!(token, PatternToken::Literal(_)))
    }

    /// The names that it has to be bound with, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().filter_map(|token| match token {
            PatternToken::Bound(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Puts what names are bound to in their places; `to` returns none for a name that is not bound.
    #[must_use]
    pub(crate) fn bind<'b>(&self, to: impl Fn(&str) -> Option<&'b str>) -> Self {
        let bind = |token: &PatternToken| match token {
            PatternToken::Bound(name) => to(name).map_or_else(|| token.clone(), |to| PatternToken::Literal(to.into())),
            _ => token.clone(),
        };
        Self { tokens: self.tokens.iter().map(bind).collect() }
    }

    /// Matches what it matches under any binding.
    #[must_use]
    pub(crate) fn under_any_binding(&self) -> Self {
        let widen = |token: &PatternToken| match token {
            PatternToken::Bound(_) => PatternToken::Any,
            _ => token.clone(),
        };
        Self { tokens: self.tokens.iter().map(widen).collect() }
    }

    /// Puts each name in the place of itself, as a literal token in braces.
    #[must_use]
    pub(crate) fn with_literal_names(&self) -> Self {
        let literal = |token: &PatternToken| match token {
            PatternToken::Bound(name) => PatternToken::Literal(format!("{{{name}}}")),
            _ => token.clone(),
        };
        Self { tokens: self.tokens.iter().map(literal).collect() }
    }

    /// Its tokens.
    pub fn tokens(&self) -> &[PatternToken] {
        &self.tokens
    }

    /// The pattern of its first `tokens` tokens.
    pub(crate) fn prefix(&self, tokens: usize) -> Self {
        Self { tokens: self.tokens[..tokens].to_vec() }
    }

    /// Whether it matches these decoded tokens exactly; `*` and `**` captures in order (a `**` captures a pointer,
    /// empty where it stands for nothing). The token `-` of a path is matched by `-`, `*` and `**`.
    ///
    /// Where several `**` can share the tokens in more than one way, an earlier one takes as few as it can.
    pub fn captures(&self, path: &[&str]) -> Option<Vec<String>> {
        // For every place in the path, the positions from which the rest of the path can be matched.
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

    /// Whether it matches the pointer exactly.
    pub fn matches(&self, path: &Pointer) -> bool {
        self.is_end(self.after(path))
    }

    /// Whether it matches the pointer or an ancestor of it (how read grants cover).
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

    /// Whether it may match the pointer or something below it (whether a reader must descend there).
    pub fn reaches_below(&self, path: &Pointer) -> bool {
        // From every position the rest of a pattern can be matched by some path.
        self.after(path) != 0
    }

    /// Whether one location can be matched by both.
    ///
    /// A location is either the append position or an index: `-` and `/a/3` have none in common, `-` and `*` have. See
    /// [`Self::collides`] for what holds of the writes that two patterns grant.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.any_pair(other, false, |ours, theirs| ours == self.tokens.len() && theirs == other.tokens.len())
    }

    /// Whether a write to a location matched by one can be, or become, the place of a location matched by the other.
    ///
    /// [`Self::overlaps`], and `-` also meets every index: what is appended to an array of three is at `/3` afterwards,
    /// and `/3` is another way to write that append.
    pub fn collides(&self, other: &Self) -> bool {
        self.any_pair(other, true, |ours, theirs| ours == self.tokens.len() && theirs == other.tokens.len())
    }

    /// Whether some location matched by `other` lies strictly below one matched by this.
    ///
    /// What is appended gets an index: `/claims/-` lies above `/claims/*/status` and above `/claims/3/status`.
    pub fn lies_above(&self, other: &Self) -> bool {
        self.any_pair(other, true, |ours, theirs| ours == self.tokens.len() && theirs < other.tokens.len())
    }

    /// What [`Self::instances`] finds, for a document that is not a tree.
    pub fn instances_of_value(&self, document: &Value, max: usize) -> Vec<PointerBuf> {
        let mut found = Vec::new();
        // A stack of our own, because a document may be nested deeper than the program's stack can follow.
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

    /// The whole of it, below the root.
    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk { pattern: self, positions: self.start() }
    }

    /// The positions before anything is matched.
    fn start(&self) -> Positions {
        self.past_deep(1)
    }

    /// The positions after a whole path.
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

    /// The positions after one more token. `append`: whether the token `-` may be the append position; in an existing
    /// document it is an ordinary member.
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

    /// The positions from which this token leads into one of `next`.
    fn step_back(&self, next: Positions, token: &str) -> Positions {
        let mut positions: Positions = 0;
        for (at, wanted) in self.tokens.iter().enumerate().rev() {
            let leads = match wanted {
                // Either it takes the token and stays, or it is over and what follows takes it.
                PatternToken::Deep => next >> at & 1 == 1 || positions >> (at + 1) & 1 == 1,
                one => next >> (at + 1) & 1 == 1 && admits(one, token, true),
            };
            positions |= Positions::from(leads) << at;
        }
        positions
    }

    /// Adds the positions behind every `**`, which may stand for nothing.
    fn past_deep(&self, mut positions: Positions) -> Positions {
        for (at, token) in self.tokens.iter().enumerate() {
            if *token == PatternToken::Deep && positions >> at & 1 == 1 {
                positions |= 1 << (at + 1);
            }
        }
        positions
    }

    /// The positions from which nothing more is needed.
    fn before_end(&self) -> Positions {
        let deep = self.tokens.iter().rev().take_while(|token| **token == PatternToken::Deep).count();
        (self.tokens.len() - deep..=self.tokens.len()).fold(0, |positions, at| positions | 1 << at)
    }

    fn is_end(&self, positions: Positions) -> bool {
        positions >> self.tokens.len() & 1 == 1
    }

    /// About how many steps of a check it takes to compare it with another: with `**`, all of both is looked at.
    pub(crate) fn steps(&self) -> u64 {
        let tokens = self.tokens.len() as u64 + 1;
        if self.tokens.contains(&PatternToken::Deep) { 10 * tokens } else { 1 }
    }

    /// Whether some path leads both patterns into a pair of positions that `wanted` accepts: a walk over the product of
    /// the two automata, at most 33 × 33 pairs. No step leads back, so one pass in order reaches every pair there is.
    fn any_pair(&self, other: &Self, appended: bool, wanted: impl Fn(usize, usize) -> bool) -> bool {
        let mut reached: [Positions; TOKENS_MAX + 2] = [0; TOKENS_MAX + 2];
        reached[0] = 1;
        for ours in 0..=self.tokens.len() {
            if reached[ours] == 0 {
                return false;
            }
            for theirs in 0..=other.tokens.len() {
                if reached[ours] >> theirs & 1 == 0 {
                    continue;
                }
                if wanted(ours, theirs) {
                    return true;
                }
                let (our_token, their_token) = (self.tokens.get(ours), other.tokens.get(theirs));
                let (our_deep, their_deep) =
                    (our_token == Some(&PatternToken::Deep), their_token == Some(&PatternToken::Deep));
                // A `**` may be over.
                if our_deep {
                    reached[ours + 1] |= 1 << theirs;
                }
                if their_deep {
                    reached[ours] |= 1 << (theirs + 1);
                }
                // Both take one token; if both are `**`, nothing has changed.
                if let (Some(one), Some(another)) = (our_token, their_token)
                    && share_a_token(one, another, appended)
                {
                    reached[ours + usize::from(!our_deep)] |= 1 << (theirs + usize::from(!their_deep));
                }
            }
        }
        false
    }
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

/// Whether a token of a path is an array index as RFC 6901 writes it: digits without leading zeros.
pub(crate) fn is_index(token: &str) -> bool {
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

/// Whether a token of a pattern, other than `**`, matches a token of a path.
fn admits(wanted: &PatternToken, token: &str, append: bool) -> bool {
    match wanted {
        PatternToken::Literal(name) => name == token,
        PatternToken::Any | PatternToken::Deep => true,
        PatternToken::Append => append && token == "-",
        PatternToken::Bound(_) => false,
    }
}

/// Whether one token of a path can be matched by both. `appended`: whether `-` meets every index.
fn share_a_token(one: &PatternToken, another: &PatternToken, appended: bool) -> bool {
    use PatternToken::{Any, Append, Bound, Deep, Literal};
    match (one, another) {
        (Any | Deep, _) | (_, Any | Deep) | (Append, Append) => true,
        (Literal(one), Literal(another)) => one == another,
        (Literal(name), Append) | (Append, Literal(name)) => appended && is_index(name),
        // No name is bound to the append position; what is appended gets an index.
        (Bound(_), Append) | (Append, Bound(_)) => appended,
        (Bound(_), _) | (_, Bound(_)) => true,
    }
}

#[cfg(test)]
mod tests;
