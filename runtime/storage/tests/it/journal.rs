//! Appends, pages, lists, claims and followers.

use std::sync::Arc;
use std::time::Duration;

use patchboard_kernel::driver::Batch;
use patchboard_kernel::id::{BoardId, Seq, Timestamp};
use patchboard_kernel::record::{GENESIS, Kind, Record};
use patchboard_storage::journal::{Follower, Journal, JournalError};
use patchboard_storage::testing::Writer;

use crate::drivers::{Driver, for_every_driver};

for_every_driver!(
    a_batch_is_stored_wholly_or_not_at_all,
    batches_of_a_group_are_judged_each_for_itself,
    records_come_in_pages,
    lists_come_in_pages,
    a_removed_board_leaves_a_tombstone_until_it_is_back,
    a_claim_excludes_other_handles,
    a_follower_gets_every_record_once,
);

/// Returns all records of a board, after checking that they form a chain.
pub(crate) async fn chain(journal: &dyn Journal, board: &str) -> Vec<Record> {
    let records = journal.records(&board.into(), None, usize::MAX).await.expect("read");
    let mut previous = GENESIS;
    for (seq, record) in (0..).zip(&records) {
        assert_eq!(record.seq, Seq(seq));
        record.check_chain(previous).expect("it follows on the one before");
        previous = record.hash;
    }
    records
}

async fn a_batch_is_stored_wholly_or_not_at_all(driver: &impl Driver) {
    let journal = driver.open();
    let mut writer = Writer::new("b");
    let created = writer.created();
    assert_eq!(journal.append(created.clone()).await, Ok(writer.head.expect("it has one record")));
    let again = journal.append(created).await.expect_err("the board exists");
    assert_eq!(again.code(), "journal_fenced");
    let good = [writer.signal("one"), writer.signal("two"), writer.signal("three")];
    let all = |records: Vec<Record>| Batch { records, ..good[0].clone() };
    let whole: Vec<Record> = good.iter().flat_map(|batch| batch.records.clone()).collect();
    let mut broken = vec![all(Vec::new()), all(vec![whole[1].clone()]), all(vec![whole[0].clone(), whole[2].clone()])];
    let mut altered = whole.clone();
    altered[1].header.push(' ');
    broken.push(all(altered));
    for batch in broken {
        let refused = journal.append(batch).await.expect_err("it is no continuation");
        assert_eq!(refused.code(), "bad_batch");
        assert_eq!(chain(&*journal, "b").await.len(), 1);
    }
    let head = journal.append(all(whole)).await.expect("appended");
    assert_eq!((head.seq, journal.head(&"b".into()).await), (Seq(3), Ok(Some(head))));
    // Another handle sees what was acknowledged.
    assert_eq!(chain(&*driver.open(), "b").await.len(), 4);
    assert_eq!(driver.open().summary(&"b".into()).await, journal.summary(&"b".into()).await);
}

async fn batches_of_a_group_are_judged_each_for_itself(driver: &impl Driver) {
    let journal = driver.open();
    let mut writers = ["a", "b", "c"].map(Writer::new);
    let created = writers.each_mut().map(Writer::created);
    assert!(journal.append_all(created.into()).await.iter().all(Result::is_ok));
    let [a, b, c] = &mut writers;
    let stale = Batch { expected: None, ..b.signal("stale") };
    let answers = journal.append_all(vec![a.signal("x"), stale, c.signal("y")]).await;
    assert_eq!((&answers[0], &answers[2]), (&Ok(a.head.expect("a head")), &Ok(c.head.expect("a head"))));
    assert!(answers[1].is_err());
    assert_eq!(chain(&*journal, "b").await.len(), 1);
}

async fn records_come_in_pages(driver: &impl Driver) {
    let journal = driver.open();
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    for number in 0..20 {
        journal.append(writer.signal(&number.to_string())).await.expect("appended");
    }
    let all = chain(&*journal, "b").await;
    for limit in [1, 2, 7, 21, 22] {
        let (mut read, mut after) = (Vec::new(), None);
        loop {
            let page = journal.records(&"b".into(), after, limit).await.expect("read");
            let Some(last) = page.last() else { break };
            assert!(page.len() <= limit);
            after = Some(last.seq);
            read.extend(page);
        }
        assert_eq!(read, all);
    }
    assert_eq!(journal.records(&"b".into(), Some(Seq(u64::MAX)), 9).await, Ok(Vec::new()));
    assert_eq!(journal.records(&"nobody".into(), None, 9).await, Ok(Vec::new()));
    assert_eq!(journal.record(&"b".into(), Seq(4)).await, Ok(Some(all[4].clone())));
    assert_eq!(journal.record(&"b".into(), Seq(21)).await, Ok(None));
    assert_eq!(journal.head(&"nobody".into()).await, Ok(None));
}

async fn lists_come_in_pages(driver: &impl Driver) {
    let journal = driver.open();
    // All were created at one moment, so that only their ids order them.
    let ids: Vec<String> = (0..23).map(|number| format!("b{number:02}")).collect();
    for id in ids.iter().rev() {
        let mut writer = Writer::new(id);
        journal.append(writer.created()).await.expect("appended");
    }
    let listed = journal.boards().await.expect("read");
    assert_eq!(listed.iter().map(|board| board.id.as_str()).collect::<Vec<_>>(), ids);
    let mut paged = Vec::new();
    while let page = journal.board_page(paged.last().cloned(), 4).await.expect("read")
        && !page.is_empty()
    {
        assert!(page.len() <= 4);
        paged.extend(page.into_iter().map(|board| (board.created_at, board.id)));
    }
    assert_eq!(paged, listed.iter().map(|board| (board.created_at, board.id.clone())).collect::<Vec<_>>());
    for (number, board) in (0..).zip(&listed[..9]) {
        journal.remove(&board.id, board.head, None, Timestamp(100 - number / 3)).await.expect("removed");
    }
    let gone = journal.tombstones().await.expect("read");
    assert_eq!(gone.len(), 9);
    assert!(gone.is_sorted_by_key(|tombstone| (tombstone.at, tombstone.board.clone())));
    let mut paged = Vec::new();
    while let page = journal.tombstone_page(paged.last().cloned(), 2).await.expect("read")
        && !page.is_empty()
    {
        paged.extend(page.into_iter().map(|tombstone| (tombstone.at, tombstone.board)));
    }
    assert_eq!(paged, gone.into_iter().map(|tombstone| (tombstone.at, tombstone.board)).collect::<Vec<_>>());
}

async fn a_removed_board_leaves_a_tombstone_until_it_is_back(driver: &impl Driver) {
    let journal = driver.open();
    let board = BoardId::from("b");
    let mut writer = Writer::new("b");
    let mut batch = writer.created();
    journal.append(batch.clone()).await.expect("appended");
    let before = writer.head.expect("a head");
    let more = writer.signal("more");
    journal.append(more.clone()).await.expect("appended");
    let refused = journal.remove(&board, before, None, Timestamp(5)).await.expect_err("it has gone on");
    assert_eq!(refused.code(), "journal_fenced");
    let head = writer.head.expect("a head");
    journal.remove(&board, head, Some("archive/b.jsonl"), Timestamp(5)).await.expect("removed");
    let [gone] = &journal.tombstones().await.expect("read")[..] else { panic!("one tombstone") };
    assert_eq!((&gone.board, gone.head, gone.at), (&board, head, Timestamp(5)));
    assert_eq!((gone.name.as_str(), gone.archive.as_deref()), ("test", Some("archive/b.jsonl")));
    for handle in [&journal, &driver.open()] {
        assert_eq!(handle.summary(&board).await, Ok(None));
        assert_eq!(handle.records(&board, None, 9).await, Ok(Vec::new()));
        assert_eq!(handle.record_losses().await, Ok(Vec::new()), "it was removed, not lost");
    }
    assert_eq!(journal.append(writer.signal("late")).await.expect_err("it is gone").code(), "journal_fenced");
    batch.records.extend(more.records);
    journal.append(batch).await.expect("restored");
    assert_eq!(journal.tombstones().await, Ok(Vec::new()));
    assert_eq!(chain(&*journal, "b").await.len(), 2);
}

async fn a_claim_excludes_other_handles(driver: &impl Driver) {
    let (mine, theirs) = (driver.open(), driver.open());
    let board = BoardId::from("b");
    assert!(!theirs.is_claimed(&board).await);
    let claim = mine.claim(&board, false).await.expect("free");
    assert!(theirs.is_claimed(&board).await);
    let refused = theirs.claim(&board, false).await.err();
    assert_eq!(refused, Some(JournalError::Owned { board: board.clone() }));
    drop(theirs.claim(&board, true).await.expect("forced"));
    assert!(theirs.is_claimed(&board).await, "the end of a forced claim ends no other");
    drop(claim);
    assert!(!theirs.is_claimed(&board).await);
    drop(theirs.claim(&board, false).await.expect("free again"));
}

async fn a_follower_gets_every_record_once(driver: &impl Driver) {
    const RECORDS: u64 = 60;
    let (mine, theirs) = (driver.open(), driver.open());
    let followers = [(mine.clone(), None), (theirs.clone(), None), (theirs, Some(Seq(9)))].map(|(journal, after)| {
        tokio::spawn(async move {
            let mut follower = Follower::new(journal, "b".into(), after);
            let mut seqs = Vec::new();
            while seqs.last() != Some(&RECORDS) {
                // A wait that is cancelled loses nothing.
                if let Ok(page) = tokio::time::timeout(Duration::from_millis(7), follower.next(8)).await {
                    let page = page.expect("read");
                    assert!((1..=8).contains(&page.len()));
                    seqs.extend(page.iter().map(|record| record.seq.0));
                }
            }
            seqs
        })
    });
    let mut writer = Writer::new("b");
    mine.append(writer.created()).await.expect("appended");
    for number in 0..RECORDS {
        mine.append(writer.signal(&number.to_string())).await.expect("appended");
        tokio::time::sleep(Duration::from_millis(number % 3)).await;
    }
    let all: Vec<u64> = (0..=RECORDS).collect();
    for (follower, from) in followers.into_iter().zip([0, 0, 10]) {
        assert_eq!(follower.await.expect("no panic"), all[from..]);
    }
    assert!(chain(&*mine, "b").await.iter().skip(1).all(|record| record.kind == Kind::Signal));
    drop(Arc::clone(&mine));
}
