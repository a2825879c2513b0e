//! Snapshots of a simulated board, kept in memory. Each restores the same board, at any time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use patchboard_kernel::board::Board;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::id::Seq;
use patchboard_kernel::plan::Plan;
use patchboard_kernel::record::Record;
use patchboard_kernel::snapshot::SnapshotError;

use patchboard_faults::random::Random;

use super::plans::Shared;

pub(super) struct Stored {
    seed: u64,
    /// Separate generator, so that storing a board does not affect it.
    random: Random,
    parts: BTreeMap<Digest, String>,
    last: Option<(Seq, Digest)>,
    is_named: bool,
    pub(super) taken: u64,
}

impl Stored {
    pub(super) fn new(seed: u64) -> Self {
        let random = Random::new(seed ^ 0x5eed);
        Self { seed, random, parts: BTreeMap::new(), last: None, is_named: true, taken: 0 }
    }

    /// Returns a snapshot that the journal should name now.
    pub(super) fn due_to_name(&mut self) -> Option<(Seq, Digest)> {
        let due = !self.is_named && self.random.percent(50);
        self.is_named |= due;
        self.last.filter(|_| due)
    }

    /// Takes a snapshot now and then, and returns the board restored from it.
    pub(super) fn consider(&mut self, board: &Board, records: &[Record]) -> Option<Board> {
        if !self.random.percent(6) {
            return None;
        }
        let seed = self.seed;
        let Ok(stored) = board.store(false, &mut |part| {
            assert_eq!(sha256(part.text.as_bytes()), part.hash, "SEED={seed}: a part under another hash");
            for name in &part.names {
                assert!(self.parts.contains_key(name), "SEED={seed}: a part names what is not stored");
            }
            self.parts.insert(part.hash, part.text.to_string());
            Ok::<_, Infallible>(())
        });
        let digest = stored.manifest.hash;
        assert_eq!(stored.of, board.head().0, "SEED={seed}: a snapshot of another moment");
        stored.confirm();
        assert_eq!(digest, board.snapshot_digest(), "SEED={seed}: what was stored before changed the digest");
        self.last = Some((board.head().0, digest));
        self.is_named = false;
        self.taken += 1;
        let restored = self.restored(records, digest, board.plan());
        assert_eq!(restored.snapshot_digest(), digest, "SEED={seed}: a snapshot makes another board");
        Some(restored)
    }

    /// Checks that the last snapshot with the later records restores the same board as all records do.
    pub(super) fn same(&self, recovered: &Board, records: &[Record]) {
        let Some((of, digest)) = self.last else { return };
        let mut board = self.restored(records, digest, recovered.plan());
        for record in records.iter().filter(|record| record.seq > of) {
            board.fold(record).unwrap_or_else(|error| panic!("SEED={}: {error}", self.seed));
        }
        assert_eq!(board.snapshot_digest(), recovered.snapshot_digest(), "SEED={}: not the same board", self.seed);
    }

    fn restored(&self, records: &[Record], digest: Digest, plan: &Arc<Plan>) -> Board {
        let mut fetch = |hash| Ok::<_, SnapshotError>(self.parts.get(&hash).cloned());
        let restored = Board::restore(&records[0], digest, &mut fetch, &Shared::of_board(plan));
        restored.unwrap_or_else(|error| panic!("SEED={}: {error}", self.seed))
    }
}
