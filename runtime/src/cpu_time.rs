//! Processor time that boards spend on a request, credited to the thread that polls the request.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

thread_local! {
    /// Time that boards have spent on the request that this thread polls; `None` if the request is not metered.
    static CREDITED: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Returns the processor time that this thread has used.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), nanoseconds)
}

/// Polls a metered request, and returns the time of the poll and of the boards that have worked for it.
pub fn metered<T>(poll: impl FnOnce() -> T) -> (T, Duration) {
    /// Restores what was metered before on this thread, also after a panic.
    struct Metering(Option<Duration>);
    impl Drop for Metering {
        fn drop(&mut self) {
            CREDITED.set(self.0);
        }
    }
    let metering = Metering(CREDITED.replace(Some(Duration::ZERO)));
    let began = thread_time();
    let polled = poll();
    let used = thread_time().saturating_sub(began) + CREDITED.get().unwrap_or_default();
    drop(metering);
    (polled, used)
}

/// Returns true if this thread polls a metered request.
pub(crate) fn is_metered() -> bool {
    CREDITED.get().is_some()
}

/// Adds time that a board has spent on the request that this thread polls.
pub(crate) fn credit(used: Duration) {
    CREDITED.set(CREDITED.get().map(|credited| credited.saturating_add(used)));
}

/// Awaits a future, and returns the processor time of its polls, too.
pub(crate) async fn measure<F: Future>(work: F) -> (F::Output, Duration) {
    let (mut work, mut used) = (pin!(work), Duration::ZERO);
    let output = poll_fn(|context| {
        let began = thread_time();
        let polled = work.as_mut().poll(context);
        used += thread_time().saturating_sub(began);
        polled
    });
    (output.await, used)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses some processor time.
    fn work(time: Duration) {
        let began = thread_time();
        while thread_time().saturating_sub(began) < time {}
    }

    #[tokio::test(start_paused = true)]
    async fn work_of_all_polls_is_measured_and_waiting_is_not() {
        let part = Duration::from_millis(5);
        let ((), used) = measure(async {
            work(part);
            tokio::time::sleep(Duration::from_secs(3600)).await;
            work(part);
        })
        .await;
        assert!(used >= part * 2 && used < Duration::from_secs(60), "{used:?}");
        let ((), used) = metered(|| {
            assert!(is_metered());
            work(part);
            credit(part);
            credit(part);
        });
        assert!(used >= part * 3 && used < Duration::from_secs(60), "{used:?}");
        credit(part);
        assert!(!is_metered());
        assert!(metered(|| ()).1 < part, "work for a request that is not metered is not charged");
    }
}
