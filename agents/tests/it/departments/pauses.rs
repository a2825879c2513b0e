//! Open questions, and the next message's effect on them.

use serde_json::{Value, json};

use super::{Conversation, clipboard};
use crate::embeddings;

#[tokio::test]
async fn an_offer_is_taken_by_a_yes_and_by_nothing_else() {
    let conversation = Conversation::begin().await;
    conversation.say("Put bananas on the household list.").await;
    let refused = conversation.say("Throw the bananas off the office list.").await;
    assert_eq!(
        (&refused["results"][0]["status"], &refused["results"][0]["pending"]["offer"]),
        (&json!("refusal"), &json!(true))
    );
    // The message names the offered row's list, but is another request.
    let put = conversation.say("Put bananas on the office list.").await;
    assert_eq!((&put["turn"]["pending"], &put["turn"]["waits"]["department"]), (&Value::Null, &json!("notes")));
    assert_eq!(conversation.lists().await, ["On the household list: bananas.", "On the office list: bananas."]);
    conversation.say("Put tea on the office list.").await;
    conversation.say("Throw the tea off the household list.").await;
    assert_eq!(conversation.reply("Yes, please.").await, "Took tea off the office list.");
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn a_negation_chooses_nothing() {
    let conversation = Conversation::begin().await;
    conversation.say("Put bananas on the household list.").await;
    conversation.say("Put bananas on the office list.").await;
    conversation.say("Throw the bananas off the list.").await;
    let refused = conversation.say("no, not the household one").await;
    assert_eq!(
        (&refused["turn"]["pending"], &refused["results"][0]["finding"]),
        (&Value::Null, &json!("unknown_action"))
    );
    assert_eq!(conversation.lists().await, ["On the household list: bananas.", "On the office list: bananas."]);
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn other_messages_leave_the_question_pending() {
    let conversation = Conversation::begin().await;
    assert_eq!(conversation.reply("Dentist at half past nine.").await, "on which day?");
    assert_eq!(conversation.reply("Never mind.").await, "Nothing was done, as the user does not want it.");
    assert_eq!(conversation.say("What is on Friday?").await["results"][0]["finding"], "not_found");
    conversation.say("Dentist at half past nine.").await;
    for other in ["Sing me a song.", "Show the office list."] {
        let state = conversation.say(other).await;
        assert_eq!(
            (&state["turn"]["pending"], &state["turn"]["waits"]["question"]),
            (&Value::Null, &json!("on which day?"))
        );
    }
    // Only a model can read the day from these words.
    assert_eq!(conversation.reply("on Friday, if he is there").await, "dentist is on Friday at 9:30.");
    assert_eq!(conversation.say("Sing me a song.").await["turn"]["waits"], Value::Null, "it is answered");
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn a_new_request_is_done_and_answers_nothing() {
    let conversation = Conversation::begin().await;
    conversation.say("Put bananas on the household list.").await;
    conversation.say("Put bananas on the office list.").await;
    conversation.say("Throw the bananas off the list.").await;
    assert_eq!(conversation.reply("Put milk on the household list.").await, "Put milk on the household list.");
    assert_eq!(
        conversation.lists().await,
        ["On the household list: bananas and milk.", "On the office list: bananas."]
    );
    // A run of another department leaves the question open.
    conversation.say("Throw the bananas off the list.").await;
    assert_eq!(conversation.say("What is on Friday?").await["turn"]["waits"]["department"], "notes");
    assert_eq!(conversation.reply("the office one").await, "Took bananas off the office list.");
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn a_pause_is_a_state_that_the_next_words_go_on_from() {
    let conversation = Conversation::begin().await;
    conversation.say("Put bananas on the household list.").await;
    conversation.say("Put bananas on the office list.").await;
    let asked = conversation.say("Throw the bananas off the list.").await;
    let result = &asked["results"][0];
    assert_eq!((&result["status"], &result["department"]), (&json!("clarification"), &json!("notes")));
    let question = result["question"].as_str().expect("a question");
    assert!(question.contains("household") && question.contains("office"), "{question}");
    let state = conversation.say("the household one").await;
    assert_eq!(state["turn"]["pending"]["department"], "notes");
    // The planner did not choose the department: the words went to the one that had asked. It ran once, afterwards.
    assert_eq!(state["decisions"], json!([{"agent": "nobody"}]));
    assert_eq!(state["results"][0]["status"], "done");
    assert_eq!(state["replies"], json!([{"text": "Took bananas off the household list."}]));
    assert_eq!((&state["turn"]["n"], &state["messages"]), (&json!(4), &json!([])));
    conversation.board.signal("close", Value::Null, None).await.expect("it is heard");
    conversation.rest().await;
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn a_match_by_meaning_asks_for_confirmation() {
    let (config, _endpoint) = embeddings::configured();
    let conversation = Conversation::with(clipboard(), config).await;
    conversation.say("Put bananas on the household list.").await;
    let asked = conversation.say("Throw the plantains off the list.").await;
    assert_eq!(asked["results"][0]["status"], "clarification", "{asked}");
    let reply = asked["replies"][0]["text"].as_str().expect("a reply");
    assert!(reply.starts_with("did you mean bananas"), "{reply}");
    let state = conversation.say("yes").await;
    assert_eq!(state["replies"], json!([{"text": "Took bananas off the household list."}]));
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn other_requests_of_a_message_run_beside_several_pending_questions() {
    let conversation = Conversation::begin().await;
    conversation.say("Put bananas on the household list.").await;
    conversation.say("Put bananas on the office list.").await;
    let statuses = |state: &Value| {
        let results = state["results"].as_array().expect("results").iter();
        results.map(|result| (result["department"].clone(), result["status"].clone())).collect::<Vec<_>>()
    };
    let of = |department: &str, status: &str| (json!(department), json!(status));
    // One department asks; the other's request is done in the same turn.
    let state = conversation.say("Throw the bananas off the list. What is on Friday?").await;
    assert_eq!(statuses(&state), [of("notes", "clarification"), of("timeline", "error")]);
    assert_eq!(state["decisions"], json!([{"agent": "notes"}, {"agent": "timeline"}, {"agent": "nobody"}]));
    assert_eq!(conversation.reply("the office one").await, "Took bananas off the office list.");
    // Both ask; each receives its own answer.
    conversation.say("Put bananas on the office list.").await;
    let state = conversation.say("Throw the bananas off the list. Dentist at half past nine.").await;
    assert_eq!(statuses(&state), [of("notes", "clarification"), of("timeline", "clarification")]);
    let state = conversation.say("the household one").await;
    assert_eq!(state["results"][0]["text"], "Took bananas off the household list.");
    assert_eq!(state["turn"]["open"][0]["department"], "timeline");
    assert_eq!(conversation.reply("on Friday").await, "dentist is on Friday at 9:30.");
    // All requests of a message are done in one turn.
    let state = conversation.say("Put tea on the office list. What is on Friday?").await;
    assert_eq!(statuses(&state), [of("notes", "done"), of("timeline", "done")]);
    assert_eq!(state["decisions"], json!([{"agent": "notes"}, {"agent": "timeline"}, {"agent": "nobody"}]));
    assert_eq!(conversation.lists().await, ["On the household list: nothing.", "On the office list: bananas and tea."]);
    conversation.runtime.shutdown().await;
}
