//! Findings of each check for given observations.

use std::net::SocketAddr;
use std::time::Duration;

use patchboard_kernel::id::Timestamp;
use patchboard_llm::probe::{ModelList, ProbeResult};

use super::observe::{BindResult, DaemonPresence, DataDir, JournalCheck, ProgramLookup};
use super::{Check, Finding, Severity, address, boards, clock, command, data_dir, disk, files, server, sync, tokens};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

#[track_caller]
fn check(finding: &Finding, severity: Severity, words: &str) {
    assert_eq!(finding.severity, severity, "{finding:?}");
    assert!(finding.message.contains(words), "{finding:?} says nothing of {words}");
    assert_eq!(finding.help.is_some(), severity != Severity::Ok, "{finding:?}: what is wrong comes with what to do");
}

#[test]
fn room_on_the_disk_is_judged_by_what_is_left() {
    check(&disk(Ok(8 << 30)), Severity::Ok, "8192 MiB");
    check(&disk(Ok(100 << 20)), Severity::Warning, "100 MiB");
    check(&disk(Ok(1 << 20)), Severity::Error, "1 MiB");
    check(&disk(Err("no such device".into())), Severity::Warning, "no such device");
}

#[test]
fn a_clock_is_held_against_the_newest_record_and_against_itself() {
    let second = Duration::from_secs(1);
    check(&clock(NOW, None, 1000, second), Severity::Ok, "2027-01-15");
    check(&clock(NOW, Some(Timestamp(NOW.0 - 5)), 1000, second), Severity::Ok, "2027");
    check(&clock(NOW, Some(Timestamp(NOW.0 + 60_000)), 1000, second), Severity::Error, "60 s behind");
    check(&clock(Timestamp(0), None, 1000, second), Severity::Error, "1970-01-01");
    check(&clock(NOW, None, 3_600_000, second), Severity::Warning, "moved by 3600000 ms");
    check(&clock(NOW, None, -3_600_000, second), Severity::Warning, "moved by -3600000 ms");
    // Clock arithmetic never overflows.
    check(&clock(NOW, Some(Timestamp(i64::MAX)), i64::MIN, Duration::MAX), Severity::Error, "behind");
}

#[test]
fn a_disk_with_slow_sync_is_a_warning() {
    let there = |took| DataDir::Exists { path: "d".into(), is_open_to_others: false, written: took };
    check(&sync(&there(Ok(Duration::from_millis(3)))).expect("it was tried"), Severity::Ok, "3.0 ms");
    check(&sync(&there(Ok(Duration::from_millis(300)))).expect("it was tried"), Severity::Warning, "300.0 ms");
    assert_eq!(sync(&there(Err("no".into()))), None, "that it cannot be written to is told once");
    check(&data_dir(&there(Err("no".into()))), Severity::Error, "no");
}

#[test]
fn limits_models_commands_addresses_and_tokens_are_judged() {
    check(&files(Some(65_536)), Severity::Ok, "65536");
    check(&files(None), Severity::Ok, "as many");
    check(&files(Some(512)), Severity::Warning, "512");
    check(&files(Some(64)), Severity::Error, "64");
    let listed =
        |models: &[&str]| ProbeResult::Answers(ModelList::All(models.iter().map(ToString::to_string).collect()));
    check(&server(Check::Models, "m", "gpt", &listed(&["gpt"])), Severity::Ok, "has gpt");
    check(&server(Check::Models, "m", "gpt", &listed(&["other"])), Severity::Warning, "does not list gpt");
    check(&server(Check::Models, "m", "gpt", &ProbeResult::Answers(ModelList::Unknown)), Severity::Ok, "answers");
    check(&server(Check::Models, "m", "gpt", &ProbeResult::Denied(401)), Severity::Error, "401");
    check(&server(Check::Models, "m", "gpt", &ProbeResult::Other(404)), Severity::Warning, "404");
    check(&server(Check::Models, "m", "gpt", &ProbeResult::Unreachable("refused".into())), Severity::Error, "refused");
    check(&server(Check::Models, "m", "gpt", &ProbeResult::NotUsable("set X".into())), Severity::Error, "set X");
    check(&server(Check::Embeddings, "embeddings", "nomic", &listed(&["nomic"])), Severity::Ok, "has nomic");
    check(
        &server(Check::Embeddings, "embeddings", "nomic", &ProbeResult::Unreachable("refused".into())),
        Severity::Error,
        "refused",
    );
    check(&command("c", "p", &ProgramLookup::NoDirectory("w".into())), Severity::Error, "working directory w");
    let here: SocketAddr = "127.0.0.1:7733".parse().expect("an address");
    check(&address(here, &BindResult::Taken, DaemonPresence::Served), Severity::Ok, "by the daemon");
    check(&address(here, &BindResult::Taken, DaemonPresence::Free), Severity::Error, "another program");
    check(&tokens(true, true, Ok(0)), Severity::Ok, "no token");
    check(&tokens(false, true, Ok(0)), Severity::Error, "demanded");
    check(&tokens(false, false, Ok(0)), Severity::Error, "by others");
    check(&tokens(false, false, Ok(2)), Severity::Ok, "2 tokens");
    check(&tokens(true, true, Err("garbage".into())), Severity::Error, "garbage");
}

#[test]
fn boards_that_failed_are_reported_before_those_that_were_interrupted() {
    let sound = |interrupted, failed| JournalCheck::Read {
        took: Duration::ZERO,
        boards: 5,
        running: 1,
        interrupted,
        failed,
        newest: None,
        damaged_boards: Vec::new(),
    };
    check(&boards(&sound(0, 0)).expect("there are some"), Severity::Ok, "1 running");
    let interrupted = boards(&sound(2, 0)).expect("there are some");
    check(&interrupted, Severity::Warning, "2 interrupted");
    assert!(interrupted.help.is_some_and(|help| help.contains("serve")));
    check(&boards(&sound(2, 1)).expect("there are some"), Severity::Warning, "1 failed");
}

#[test]
fn the_page_lists_every_check() {
    let page = include_str!("../../../docs/operations.md");
    let section = page.split("## Doctor").nth(1).expect("the page has a part about it");
    let documented: Vec<&str> =
        section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert!(documented.into_iter().eq(Check::ALL.iter().map(|check| check.as_str())));
}
