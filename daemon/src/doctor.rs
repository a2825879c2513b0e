//! Judges an installation from observations.
//!
//! Every judgement is a function of plain data; [`observe`] collects the data. A finding includes a fix.

pub(crate) mod observe;

use std::net::SocketAddr;
use std::time::Duration;

use patchboard_kernel::code_enum;
use patchboard_kernel::id::Timestamp;
use patchboard_llm::capabilities::{Capabilities, CapabilityProbeError};
use patchboard_llm::probe::{ModelList, ProbeResult};
use serde::Serialize;

use self::observe::{BindResult, DaemonPresence, DataDir, JournalCheck, ProgramLookup};
use crate::reader::{format_time, lost_help};
use patchboard_kernel::text::counted;

code_enum! {
    /// Checks, in the order in which they run.
    Check {
        Version = "version",
        Configuration = "configuration",
        DataDir = "data_dir",
        Sync = "sync",
        Disk = "disk",
        Journal = "journal",
        Boards = "boards",
        Clock = "clock",
        Files = "files",
        Models = "models",
        Abilities = "abilities",
        Embeddings = "embeddings",
        Commands = "commands",
        Daemon = "daemon",
        Address = "address",
        Tokens = "tokens",
    }
}

code_enum! {
    /// Severity of a finding.
    Severity {
        Ok = "ok",
        /// Works, but with a risk or reduced performance.
        Warning = "warning",
        Error = "error",
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: Check,
    pub(crate) severity: Severity,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// Operator's name of a model, and its capabilities.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) model_abilities: Option<ModelAbilities>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct ModelAbilities {
    pub(crate) model: String,
    pub(crate) abilities: Capabilities,
}

impl Finding {
    pub(crate) fn ok(check: Check, message: impl Into<String>) -> Self {
        Self { check, severity: Severity::Ok, message: message.into(), help: None, model_abilities: None }
    }

    fn warning(check: Check, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, help: Some(help.into()), ..Self::ok(check, message) }
    }

    pub(crate) fn error(check: Check, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { severity: Severity::Error, help: Some(help.into()), ..Self::ok(check, message) }
    }
}

/// Duration from which a disk sync counts as slow; every commit waits for one.
const SYNC_SLOW: Duration = Duration::from_millis(100);

/// Free bytes below which there is a warning: boards will stop soon.
const ROOM_LOW: u64 = 1 << 30;

/// Free bytes below which there is an error: boards stop at once.
const ROOM_OUT: u64 = 32 << 20;

/// Limit of open files below which there is a warning: a daemon with some clients exceeds it.
const FILES_LOW: u64 = 1024;

/// Limit of open files below which there is an error: a daemon without clients exceeds it.
const FILES_OUT: u64 = 128;

/// Lower bound of a plausible clock, in milliseconds since 1970: 2025-01-01, before the first version of this program.
const CLOCK_MIN: i64 = 1_735_689_600_000;

/// Tolerance for a clock behind the newest record, or jumping during the check.
const CLOCK_SLACK: Duration = Duration::from_secs(2);

pub(crate) fn data_dir(observed: &DataDir) -> Finding {
    let check = Check::DataDir;
    let choose = "choose a directory of your own with --data-dir or PATCHBOARD_DATA_DIR";
    match observed {
        DataDir::Missing { path, creatable: Ok(()) } => {
            Finding::ok(check, format!("{path} is not there yet; it can be made"))
        }
        DataDir::Missing { path, creatable: Err(why) } => {
            Finding::error(check, format!("{path} is not there and cannot be made: {why}"), choose)
        }
        DataDir::NoDirectory { path } => Finding::error(check, format!("{path} is not a directory"), choose),
        DataDir::Exists { path, written: Err(why), .. } => Finding::error(
            check,
            format!("{path} cannot be written to: {why}"),
            format!("let the user that runs patchboard own it, or {choose}"),
        ),
        DataDir::Exists { path, is_open_to_others: true, .. } => Finding::warning(
            check,
            format!("{path} may be looked into by other users of this machine"),
            format!("journals hold what users and documents say: `chmod 700 {path}`"),
        ),
        DataDir::Exists { path, .. } => Finding::ok(check, format!("{path} can be written to, by its owner alone")),
    }
}

/// Judges the duration of a disk sync; `None` if the directory is not writable.
pub(crate) fn sync(observed: &DataDir) -> Option<Finding> {
    let DataDir::Exists { written: Ok(took), .. } = observed else { return None };
    let message = format!("a sync of the disk takes {:.1} ms", took.as_secs_f64() * 1000.0);
    Some(match *took > SYNC_SLOW {
        true => Finding::warning(
            Check::Sync,
            message,
            "every commit waits for one: move the data directory to a faster disk, or find out what else keeps it busy",
        ),
        false => Finding::ok(Check::Sync, message),
    })
}

pub(crate) fn disk(free: Result<u64, String>) -> Finding {
    let help = "make room, or move the data directory";
    match free {
        Err(why) => Finding::warning(Check::Disk, format!("the room that is left is not known: {why}"), help),
        Ok(free) => {
            let message = format!("{} MiB are left on the disk", free >> 20);
            match free {
                ..ROOM_OUT => Finding::error(Check::Disk, message, help),
                ROOM_OUT..ROOM_LOW => Finding::warning(Check::Disk, message, help),
                ROOM_LOW.. => Finding::ok(Check::Disk, message),
            }
        }
    }
}

pub(crate) fn journal(observed: &JournalCheck) -> Finding {
    match observed {
        JournalCheck::None => Finding::ok(Check::Journal, "there is none yet"),
        JournalCheck::Broken { code, message } => {
            let help = match *code {
                "journal_newer" => "use the patchboard that wrote it, or a newer one",
                "not_a_journal" => "name the directory of a journal with --data-dir",
                "journal_locked" => "end the program that has it, or wait and ask again",
                "disk_unreadable" => crate::reader::DISK,
                "journal_io" | "journal_read_only" => "fix what the message names; the journal shows no damage",
                _ => {
                    "restore the data directory from a backup; `patchboard verify BOARD` says what is sound of a board"
                }
            };
            Finding::error(Check::Journal, format!("[{code}] {message}"), help)
        }
        JournalCheck::Lost(lost) => {
            let all: Vec<String> = lost.iter().map(ToString::to_string).collect();
            let boards: Vec<&str> = lost.iter().map(|lost| lost.board.as_str()).collect();
            Finding::error(Check::Journal, format!("[records_lost] {}", all.join("; ")), lost_help(boards.join(",")))
        }
        JournalCheck::Read { boards, damaged_boards, .. } if !damaged_boards.is_empty() => {
            let descriptions = damaged_boards
                .iter()
                .take(DAMAGED_MAX)
                .map(|(board, fault)| format!("{board}: [{}] {fault}", fault.code()));
            let more = damaged_boards.len().checked_sub(DAMAGED_MAX).filter(|more| *more > 0);
            let descriptions: Vec<String> = descriptions.chain(more.map(|more| format!("{more} more"))).collect();
            let message = format!(
                "{} of {} cannot be trusted: {}",
                damaged_boards.len(),
                counted(*boards, "board"),
                descriptions.join("; ")
            );
            Finding::error(
                Check::Journal,
                message,
                "`patchboard verify BOARD` says what is sound of a board, and what to do",
            )
        }
        JournalCheck::Read { took, boards, .. } => {
            let boards = counted(*boards, "board");
            let message = format!("it can be read, and nothing of {boards} was altered ({:.1} s)", took.as_secs_f64());
            Finding::ok(Check::Journal, message)
        }
    }
}

/// Maximum number of damaged boards that are named.
const DAMAGED_MAX: usize = 8;

/// Reports the boards that have not ended: running, or interrupted.
pub(crate) fn boards(observed: &JournalCheck) -> Option<Finding> {
    let JournalCheck::Read { boards, running, interrupted, failed, .. } = observed else { return None };
    let message =
        format!("{}: {running} running, {interrupted} interrupted, {failed} failed", counted(*boards, "board"));
    Some(match (*failed, *interrupted) {
        (0, 0) => Finding::ok(Check::Boards, message),
        (0, _) => Finding::warning(
            Check::Boards,
            message,
            "`patchboard serve` resumes all interrupted boards, `patchboard resume BOARD` one of them",
        ),
        _ => Finding::warning(
            Check::Boards,
            message,
            "`patchboard boards` lists them, `patchboard log BOARD` says what happened",
        ),
    })
}

/// Checks the clock against the newest record, and wall-clock time against monotonic time during the check.
pub(crate) fn clock(now: Timestamp, newest: Option<Timestamp>, by_calendar: i64, passed: Duration) -> Finding {
    let help = "set the clock, and let something like chrony or systemd-timesyncd keep it";
    let slack = i64::try_from(CLOCK_SLACK.as_millis()).unwrap_or(i64::MAX);
    let passed = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
    if now.0 < CLOCK_MIN {
        return Finding::error(Check::Clock, format!("it says {}", format_time(now)), help);
    }
    if let Some(newest) = newest.filter(|newest| newest.0 > now.0.saturating_add(slack)) {
        let behind = newest.0.saturating_sub(now.0) / 1000;
        let message = format!("it is {behind} s behind the newest record, of {}", format_time(newest));
        return Finding::error(
            Check::Clock,
            message,
            format!("recorded time does not advance until the clock has passed it: {help}"),
        );
    }
    if by_calendar.saturating_sub(passed).abs() > slack {
        let message = format!("it moved by {by_calendar} ms while {passed} ms passed");
        return Finding::warning(Check::Clock, message, help);
    }
    Finding::ok(Check::Clock, format_time(now))
}

/// Judges the process's limit of open files; `None` is unlimited.
pub(crate) fn files(limit: Option<u64>) -> Finding {
    let help = "raise it: `ulimit -n 65536`, or LimitNOFILE= in a systemd unit";
    match limit {
        None => Finding::ok(Check::Files, "as many as wanted may be open"),
        Some(limit) => {
            let message = format!("{limit} files may be open at once");
            match limit {
                ..FILES_OUT => Finding::error(Check::Files, message, help),
                FILES_OUT..FILES_LOW => Finding::warning(Check::Files, message, help),
                FILES_LOW.. => Finding::ok(Check::Files, message),
            }
        }
    }
}

pub(crate) fn abilities(name: &str, found: Result<Capabilities, CapabilityProbeError>) -> Finding {
    match found {
        Ok(abilities) => {
            let seconds = Duration::from_millis(abilities.latency_ms).as_secs_f64();
            let able = Some(ModelAbilities { model: name.to_owned(), abilities });
            Finding {
                model_abilities: able,
                ..Finding::ok(Check::Abilities, format!("{name}: it answers, in {seconds:.1} s"))
            }
        }
        Err(CapabilityProbeError { message, help }) => {
            Finding::error(Check::Abilities, format!("{name}: {message}"), help)
        }
    }
}

/// Judges the server of a model, or of embeddings. No embedding is requested, because that may cost money.
pub(crate) fn server(check: Check, name: &str, wanted: &str, probed: &ProbeResult) -> Finding {
    match probed {
        ProbeResult::NotUsable(why) => Finding::error(check, format!("{name}: {why}"), "fix it in patchboard.toml"),
        ProbeResult::Unreachable(why) => Finding::error(
            check,
            format!("{name}: {why}"),
            "start the server, or fix its url in patchboard.toml; is there a proxy or a firewall?",
        ),
        ProbeResult::Denied(status) => Finding::error(
            check,
            format!("{name}: the server answers with {status}: it does not take the key, or wants one"),
            "put the right key into the variable that api_key_env names",
        ),
        ProbeResult::Other(status) => Finding::warning(
            check,
            format!("{name}: the server answers, and does not list its models (status {status})"),
            "a short `patchboard run` tells whether it takes calls",
        ),
        ProbeResult::Answers(ModelList::All(models)) if !models.iter().any(|model| model == wanted) => {
            Finding::warning(
                check,
                format!("{name}: the server answers, and does not list {wanted}"),
                "some servers take any name; if this one does not, fix model in patchboard.toml",
            )
        }
        ProbeResult::Answers(ModelList::All(_)) => {
            Finding::ok(check, format!("{name}: the server answers, and has {wanted}"))
        }
        ProbeResult::Answers(ModelList::Unknown) => Finding::ok(check, format!("{name}: the server answers")),
    }
}

pub(crate) fn command(name: &str, program: &str, observed: &ProgramLookup) -> Finding {
    let fix = format!("fix [commands.{name}] in patchboard.toml");
    match observed {
        ProgramLookup::Executable(path) => Finding::ok(Check::Commands, format!("{name}: {path}")),
        ProgramLookup::NotExecutable(path) => Finding::error(
            Check::Commands,
            format!("{name}: {path} is not executable"),
            format!("`chmod +x {path}`, or {fix}"),
        ),
        ProgramLookup::Missing => {
            Finding::error(Check::Commands, format!("{name}: there is no program {program}"), fix)
        }
        ProgramLookup::NoDirectory(cwd) => {
            Finding::error(Check::Commands, format!("{name}: its working directory {cwd} is not there"), fix)
        }
    }
}

pub(crate) fn daemon(observed: DaemonPresence) -> Finding {
    match observed {
        DaemonPresence::Served => Finding::ok(Check::Daemon, "one is running on the data directory"),
        DaemonPresence::Free => Finding::ok(Check::Daemon, "none is running on the data directory"),
    }
}

/// Checks that `serve` could listen on the address.
pub(crate) fn address(address: SocketAddr, bound: &BindResult, placed: DaemonPresence) -> Finding {
    match bound {
        BindResult::Free => Finding::ok(Check::Address, format!("{address} is free")),
        BindResult::Taken if placed == DaemonPresence::Served => {
            Finding::ok(Check::Address, format!("{address} is taken, by the daemon as it seems"))
        }
        BindResult::Taken => Finding::error(
            Check::Address,
            format!("{address} is taken by another program"),
            "end it, or name another address with --listen or under [serve] listen",
        ),
        BindResult::Impossible(why) => Finding::error(
            Check::Address,
            format!("{address} cannot be listened on: {why}"),
            "name another address with --listen or under [serve] listen",
        ),
    }
}

/// Checks that authorized clients have access. `count` is the number of valid tokens.
pub(crate) fn tokens(is_open: bool, is_loopback: bool, count: Result<usize, String>) -> Finding {
    let check = Check::Tokens;
    match (is_open, count) {
        (_, Err(why)) => {
            Finding::error(check, format!("they cannot be read: {why}"), "restore daemon.db from a backup")
        }
        (true, Ok(_)) => {
            Finding::ok(check, "every local client on the loopback address is an administrator; no token is needed")
        }
        (false, Ok(0)) => {
            let why = if is_loopback { "they are demanded" } else { "the address is reached by others" };
            Finding::error(
                check,
                format!("there are none, and {why}: `serve` will not start"),
                "make one with `patchboard token create --scope admin`",
            )
        }
        (false, Ok(count)) => Finding::ok(check, format!("{} in force", counted(count, "token"))),
    }
}

#[cfg(test)]
mod tests;
