//! Storage: archives, tombstones and vacuums.

use std::path::Path;

use patchboard_kernel::id::{BoardId, Timestamp};
use patchboard_runtime::archive::{self, ArchiveError};
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::{BoardSummary, Journal, Tombstone, VacuumStats};
use serde::Serialize;
use utoipa::ToSchema;

use super::parts::HeadInfo;
use crate::failure::Failure;
use crate::reader::storage;

/// Report of a vacuum.
#[derive(Serialize, ToSchema)]
pub struct VacuumReport {
    /// Bytes of the journal's file before.
    bytes_before: u64,
    /// Bytes of the journal's file after.
    bytes_after: u64,
    /// Number of removed texts that no record references.
    texts_removed: u64,
}

impl From<VacuumStats> for VacuumReport {
    fn from(vacuumed: VacuumStats) -> Self {
        let VacuumStats { before, after, texts } = vacuumed;
        Self { bytes_before: before, bytes_after: after, texts_removed: texts }
    }
}

/// Report of the move of a board into an archive.
#[derive(Serialize, ToSchema)]
pub struct ArchiveReport {
    /// Board id.
    #[schema(value_type = String)]
    pub board: BoardId,
    /// Path of the archive file.
    pub archive: String,
}

/// Report of the restoration of a board.
#[derive(Serialize, ToSchema)]
pub struct RestoreReport {
    /// Board id.
    #[schema(value_type = String)]
    pub board: BoardId,
}

/// Board that was archived or deleted.
#[derive(Serialize, ToSchema)]
#[schema(as = Tombstone)]
pub struct TombstoneInfo {
    /// Board id.
    #[schema(value_type = String)]
    board: BoardId,
    /// Name of the blueprint.
    blueprint: String,
    /// Last record of the board.
    head: HeadInfo,
    /// Time of the removal, in milliseconds since 1970.
    #[schema(value_type = i64)]
    removed_at: Timestamp,
    /// Path of the archive file; null if the board was deleted.
    #[schema(required)]
    archive: Option<String>,
}

impl From<&Tombstone> for TombstoneInfo {
    fn from(tombstone: &Tombstone) -> Self {
        let Tombstone { board, name, head, at, archive } = tombstone;
        Self {
            board: board.clone(),
            blueprint: name.clone(),
            head: HeadInfo::new(head.seq, head.hash),
            removed_at: *at,
            archive: archive.clone(),
        }
    }
}

/// Archived and deleted boards.
#[derive(Serialize, ToSchema)]
pub(crate) struct ArchiveList {
    /// Boards.
    pub(crate) boards: Vec<TombstoneInfo>,
}

/// Returns the boards of a journal, and those of its archives.
pub fn boards_and_archived(journal: &dyn Journal, data_dir: &Path) -> Result<Vec<BoardSummary>, Failure> {
    let mut boards = wait(journal.boards()).map_err(storage)?;
    boards.extend(archive::archived_summaries(journal, &*patchboard_storage::archives(data_dir)).map_err(storage)?);
    Ok(boards)
}

/// Converts an archive error to a command-line failure.
pub fn failure(error: ArchiveError) -> Failure {
    match error {
        ArchiveError::Journal(error) => storage(error),
        ArchiveError::NotEnded(_) | ArchiveError::Exists(_) => Failure::invalid_input(error.code(), &error),
        ArchiveError::Damaged { .. } => {
            Failure::failed(error.code(), &error).help("use another copy of the file; nothing was changed")
        }
        ArchiveError::BadId { .. } => Failure::failed(error.code(), &error)
            .help("find out who made the file: `patchboard archive` did not; nothing was changed"),
        ArchiveError::Outdated { .. } => Failure::invalid_input(error.code(), &error).help(
            "values erased since then would return: use the last archive of the board; `patchboard archive` lists them",
        ),
        other => Failure::failed(other.code(), &other),
    }
}
