//! Runs the evaluations against an endpoint that generates replies from the schema of each request, and checks their
//! measures.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use serde_json::{Value, json};

mod game;

/// Returns a value that a schema allows: the second alternative, the last enum value (preferring the last sentence or
/// claim), one list element, and the text `x`.
fn instance(schema: &Value) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        let is_evidence = |value: &&Value| {
            value.as_str().is_some_and(|place| place.contains("/sentences/") || place.starts_with("/claims/"))
        };
        return values.iter().rfind(is_evidence).or(values.last()).cloned().unwrap_or_default();
    }
    if let Some(branches) = schema["anyOf"].as_array() {
        return instance(&branches[1.min(branches.len() - 1)]);
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            required.map(|name| (name.to_owned(), instance(&schema["properties"][name]))).collect()
        }
        Some("array") => json!([instance(&schema["items"])]),
        Some("integer") => schema["minimum"].as_i64().unwrap_or_default().into(),
        _ => json!("x"),
    }
}

/// Returns a blueprint as an architect may write it.
fn blueprint() -> Value {
    json!({
        "blueprint": 1, "name": "answers", "description": "Answers a question.", "request": {"type": "object"},
        "state": {
            "schema": {"type": "object", "properties": {"request": true, "answer": {"type": "string"}}},
            "initial": {},
        },
        "workers": {"answerer": {
            "agent": "llm", "role": "Answer at /answer.", "reads": ["/request"],
            "writes": [{"path": "/answer", "ops": ["add"]}],
        }},
        "rules": [{"name": "begin", "trigger": "start", "run": "answerer"}],
        "invariants": [],
        "done": {"when": "has(state.answer)"},
    })
}

/// Answers with the first word of the first verified claim in a view, and quotes this claim.
fn answer(view: &str) -> Option<Value> {
    let claim: String = serde_json::from_str(view.lines().find_map(|line| line.strip_prefix("/verified/0: "))?).ok()?;
    let value = json!({"says": claim.split(' ').next(), "shown_by": [claim]});
    Some(json!({"intent": "It says so.", "patch": [{"op": "add", "path": "/answer", "value": value}]}))
}

/// Serves replies by the schema of each request; without a schema, in the message format or not at all. Writes an
/// acceptable blueprint only for the question "Who built it?".
fn endpoint() -> Endpoint {
    Endpoint::serving(|request| {
        let schema = &request["response_format"]["json_schema"]["schema"];
        let content = |nth: usize| request["messages"][nth]["content"].as_str().unwrap_or_default();
        let (system, view) = (content(0), content(1));
        let plan = json!({"object": "lamp", "receptacle": "lamp", "status": "look", "subgoal": "Light it."});
        let (place, value) = if view.contains("/plan: add") { ("plan", plan) } else { ("action", json!("use lamp")) };
        let reply = if system.contains("You are an architect") && view.contains("Who built it?") {
            blueprint().to_string()
        } else if system.contains("RFC 7396") {
            json!({place: value}).to_string()
        } else if system.contains("one blackboard that everybody reads") {
            format!("I know what to do.\n/{place}: {value}")
        } else if schema.is_null() {
            "I do not know.".to_owned()
        } else {
            answer(view).unwrap_or_else(|| instance(schema)).to_string()
        };
        ScriptedResponse::answer(&reply, 100, 10)
    })
}

fn run(program: &str, out: &Path, url: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).args(["--model", "m", "--model-url", url]).arg("--out").arg(out);
    command.output().expect("the example was built")
}

fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    out.into_owned()
}

/// Returns the cells of the first row of a report that begins with this cell.
fn row<'t>(report: &'t str, system: &str) -> Vec<&'t str> {
    let mut rows = report.lines().map(|line| line.trim_matches(['|', ' ']).split(" | ").collect::<Vec<_>>());
    rows.find(|cells| cells[0] == system).unwrap_or_else(|| panic!("no row of {system} in\n{report}"))
}

#[test]
fn hotpot_eval_asks_each_question_of_each_system_once_and_measures_the_answers() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let (file, out) = (directory.path().join("questions.json"), directory.path().join("out"));
    let question = |answer: &str| {
        json!({
            "question": "Who built it?", "answer": answer,
            "context": {"title": ["The tower", "The bridge"], "sentences": [["Ann built the tower."], ["It is old.", "Bob built it."]]},
            "supporting_facts": {"title": ["The bridge", "The tower"], "sent_id": [1, 0]},
        })
    };
    fs::write(&file, json!([question("The Bob!"), question("y")]).to_string()).expect("a file can be written");
    let file = file.display().to_string();
    let systems = [file.as_str(), "--count", "2", "--systems", "patchboard,patchboard-free"];
    let hotpot =
        |url: &str, more: &[&str]| run(env!("CARGO_BIN_EXE_hotpot_eval"), &out, url, &[&systems, more].concat());

    let model = endpoint();
    let report = text(&hotpot(&model.url, &[]));
    // The last document, its last sentence, and the first word of that sentence.
    let ours = row(&report, "patchboard");
    assert!(ours[1].starts_with("1 of 2,"), "{report}");
    assert!(ours[2].starts_with("0 of 2,"), "unsupported claims: {report}");
    assert!(ours[3].starts_with("2 of 4,"), "needed sentences that were verified: {report}");
    let free = row(&report, "patchboard-free");
    assert!(free[1].starts_with("0 of 2,"), "{report}");
    let attempts = &report[report.find("first attempts that fail").expect("a table of them")..];
    assert!(row(attempts, "patchboard")[1].starts_with("0 of 8,"), "{report}");
    assert!(row(attempts, "patchboard-free")[1].starts_with("2 of 2, 100.0 %"), "{report}");
    let asked = model.requests().len();

    // Existing results are not run again, without a server.
    assert_eq!(text(&hotpot(&model.url, &[])), report);
    assert_eq!(model.requests().len(), asked);
    assert_eq!(text(&hotpot("http://127.0.0.1:1/v1", &["--report"])), report);
    // A run with a truncated result line is repeated.
    let runs = fs::read_to_string(out.join("runs.jsonl")).expect("results are kept");
    assert_eq!(runs.lines().count(), 4);
    fs::write(out.join("runs.jsonl"), &runs[..runs.len() - 20]).expect("a file can be written");
    let again = text(&hotpot(&model.url, &[]));
    assert_eq!(row(&again, "patchboard")[..4], ours[..4]);
    assert!(model.requests().len() > asked);
}

#[test]
fn a_blueprint_that_the_model_writes_is_compared_with_the_shipped_one() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let (file, out) = (directory.path().join("questions.json"), directory.path().join("out"));
    let question = |question: &str| {
        json!({
            "question": question, "answer": "x",
            "context": {"title": ["The tower"], "sentences": [["X built the tower."]]},
            "supporting_facts": {"title": ["The tower"], "sent_id": [0]},
        })
    };
    fs::write(&file, json!([question("Who built it?"), question("When?")]).to_string()).expect("a file can be written");
    let file = file.display().to_string();
    let model = endpoint();
    let systems = [file.as_str(), "--count", "2", "--systems", "patchboard,generated"];
    let report = text(&run(env!("CARGO_BIN_EXE_hotpot_eval"), &out, &model.url, &systems));
    assert!(row(&report, "patchboard")[1].starts_with("2 of 2,"), "{report}");
    assert!(row(&report, "generated")[1].starts_with("1 of 2,"), "{report}");
    assert!(report.contains("| undesigned (no_blueprint) |"), "{report}");
    let runs = fs::read_to_string(out.join("runs.jsonl")).expect("results are kept");
    let mut runs = runs.lines().map(|line| serde_json::from_str::<Value>(line).expect("a run"));
    let generated = runs.find(|run| run["system"] == "generated").expect("a run");
    let workers: Vec<&Value> =
        generated["attempts"].as_array().into_iter().flatten().map(|one| &one["worker"]).collect();
    assert_eq!(workers, ["(architect)", "answerer"], "what the architect takes is counted, too");
    // One draft and three repairs.
    let refused = runs.filter(|run| run["system"] == "generated").map(|run| run["attempts"].as_array().map(Vec::len));
    assert_eq!(refused.collect::<Vec<_>>(), [Some(4)]);
}

#[test]
fn an_evaluation_without_a_model_keeps_nothing_and_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let file = directory.path().join("questions.json");
    let question = json!({
        "question": "?", "answer": "!", "context": {"title": ["t"], "sentences": [["s"]]},
        "supporting_facts": {"title": [], "sent_id": []},
    });
    fs::write(&file, json!([question]).to_string()).expect("a file can be written");
    let file = file.display().to_string();
    let hotpot = |url: &str, more: &[&str]| {
        run(env!("CARGO_BIN_EXE_hotpot_eval"), directory.path(), url, &[&[file.as_str()], more].concat())
    };
    let output = hotpot("http://127.0.0.1:1/v1", &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("does not answer; start it and repeat"), "{stderr}");
    assert_eq!(fs::read_to_string(directory.path().join("runs.jsonl")).unwrap_or_default(), "");
    let output = hotpot("http://127.0.0.1:1/v1", &["--systems", "nobody"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("without-feedback"), "the systems there are: {stderr}");
}

#[test]
fn alfworld_eval_plays_the_same_game_by_patches_and_on_both_blackboards() {
    let Some(python) = game::python() else { return };
    let directory = tempfile::tempdir().expect("a directory can be made");
    let game = "train/look_at_obj_in_light-Lamp-None-Lamp-1/trial";
    game::lay_out(directory.path(), game);
    let index = json!([{"game": game, "task_type": "look_at_obj_in_light"}]);
    let games = directory.path().join("games");
    fs::write(games.join("INDEX.json"), index.to_string()).expect("a file can be written");
    // Programs get only the environment variables they are given.
    let launcher = directory.path().join("python");
    let source = format!("#!/bin/sh\nPYTHONPATH={} exec {python} \"$@\"\n", directory.path().display());
    fs::write(&launcher, source).expect("a file can be written");
    fs::set_permissions(&launcher, Permissions::from_mode(0o755)).expect("it can be made a program");
    let (games, launcher) = (games.display().to_string(), launcher.display().to_string());
    let model = endpoint();
    let systems = "patchboard,patchboard-free,plain,structured,without-patch";
    let arguments = [games.as_str(), "--python", &launcher, "--systems", systems];
    let report = text(&run(env!("CARGO_BIN_EXE_alfworld_eval"), &directory.path().join("out"), &model.url, &arguments));
    for (system, won, admissible) in
        [("patchboard", "1 of 1", "1 of 1"), ("plain", "1 of 1", "1 of 1"), ("structured", "1 of 1", "1 of 1")]
    {
        let row = row(&report, system);
        assert!(row[1].starts_with(won) && row[3].starts_with(admissible), "{system}: {report}");
    }
    assert!(row(&report, "patchboard-free")[1].starts_with("0 of 1"), "{report}");
}

/// Serves a model on a blackboard: it decides questions about apples at once, and leaves the others to the vote, with
/// almost unanimous answers.
fn blackboard() -> Endpoint {
    Endpoint::serving(|request| {
        let content = |nth: usize| request["messages"][nth]["content"].as_str().unwrap_or_default();
        let (system, view) = (content(0), content(1));
        let is = |role: &str| system.contains(role);
        let waits = |words: &str| json!({"pass": words}).to_string();
        let says = |words: &str| json!({"output": words}).to_string();
        let reply = if is("Name the experts") {
            json!({"Counter": "Counts."}).to_string()
        } else if is("You choose who works next") {
            json!({"chosen agents": ["expert_1", "cleaner", "decider"]}).to_string()
        } else if view.contains("your answer") && is("critic") {
            says("8")
        } else if view.contains("your answer") {
            says("It is 1,018.")
        } else if is("Answer the question.") {
            says("the final answer is boxed[8]")
        } else if is("You are the decider") && view.contains("apples") {
            says("Counted: the final answer is boxed[$8.00]")
        } else if is("You are the expert") {
            says("I have counted.")
        } else if is("You are the cleaner") && view.contains("I have counted") {
            json!({"clean list": [{"useless message": "I have counted.", "explanation": "Of what?"}]}).to_string()
        } else {
            waits("waiting for more information")
        };
        ScriptedResponse::answer(&reply, 100, 10)
    })
}

#[test]
fn gsm8k_eval_compares_the_blackboard_with_and_without_its_parts() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let (file, out) = (directory.path().join("questions.jsonl"), directory.path().join("out"));
    let question = |question: &str, answer: &str| json!({"question": question, "answer": answer}).to_string();
    let lines = [question("How many apples?", "4 + 4 = 8\n#### 8"), question("How many pears?", "#### 1,018")];
    fs::write(&file, lines.join("\n")).expect("a file can be written");
    let file = file.display().to_string();
    let gsm8k =
        |url: &str, more: &[&str]| run(env!("CARGO_BIN_EXE_gsm8k_eval"), &out, url, &[&[file.as_str()], more].concat());
    let model = blackboard();
    // Stop after one question, then continue.
    let first = text(&gsm8k(&model.url, &["--count", "1"]));
    assert!(row(&first, "full")[1].starts_with("1 of 1,"), "{first}");
    let before = model.requests().len();
    let report = text(&gsm8k(&model.url, &[]));
    assert_eq!(fs::read_to_string(out.join("runs.jsonl")).expect("results").lines().count(), 8);
    for (arm, right, decided, rounds) in [
        ("full", "2 of 2", "1 of 2", "2.50"),
        ("no-control", "2 of 2", "1 of 2", "2.50"),
        ("no-cleaner", "2 of 2", "1 of 2", "2.50"),
        ("single", "1 of 2", "2 of 2", "0.00"),
    ] {
        let row = row(&report, arm);
        assert!(
            row[1].starts_with(right) && row[2].starts_with(decided) && row[3].starts_with(rounds),
            "{arm}: {report}"
        );
    }
    // Six agents voted, five without a cleaner; the critic disagrees.
    assert!(
        row(&report, "full")[4].starts_with("5 of 6,") && row(&report, "no-cleaner")[4].starts_with("4 of 5,"),
        "{report}"
    );
    assert!(row(&report, "full")[5].starts_with("0 of 1,"), "{report}");
    let tokens: Vec<f64> = ["full", "no-control", "single"]
        .map(|arm| row(&report, arm)[7].split(' ').next().expect("a mean").parse().expect("a number"))
        .to_vec();
    assert!(tokens[2] < tokens[0] && tokens[0] < tokens[1], "{report}");
    let asked = model.requests();
    assert!(asked.len() > before);
    assert_eq!(text(&gsm8k(&model.url, &[])), report);
    assert_eq!(text(&gsm8k("http://127.0.0.1:1/v1", &["--report"])), report);
    assert_eq!(model.requests().len(), asked.len(), "what is there is not run again");
}
