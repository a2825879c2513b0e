//! Table `[architect]`: limits of an architect and of the boards that it designs.

use patchboard_kernel::blueprint::{BoardLimits, Duration};
use patchboard_llm::config::span;
use patchboard_workspace::directory::{checked, positive};
use serde::{Deserialize, Deserializer};

/// Upper bound of [`DesignLimits::repairs`].
pub const REPAIRS_MAX: u32 = 10;

/// Limits of an architect and of the boards it designs.
#[derive(Clone, PartialEq, Debug)]
pub struct DesignLimits {
    /// Rounds in which findings go back to the model, at most [`REPAIRS_MAX`].
    pub repairs: u32,
    /// Upper bounds for the limits of its boards.
    pub caps: Caps,
}

impl Default for DesignLimits {
    fn default() -> Self {
        Self { repairs: 3, caps: Caps::default() }
    }
}

/// Upper bounds for a board of a model-written blueprint. Larger limits are lowered to these.
#[derive(Clone, PartialEq, Debug)]
pub struct Caps {
    /// Commits.
    pub commits: u64,
    /// Tokens, including the architect's own.
    pub tokens: u64,
    /// Running time: the time with at least one call running.
    pub wall: Duration,
    /// Bytes of state.
    pub state_bytes: u64,
    /// Concurrent calls.
    pub concurrency: u32,
}

impl Default for Caps {
    /// Returns the limits of a blueprint without a `limits` section (SPEC section 12).
    fn default() -> Self {
        let BoardLimits {
            commits,
            tokens,
            wall,
            state_bytes,
            depth: _,
            edits: _,
            money: _,
            patience: _,
            journal: _,
            dedup: _,
        } = BoardLimits::default();
        Self { commits, tokens, wall, state_bytes, concurrency: 4 }
    }
}

/// Limits of an architect and of its boards: the table `[architect]`. Its model is `[models.architect]`, or else the
/// default.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Architect {
    /// Rounds in which findings go back to the model, 0 to 10.
    #[serde(deserialize_with = "repairs")]
    pub repairs: u32,
    /// Token limit of one answer.
    #[serde(deserialize_with = "positive")]
    pub reply_tokens: u32,
    /// Timeout of one answer.
    #[serde(deserialize_with = "span")]
    pub timeout: Duration,
    /// Upper bound for the commits of a board.
    #[serde(deserialize_with = "positive")]
    pub commits: u64,
    /// Upper bound for the tokens of a board, including the architect's own.
    #[serde(deserialize_with = "positive")]
    pub tokens: u64,
    /// Upper bound for the running time of a board.
    #[serde(deserialize_with = "span")]
    pub wall: Duration,
}

impl Default for Architect {
    fn default() -> Self {
        let DesignLimits { repairs, caps } = DesignLimits::default();
        Self {
            repairs,
            // Leaves room for the prompt, the last draft and its findings in a context of 8,192 tokens.
            reply_tokens: 2500,
            timeout: Duration::from_secs(600),
            commits: caps.commits,
            tokens: caps.tokens,
            wall: caps.wall,
        }
    }
}

impl Architect {
    /// Converts the settings to terms.
    pub fn terms(&self) -> DesignLimits {
        let caps = Caps { commits: self.commits, tokens: self.tokens, wall: self.wall, ..Caps::default() };
        DesignLimits { repairs: self.repairs, caps }
    }
}

fn repairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    checked(deserializer, |value| *value <= REPAIRS_MAX, format_args!("repairs lies between 0 and {REPAIRS_MAX}"))
}
