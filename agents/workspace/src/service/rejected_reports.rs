//! Reports of external changes that the board has rejected.

use std::collections::BTreeMap;
use std::time::Duration;

use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::files::FileChange;
use patchboard_kernel::id::Version;
use patchboard_kernel::rejection::Rejection;
use tokio::time::Instant;

/// Shortest and longest time before a rejected report is repeated at another board version. The time doubles with each
/// rejection.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Maximum number of rejected reports remembered: more than one scan can produce.
const REJECTED_REPORTS_MAX: usize = 256;

/// Rejected reports, by their content. Avoids repeats, because every attempt adds a record.
#[derive(Default)]
pub(super) struct RejectedReports(BTreeMap<Digest, RejectedReport>);

struct RejectedReport {
    rejection: Rejection,
    /// Board version at the rejection. A later version may accept the report.
    version: Version,
    pause: Duration,
    again: Instant,
}

impl RejectedReports {
    /// Returns the key of a report: its files and their content hashes.
    pub(super) fn key(changes: &[FileChange]) -> Digest {
        let what: Vec<_> = changes.iter().map(|change| (&change.path, change.hash)).collect();
        sha256(&serde_json::to_vec(&what).expect("names and hashes can be written"))
    }

    /// Returns the remembered rejection if the report must not be repeated yet.
    pub(super) fn get(&self, what: &Digest, version: Version) -> Option<Rejection> {
        let report = self.0.get(what)?;
        (report.version == version || Instant::now() < report.again).then(|| report.rejection.clone())
    }

    pub(super) fn note(&mut self, what: Digest, version: Version, rejection: Rejection) {
        let pause = self.0.get(&what).map_or(RETRY_PAUSE_MIN, |before| (before.pause * 2).min(RETRY_PAUSE_MAX));
        if self.0.len() >= REJECTED_REPORTS_MAX
            && let Some(first) = self.0.iter().min_by_key(|(_, refusal)| refusal.again).map(|(what, _)| *what)
        {
            self.0.remove(&first);
        }
        self.0.insert(what, RejectedReport { rejection, version, pause, again: Instant::now() + pause });
    }

    pub(super) fn taken(&mut self, what: &Digest) {
        self.0.remove(what);
    }
}
