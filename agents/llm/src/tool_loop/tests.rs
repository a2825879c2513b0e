//! Room of results, truncation of conversations, ids of calls.

use super::*;

fn talk(context: usize) -> Conversation<'static> {
    let messages = vec![Message::new(Role::System, "s".repeat(40)), Message::new(Role::User, "u".repeat(40))];
    Conversation { messages, ids: BTreeSet::new(), generated_ids: 0, tools: 20, reply_tokens: 10, context }
}

fn use_of(id: &str) -> ToolCall {
    let (extra, extra_function) = (Map::new(), Map::new());
    ToolCall { id: id.to_owned(), name: "view".into(), arguments: "{}".into(), extra, extra_function }
}

fn round(talk: &mut Conversation<'_>, id: usize, chars: usize) {
    let call = use_of(&format!("c{id}"));
    let calls = vec![call.clone()];
    talk.push_completion(Completion {
        text: String::new(),
        raw: String::new(),
        calls,
        end: super::super::reply::FinishReason::Stopped,
        extra: serde_json::Map::new(),
        usage: None,
    });
    talk.messages.push(Message::result(&call, "r".repeat(chars)));
}

#[test]
fn results_share_half_of_the_context() {
    let small = talk(100);
    for (of, most) in [(1, 100), (2, 100), (4, 50), (200, 1)] {
        assert_eq!(small.room(of), most);
    }
    assert_eq!(talk(1_000_000).room(1), ROOM_MAX);
}

#[test]
fn truncation_drops_the_oldest_results_and_keeps_unseen_ones() {
    let mut talk = talk(310);
    // 1,110 characters of messages; the limit is (310 - 10) * 4 - 20.
    for id in 0..5 {
        round(&mut talk, id, 200);
    }
    talk.truncate();
    let results = |talk: &Conversation<'_>| -> Vec<usize> {
        talk.messages.iter().filter(|one| one.role == Role::Tool).map(|one| one.content.len()).collect()
    };
    assert_eq!(results(&talk), [200; 5]);
    round(&mut talk, 5, 200);
    talk.truncate();
    let short = SHOWN_EARLIER.len();
    assert_eq!(results(&talk), [short, short, short, short, 200, 200], "two thirds are left");
    assert!(talk.needed() <= 310);
    let before = serde_json::to_value(&talk.messages).expect("JSON");
    talk.truncate();
    assert_eq!(serde_json::to_value(&talk.messages).expect("JSON"), before, "there is room now");
}

#[test]
fn ids_are_unique_in_a_conversation() {
    let mut talk = talk(100);
    let mut ids = Vec::new();
    for given in [&["", ""][..], &["call_0"], &["call_0", "call00004"], &["call_0", ""]] {
        let mut calls: Vec<ToolCall> = given.iter().map(|id| use_of(id)).collect();
        talk.identify(&mut calls);
        ids.extend(calls.into_iter().map(|call| call.id));
    }
    assert_eq!(ids[..4], ["call00001", "call00002", "call_0", "call00003"]);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
}

#[test]
fn a_reply_by_a_tool_is_an_object_and_its_patch_a_list() {
    let patch = |text: &str| reply_from_answer_tool(text, Interface::Patch);
    assert_eq!(patch(" {\"patch\": []} "), Ok("{\"patch\": []}".to_owned()));
    for bad in ["", "[]", "{", "null", "{} {}"] {
        assert!(patch(bad).is_err(), "{bad}");
    }
    let list = serde_json::json!([{"op": "remove", "path": "/a"}]);
    let once = Value::from(list.to_string());
    for written in [once.clone(), Value::from(once.to_string())] {
        let arguments = serde_json::json!({"intent": "x", "patch": written}).to_string();
        let read: Value = serde_json::from_str(&patch(&arguments).expect("an object")).expect("JSON");
        assert_eq!(read, serde_json::json!({"intent": "x", "patch": list}));
        assert_eq!(
            reply_from_answer_tool(&arguments, Interface::Merge),
            Ok(arguments),
            "it is a value of the board there"
        );
    }
    for kept in [r#"{"patch": "later"}"#, r#"{"patch": "{}"}"#] {
        assert_eq!(patch(kept), Ok(kept.to_owned()));
    }
}
