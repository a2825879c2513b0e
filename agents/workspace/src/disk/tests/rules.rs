//! Ignore rules, compared with git's answers for the directory.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Dice, Disk, DiskOptions, UnservedReason, change, directory, name, open, read, refused, write};
use crate::disk::{DiskCode, DiskError};

const NAMES: &[&str] = &["a", "b", "c", "a b", ".h", "ü", "x.o", "x.txt", "b.o", "!b", "#c", "A"];
const PATTERNS: &[&str] = &[
    "a",
    "b",
    "c",
    "/a",
    "/b",
    "a/",
    "b/",
    "/c/",
    "a/b",
    "a/b/",
    "/a/b",
    "**/b",
    "**/b/c",
    "a/**",
    "a/**/c",
    "a/*",
    "a/*/c",
    "*.o",
    "*.txt",
    "*",
    "/*",
    "*/",
    "?",
    "[ab]",
    "[!a]",
    "[a-c].o",
    ".*",
    ".h",
    "ü",
    "a b",
    "a\\ b",
    "b  ",
    "c\\ ",
    "\\!b",
    "\\#c",
    "# nothing",
    "",
    "!a",
    "!b",
    "!/a",
    "!a/",
    "!*.o",
    "!x.txt",
    "!*/",
    "!.gitignore",
    "!**/b",
    "!a/**",
    "x.*",
    "*b*",
    "a\r",
];

/// Runs git in a directory, without any user's configuration.
fn git(at: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut git = Command::new("git")
        .current_dir(at)
        .args(["-c", "core.excludesFile=/dev/null"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", at.parent().expect("it is somewhere"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git is installed");
    let mut stdin = git.stdin.take().expect("it is piped");
    let input = input.to_owned();
    let feed = std::thread::spawn(move || stdin.write_all(&input).ok());
    let output = git.wait_with_output().expect("git ends");
    feed.join().expect("it was fed");
    let is_well = output.status.code().is_some_and(|code| code < 2);
    assert!(is_well, "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn listed(output: &[u8]) -> BTreeSet<String> {
    let names = output.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8(name.to_owned()).expect("our names are UTF-8")).collect()
}

/// Creates a random directory with ignore rules at random places.
fn grow(at: &Path, depth: usize, dice: &mut Dice) {
    if dice.below(3) < 2 || depth == 0 {
        let lines: Vec<&str> = (0..=dice.below(5)).map(|_| dice.of(PATTERNS)).collect();
        write(at.join(".gitignore"), lines.join("\n"));
    }
    for entry in NAMES {
        match dice.below(4) {
            0 if depth < 3 => {
                std::fs::create_dir_all(at.join(entry)).expect("a directory can be made");
                grow(&at.join(entry), depth + 1, dice);
            }
            0..=2 => write(at.join(entry), "x\n"),
            _ => {}
        }
    }
}

#[test]
fn random_directories_are_served_as_git_lists_them() {
    let (mut files, mut ignored, mut absent) = (0, 0, 0);
    for seed in 1..=40 {
        let root = directory();
        let mut dice = Dice(seed * 0x9e37_79b9);
        git(root.path(), &["init", "--quiet"], b"");
        write(root.path().join(".git/info/exclude"), format!("{}\n", dice.of(PATTERNS)));
        grow(root.path(), 0, &mut dice);
        let disk = open(root.path());
        let scan = disk.scan().expect("scanned");
        let served: BTreeSet<String> = scan.files.keys().map(ToString::to_string).collect();
        let expected = listed(&git(root.path(), &["ls-files", "--others", "--exclude-standard", "-z"], b""));
        assert_eq!(served, expected, "seed {seed}");
        files += served.len();
        ignored += scan.left.get(&UnservedReason::Ignored).map_or(0, |left| left.count);
        // Each existing file is judged alone as in the scan.
        for path in listed(&git(root.path(), &["ls-files", "--others", "-z"], b"")) {
            if path.starts_with(".patchboard/") {
                continue;
            }
            let expected = (!served.contains(&path)).then_some(UnservedReason::Ignored);
            assert_eq!(refused(&disk, &path), expected, "seed {seed}: {path}");
        }
        // A missing file is judged as it would be if it existed.
        let names: BTreeSet<String> = (0..200)
            .map(|_| (0..=dice.below(4)).map(|_| dice.of(NAMES)).collect::<Vec<_>>().join("/") + dice.of(&["", ".new"]))
            .filter(|path| !root.path().join(path).exists())
            .filter(|path| !Path::new(path).ancestors().skip(1).any(|above| root.path().join(above).is_file()))
            .collect();
        let asked = names.iter().flat_map(|path| path.bytes().chain([0])).collect::<Vec<u8>>();
        let ignored = listed(&git(root.path(), &["check-ignore", "--no-index", "--stdin", "-z"], &asked));
        for path in &names {
            let expected = ignored.contains(path).then_some(UnservedReason::Ignored);
            assert_eq!(refused(&disk, path), expected, "seed {seed}: {path}, which is not there");
        }
        absent += names.len();
    }
    println!("{files} files served, {ignored} names ignored, {absent} absent names judged");
    assert!(files > 500 && ignored > 500 && absent > 500, "{files} served, {ignored} ignored, {absent} absent");
}

#[test]
fn a_changed_rule_counts_at_once() {
    let root = directory();
    write(root.path().join("d/a.log"), "x");
    let disk = open(root.path());
    assert_eq!(refused(&disk, "d/a.log"), None);
    change(&disk, "d/.gitignore", None, Some("*.log\n"));
    assert_eq!(refused(&disk, "d/a.log"), Some(UnservedReason::Ignored));
    assert_eq!(refused(&disk, "a.log"), None);
    change(&disk, "d/.gitignore", Some("*.log\n"), Some("*.log\n!a.log\n"));
    assert_eq!(refused(&disk, "d/a.log"), None);
    change(&disk, "d/.gitignore", Some("*.log\n!a.log\n"), None);
    assert_eq!(refused(&disk, "d/b.log"), None);
}

#[test]
fn rules_that_are_too_long_exclude_everything_and_links_to_rules_are_none() {
    let root = directory();
    write(root.path().join("long/.gitignore"), "x\n".repeat(200_000));
    write(root.path().join("long/a"), "a");
    write(root.path().join("linked/a"), "a");
    write(root.path().join("all"), "*\n");
    std::os::unix::fs::symlink("../all", root.path().join("linked/.gitignore")).expect("a link");
    let disk = open(root.path());
    assert_eq!(refused(&disk, "long/a"), Some(UnservedReason::Ignored));
    assert_eq!(refused(&disk, "linked/a"), None);
}

#[test]
fn git_and_our_own_are_never_served_and_neither_is_what_the_operator_excludes() {
    let root = directory();
    let options = DiskOptions {
        exclude: ["secrets/", "*.pem", "/top", "keep/*", "!keep/this"].map(Into::into).to_vec(),
        ..DiskOptions::default()
    };
    write(root.path().join(".gitignore"), "!*.pem\n");
    for path in [".git/config", "sub/.git", "secrets/a", "d/key.pem", "top", "d/top", "keep/this", "keep/that"] {
        write(root.path().join(path), "x");
    }
    let disk = Disk::open(root.path(), options).expect("opened");
    let cases = [
        (".git/config", Some(UnservedReason::Git)),
        (".GIT/hooks/x", Some(UnservedReason::Git)),
        ("sub/.git", Some(UnservedReason::Git)),
        (".gitignore", None),
        (".patchboard/staged/x", Some(UnservedReason::Private)),
        ("sub/.patchboard/x", Some(UnservedReason::Private)),
        ("secrets/a", Some(UnservedReason::Excluded)),
        ("secrets/new/deep", Some(UnservedReason::Excluded)),
        ("d/key.pem", Some(UnservedReason::Excluded)),
        ("top", Some(UnservedReason::Excluded)),
        ("d/top", None),
        ("keep/this", None),
        ("keep/that", Some(UnservedReason::Excluded)),
    ];
    for (path, expected) in cases {
        assert_eq!(refused(&disk, path), expected, "{path}");
        let staged = disk.stage(&name(path), None, Some("x"));
        assert_eq!(staged.err().and_then(|error| error.reason()), expected, "{path}");
    }
    let served: Vec<String> = disk.scan().expect("scanned").files.keys().map(ToString::to_string).collect();
    assert_eq!(served, [".gitignore", "d/top", "keep/this"]);

    drop(disk);
    let exclude = vec!["a{b".to_owned(), "[".to_owned()];
    let error = Disk::open(root.path(), DiskOptions { exclude, ..DiskOptions::default() }).expect_err("a bad pattern");
    assert_eq!(error.code(), DiskCode::BadExclude);
    assert!(matches!(error, DiskError::Exclude { ref glob, .. } if glob.contains('{') || glob == "["), "{error}");
}

#[test]
fn only_text_of_bounded_size_is_served() {
    let root = directory();
    let disk = Disk::open(root.path(), DiskOptions { max_bytes: 20_000, ..DiskOptions::default() }).expect("opened");
    let mut late = vec![b'a'; 9_000];
    late.push(0);
    let cases: [(&str, Vec<u8>, Option<UnservedReason>); 6] = [
        ("zero", b"a\0b".to_vec(), Some(UnservedReason::Binary)),
        ("late-zero", late, None),
        ("latin", b"caf\xe9".to_vec(), Some(UnservedReason::Binary)),
        ("empty", Vec::new(), None),
        ("most", vec![b'a'; 20_000], None),
        ("more", vec![b'a'; 20_001], Some(UnservedReason::TooLarge)),
    ];
    for (path, bytes, expected) in &cases {
        write(root.path().join(path), bytes);
        assert_eq!(refused(&disk, path), *expected, "{path}");
    }
    for (text, expected) in
        [("a\0b".to_owned(), UnservedReason::Binary), ("a".repeat(20_001), UnservedReason::TooLarge)]
    {
        let error = disk.stage(&name("new"), None, Some(&text)).expect_err("it would not be served");
        assert_eq!(error.reason(), Some(expected));
    }
    let scan = disk.scan().expect("scanned");
    assert_eq!(scan.files.len(), 3);
    assert_eq!((scan.left[&UnservedReason::Binary].count, scan.left[&UnservedReason::TooLarge].count), (2, 1));
    assert_eq!(read(&disk, "nowhere/at/all"), None);
}
