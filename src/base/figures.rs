//! Samples and what is said of them. Raw samples are always kept: a median without them cannot be
//! checked by any reader.

use std::time::Duration;

use serde_json::{Value, json};

/// Samples in milliseconds with their middle and their tail; null figures where there are none.
pub fn milliseconds(samples: &[f64]) -> Value {
    let rounded: Vec<f64> = samples.iter().map(|ms| round(*ms)).collect();
    json!({
        "unit": "ms",
        "count": samples.len(),
        "p50": quantile(samples, 0.50).map(round),
        "p95": quantile(samples, 0.95).map(round),
        "p99": quantile(samples, 0.99).map(round),
        "least": quantile(samples, 0.0).map(round),
        "most": quantile(samples, 1.0).map(round),
        "samples": rounded,
    })
}

/// The sample below which `part` of all lie (nearest rank); None without samples.
pub fn quantile(samples: &[f64], part: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small index"
    )]
    let rank = ((sorted.len() as f64) * part).ceil() as usize;
    Some(sorted[rank.saturating_sub(1).min(last)])
}

/// `a` as a multiple of `b`, to hundredths; None where either is missing or `b` is nothing.
pub fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) if b > 0.0 => Some((a / b * 100.0).round() / 100.0),
        _ => None,
    }
}

/// A time in milliseconds.
pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// To hundredths.
pub fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_by_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&hundred, 0.5), Some(50.0));
        assert_eq!(quantile(&hundred, 0.99), Some(99.0));
        assert_eq!(quantile(&hundred, 1.0), Some(100.0));
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_ratio_to_nothing_is_no_number() {
        assert_eq!(ratio(Some(3.0), Some(2.0)), Some(1.5));
        assert_eq!(ratio(Some(3.0), Some(0.0)), None);
        assert_eq!(ratio(None, Some(2.0)), None);
    }
}
