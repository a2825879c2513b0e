//! A board's records as server-sent events: complete and in order, across a kill of the daemon.

use std::time::Duration;

use reqwest::{Method, Response};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon};

/// An event stream, read up to some point.
pub(crate) struct Events {
    response: Response,
    text: String,
}

/// A server-sent event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

impl Events {
    /// Follows the records after a given one, or all records.
    pub(crate) async fn of(daemon: &Daemon, board: &str, after: Option<u64>) -> Self {
        let after = after.map(|after| after.to_string());
        let headers: Vec<_> = after.iter().map(|after| ("last-event-id", after.as_str())).collect();
        let response = daemon.send(Method::GET, &format!("/v1/boards/{board}/events"), &headers, None).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    pub(crate) async fn next(&mut self) -> Event {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                // A line that begins with a colon is a keep-alive comment.
                if !event.starts_with(':') {
                    return Event::read(&event);
                }
                continue;
            }
            let chunk = self.response.chunk().await.expect("the stream goes on").expect("it has not ended");
            self.text.push_str(std::str::from_utf8(&chunk).expect("events are text"));
        }
    }
}

impl Events {
    /// Returns the remaining events.
    async fn rest(mut self) -> Vec<Event> {
        while let Some(chunk) = self.response.chunk().await.expect("the stream goes on") {
            self.text.push_str(std::str::from_utf8(&chunk).expect("events are text"));
        }
        self.text.split("\n\n").filter(|event| !event.is_empty() && !event.starts_with(':')).map(Event::read).collect()
    }
}

impl Event {
    fn read(text: &str) -> Self {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.unwrap_or_else(|| panic!("{name} is missing: {text}")).to_owned()
        };
        let id = field("id").parse().expect("a number");
        Self { id, kind: field("event"), data: serde_json::from_str(&field("data")).expect("JSON") }
    }
}

#[tokio::test]
async fn a_reader_that_follows_a_board_does_not_keep_the_daemon_from_stopping() {
    let mut daemon = Daemon::new();
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    let mut events = Events::of(&daemon, &board, None).await;
    assert_eq!(events.next().await.kind, "created");
    let begun = std::time::Instant::now();
    assert_eq!(daemon.stop(), Some(0));
    assert!(begun.elapsed().as_secs() < 15, "it waited for the reader");
    while events.response.chunk().await.is_ok_and(|chunk| chunk.is_some()) {}
}

#[tokio::test]
async fn a_journal_that_is_cut_inside_a_step_is_shown_and_called_cut() {
    let mut daemon = Daemon::new();
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    daemon.stop();
    let files = daemon.path().join("boards");
    let journal = Connection::open(files.join("patchboard.db")).expect("it is a database");
    // The last record of the step that calls the worker.
    let invoked: i64 = journal
        .query_row("SELECT min(seq) FROM records WHERE kind = 'invoked'", (), |row| row.get(0))
        .expect("the worker was called");
    let invoked = u64::try_from(invoked).expect("a number of a record");
    std::fs::remove_file(files.join("patchboard.marks")).expect("there are marks");
    let sql = format!(
        "DELETE FROM records WHERE seq >= {invoked}; UPDATE boards SET ended = NULL, version = 0, \
         (last_seq, last_hash, updated_at) = (SELECT seq, hash, at FROM records WHERE seq = {invoked} - 1)"
    );
    journal.execute_batch(&sql).expect("the journal can be cut");
    drop(journal);
    daemon.start();
    let path = format!("/v1/boards/{board}");
    let refuses = |answer: Answer| {
        let problem = answer.expect_problem(500, "bad_record");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("ends inside a step")), "{problem}");
    };
    for read in ["state", "cost", "rejections", "denials", "why?pointer=/steps", "views/walker", "agui"] {
        refuses(daemon.get(&format!("{path}/{read}")).await);
    }
    // The stream sends the existing records and then reports the missing ones.
    let page = daemon.get(&format!("{path}/journal")).await.expect_status(200);
    assert_eq!(page["records"].as_array().map(|records| records.len() as u64), Some(invoked));
    assert_eq!(page["next"], json!(invoked - 1));
    refuses(daemon.get(&format!("{path}/journal?after={}", invoked - 1)).await);
    let path = format!("{path}/events");
    let events = tokio::time::timeout(Duration::from_secs(20), daemon.get(&path)).await.expect("the stream ends").text;
    assert_eq!(events.matches("id: ").count() as u64, invoked, "{events}");
    assert!(events.ends_with("\n\n") && events.contains("event: problem\ndata: {"), "{events}");
    assert!(events.contains("\"code\":\"bad_record\""), "{events}");
}

#[tokio::test]
async fn a_reader_that_comes_back_misses_nothing() {
    let mut daemon = Daemon::new();
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    let mut events = Events::of(&daemon, &board, None).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(events.next().await);
    }
    daemon.kill();
    daemon.start();
    // A live subscriber gets new records, too.
    let last = seen.last().map(|event| event.id);
    let mut events = Events::of(&daemon, &board, last).await;
    daemon.post(&format!("/v1/boards/{board}/signals"), &json!({"name": "more"})).await.expect_status(202);
    loop {
        let event = events.next().await;
        let is_second_end = event.kind == "ended" && seen.iter().any(|event| event.kind == "ended");
        seen.push(event);
        if is_second_end {
            break;
        }
    }
    let journal = daemon.get(&format!("/v1/boards/{board}/journal")).await.expect_status(200);
    let records = journal["records"].as_array().expect("a list");
    assert_eq!(seen.len(), records.len());
    for (number, (event, record)) in (0..).zip(seen.iter().zip(records)) {
        assert_eq!(
            (event.id, &event.kind, &event.data),
            (number, &record["kind"].as_str().expect("a text").to_owned(), record)
        );
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_board_while_it_is_followed_and_after() {
    let daemon = Daemon::new();
    let board = daemon.board().await;
    daemon.until(&board, "quiescent").await;
    let mut followed = Events::of(&daemon, &board, None).await;
    assert_eq!(followed.next().await.kind, "created");
    daemon.post(&format!("/v1/boards/{board}/cancel"), &json!({})).await.expect_status(200);
    let head = daemon.get(&format!("/v1/boards/{board}")).await.expect_status(200)["head"]["seq"].as_u64();
    // A later subscriber gets every record exactly once, too, while the daemon still has the board loaded.
    let after = Events::of(&daemon, &board, Some(0)).await;
    for events in [followed, after] {
        let rest = tokio::time::timeout(std::time::Duration::from_secs(30), events.rest()).await.expect("it ends");
        assert_eq!(rest.last().map(|event| (event.kind.as_str(), Some(event.id))), Some(("ended", head)));
    }
}
