//! Repeats a request with growing pauses, until it is answered or there is no time left.

use std::future::Future;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use tokio::time::Instant;

use super::failure_codes::is_transient;
use super::transport::HttpFailure;

/// First pause between retries, before jitter; each further one is twice as long, up to [`PAUSE_MAX`].
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(500);

/// Longest pause between retries, before jitter.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(8);

/// Sends a request until it is answered, fails for good, or may not be repeated.
pub(super) async fn retry_request<T, F: Future<Output = Result<T, HttpFailure>>>(
    tries: u32,
    deadline: Instant,
    may: impl Fn(&HttpFailure) -> bool,
    send: impl FnMut() -> F,
) -> Result<T, HttpFailure> {
    let pauses = ExponentialBuilder::new()
        .with_min_delay(PAUSE_MIN)
        .with_max_delay(PAUSE_MAX)
        .with_max_times(usize::try_from(tries).unwrap_or(usize::MAX).saturating_sub(1))
        .with_jitter();
    send.retry(pauses)
        .sleep(tokio::time::sleep)
        .when(|failure| is_transient(failure) && may(failure))
        .adjust(|failure, pause| wait(failure, pause?, deadline.saturating_duration_since(Instant::now())))
        .notify(|failure, pause| {
            let seconds = pause.as_secs_f64();
            // An operator may be waiting at the terminal.
            match seconds > 2.0 {
                true => tracing::warn!("{failure}: asking again in {seconds:.1} s"),
                false => tracing::info!("{failure}: asking again in {seconds:.1} s"),
            }
        })
        .await
}

/// Returns the pause before a retry; `None` if there is no time for one.
fn wait(failure: &HttpFailure, pause: Duration, left: Duration) -> Option<Duration> {
    let asked = if let HttpFailure::Status { wait, .. } = failure { *wait } else { None };
    let wait = asked.unwrap_or(pause);
    (wait < left).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::FailureCause;

    #[test]
    fn a_wait_never_passes_the_end_of_the_call() {
        let secs = Duration::from_secs;
        let asked = |wait| HttpFailure::Status { status: 429, wait, body: String::new(), cause: FailureCause::Unknown };
        for (failure, left, expected) in [
            (asked(Some(secs(20))), secs(60), Some(secs(20))),
            (asked(Some(secs(61))), secs(60), None),
            (asked(Some(secs(5))), secs(5), None),
            (asked(Some(secs(5))), secs(6), Some(secs(5))),
            (asked(None), secs(60), Some(secs(1))),
            (asked(None), secs(1), None),
            (HttpFailure::Connect("refused".into()), secs(60), Some(secs(1))),
        ] {
            assert_eq!(wait(&failure, secs(1), left), expected, "{failure:?} with {left:?} left");
        }
    }
}
