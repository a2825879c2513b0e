//! Rates of false rejections, where nothing that the author read has changed: whole-file reads against line reads.
//! Also measures all rejections, for agents that reset their reads with each task and for sessions that keep all
//! reads.

use patchboard_faults::random::Random;
use patchboard_kernel::blueprint::Granularity;

use super::agents::{AGENTS, FILES, changed, creation, file, part};
use super::history::{Piece, Read, What};
use super::oracle::{Due, Remarks, Try};
use super::shop::Shop;

/// Functions per file, lines per function, and tasks per agent.
const FUNCTIONS: usize = 6;
const LINES: usize = 10;
const TASKS: usize = 60;

/// Kind of reads that an agent makes before it edits a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reader {
    Files,
    Functions,
    Mixed,
}

/// Lifetime of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Memory {
    /// One task.
    Task,
    /// All tasks of the agent.
    Attempt,
}

#[derive(Debug, Default)]
struct Rates {
    tries: u64,
    refused: u64,
    /// Rejections where no read had changed.
    falsely: u64,
    /// False rejections where the files had the versions that were read.
    unmoved: u64,
    kept: u64,
}

/// An agent at its task.
struct Agent {
    reads: Vec<Read>,
    /// Function to change: its file and the identity of its first line.
    target: Option<(String, u64)>,
    left: usize,
    looks: usize,
}

fn run(reader: Reader, memory: Memory, granularity: Granularity, seed: u64) -> Rates {
    let mut random = Random::new(seed);
    let mut shop = Shop::new(granularity, AGENTS);
    let made: Vec<_> = (0..FILES).map(|at| creation(&mut shop, &file(at), FUNCTIONS * LINES)).collect();
    shop.edit(None, &[], &made).expect("told");
    // First lines identify functions, since no edit changes them.
    let functions: Vec<(String, u64)> = made
        .iter()
        .flat_map(|change| {
            let lines = change.lines.as_deref().expect("a file");
            lines.chunks(LINES).map(|function| (change.path.clone(), function[0])).collect::<Vec<_>>()
        })
        .collect();
    let mut agents: Vec<Agent> =
        (0..AGENTS).map(|_| Agent { reads: Vec::new(), target: None, left: TASKS, looks: 0 }).collect();
    let mut rates = Rates::default();
    while agents.iter().any(|agent| agent.left > 0) {
        let at = random.index(AGENTS);
        let agent = &mut agents[at];
        if agent.left == 0 {
            continue;
        }
        shop.now += 200;
        if agent.target.is_none() {
            if memory == Memory::Task {
                agent.reads.clear();
            }
            agent.target = Some(random.pick(&functions).clone());
            agent.looks = 3;
        }
        let target = agent.target.clone().expect("just chosen");
        if agent.looks > 0 {
            // Two functions that the task depends on, then the one to change.
            agent.looks -= 1;
            let what = if agent.looks == 0 { target } else { random.pick(&functions).clone() };
            let is_whole = reader == Reader::Files || (reader == Reader::Mixed && random.percent(50));
            let read = look(&shop, &what, &functions, is_whole);
            // A new read replaces the earlier read of the function; a read of the whole file replaces all its reads.
            agent.reads.retain(|known| !is_same(known, &read));
            agent.reads.push(read);
            continue;
        }
        let lines = shop.oracle.history.lines(&target.0).expect("a file");
        let begin = lines.iter().position(|line| *line == target.1).expect("its first line stays");
        let gone = random.index(2);
        let new = shop.oracle.history.fresh(1 + random.index(2));
        let change = changed(&shop, &target.0, vec![Piece { at: begin + 1, gone, new }]);
        let tried = Try { author: Some(0), reads: &agent.reads, changes: &[], at: shop.now };
        let remarks: Remarks = shop.oracle.remarks(&tried);
        let due = shop.edit(Some(at), &agent.reads, &[change]).unwrap_or_else(|doubt| panic!("{doubt}"));
        rates.tries += 1;
        match due {
            Due::Made | Due::Same => {
                agent.left -= 1;
                agent.target = None;
                for read in agent.reads.iter_mut().filter(|read| read.path == target.0) {
                    *read = again(&shop, read, &functions);
                }
            }
            Due::Conflict(codes) if codes.iter().all(|(code, _)| *code == "reserved") => rates.kept += 1,
            Due::Conflict(codes) => {
                rates.refused += 1;
                rates.falsely += u64::from(!remarks.is_stale);
                rates.unmoved += u64::from(!remarks.has_moved);
                for (_, path) in codes.iter().filter(|(code, _)| *code != "reserved") {
                    for read in agent.reads.iter_mut().filter(|read| read.path == *path) {
                        *read = again(&shop, read, &functions);
                    }
                }
            }
            Due::Inapplicable(_) | Due::TooMany => panic!("it is made of the file as it is: {due:?}"),
        }
    }
    rates
}

/// Reads a function, or the file that holds it.
fn look(shop: &Shop, (path, first): &(String, u64), functions: &[(String, u64)], is_whole: bool) -> Read {
    let history = &shop.oracle.history;
    let (version, lines) = (history.version(path), history.lines(path).expect("a file"));
    if is_whole {
        return Read { path: path.clone(), version, what: What::Whole };
    }
    let begin = lines.iter().position(|line| line == first).expect("its first line stays");
    let is_first = |line: &u64| functions.iter().any(|(_, first)| first == line);
    let length = 1 + lines[begin + 1..].iter().take_while(|line| !is_first(line)).count();
    part(path, version, begin, &lines[begin..begin + length])
}

/// Returns true if a new read covers an earlier one.
fn is_same(known: &Read, now: &Read) -> bool {
    let is_covered = match (&known.what, &now.what) {
        (_, What::Whole) => true,
        (What::Part { lines: known, .. }, What::Part { lines, .. }) => known[0] == lines[0],
        (What::Whole, What::Part { .. }) => false,
    };
    known.path == now.path && is_covered
}

/// Reads the same piece at the current version.
fn again(shop: &Shop, read: &Read, functions: &[(String, u64)]) -> Read {
    match &read.what {
        What::Whole => look(shop, &(read.path.clone(), 0), functions, true),
        What::Part { lines, .. } => look(shop, &(read.path.clone(), lines[0]), functions, false),
    }
}

fn measured(reader: Reader, memory: Memory, granularity: Granularity) -> Rates {
    // Agents that keep all reads are rejected so often that one run is enough.
    let runs = if memory == Memory::Task { 4 } else { 1 };
    let sum = (0..runs).map(|seed| run(reader, memory, granularity, seed)).reduce(|a, b| Rates {
        tries: a.tries + b.tries,
        refused: a.refused + b.refused,
        falsely: a.falsely + b.falsely,
        unmoved: a.unmoved + b.unmoved,
        kept: a.kept + b.kept,
    });
    let sum = sum.expect("some runs");
    let permille = |part: u64, whole: u64| 1000 * part / whole.max(1);
    eprintln!(
        "rates: {reader:?} by {granularity}, known for one {memory:?}: {} tries, {} stale ({}‰), of these {} falsely ({}‰ \
         of them), {} kept for others",
        sum.tries,
        sum.refused,
        permille(sum.refused, sum.tries),
        sum.falsely,
        permille(sum.falsely, sum.refused),
        sum.kept
    );
    sum
}

fn lines_refuse_nothing_falsely_and_files_do(memory: Memory) {
    eprintln!(
        "rates: 8 agents, 20 files of {FUNCTIONS} functions of {LINES} lines, {TASKS} edits each, 3 looks before each, {memory:?}"
    );
    for reader in [Reader::Files, Reader::Functions, Reader::Mixed] {
        let [files, lines] = [Granularity::File, Granularity::Lines].map(|by| measured(reader, memory, by));
        for rates in [&files, &lines] {
            assert_eq!(rates.unmoved, 0, "nothing is refused of which not even a version moved");
        }
        match reader {
            Reader::Files => assert_eq!(files.falsely, 0, "who reads whole files reads what changes"),
            Reader::Functions | Reader::Mixed => {
                assert!(files.falsely > 0 && lines.refused < files.refused, "{files:?} {lines:?}");
            }
        }
        assert_eq!(lines.falsely, 0, "by lines nothing is refused falsely");
    }
}

#[test]
fn agents_that_forget_after_each_task_get_no_false_rejections_by_lines() {
    lines_refuse_nothing_falsely_and_files_do(Memory::Task);
}

#[test]
fn agents_that_remember_all_reads_get_no_false_rejections_by_lines() {
    lines_refuse_nothing_falsely_and_files_do(Memory::Attempt);
}
