//! Memory usage of the process over time.

use std::fmt;

/// Resident memory in MB, once a second.
#[derive(Default)]
pub(crate) struct Memory(Vec<f64>);

impl Memory {
    /// Samples the current memory, if the system reports it.
    pub(crate) fn sample(&mut self) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
        self.0.extend(resident.map(|kilobytes: f64| kilobytes / 1024.0));
    }

    pub(crate) fn now(&self) -> String {
        self.0.last().map_or_else(|| "memory unknown".to_owned(), |now| format!("{now:.0} MB"))
    }

    /// Returns the median of the last fifth of the samples relative to that of the second fifth; the first fifth is
    /// warm-up.
    pub(crate) fn growth(&self) -> Option<f64> {
        Some(self.fifth(4)? / self.fifth(1)?)
    }

    fn fifth(&self, nth: usize) -> Option<f64> {
        let fifth = self.0.len() / 5;
        let mut part = self.0.get(nth * fifth..(nth + 1) * fifth)?.to_vec();
        part.sort_by(f64::total_cmp);
        part.get(part.len() / 2).copied()
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(before), Some(after)) = (self.fifth(1), self.fifth(4)) else {
            return f.write_str("too little was seen of it");
        };
        let most = self.0.iter().copied().fold(0.0, f64::max);
        write!(f, "{before:.0} MB in the second fifth of the time, {after:.0} MB in the last, {most:.0} MB at most")
    }
}
