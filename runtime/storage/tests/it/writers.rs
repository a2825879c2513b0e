//! Fencing: many writers of one board, and writers that have lost it.

use std::collections::BTreeMap;

use patchboard_kernel::driver::Head;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::Record;
use patchboard_storage::testing::Writer;
use tokio::task::JoinSet;

use crate::drivers::{Driver, for_every_driver};
use crate::journal::chain;

for_every_driver!(one_of_many_writers_wins, a_writer_that_lost_its_board_is_fenced, take_overs_lose_nothing);

async fn one_of_many_writers_wins(driver: &impl Driver) {
    const WRITERS: usize = 32;
    const ROUNDS: usize = 10;
    let handles: Vec<_> = (0..4).map(|_| driver.open()).collect();
    let mut winner = Writer::new("b");
    handles[0].append(winner.created()).await.expect("appended");
    for round in 0..ROUNDS {
        let mut appends = JoinSet::new();
        for number in 0..WRITERS {
            let (journal, mut writer) = (handles[number % handles.len()].clone(), winner.clone());
            appends.spawn(async move {
                let batch = writer.signal(&format!("{round} {number}"));
                journal.append(batch).await.map(|_| writer)
            });
        }
        let (mut won, mut fenced) = (Vec::new(), 0);
        while let Some(append) = appends.join_next().await {
            match append.expect("no panic") {
                Ok(writer) => won.push(writer),
                Err(error) if error.code() == "journal_fenced" => fenced += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!((won.len(), fenced), (1, WRITERS - 1));
        winner = won.remove(0);
    }
    assert_eq!(chain(&*handles[1], "b").await.len(), ROUNDS + 1);
}

async fn a_writer_that_lost_its_board_is_fenced(driver: &impl Driver) {
    let (old, new) = (driver.open(), driver.open());
    let mut zombie = Writer::new("b");
    old.append(zombie.created()).await.expect("appended");
    let mut owner = zombie.clone();
    new.append(owner.taken_over("new")).await.expect("taken over");
    let refused = |error: patchboard_storage::journal::JournalError| assert_eq!(error.code(), "journal_fenced");
    refused(old.append(zombie.signal("late")).await.expect_err("the board has another owner"));
    // Even a writer that knows the new head is not the owner.
    let mut knowing = owner.clone();
    knowing.epoch = 0;
    refused(old.append(knowing.signal("late")).await.expect_err("the board has another owner"));
    // A claim of the same epoch comes too late.
    let mut rival = owner.clone();
    rival.epoch -= 1;
    refused(old.append(rival.taken_over("rival")).await.expect_err("the epoch is taken"));
    new.append(owner.signal("mine")).await.expect("appended");
    assert_eq!(new.summary(&"b".into()).await.expect("read").expect("listed").epoch, 1);
    assert_eq!(chain(&*old, "b").await.len(), 3);
}

async fn take_overs_lose_nothing(driver: &impl Driver) {
    const APPENDS: usize = 40;
    let board = BoardId::from("b");
    let mut writer = Writer::new("b");
    driver.open().append(writer.created()).await.expect("appended");
    let mut rivals = JoinSet::new();
    for number in 0..3 {
        let (journal, mut writer, board) = (driver.open(), writer.clone(), board.clone());
        rivals.spawn(async move {
            let mut acknowledged = BTreeMap::new();
            while acknowledged.len() < APPENDS {
                let batch = match acknowledged.len() % 4 {
                    0 => writer.taken_over(&format!("rival {number}")),
                    _ => writer.signal(&format!("{number} {}", acknowledged.len())),
                };
                match journal.append(batch).await {
                    Ok(head) => drop(acknowledged.insert(head.seq, head.hash)),
                    Err(error) => {
                        assert_eq!(error.code(), "journal_fenced");
                        // Takes the board over from where it is.
                        let listed = journal.summary(&board).await.expect("read").expect("listed");
                        (writer.head, writer.epoch) = (Some(listed.head), listed.epoch);
                        if let Ok(head) = journal.append(writer.taken_over(&format!("rival {number}"))).await {
                            acknowledged.insert(head.seq, head.hash);
                        } else {
                            let listed = journal.summary(&board).await.expect("read").expect("listed");
                            (writer.head, writer.epoch) = (Some(listed.head), listed.epoch);
                        }
                    }
                }
            }
            acknowledged
        });
    }
    let mut all: BTreeMap<Seq, _> = BTreeMap::new();
    while let Some(acknowledged) = rivals.join_next().await {
        for (seq, hash) in acknowledged.expect("no panic") {
            assert_eq!(all.insert(seq, hash), None, "record {seq} was acknowledged to two writers");
        }
    }
    let journal = driver.open();
    let records = chain(&*journal, "b").await;
    assert_eq!(records.len(), all.len() + 1, "every record was acknowledged to its writer");
    let is_there = |record: &Record| all.get(&record.seq).is_none_or(|hash| *hash == record.hash);
    assert!(records.iter().all(is_there));
    let last = records.last().map(|record| Head { seq: record.seq, hash: record.hash });
    assert_eq!(journal.head(&board).await, Ok(last));
}
