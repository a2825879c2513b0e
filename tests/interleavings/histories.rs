//! Recorded human editing histories, replayed edit by edit through sessions. The writers alternate as recorded. Each
//! edit is based on what its writer has read. A writer that was slower is rejected and retries, and knows the current
//! content from the rejection alone.
//!
//! The expected content is computed separately: from the recorded versions where edits were sequential, and by a
//! character-level rebase where two writers edited concurrently. `HISTORIES=all` plays the long history to its end.

use std::collections::BTreeMap;
use std::time::Instant;

use patchboard_tests::shared;
use patchboard_workshop::Workshop;
use patchboard_workspace::session::{CommandResult, Session};
use serde::Deserialize;
use serde_json::{Value, json};

use super::say_progress;
use super::sessions::in_memory;

/// Transactions of the long history that a normal run plays.
const TRANSACTIONS: usize = 1_500;

/// Maximum number of tries for one edit; more are a failure.
const TRIES_MAX: usize = 8;

/// Writers that share one file.
struct Desk {
    shop: Workshop,
    sessions: Vec<Session>,
    refusals: BTreeMap<String, u64>,
    edits: u64,
    /// Edits that were rejected at least once because the other writer was faster.
    conflicts: u64,
}

const FILE: &str = "file.txt";

impl Desk {
    async fn new(writers: usize) -> Self {
        in_memory();
        let spec = json!({"annotate": false, "payload": 64_000, "presentation": "full"});
        let shop = Workshop::open(writers, &spec, &[]).await;
        let sessions = (0..writers).map(|writer| shop.session(writer)).collect();
        Self { shop, sessions, refusals: BTreeMap::new(), edits: 0, conflicts: 0 }
    }

    fn text(&self) -> String {
        self.shop.text(FILE).unwrap_or_default()
    }

    /// Tries until the edit is accepted. Each retry is based only on the text that the previous rejection showed.
    async fn make(&mut self, writer: usize, text: &str, wish: impl Fn(&str) -> Value) {
        let mut text = text.to_owned();
        let mut is_slower = false;
        for _ in 0..TRIES_MAX {
            let arguments = wish(&text);
            let result: CommandResult = self.sessions[writer].call(arguments.clone()).await;
            let Some(code) = &result.code else {
                self.edits += 1;
                self.conflicts += u64::from(is_slower);
                return;
            };
            let is_due = matches!(code.as_str(), "stale_target" | "unseen_target" | "file_exists");
            assert!(is_due, "{arguments}: {}", result.text);
            is_slower |= code == "stale_target";
            *self.refusals.entry(code.clone()).or_default() += 1;
            text =
                shown(&result.data["target"]).unwrap_or_else(|| panic!("it does not show the file: {}", result.text));
        }
        panic!("{} was refused {TRIES_MAX} times", wish(&text));
    }

    /// Replaces one text by the next, with an edit that has a unique old text. With `looks`, the writer first views
    /// the lines.
    async fn replace(&mut self, writer: usize, old: &str, new: &str, looks: bool) {
        if looks && let Some(piece) = Piece::of(old, new) {
            let arguments = json!({"command": "view", "path": FILE, "view_range": [piece.first + 1, piece.behind]});
            self.sessions[writer].call(arguments).await;
        }
        let wish = |text: &str| match Piece::of(text, new) {
            None => json!({"command": "create", "path": FILE, "file_text": new, "intent": "begin"}),
            Some(Piece { old, new, .. }) => {
                json!({"command": "str_replace", "path": FILE, "old_str": old, "new_str": new, "intent": "next"})
            }
        };
        self.make(writer, old, wish).await;
    }
}

/// Returns the whole text of a file as a rejection shows it, or `None` if it does not.
fn shown(part: &Value) -> Option<String> {
    if part["is_deleted"] == true {
        return Some(String::new());
    }
    if part["view_again"] == true {
        return None;
    }
    let mut text = String::new();
    for (nth, line) in part["content"].as_str()?.lines().enumerate() {
        match line.trim_start().split_once('\t') {
            Some((number, line)) if number.parse() == Ok(nth + 1) => text.extend([line, "\n"]),
            _ if line == "[no newline at the end of the file]" => drop(text.pop()),
            _ if line == "(the file is empty)" => {}
            _ => return None,
        }
    }
    Some(text)
}

/// A range of lines and its replacement.
struct Piece {
    /// Index of the first line, counted from 0; `behind` is the index after the last.
    first: usize,
    behind: usize,
    old: String,
    new: String,
}

impl Piece {
    /// Returns the difference, extended until its old text is unique. `None` if the old text is empty.
    fn of(old: &str, new: &str) -> Option<Self> {
        let (was, now): (Vec<&str>, Vec<&str>) =
            (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
        if was.is_empty() {
            return None;
        }
        let start = was.iter().zip(&now).take_while(|(was, now)| was == now).count();
        let least = was.len().min(now.len()) - start;
        let end = was.iter().rev().zip(now.iter().rev()).take(least).take_while(|(was, now)| was == now).count();
        let (mut first, mut behind) = (start.min(was.len() - 1), (was.len() - end).max(start + 1).min(was.len()));
        first = first.min(behind - 1);
        while occurrences(old, &was[first..behind].concat()) > 1 {
            behind = (behind + usize::from(first == 0)).min(was.len());
            first = first.saturating_sub(1);
        }
        // The common suffix has the same number of lines in both texts.
        let last = now.len() - (was.len() - behind);
        Some(Self { first, behind, old: was[first..behind].concat(), new: now[first..last].concat() })
    }
}

fn occurrences(text: &str, piece: &str) -> usize {
    text.char_indices().filter(|(at, _)| text[*at..].starts_with(piece)).take(2).count()
}

#[derive(Deserialize)]
struct Recorded {
    #[serde(rename = "endContent")]
    end: String,
    #[serde(rename = "numAgents")]
    agents: usize,
    #[serde(rename = "txns")]
    transactions: Vec<Transaction>,
}

#[derive(Deserialize)]
struct Transaction {
    parents: Vec<usize>,
    agent: usize,
    patches: Vec<(usize, usize, String)>,
}

/// Version vector: the number of transactions seen, by agent.
type Seen = Vec<u32>;

/// A character that was inserted at some time.
struct Character {
    text: char,
    by: (usize, u32),
    /// Transactions that deleted it; two concurrent ones may.
    gone: Vec<(usize, u32)>,
}

/// All characters ever inserted, in order. A position is resolved by what the author of its edit had seen.
#[derive(Default)]
struct Rebase {
    characters: Vec<Character>,
    seen: Vec<Seen>,
    of_agents: Seen,
}

impl Rebase {
    /// Adds a transaction. Returns true if its author had seen all earlier ones.
    fn add(&mut self, transaction: &Transaction, agents: usize) -> bool {
        self.of_agents.resize(agents, 0);
        let mut seen = vec![0; agents];
        for parent in &transaction.parents {
            seen.iter_mut().zip(&self.seen[*parent]).for_each(|(seen, of_parent)| *seen = (*seen).max(*of_parent));
        }
        let has_seen_all = seen == self.of_agents;
        let agent = transaction.agent;
        self.of_agents[agent] += 1;
        seen[agent] = self.of_agents[agent];
        let own = (agent, seen[agent]);
        for (position, deleted, inserted) in &transaction.patches {
            let is_seen = |(agent, number): &(usize, u32)| *number <= seen[*agent];
            let mut at = 0;
            let mut left = *position;
            while left > 0 {
                let character = &self.characters[at];
                left -= usize::from(is_seen(&character.by) && !character.gone.iter().any(is_seen));
                at += 1;
            }
            let mut left = *deleted;
            for character in &mut self.characters[at..] {
                if left == 0 {
                    break;
                }
                if is_seen(&character.by) && !character.gone.iter().any(is_seen) {
                    character.gone.push(own);
                    left -= 1;
                }
            }
            assert_eq!(left, 0, "it takes away what its author saw");
            let new = inserted.chars().map(|text| Character { text, by: own, gone: Vec::new() });
            self.characters.splice(at..at, new);
        }
        self.seen.push(seen);
        has_seen_all
    }

    fn text(&self) -> String {
        self.characters.iter().filter(|one| one.gone.is_empty()).map(|one| one.text).collect()
    }
}

#[tokio::test]
async fn concurrent_edits_of_two_authors_equal_their_rebase() {
    let Some(path) = shared::find("vectors/traces/editing-traces/clownschool.concurrent.json") else { return };
    let bytes = std::fs::read(path).expect("readable");
    let recorded: Recorded = serde_json::from_slice(&bytes).expect("a history");
    let asked = std::env::var("HISTORIES").ok();
    let is_all = asked.as_deref() == Some("all");
    let count = if is_all { recorded.transactions.len() } else { TRANSACTIONS };
    let begun = Instant::now();
    let mut desk = Desk::new(recorded.agents).await;
    let mut rebase = Rebase::default();
    let mut before = String::new();
    let (mut behind, mut idle) = (0, 0);
    for (number, transaction) in recorded.transactions.iter().take(count).enumerate() {
        if asked.is_some() {
            say_progress("histories: transactions", number as u64, count as u64, begun);
        }
        let has_seen_all = rebase.add(transaction, recorded.agents);
        let after = rebase.text();
        behind += u64::from(!has_seen_all);
        if after == before {
            idle += 1;
            continue;
        }
        desk.replace(transaction.agent, &before, &after, has_seen_all).await;
        if number % 100 == 0 {
            assert_eq!(desk.text(), after, "transaction {number}");
        }
        before = after;
    }
    assert_eq!(desk.text(), before);
    if is_all {
        assert_eq!(before, recorded.end, "and that is what was recorded");
    }
    eprintln!(
        "histories: clownschool: {count} transactions, {behind} by who had not seen all, {idle} idle, {} edits, {} of them \
         after a conflict, refusals {:?}, {:.1?}",
        desk.edits,
        desk.conflicts,
        desk.refusals,
        begun.elapsed()
    );
    assert!(desk.conflicts > 0 && behind > 0, "they never met");
    shared::ran("editing-traces", count, TRANSACTIONS);
}

#[derive(Deserialize)]
struct Revision {
    author: String,
    doc: Value,
}

/// Splits the difference of two texts into pieces, from the last to the first. Returns the text after each piece.
/// Equal lines are the longest common subsequence.
fn steps(old: &str, new: &str) -> Vec<String> {
    let (was, now): (Vec<&str>, Vec<&str>) = (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let mut longest = vec![vec![0_usize; now.len() + 1]; was.len() + 1];
    for at in (0..was.len()).rev() {
        for to in (0..now.len()).rev() {
            longest[at][to] = match was[at] == now[to] {
                true => longest[at + 1][to + 1] + 1,
                false => longest[at + 1][to].max(longest[at][to + 1]),
            };
        }
    }
    // Pieces as line ranges of both texts.
    let mut pieces: Vec<(usize, usize, usize, usize)> = Vec::new();
    let (mut at, mut to) = (0, 0);
    while at < was.len() || to < now.len() {
        if at < was.len() && to < now.len() && was[at] == now[to] {
            (at, to) = (at + 1, to + 1);
            continue;
        }
        let (from_at, from_to) = (at, to);
        while (at < was.len() || to < now.len()) && !(at < was.len() && to < now.len() && was[at] == now[to]) {
            let is_gone = to == now.len() || (at < was.len() && longest[at + 1][to] >= longest[at][to + 1]);
            if is_gone { at += 1 } else { to += 1 }
        }
        pieces.push((from_at, at, from_to, to));
    }
    let mut text: Vec<&str> = was.clone();
    let texts = pieces.into_iter().rev().map(|(first, behind, from, until)| {
        text.splice(first..behind, now[from..until].iter().copied());
        text.concat()
    });
    texts.collect()
}

#[tokio::test]
async fn sequential_edits_of_authors_reproduce_the_recorded_history() {
    for name in ["fast-json-patch-package.json.jsonl", "jsonrepair-package.json.jsonl"] {
        let Some(path) = shared::find(&format!("vectors/traces/git-json-evolution/{name}")) else { return };
        let begun = Instant::now();
        let lines = std::fs::read_to_string(path).expect("readable");
        let revisions: Vec<Revision> =
            lines.lines().map(|line| serde_json::from_str(line).expect("a revision")).collect();
        let mut authors: Vec<&str> = revisions.iter().map(|revision| revision.author.as_str()).collect();
        authors.sort_unstable();
        authors.dedup();
        let mut desk = Desk::new(authors.len()).await;
        let mut before = String::new();
        let mut last = None;
        let (mut handed, mut same) = (0, 0);
        for (number, revision) in revisions.iter().enumerate() {
            let writer = authors.binary_search(&revision.author.as_str()).expect("one of them");
            let after = serde_json::to_string_pretty(&revision.doc).expect("a document") + "\n";
            if after == before {
                same += 1;
                continue;
            }
            handed += u64::from(last.is_some_and(|last| last != writer));
            last = Some(writer);
            if number % 2 == 0 {
                let whole =
                    json!({"command": "create", "path": FILE, "file_text": after, "intent": "the next version"});
                desk.make(writer, &before, |_| whole.clone()).await;
            } else {
                let mut text = before.clone();
                for next in steps(&before, &after) {
                    desk.replace(writer, &text, &next, false).await;
                    text = next;
                }
            }
            assert_eq!(desk.text(), after, "{name}, version {number}");
            before = after;
        }
        let refused: u64 = desk.refusals.values().sum();
        eprintln!(
            "histories: {name}: {} versions ({same} as before) of {} authors, handed on {handed} times, {} edits, refusals {:?}, {:.1?}",
            revisions.len(),
            authors.len(),
            desk.edits,
            desk.refusals,
            begun.elapsed()
        );
        assert_eq!(
            refused, handed,
            "whoever takes over is refused once: the other has changed what it knew, or it knew nothing"
        );
        shared::ran(name, revisions.len(), 80);
    }
}
