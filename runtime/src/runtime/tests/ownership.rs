//! Ownership of a board, and the state a runtime leaves behind.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_board_is_run_by_one_process_at_a_time() {
    let dir = dir();
    let here = runtime(sqlite(dir.path()), agent(|_| never())).await;
    let there = runtime(sqlite(dir.path()), counting()).await;
    let board = create(&here, five_steps()).await;
    let code = |resumed: Result<BoardHandle, RuntimeError>| resumed.err().map(|error| error.code());
    assert_eq!(code(here.resume(board.id()).await), Some("already_running"));
    assert_eq!(code(there.resume(board.id()).await), Some("board_owned"));
    assert_eq!(code(there.resume(&"none".into()).await), Some("not_found"));

    here.shutdown().await;
    assert_eq!(board.wait_for_end().await.expect_err("closed").code(), "board_closed");
    let board = there.resume(board.id()).await.expect("free");
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
    assert_sound(&sqlite(dir.path()), board.id());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_board_that_was_closed_can_be_resumed_at_once() {
    let dir = dir();
    let runtime = Arc::new(runtime(sqlite(dir.path()), agent(|_| never())).await);
    let mut boards = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let runtime = Arc::clone(&runtime);
        boards.spawn(async move {
            let board = create(&runtime, five_steps()).await.id().clone();
            for _ in 0..25 {
                runtime.close(&board).await;
                let resumed = runtime.resume(&board).await.unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(resumed.id(), &board);
            }
        });
    }
    boards.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_board_that_many_want_at_once_is_opened_for_all_of_them() {
    let dir = dir();
    let runtime = Arc::new(runtime(sqlite(dir.path()), agent(|_| never())).await);
    let board = create(&runtime, five_steps()).await.id().clone();
    for _ in 0..25 {
        runtime.close(&board).await;
        let mut wanted = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (runtime, board) = (Arc::clone(&runtime), board.clone());
            wanted.spawn(async move { runtime.get_or_resume(&board).await.map(|attached| attached.id().clone()) });
        }
        for attached in wanted.join_all().await {
            assert_eq!(attached.unwrap_or_else(|error| panic!("{error}")), board);
        }
    }
    let none = runtime.get_or_resume(&"none".into()).await.err().map(|error| error.code());
    assert_eq!(none, Some("not_found"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn attaching_waits_for_a_board_in_creation_and_fails_for_an_abandoned_one() {
    let dir = dir();
    let runtime = Arc::new(runtime(sqlite(dir.path()), agent(|_| never())).await);
    for round in 0..100 {
        let board: BoardId = format!("board-{round}").into();
        let making = {
            let (runtime, founding) =
                (Arc::clone(&runtime), CreateOptions { id: Some(board.clone()), ..CreateOptions::default() });
            tokio::spawn(async move { runtime.create_with(five_steps(), Value::Null, founding).await.map(drop) })
        };
        if round % 2 == 0 {
            making.abort();
        }
        let attached = runtime.get_or_resume(&board).await;
        match (making.await, attached) {
            (Ok(made), Ok(attached)) => {
                made.unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(attached.id(), &board);
            }
            // Creation had not begun, was cancelled, or wrote its first record after all.
            (_, Err(error)) => assert_eq!(error.code(), "not_found"),
            (Err(_), Ok(attached)) => assert_eq!(attached.id(), &board),
        }
        match runtime.get_or_resume(&board).await {
            Ok(attached) => assert_eq!(attached.id(), &board),
            Err(error) => assert_eq!((error.code(), round % 2), ("not_found", 0)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_old_owner_of_a_seized_board_can_write_no_more() {
    let dir = dir();
    let old = runtime(sqlite(dir.path()), agent(|_| never())).await;
    let new = runtime(sqlite(dir.path()), counting()).await;
    let theirs = create(&old, five_steps()).await;
    let ours = new.resume_forced(theirs.id()).await.expect("seized");
    let refused = theirs.propose(proposal("t", STEP)).await.expect_err("fenced");
    assert_eq!(refused.code(), "journal_fenced");
    assert_eq!(theirs.wait_for_end().await.expect_err("given up").code(), "journal_fenced");
    assert_eq!(ours.wait_for_end().await.expect("ended").end, End::Done);
    assert_sound(&sqlite(dir.path()), ours.id());
}

#[tokio::test(start_paused = true)]
async fn calls_that_were_lost_with_a_process_are_made_again() {
    let dir = dir();
    let called = Arc::new(Notify::new());
    let agent = {
        let called = Arc::clone(&called);
        agent(move |_| {
            called.notify_one();
            never()
        })
    };
    let crashed = runtime(sqlite(dir.path()), agent).await;
    let board = create(&crashed, five_steps()).await;
    let id = board.id().clone();
    called.notified().await;
    // Without a shutdown, the claim ends with the actors.
    crashed.running.root.stop(None);
    crashed.running.root.get_cell().wait(None).await.expect("ended");
    drop((crashed, board));

    let journal = sqlite(dir.path());
    let runtime = runtime(journal.clone(), counting()).await;
    let board = loop {
        match runtime.resume(&id).await {
            Ok(board) => break board,
            Err(error) => assert_eq!(error.code(), "board_owned"),
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
    let records = assert_sound(&journal, &id);
    let failed = records.iter().find(|record| record.kind == Kind::Failed).expect("the lost call is recorded");
    assert!(failed.header.contains(r#""code":"lost""#), "{}", failed.header);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_decides_what_has_been_asked() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let runtime = runtime(journal.clone(), agent(|_| never())).await;
    let board = create(&runtime, steps(1000)).await;
    let mut asked = tokio::task::JoinSet::new();
    for number in 0..40 {
        let board = board.clone();
        asked.spawn(async move { board.propose(proposal(&format!("t{number}"), STEP)).await });
    }
    // All proposals reach the mailbox, and none is answered yet.
    tokio::task::yield_now().await;
    let id = board.id().clone();
    let (wanted, ()) = tokio::join!(
        async {
            // The shutdown has begun and closes the board while a caller attaches to it.
            tokio::task::yield_now().await;
            assert_eq!(board.wait_for_end().await.expect_err("closed").code(), "board_closed");
            runtime.get_or_resume(&id).await.map(drop)
        },
        runtime.shutdown()
    );
    assert_eq!(wanted.expect_err("nothing is taken over any more").code(), "board_closed");
    let mut committed = 0;
    while let Some(answer) = asked.join_next().await {
        match answer.expect("no panic") {
            Ok(outcome) => {
                assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
                committed += 1;
            }
            Err(error) => assert_eq!(error.code(), "board_closed"),
        }
    }
    assert_eq!(committed, 40);
    assert_eq!(count(&assert_sound(&journal, board.id()), Kind::Committed), committed);
}

#[tokio::test(start_paused = true)]
async fn a_board_with_a_bad_record_is_not_run() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let first = runtime(journal.clone(), counting()).await;
    let board = create(&first, five_steps()).await;
    board.wait_for_end().await.expect("ended");
    first.shutdown().await;
    let shell = rusqlite::Connection::open(dir.path().join(patchboard_storage::sqlite::FILE)).expect("opened");
    shell.execute("UPDATE records SET header = replace(header, '1', '2') WHERE seq = 4", ()).expect("changed");
    let second = runtime(journal, counting()).await;
    match second.resume(board.id()).await.err() {
        Some(RuntimeError::Board(BoardError::BadRecord { seq: Seq(4), .. })) => {}
        other => panic!("{other:?}"),
    }
}
