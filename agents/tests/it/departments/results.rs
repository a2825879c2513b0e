//! Reported results of departments, and of planners that fail.

use std::time::Duration;

use patchboard_agents::config::Config;
use patchboard_kernel::id::Timestamp;
use patchboard_protocols::department::Department;
use patchboard_roles::departments::crud::execute;
use patchboard_roles::departments::storage::Storage;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Conversation, LONG, clipboard, clipboard_with};

const UNDECIDED: &str = "It could not be decided who works on this, so beside what other results say nothing was done.";

#[tokio::test]
async fn a_turn_without_a_department_is_reported_as_it_is() {
    let conversation = Conversation::begin().await;
    let result = |state: &Value, at: usize| state["results"][at].clone();
    // After any number of planner failures, the next turn works as usual.
    for _ in 0..3 {
        let state = conversation.say("Rubbish").await;
        assert_eq!(result(&state, 0), json!({"department": "nobody", "status": "error", "text": UNDECIDED}));
        assert_eq!(state["replies"], json!([{"text": UNDECIDED}]));
    }
    // A planner failure after a result is reported beside that result.
    let state = conversation.say("Put bananas on the household list. Then rubbish").await;
    assert_eq!((&result(&state, 0)["status"], &result(&state, 1)["text"]), (&json!("done"), &json!(UNDECIDED)));
    // A department with a failing nested board, and one with a lost call.
    let state = conversation.say("Unclear").await;
    let failed = "the board inside ended as quiescent (gave_up)";
    assert_eq!(result(&state, 0), json!({"department": "notes", "status": "error", "text": failed}));
    assert_eq!(state["replies"], json!([{"text": failed}]));
    let state = conversation.say("Lose this").await;
    let lost = "The department that was chosen came to no result; whether it has changed anything is not known.";
    assert_eq!(state["replies"], json!([{"text": lost}]));
    // A queued message does not take the turn of a failed one.
    let before = conversation.replies().len();
    for words in ["Rubbish", "Lose this", "Put bananas on the office list."] {
        conversation.board.signal("say", words.into(), None).await.expect("it is heard");
    }
    for _ in 0..500 {
        if conversation.replies().len() == before + 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(conversation.replies()[before..], [UNDECIDED, lost, "Put bananas on the office list."]);
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn a_planner_decides_one_thing_at_a_time_and_no_department_twice() {
    let conversation = Conversation::begin().await;
    let state = conversation.say("Two at once").await;
    assert_eq!(state["decisions"], json!([]), "two decisions of one pass are none");
    assert_eq!(state["replies"], json!([{"text": UNDECIDED}]));
    let state = conversation.say("Put tea on the office list. And again").await;
    assert_eq!(state["decisions"], json!([{"agent": "notes"}]));
    assert_eq!((&state["results"][0]["status"], &state["results"][1]["text"]), (&json!("done"), &json!(UNDECIDED)));
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn a_silent_worker_is_asked_once_more() {
    let conversation = Conversation::begin().await;
    assert_eq!(conversation.reply("Silence").await, "nobody");
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn messages_beyond_the_backlog_are_rejected_and_accepted_ones_are_all_answered() {
    let conversation = Conversation::begin().await;
    conversation.board.pause(None).await.expect("it pauses");
    let say = |words: String| conversation.board.signal("say", words.into(), None);
    for number in 0..127 {
        say(format!("hm {number}")).await.expect("there is room");
    }
    let refused = say("one more".to_owned()).await.expect_err("there is no room");
    assert_eq!(refused.code(), "backlog_full", "{refused}");
    conversation.board.resume(None).await.expect("it goes on");
    for _ in 0..3000 {
        if conversation.state()["turn"]["n"] == 127 && conversation.state()["replies"] != json!([]) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(conversation.replies().len(), 127);
    assert_eq!(conversation.reply("Put tea on the office list.").await, "Put tea on the office list.");
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn speaking_workers_see_the_text_of_results_without_internals() {
    let conversation = Conversation::begin().await;
    conversation.say("Put bananas on the household list.").await;
    conversation.say("Put bananas on the office list.").await;
    let asked = conversation.say("Throw the bananas off the list.").await;
    assert!(asked["results"][0]["pending"]["expires_at"].is_number(), "{asked}");
    conversation.say("the household one").await;
    let shown = conversation.shown(false);
    let of = |worker: &str| {
        shown.iter().filter(|(name, _)| name == worker).map(|(_, text)| text.as_str()).collect::<String>()
    };
    for (worker, said) in
        [("planner", "Put bananas on the household list."), ("responder", "which list, household or office?")]
    {
        let shown = of(worker);
        assert!(shown.contains(said), "{worker} is not shown what was said: {shown}");
        for beside in ["expires_at", "pending\"", "evidence", "\"data\"", "entries"] {
            assert!(!shown.contains(beside), "{worker} is shown {beside}: {shown}");
        }
    }
    assert!(of("begin").contains("expires_at"), "somebody is");
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn a_result_of_many_rows_gets_out_as_far_as_there_is_room_and_says_so() {
    let conversation = Conversation::begin().await;
    let clipboard = clipboard();
    let with = clipboard.boards["notes"].workers["crud"].with.clone().expect("a department");
    let department: Department = serde_json::from_value(with["department"].clone()).expect("a department");
    let storage = Storage::in_dir(conversation.data.path());
    for number in 0..200 {
        let slots = json!({"list": "office", "item": format!("{number} {}", "\u{e4}".repeat(190))});
        let found = serde_json::from_value(json!({"status": "found", "action": "add", "slots": slots}));
        let key = format!("row {number}");
        let outcome =
            execute(&storage, &department, &key, &found.expect("found"), Timestamp(1), 10_000).expect("no fault");
        assert_eq!(outcome.count, 1, "{outcome:?}");
    }
    let state = conversation.say("Show the office list.").await;
    let result = &state["results"][0];
    assert_eq!(result["status"], "done", "{result}");
    let bytes = result.to_string().len();
    assert!((16_384..65_536).contains(&bytes), "more than what workers otherwise may write: {bytes}");
    let given = result["data"]["entries"].as_array().expect("rows").len();
    assert!((50..100).contains(&given), "{given}");
    let text = state["replies"][0]["text"].as_str().expect("a text");
    let said = text.matches('\u{e4}').count() / 190;
    let more = format!(" and {} more.", 200 - said);
    assert!(said > 2 && text.ends_with(&more), "{text}");
    // An unresolvable request about these rows also returns its result.
    let asked = conversation.say("Throw the bananas off the list.").await;
    assert_eq!(asked["results"][0]["status"], "error", "nothing is like bananas: {asked}");
    conversation.runtime.shutdown().await;
}

/// A hand-written department without rows.
const WEATHER: (&str, &str) = (
    "  weather:
    agent: board
    group: departments
    description: What the weather is.
    reads: [/turn/text, {path: /turn/waits, where: self.department == worker}]
    writes: [{path: /results/-, ops: [add]}]
    limits: {invocations: 1000000}
    board: {of: weather, input: {text: /turn/text, waits: /turn/waits}, output: {/results/-: /result}}
",
    "
boards:
  weather:
    blueprint: 1
    name: weather
    request:
      type: object
      additionalProperties: false
      required: [text]
      properties: {text: {type: string}, waits: {type: object, required: [step], properties: {step: {const: town}}}}
    state:
      schema:
        type: object
        additionalProperties: false
        properties:
          request: true
          result: {type: object, required: [department, status, text]}
    workers:
      looks:
        agent: script
        script: [[{op: add, path: /result, value: {department: weather, status: done, text: It rains.}}]]
        writes: [{path: /result, ops: [add]}]
      asks:
        agent: script
        script:
          - - op: add
              path: /result
              value:
                {department: weather, status: clarification, text: In which town?, question: In which town?,
                 pending: {department: weather, question: In which town?, step: town}}
        writes: [{path: /result, ops: [add]}]
    rules:
      - {name: ask, trigger: start, when: 'request.text == \"Weather\"', run: asks}
      - {name: look, trigger: start, when: 'request.text != \"Weather\" && has(request.waits)', run: looks}
    done: {when: has(state.result)}
",
);

#[tokio::test]
async fn a_board_made_by_hand_is_a_department_beside_the_folders() {
    let blueprint = clipboard_with(WEATHER.0, WEATHER.1);
    assert_eq!(blueprint.state.schema["$defs"]["group:departments"]["enum"], json!(["notes", "timeline", "weather"]));
    let conversation = Conversation::with(blueprint, Config::default()).await;
    let state = conversation.say("Weather").await;
    assert_eq!(state["decisions"], json!([{"agent": "weather"}, {"agent": "nobody"}]));
    assert_eq!(state["replies"], json!([{"text": "In which town?"}]));
    // The department's own pending state is returned to it unchanged.
    let state = conversation.say("Paris").await;
    assert_eq!(state["turn"]["waits"], json!({"department": "weather", "question": "In which town?", "step": "town"}));
    assert_eq!(state["replies"], json!([{"text": "It rains."}]));
    assert_eq!(conversation.say("Sing me a song.").await["turn"]["waits"], Value::Null);
    assert_eq!(conversation.say("Put bananas on the office list.").await["results"][0]["status"], "done");
    conversation.runtime.shutdown().await;
}

#[tokio::test]
async fn a_message_may_be_as_long_as_it_is_said_to_be_whatever_it_consists_of() {
    let conversation = Conversation::begin().await;
    for filling in ["x", "\"", "\n", "\u{e4}", "\u{1}", "\u{1f34c}"] {
        let words = format!("x{}x", filling.repeat(3998));
        let state = conversation.say(&words).await;
        assert_eq!(state["turn"]["text"], words);
        assert_eq!(state["decisions"], json!([{"agent": "nobody"}]), "{filling:?}");
        assert_eq!(state["replies"], json!([{"text": "nobody"}]), "{filling:?}");
        let begun = conversation.runtime.create(clipboard(), json!({"text": words}), None).await.expect("a board");
        timeout(LONG, begun.wait_for_end()).await.expect("it rests in time").expect("it rests by itself");
        assert_eq!(begun.status().state.root().to_value()["replies"], json!([{"text": "nobody"}]), "{filling:?}");
    }
    conversation.runtime.shutdown().await;
}
