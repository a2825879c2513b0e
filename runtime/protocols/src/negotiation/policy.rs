//! Policy of a negotiation, and its tightening by the participants' preferences.

use serde::{Deserialize, Serialize};

/// Human-in-the-loop mode (W23), from the laxest to the strictest; each includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
pub enum Hitl {
    /// Never.
    #[default]
    None,
    /// Before a draft is accepted.
    PauseOnFinalAccept,
    /// After each round, and before a draft is accepted.
    PauseBetweenRounds,
}

/// Scoring of drafts (W24).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Scoring {
    /// Rejects drafts that violate the schema; otherwise they only score lower.
    pub require_schema_valid: bool,
    /// Rejects drafts that fail an example; otherwise they only score lower.
    pub require_examples_pass: bool,
    /// Share of the evaluators in the score, from 0 to 1. The rest is the share of the checks.
    pub llm_weight: f64,
}

impl Default for Scoring {
    fn default() -> Self {
        // No source gives a number for the weight.
        Self { require_schema_valid: true, require_examples_pass: true, llm_weight: 0.5 }
    }
}

/// Policy of a negotiation (W17 to W24). The defaults are those published with the Python SDK.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Maximum number of rounds.
    pub max_rounds: u32,
    /// Minimum score for acceptance, from 0 to 1.
    pub score_threshold: f64,
    /// Maximum share of a draft, from 0 to 1, that may differ for it to count as unchanged.
    pub diff_tolerance: f64,
    /// Timeout of a round, in milliseconds.
    pub round_timeout_ms: u64,
    /// Maximum tokens of a round.
    pub token_budget_per_round: u64,
    /// Maximum tokens of all rounds; absent: only each round is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_token_budget: Option<u64>,
    /// Maximum number of turns of the scores between rising and falling.
    pub oscillation_limit: u32,
    /// Human-in-the-loop mode.
    pub hitl: Hitl,
    /// Scoring of drafts.
    pub scoring: Scoring,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_rounds: 10,
            score_threshold: 0.8,
            diff_tolerance: 0.1,
            round_timeout_ms: 30_000,
            token_budget_per_round: 4000,
            total_token_budget: None,
            oscillation_limit: 3,
            hitl: Hitl::None,
            scoring: Scoring::default(),
        }
    }
}

/// Preferences of a participant; absent members express none.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Preferences {
    /// As in [`Policy::max_rounds`].
    pub max_rounds: Option<u32>,
    /// As in [`Policy::score_threshold`].
    pub score_threshold: Option<f64>,
    /// As in [`Policy::diff_tolerance`].
    pub diff_tolerance: Option<f64>,
    /// As in [`Policy::round_timeout_ms`].
    pub round_timeout_ms: Option<u64>,
    /// As in [`Policy::token_budget_per_round`].
    pub token_budget_per_round: Option<u64>,
    /// As in [`Policy::total_token_budget`].
    pub total_token_budget: Option<u64>,
    /// As in [`Policy::oscillation_limit`].
    pub oscillation_limit: Option<u32>,
    /// As in [`Policy::hitl`].
    pub hitl: Option<Hitl>,
    /// As in [`Policy::scoring`].
    pub scoring: ScoringPreferences,
}

/// Preferences of a participant about scoring.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ScoringPreferences {
    /// As in [`Scoring::require_schema_valid`].
    pub require_schema_valid: Option<bool>,
    /// As in [`Scoring::require_examples_pass`].
    pub require_examples_pass: Option<bool>,
    /// As in [`Scoring::llm_weight`].
    pub llm_weight: Option<f64>,
}

/// A policy, and the bounds of its tightening by preferences.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// Policy without preferences.
    pub policy: Policy,
    /// Bounds of preferences; absent members default to those of [`effective_policy`].
    pub strictest: Preferences,
}

/// Returns the policy of a negotiation: the base policy, tightened by the participants' preferences within its bounds
/// (W14). Preferences never loosen the policy, and their order does not matter.
///
/// | | stricter means | combined preference | default bound |
/// |---|---|---|---|
/// | `max_rounds` | fewer | the least | 1 |
/// | `score_threshold` | higher | the greatest | 1 |
/// | `diff_tolerance` | higher: small changes end the negotiation sooner | the greatest | 0.5 |
/// | `round_timeout_ms` | shorter | the least | 1000 |
/// | `token_budget_per_round`, `total_token_budget` | fewer | the least | 1 |
/// | `oscillation_limit` | fewer | the least | 0 |
/// | `hitl` | asking more often | the most often | `PauseBetweenRounds` |
/// | `require_schema_valid`, `require_examples_pass` | required | required if any prefers it | `true` |
/// | `llm_weight` | less | the least | 0 |
pub fn effective_policy<'p>(profile: &Profile, preferences: impl IntoIterator<Item = &'p Preferences>) -> Policy {
    let preferences: Vec<&Preferences> = preferences.into_iter().collect();
    // Merges one member of the policy; without a bound in the profile, the default applies.
    macro_rules! merge {
        ($merge:ident, $($member:ident).+, $default:expr) => {
            $merge(
                profile.policy.$($member).+,
                profile.strictest.$($member).+.unwrap_or($default),
                preferences.iter().filter_map(|wish| wish.$($member).+),
            )
        };
    }
    // No total budget means an unlimited one.
    let total = lower(
        profile.policy.total_token_budget.unwrap_or(u64::MAX),
        profile.strictest.total_token_budget.unwrap_or(1),
        preferences.iter().filter_map(|wish| wish.total_token_budget),
    );
    Policy {
        max_rounds: merge!(lower, max_rounds, 1),
        score_threshold: merge!(higher, score_threshold, 1.0),
        diff_tolerance: merge!(higher, diff_tolerance, 0.5),
        round_timeout_ms: merge!(lower, round_timeout_ms, 1000),
        token_budget_per_round: merge!(lower, token_budget_per_round, 1),
        total_token_budget: (total < u64::MAX).then_some(total),
        oscillation_limit: merge!(lower, oscillation_limit, 0),
        hitl: merge!(higher, hitl, Hitl::PauseBetweenRounds),
        scoring: Scoring {
            require_schema_valid: merge!(higher, scoring.require_schema_valid, true),
            require_examples_pass: merge!(higher, scoring.require_examples_pass, true),
            llm_weight: merge!(lower, scoring.llm_weight, 0.0),
        },
    }
}

/// Returns the minimum, but not below the strictest bound. NaN compares as neither lower nor higher.
fn lower<T: PartialOrd + Copy>(base: T, strictest: T, wished: impl Iterator<Item = T>) -> T {
    let least = wished.fold(base, |least, wish| if wish < least { wish } else { least });
    // A bound that is laxer than the policy has no effect.
    let bound = if strictest < base { strictest } else { base };
    if least < bound { bound } else { least }
}

fn higher<T: PartialOrd + Copy>(base: T, strictest: T, wished: impl Iterator<Item = T>) -> T {
    let greatest = wished.fold(base, |greatest, wish| if wish > greatest { wish } else { greatest });
    let bound = if strictest > base { strictest } else { base };
    if greatest > bound { bound } else { greatest }
}

impl Policy {
    /// Returns invalid settings, as sentences.
    pub fn validation_errors(&self) -> Vec<String> {
        let share = |name: &str, value: f64| {
            (!(0.0..=1.0).contains(&value)).then(|| format!("`{name}` is {value}; it goes from 0 to 1"))
        };
        let some = |name: &str, value: u64| (value == 0).then(|| format!("`{name}` is 0, so nothing could be said"));
        [
            some("max_rounds", u64::from(self.max_rounds)),
            share("score_threshold", self.score_threshold),
            share("diff_tolerance", self.diff_tolerance),
            some("round_timeout_ms", self.round_timeout_ms),
            some("token_budget_per_round", self.token_budget_per_round),
            self.total_token_budget.and_then(|total| some("total_token_budget", total)),
            share("scoring.llm_weight", self.scoring.llm_weight),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
