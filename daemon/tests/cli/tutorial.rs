//! Runs pages of docs literally: writes their files, runs their commands, and checks the promised output.

use std::process::Command;

const FIRST: &str = include_str!("../../../docs/first-board.md");
const PROGRAMS: &str = include_str!("../../../docs/programs.md");

/// A fenced block of a page.
struct Block<'p> {
    /// Words after the fence: a language and, for a file, its name.
    head: &'p str,
    text: &'p str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let parts: Vec<&str> = page.split("\n```").collect();
    // Text and blocks alternate.
    let inside = parts.iter().skip(1).step_by(2);
    inside.map(|part| part.split_once('\n').unwrap_or((part, ""))).map(|(head, text)| Block { head, text }).collect()
}

/// Returns true if a line of output contains, in order, the parts of a promise around `…`.
fn keeps(line: &str, promise: &str) -> bool {
    let mut rest = line;
    promise.trim().split('…').all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

/// Runs a page. Returns the number of its commands and of the lines that they print.
fn play(page: &str) -> (usize, usize) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_patchboard")).parent().expect("it lies in a directory");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let (mut output, mut commands, mut promises) = (String::new(), 0, 0);
    for Block { head, text } in blocks(page) {
        match head.split_once(' ').unwrap_or((head, "")) {
            ("python", "") => {}
            ("yaml" | "json" | "python", file) => {
                std::fs::write(directory.path().join(file), text).expect("it can be written")
            }
            ("sh", _) => {
                output.clear();
                for command in text.lines() {
                    let script = format!("exec 2>&1\n{command}");
                    let mut shell = Command::new("sh");
                    shell.args(["-c", &script]).current_dir(directory.path()).env("PATH", &path);
                    for name in ["PATCHBOARD_DATA_DIR", "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL"] {
                        shell.env_remove(name);
                    }
                    let ran = shell.output().expect("there is a shell");
                    let stdout = String::from_utf8_lossy(&ran.stdout);
                    assert!(ran.status.success(), "{command}: {stdout}");
                    output.push_str(&stdout);
                    commands += 1;
                }
            }
            ("text", _) => {
                let mut lines = output.lines();
                for promise in text.lines() {
                    assert!(
                        lines.any(|line| keeps(line, promise)),
                        "{promise:?} is not told, in this order, by:\n{output}"
                    );
                    promises += 1;
                }
            }
            ("", _) => {}
            other => panic!("nothing is known of blocks of {other:?}"),
        }
    }
    (commands, promises)
}

#[test]
fn the_first_board_is_made_as_the_page_says() {
    let (commands, promises) = play(FIRST);
    assert!(commands > 8 && promises > 15, "the page has its blocks: {commands} commands, {promises} promises");
    let yaml =
        blocks(FIRST).iter().find(|block| block.head.starts_with("yaml")).map(|block| block.text.lines().count());
    let scripts = FIRST.lines().filter(|line| line.trim_start().starts_with("script: ")).count();
    assert_eq!(yaml.map(|lines| lines - scripts), Some(29), "without scripts");
}

#[test]
fn a_program_is_a_worker_as_the_page_says() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3, in which the page's program is written");
        return;
    }
    assert_eq!(play(PROGRAMS), (2, 4));
}
