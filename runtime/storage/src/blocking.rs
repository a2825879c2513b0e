//! Storage for code that computes on a thread of its own: recovery, audits, archives, commands.
//!
//! The interface of storage is asynchronous, as a driver may be a network away. Folding, hashing and verifying records
//! takes a thread for long in any case, so that code runs on one that may block, and waits there.

/// Waits for a future of a driver. Blocks: call it on a thread that serves nothing else.
pub fn wait<F: Future>(future: F) -> F::Output {
    futures_executor::block_on(future)
}
