//! Confidence intervals: Wilson's score interval for proportions, the paired bootstrap for other measurements.

use std::fmt;

use crate::random::Random;

/// The 0.975 quantile of the normal distribution, for 95 % intervals.
const Z: f64 = 1.959_963_984_540_054;
/// Number of bootstrap resamples.
const RESAMPLES: usize = 10_000;

/// An estimate and its 95 % interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A proportion, displayed like `12 of 60, 20.0 % (11.8 to 31.8)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Number of successes.
    pub successes: usize,
    /// Number of trials.
    pub trials: usize,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { successes, trials: of } = *self;
        match wilson(successes, of) {
            None => f.write_str("–"),
            Some(Interval { estimate, low, high }) => {
                let [estimate, low, high] = [estimate, low, high].map(|part| 100.0 * part);
                write!(f, "{successes} of {of}, {estimate:.1} % ({low:.1} to {high:.1})")
            }
        }
    }
}

/// Returns Wilson's score interval of a proportion, or `None` without trials.
pub fn wilson(successes: usize, of: usize) -> Option<Interval> {
    if of == 0 {
        return None;
    }
    let (n, p) = (of as f64, successes as f64 / of as f64);
    let z2 = Z * Z;
    let centre = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt() / (1.0 + z2 / n);
    // At 0 and 1 the interval ends at the estimate; rounding would miss it.
    let low = if successes == 0 { 0.0 } else { (centre - half).max(0.0) };
    let high = if successes >= of { 1.0 } else { (centre + half).min(1.0) };
    Some(Interval { estimate: p, low, high })
}

/// Returns the mean difference of pairs, first minus second, with a bootstrap percentile interval. Returns `None`
/// without pairs. Deterministic for a seed.
pub fn paired_bootstrap(pairs: &[(f64, f64)], seed: u64) -> Option<Interval> {
    let differences: Vec<f64> = pairs.iter().map(|(one, other)| one - other).collect();
    bootstrap(&differences, seed)
}

/// Returns the mean with a bootstrap percentile interval, or `None` without values. Deterministic for a seed.
pub fn bootstrap(values: &[f64], seed: u64) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    let mut random = Random::new(seed);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| (0..values.len()).map(|_| values[random.index(values.len())]).sum::<f64>() / values.len() as f64)
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |quantile: f64| means[((RESAMPLES - 1) as f64 * quantile).round() as usize];
    let estimate = values.iter().sum::<f64>() / values.len() as f64;
    Some(Interval { estimate, low: at(0.025), high: at(0.975) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: Option<Interval>, low: f64, high: f64) {
        let found = found.expect("an interval");
        assert!((found.low - low).abs() < 5e-4 && (found.high - high).abs() < 5e-4, "{found:?}");
    }

    #[test]
    fn wilsons_interval_is_the_published_one() {
        // Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I.
        close(wilson(81, 263), 0.2553, 0.3662);
        close(wilson(15, 148), 0.0624, 0.1605);
        close(wilson(0, 20), 0.0, 0.1611);
        close(wilson(1, 29), 0.0061, 0.1718);
        assert_eq!(wilson(0, 0), None);
        for n in 1..1_000 {
            let (none, all) = (wilson(0, n).expect("an interval"), wilson(n, n).expect("an interval"));
            assert_eq!((none.low, none.estimate, all.estimate, all.high), (0.0, 0.0, 1.0, 1.0), "{n}");
            assert!(none.high > 0.0 && all.low < 1.0, "{n}");
        }
    }

    #[test]
    fn the_bootstrap_holds_the_mean_and_repeats_itself() {
        let pairs: Vec<(f64, f64)> = (0..40).map(|n| (f64::from(n % 7), f64::from(n % 5))).collect();
        let one = paired_bootstrap(&pairs, 7).expect("an interval");
        assert_eq!(Some(one), paired_bootstrap(&pairs, 7));
        assert!(one.low < one.estimate && one.estimate < one.high);
        // Compared with the normal approximation: the half width is about 1.96 standard errors.
        let n = pairs.len() as f64;
        let variance = pairs.iter().map(|(a, b)| (a - b - one.estimate).powi(2)).sum::<f64>() / (n - 1.0);
        let half = Z * (variance / n).sqrt();
        assert!(((one.high - one.low) / 2.0 - half).abs() < half / 10.0, "{one:?} {half}");
        assert_eq!(bootstrap(&[2.0; 5], 1), Some(Interval { estimate: 2.0, low: 2.0, high: 2.0 }));
        assert_eq!(bootstrap(&[], 1), None);
    }
}
