//! How much of the daemon one caller may take: requests, streams, failures to authenticate.
//!
//! [`Buckets`] decides, as plain data with the time as an argument; [`Limits`] holds what is counted now. Memory is bounded
//! whoever calls: of more callers than are kept, the one that has taken least lately is forgotten.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use patchboard_kernel::digest::Digest;
use serde::Deserialize;

use super::problem::{Answered, Code, Problem};

/// Callers of which it is known what they took lately.
const CALLERS_MAX: usize = 10_000;

/// The table `[serve.limits]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitSettings {
    /// Connections at once, idle ones included.
    pub(crate) connections: usize,
    /// Streams at once of one caller.
    pub(crate) streams: usize,
    /// Requests of one caller in a second, in the long run...
    pub(crate) requests_per_second: u32,
    /// ...and at once after a pause.
    pub(crate) requests_burst: u32,
    /// Failures to authenticate from one address in a minute, and at once after a pause.
    pub(crate) failures_per_minute: u32,
    /// Seconds that a request may take, streams excepted.
    pub(crate) request_seconds: u64,
    /// Bytes of the head of a request.
    pub(crate) head_bytes: usize,
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
        }
    }
}

/// The least that `head_bytes` can be: what the server reads at once.
const HEAD_BYTES_MIN: usize = 8192;

impl LimitSettings {
    /// What is wrong with them, if something is.
    pub(crate) fn wrong(&self) -> Option<String> {
        let counts = [
            ("connections", self.connections as u64),
            ("streams", self.streams as u64),
            ("requests_per_second", self.requests_per_second.into()),
            ("requests_burst", self.requests_burst.into()),
            ("failures_per_minute", self.failures_per_minute.into()),
            ("request_seconds", self.request_seconds),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Some(format!("{name} is 0: nobody could call"));
        }
        (self.head_bytes < HEAD_BYTES_MIN).then(|| format!("head_bytes is at least {HEAD_BYTES_MIN}"))
    }
}

/// Whom something is counted for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Counted {
    /// The holder of a token, by its hash.
    Token(Digest),
    /// Whoever calls from an address.
    Address(IpAddr),
}

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

impl Peer {
    /// The address that is counted: of version 6 the network, since whoever has one address of it has all.
    pub(crate) fn address(self) -> IpAddr {
        match self.0.ip().to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        }
    }
}

/// A bucket for each key, out of which a drop flows every `drip` and which holds `burst` of them. The generic cell rate
/// algorithm: of each is kept only when it will be empty.
struct Buckets<K> {
    drip: Duration,
    burst: u32,
    empty_at: HashMap<K, Duration>,
    keys_max: usize,
}

impl<K: Copy + Eq + Hash> Buckets<K> {
    fn new(drip: Duration, burst: u32, keys_max: usize) -> Self {
        Self { drip, burst, empty_at: HashMap::new(), keys_max }
    }

    /// How long until another drop has room; nothing if it has room now.
    fn full_for(&self, key: &K, now: Duration) -> Option<Duration> {
        let empty_at = *self.empty_at.get(key)?;
        let room_at = (empty_at + self.drip).saturating_sub(self.drip * self.burst);
        (room_at > now).then(|| room_at - now)
    }

    /// Adds a drop if it has room; otherwise says how long until it has.
    fn add(&mut self, key: K, now: Duration) -> Result<(), Duration> {
        if let Some(wait) = self.full_for(&key, now) {
            return Err(wait);
        }
        if !self.empty_at.contains_key(&key) && self.empty_at.len() >= self.keys_max {
            self.forget(now);
        }
        let empty_at = self.empty_at.entry(key).or_default();
        *empty_at = (*empty_at).max(now) + self.drip;
        Ok(())
    }

    /// Makes room for another key: forgets those that are empty, or else the one that will be first.
    fn forget(&mut self, now: Duration) {
        self.empty_at.retain(|_, empty_at| *empty_at > now);
        if self.empty_at.len() >= self.keys_max
            && let Some(first) = self.empty_at.iter().min_by_key(|(_, empty_at)| **empty_at).map(|(key, _)| *key)
        {
            self.empty_at.remove(&first);
        }
    }
}

/// What is counted.
pub(crate) struct Limits {
    since: Instant,
    settings: LimitSettings,
    requests: Mutex<Buckets<Counted>>,
    failures: Mutex<Buckets<IpAddr>>,
    streams: Arc<Mutex<HashMap<Counted, usize>>>,
}

impl Limits {
    pub(crate) fn new(settings: LimitSettings) -> Self {
        let requests =
            Buckets::new(Duration::from_secs(1) / settings.requests_per_second, settings.requests_burst, CALLERS_MAX);
        let minute = Duration::from_secs(60);
        let failures = Buckets::new(minute / settings.failures_per_minute, settings.failures_per_minute, CALLERS_MAX);
        Self {
            since: Instant::now(),
            settings,
            requests: Mutex::new(requests),
            failures: Mutex::new(failures),
            streams: Arc::default(),
        }
    }

    /// The time that a request has.
    pub(crate) const fn request_time(&self) -> Duration {
        Duration::from_secs(self.settings.request_seconds)
    }

    /// Counts a request.
    pub(crate) fn request(&self, by: Counted) -> Answered<()> {
        locked(&self.requests).add(by, self.since.elapsed()).map_err(|wait| {
            let most = self.settings.requests_per_second;
            Problem::of(Code::TooManyRequests, format!("one caller may make {most} requests a second"))
                .retry_after(wait)
        })
    }

    /// Refuses whoever has failed too often, before it is looked whether they fail again.
    pub(crate) fn may_try(&self, from: IpAddr) -> Answered<()> {
        match locked(&self.failures).full_for(&from, self.since.elapsed()) {
            None => Ok(()),
            Some(wait) => {
                let detail = "too many tokens that are not valid came from this address";
                Err(Problem::of(Code::TooManyFailures, detail).retry_after(wait))
            }
        }
    }

    /// Counts a failure to authenticate.
    pub(crate) fn failed(&self, from: IpAddr) {
        // Whoever has no room is refused before it comes to this.
        let _ = locked(&self.failures).add(from, self.since.elapsed());
    }

    /// A place for a stream, for as long as it is held.
    pub(crate) fn stream(&self, by: Counted) -> Answered<StreamPlace> {
        let mut streams = locked(&self.streams);
        let open = streams.entry(by).or_default();
        if *open >= self.settings.streams {
            let detail = format!("one caller may have {} streams open", self.settings.streams);
            return Err(Problem::of(Code::TooManyStreams, detail).help("close one that nobody reads"));
        }
        *open += 1;
        Ok(StreamPlace { by, streams: Arc::clone(&self.streams) })
    }
}

/// An open stream.
pub(crate) struct StreamPlace {
    by: Counted,
    streams: Arc<Mutex<HashMap<Counted, usize>>>,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut streams = locked(&self.streams);
        if let Some(open) = streams.get_mut(&self.by) {
            *open -= 1;
            if *open == 0 {
                streams.remove(&self.by);
            }
        }
    }
}

fn locked<T>(counts: &Mutex<T>) -> MutexGuard<'_, T> {
    // A count that a panic left half done is off by one.
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use patchboard_faults::random::Random;

    use super::{Buckets, Counted, LimitSettings, Limits, Peer};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn nobody_gets_more_than_the_burst_and_the_rate() {
        // Against a count of all that was let through.
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (rate, burst) = (1 + random.below(5), 1 + random.below(8));
            let drip = SECOND / u32::try_from(rate).expect("few");
            let mut buckets = Buckets::new(drip, u32::try_from(burst).expect("few"), 4);
            let mut let_through: BTreeMap<u64, Vec<Duration>> = BTreeMap::new();
            let mut now = Duration::ZERO;
            for _ in 0..500 {
                now += Duration::from_millis(random.below(200));
                let key = random.below(3);
                match buckets.add(key, now) {
                    Ok(()) => let_through.entry(key).or_default().push(now),
                    Err(wait) => {
                        assert!(wait > Duration::ZERO && wait <= drip, "{wait:?}");
                        assert!(buckets.full_for(&key, now + wait).is_none(), "the wait is long enough");
                    }
                }
            }
            for times in let_through.values() {
                for (first, from) in times.iter().enumerate() {
                    for (last, to) in times.iter().enumerate().skip(first) {
                        let most = burst as f64 + (*to - *from).as_secs_f64() / drip.as_secs_f64() + 1e-6;
                        assert!((last - first + 1) as f64 <= most, "seed {seed}");
                    }
                }
            }
        }
    }

    #[test]
    fn whoever_calls_memory_is_bounded() {
        let mut buckets = Buckets::new(SECOND, 3, 100);
        for key in 0..10_000 {
            assert_eq!(buckets.add(key, Duration::from_millis(key)), Ok(()));
            assert!(buckets.empty_at.len() <= 100);
        }
        // Who has taken most is not forgotten for it.
        let now = SECOND * 20;
        for _ in 0..3 {
            assert_eq!(buckets.add(77_777, now), Ok(()));
        }
        for key in 20_000..20_500 {
            assert_eq!(buckets.add(key, now), Ok(()));
        }
        assert!(buckets.add(77_777, now).is_err());
    }

    #[test]
    fn a_stream_leaves_its_place_when_it_ends() {
        let limits = Limits::new(LimitSettings { streams: 2, ..LimitSettings::default() });
        let (one, other) = ("10.0.0.1".parse().expect("an address"), "10.0.0.2".parse().expect("an address"));
        let first = limits.stream(Counted::Address(one)).expect("a place");
        let second = limits.stream(Counted::Address(one)).expect("another");
        assert!(limits.stream(Counted::Address(one)).is_err());
        assert!(limits.stream(Counted::Address(other)).is_ok());
        drop(first);
        let third = limits.stream(Counted::Address(one)).expect("a place");
        drop((second, third));
        assert!(limits.streams.lock().expect("no panic").is_empty());
    }

    #[test]
    fn addresses_of_one_network_of_version_6_are_one() {
        let address = |text: &str| Peer(text.parse().expect("an address")).address().to_string();
        assert_eq!(address("[2001:db8:1:2:3:4:5:6]:80"), "2001:db8:1:2::");
        assert_eq!(address("[::ffff:10.0.0.1]:80"), "10.0.0.1");
        assert_eq!(address("10.0.0.1:80"), "10.0.0.1");
    }

    #[test]
    fn settings_under_which_nobody_could_call_are_none() {
        assert_eq!(LimitSettings::default().wrong(), None);
        assert!(LimitSettings { streams: 0, ..LimitSettings::default() }.wrong().is_some());
        assert!(LimitSettings { head_bytes: 100, ..LimitSettings::default() }.wrong().is_some());
    }
}
