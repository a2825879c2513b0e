//! A bit flips on the disk: `verify` detects it, or no answer has changed.
//!
//! Bit flips in SQLite's log after a kill are tested in `crash::lost`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use patchboard_faults::random::Random;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::daemon::{Daemon, STEPS};
use crate::process::ended_within;

const SEED: u64 = 41;
const FLIPS: usize = 1000;
const FLIPS_OF_TOKENS: u64 = 150;

/// Time limit of one command.
const TIME: Duration = Duration::from_secs(60);

const NOTES: &str = include_str!("../cli/notes.yaml");
const JOURNAL: &str = "boards/patchboard.db";
const TOKENS: &str = "boards/daemon.db";

/// Exit code and stdout of a command.
#[derive(PartialEq, Eq, Clone, Debug)]
struct CommandOutput {
    code: Option<i32>,
    stdout: String,
}

/// Runs a command on the data directory; fails if it panics, dies of a signal, or does not end.
fn output_of(place: &Daemon, arguments: &[&str], after: &str) -> CommandOutput {
    let file = |name: &str| fs::File::create(place.path().join(name)).expect("a file can be written");
    let mut command = place.command(arguments);
    let child = command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr")).spawn();
    let status = ended_within(&mut child.expect("the binary can be run"), TIME);
    let read = |name: &str| String::from_utf8_lossy(&fs::read(place.path().join(name)).expect("a file")).into_owned();
    let (stdout, stderr) = (read("stdout"), read("stderr"));
    let code = status.and_then(|status| status.code());
    assert!(code.is_some() && !stderr.contains("panicked"), "{after}: {arguments:?}: {status:?}: {stderr}");
    CommandOutput { code, stdout }
}

fn succeeds(place: &Daemon, arguments: &[&str]) -> String {
    let output = output_of(place, arguments, "at first");
    assert_eq!(output.code, Some(0), "{arguments:?}: {}", output.stdout);
    output.stdout
}

/// Returns the blueprint of a worker that edits a file in three steps and then writes the answer.
fn editing() -> String {
    let tool = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
    let create =
        tool("create", json!({"path": "a.txt", "file_text": "one\ntwo\nthree\n".repeat(200), "intent": "begin"}));
    let insert = |line: u32, text: &str| {
        tool("insert", json!({"path": "a.txt", "insert_line": line, "insert_text": text, "intent": "go on"}))
    };
    let reply = json!([{"op": "replace", "path": "/answer", "value": "written"}]);
    let tools = [create, insert(1, "between\n"), insert(3, "and between\n")];
    json!({
        "blueprint": 1,
        "name": "edit",
        "workspace": {"dir": "code"},
        "state": {
            "schema": {"type": "object", "properties": {"answer": {"type": "string"}}},
            "initial": {"answer": ""},
        },
        "workers": {"writer": {
            "agent": "script",
            "script": [{"tools": tools, "reply": reply}],
            "writes": [{"path": "/answer", "ops": ["replace"]}],
            "files": {"view": ["**"], "edit": ["**"]},
        }},
        "rules": [{"name": "go", "trigger": "start", "run": "writer"}],
        "done": {"when": "state.answer != \"\""},
    })
    .to_string()
}

/// Returns a data directory with boards of many kinds of records: proposals, rejections, signals, edits of files, a
/// redaction.
fn made() -> Daemon {
    let place = Daemon::not_started(&[]);
    let write = |name: &str, text: &str| fs::write(place.path().join(name), text).expect("a file can be written");
    write("notes.yaml", NOTES);
    write("steps.yaml", STEPS);
    write("edit.yaml", &editing());
    fs::create_dir(place.path().join("code")).expect("a directory can be made");
    place.configure("[workspaces.code]\ndir = \"code\"\n");
    let edited = succeeds(&place, &["run", "edit.yaml", "-q"]);
    assert!(
        fs::read_to_string(place.path().join("code/a.txt")).is_ok_and(|text| text.contains("and between")),
        "{edited}"
    );
    let run = |blueprint: &str, request: &Value| {
        output_of(&place, &["run", blueprint, "--request", &request.to_string(), "-q"], "at first");
    };
    run("notes.yaml", &json!({"topic": "a subject that is erased", "more": vec!["text"; 200]}));
    succeeds(&place, &["redact", "last", "/request/topic"]);
    run("notes.yaml", &json!({"topic": "a subject that stays", "numbers": (0..2000).collect::<Vec<_>>()}));
    run("steps.yaml", &json!({}));
    for _ in 0..40 {
        output_of(&place, &["signal", "last", "more", "-q"], "at first");
    }
    // Moves the whole log into the database file.
    let connection = Connection::open(place.path().join(JOURNAL)).expect("it can be opened");
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("nobody else holds it");
    drop(connection);
    place
}

/// Copies the files of the data directory.
fn copy(from: &Path, to: &Path) {
    drop(fs::remove_dir_all(to));
    fs::create_dir_all(to).expect("a directory can be made");
    for entry in fs::read_dir(from).expect("it can be read") {
        let entry = entry.expect("it can be read");
        if entry.file_type().expect("a file").is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("a file can be copied");
        }
    }
}

/// Returns the page size in bytes, and the numbers of the pages in SQLite's free list.
fn free_pages(file: &[u8]) -> (usize, BTreeSet<usize>) {
    let number = |at: usize| {
        let bytes = file[at..at + 4].try_into().expect("four bytes");
        usize::try_from(u32::from_be_bytes(bytes)).expect("a number of 32 bits")
    };
    let size = match u16::from_be_bytes([file[16], file[17]]) {
        1 => 65_536,
        size => size.into(),
    };
    let (mut free, mut trunk) = (BTreeSet::new(), number(32));
    while trunk != 0 {
        free.insert(trunk);
        let at = (trunk - 1) * size;
        free.extend((0..number(at + 4)).map(|leaf| number(at + 8 + 4 * leaf)));
        trunk = number(at);
    }
    assert_eq!(free.len(), number(36), "the list of free pages is read as it is written");
    (size, free)
}

/// Returns the answers about all boards, by command.
fn everything(place: &Daemon, boards: &[String], after: &str) -> Vec<(String, CommandOutput)> {
    let mut all = vec![("boards".to_owned(), output_of(place, &["boards"], after))];
    for board in boards {
        for command in ["export", "state", "log"] {
            all.push((format!("{command} {board}"), output_of(place, &[command, board], after)));
        }
    }
    all
}

#[test]
fn a_flipped_bit_of_a_used_page_is_found_or_changes_nothing() {
    let whole = made();
    let listed = succeeds(&whole, &["boards"]);
    let boards: Vec<String> = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["board"].as_str().expect("an id").to_owned())
        .collect();
    assert!(boards.len() >= 3, "{listed}");
    for board in &boards {
        succeeds(&whole, &["verify", board]);
    }
    let right = everything(&whole, &boards, "at first");
    assert!(right.iter().all(|(_, output)| output.code == Some(0)), "{right:?}");
    let file = fs::read(whole.path().join(JOURNAL)).expect("it can be read");
    let (size, free) = free_pages(&file);
    let pages = file.len() / size;
    let mut random = Random::from_parts(SEED, &[]);
    let mut flips = BTreeSet::new();
    while flips.len() < FLIPS {
        let (place, bit) = (random.index(file.len()), random.below(8));
        if !free.contains(&(place / size + 1)) {
            flips.insert((place, bit));
        }
    }
    let flips: Vec<(usize, u64)> = flips.into_iter().collect();
    let (next, found, harmless) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let place = Daemon::not_started(&[]);
                while let Some((at, bit)) = flips.get(next.fetch_add(1, Ordering::Relaxed)) {
                    copy(&whole.path().join("boards"), &place.path().join("boards"));
                    let mut flipped = file.clone();
                    flipped[*at] ^= 1 << bit;
                    fs::write(place.path().join(JOURNAL), flipped).expect("a file can be written");
                    let after = format!("bit {bit} of byte {} of page {} of {pages}", at % size, at / size + 1);
                    let is_sound = |board: &String| output_of(&place, &["verify", board], &after).code == Some(0);
                    if !boards.iter().all(is_sound) {
                        found.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    let now = everything(&place, &boards, &after);
                    match now.iter().zip(&right).find(|(now, right)| now != right) {
                        None => drop(harmless.fetch_add(1, Ordering::Relaxed)),
                        Some(((command, now), (_, right))) => {
                            let at = now.stdout.bytes().zip(right.stdout.bytes()).position(|(a, b)| a != b);
                            let at = at.unwrap_or_default();
                            let near = |output: &CommandOutput| {
                                String::from_utf8_lossy(&output.stdout.as_bytes()[at.saturating_sub(60)..])
                                    .chars()
                                    .take(120)
                                    .collect::<String>()
                            };
                            let line =
                                format!("{after}: {command}: {:?}: {:?}, not {:?}", now.code, near(now), near(right));
                            wrong.lock().expect("no thread panicked").push(line);
                        }
                    }
                }
            });
        }
    });
    let (found, harmless) = (found.into_inner(), harmless.into_inner());
    let wrong = wrong.into_inner().expect("no thread panicked");
    println!(
        "flips: of {FLIPS} bits of {} used pages `verify` found {found}, {harmless} changed nothing, {} changed something unnoticed",
        pages - free.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found > FLIPS / 4, "{found}");
}

#[tokio::test]
async fn a_flipped_bit_of_the_tokens_opens_nothing_more_and_ends_no_daemon_by_a_panic() {
    let whole = Daemon::not_started(&["--require-tokens"]);
    let tokens: Vec<String> =
        ["admin", "read", "board:0199", "person:boss", "read"].iter().map(|scope| whole.token(scope)).collect();
    succeeds(&whole, &["token", "revoke", "5"]);
    let connection = Connection::open(whole.path().join(TOKENS)).expect("it can be opened");
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("nobody else holds it");
    drop(connection);
    let listed = succeeds(&whole, &["token", "list"]);
    let file = fs::read(whole.path().join(TOKENS)).expect("it can be read");
    let (mut errors, mut unchanged, mut listed_otherwise) = (0, 0, 0);
    for flip in 0..FLIPS_OF_TOKENS {
        let mut random = Random::from_parts(SEED, &[flip]);
        let (place, bit) = (random.index(file.len()), random.below(8));
        let after = format!("bit {bit} of byte {place}");
        let mut daemon = Daemon::not_started(&["--require-tokens"]);
        copy(&whole.path().join("boards"), &daemon.path().join("boards"));
        let mut flipped = file.clone();
        flipped[place] ^= 1 << bit;
        fs::write(daemon.path().join(TOKENS), flipped).expect("a file can be written");
        let now = output_of(&daemon, &["token", "list"], &after);
        match now.code {
            Some(0) if now.stdout == listed => unchanged += 1,
            Some(0) => listed_otherwise += 1,
            _ => errors += 1,
        }
        if now.code != Some(0) {
            continue;
        }
        daemon.start();
        for (number, (token, status)) in tokens.iter().zip([200, 403, 403, 403, 401]).enumerate() {
            let header = format!("Bearer {token}");
            let answer = daemon.request(reqwest::Method::GET, "/v1/tokens", &[("authorization", &header)], None).await;
            let seen = answer.status.as_u16();
            assert!(seen == status || seen >= 400, "{after}: token {number} opens {seen}");
        }
        assert!(!daemon.log().contains("panicked"), "{after}: {}", daemon.log());
    }
    println!(
        "flips in the tokens: {FLIPS_OF_TOKENS}, of which {errors} are an error, {unchanged} change nothing, {listed_otherwise} change \
         what is listed; none opens more"
    );
}
