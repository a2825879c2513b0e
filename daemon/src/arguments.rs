//! Arguments that commands share.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use patchboard_kernel::board::Board;
use patchboard_kernel::record::Record;
use patchboard_storage::journal::BoardSummary;

use crate::failure::Failure;
use crate::logging::LogFormat;
use crate::output::Format;
use crate::reader::Reader;

pub(crate) const DATA_DIR: &str = ".patchboard";

/// Environment variable that overrides [`DATA_DIR`].
pub(crate) const DATA_DIR_ENV: &str = "PATCHBOARD_DATA_DIR";

/// Options of every command.
#[derive(Args, Debug)]
pub(crate) struct CommonOptions {
    /// Data directory; boards are kept in its file patchboard.db
    #[arg(long, global = true, value_name = "DIR", env = DATA_DIR_ENV, default_value = DATA_DIR)]
    #[arg(help_heading = "Common options")]
    pub(crate) data_dir: PathBuf,
    /// Operator configuration: models and programs [default: ./patchboard.toml, if you have approved it with `trust`]
    #[arg(long, global = true, value_name = "FILE", env = "PATCHBOARD_CONFIG", help_heading = "Common options")]
    pub(crate) config: Option<PathBuf>,
    /// Output format: human-readable text, or JSON (one value per line for streams)
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", help_heading = "Common options")]
    pub(crate) output: Format,
    /// Suppress progress output on stderr; errors are still printed
    #[arg(long, short, global = true, help_heading = "Common options")]
    pub(crate) quiet: bool,
    /// Log more on stderr: -v events, -vv also views and calls; `serve` logs events by default (RUST_LOG overrides
    /// this, if set)
    #[arg(long, short, global = true, action = ArgAction::Count, help_heading = "Common options")]
    pub(crate) verbose: u8,
    /// Log format on stderr: human-readable text, or JSON (one object per line)
    #[arg(long, global = true, value_name = "FORMAT", env = "PATCHBOARD_LOG_FORMAT", default_value = "text")]
    #[arg(help_heading = "Common options")]
    pub(crate) log_format: LogFormat,
}

/// Argument that selects a board.
#[derive(Args, Debug, Clone)]
pub(crate) struct BoardArgument {
    /// The board: its id, a unique prefix of the id, or `last`
    #[arg(value_name = "BOARD")]
    pub(crate) board: String,
}

impl BoardArgument {
    /// Opens the journal of a data directory, and finds the board in it.
    pub(crate) fn open(&self, data_dir: &Path) -> Result<(Reader, BoardSummary), Failure> {
        let reader = Reader::open(data_dir)?;
        let summary = reader.find(&self.board)?;
        Ok((reader, summary))
    }

    /// Reads the board, and closes the journal again.
    pub(crate) fn read(&self, data_dir: &Path) -> Result<StoredBoard, Failure> {
        let (reader, summary) = self.open(data_dir)?;
        Ok(StoredBoard { records: reader.records(&summary.id)?, board: reader.board(&summary, None)?, summary })
    }
}

/// A board as the journal has it.
pub(crate) struct StoredBoard {
    pub(crate) summary: BoardSummary,
    pub(crate) records: Vec<Record>,
    pub(crate) board: Board,
}
