//! Intersection of two patterns.

use super::{Pattern, PatternToken, Positions, TOKENS_MAX, is_index};

impl Pattern {
    /// Returns true if one location can be matched by both.
    ///
    /// A location is either the append position or an index: `-` and `/a/3` have none in common, `-` and `*` have. See
    /// [`Self::collides`] for the writes that two patterns grant.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.any_pair(other, false, |ours, theirs| ours == self.tokens.len() && theirs == other.tokens.len())
    }

    /// Returns true if a write to a location matched by one can be, or become, the place of one matched by the other.
    ///
    /// Like [`Self::overlaps`], but `-` also matches every index. An element appended to an array of three is then at
    /// `/3`, and `/3` is another path for that append.
    pub fn collides(&self, other: &Self) -> bool {
        self.any_pair(other, true, |ours, theirs| ours == self.tokens.len() && theirs == other.tokens.len())
    }

    /// Returns true if some location matched by `other` lies strictly below one matched by this.
    ///
    /// An appended element gets an index: `/claims/-` lies above `/claims/*/status` and above `/claims/3/status`.
    pub fn lies_above(&self, other: &Self) -> bool {
        self.any_pair(other, true, |ours, theirs| ours == self.tokens.len() && theirs < other.tokens.len())
    }

    /// Returns true if some path leads both patterns into a pair of positions that `wanted` accepts. Walks the product
    /// of the two automata, at most 33 × 33 pairs. No step leads back, so one pass in order reaches every pair.
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
                // A `**` may end.
                if our_deep {
                    reached[ours + 1] |= 1 << theirs;
                }
                if their_deep {
                    reached[ours] |= 1 << (theirs + 1);
                }
                // Both take one token; two `**` stay at their positions.
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

/// Returns true if one token of a path can be matched by both. `appended` lets `-` match every index.
fn share_a_token(one: &PatternToken, another: &PatternToken, appended: bool) -> bool {
    use PatternToken::{Any, Append, Bound, Deep, Literal};
    match (one, another) {
        (Any | Deep, _) | (_, Any | Deep) | (Append, Append) => true,
        (Literal(one), Literal(another)) => one == another,
        (Literal(name), Append) | (Append, Literal(name)) => appended && is_index(name),
        // Names are never bound to the append position; an appended element gets an index.
        (Bound(_), Append) | (Append, Bound(_)) => appended,
        (Bound(_), _) | (_, Bound(_)) => true,
    }
}
