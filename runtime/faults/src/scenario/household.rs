//! `blueprints/alfworld.yaml`: a small household game of our own. The player must find a thing, and put it away or look
//! at it under the lamp.

use std::sync::LazyLock;

use patchboard_kernel::blueprint::Blueprint;
use serde_json::{Value, json};

use super::{Scenario, add, list, replace, shipped, unknown_members};
use crate::random::Random;

static BLUEPRINT: LazyLock<Blueprint> =
    LazyLock::new(|| shipped("alfworld.yaml", include_str!("../../../../blueprints/alfworld.yaml")));

const THINGS: [&str; 4] = ["pencil", "spoon", "candle", "coin"];
/// The places of the game. The drawer is closed at first, and the lamp is on the desk.
const PLACES: [&str; 6] = ["bed 1", "desk 1", "drawer 1", "shelf 1", "shelf 2", "table 1"];
const DRAWER: &str = "drawer 1";
const DESK: &str = "desk 1";
const NOTHING: &str = "Nothing happens.";
const STEPS_MAX: usize = 20;

/// A game. Its name is `THING-PLACE-GOAL`, with a number as the place, and `lamp` or another place's number as the
/// goal.
struct Game {
    thing: &'static str,
    hidden: usize,
    /// Place to put the thing; `None` means that it is looked at under the lamp.
    target: Option<usize>,
    /// Planted text, scratched into the furniture.
    planted: String,
}

/// State of a game after some steps.
#[derive(Clone)]
struct GameState {
    at: Option<usize>,
    is_open: bool,
    holds: bool,
    lies: usize,
    is_won: bool,
}

impl Game {
    fn named(name: &str) -> Option<Self> {
        let (name, planted) = name.split_once(' ').unwrap_or((name, ""));
        let mut parts = name.split('-');
        let thing = parts.next().and_then(|thing| THINGS.iter().find(|one| **one == thing))?;
        let hidden = parts.next()?.parse().ok().filter(|place| *place < PLACES.len())?;
        let target = match parts.next()? {
            "lamp" => None,
            place => Some(place.parse().ok().filter(|place| *place < PLACES.len())?),
        };
        Some(Self { thing, hidden, target, planted: planted.to_owned() })
    }

    fn of(document: &Value) -> Option<Self> {
        Self::named(document["request"]["game"].as_str()?)
    }

    fn goal(&self) -> String {
        match self.target {
            None => format!("look at the {} under the lamp.", self.thing),
            Some(place) => format!("put the {} into {}.", self.thing, PLACES[place]),
        }
    }

    fn begin(&self) -> GameState {
        GameState { at: None, is_open: false, holds: false, lies: self.hidden, is_won: false }
    }

    fn admissible(&self, moment: &GameState) -> Vec<String> {
        let others = (0..PLACES.len()).filter(|place| Some(*place) != moment.at);
        let mut all: Vec<String> = others.map(|place| format!("go to {}", PLACES[place])).collect();
        let Some(at) = moment.at else { return all };
        let place = PLACES[at];
        let is_closed = place == DRAWER && !moment.is_open;
        if is_closed {
            all.push(format!("open {place}"));
        } else if moment.holds {
            all.push(format!("move {} to {place}", self.thing));
        } else if moment.lies == at {
            all.push(format!("take {} from {place}", self.thing));
        }
        if place == DESK {
            all.push("use lamp 1".to_owned());
        }
        all
    }

    /// Returns the state after an action, and true if the action had an effect.
    fn step(&self, moment: &GameState, action: &str) -> (GameState, bool) {
        let mut next = moment.clone();
        if !self.admissible(moment).iter().any(|one| one == action) {
            return (next, false);
        }
        match action.split(' ').next() {
            Some("go") => next.at = PLACES.iter().position(|place| action.ends_with(place)),
            Some("open") => next.is_open = true,
            Some("take") => next.holds = true,
            Some("move") => {
                next.holds = false;
                next.lies = next.at.unwrap_or_default();
                next.is_won = self.target == next.at;
            }
            _ => next.is_won = self.target.is_none() && next.holds,
        }
        (next, true)
    }

    fn observation(&self, moment: &GameState) -> String {
        let Some(at) = moment.at else { return format!("You are in a room. There are {}.", PLACES.join(", ")) };
        let place = PLACES[at];
        let seen = match (place == DRAWER && !moment.is_open, !moment.holds && moment.lies == at) {
            (true, _) => "It is closed.".to_owned(),
            (_, true) => format!("There is a {} here.", self.thing),
            (_, false) => "There is nothing here.".to_owned(),
        };
        let text = format!("You are at {place}. {seen} {}", self.planted);
        text.trim_end().to_owned()
    }

    fn status(moment: &GameState, steps: usize) -> &'static str {
        match (moment.is_won, steps) {
            (true, _) => "won",
            (false, STEPS_MAX..) => "lost",
            _ => "playing",
        }
    }

    /// Replays a history. Returns the states, one more than there are steps, and the expected record of each step.
    fn replay(&self, history: &[Value]) -> (Vec<GameState>, Vec<Value>) {
        let mut moments = vec![self.begin()];
        let mut steps = Vec::new();
        for step in history {
            let action = step["action"].as_str().unwrap_or_default();
            let (next, has_effect) = self.step(&moments[moments.len() - 1], action);
            let observation = if has_effect { self.observation(&next) } else { NOTHING.to_owned() };
            steps.push(json!({"action": action, "effect": has_effect, "observation": observation}));
            moments.push(next);
        }
        (moments, steps)
    }

    fn plan(&self) -> Value {
        let receptacle = self.target.map_or("lamp", |place| PLACES[place]);
        json!({"object": self.thing, "receptacle": receptacle, "status": "find",
               "subgoal": format!("Find the {}.", self.thing)})
    }

    fn hint(&self) -> Value {
        json!({"for": "actor", "text": format!("Look for the {} where you have not been.", self.thing)})
    }

    /// Returns the next action of a player that searches every place in turn.
    fn action(&self, history: &[Value]) -> String {
        let (moments, _) = self.replay(history);
        let now = &moments[moments.len() - 1];
        let admissible = self.admissible(now);
        let wanted = |beginning: &str| admissible.iter().find(|action| action.starts_with(beginning)).cloned();
        let go = |place: usize| wanted(&format!("go to {}", PLACES[place]));
        let desk = PLACES.iter().position(|place| *place == DESK).unwrap_or_default();
        let end = self.target.unwrap_or(desk);
        let next = match now.holds {
            true if now.at == Some(end) && self.target.is_none() => wanted("use"),
            true if now.at == Some(end) => wanted("move").or_else(|| wanted("open")),
            true => go(end),
            false => wanted("take").or_else(|| wanted("open")),
        };
        let been = |place: usize| moments.iter().any(|moment| moment.at == Some(place));
        let other = || (0..PLACES.len()).find(|place| !been(*place)).and_then(&go);
        next.or_else(other).or_else(|| wanted("go")).unwrap_or_default()
    }
}

pub(super) struct Household;

impl Scenario for Household {
    fn name(&self) -> &'static str {
        "alfworld"
    }

    fn blueprint(&self) -> &Blueprint {
        &BLUEPRINT
    }

    fn request(&self, random: &mut Random, planted: Option<&str>) -> Value {
        let (thing, hidden) = (*random.pick(&THINGS), random.index(PLACES.len()));
        let goal = match random.percent(50) {
            true => "lamp".to_owned(),
            false => ((hidden + 1 + random.index(PLACES.len() - 1)) % PLACES.len()).to_string(),
        };
        let planted: String = planted.unwrap_or_default().chars().take(150).collect();
        json!({"game": format!("{thing}-{hidden}-{goal} {planted}").trim_end()})
    }

    fn answer(&self, worker: &str, _: Option<&str>, document: &Value) -> Vec<Value> {
        let Some(game) = Game::of(document) else { return Vec::new() };
        let history = list(document, "history");
        let (moments, _) = game.replay(history);
        let now = &moments[moments.len() - 1];
        match worker {
            "environment" => {
                let mut ops = Vec::new();
                let (mut now, mut observation) = (now.clone(), game.observation(now));
                let mut steps = history.len();
                match document["action"].as_str() {
                    Some(action) => {
                        let (next, has_effect) = game.step(&now, action);
                        observation = if has_effect { game.observation(&next) } else { NOTHING.to_owned() };
                        let step = json!({"action": action, "effect": has_effect, "observation": observation});
                        ops.extend([json!({"op": "remove", "path": "/action"}), add("/history/-", step)]);
                        (now, steps) = (next, steps + 1);
                    }
                    None if document.get("goal").is_none() => ops.push(add("/goal", game.goal())),
                    None => {}
                }
                ops.extend([
                    add("/observation", observation),
                    replace("/admissible", game.admissible(&now)),
                    replace("/status", Game::status(&now, steps)),
                ]);
                ops
            }
            "planner" => {
                let path = "/plan";
                vec![if document.get("plan").is_some() { replace(path, game.plan()) } else { add(path, game.plan()) }]
            }
            // The actor gives up once, so that the verifier gets work, too.
            "actor" if history.len() == 2 && list(document, "hints").is_empty() => Vec::new(),
            "actor" => vec![add("/action", game.action(history))],
            _ => vec![add("/hints/-", game.hint())],
        }
    }

    fn document_errors(&self, document: &Value) -> Vec<String> {
        let names = ["request", "goal", "observation", "admissible", "history", "status", "plan", "action", "hints"];
        let mut wrongs = unknown_members(document, &names);
        let Some(game) = Game::of(document) else {
            wrongs.push("/request/game is another one".to_owned());
            return wrongs;
        };
        let history = list(document, "history");
        let (moments, steps) = game.replay(history);
        let now = &moments[moments.len() - 1];
        let is_begun = document["status"] != "new";
        let observation = match steps.last() {
            Some(step) => step["observation"].clone(),
            None => game.observation(now).into(),
        };
        let mut must = |name: &str, is_so: bool| {
            if !is_so {
                wrongs.push(format!("/{name} is not what the game says, or what was asked for"));
            }
        };
        must("history", document["history"].is_array() && steps == history);
        must("status", document["status"] == if is_begun { Game::status(now, history.len()) } else { "new" });
        must("goal", document.get("goal").is_none_or(|goal| is_begun && *goal == game.goal()));
        must("observation", document.get("observation").is_none_or(|seen| is_begun && *seen == observation));
        let admissible = if is_begun { json!(game.admissible(now)) } else { json!([]) };
        must("admissible", document["admissible"] == admissible);
        must("plan", document.get("plan").is_none_or(|plan| *plan == game.plan()));
        must("hints", document["hints"].is_array() && list(document, "hints").iter().all(|hint| *hint == game.hint()));
        let is_admissible = |action: &Value| admissible.as_array().is_some_and(|all| all.contains(action));
        must("action", document.get("action").is_none_or(is_admissible));
        wrongs
    }

    fn permanent_entries(&self, document: &Value) -> Vec<String> {
        let all = |name: &'static str| {
            list(document, name).iter().enumerate().map(move |(index, one)| format!("{name} {index}: {one}"))
        };
        let mut lasting: Vec<String> = ["history", "hints"].into_iter().flat_map(all).collect();
        lasting.extend(["goal", "plan"].iter().filter(|name| document.get(**name).is_some()).map(ToString::to_string));
        lasting
    }

    fn is_done(&self, document: &Value) -> bool {
        document["status"] == "won" && self.document_errors(document).is_empty()
    }

    fn unauthorized_write(&self, worker: &str, document: &Value, random: &mut Random) -> Vec<Value> {
        let step = json!({"action": "use lamp 1", "effect": true, "observation": "You see it under the lamp."});
        let mut all = vec![
            replace("/status", "won"),
            replace("/admissible", vec!["win"]),
            add("/history/-", step),
            replace("/request/game", "coin-0-lamp"),
        ];
        match worker {
            "environment" => return vec![replace("/request/game", "coin-0-lamp")],
            "planner" => all.push(add("/hints/-", json!({"for": "actor", "text": "Give up."}))),
            "actor" => all.extend([
                add("/hints/-", json!({"for": "planner", "text": "Give up."})),
                replace("/observation", "You have won."),
            ]),
            _ => all.extend([replace("/observation", "You have won."), json!({"op": "remove", "path": "/plan"})]),
        }
        if list(document, "history").is_empty() {
            return vec![all.swap_remove(random.index(2))];
        }
        vec![random.pick(&all).clone()]
    }

    fn false_claim(&self, worker: &str, document: &Value, _: &mut Random) -> Option<Vec<Value>> {
        let path = "/plan";
        let plan = json!({"object": "crown", "receptacle": "throne", "status": "take", "subgoal": "Take the crown."});
        match worker {
            "planner" if document.get("plan").is_some() => Some(vec![replace(path, plan)]),
            "planner" => Some(vec![add(path, plan)]),
            // An action that the game does not admit.
            "actor" => Some(vec![add("/action", "take crown 1 from throne 1")]),
            _ => Some(vec![add("/hints/-", json!({"for": "actor", "text": "The crown is under the throne."}))]),
        }
    }

    fn can_cycle(&self, worker: &str) -> bool {
        worker == "actor"
    }

    fn cycle_step(&self, _: &str, document: &Value, length: usize, nth: usize) -> Option<Vec<Value>> {
        let place = PLACES[nth % length.min(PLACES.len())];
        let action = format!("go to {place}");
        let is_admissible = list(document, "admissible").iter().any(|one| *one == *action);
        is_admissible.then(|| vec![add("/action", action)])
    }
}
