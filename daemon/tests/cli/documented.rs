//! Runs the command lines of pages and help texts that need no network and no model.

#[path = "../documented/mod.rs"]
mod lines;

use std::collections::BTreeSet;
use std::process::Command;

use self::lines::{Line, of_help, of_pages, root};

/// Commands that read and end.
const READING: &[&str] = &[
    "boards",
    "check",
    "cost",
    "rejections",
    "export",
    "graph",
    "heads",
    "inbox",
    "log",
    "replay",
    "schema",
    "state",
    "verify",
    "view",
    "why",
    "workflow",
];

/// Words of lines that concern another board, another file, a daemon, or a run without an end.
const ELSEWHERE: &[&str] = &[
    "--url",
    "--follow",
    "--head",
    "--data-dir",
    "--request",
    "BOARD",
    "BLUEPRINT",
    "CODE",
    "-",
    "blueprints/*.yaml",
    "checker",
    "etl.json",
    "etl.yaml",
    "review.yaml",
    "count.yaml",
    "digest.yaml",
    "/notes/3/status",
    "/sources/3",
    "{\"at\": \"/sources\", \"from\": 20}",
];

fn patchboard(directory: &std::path::Path, words: &[String]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_patchboard"));
    command.current_dir(directory).args(words).env_remove("PATCHBOARD_DATA_DIR").env_remove("PATCHBOARD_CONFIG");
    command.output().expect("the binary can be run")
}

/// Returns true if a line can be run beside the shipped blueprints, on a board of the main job.
fn is_run(line: &Line) -> bool {
    let is = |list: &[&str], word: &String| list.contains(&word.as_str());
    let is_of_last = line.words.iter().all(|word| word.chars().next().is_none_or(|first| !first.is_ascii_digit()));
    !line.is_mention
        && line.words.first().is_some_and(|word| is(READING, word))
        && !line.words.iter().any(|word| is(ELSEWHERE, word))
        && (is_of_last || line.words.iter().any(|word| word == "--at"))
}

#[cfg(unix)]
#[test]
fn documented_commands_succeed() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    std::os::unix::fs::symlink(root().join("blueprints"), directory.path().join("blueprints")).expect("a link");
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let main = "run blueprints/evidence-review.yaml --request @blueprints/evidence-review/request.json --cassette \
                blueprints/evidence-review/cassette.jsonl --quiet";
    let ran = patchboard(directory.path(), &words(main));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    for (name, command) in [("heads.txt", "heads"), ("heads.jsonl", "heads --output json")] {
        let stdout = patchboard(directory.path(), &words(command)).stdout;
        std::fs::write(directory.path().join(name), stdout).expect("a file can be written");
    }
    let mut lines: BTreeSet<Line> = of_pages(&[]).into_iter().collect();
    for command in READING {
        let help = patchboard(directory.path(), &words(&format!("{command} --help")));
        lines.extend(of_help(command, &String::from_utf8_lossy(&help.stdout), &[]));
    }
    let (mut count, mut failed) = (0, Vec::new());
    for line in lines.iter().filter(|line| is_run(line)) {
        let ran = patchboard(directory.path(), &line.words);
        let (stdout, why) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        count += 1;
        if !ran.status.success() {
            failed.push(format!("{}: {:?}: {stdout}{why}", line.place, line.words));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(count > 40, "{count} lines were run");
}
