//! Order of the commands of one agent.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{CommandQueue, Order};

#[tokio::test]
async fn commands_run_in_queue_order_whichever_waits_first() {
    let turns = Arc::new(CommandQueue::new());
    // More commands than a task processes before it yields.
    let queued: Vec<_> = (0..1_000).map(|_| turns.queue()).collect();
    let numbers: Vec<u64> = queued.iter().map(|queued| queued.number).collect();
    let done = Arc::new(std::sync::Mutex::new(Vec::new()));
    join_all(queued.into_iter().rev().map(|queued| async {
        let turn = queued.turn().await.expect("a turn");
        done.lock().expect("whole").push(turn.order().number);
    }))
    .await;
    assert_eq!(*done.lock().expect("whole"), numbers);
}

#[tokio::test]
async fn unwritten_answers_are_unheard_until_the_host_knows() {
    let turns = Arc::new(CommandQueue::new());
    let begin = turns.queue().number;
    let order = |number: u64, heard: u64, unheard: &[u64]| Order {
        number: begin + number,
        heard: begin + heard - 1,
        unheard: unheard.iter().map(|number| begin + number).collect(),
    };
    let turn = turns.queue().turn().await.expect("a turn");
    assert_eq!(turn.order(), order(1, 0, &[]));
    turn.mark_answered();
    drop(turn);
    // The host did not answer, so it does not know of the first.
    let turn = turns.queue().turn().await.expect("a turn");
    assert_eq!(turn.order(), order(2, 0, &[1]));
    turn.mark_received();
    drop(turn);
    let queued = turns.queue();
    let turn = turns.queue().turn();
    drop(queued);
    let turn = turn.await.expect("a turn");
    assert_eq!(turn.order(), order(4, 0, &[1, 2]));
    turn.mark_answered();
    turn.mark_received();
    drop(turn);
    assert_eq!(turns.queue().turn().await.expect("a turn").order(), order(5, 5, &[]));
}
