//! Limits per caller: requests, streams, memory, failures to authenticate.
//!
//! [`RateLimiter`] decides on plain data, with the time as an argument; [`Limits`] holds the current counts. Memory is
//! bounded for any number of callers: at capacity, the caller with the lowest recent usage is evicted.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{ApiResult, Code, Problem};
use super::processor_quota::ProcessorQuota;
use super::rate_key::{CALLERS_MAX, RateKey};
use crate::sizes;

/// The table `[serve.limits]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitSettings {
    /// Open connections, idle ones included.
    pub(crate) connections: usize,
    /// Open streams per caller.
    pub(crate) streams: usize,
    /// Sustained requests per second of one caller...
    pub(crate) requests_per_second: u32,
    /// ...and the burst after a pause.
    pub(crate) requests_burst: u32,
    /// Failures to authenticate per minute and address; also the burst after a pause.
    pub(crate) failures_per_minute: u32,
    /// Request timeout in seconds; does not apply to streams.
    pub(crate) request_seconds: u64,
    /// Maximum bytes of a request head, as a number or like `16KiB`.
    #[serde(deserialize_with = "sizes::deserialize_size")]
    pub(crate) head_bytes: usize,
    /// Mebibytes of memory for the bodies of all requests under way; one caller may use half.
    pub(crate) body_memory_mib: u32,
    /// Mebibytes of bodies per minute and caller; also the burst after a pause.
    pub(crate) body_mib_per_minute: u32,
    /// Percent of the machine's processor time for all callers that are not administrators, together.
    pub(crate) processor_percent: u32,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            connections: 1024,
            streams: 32,
            requests_per_second: 1000,
            requests_burst: 2000,
            failures_per_minute: 60,
            request_seconds: 90,
            head_bytes: 16 * 1024,
            body_memory_mib: 256,
            body_mib_per_minute: 512,
            processor_percent: 20,
        }
    }
}

/// Minimum of `head_bytes`: the server's read buffer.
const HEAD_BYTES_MIN: usize = 8192;

impl LimitSettings {
    pub(crate) fn validation_error(&self) -> Option<String> {
        let counts = [
            ("connections", self.connections as u64),
            ("streams", self.streams as u64),
            ("requests_per_second", self.requests_per_second.into()),
            ("requests_burst", self.requests_burst.into()),
            ("failures_per_minute", self.failures_per_minute.into()),
            ("request_seconds", self.request_seconds),
            ("body_memory_mib", self.body_memory_mib.into()),
            ("body_mib_per_minute", self.body_mib_per_minute.into()),
            ("processor_percent", self.processor_percent.into()),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Some(format!("{name} is 0: every request would be rejected"));
        }
        if self.processor_percent > 100 {
            return Some("processor_percent is at most 100".to_owned());
        }
        (self.head_bytes < HEAD_BYTES_MIN).then(|| format!("head_bytes is at least {HEAD_BYTES_MIN}"))
    }

    fn requests(&self) -> Rate {
        Rate { interval: Duration::from_secs(1) / self.requests_per_second, burst: self.requests_burst }
    }

    fn failures(&self) -> Rate {
        Rate { interval: Duration::from_secs(60) / self.failures_per_minute, burst: self.failures_per_minute }
    }

    /// Counts kibibytes.
    fn bodies(&self) -> Rate {
        let burst = self.body_mib_per_minute.saturating_mul(1024);
        Rate { interval: Duration::from_secs(60) / burst, burst }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

impl Peer {
    /// Returns the rate-limited address. For IPv6 that is the /64 network, as a host can use any address in it.
    pub(crate) fn address(self) -> IpAddr {
        match self.0.ip().to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        }
    }
}

/// Leak interval and capacity of a bucket.
#[derive(Clone, Copy)]
struct Rate {
    interval: Duration,
    burst: u32,
}

/// Leaky bucket per key, with `burst` as its capacity and one drop leaking every `drip`. Implements the generic cell
/// rate algorithm: the only state per key is the time at which its bucket is empty.
struct RateLimiter<K> {
    rate: Rate,
    empty_at: HashMap<K, Duration>,
    keys_max: usize,
}

impl<K: Copy + Eq + Hash> RateLimiter<K> {
    fn new(rate: Rate, keys_max: usize) -> Self {
        Self { rate, empty_at: HashMap::new(), keys_max }
    }

    /// Returns the time until another drop fits; `None` if it fits now.
    fn time_until_free(&self, key: &K, now: Duration) -> Option<Duration> {
        let empty_at = *self.empty_at.get(key)?;
        let room_at = (empty_at + self.rate.interval).saturating_sub(self.rate.interval * self.rate.burst);
        (room_at > now).then(|| room_at - now)
    }

    /// Adds a drop if it fits; otherwise returns the time until it does.
    fn add(&mut self, key: K, now: Duration) -> Result<(), Duration> {
        self.add_many(key, now, 1)
    }

    /// Adds `drops` if the first of them fits.
    fn add_many(&mut self, key: K, now: Duration, drops: u32) -> Result<(), Duration> {
        if let Some(wait) = self.time_until_free(&key, now) {
            return Err(wait);
        }
        if !self.empty_at.contains_key(&key) && self.empty_at.len() >= self.keys_max {
            self.forget(now);
        }
        let empty_at = self.empty_at.entry(key).or_default();
        *empty_at = (*empty_at).max(now) + self.rate.interval * drops;
        Ok(())
    }

    /// Makes room for another key: evicts the empty buckets, or else the one that is empty first.
    fn forget(&mut self, now: Duration) {
        self.empty_at.retain(|_, empty_at| *empty_at > now);
        if self.empty_at.len() >= self.keys_max
            && let Some(first) = self.empty_at.iter().min_by_key(|(_, empty_at)| **empty_at).map(|(key, _)| *key)
        {
            self.empty_at.remove(&first);
        }
    }
}

pub(crate) struct Limits {
    since: Instant,
    settings: RwLock<LimitSettings>,
    requests: Mutex<RateLimiter<RateKey>>,
    failures: Mutex<RateLimiter<IpAddr>>,
    /// Kibibytes of bodies.
    bodies: Mutex<RateLimiter<RateKey>>,
    streams: Arc<Mutex<HashMap<RateKey, usize>>>,
    /// Kibibytes of memory for bodies.
    memory: Arc<Semaphore>,
    memory_of: Arc<Mutex<HashMap<RateKey, usize>>>,
    pub(crate) shares: Arc<ProcessorQuota>,
}

impl Limits {
    pub(crate) fn new(settings: LimitSettings) -> Self {
        Self {
            since: Instant::now(),
            settings: RwLock::new(settings),
            requests: Mutex::new(RateLimiter::new(settings.requests(), CALLERS_MAX)),
            failures: Mutex::new(RateLimiter::new(settings.failures(), CALLERS_MAX)),
            bodies: Mutex::new(RateLimiter::new(settings.bodies(), CALLERS_MAX)),
            streams: Arc::default(),
            memory: Arc::new(Semaphore::new(settings.body_memory_mib as usize * KIBIBYTES)),
            memory_of: Arc::default(),
            shares: Arc::new(ProcessorQuota::new(settings.processor_percent)),
        }
    }

    /// Replaces the limits and keeps the counts. The numbers of connections and of memory permits are fixed at
    /// start-up.
    pub(crate) fn replace(&self, settings: LimitSettings) {
        let mut now = self.settings.write();
        *now = LimitSettings { body_memory_mib: now.body_memory_mib, ..settings };
        self.requests.lock().rate = settings.requests();
        self.failures.lock().rate = settings.failures();
        self.bodies.lock().rate = settings.bodies();
        self.shares.replace(settings.processor_percent);
    }

    fn settings(&self) -> LimitSettings {
        *self.settings.read()
    }

    /// Reserves memory for the text of a body; waits while other requests hold it.
    pub(crate) async fn memory(&self, by: RateKey, bytes: usize) -> ApiResult<MemoryPermit> {
        // Counted before the wait, so that one caller's requests cannot queue ahead of those of others.
        let counted = self.counted_memory(by, bytes)?;
        let place = Arc::clone(&self.memory).acquire_many_owned(counted.permits()).await;
        let place = place.map_err(|_| Problem::from_code(Code::Internal, "the daemon is stopping"))?;
        Ok(MemoryPermit { _place: place, _counted: counted })
    }

    /// Reserves memory for the parsed value of a body. Fails instead of waiting: requests that hold memory for their
    /// text and wait for more would deadlock.
    pub(crate) fn try_memory(&self, by: RateKey, bytes: usize) -> ApiResult<MemoryPermit> {
        let counted = self.counted_memory(by, bytes)?;
        let place = Arc::clone(&self.memory).try_acquire_many_owned(counted.permits());
        let place = place.map_err(|_| {
            let detail = "other requests have the memory that this body would take";
            Problem::from_code(Code::TooManyRequests, detail).retry_after(Duration::from_secs(1))
        })?;
        Ok(MemoryPermit { _place: place, _counted: counted })
    }

    fn counted_memory(&self, by: RateKey, bytes: usize) -> ApiResult<CallerShare> {
        let own = (self.settings().body_memory_mib as usize * KIBIBYTES).div_ceil(2);
        let kibibytes = bytes.div_ceil(KIBIBYTES).max(1);
        if kibibytes > own {
            let (wanted, own) = (kibibytes / KIBIBYTES, own / KIBIBYTES);
            let detail = format!("the body would take {wanted} MiB of memory, and may take {own}");
            return Err(Problem::from_code(Code::BodyTooLarge, detail).help("send fewer values at once"));
        }
        CallerShare::take(&self.memory_of, by, kibibytes, own).ok_or_else(|| {
            let detail = format!("bodies of one caller may take {} MiB of memory at once", own / KIBIBYTES);
            Problem::from_code(Code::TooManyRequests, detail).retry_after(Duration::from_secs(1))
        })
    }

    pub(crate) fn request_time(&self) -> Duration {
        Duration::from_secs(self.settings().request_seconds)
    }

    pub(crate) fn request(&self, by: RateKey) -> ApiResult<()> {
        self.requests.lock().add(by, self.since.elapsed()).map_err(|wait| {
            let most = self.settings().requests_per_second;
            Problem::from_code(Code::TooManyRequests, format!("one caller may make {most} requests a second"))
                .retry_after(wait)
        })
    }

    /// Counts the bytes of a body that was read.
    pub(crate) fn body(&self, by: RateKey, bytes: usize) -> ApiResult<()> {
        let kibibytes = u32::try_from(bytes.div_ceil(KIBIBYTES)).unwrap_or(u32::MAX);
        self.bodies.lock().add_many(by, self.since.elapsed(), kibibytes).map_err(|wait| {
            let most = self.settings().body_mib_per_minute;
            Problem::from_code(Code::TooManyRequests, format!("one caller may send {most} MiB of bodies a minute"))
                .retry_after(wait)
        })
    }

    /// Counts a failure to authenticate. Rejects an address with too many of them.
    pub(crate) fn failed(&self, from: IpAddr) -> ApiResult<()> {
        self.failures.lock().add(from, self.since.elapsed()).map_err(|wait| {
            let detail = "too many tokens that are not valid came from this address";
            Problem::from_code(Code::TooManyFailures, detail).retry_after(wait)
        })
    }

    /// Opens a stream; the place is released when dropped.
    pub(crate) fn stream(&self, by: RateKey) -> ApiResult<CallerShare> {
        let most = self.settings().streams;
        CallerShare::take(&self.streams, by, 1, most).ok_or_else(|| {
            let detail = format!("one caller may have {most} streams open");
            Problem::from_code(Code::TooManyStreams, detail).help("close one of them")
        })
    }
}

const KIBIBYTES: usize = 1024;

pub(crate) struct MemoryPermit {
    _place: OwnedSemaphorePermit,
    _counted: CallerShare,
}

/// Streams or kibibytes of a caller, given back when dropped.
pub(crate) struct CallerShare {
    by: RateKey,
    amount: usize,
    all: Arc<Mutex<HashMap<RateKey, usize>>>,
}

impl CallerShare {
    /// Takes an amount; `None` if the caller would have more than `most`.
    fn take(all: &Arc<Mutex<HashMap<RateKey, usize>>>, by: RateKey, amount: usize, most: usize) -> Option<Self> {
        let mut counts = all.lock();
        let count = counts.get(&by).copied().unwrap_or_default() + amount;
        if count > most {
            return None;
        }
        counts.insert(by, count);
        Some(Self { by, amount, all: Arc::clone(all) })
    }

    fn permits(&self) -> u32 {
        u32::try_from(self.amount).unwrap_or(u32::MAX)
    }
}

impl Drop for CallerShare {
    fn drop(&mut self) {
        let mut counts = self.all.lock();
        if let Some(count) = counts.get_mut(&self.by) {
            *count -= self.amount;
            if *count == 0 {
                counts.remove(&self.by);
            }
        }
    }
}

#[cfg(test)]
mod tests;
