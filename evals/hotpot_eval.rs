//! Plays `blueprints/evidence-review.yaml` with HotpotQA questions and measures the answers.
//!
//! The file is a JSON array in the HotpotQA format: `question`, `answer`, `context` (titles and sentences), and
//! `supporting_facts` (title and number of each needed sentence). Every run is a board in the journal of OUT; show it
//! with `patchboard log BOARD --data-dir OUT/boards`.
//!
//! | measure | per question |
//! |---|---|
//! | `answered` | 1 if the answer is the expected one, compared as the HotpotQA scorer does |
//! | `claims`, `unsupported` | claims made, and the number of them that are no sentence of a given document |
//! | `needed`, `covered` | needed sentences, and the number of them that were verified |
//! | `verified`, `precise` | verified sentences, and the number of them that are needed |

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use patchboard_evals::eval::play::{self, BoardRun};
use patchboard_evals::eval::report;
use patchboard_evals::eval::results::Run;
use patchboard_evals::eval::suite::{self, Flags, Subject, Systems, Task};
use serde::Deserialize;
use serde_json::{Value, json};

/// Prompt for a model that writes a blueprint.
const WORDS: &str = "Answer the question /request/question from the documents in /request/documents, each of which has a \
    title and a list of sentences. The answer is as short as possible, and goes as a text to /answer.";

/// Evaluate the evidence review on HotpotQA questions
#[derive(Parser, Debug)]
struct Arguments {
    /// A JSON array of questions in the HotpotQA format
    #[arg(value_name = "FILE")]
    questions: PathBuf,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    systems: Systems,
}

#[derive(Deserialize)]
struct Question {
    question: String,
    answer: String,
    context: Context,
    supporting_facts: Facts,
}

#[derive(Deserialize)]
struct Context {
    title: Vec<String>,
    sentences: Vec<Vec<String>>,
}

#[derive(Deserialize)]
struct Facts {
    title: Vec<String>,
    sent_id: Vec<usize>,
}

impl Question {
    /// Returns the given documents, without empty sentences.
    fn documents(&self) -> Vec<Value> {
        let given = self.context.title.iter().zip(&self.context.sentences);
        let document = |(title, sentences): (&String, &Vec<String>)| {
            let sentences: Vec<&str> = sentences.iter().map(|one| one.trim()).filter(|one| !one.is_empty()).collect();
            json!({"title": title, "sentences": sentences})
        };
        given.map(document).collect()
    }

    fn sentences(&self) -> BTreeSet<&str> {
        self.context.sentences.iter().flatten().map(|sentence| sentence.trim()).collect()
    }

    /// Returns the needed sentences; invalid sentence numbers are skipped.
    fn needed(&self) -> BTreeSet<&str> {
        let facts = self.supporting_facts.title.iter().zip(&self.supporting_facts.sent_id);
        let sentence = |(title, number): (&String, &usize)| {
            let document = self.context.title.iter().position(|one| one == title)?;
            Some(self.context.sentences.get(document)?.get(*number)?.trim())
        };
        facts.filter_map(sentence).collect()
    }

    fn measure(&self, played: &BoardRun) -> (Vec<(&'static str, f64)>, Value) {
        let state = played.state.root().to_value();
        let texts = |name: &str| -> Vec<String> {
            let list = state[name].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(|text| text.trim().to_owned()).collect()
        };
        let (given, needed) = (self.sentences(), self.needed());
        let (claims, verified) = (texts("claims"), texts("verified"));
        let count = |list: &[String], of: &BTreeSet<&str>| list.iter().filter(|one| of.contains(one.as_str())).count();
        let covered = needed.iter().filter(|one| verified.iter().any(|verified| verified == *one)).count();
        // A generated blueprint has a text as its answer.
        let answer = state["answer"]["says"].as_str().or(state["answer"].as_str());
        let is_answered = answer.is_some_and(|answer| normalised(answer) == normalised(&self.answer));
        let measures = vec![
            ("answered", f64::from(u8::from(is_answered))),
            ("claims", claims.len() as f64),
            ("unsupported", (claims.len() - count(&claims, &given)) as f64),
            ("needed", needed.len() as f64),
            ("covered", covered as f64),
            ("verified", verified.len() as f64),
            ("precise", count(&verified, &needed) as f64),
        ];
        (measures, json!({"expected": self.answer, "given": answer}))
    }
}

/// Normalises an answer like the HotpotQA scorer: lower case, without punctuation, articles and double spaces.
fn normalised(text: &str) -> String {
    let text: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let words = text.split_whitespace().filter(|word| !matches!(*word, "a" | "an" | "the"));
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::main]
async fn main() -> ExitCode {
    suite::conclude(evaluate(&Arguments::parse()).await)
}

async fn evaluate(arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let file = &arguments.questions;
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut questions: Vec<Question> =
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    questions.truncate(arguments.flags.count);
    let blueprint = play::blueprint(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints/evidence-review.yaml"))?;
    let task = |(number, question): (usize, &Question)| Task {
        name: format!("{:03}", number + 1),
        request: json!({"question": question.question, "documents": question.documents()}),
    };
    let tasks: Vec<Task> = questions.iter().enumerate().map(task).collect();
    let measure = |task: &Task, played: &BoardRun| {
        let number: usize = task.name.parse().unwrap_or(1);
        questions[number - 1].measure(played)
    };
    let subject = Subject { blueprint: &blueprint, environment: None, words: Some(WORDS) };
    let results = suite::run(&arguments.flags, &arguments.systems, &subject, &tasks, measure).await?;
    Ok(report(results.runs()))
}

fn report(runs: &[Run]) -> String {
    let systems: Vec<(&str, Vec<&Run>)> = report::by_system(runs).into_iter().collect();
    let share = |runs: &[&Run], part: &str, of: &str| report::share(report::sum(runs, part), report::sum(runs, of));
    let by_system = report::columns(
        &systems,
        &[
            ("system", &|(system, _)| (*system).to_owned()),
            ("answered", &|(_, runs)| report::share(report::sum(runs, "answered"), runs.len())),
            ("unsupported claims", &|(_, runs)| share(runs, "unsupported", "claims")),
            ("needed sentences verified", &|(_, runs)| share(runs, "covered", "needed")),
            ("verified that are needed", &|(_, runs)| share(runs, "precise", "verified")),
            ("invalid documents", &|(_, runs)| report::share_of(runs, |run| run.is_invalid)),
            ("calls", &|(_, runs)| report::mean_of(runs, |run| run.attempts.len() as f64, 1)),
            ("tokens", &|(_, runs)| report::mean_of(runs, |run| run.tokens() as f64, 0)),
            ("seconds", &|(_, runs)| report::mean_of(runs, |run| run.seconds, 0)),
        ],
    );
    let shown = |run: &Run, name: &str| run.shown[name].as_str().unwrap_or("–").to_owned();
    let questions = report::columns(
        runs,
        &[
            ("question", &|run| run.key.task.clone()),
            ("system", &|run| run.key.system.clone()),
            ("expected", &|run| shown(run, "expected")),
            ("given", &|run| shown(run, "given")),
            ("end", &|run| format!("{} ({})", run.end, run.cause)),
            ("needed sentences verified", &|run| run.part("covered", "needed")),
            ("tokens", &|run| run.tokens().to_string()),
        ],
    );
    let tokens = report::differences(runs, "patchboard", |run| run.tokens() as f64, 0);
    format!(
        "{by_system}\nFirst attempts:\n\n{}\nTokens of a question, beyond those of patchboard:\n\n{}\n{questions}",
        report::first_attempts(runs),
        report::table(&["system", "pairs", "difference"], &tokens),
    )
}
