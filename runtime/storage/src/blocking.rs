//! Storage for code that computes on a thread of its own: recovery, audits, archives, commands.
//!
//! The interface of storage is asynchronous, as a driver may be a network away. Folding, hashing and verifying records
//! takes a thread for long in any case. So that code runs on a thread that may block, and waits there; a driver that
//! blocks works on the same thread.

use std::cell::Cell;

use crate::journal::BoxFuture;

thread_local! {
    /// True while this thread waits for a driver, and so may block.
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
}

/// Waits for a future of a driver. Blocks: call it on a thread that serves nothing else.
pub fn wait<F: Future>(future: F) -> F::Output {
    /// Restores the mark, even after a panic.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            MAY_BLOCK.set(self.0);
        }
    }
    let _restore = Restore(MAY_BLOCK.replace(true));
    futures_executor::block_on(future)
}

/// Runs the blocking work of a driver: here if this thread may block, else on a thread for it. `failed` returns the
/// answer if the work panicked.
pub(crate) fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    failed: impl FnOnce(String) -> T + Send + 'static,
) -> BoxFuture<'static, T> {
    Box::pin(async move {
        if MAY_BLOCK.get() || tokio::runtime::Handle::try_current().is_err() {
            return work();
        }
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| failed(error.to_string()))
    })
}
