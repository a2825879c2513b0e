//! Interleavings through sessions, with real files and a real journal. The test parses every reply line by line. It
//! records what each agent was shown apart from the session's read set (`shown.rs`):
//!
//! * a reply shows what the file holds, and the read set contains only lines that were shown;
//! * an edit is accepted only if all places that changed since its author saw them were shown again;
//! * an edit is rejected as stale only if such a place changed;
//! * after a rejection that asks for no new view, the agent rests on nothing that has changed;
//! * every outcome is the expected one, and files hold the result of the accepted edits.
//!
//! Each directory draws its own look: line endings, open ends, empty files, intents as comments, the detail of
//! rejections, and a crash of the service.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use patchboard_faults::random::Random;
use patchboard_kernel::blueprint::Granularity;
use patchboard_kernel::replay;
use patchboard_protocols::PLANS;
use patchboard_workshop::{Workshop, path};
use patchboard_workspace::session::{CommandResult, Session};
use serde_json::{Value, json};

use super::agents::{AGENTS, FILES, file};
use super::history::{Change, Line, Piece, Read, Version, What, apply};
use super::oracle::{Due, Oracle, Try};
use super::page::{Form, Heard, Pages, heard};
use super::shown::{How, Shown};
use super::{number, say_progress, shop};

mod wishes;

/// Number of directories, and of interleavings at each.
const SHOPS: u64 = 8;
const EACH: u64 = 6;

/// Properties of a directory.
#[derive(Clone, Debug)]
struct Look {
    granularity: Granularity,
    has_crlf: bool,
    has_open: bool,
    has_empty: bool,
    annotates: bool,
    is_killed: bool,
}

impl Look {
    fn drawn(random: &mut Random, seed: u64) -> Self {
        let granularity = if seed % 4 == 3 { Granularity::File } else { Granularity::Lines };
        Self {
            granularity,
            has_crlf: random.percent(40),
            has_open: random.percent(50),
            has_empty: random.percent(50),
            annotates: random.percent(50),
            is_killed: random.percent(40),
        }
    }

    fn form(&self, random: &mut Random) -> Form {
        Form { has_crlf: self.has_crlf, is_open: self.has_open && random.percent(50) }
    }
}

/// Counts of a run.
#[derive(Debug, Default)]
struct Counts {
    /// Replies by code.
    codes: BTreeMap<String, u64>,
    /// Rejected as unseen, although all lines that the edit would change were shown and are unchanged.
    unseen_though_shown: u64,
    comments: u64,
    crashes: u64,
}

struct Played {
    shop: Workshop,
    look: Look,
    random: Random,
    oracle: Oracle,
    pages: Pages,
    sessions: Vec<Session>,
    known: Vec<Shown>,
    /// Lines that each agent was ever shown of each file, or wrote.
    ever: Vec<BTreeMap<String, BTreeSet<Line>>>,
    /// Files with content that the service knows since it was restarted, so that it can report changes in them.
    warm: Option<BTreeSet<String>>,
    intents: u64,
    counts: Counts,
    /// Print everything.
    is_traced: bool,
}

impl Played {
    async fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let look = Look::drawn(&mut random, seed);
        let presentation = ["diff", "full", "brief", "diff"][usize::try_from(seed % 4).unwrap_or(0)];
        let payload = if random.percent(50) { 16_000 } else { 2_500 };
        let spec = json!({
            "annotate": look.annotates, "granularity": look.granularity, "presentation": presentation, "payload": payload,
        });
        eprintln!("sessions: INTERLEAVINGS_SEED={seed}: {look:?}, {presentation}, {payload}");
        let mut oracle = Oracle::new(look.granularity, usize::MAX);
        oracle.history.tells_lines = true;
        let mut pages = Pages::default();
        let mut texts: Vec<(String, String)> = Vec::new();
        for at in 0..FILES - 2 {
            let count = if look.has_empty && random.percent(15) { 0 } else { 1 + random.index(60) };
            let lines = oracle.history.fresh(count);
            let form = look.form(&mut random).of(count);
            texts.push((file(at), pages.content(&lines, form)));
            pages.set_form(&file(at), form);
            let change = Change { path: file(at), from: None, lines: Some(lines), pieces: Some(Vec::new()) };
            oracle.history.edit(&[change], "external");
        }
        let files: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let shop = Workshop::open(AGENTS, &spec, &files).await;
        // The initial files were recorded in one decision.
        oracle.decisions = 1;
        let sessions = (0..AGENTS).map(|agent| shop.session(agent)).collect();
        let (known, ever) = (vec![Shown::default(); AGENTS], vec![BTreeMap::new(); AGENTS]);
        let (warm, intents, counts, is_traced) = (None, 0, Counts::default(), number("INTERLEAVINGS_SEED").is_some());
        Self { shop, look, random, oracle, pages, sessions, known, ever, warm, intents, counts, is_traced }
    }

    /// Plays a directory and all events in it. Returns the counts.
    async fn play(seed: u64) -> Counts {
        let mut played = Self::new(seed).await;
        let killed_after = if played.look.is_killed { 1 + played.random.below(EACH - 1) } else { EACH };
        for nth in 0..EACH {
            if nth == killed_after {
                played = played.crashed().await;
            }
            played.interleaving().await;
        }
        (0..FILES).for_each(|at| played.check_file(&file(at)));
        replay::replay(&played.shop.records(), None, &PLANS).expect("the run follows from its records");
        played.counts
    }

    async fn interleaving(&mut self) {
        let mut left: Vec<(usize, usize)> = (0..AGENTS).map(|agent| (agent, 2 + self.random.index(4))).collect();
        for agent in 0..AGENTS {
            if self.random.percent(30) {
                self.sit_down(agent);
            }
        }
        while !left.is_empty() {
            let next = self.random.index(left.len());
            let agent = left[next].0;
            left[next].1 -= 1;
            if left[next].1 == 0 {
                left.swap_remove(next);
                self.edit(agent).await;
                if self.random.percent(60) {
                    self.edit(agent).await;
                }
            } else {
                self.look(agent).await;
            }
            if self.random.percent(4) {
                self.happen().await;
            }
        }
    }

    /// Replaces an agent by one that has read nothing.
    fn sit_down(&mut self, agent: usize) {
        self.sessions[agent] = self.shop.session(agent);
        self.known[agent] = Shown::default();
        self.ever[agent].clear();
    }

    /// Kills and restarts the service, with an external edit in between.
    async fn crashed(mut self) -> Self {
        self.sessions.clear();
        let path = file(self.random.index(FILES));
        let is_edited = self.random.percent(70) && self.change_around(&path, None);
        let shop = self.shop.crashed().await;
        // Each lost call counts as a decision.
        self.oracle.decisions += AGENTS as u64;
        assert_eq!(shop.found, usize::from(is_edited), "what was edited meanwhile is found");
        let sessions = (0..AGENTS).map(|agent| shop.session(agent)).collect();
        let mut played = Self { shop, sessions, warm: Some(is_edited.then_some(path).into_iter().collect()), ..self };
        (0..AGENTS).for_each(|agent| played.sit_down(agent));
        (0..FILES).for_each(|at| played.check_file(&file(at)));
        played.counts.crashes += 1;
        played
    }

    fn some_file(&mut self, agent: usize) -> String {
        let own = (agent * 2 + self.random.index(3)) % FILES;
        file(if self.random.percent(60) { own } else { self.random.index(FILES) })
    }

    async fn call(&mut self, agent: usize, arguments: Value) -> CommandResult {
        let result = self.sessions[agent].call(arguments.clone()).await;
        if self.is_traced {
            eprintln!("-- {}: {arguments}\n{}", shop::name(agent), result.text);
        }
        *self.counts.codes.entry(result.code.clone().unwrap_or_else(|| "done".to_owned())).or_default() += 1;
        result
    }

    async fn look(&mut self, agent: usize) {
        let path = self.some_file(agent);
        let lines = self.oracle.history.lines(&path).map_or(0, <[Line]>::len);
        let arguments = match self.random.below(10) {
            0 => json!({"command": "search", "pattern": format!("L{}", self.random.below(100))}),
            1..4 => json!({"command": "view", "path": path}),
            _ => {
                let first = 1 + self.random.index(lines.max(1));
                json!({"command": "view", "path": path, "view_range": [first, first + self.random.index(12)]})
            }
        };
        let result = self.call(agent, arguments.clone()).await;
        self.hear(agent, &result, &arguments);
    }

    /// Records what an agent was shown, and compares it with the files and the structured data.
    fn hear(&mut self, agent: usize, result: &CommandResult, asked: &Value) {
        let all = heard(&result.text, asked["path"].as_str());
        let data = &result.data;
        for (path, heard) in &all {
            let pieces = self.pieces_of(agent, path, heard, &result.text);
            let is_view = asked["command"] == "view" && !result.is_error();
            let lines = self.oracle.history.lines(path).unwrap_or_default();
            let is_whole = is_view && pieces.concat().len() == lines.len();
            if is_view {
                assert_eq!(data["is_whole"], is_whole, "{}", result.text);
                assert_eq!(data["version"], self.oracle.history.version(path), "{}", result.text);
                self.check_shown(&data["shown"], path, &pieces);
            }
            let how = match (is_whole || heard.is_empty, asked["command"] == "search") {
                (true, _) => How::Whole,
                (false, true) => How::Found,
                (false, false) => How::Part,
            };
            self.known[agent].learn(&self.oracle.history, path, &pieces, how);
        }
        if result.code.as_deref() == Some("no_such_file") {
            let path = asked["path"].as_str().expect("it was asked for");
            if asked["command"] == "view" {
                self.known[agent].learn_absent(&self.oracle.history, path);
            }
        }
        let parts = data["target"].as_object().map(|_| &data["target"]).into_iter();
        let mut of_files: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for part in parts.chain(data["stale"].as_array().into_iter().flatten()) {
            of_files.entry(part["path"].as_str().expect("a file")).or_default().push(part);
        }
        for (path, parts) in of_files {
            self.hear_parts(agent, path, &parts, &all, &result.text);
        }
        self.check_reads(agent, result);
    }

    /// Checks the parts of a rejection about one file, which may have been read at several versions. A part that asks
    /// for no new view must leave nothing out of date.
    fn hear_parts(&mut self, agent: usize, path: &str, parts: &[&Value], all: &BTreeMap<String, Heard>, text: &str) {
        let history = &self.oracle.history;
        for part in parts {
            assert_eq!(part["version"], history.version(path), "{text}");
            let was_there = part["version"] != 0 || part["read_at"].as_u64() > Some(0);
            assert_eq!(part["is_deleted"], history.lines(path).is_none() && was_there, "{text}");
        }
        if history.lines(path).is_none() {
            return self.known[agent].learn_absent(&self.oracle.history, path);
        }
        let pieces = match all.get(path) {
            Some(heard) => self.pieces_of(agent, path, heard, text),
            None => Vec::new(),
        };
        let shown: Vec<&Value> = parts.iter().flat_map(|part| part["shown"].as_array().expect("ranges")).collect();
        self.check_shown(&json!(shown), path, &pieces);
        if parts.iter().all(|part| part["view_again"] == false) {
            self.known[agent].learn_same(&self.oracle.history, path);
            let wrong = self.known[agent].out_of_date_of(&self.oracle.history, path);
            assert_eq!(wrong, None, "it is said that {path} need not be viewed again: {text}");
        }
    }

    /// Checks that the ranges in the structured data are the lines of the text.
    fn check_shown(&self, shown: &Value, path: &str, pieces: &[Vec<Line>]) {
        let lines = self.oracle.history.lines(path).unwrap_or_default();
        let ranges: Vec<(usize, usize)> = serde_json::from_value(shown.clone()).expect("ranges");
        let said: BTreeSet<Line> = ranges.iter().flat_map(|(first, last)| &lines[first - 1..*last]).copied().collect();
        let seen: BTreeSet<Line> = pieces.iter().flatten().copied().collect();
        assert_eq!(said, seen, "{path}");
    }

    /// Returns the pieces of a file that were shown. Checks each line against the file.
    fn pieces_of(&mut self, agent: usize, path: &str, heard: &Heard, text: &str) -> Vec<Vec<Line>> {
        let lines = self.oracle.history.lines(path).unwrap_or_default().to_vec();
        let mut pieces: Vec<Vec<Line>> = Vec::new();
        let mut last = 0;
        for (number, said) in &heard.numbered {
            let there = number.checked_sub(1).and_then(|at| lines.get(at).copied());
            assert_eq!(there.map(|line| self.pages.says(line)).as_ref(), Some(said), "line {number} of {path}: {text}");
            match pieces.last_mut().filter(|_| *number == last + 1) {
                Some(piece) => piece.extend(there),
                None => pieces.push(there.into_iter().collect()),
            }
            last = *number;
        }
        for (first, newer, gone) in &heard.parts {
            let first = if newer.is_empty() { *first } else { first - 1 };
            let there = lines.get(first..first + newer.len()).unwrap_or_default();
            let says: Vec<String> = there.iter().map(|line| self.pages.says(*line)).collect();
            assert_eq!(says, *newer, "from line {first} of {path} on: {text}");
            pieces.push(there.to_vec());
            // A deleted line must have been in an earlier version.
            let versions = 1..=self.oracle.history.version(path);
            let once: Vec<Line> = versions
                .filter_map(|version| self.oracle.history.at(path, version)?.lines.clone())
                .flatten()
                .collect::<BTreeSet<Line>>()
                .into_iter()
                .collect();
            for line in gone {
                let line = self.pages.line(&once, line).unwrap_or_else(|| panic!("{line} never was in {path}: {text}"));
                self.ever[agent].entry(path.to_owned()).or_default().insert(line);
            }
        }
        assert!(!heard.is_empty || lines.is_empty(), "{path} is not empty: {text}");
        self.ever[agent].entry(path.to_owned()).or_default().extend(pieces.iter().flatten());
        pieces
    }

    /// Checks that everything in the read set was shown.
    fn check_reads(&self, agent: usize, result: &CommandResult) {
        for read in self.reads(agent) {
            let lines = match &read.what {
                What::Part { lines, .. } => lines.clone(),
                What::Whole => {
                    let version = self.oracle.history.at(&read.path, read.version);
                    version.and_then(|version| version.lines.clone()).unwrap_or_default()
                }
            };
            let shown = self.ever[agent].get(&read.path);
            let unseen: Vec<&Line> =
                lines.iter().filter(|line| shown.is_none_or(|shown| !shown.contains(line))).collect();
            let Read { path, version, .. } = &read;
            assert!(unseen.is_empty(), "{unseen:?} of {path}, version {version}, were never shown: {}", result.text);
        }
    }

    /// Returns the read set line by line.
    fn reads(&self, agent: usize) -> Vec<Read> {
        let reads = self.sessions[agent].reads().all().into_iter().map(|read| {
            let path = read.path.to_string();
            let what = match read.lines {
                None => What::Whole,
                Some((first, last)) => {
                    let version = self.oracle.history.at(&path, read.version).expect("a version that was");
                    let lines = version.lines.as_ref().expect("a version with lines");
                    What::Part { first, lines: lines[first as usize - 1..last as usize].to_vec() }
                }
            };
            Read { path, version: read.version, what }
        });
        reads.collect()
    }

    async fn edit(&mut self, agent: usize) {
        let reads = self.reads(agent);
        let path = match reads.is_empty() || self.random.percent(10) {
            true => self.some_file(agent),
            false => self.random.pick(&reads).path.clone(),
        };
        let there = self.oracle.history.lines(&path).map(<[Line]>::to_vec);
        let wish = self.wish(agent, &path, there.as_deref(), &reads);
        let (arguments, changes) = (&wish.arguments, &wish.changes);
        let by_files = self.look.granularity == Granularity::File;
        let out_of_date = self.known[agent].out_of_date(&self.oracle.history, by_files);
        let tried = Try { author: Some(agent as u64), reads: &reads, changes, at: 0 };
        let due = self.oracle.judge(&tried);
        let own_is_stale = matches!(&due, Due::Conflict(codes) if codes.contains(&("stale_target", path.clone())));
        let result = self.call(agent, arguments.clone()).await;
        if there.is_none() && arguments["command"] != "create" && !(own_is_stale && arguments["command"] != "rename") {
            assert_eq!(result.code.as_deref(), Some("no_such_file"), "{arguments}: {}", result.text);
            return;
        }
        if result.code.as_deref() == Some("annotation_lost") {
            assert!(self.takes_comment(agent, there.as_deref().unwrap_or_default(), changes), "{}", result.text);
            return self.hear(agent, &result, arguments);
        }
        let is_due = match (&due, result.code.as_deref()) {
            (Due::Made, None) => true,
            (Due::Conflict(codes) | Due::Inapplicable(codes), Some(code)) => codes.iter().any(|(due, _)| *due == code),
            (Due::Made, Some(_)) | (Due::Conflict(_) | Due::Inapplicable(_), None) | (Due::TooMany | Due::Same, _) => {
                false
            }
        };
        assert!(is_due, "{due:?} was due of {arguments} with {reads:?}, and not {:?}: {}", result.code, result.text);
        match result.code.as_deref() {
            None => assert_eq!(out_of_date, None, "{arguments} was accepted of who was shown what has changed"),
            Some(code) => self.check_stale(agent, code, &due, &reads),
        }
        if result.code.as_deref() == Some("unseen_target") && !by_files {
            let known = self.known[agent].lines(&self.oracle.history, &path);
            let lines = there.as_deref().unwrap_or_default();
            let mut gone = changes[0].pieces.iter().flatten().flat_map(|piece| piece.at..piece.at + piece.gone);
            let covers = changes[0].pieces.iter().flatten().all(|piece| piece.gone > 0);
            self.counts.unseen_though_shown += u64::from(covers && gone.all(|at| known.contains(&lines[at])));
        }
        let changes = match due {
            Due::Made => self.made(agent, &wish),
            _ => wish.changes.clone(),
        };
        self.oracle.decided(&Try { changes: &changes, ..tried }, &shop::name(agent), &due);
        if due == Due::Made {
            for change in &changes {
                self.wrote(agent, change);
            }
        }
        self.hear(agent, &result, arguments);
    }

    /// Checks that each stale file has a change that counts.
    fn check_stale(&self, agent: usize, code: &str, due: &Due, reads: &[Read]) {
        let Due::Conflict(codes) = due else { return };
        for (_, path) in codes.iter().filter(|(due, _)| *due == code && code.starts_with("stale_")) {
            let of_path: Vec<&Read> = reads.iter().filter(|read| read.path == *path).collect();
            let counts = |read: &&Read| {
                let lines = match &read.what {
                    What::Whole => None,
                    What::Part { lines, .. } => Some(lines.as_slice()),
                };
                self.known[agent].may_count(&self.oracle.history, path, read.version, lines)
            };
            let is_forgotten = |read: &&Read| self.oracle.history.version(path) - read.version > 32;
            let may = of_path.is_empty() || of_path.iter().any(counts) || of_path.iter().any(is_forgotten);
            assert!(may, "{code} for {path}, of which nothing has changed that was not shown again: {of_path:?}");
        }
    }

    /// Records that an agent knows the lines it wrote, and checks the file.
    fn wrote(&mut self, agent: usize, change: &Change) {
        let lines = change.lines.clone().unwrap_or_default();
        let new = change.pieces.iter().flatten().flat_map(|piece| piece.new.iter().copied());
        let mark = comment_of(agent);
        let comments = lines.iter().copied().filter(|line| self.pages.says(*line).starts_with(&mark));
        let written: Vec<Line> = new.chain(comments).collect();
        self.ever[agent].entry(change.path.clone()).or_default().extend(written);
        self.known[agent].wrote(&self.oracle.history, &change.path);
        if let Some(warm) = &mut self.warm {
            warm.insert(change.path.clone());
        }
        let entry = self.shop.entry(&change.path).expect("known");
        assert_eq!(entry.version, self.oracle.history.version(&change.path));
        assert_eq!(entry.writer, shop::name(agent));
        self.check_file(&change.path);
    }

    /// Makes an external edit, and lets the workspace or an agent notice it.
    async fn happen(&mut self) {
        let name = file(self.random.index(FILES));
        if self.warm.as_ref().is_some_and(|warm| !warm.contains(&name)) || !self.change_around(&name, Some(())) {
            return;
        }
        if self.random.percent(50) {
            let noticed = self.shop.workspace.report_changes([&path(&name)]).await;
            assert_eq!(noticed.expect("told"), 1);
        } else {
            let agent = self.random.index(AGENTS);
            let arguments = json!({"command": "view", "path": name});
            let result = self.call(agent, arguments.clone()).await;
            self.hear(agent, &result, &arguments);
        }
        assert_eq!(self.shop.entry(&name).expect("known").version, self.oracle.history.version(&name));
    }

    /// Edits a file outside the board. With `seen`, the service knows the changed lines. Returns false if there was
    /// no file to edit.
    fn change_around(&mut self, path: &str, seen: Option<()>) -> bool {
        let Some(lines) = self.oracle.history.lines(path).map(<[Line]>::to_vec) else { return false };
        let piece = if self.look.has_empty && !lines.is_empty() && self.random.percent(15) {
            Piece { at: 0, gone: lines.len(), new: Vec::new() }
        } else {
            let new = self.oracle.history.fresh(1);
            Piece { at: self.random.index(lines.len().max(1)), gone: self.random.index(2).min(lines.len()), new }
        };
        let form = if lines.is_empty() { self.look.form(&mut self.random) } else { self.pages.form(path) };
        let pieces = vec![piece];
        let after = apply(&lines, &pieces);
        let form = form.of(after.len());
        self.pages.set_form(path, form);
        std::fs::write(self.shop.directory.path().join(path), self.pages.content(&after, form)).expect("written");
        let from = self.oracle.history.now(path).and_then(Version::hash);
        let change = Change { path: path.to_owned(), from, lines: Some(after), pieces: seen.map(|()| pieces) };
        let tried = Try { author: None, reads: &[], changes: &[change], at: 0 };
        self.oracle.decided(&tried, "external", &Due::Made);
        true
    }

    fn check_file(&self, path: &str) {
        let due = self.oracle.history.lines(path).map(|lines| self.pages.content(lines, self.pages.form(path)));
        assert_eq!(self.shop.text(path), due, "{path}");
    }
}

/// Returns the prefix of an agent's comments.
fn comment_of(agent: usize) -> String {
    format!("# {}: ", shop::name(agent))
}

/// Moves temporary directories to memory where possible: durability is not under test here.
pub(crate) fn in_memory() {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() && tempfile::tempdir_in(memory).is_ok() {
        // A second call finds the override in place.
        drop(tempfile::env::override_temp_dir(memory));
    }
}

#[tokio::test]
async fn session_reads_were_shown_and_files_hold_the_accepted_edits() {
    in_memory();
    let only = number("INTERLEAVINGS_SEED");
    let (begun, asked) = (Instant::now(), number("INTERLEAVINGS"));
    let shops = asked.map_or(SHOPS, |interleavings| (interleavings / 60).max(1));
    let mut sum = Counts::default();
    for seed in only.map_or(0..shops, |seed| seed..seed + 1) {
        let counts = Played::play(seed).await;
        for (code, count) in counts.codes {
            *sum.codes.entry(code).or_default() += count;
        }
        sum.unseen_though_shown += counts.unseen_though_shown;
        sum.comments += counts.comments;
        sum.crashes += counts.crashes;
        if asked.is_some() {
            say_progress("sessions: directories", seed + 1, shops, begun);
        }
    }
    eprintln!("sessions: {} interleavings at {shops} directories: {:.1?}: {sum:?}", shops * EACH, begun.elapsed());
    if only.is_none() {
        for code in ["stale_read", "stale_target", "unseen_target", "reserved", "annotation_lost"] {
            assert!(sum.codes.contains_key(code), "nothing was ever refused for {code}");
        }
        assert!(sum.comments > 0 && sum.crashes > 0);
    }
}
