//! The same through sessions, with real files and a real journal: what each agent is told is read line by line, and held
//! against the oracle. What a session counts as read must have been shown; what the files hold in the end must be what the
//! accepted edits make.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use patchboard_agents::workspace::session::{Session, Told};
use patchboard_faults::random::Random;
use patchboard_kernel::blueprint::Granularity;
use patchboard_kernel::replay;
use patchboard_workshop::{Workshop, path};
use serde_json::{Value, json};

use super::agents::{AGENTS, FILES, file};
use super::history::{Change, Line, Piece, Read, Version, What, apply};
use super::oracle::{Due, Oracle, Try};
use super::{number, shop};

/// Directories, and interleavings at each.
const SHOPS: u64 = 4;
const EACH: u64 = 10;

/// Every line of these files has a text that no other line ever had.
fn text_of(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("L{line}\n")).collect()
}

fn line_of(text: &str) -> Option<Line> {
    text.strip_prefix('L')?.parse().ok()
}

struct Played {
    shop: Workshop,
    random: Random,
    oracle: Oracle,
    sessions: Vec<Session>,
    /// The lines that each agent was shown of each file, or wrote.
    shown: Vec<BTreeMap<String, BTreeSet<Line>>>,
    what: BTreeMap<String, u64>,
}

impl Played {
    async fn new(seed: u64) -> Self {
        let presentation = ["diff", "full", "brief", "diff"][usize::try_from(seed % 4).unwrap_or(0)];
        let granularity = if seed % 4 == 3 { Granularity::File } else { Granularity::Lines };
        let payload = if seed.is_multiple_of(2) { 16_000 } else { 2_500 };
        let spec =
            json!({"annotate": false, "granularity": granularity, "presentation": presentation, "payload": payload});
        let mut random = Random::new(seed);
        let mut oracle = Oracle::new(granularity, usize::MAX);
        let mut texts: Vec<(String, String)> = Vec::new();
        for at in 0..FILES - 2 {
            let lines = oracle.history.fresh(1 + random.index(60));
            texts.push((file(at), text_of(&lines)));
            let change = Change { path: file(at), from: None, lines: Some(lines), pieces: Some(Vec::new()) };
            oracle.history.edit(&[change], "external");
        }
        let files: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let shop = Workshop::open(AGENTS, &spec, &files).await;
        // What was found was told at once.
        oracle.decisions = 1;
        let sessions = (0..AGENTS).map(|agent| shop.session(agent)).collect();
        Self { shop, random, oracle, sessions, shown: vec![BTreeMap::new(); AGENTS], what: BTreeMap::new() }
    }

    async fn interleaving(&mut self) {
        let mut left: Vec<(usize, usize)> = (0..AGENTS).map(|agent| (agent, 2 + self.random.index(4))).collect();
        for agent in 0..AGENTS {
            if self.random.percent(30) {
                self.sessions[agent] = self.shop.session(agent);
                self.shown[agent].clear();
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

    fn some_file(&mut self, agent: usize) -> String {
        let own = (agent * 2 + self.random.index(3)) % FILES;
        file(if self.random.percent(60) { own } else { self.random.index(FILES) })
    }

    async fn call(&mut self, agent: usize, arguments: Value) -> Told {
        let told = self.sessions[agent].call(arguments).await;
        *self.what.entry(told.code.clone().unwrap_or_else(|| "done".to_owned())).or_default() += 1;
        told
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
        let told = self.call(agent, arguments.clone()).await;
        self.hear(agent, &told, &arguments);
    }

    /// Notes what an agent was shown. What has a number is the line of that number; of what stands in a difference it is
    /// enough that it was there once.
    fn hear(&mut self, agent: usize, told: &Told, asked: &Value) {
        let mut of = asked["path"].as_str().map(str::to_owned);
        for line in told.text.lines() {
            let numbered = line.trim_start().split_once('\t');
            if let Some((number, text)) =
                numbered.and_then(|(number, text)| Some((number.parse::<usize>().ok()?, text)))
            {
                let path = of.clone().unwrap_or_else(|| panic!("{line} is of no file: {}", told.text));
                let there = self.oracle.history.lines(&path).and_then(|lines| lines.get(number - 1));
                let said = line_of(text);
                assert_eq!(said.as_ref(), there, "line {number} of {path}: {}", told.text);
                self.shown[agent].entry(path).or_default().extend(said);
                continue;
            }
            if let Some(path) = &of
                && let Some(said) = line.get(1..).filter(|_| line.starts_with([' ', '+', '-'])).and_then(line_of)
            {
                self.shown[agent].entry(path.clone()).or_default().insert(said);
                continue;
            }
            let head = line.trim_start_matches("target: ").trim_start_matches("stale: ");
            let named = head.split([',', ' ']).next().unwrap_or_default();
            if named.starts_with("src/") {
                of = Some(named.to_owned());
            }
        }
        self.check_reads(agent, told);
    }

    /// What the session counts as read was shown.
    fn check_reads(&self, agent: usize, told: &Told) {
        for read in self.reads(agent) {
            let lines = match &read.what {
                What::Part { lines, .. } => lines.clone(),
                What::Whole => {
                    let version = self.oracle.history.at(&read.path, read.version);
                    version.and_then(|version| version.lines.clone()).unwrap_or_default()
                }
            };
            let shown = self.shown[agent].get(&read.path);
            let unseen: Vec<&Line> =
                lines.iter().filter(|line| shown.is_none_or(|shown| !shown.contains(line))).collect();
            let Read { path, version, .. } = &read;
            assert!(unseen.is_empty(), "{unseen:?} of {path}, version {version}, were never shown: {}", told.text);
        }
    }

    /// What the session counts as read, line by line.
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
        let (arguments, changes) = self.wish(agent, &path, there.as_deref(), &reads);
        let tried = Try { author: Some(agent as u64), reads: &reads, changes: &changes, at: 0 };
        let due = self.oracle.judge(&tried);
        let own_is_stale = matches!(&due, Due::Conflict(codes) if codes.contains(&("stale_target", path.clone())));
        let told = self.call(agent, arguments.clone()).await;
        if there.is_none() && arguments["command"] != "create" && !(own_is_stale && arguments["command"] != "rename") {
            assert_eq!(told.code.as_deref(), Some("no_such_file"), "{arguments}: {}", told.text);
            return;
        }
        let is_due = match (&due, told.code.as_deref()) {
            (Due::Made, None) => true,
            (Due::Conflict(codes) | Due::Inapplicable(codes), Some(code)) => codes.iter().any(|(due, _)| *due == code),
            (Due::Made, Some(_)) | (Due::Conflict(_) | Due::Inapplicable(_), None) | (Due::TooMany, _) => false,
        };
        assert!(is_due, "{due:?} was due of {arguments} with {reads:?}, and not {:?}: {}", told.code, told.text);
        self.oracle.decided(&tried, &shop::name(agent), &due);
        if due == Due::Made {
            for change in &changes {
                let pieces = change.pieces.iter().flatten().flat_map(|piece| piece.new.iter().copied());
                self.shown[agent].entry(change.path.clone()).or_default().extend(pieces);
                let entry = self.shop.entry(&change.path).expect("known");
                assert_eq!(entry.version, self.oracle.history.version(&change.path), "{arguments}");
                assert_eq!(entry.writer, shop::name(agent), "{arguments}");
                self.check_file(&change.path);
            }
        }
        self.hear(agent, &told, &arguments);
    }

    /// A command and what it makes.
    fn wish(&mut self, agent: usize, path: &str, there: Option<&[Line]>, reads: &[Read]) -> (Value, Vec<Change>) {
        let lines = there.unwrap_or_default();
        let from = self.oracle.history.now(path).and_then(Version::hash);
        let whole = |new: Vec<Line>| vec![Piece { at: 0, gone: lines.len(), new }];
        let change = |pieces: Vec<Piece>| {
            let lines = Some(apply(lines, &pieces));
            vec![Change { path: path.to_owned(), from, lines, pieces: Some(pieces) }]
        };
        let gone = || Change { path: path.to_owned(), from, lines: None, pieces: Some(whole(Vec::new())) };
        let kind = self.random.below(20);
        if kind < 2 || lines.is_empty() {
            let count = 1 + self.random.index(20);
            let new = self.oracle.history.fresh(count);
            let arguments =
                json!({"command": "create", "path": path, "file_text": text_of(&new), "intent": "all of it"});
            // Who has not looked expects none there.
            let from = from.filter(|_| reads.iter().any(|read| read.path == path));
            let pieces =
                if from.is_some() { whole(new.clone()) } else { vec![Piece { at: 0, gone: 0, new: new.clone() }] };
            return (arguments, vec![Change { path: path.to_owned(), from, lines: Some(new), pieces: Some(pieces) }]);
        }
        if kind == 2 {
            return (json!({"command": "delete", "path": path, "intent": "not needed"}), vec![gone()]);
        }
        if kind == 3 {
            let to = file((self.random.index(FILES - 1) + 1 + file_number(path)) % FILES);
            let made = Piece { at: 0, gone: 0, new: lines.to_vec() };
            let made = Change { path: to.clone(), from: None, lines: Some(lines.to_vec()), pieces: Some(vec![made]) };
            return (
                json!({"command": "rename", "path": path, "new_path": to, "intent": "another name"}),
                vec![gone(), made],
            );
        }
        if kind < 8
            && let Some((insert_line, at)) = self.insertion(path, lines, reads)
        {
            let count = 1 + self.random.index(2);
            let new = self.oracle.history.fresh(count);
            let arguments = json!({
                "command": "insert", "path": path, "insert_line": insert_line, "insert_text": text_of(&new),
                "intent": "something more",
            });
            return (arguments, change(vec![Piece { at, gone: 0, new }]));
        }
        // Mostly lines that it knows.
        let shown = self.shown[agent].get(path).cloned().unwrap_or_default();
        let known: Vec<usize> = (0..lines.len()).filter(|at| shown.contains(&lines[*at])).collect();
        let at = match known.is_empty() || self.random.percent(15) {
            true => self.random.index(lines.len()),
            false => *self.random.pick(&known),
        };
        let gone = (1 + self.random.index(3)).min(lines.len() - at);
        let new = self.random.index(3);
        let new = self.oracle.history.fresh(new);
        let old = text_of(&lines[at..at + gone]);
        let arguments = json!({
            "command": "str_replace", "path": path, "old_str": old, "new_str": text_of(&new), "intent": "something else",
        });
        (arguments, change(vec![Piece { at, gone, new }]))
    }

    /// A line behind which to insert, by the number that it had when its author saw last what is there, and where that is.
    fn insertion(&mut self, path: &str, lines: &[Line], reads: &[Read]) -> Option<(usize, usize)> {
        let own: Vec<&Read> = reads.iter().filter(|read| read.path == path).collect();
        let length =
            |version: u64| self.oracle.history.at(path, version).and_then(|at| at.lines.as_ref()).map_or(0, Vec::len);
        let number = match own.is_empty() {
            true => self.random.index(lines.len() + 1),
            false => {
                let read = *self.random.pick(&own);
                match &read.what {
                    What::Whole => self.random.index(length(read.version) + 1),
                    What::Part { first, lines } => *first as usize - 1 + self.random.index(lines.len() + 1),
                }
            }
        };
        let concerns = |read: &&&Read| match &read.what {
            What::Whole => true,
            What::Part { first, lines } => {
                let first = *first as usize;
                first <= number + 1 && number < first + lines.len()
            }
        };
        let concerned: Vec<&Read> = own.iter().filter(concerns).copied().collect();
        let newest = concerned.iter().map(|read| read.version).max();
        let by_number = (number <= lines.len()).then_some((number, number));
        let Some(version) = newest.filter(|_| number > 0) else { return by_number };
        // What it has seen there: the line behind which to insert, or else the next one.
        let sees = |read: &&Read| match &read.what {
            What::Whole => true,
            What::Part { first, .. } => *first as usize <= number,
        };
        let is_behind = concerned.iter().filter(|read| read.version == version).any(sees);
        let then = self.oracle.history.at(path, version)?.lines.as_ref()?;
        let line = *then.get(if is_behind { number - 1 } else { number })?;
        match lines.iter().position(|there| *there == line) {
            Some(at) => Some((number, at + usize::from(is_behind))),
            // It is refused whatever it means.
            None => by_number,
        }
    }

    /// Somebody edits around the workspace; it is noticed by looking, or by an agent.
    async fn happen(&mut self) {
        let path_name = file(self.random.index(FILES));
        let Some(lines) = self.oracle.history.lines(&path_name).filter(|lines| !lines.is_empty()).map(<[Line]>::to_vec)
        else {
            return;
        };
        let at = self.random.index(lines.len());
        let new = self.oracle.history.fresh(1);
        let pieces = vec![Piece { at, gone: self.random.index(2), new }];
        let after = apply(&lines, &pieces);
        std::fs::write(self.shop.directory.path().join(&path_name), text_of(&after)).expect("written");
        let from = self.oracle.history.now(&path_name).and_then(Version::hash);
        let change = Change { path: path_name.clone(), from, lines: Some(after), pieces: Some(pieces) };
        let tried = Try { author: None, reads: &[], changes: &[change], at: 0 };
        self.oracle.decided(&tried, "external", &Due::Made);
        if self.random.percent(50) {
            let noticed = self.shop.workspace.notice([&path(&path_name)]).await;
            assert_eq!(noticed.expect("told"), 1);
        } else {
            let agent = self.random.index(AGENTS);
            let arguments = json!({"command": "view", "path": path_name});
            let told = self.call(agent, arguments.clone()).await;
            self.hear(agent, &told, &arguments);
        }
        assert_eq!(self.shop.entry(&path_name).expect("known").version, self.oracle.history.version(&path_name));
    }

    fn check_file(&self, path: &str) {
        let due = self.oracle.history.lines(path).map(text_of);
        assert_eq!(self.shop.text(path), due, "{path}");
    }
}

fn file_number(path: &str) -> usize {
    (0..FILES).find(|at| file(*at) == path).unwrap_or(0)
}

/// Where writing to disk costs nothing, if there is such a place: what is tested here is not what outlives a crash.
pub(crate) fn in_memory() {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() && tempfile::tempdir_in(memory).is_ok() {
        // Whoever comes second finds it as it should be.
        drop(tempfile::env::override_temp_dir(memory));
    }
}

#[tokio::test]
async fn what_sessions_count_as_read_was_shown_and_files_hold_what_was_accepted() {
    in_memory();
    let only = number("INTERLEAVINGS_SEED");
    let shops = number("INTERLEAVINGS").map_or(SHOPS, |interleavings| (interleavings / 250).max(1));
    let mut what: BTreeMap<String, u64> = BTreeMap::new();
    for seed in only.map_or(0..shops, |seed| seed..seed + 1) {
        eprintln!("sessions: INTERLEAVINGS_SEED={seed}");
        let mut played = Played::new(seed).await;
        for _ in 0..EACH {
            played.interleaving().await;
        }
        (0..FILES).for_each(|at| played.check_file(&file(at)));
        replay::replay(&played.shop.records(), None).expect("the run follows from its records");
        for (code, count) in played.what {
            *what.entry(code).or_default() += count;
        }
    }
    eprintln!("sessions: {} interleavings: {what:?}", shops * EACH);
    for code in ["stale_read", "stale_target", "unseen_target", "reserved"] {
        assert!(only.is_some() || what.contains_key(code), "nothing was ever refused for {code}");
    }
}
