//! Boards without faults.

use super::*;
use patchboard_protocols::PLANS;
use patchboard_storage::blocking::wait;

#[tokio::test(start_paused = true)]
async fn a_board_runs_until_it_is_done() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let runtime = runtime(journal.clone(), counting()).await;
    let board = create(&runtime, five_steps()).await;
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
    let snapshot = board.status();
    assert_eq!(snapshot.state.root()["steps"], json!([1, 1, 1, 1, 1]));
    assert_eq!((snapshot.version, snapshot.open, snapshot.queued), (Version(5), 0, 0));
    assert_eq!(Ok(Some(snapshot.head)), wait(journal.head(board.id())));
    let listed = wait(journal.summary(board.id())).expect("read").expect("listed");
    assert_eq!((listed.version, listed.ended), (Version(5), Some(End::Done)));
    assert_sound(&journal, board.id());
    runtime.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_learns_all_about_the_call() {
    let dir = dir();
    let (seen, mut calls) = tokio::sync::mpsc::unbounded_channel();
    let agent = agent(move |call| {
        drop(seen.send(call));
        replies(STEP)
    });
    let runtime = runtime(sqlite(dir.path()), agent).await;
    let mut blueprint = steps(2);
    blueprint.models.insert("default".to_owned(), "local".into());
    let board = create(&runtime, blueprint.clone()).await;
    board.wait_for_end().await.expect("ended");
    for number in 0..2 {
        let call = calls.recv().await.expect("called");
        assert_eq!((call.attempt, call.occurrence, call.worker.as_str()), (1, number, "walker"));
        assert_eq!(call.idempotency_key.as_str(), format!("{}:1", call.invocation));
        assert_eq!((&call.board, call.model.as_deref()), (board.id(), Some("local")));
        assert_eq!(call.timeout, Duration::from_secs(60));
        let mut seat = blueprint.workers["walker"].clone();
        seat.view.budget = Some(seat.view_budget());
        assert_eq!(*call.worker_config(), seat, "with the budget of its view");
        let journal = sqlite(dir.path());
        let bodies = wait(journal.records(board.id(), None, 100))
            .expect("read")
            .into_iter()
            .filter_map(|it| it.body().ok().cloned());
        let mut names =
            bodies.filter_map(|body| if let Body::Invoked(invoked) = body { Some(invoked.view) } else { None });
        let view = wait(journal.blob(names.nth(number as usize).expect("it was recorded"))).expect("read");
        assert!(view.is_some_and(|view| sha256(view.as_bytes()) == call.view_hash), "the view is stored");
        assert!(wait(journal.blob(call.view_hash)).expect("read").is_none(), "not under a name that can be guessed");
    }
}

#[tokio::test(start_paused = true)]
async fn two_runs_with_the_same_inputs_make_the_same_records() {
    struct Same;
    impl Ids for Same {
        fn board(&self) -> BoardId {
            "b".into()
        }
        fn salt(&self) -> Salt {
            Salt([1; 32])
        }
        fn writer(&self) -> String {
            "w".to_owned()
        }
    }
    let run = || async {
        let dir = dir();
        let journal = sqlite(dir.path());
        let options = Options { ids: Arc::new(Same), ..options(counting()) };
        let runtime = Runtime::start(Arc::new(journal.clone()), options, PLANS).await.expect("started");
        let board = runtime.create(five_steps(), Value::Null, None).await.expect("created");
        board.wait_for_end().await.expect("ended");
        records(&journal, board.id())
    };
    assert_eq!(run().await, run().await);
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_receives_every_record_without_delaying_the_board() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let options = Options { subscription_buffer: 2, ..options(counting()) };
    let runtime = Runtime::start(Arc::new(journal.clone()), options, PLANS).await.expect("started");
    let board = create(&runtime, steps(40)).await;
    let mut slow = board.subscribe(None);
    let first = slow.next().await.expect("a record").expect("read");
    assert_eq!(first.seq, Seq(0));
    board.wait_for_end().await.expect("ended without the subscriber");

    let mut late = board.subscribe(Some(Seq(7)));
    runtime.close(board.id()).await;
    for (subscription, from) in [(&mut slow, 1), (&mut late, 8)] {
        let mut seen = Vec::new();
        while let Some(record) = subscription.next().await {
            seen.push(Record::clone(&record.expect("read")));
        }
        assert_eq!(seen, records(&journal, board.id())[from..]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_proposal_is_answered_and_a_repeated_one_is_a_duplicate() {
    let dir = dir();
    let runtime = runtime(sqlite(dir.path()), agent(|_| never())).await;
    let board = create(&runtime, five_steps()).await;
    let first = board.propose(proposal("t", STEP)).await.expect("answered");
    assert!(matches!(first, Outcome::Committed { version: Version(1), .. }), "{first:?}");
    assert_eq!(board.status().version, Version(1));
    let again = board.propose(proposal("t", STEP)).await.expect("answered");
    assert!(matches!(again, Outcome::Duplicate(_)), "{again:?}");
    let refused = board.propose(proposal("u", "no patch")).await.expect("answered");
    assert!(matches!(refused, Outcome::Rejected { .. }), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_paused_board_makes_no_calls_until_it_is_resumed() {
    let dir = dir();
    let called = Arc::new(AtomicUsize::new(0));
    let agent = {
        let called = Arc::clone(&called);
        agent(move |_| {
            // The first call is still running when the board is paused.
            match called.fetch_add(1, Ordering::SeqCst) {
                0 => Box::pin(async {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    Ok(Reply::new(STEP, None))
                }),
                _ => replies(STEP),
            }
        })
    };
    let runtime = runtime(sqlite(dir.path()), agent).await;
    let board = create(&runtime, five_steps()).await;
    board.pause(None).await.expect("paused");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!((called.load(Ordering::SeqCst), board.status().version), (1, Version(1)));
    assert!(board.status().paused);
    board.resume(None).await.expect("resumed");
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
}

#[tokio::test(start_paused = true)]
async fn a_signal_wakes_a_quiescent_board_and_an_ended_one_says_so() {
    let dir = dir();
    let mut blueprint = five_steps();
    blueprint.rules.retain(|rule| rule.name.as_str() == "kick");
    let journal = sqlite(dir.path());
    let runtime = runtime(journal.clone(), counting()).await;
    let board = create(&runtime, blueprint).await;
    let over = tokio::spawn({
        let board = board.clone();
        async move { board.wait_for_final_end().await }
    });
    for version in 1..=5 {
        assert_eq!(board.wait_for_end().await.expect("ended").end, End::Quiescent);
        assert!(!over.is_finished(), "a board that stands still is not over");
        assert_eq!(wait(journal.summary(board.id())).expect("read").expect("listed").ended, Some(End::Quiescent));
        let mut records = board.subscribe(Some(board.status().head.seq));
        board.signal("kick", Value::Null, None).await.expect("woken");
        until(&mut records, Kind::Ended).await;
        assert_eq!(board.status().version, Version(version));
    }
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
    assert_eq!(over.await.expect("no panic").expect("ended").end, End::Done);
    assert_eq!(board.signal("kick", Value::Null, None).await.expect_err("over").code(), "board_over");
    assert_eq!(board.cancel().await.expect_err("over").code(), "board_over");
    assert_sound(&journal, board.id());
}

#[tokio::test(start_paused = true)]
async fn signals_that_wait_for_a_worker_take_a_bounded_memory() {
    let dir = dir();
    let mut blueprint = five_steps();
    blueprint.rules.retain(|rule| rule.name.as_str() == "kick");
    let journal = sqlite(dir.path());
    let runtime = runtime(journal.clone(), agent(|_| never())).await;
    let board = create(&runtime, blueprint).await;
    let value = Value::Array(vec![json!({"": 0}); 9000]);
    let mut heard = 0;
    let refused = loop {
        match board.signal("kick", value.clone(), None).await {
            Ok(_) => heard += 1,
            Err(refused) => break refused,
        }
    };
    assert!((6..=12).contains(&heard), "it was {heard}");
    assert_eq!(refused.code(), "backlog_full");
    assert_eq!(count(&assert_sound(&journal, board.id()), Kind::Signal), heard, "a refused one is not recorded");
    // The limit also holds on a resumed board.
    runtime.close(board.id()).await;
    let board = runtime.resume(board.id()).await.expect("resumed");
    assert_eq!(board.signal("kick", value, None).await.expect_err("no room").code(), "backlog_full");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_board_gives_up_its_calls() {
    struct Dropped(Arc<Notify>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let dir = dir();
    let (called, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let agent = {
        let (called, dropped) = (Arc::clone(&called), Arc::clone(&dropped));
        agent(move |_| {
            let (called, guard) = (Arc::clone(&called), Dropped(Arc::clone(&dropped)));
            Box::pin(async move {
                let _guard = guard;
                called.notify_one();
                std::future::pending().await
            })
        })
    };
    let runtime = runtime(sqlite(dir.path()), agent).await;
    let board = create(&runtime, five_steps()).await;
    called.notified().await;
    board.cancel().await.expect("cancelled");
    dropped.notified().await;
    assert_eq!(board.wait_for_end().await.expect("ended").end, End::Cancelled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_boards_run_side_by_side() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let runtime = Runtime::start(Arc::new(journal.clone()), Options::new(counting()), PLANS).await.expect("started");
    let mut boards = Vec::new();
    for _ in 0..16 {
        boards.push(create(&runtime, steps(10)).await);
    }
    for board in &boards {
        assert_eq!(board.wait_for_end().await.expect("ended").end, End::Done);
        assert_sound(&journal, board.id());
    }
    let mut ids: Vec<_> = boards.iter().map(|board| board.id().clone()).collect();
    ids.sort();
    assert_eq!(runtime.boards(), ids);
    runtime.shutdown().await;
    assert_eq!(boards[0].propose(proposal("t", STEP)).await.expect_err("closed").code(), "board_closed");
}

/// Agent that records the boards reported as ended.
#[derive(Default)]
struct Ended(std::sync::Mutex<Vec<BoardId>>);

impl Ended {
    fn has(&self, board: &BoardId) -> bool {
        self.0.lock().expect("nobody panicked").contains(board)
    }
}

impl Agent for Ended {
    fn call<'a>(&'a self, call: &'a Call) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>> {
        if call.occurrence == 0 { replies(STEP) } else { never() }
    }

    fn on_board_ended(&self, board: &BoardId) {
        self.0.lock().expect("nobody panicked").push(board.clone());
    }
}

#[tokio::test]
async fn an_agent_learns_when_a_board_is_not_run_here_any_more() {
    let (dir, agent) = (dir(), Arc::new(Ended::default()));
    let runtime = runtime(sqlite(dir.path()), Arc::clone(&agent) as Arc<dyn Agent>).await;
    let boards = [create(&runtime, steps(1)).await, create(&runtime, five_steps()).await];
    let [done, closed] = &boards;
    let stopped = create(&runtime, five_steps()).await;
    done.wait_for_end().await.expect("ended");
    assert!(agent.has(done.id()), "it is told before anybody sees the end");
    for board in [closed, &stopped] {
        until(&mut board.subscribe(None), Kind::Committed).await;
        assert!(!agent.has(board.id()));
    }
    runtime.close(closed.id()).await;
    assert!(agent.has(closed.id()) && !agent.has(stopped.id()));
    runtime.shutdown().await;
    assert!(agent.has(stopped.id()));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_goes_on_as_long_as_it_is_under_way() {
    let dir = dir();
    let journal = sqlite(dir.path());
    let runtime = runtime(journal.clone(), agent(|_| never())).await;
    let board = create(&runtime, five_steps()).await;
    until(&mut board.subscribe(None), Kind::Invoked).await;
    let open = board.status().open;
    assert_eq!(open, 1);
    let go_on = || board.continue_attempt(InvocationId(1), 1, None, 7);
    assert!(matches!(go_on().await, Ok(Outcome::Continued { .. })));
    assert_eq!(count(&records(&journal, board.id()), Kind::Continued), 1, "it is durable");
    board.cancel().await.expect("it ends");
    let Ok(Outcome::RejectedUnrecorded(rejection)) = go_on().await else { panic!("it is over") };
    assert_eq!(rejection.code.as_str(), "invocation_closed");
    assert_eq!(count(&assert_sound(&journal, board.id()), Kind::Continued), 1);
    runtime.shutdown().await;
}
