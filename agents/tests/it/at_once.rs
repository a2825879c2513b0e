//! Concurrent requests of an agent: the answer to one cannot have informed the others.

use std::sync::Arc;

use patchboard_workshop::Workshop;
use patchboard_workspace::session::{CommandResult, Order, Session, SessionAnswer, SessionRequest};
use patchboard_workspace::sessions::{SessionHandle, Sessions};
use serde_json::{Value, json};

fn replace(name: &str, old: &str, new: &str) -> Value {
    json!({"command": "str_replace", "path": name, "old_str": old, "new_str": new, "intent": "another one"})
}

fn view(name: &str) -> Value {
    json!({"command": "view", "path": name})
}

async fn code(session: &mut Session, arguments: Value) -> Option<String> {
    session.call(arguments).await.code
}

/// Returns a workshop with two agents and three files. The first agent has read two files; the other has changed one
/// since.
async fn overtaken() -> (Workshop, Session) {
    let files = [("a.txt", "a\n"), ("b.txt", "b\n"), ("c.txt", "c\nd\n")];
    let shop = Workshop::open(2, &json!({"annotate": false}), &files).await;
    let (mut ada, mut bob) = (shop.session(0), shop.session(1));
    for file in ["a.txt", "b.txt"] {
        assert_eq!(code(&mut ada, view(file)).await, None);
    }
    assert_eq!(code(&mut bob, view("a.txt")).await, None);
    assert_eq!(code(&mut bob, replace("a.txt", "a", "x")).await, None);
    (shop, ada)
}

#[tokio::test]
async fn edits_of_a_batch_are_judged_by_reads_before_the_batch() {
    let (_shop, mut ada) = overtaken().await;
    ada.begin_batch();
    for _ in 0..2 {
        assert_eq!(code(&mut ada, replace("b.txt", "b", "y")).await.as_deref(), Some("stale_read"));
    }
    ada.end_batch();
    assert_eq!(code(&mut ada, replace("b.txt", "b", "y")).await, None, "it was told");
}

#[tokio::test]
async fn a_view_is_no_excuse_for_what_was_asked_for_with_it() {
    let (_shop, mut ada) = overtaken().await;
    ada.begin_batch();
    for (seen, edit, refused) in [("c.txt", "c.txt", "unseen_target"), ("a.txt", "b.txt", "stale_read")] {
        assert_eq!(code(&mut ada, view(seen)).await, None);
        let old = &edit[..1];
        assert_eq!(code(&mut ada, replace(edit, old, "y")).await.as_deref(), Some(refused), "{seen} was not seen then");
    }
    ada.end_batch();
    for edit in ["c.txt", "b.txt"] {
        assert_eq!(code(&mut ada, replace(edit, &edit[..1], "y")).await, None);
    }
}

#[tokio::test]
async fn own_edits_belong_to_what_was_asked_for_with_them() {
    let (shop, mut ada) = overtaken().await;
    assert_eq!(code(&mut ada, view("a.txt")).await, None);
    assert_eq!(code(&mut ada, view("c.txt")).await, None);
    ada.begin_batch();
    let make = json!({"command": "create", "path": "n.txt", "file_text": "n\n", "intent": "a new one"});
    let rename = json!({"command": "rename", "path": "b.txt", "new_path": "e.txt", "intent": "another name"});
    let edits = [replace("c.txt", "c", "1"), replace("c.txt", "d", "2"), make, replace("n.txt", "n", "3"), rename];
    for edit in edits {
        let result: CommandResult = ada.call(edit).await;
        assert_eq!(result.code, None, "{}", result.text);
    }
    assert_eq!((shop.text("c.txt"), shop.text("n.txt")), (Some("1\n2\n".to_owned()), Some("3\n".to_owned())));
}

async fn answer(coming: impl Future<Output = SessionAnswer>) -> Option<String> {
    match coming.await {
        SessionAnswer::New(result) | SessionAnswer::Replayed(result) => result.code,
        SessionAnswer::KeyConflict => panic!("there is no key"),
    }
}

#[tokio::test]
async fn calls_arriving_before_an_answer_count_as_unaware_of_it() {
    let (shop, mut ada) = overtaken().await;
    drop(ada.call(view("a.txt")).await);
    let mut sessions = Sessions::default();
    let agent: SessionHandle =
        sessions.get_or_create(Arc::clone(&shop.workspace), shop.session(0).author().clone(), None);
    let ask = |arguments: Value| answer(agent.execute(SessionRequest::from(arguments)));
    assert_eq!(ask(view("b.txt")).await, None);
    assert_eq!(ask(view("c.txt")).await, None);
    let mut bob = shop.session(1);
    drop(bob.call(view("c.txt")).await);
    assert_eq!(code(&mut bob, replace("c.txt", "d", "z")).await, None);
    let both = (
        agent.execute(SessionRequest::from(replace("b.txt", "b", "y"))),
        agent.execute(SessionRequest::from(replace("b.txt", "b", "y"))),
    );
    let both = (answer(both.0).await, answer(both.1).await);
    assert_eq!((both.0.as_deref(), both.1.as_deref()), (Some("stale_read"), Some("stale_read")));
    assert_eq!(ask(replace("b.txt", "b", "y")).await, None, "it was told");
}

fn ordered(number: u64, heard: u64, unheard: &[u64], arguments: Value) -> SessionRequest {
    let order = Some(Order { number, heard, unheard: unheard.to_vec() });
    SessionRequest { order, ..SessionRequest::from(arguments) }
}

#[tokio::test]
async fn answers_stated_as_heard_count_as_seen_whenever_the_call_arrives() {
    let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", "a\n"), ("b.txt", "b\n")]).await;
    let mut sessions = Sessions::default();
    let agent = sessions.get_or_create(Arc::clone(&shop.workspace), shop.session(0).author().clone(), None);
    let ask = |number: u64, heard: u64, unheard: &[u64], arguments: Value| {
        answer(agent.execute(ordered(number, heard, unheard, arguments)))
    };
    assert_eq!(ask(11, 10, &[], view("a.txt")).await, None);
    assert_eq!(ask(12, 10, &[], replace("a.txt", "a", "x")).await.as_deref(), Some("unseen_target"));
    assert_eq!(ask(13, 12, &[], replace("a.txt", "a", "x")).await, None);
    // An agent's own edits count even before it has heard their answers. Views without a heard answer do not count.
    assert_eq!(ask(14, 12, &[], replace("a.txt", "x", "y")).await, None);
    assert_eq!(ask(15, 14, &[], view("b.txt")).await, None);
    assert_eq!(ask(16, 14, &[15], replace("a.txt", "y", "z")).await, None);
    let mut bob = shop.session(1);
    drop(bob.call(view("b.txt")).await);
    assert_eq!(code(&mut bob, replace("b.txt", "b", "c")).await, None);
    assert_eq!(ask(17, 16, &[], replace("a.txt", "z", "1")).await, None, "it has not read b.txt");
    assert_eq!(ask(18, 17, &[], replace("b.txt", "c", "d")).await.as_deref(), Some("unseen_target"));
    assert_eq!(ask(19, 18, &[], replace("b.txt", "c", "d")).await, None);
    assert_eq!((shop.text("a.txt"), shop.text("b.txt")), (Some("1\n".to_owned()), Some("d\n".to_owned())));
}

#[tokio::test]
async fn of_many_answers_the_last_are_kept() {
    let shop = Workshop::open(1, &json!({"annotate": false}), &[("a.txt", "a\n")]).await;
    let mut sessions = Sessions::default();
    let agent = sessions.get_or_create(Arc::clone(&shop.workspace), shop.session(0).author().clone(), None);
    let ask = |number: u64, heard: u64, arguments: Value| answer(agent.execute(ordered(number, heard, &[], arguments)));
    for number in 1..=127 {
        assert_eq!(ask(number, 0, view("a.txt")).await, None);
    }
    assert_eq!(ask(128, 0, replace("a.txt", "a", "x")).await.as_deref(), Some("unseen_target"));
    assert_eq!(ask(129, 0, replace("a.txt", "a", "x")).await, None, "what was known before the first is not kept");
}

#[tokio::test]
async fn an_agent_that_has_not_learned_that_its_reads_are_lost_starts_again() {
    let shop = Workshop::open(1, &json!({"annotate": false}), &[("a.txt", "a\n")]).await;
    let mut sessions = Sessions::default();
    let agent = sessions.get_or_create(Arc::clone(&shop.workspace), shop.session(0).author().clone(), Some(true));
    let ask = |number: u64, heard: u64, unheard: &[u64], arguments: Value| {
        answer(agent.execute(ordered(number, heard, unheard, arguments)))
    };
    let create = json!({"command": "create", "path": "n.txt", "file_text": "n\n", "intent": "a new one"});
    assert_eq!(ask(1, 0, &[], view("a.txt")).await, None);
    for number in 2..=3 {
        assert_eq!(ask(number, 0, &[], create.clone()).await.as_deref(), Some("reads_lost"));
    }
    assert_eq!(ask(4, 0, &[1, 2, 3], create.clone()).await.as_deref(), Some("reads_lost"));
    assert_eq!(ask(5, 4, &[], create).await, None);
}

#[tokio::test]
async fn a_repetition_shows_what_counts_as_read_and_nothing_else() {
    let text: String = (1..=20).map(|line| format!("line {line}\n")).collect();
    for (unheard, is_shown) in [(&[][..], true), (&[2], false)] {
        let shop = Workshop::open(2, &json!({"annotate": false}), &[("a.txt", &text)]).await;
        let mut sessions = Sessions::default();
        let agent = sessions.get_or_create(Arc::clone(&shop.workspace), shop.session(0).author().clone(), None);
        let mut see = view("a.txt");
        see["view_range"] = json!([10, 10]);
        assert_eq!(answer(agent.execute(ordered(1, 0, &[], see))).await, None);
        let keyed = |number: u64, unheard: &[u64]| SessionRequest {
            key: Some("k".to_owned()),
            ..ordered(number, 1, unheard, replace("a.txt", "line 10", "ten"))
        };
        let SessionAnswer::New(first) = agent.execute(keyed(2, &[])).await else {
            panic!("it was not asked for before")
        };
        assert!(first.code.is_none() && first.text.contains("line 7\n"), "{}", first.text);
        let SessionAnswer::Replayed(again) = agent.execute(keyed(3, unheard)).await else { panic!("it was") };
        assert_eq!((again.code.as_ref(), again.text == first.text), (None, is_shown), "{}", again.text);
        assert_eq!(again.text.contains("line 7"), is_shown, "{}", again.text);
        assert_eq!(again.data["files"][0]["version"], 2, "{}", again.data);

        let mut bob = shop.session(1);
        assert_eq!(code(&mut bob, view("a.txt")).await, None);
        assert_eq!(code(&mut bob, replace("a.txt", "line 7", "seven")).await, None);
        let make = json!({"command": "create", "path": "n.txt", "file_text": "n\n", "intent": "a new one"});
        let code = answer(agent.execute(ordered(4, 3, &[], make))).await;
        assert_eq!(code.as_deref(), is_shown.then_some("stale_read"));
    }
}

#[tokio::test]
async fn a_version_that_others_have_left_behind_is_no_basis() {
    let (_shop, mut ada) = overtaken().await;
    assert_eq!(code(&mut ada, view("a.txt")).await, None);
    let with = |version: u64, old: &str, new: &str| {
        let mut edit = replace("a.txt", old, new);
        edit["version"] = version.into();
        edit
    };
    for wrong in [1, 7] {
        let result = ada.call(with(wrong, "x", "y")).await;
        assert_eq!(result.code.as_deref(), Some("stale_target"), "{wrong}: {}", result.text);
        assert!(result.text.contains("x\n") && result.data["target"]["version"] == 2, "{}", result.text);
    }
    assert_eq!(code(&mut ada, with(2, "x", "y")).await, None);
    assert_eq!(code(&mut ada, with(2, "y", "z")).await, None, "nobody else has changed it since");
}

#[tokio::test]
async fn creating_an_existing_file_is_rejected_without_a_reservation() {
    let (shop, mut ada) = overtaken().await;
    assert_eq!(code(&mut ada, view("a.txt")).await, None);
    let make = json!({"command": "create", "path": "c.txt", "file_text": "n\n", "intent": "a new one"});
    let onto = |to: &str| json!({"command": "rename", "path": "b.txt", "new_path": to, "intent": "another name"});
    for edit in [onto("c.txt"), onto("a.txt"), make] {
        let result = ada.call(edit).await;
        assert_eq!(result.code.as_deref(), Some("file_exists"), "{}", result.text);
        assert!(result.text.contains("take another name") && !result.text.contains("meanwhile"), "{}", result.text);
    }
    let mut bob = shop.session(1);
    for file in ["b.txt", "c.txt"] {
        assert_eq!(code(&mut bob, view(file)).await, None);
        assert_eq!(code(&mut bob, replace(file, &file[..1], "y")).await, None, "it is kept for nobody");
    }
}

#[tokio::test]
async fn a_range_beyond_the_end_is_an_error() {
    let (_shop, mut ada) = overtaken().await;
    let beyond = json!({"command": "view", "path": "c.txt", "view_range": [3, 9]});
    let result = ada.call(beyond).await;
    assert_eq!(result.code.as_deref(), Some("no_such_line"), "{}", result.text);
    assert!(result.text.contains("has 2 lines"), "{}", result.text);
}

#[tokio::test]
async fn the_lines_that_come_nearest_were_read() {
    let (shop, mut ada) = overtaken().await;
    assert_eq!(code(&mut ada, view("a.txt")).await, None);
    let result = ada.call(replace("c.txt", "c\ne\n", "y\n")).await;
    assert!(result.code.as_deref() == Some("no_match") && result.text.contains("\tc\n"), "{}", result.text);
    let mut bob = shop.session(1);
    assert_eq!(code(&mut bob, view("c.txt")).await, None);
    assert_eq!(code(&mut bob, replace("c.txt", "c", "x")).await, None);
    assert_eq!(code(&mut ada, replace("b.txt", "b", "y")).await.as_deref(), Some("stale_read"));
}
