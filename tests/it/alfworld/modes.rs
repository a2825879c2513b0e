//! Plays the blueprint and the recorded episodes on boards with a part ablated, and on the baseline blackboards.
//! Correct actions win everywhere; wrong ones are rejected wherever a check exists.

use patchboard_kernel::ablation::{Component, Interface, Mode};
use patchboard_kernel::record::{End, Kind};
use patchboard_runtime::agent::Call;
use serde_json::{Map, Value, json};

use super::{Play, Played, Seats, act, episodes, hint, play_in, rejections};

/// Converts a patch that adds and replaces members into the reply format of the worker.
fn in_words(call: &Call, patch: Value) -> String {
    let seat = call.context.worker_plan();
    let ops = patch.as_array().expect("a patch").iter().map(|op| {
        let path = op["path"].as_str().expect("a path");
        (path.to_owned(), op["value"].clone())
    });
    match seat.interface {
        Interface::Patch => patch.to_string(),
        Interface::Message => ops.map(|(path, value)| format!("I say:\n{path}: {value}\n")).collect(),
        Interface::Merge => Value::Object(ops.collect::<Map<_, _>>()).to_string(),
        Interface::Whole => {
            let shown = call.prompt.user.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut object = shown.expect("the view shows an object");
            for (path, value) in ops {
                match path.strip_suffix("/-") {
                    Some(array) => {
                        let elements = &mut object[&array[1..]];
                        *elements = json!([elements.as_array().cloned().unwrap_or_default(), vec![value]].concat());
                    }
                    None => object[&path[1..]] = value,
                }
            }
            object.to_string()
        }
    }
}

fn modes() -> Vec<Mode> {
    let all = Component::ALL.iter().copied();
    let single = all.clone().map(|part| Mode::without([part]));
    single.chain([Mode::without(all), Mode::Structured {}, Mode::Plain {}]).collect()
}

async fn play(mode: &Mode, episode: usize, actor: Play) -> Option<Played> {
    let episode = episodes().into_iter().nth(episode)?;
    Some(play_in(mode.clone(), Seats { words: in_words, ..Seats::new(episode, actor, hint()) }).await)
}

#[tokio::test]
async fn an_actor_that_is_right_wins_in_every_mode() {
    for mode in modes() {
        let Some(episode) = episodes().into_iter().next() else { return };
        let actions = episode.actions()[1..].to_vec();
        let actor: Play = {
            let actions = actions.clone();
            Box::new(move |_, before| act(&actions[before as usize]))
        };
        let played = play(&mode, 0, actor).await.expect("an episode");
        assert_eq!((played.ended.end, &played.state["status"]), (End::Done, &json!("won")), "{mode}");
        assert_eq!(rejections(&played), Vec::<String>::new(), "{mode}");
        assert_eq!(played.count(Kind::Rejected), 0, "{mode}");
        assert_eq!(played.history().len(), actions.len(), "{mode}");
        assert_eq!(played.state.get("$messages").is_some(), mode == Mode::Plain {}, "{mode}");
    }
}

#[tokio::test]
async fn an_inadmissible_action_is_a_step_of_the_game_where_nothing_rejects_it() {
    for mode in modes() {
        let Some(episode) = episodes().into_iter().next() else { return };
        let actions = episode.actions();
        // Wrong once, then right.
        let actor: Play = Box::new(move |_, before| {
            act(if before == 0 { "take moon 1 from sky 1" } else { &actions[before as usize] })
        });
        let played = play(&mode, 0, actor).await.expect("an episode");
        assert_eq!((played.ended.end, &played.state["status"]), (End::Done, &json!("won")), "{mode}");
        let is_refused = mode.has(Component::Schema);
        assert_eq!(played.count(Kind::Rejected), usize::from(is_refused), "{mode}");
        assert_eq!(played.history()[0]["effect"], json!(is_refused), "{mode}");
        // A step without effect triggers the verifier, in every system.
        assert_eq!(played.calls("verifier"), usize::from(!is_refused), "{mode}");
    }
}

#[tokio::test]
async fn only_a_contract_keeps_an_actor_from_declaring_itself_the_winner() {
    for mode in modes() {
        let actor: Play = Box::new(|_, _| json!([{"op": "replace", "path": "/status", "value": "won"}]));
        let Some(played) = play(&mode, 0, actor).await else { return };
        let is_kept = mode.has(Component::Contracts);
        let end = if is_kept { (End::Stopped, json!("playing")) } else { (End::Done, json!("won")) };
        assert_eq!((played.ended.end, played.state["status"].clone()), end, "{mode}");
        assert!(played.history().is_empty(), "{mode}");
    }
}
