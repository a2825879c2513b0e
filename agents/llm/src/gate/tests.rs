//! The gate in virtual time: the pure core with simulated providers, and the shell on a paused clock.

mod fallback;
mod limits;
mod outages;
mod pacing;
mod properties;
mod shell;
mod world;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::deferral::{Deferral, DeferralReason};
use patchboard_kernel::digest::Digest;

use super::core::{Core, Jitter};
use super::types::{Endpoint, Limits, ModelKey, Request, Ticket};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn key(model: &str) -> ModelKey {
    ModelKey::new("http://127.0.0.1:1/v1", model)
}

fn endpoint(model: &str, limits: Limits) -> Arc<Endpoint> {
    Arc::new(Endpoint { key: key(model), limits, fallback_after: secs(30) })
}

fn plain(model: &str) -> Arc<Endpoint> {
    endpoint(model, Limits::default())
}

fn at_most(count: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(count)
}

fn digest(number: usize) -> Digest {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
    Digest(bytes)
}

fn request(board: &str, prompt: usize, endpoint: &Arc<Endpoint>) -> Request {
    Request {
        board: board.into(),
        endpoint: Arc::clone(endpoint),
        fallbacks: Vec::new(),
        tokens: 100,
        prompt: digest(prompt),
    }
}

fn refusal(reason: DeferralReason, wait: Option<Duration>) -> Deferral {
    let wait_ms = wait.map(|wait| u64::try_from(wait.as_millis()).expect("a short wait"));
    Deferral { wait_ms, ..Deferral::new(reason) }
}

/// Returns the refusal for status 500.
fn ambiguous() -> Deferral {
    Deferral { is_ambiguous: true, ..Deferral::new(DeferralReason::Overloaded) }
}

/// Returns jitter from a linear congruential generator.
fn jitter(seed: u64) -> Jitter {
    let mut state = seed;
    Box::new(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1_u32 << 24)
    })
}

fn core() -> Core {
    Core::new(jitter(1))
}

/// Requests admission; returns whether the call may be sent at once.
fn ask(core: &mut Core, now: Duration, request: Request) -> (Ticket, bool) {
    let ticket = core.ask(now, request);
    (ticket, admitted(core).contains(&ticket))
}

fn admitted(core: &mut Core) -> Vec<Ticket> {
    core.take_effects().admitted.into_iter().map(|admitted| admitted.ticket).collect()
}
