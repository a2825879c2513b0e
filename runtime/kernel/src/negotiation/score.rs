//! What a draft is worth: first what was checked, then what evaluators think (W28, W29).

use super::{Check, Evaluation};

/// The share of the checks that hold, by their weights; none without any that weighs something.
pub fn deterministic(checks: &[Check]) -> Option<f64> {
    let sum = |counts: &dyn Fn(&Check) -> bool| -> f64 {
        checks.iter().filter(|check| counts(check)).map(|check| check.weight).sum()
    };
    let all = sum(&|_| true);
    (all > 0.0).then(|| sum(&|check| check.passed) / all)
}

/// What evaluators think on average; none without any.
pub fn confidence(evaluations: &[Evaluation]) -> Option<f64> {
    if evaluations.is_empty() {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "nobody counts 2^53 evaluations")]
    let count = evaluations.len() as f64;
    Some(evaluations.iter().map(|evaluation| evaluation.score).sum::<f64>() / count)
}

/// Both together: `(1 - weight) · deterministic + weight · confidence`. Where there is only one of them it counts alone,
/// and a draft of which nothing is known is worth nothing.
pub fn blend(deterministic: Option<f64>, confidence: Option<f64>, weight: f64) -> f64 {
    match (deterministic, confidence) {
        (Some(deterministic), Some(confidence)) => (1.0 - weight) * deterministic + weight * confidence,
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => 0.0,
    }
}
