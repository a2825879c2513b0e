//! Plays `blueprints/blackboard.yaml` with GSM8K questions, with and without its parts, and measures the answers.
//!
//! The file has one JSON object a line: `question`, and `answer`, with the number after `####` at its end. Every run is
//! a board in the journal of OUT; show it with `patchboard log BOARD --data-dir OUT/boards`.
//!
//! | measure | per question |
//! |---|---|
//! | `right` | 1 if the number of the answer is the expected one |
//! | `decided` | 1 if the decider gave the answer, not the vote |
//! | `rounds` | number of rounds begun |
//! | `asked` | 1 if there was a vote |
//! | `answers`, `agreeing` | answers at the vote, and the size of the largest group of equal answers |

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use patchboard_evals::eval::play::{self, BoardRun, Origin};
use patchboard_evals::eval::report;
use patchboard_evals::eval::results::{Key, Run};
use patchboard_evals::eval::suite::{self, Flags, Play, System};
use patchboard_kernel::blueprint::Blueprint;
use serde::Deserialize;
use serde_json::{Value, json};

/// Evaluate the blackboard on GSM8K questions
#[derive(Parser, Debug)]
struct Arguments {
    /// Questions in the GSM8K format, one JSON object a line
    #[arg(value_name = "FILE")]
    questions: PathBuf,
    /// Variants to compare
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "full,no-control,no-cleaner,single")]
    arms: Vec<Arm>,
    #[command(flatten)]
    flags: Flags,
}

/// Variant of the blackboard, with all or some of its parts.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Arm {
    /// Complete blackboard
    Full,
    /// Every agent is triggered in each round
    NoControl,
    /// No cleaner
    NoCleaner,
    /// Useless messages are marked, not removed
    Mark,
    /// One agent answers at once, without a blackboard
    Single,
}

impl Arm {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn request(self, question: &str) -> Value {
        match self {
            Self::Full | Self::Single => json!({"question": question}),
            Self::NoControl => json!({"question": question, "control": false}),
            Self::NoCleaner => json!({"question": question, "cleaner": "off"}),
            Self::Mark => json!({"question": question, "cleaner": "mark"}),
        }
    }
}

/// Returns the blueprint of a single agent, with a decider's reply format, which leaves room to think.
fn single() -> Result<Blueprint, serde_json::Error> {
    let answer =
        json!({"type": "object", "required": ["text", "by"], "properties": {"text": {"type": "string"}, "by": true}});
    serde_json::from_value(json!({
        "blueprint": 1, "name": "single", "description": "Answers a question.",
        "request": {"type": "object", "required": ["question"], "properties": {"question": {"type": "string"}}},
        "state": {"schema": {"type": "object", "properties": {"request": true, "answer": answer}}, "initial": {}},
        "workers": {"answerer": {
            "agent": "llm", "format": "decider", "pass": true,
            "role": "Answer the question. Work step by step and in few words, then give the final answer.",
            "reads": ["/request/question"], "writes": [{"path": "/answer", "ops": ["add"]}],
            "view": {"budget": 12000}, "limits": {"attempts": 3, "timeout": "10m", "reply_tokens": 400},
        }},
        "rules": [{"name": "begin", "trigger": "start", "run": "answerer"}],
        "done": {"when": "has(state.answer)"},
        "limits": {"commits": 10, "tokens": 100_000, "wall": "1h"},
    }))
}

#[derive(Deserialize)]
struct Question {
    question: String,
    answer: String,
}

impl Question {
    fn expected(&self) -> &str {
        self.answer.rsplit("####").next().unwrap_or_default().trim()
    }

    fn measure(&self, played: &BoardRun) -> (Vec<(&'static str, f64)>, Value) {
        let state = played.state.root().to_value();
        let given = state["answer"]["text"].as_str();
        let is_right = number(self.expected()).is_some_and(|expected| given.and_then(number) == Some(expected));
        let mut alike = BTreeMap::<String, usize>::new();
        let answers = state["answers"].as_array().map_or(&[][..], Vec::as_slice);
        for answer in answers.iter().filter_map(|answer| answer["text"].as_str()) {
            *alike.entry(normalised(answer)).or_default() += 1;
        }
        let flag = |is: bool| f64::from(u8::from(is));
        let measures = vec![
            ("right", flag(is_right)),
            ("decided", flag(state["answer"]["by"] == "decider")),
            ("rounds", state["rounds"].as_array().map_or(0, Vec::len) as f64),
            ("asked", flag(state.get("ballot").is_some())),
            ("answers", answers.len() as f64),
            ("agreeing", alike.into_values().max().unwrap_or_default() as f64),
        ];
        (measures, json!({"expected": self.expected(), "given": given, "by": state["answer"]["by"]}))
    }
}

/// Parses the last number of a text. Ignores commas between digits and trailing zeros of a fraction.
fn number(text: &str) -> Option<f64> {
    let text: Vec<char> = text.chars().collect();
    let digit = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(char::is_ascii_digit);
    let mut numbers = vec![String::new()];
    for (at, c) in text.iter().enumerate() {
        let (before, after) = (digit(at.checked_sub(1)), digit(Some(at + 1)));
        let current = numbers.last_mut()?;
        match c {
            '0'..='9' => current.push(*c),
            ',' if before && after => {}
            '.' if after && !current.contains('.') => current.push('.'),
            _ => {
                let is_sign = *c == '-' && (after || text.get(at + 1) == Some(&'$')) && !before;
                let is_currency = *c == '$' && current == "-";
                if !is_currency {
                    numbers.push(if is_sign { "-".to_owned() } else { String::new() });
                }
            }
        }
    }
    numbers.iter().rev().find_map(|number| number.parse().ok())
}

/// Normalises an answer for comparison: its number, or its words.
fn normalised(text: &str) -> String {
    match number(text) {
        Some(number) => number.to_string(),
        None => text.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>().join(" "),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    suite::conclude(evaluate(&Arguments::parse()).await)
}

async fn evaluate(arguments: &Arguments) -> Result<String, Box<dyn Error>> {
    let (file, flags) = (&arguments.questions, &arguments.flags);
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty()).take(flags.count);
    let questions: Vec<Question> = lines
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let blackboard = play::blueprint(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints/blackboard.yaml"))?;
    let single = single()?;
    let mut plays = Vec::new();
    for seed in &flags.seeds {
        for (question, nth) in questions.iter().zip(1..) {
            for arm in &arguments.arms {
                let key = Key { task: format!("{nth:03}"), system: arm.name(), seed: *seed };
                let origin = Origin::Fixed(if *arm == Arm::Single { &single } else { &blackboard });
                let request = arm.request(&question.question);
                plays.push((Play { key, system: System::Patchboard, origin, request, environment: None }, question));
            }
        }
    }
    let results = suite::play_all(flags, &plays, |question, played| question.measure(played)).await?;
    Ok(report(results.runs()))
}

fn report(runs: &[Run]) -> String {
    let arms: Vec<(&str, Vec<&Run>)> = report::by_system(runs).into_iter().collect();
    let is_full = |run: &&&Run| run.measure("answers") > 1.0 && run.measure("agreeing") == run.measure("answers");
    let by_arm = report::columns(
        &arms,
        &[
            ("arm", &|(arm, _)| (*arm).to_owned()),
            ("right", &|(_, runs)| report::share(report::sum(runs, "right"), runs.len())),
            ("by the decider", &|(_, runs)| report::share(report::sum(runs, "decided"), runs.len())),
            ("rounds", &|(_, runs)| report::mean_of(runs, |run| run.measure("rounds"), 2)),
            ("answers that agree", &|(_, runs)| {
                report::share(report::sum(runs, "agreeing"), report::sum(runs, "answers"))
            }),
            ("ballots of one mind", &|(_, runs)| {
                report::share(runs.iter().filter(is_full).count(), report::sum(runs, "asked"))
            }),
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
            ("arm", &|run| run.key.system.clone()),
            ("expected", &|run| shown(run, "expected")),
            ("given", &|run| shown(run, "given")),
            ("by", &|run| shown(run, "by")),
            ("end", &|run| format!("{} ({})", run.end, run.cause)),
            ("rounds", &|run| run.measure("rounds").to_string()),
            ("answers that agree", &|run| run.part("agreeing", "answers")),
            ("tokens", &|run| run.tokens().to_string()),
        ],
    );
    let tokens = report::differences(runs, &Arm::Full.name(), |run| run.tokens() as f64, 0);
    format!(
        "{by_arm}\nFirst attempts:\n\n{}\nTokens of a question, beyond those of full:\n\n{}\n{questions}",
        report::first_attempts(runs),
        report::table(&["arm", "pairs", "difference"], &tokens),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_an_answer_is_found_however_it_is_written() {
        for (text, expected) in [
            ("18", Some(18.0)),
            ("$1,234.50", Some(1234.5)),
            ("\\$70,000", Some(70000.0)),
            ("9 * 2 = 18 dollars.", Some(18.0)),
            ("-7", Some(-7.0)),
            ("-$7.00", Some(-7.0)),
            ("10-3", Some(3.0)),
            ("1, 2", Some(2.0)),
            (".5", Some(0.5)),
            ("12. ", Some(12.0)),
            ("50%", Some(50.0)),
            ("nothing", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
        assert_eq!(normalised("18.00 eggs"), normalised("18"));
        assert_eq!(normalised(" No  Idea"), "no idea");
    }

    #[test]
    fn the_single_worker_blueprint_is_sound() {
        let text = json!(single().expect("a blueprint")).to_string();
        let source = patchboard_lint::source::Source::read("single.json", &text).expect("JSON");
        let report = patchboard_protocols::check(&source);
        assert!(report.blueprint.is_some() && report.findings.is_empty(), "{:?}", report.findings);
    }
}
