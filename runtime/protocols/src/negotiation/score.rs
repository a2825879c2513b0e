//! Scores of drafts: from the checks, and from the evaluations (W28, W29).

use super::{Check, Evaluation};

/// Returns the weighted share of passed checks; `None` if their total weight is zero.
pub fn deterministic(checks: &[Check]) -> Option<f64> {
    let sum = |counts: &dyn Fn(&Check) -> bool| -> f64 {
        checks.iter().filter(|check| counts(check)).map(|check| check.weight).sum()
    };
    let all = sum(&|_| true);
    (all > 0.0).then(|| sum(&|check| check.passed) / all)
}

/// Returns the mean score of the evaluations; `None` without any.
pub fn confidence(evaluations: &[Evaluation]) -> Option<f64> {
    if evaluations.is_empty() {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "nobody counts 2^53 evaluations")]
    let count = evaluations.len() as f64;
    Some(evaluations.iter().map(|evaluation| evaluation.score).sum::<f64>() / count)
}

/// Returns `(1 - weight) · deterministic + weight · confidence`. A single present score counts alone; without any the
/// result is 0.
pub fn blend(deterministic: Option<f64>, confidence: Option<f64>, weight: f64) -> f64 {
    match (deterministic, confidence) {
        (Some(deterministic), Some(confidence)) => (1.0 - weight) * deterministic + weight * confidence,
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => 0.0,
    }
}
