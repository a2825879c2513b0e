//! Runs every target on its corpus, on mutations of it, and on random bytes.
//!
//! A short substitute for `cargo xtask fuzz`: the targets and the corpus are the same, but without coverage feedback.
//! Inputs are drawn from a fixed seed, so a failure is reproducible; it prints the input, to be added to the corpus.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use patchboard_fuzz::{INPUT_BYTES_MAX, STACK_BYTES, TARGETS, Target};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// Maximum bytes of a corpus file, and files of a target: people read them.
const FILE_BYTES_MAX: usize = 4096;
const FILES_MAX: usize = 40;

/// Returns the number of inputs of each kind for a target: about one second's worth in an unoptimised build.
fn cases(target: &Target) -> u32 {
    match target.name {
        "json" | "patch" | "contract" => 600,
        "cel" => 300,
        _ => 100,
    }
}

#[test]
fn json_on_its_corpus_and_around_it() {
    check("json");
}

#[test]
fn blueprint_on_its_corpus_and_around_it() {
    check("blueprint");
}

#[test]
fn patch_on_its_corpus_and_around_it() {
    check("patch");
}

#[test]
fn contract_on_its_corpus_and_around_it() {
    check("contract");
}

#[test]
fn cel_on_its_corpus_and_around_it() {
    check("cel");
}

#[test]
fn journal_on_its_corpus_and_around_it() {
    check("journal");
}

#[test]
fn snapshot_on_its_corpus_and_around_it() {
    check("snapshot");
}

#[test]
fn the_corpus_has_a_folder_for_each_target_and_small_files() {
    let mut folders: Vec<_> = entries(&corpus()).iter().map(|path| file_name(path)).collect();
    folders.sort();
    let mut names: Vec<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    names.sort();
    assert_eq!(folders, names);
    for target in TARGETS {
        let files = entries(&corpus().join(target.name));
        assert!((5..=FILES_MAX).contains(&files.len()), "{} has {} files", target.name, files.len());
        for file in files {
            let bytes = fs::metadata(&file).expect("it can be looked at").len();
            assert!(bytes <= FILE_BYTES_MAX as u64, "{} has {bytes} bytes", file.display());
        }
    }
}

/// Runs a target on its corpus and on drawn inputs, with the stack size of a tokio worker thread.
fn check(name: &'static str) {
    let target = Target::named(name).expect("there is such a target");
    let mut seeds: Vec<(String, Vec<u8>)> = entries(&corpus().join(name)).iter().map(|path| read(path)).collect();
    if name == "blueprint" {
        let shipped = entries(&root().join("blueprints")).into_iter();
        seeds.extend(shipped.filter(|path| path.extension().is_some_and(|end| end == "yaml")).map(|path| read(&path)));
    }
    assert!(!seeds.is_empty(), "the corpus of {name} was found");
    let run = move || {
        let begun = Instant::now();
        let slowest = seeds.iter().map(|(file, seed)| (timed(target, seed), file)).max().expect("there are seeds");
        let corpus: Vec<Vec<u8>> = seeds.iter().map(|(_, seed)| seed.clone()).collect();
        let drawn = AtomicUsize::new(0);
        let anything = prop::collection::vec(any::<u8>(), 0..200).boxed();
        for inputs in [anything, choices(name), changed(corpus, target.words)] {
            let config =
                ProptestConfig { cases: cases(target), failure_persistence: None, ..ProptestConfig::default() };
            let seed = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
            let outcome = TestRunner::new_with_rng(config, seed).run(&inputs, |input| {
                drawn.fetch_add(1, Ordering::Relaxed);
                target.run(&input);
                Ok(())
            });
            if let Err(failure) = outcome {
                panic!("{name}: {failure}");
            }
        }
        let drawn = drawn.into_inner();
        eprintln!(
            "{name}: {} files and {drawn} drawn inputs in {:.1?}; the slowest file was {} with {:.1?}",
            seeds.len(),
            begun.elapsed(),
            slowest.1,
            slowest.0
        );
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).name(name.to_owned()).spawn(run);
    if let Err(panic) = thread.expect("a thread starts").join() {
        std::panic::resume_unwind(panic);
    }
}

fn timed(target: &Target, input: &[u8]) -> Duration {
    let begun = Instant::now();
    target.run(input);
    begun.elapsed()
}

/// Draws bytes that a target reads as choices, with the first byte that selects them.
fn choices(name: &str) -> BoxedStrategy<Vec<u8>> {
    let first = if ["journal", "snapshot"].contains(&name) { 0..3_u8 } else { 0..1 };
    let short = prop::collection::vec(any::<u8>(), 0..40);
    let long = prop::collection::vec(any::<u8>(), 40..400);
    (first, prop_oneof![short, long]).prop_map(|(first, rest)| [vec![first], rest].concat()).boxed()
}

/// Mutation of a file.
#[derive(Clone, Debug)]
enum Change {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index, prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    /// Replacement of a file's end by the end of another file.
    Splice(prop::sample::Index, prop::sample::Index, prop::sample::Index),
    Repeat(prop::sample::Index, prop::sample::Index, usize),
}

/// Draws files of the corpus with a few mutations.
fn changed(corpus: Vec<Vec<u8>>, words: &'static [&'static str]) -> BoxedStrategy<Vec<u8>> {
    let at = any::<prop::sample::Index>;
    let inserted = prop_oneof![
        prop::sample::select(words).prop_map(|word| word.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 1..4),
    ];
    let change = prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Change::Flip(at, byte)),
        (at(), at()).prop_map(|(from, to)| Change::Cut(from, to)),
        (at(), inserted).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (at(), at(), at()).prop_map(|(at, file, from)| Change::Splice(at, file, from)),
        (at(), at(), 1..200_usize).prop_map(|(from, to, times)| Change::Repeat(from, to, times)),
    ];
    let changes = prop::collection::vec(change, 1..6);
    (at(), changes)
        .prop_map(move |(file, changes)| {
            let mut input = file.get(&corpus).clone();
            for change in changes {
                apply(&change, &mut input, &corpus);
            }
            input.truncate(INPUT_BYTES_MAX);
            input
        })
        .boxed()
}

fn apply(change: &Change, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let range = |from: &prop::sample::Index, to: &prop::sample::Index, length: usize| {
        let (from, to) = (from.index(length + 1), to.index(length + 1));
        from.min(to)..from.max(to)
    };
    match change {
        Change::Flip(at, byte) => {
            if !input.is_empty() {
                let at = at.index(input.len());
                input[at] = *byte;
            }
        }
        Change::Cut(from, to) => drop(input.drain(range(from, to, input.len()))),
        Change::Insert(at, bytes) => {
            let at = at.index(input.len() + 1);
            input.splice(at..at, bytes.iter().copied());
        }
        Change::Splice(at, file, from) => {
            let other = file.get(corpus);
            input.truncate(at.index(input.len() + 1));
            input.extend_from_slice(&other[from.index(other.len() + 1)..]);
        }
        Change::Repeat(from, to, times) => {
            let range = range(from, to, input.len());
            let (end, part) = (range.end, input[range].to_vec());
            let times = (*times).min(INPUT_BYTES_MAX / part.len().max(1));
            input.splice(end..end, part.repeat(times));
        }
    }
}

fn read(path: &Path) -> (String, Vec<u8>) {
    (file_name(path), fs::read(path).expect("a file of the corpus can be read"))
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the entries of a folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    paths.sort();
    paths
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
