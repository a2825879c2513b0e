//! Processes that are killed or stopped while they write, and writes that were torn.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use patchboard_kernel::id::{BoardId, Seq};
use patchboard_storage::testing::Writer;
use rustix::process::{Pid, Signal, kill_process};

use crate::drivers::{Driver, for_every_driver};
use crate::journal::chain;

for_every_driver!(
    a_killed_process_loses_nothing_acknowledged,
    a_stopped_process_is_fenced_when_it_wakes,
    torn_writes_leave_a_chain,
);

/// Directory in which the child process writes.
const DIRECTORY: &str = "PATCHBOARD_STORAGE_CHILD";

/// Exit code of a child that was fenced.
const FENCED: i32 = 3;

/// Appends to a board until it is fenced, and prints every acknowledged record. Runs only as a child of other tests.
#[test]
#[ignore = "a child process of other tests"]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let journal = patchboard_storage::open(Path::new(&directory)).expect("opened");
    let mut writer = Writer::new("b");
    let mut batch = writer.created();
    loop {
        let began = Instant::now();
        match patchboard_storage::blocking::wait(journal.append(batch.clone())) {
            Ok(head) => {
                println!("acknowledged {} {}", head.seq, head.hash);
                batch = writer.signal("x");
                // Leaves the file to others most of the time, on slow disks too: each try to take it over waits.
                std::thread::sleep(began.elapsed() * 3);
            }
            Err(error) if error.code() == "journal_fenced" => std::process::exit(FENCED),
            // Another process writes at this moment.
            Err(error) => assert_eq!(error.code(), "journal_locked"),
        }
    }
}

/// Starts the child, and returns it with its first acknowledged records.
fn started(
    directory: &Path,
    records: usize,
) -> (Child, BTreeMap<Seq, String>, impl Iterator<Item = String> + Send + use<>) {
    let mut child = Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", "process::child", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines().map_while(Result::ok);
    let mut acknowledged = BTreeMap::new();
    while acknowledged.len() < records {
        note(&lines.next().expect("it goes on"), &mut acknowledged);
    }
    (child, acknowledged, lines)
}

fn note(line: &str, acknowledged: &mut BTreeMap<Seq, String>) {
    if let Some((seq, hash)) = line.strip_prefix("acknowledged ").and_then(|rest| rest.split_once(' ')) {
        acknowledged.insert(Seq(seq.parse().expect("a number")), hash.to_owned());
    }
}

async fn a_killed_process_loses_nothing_acknowledged(driver: &impl Driver) {
    let Some(directory) = driver.directory() else { return };
    let (mut child, mut acknowledged, lines) = started(directory, 50);
    child.kill().expect("killed");
    child.wait().expect("ended");
    lines.for_each(|line| note(&line, &mut acknowledged));
    let records = chain(&*driver.open(), "b").await;
    for (seq, hash) in &acknowledged {
        let record = records.get(seq.0 as usize).map(|record| record.hash.to_string());
        assert_eq!(record.as_ref(), Some(hash), "record {seq} was acknowledged");
    }
    assert!(records.len() - acknowledged.len() <= 1, "at most the last one was not");
}

async fn a_stopped_process_is_fenced_when_it_wakes(driver: &impl Driver) {
    let Some(directory) = driver.directory() else { return };
    let (mut child, _, lines) = started(directory, 20);
    std::thread::spawn(move || lines.for_each(drop));
    let pid = Pid::from_child(&child);
    let journal = driver.open();
    let board = BoardId::from("b");
    let mut owner = Writer::new("b");
    // A process stopped within a transaction holds the file: it goes on for a moment, and is stopped again.
    let mut tries = 0;
    loop {
        kill_process(pid, Signal::STOP).expect("stopped");
        let listed = journal.summary(&board).await.expect("read").expect("listed");
        (owner.head, owner.epoch) = (Some(listed.head), listed.epoch);
        match journal.append(owner.taken_over("other")).await {
            Ok(_) => break,
            Err(error) => assert!(["journal_locked", "journal_fenced"].contains(&error.code()), "{error}"),
        }
        tries += 1;
        assert!(tries < 200, "the board cannot be taken over");
        kill_process(pid, Signal::CONT).expect("continued");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    journal.append(owner.signal("mine")).await.expect("appended");
    kill_process(pid, Signal::CONT).expect("continued");
    assert_eq!(child.wait().expect("ended").code(), Some(FENCED));
    assert_eq!(journal.head(&board).await, Ok(owner.head));
    chain(&*journal, "b").await;
}

async fn torn_writes_leave_a_chain(driver: &impl Driver) {
    let journal = driver.open();
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    for number in 0..20 {
        journal.append(writer.signal(&number.to_string())).await.expect("appended");
    }
    for cut in [0, 1, 100, 4096, 4120, 10_000, 20_000] {
        let Some(torn) = driver.torn(cut) else { return };
        let torn = torn.expect("it opens, as the process must say what is lost");
        match torn.journal.records(&"b".into(), None, usize::MAX).await {
            Ok(_) => assert_eq!(chain(&*torn.journal, "b").await.len(), 21, "all records, after a cut of {cut}"),
            Err(error) => {
                assert!(cut > 0);
                assert_eq!(error.code(), "records_lost", "{error}");
            }
        }
    }
}
