//! Plays ALFWorld games with `blueprints/alfworld.yaml` and measures the progress in them.
//!
//! GAMES is a directory of games with an `INDEX.json`: an array of `{"game", "task_type"}`, where a game is a directory
//! `SET/TYPE-OBJECT-X-RECEPTACLE-SCENE/TRIAL` with its `game.tw-pddl`. Tasks rotate over the types, so that the first
//! six are one of each. The environment is `evals/alfworld/environment.py`, which needs a Python with alfworld.
//! Every run is a board in the journal of OUT; show it with `patchboard log BOARD --data-dir OUT/boards`.
//!
//! | measure | per game |
//! |---|---|
//! | `won` | 1 if it was won |
//! | `conditions`, `reached` | conditions of the goal (see [`Goal`]), and the number of them reached |
//! | `steps` | steps of the game |
//! | `actions`, `admissible` | actions proposed, and the number of them that the game admitted |

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use patchboard_agents::config::Program;
use patchboard_evals::eval::play::{self, BoardRun};
use patchboard_evals::eval::report;
use patchboard_evals::eval::results::Run;
use patchboard_evals::eval::suite::{self, Flags, Subject, Systems, Task};
use patchboard_kernel::record::{Body, Record};
use serde::Deserialize;
use serde_json::{Value, json};

/// Evaluate the ALFWorld blueprint on text games
#[derive(Parser, Debug)]
struct Arguments {
    /// A directory of games with an INDEX.json
    #[arg(value_name = "GAMES")]
    games: PathBuf,
    /// A Python with alfworld 0.4.2 and textworld 1.7.0
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    systems: Systems,
}

#[derive(Deserialize)]
struct Game {
    game: String,
    task_type: String,
}

/// Goal of a game, parsed from the name of its directory: object, count, treatment, and final place. Each is a
/// condition: the object was taken; it was cleaned, heated or cooled; it was put there (twice for two objects). For a
/// lamp, it was switched on with the object in hand.
struct Goal {
    object: String,
    receptacle: String,
    /// Verb of the treatment before the object is put down, if any.
    verb: Option<&'static str>,
    count: usize,
    is_lamp: bool,
}

impl Goal {
    fn parse(game: &str) -> Option<Self> {
        let name = game.split('/').rev().nth(1)?;
        let mut parts = name.split('-');
        let (kind, object, _, receptacle) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let verbs = [("clean", "clean"), ("heat", "heat"), ("cool", "cool")];
        Some(Self {
            object: object.to_lowercase(),
            receptacle: receptacle.to_lowercase(),
            verb: verbs.into_iter().find(|(word, _)| kind.contains(word)).map(|(_, verb)| verb),
            count: if kind.contains("two") { 2 } else { 1 },
            is_lamp: kind.starts_with("look_at"),
        })
    }

    /// Returns the number of conditions.
    fn conditions(&self) -> usize {
        1 + usize::from(self.verb.is_some()) + self.count
    }

    /// Counts the conditions that these actions, all of them effective, have met.
    fn reached(&self, actions: &[&str]) -> usize {
        let is_object = |name: &str| name.split(' ').next() == Some(self.object.as_str());
        let (mut holds, mut was_taken, mut was_treated, mut is_lit) = (None, false, false, false);
        let mut placed = BTreeMap::new();
        for action in actions {
            let (verb, rest) = action.split_once(' ').unwrap_or((action, ""));
            // `take soapbar 1 from sinkbasin 1`, `move soapbar 1 to cabinet 1`, `clean soapbar 1 with sinkbasin 1`.
            let mut ends = [" from ", " to ", " in/on ", " with "].into_iter().filter_map(|word| rest.split_once(word));
            let (what, place) = ends.next().unwrap_or((rest, ""));
            match verb {
                "take" if is_object(what) => {
                    was_taken = true;
                    holds = Some(what);
                    placed.remove(what);
                }
                "take" => holds = Some(what),
                "move" | "put" => {
                    let is_there = place.split(' ').next() == Some(self.receptacle.as_str());
                    if is_object(what) && is_there {
                        placed.insert(what, ());
                    }
                    holds = None;
                }
                "use" => {
                    is_lit |= what.split(' ').next() == Some(self.receptacle.as_str()) && holds.is_some_and(is_object)
                }
                verb => was_treated |= Some(verb) == self.verb && is_object(what),
            }
        }
        let ends = if self.is_lamp { usize::from(is_lit) } else { placed.len().min(self.count) };
        usize::from(was_taken) + usize::from(was_treated && self.verb.is_some()) + ends
    }
}

/// Data about the game from its program. The document is no evidence: on a board without checks, any worker may have
/// written it.
#[derive(Default)]
struct World {
    history: Vec<Value>,
    status: Value,
    goal: Value,
}

impl World {
    fn from_records(records: &[Record]) -> Self {
        let mut world = Self::default();
        for body in records.iter().filter_map(|record| record.body().ok()) {
            let Body::Committed(committed) = body else { continue };
            if committed.by.worker.as_str() != "environment" {
                continue;
            }
            for op in committed.patch.as_array().into_iter().flatten() {
                match op["path"].as_str() {
                    Some("/history/-") => world.history.push(op["value"].clone()),
                    Some("/status") => world.status = op["value"].clone(),
                    Some("/goal") => world.goal = op["value"].clone(),
                    _ => {}
                }
            }
        }
        world
    }
}

fn measure(task: &Task, played: &BoardRun) -> (Vec<(&'static str, f64)>, Value) {
    let World { history, status, goal: stated } = World::from_records(&played.records);
    let had_effect = |step: &&Value| step["effect"] == true;
    let actions: Vec<&str> = history.iter().filter(had_effect).filter_map(|step| step["action"].as_str()).collect();
    let refused = played.records.iter().filter_map(|record| record.body().ok()).filter(|body| match body {
        Body::Rejected(rejected) => {
            let rule = rejected.rejection.violations.first().and_then(|violation| violation.rule.as_deref());
            rule == Some("an-action-is-one-of-the-admissible-ones")
        }
        _ => false,
    });
    let refused = refused.count();
    let goal = Goal::parse(&task.name);
    let is_won = status == "won";
    let conditions = goal.as_ref().map_or(1, Goal::conditions);
    let reached = if is_won { conditions } else { goal.map_or(0, |goal| goal.reached(&actions)).min(conditions) };
    let measures = vec![
        ("won", f64::from(u8::from(is_won))),
        ("conditions", conditions as f64),
        ("reached", reached as f64),
        ("steps", history.len() as f64),
        ("actions", (history.len() + refused) as f64),
        ("admissible", actions.len() as f64),
    ];
    (measures, json!({"goal": stated, "actions": history.iter().map(|step| &step["action"]).collect::<Vec<_>>()}))
}

fn interleaved(games: Vec<Game>) -> Vec<Game> {
    let mut seen = BTreeMap::<String, usize>::new();
    let mut ranked: Vec<(usize, Game)> = games
        .into_iter()
        .map(|game| {
            let rank = seen.entry(game.task_type.clone()).or_default();
            *rank += 1;
            (*rank, game)
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, game)| game).collect()
}

#[tokio::main]
async fn main() -> ExitCode {
    suite::conclude(evaluate(&Arguments::parse()).await)
}

async fn evaluate(arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let index = arguments.games.join("INDEX.json");
    let text = std::fs::read_to_string(&index).map_err(|error| format!("{}: {error}", index.display()))?;
    let games: Vec<Game> = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", index.display()))?;
    let mut games = interleaved(games);
    games.truncate(arguments.flags.count);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let blueprint = play::blueprint(&here.join("../blueprints/alfworld.yaml"))?;
    let program = [arguments.python.clone(), here.join("alfworld/environment.py"), arguments.games.canonicalize()?];
    let environment = Program::new(program.iter().map(|part| part.display().to_string()).collect());
    let task = |game: &Game| Task { name: game.game.clone(), request: json!({"game": game.game}) };
    let tasks: Vec<Task> = games.iter().map(task).collect();
    // A game's blueprint needs the game's program, and architects may not use programs.
    let subject = Subject { blueprint: &blueprint, environment: Some(&environment), words: None };
    let results = suite::run(&arguments.flags, &arguments.systems, &subject, &tasks, measure).await?;
    Ok(report(results.runs()))
}

fn report(runs: &[Run]) -> String {
    let systems: Vec<(&str, Vec<&Run>)> = report::by_system(runs).into_iter().collect();
    let share = |runs: &[&Run], part: &str, of: &str| report::share(report::sum(runs, part), report::sum(runs, of));
    let tokens_per = |runs: &[&Run], measure: &str| match report::sum(runs, measure) {
        0 => "–".to_owned(),
        count => format!("{:.0}", runs.iter().map(|run| run.tokens()).sum::<u64>() as f64 / count as f64),
    };
    let by_system = report::columns(
        &systems,
        &[
            ("system", &|(system, _)| (*system).to_owned()),
            ("won", &|(_, runs)| report::share(report::sum(runs, "won"), runs.len())),
            ("goal conditions reached", &|(_, runs)| share(runs, "reached", "conditions")),
            ("admissible actions", &|(_, runs)| share(runs, "admissible", "actions")),
            ("steps", &|(_, runs)| report::mean_of(runs, |run| run.measure("steps"), 1)),
            ("tokens of a game", &|(_, runs)| report::mean_of(runs, |run| run.tokens() as f64, 0)),
            ("tokens per step", &|(_, runs)| tokens_per(runs, "steps")),
            ("tokens per game won", &|(_, runs)| tokens_per(runs, "won")),
            ("invalid documents", &|(_, runs)| report::share_of(runs, |run| run.is_invalid)),
            ("seconds", &|(_, runs)| report::mean_of(runs, |run| run.seconds, 0)),
        ],
    );
    let games = report::columns(
        runs,
        &[
            ("game", &|run| run.shown["goal"].as_str().unwrap_or("–").to_owned()),
            ("seed", &|run| run.key.seed.to_string()),
            ("system", &|run| run.key.system.clone()),
            ("end", &|run| format!("{} ({})", run.end, run.cause)),
            ("goal conditions reached", &|run| run.part("reached", "conditions")),
            ("steps", &|run| run.measure("steps").to_string()),
            ("tokens", &|run| run.tokens().to_string()),
        ],
    );
    let differs = |name: &str, of: &dyn Fn(&Run) -> f64, decimals| {
        let rows = report::differences(runs, "patchboard", of, decimals);
        format!(
            "{name}, beyond patchboard's, of the same game and seed:\n\n{}",
            report::table(&["system", "pairs", "difference"], &rows)
        )
    };
    format!(
        "{by_system}\nFirst attempts:\n\n{}\n{}\n{}\n{games}",
        report::first_attempts(runs),
        differs("Tokens", &|run| run.tokens() as f64, 0),
        differs("Goal conditions reached", &|run| run.measure("reached"), 2),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_met_by_what_was_done() {
        let clean =
            Goal::parse("train/pick_clean_then_place_in_recep-SoapBar-None-Cabinet-428/trial_1").expect("a goal");
        assert_eq!(clean.conditions(), 3);
        let all = [
            "go to sinkbasin 1",
            "take soapbar 1 from sinkbasin 1",
            "clean soapbar 1 with sinkbasin 1",
            "move soapbar 1 to cabinet 2",
        ];
        assert_eq!((0..=4).map(|done| clean.reached(&all[..done])).collect::<Vec<_>>(), [0, 0, 1, 2, 3]);
        assert_eq!(clean.reached(&["take soapbottle 1 from shelf 1", "clean cloth 1 with sinkbasin 1"]), 0);

        let two = Goal::parse("x/pick_two_obj_and_place-CellPhone-None-Bed-314/trial_1").expect("a goal");
        let put = |number: u32| format!("move cellphone {number} to bed 1");
        let (one, same, other) = (put(1), put(1), put(2));
        assert_eq!(two.conditions(), 3);
        assert_eq!(two.reached(&["take cellphone 1 from desk 1", &one, &same]), 2);
        assert_eq!(two.reached(&["take cellphone 1 from desk 1", &one, &other, "take cellphone 2 from bed 1"]), 2);

        let look = Goal::parse("x/look_at_obj_in_light-Pencil-None-DeskLamp-320/trial_1").expect("a goal");
        assert_eq!(look.reached(&["use desklamp 1"]), 0);
        assert_eq!(look.reached(&["take pencil 1 from desk 1", "use desklamp 1"]), 2);
    }

    #[test]
    fn the_first_games_are_one_of_each_type() {
        let game = |name: &str, kind: &str| Game { game: name.into(), task_type: kind.into() };
        let games =
            interleaved(vec![game("a1", "a"), game("a2", "a"), game("b1", "b"), game("a3", "a"), game("b2", "b")]);
        let names: Vec<&str> = games.iter().map(|game| game.game.as_str()).collect();
        assert_eq!(names, ["a1", "b1", "a2", "b2", "a3"]);
    }
}
