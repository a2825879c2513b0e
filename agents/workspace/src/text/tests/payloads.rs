//! Payloads of rejected edits.

use patchboard_kernel::blueprint::Presentation;
use patchboard_kernel::files::{FilePath, LineRange, count, cover};
use proptest::prelude::*;

use super::path;
use crate::text::rejection_context::{
    BUDGET, BUDGET_MIN, ChangedFile, FileEdit, FilePart, RejectedEdit, RejectionContext, build_context,
};

fn mover(version: u64, by: &str, intent: &str) -> FileEdit {
    FileEdit { version, by: by.to_owned(), intent: Some(intent.to_owned()) }
}

fn text(lines: u32, changed: &[u32]) -> String {
    (1..=lines).map(|at| format!("line {at}{}\n", if changed.contains(&at) { " is new" } else { "" })).collect()
}

#[test]
fn a_payload_says_all_that_is_needed_to_plan_again() {
    let (target, other, gone) = (path("a.py"), path("b.py"), path("c.py"));
    let (before, now) = (text(60, &[]), text(60, &[30]));
    let stale = [
        ChangedFile {
            path: &other,
            read_at: Some(1),
            version: 3,
            edits: &[mover(2, "alice", "one"), mover(3, "carol", "two")],
            before: Some("x\n"),
            now: Some("x\ny\n"),
            read: &[(1, 1)],
            is_partly_read: false,
        },
        ChangedFile {
            path: &gone,
            read_at: Some(2),
            version: 3,
            edits: &[mover(3, "alice", "not needed")],
            before: Some("x\n"),
            now: None,
            read: &[(1, 1)],
            is_partly_read: false,
        },
    ];
    let refusal = RejectedEdit {
        code: "stale_target",
        message: "the target has moved",
        target: ChangedFile {
            path: &target,
            read_at: Some(4),
            version: 5,
            edits: &[mover(5, "alice", "rename it")],
            before: Some(&before),
            now: Some(&now),
            read: &[(25, 35)],
            is_partly_read: false,
        },
        stale: &stale,
    };
    let diff = build_context(&refusal, Presentation::Diff, BUDGET);
    for expected in [
        "(stale_target): the target has moved\nNothing was written.\n",
        "target: a.py, version 4 read, now 5 (+1)\n  version 5 by alice: rename it\n  shown here: lines 27-33\n",
        "-line 30\n+line 30 is new\n",
        "stale: b.py, version 1 read, now 3 (+2)\n  version 3 by carol: two\n  version 2 by alice: one\n",
        "+y\n",
        "stale: c.py, version 2 read, deleted with version 3\n",
        "Nothing has to be viewed again",
    ] {
        assert!(diff.text.contains(expected), "no {expected:?} in\n{}", diff.text);
    }
    assert!(!diff.text.contains("line 26\n") && !diff.text.contains("content now"), "the rest is known");
    let parts = std::iter::once(&diff.target).chain(&diff.stale);
    let reads: Vec<_> = parts.map(|part| (part.path.as_str(), part.version, part.known.clone())).collect();
    assert_eq!(reads, [("a.py", 5, vec![(25, 35)]), ("b.py", 3, vec![(1, 2)]), ("c.py", 3, vec![])]);

    let full = build_context(&refusal, Presentation::Full, BUDGET);
    assert!(full.text.contains("     1\tline 1\n") && full.target.is_whole);
    let brief = build_context(&refusal, Presentation::Brief, BUDGET);
    assert!(!brief.text.contains("line 30") && brief.text.contains("version 3 by carol: two"));
    assert!(brief.target.view_again && brief.text.contains("no line of it is shown here; view it again"));
    let again: Vec<bool> = std::iter::once(&brief.target).chain(&brief.stale).map(|part| part.view_again).collect();
    assert_eq!(again, [true, true, false], "that a file is gone is all there is to know");

    let json = serde_json::to_value(&diff).expect("JSON");
    assert_eq!(json["stale"][0]["changed_by"][1]["by"], "carol");
    assert_eq!(json["target"]["shown"], serde_json::json!([[27, 33]]));
}

#[test]
fn changes_of_unread_lines_are_reported_only_as_line_shifts() {
    let target = path("a.py");
    let (before, mut now) = (text(100, &[]), text(100, &[10, 50, 52, 90]));
    now.insert_str(0, "new line\n");
    let moved = |read: &'static [LineRange], read_at| ChangedFile {
        path: &target,
        read_at,
        version: 2,
        edits: &[],
        before: read_at.map(|_| before.as_str()),
        now: Some(&now),
        read,
        is_partly_read: false,
    };
    let context = |target: ChangedFile<'_>| {
        let refusal = RejectedEdit { code: "stale_target", message: "", target, stale: &[] };
        build_context(&refusal, Presentation::Diff, BUDGET)
    };
    let of_some = context(moved(&[(48, 51)], Some(1)));
    assert!(
        of_some.text.contains("+line 50 is new\n") && of_some.text.contains("+line 52 is new\n"),
        "{}",
        of_some.text
    );
    for hidden in ["new line", "line 10", "line 90"] {
        assert!(!of_some.text.contains(hidden), "{hidden}: {}", of_some.text);
    }
    for said in ["@@ -1,10 +1,11 @@ changed where you have not read", "@@ -90 +91 @@ changed where you have not read"] {
        assert!(of_some.text.contains(said), "{said}: {}", of_some.text);
    }
    assert_eq!(of_some.target.known, [(48, 56)], "what is shown, in the new numbers");
    assert!(!of_some.target.view_again);
    // The lines read have only moved, not changed.
    let elsewhere = context(moved(&[(30, 31)], Some(1)));
    assert!(!elsewhere.text.contains("is new") && !elsewhere.target.view_again, "{}", elsewhere.text);
    assert_eq!(elsewhere.target.known, [(31, 32)]);
    // Unread lines that the edit would change are shown, and no more.
    let unseen = context(moved(&[(50, 50)], None));
    assert_eq!((unseen.target.known.as_slice(), unseen.target.view_again), (&[(47, 53)][..], false), "{}", unseen.text);
    assert!(unseen.text.contains("    51\tline 50 is new\n"), "{}", unseen.text);
}

#[test]
fn rejection_context_is_trimmed_in_the_documented_order() {
    let (target, other) = (path("a.py"), path("b.py"));
    let all: Vec<u32> = (1..=80).collect();
    let (before, now) = (text(400, &[]), text(400, &[200]));
    let (old, new) = (text(80, &[]), text(80, &all));
    let stale = [ChangedFile {
        path: &other,
        read_at: Some(1),
        version: 2,
        edits: &[mover(2, "alice", "all of it")],
        before: Some(&old),
        now: Some(&new),
        read: &[(1, 80)],
        is_partly_read: false,
    }];
    let refusal = RejectedEdit {
        code: "stale_target",
        message: "the target has moved",
        target: ChangedFile {
            path: &target,
            read_at: Some(1),
            version: 2,
            edits: &[mover(2, "alice", "one line")],
            before: Some(&before),
            now: Some(&now),
            read: &[(150, 250)],
            is_partly_read: false,
        },
        stale: &stale,
    };
    let shows = |budget| {
        let payload = build_context(&refusal, Presentation::Full, budget);
        let has = |part: &Option<String>| part.is_some();
        (has(&payload.target.diff), payload.target.known.clone(), payload.target.is_whole, !payload.stale[0].view_again)
    };
    let read_and_around: Vec<LineRange> = vec![(147, 253)];
    assert_eq!(shows(40_000), (true, vec![(1, 400)], true, true));
    assert_eq!(shows(9_000), (true, vec![(1, 400)], true, false), "first the other file's difference");
    let (diff, known, is_whole, _) = shows(4_500);
    assert!(diff && !is_whole && cover(&known, (147, 253)), "then what was not read: {known:?}");
    let (diff, known, ..) = shows(BUDGET_MIN);
    assert!(diff && known != read_and_around && cover(&known, (150, 250)), "the difference tells it all: {known:?}");
}

fn texts() -> impl Strategy<Value = String> {
    let line = prop_oneof![3 => "[a-c]{0,3}", 1 => "[a-z ]{40,90}", 1 => Just("x".repeat(2_100))];
    proptest::collection::vec(line, 0..60).prop_map(|lines| lines.iter().map(|line| format!("{line}\n")).collect())
}

#[derive(Clone, Debug)]
struct File {
    before: Option<String>,
    now: Option<String>,
    read: LineRange,
    movers: Vec<FileEdit>,
}

fn files() -> impl Strategy<Value = File> {
    let movers = proptest::collection::vec("[a-z\n ]{0,150}", 0..9)
        .prop_map(|intents| intents.iter().zip(2..).map(|(intent, at)| mover(at, intent, intent)).collect());
    (proptest::option::weighted(0.8, texts()), proptest::option::weighted(0.9, texts()), (1_u32..30, 0_u32..40), movers)
        .prop_map(|(before, now, (first, len), movers)| File { before, now, read: (first, first + len), movers })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_payload_keeps_its_budget_and_shows_what_it_claims(
        target in files(),
        stale in proptest::collection::vec(files(), 0..14),
        budget in prop_oneof![Just(0_usize), 2_500_usize..30_000],
        presentation in proptest::sample::select(&[Presentation::Full, Presentation::Diff, Presentation::Brief]),
        name in "[a-z]{1,1000}",
    ) {
        let names: Vec<FilePath> = (0..=stale.len()).map(|at| path(&format!("{name}.{at}"))).collect();
        let all: Vec<&File> = std::iter::once(&target).chain(&stale).collect();
        let reads: Vec<[LineRange; 1]> = all.iter().map(|file| [file.read]).collect();
        let moved: Vec<ChangedFile<'_>> = all
            .iter()
            .zip(&names)
            .zip(&reads)
            .map(|((file, path), read)| ChangedFile {
                path,
                read_at: Some(1),
                version: 1 + u64::try_from(file.movers.len()).expect("few"),
                edits: &file.movers,
                before: file.before.as_deref(),
                now: if file.movers.is_empty() { file.before.as_deref().or(Some("")) } else { file.now.as_deref() },
                read,
                is_partly_read: false,
            })
            .collect();
        let refusal = RejectedEdit { code: "stale_read", message: &"why ".repeat(300), target: moved[0].clone(), stale: &moved[1..] };
        let payload = build_context(&refusal, presentation, budget);
        let max = budget.max(BUDGET_MIN);
        prop_assert!(payload.text.chars().count() <= max, "{} of {max}", payload.text.chars().count());
        prop_assert_eq!(payload.stale.len() + payload.stale_left_out, stale.len());
        for (part, moved) in std::iter::once(&payload.target).chain(&payload.stale).zip(&moved) {
            check(&payload, part, moved);
        }
    }
}

fn check(payload: &RejectionContext, part: &FilePart, moved: &ChangedFile<'_>) {
    let now: Vec<&str> = moved.now.unwrap_or_default().lines().collect();
    let before: Vec<&str> = moved.before.unwrap_or_default().lines().collect();
    assert!(payload.text.contains(part.path.as_str()));
    for piece in part.diff.iter().chain(&part.content) {
        assert!(payload.text.contains(piece.as_str()));
    }
    let line = |at: u32| now[at as usize - 1];
    for at in part.shown.iter().flat_map(|(first, last)| *first..=*last) {
        let (numbered, same, new) =
            (format!("{at:>6}\t{}\n", line(at)), format!("\n {}\n", line(at)), format!("\n+{}\n", line(at)));
        let in_content = part.content.as_ref().is_some_and(|content| content.contains(&numbered));
        let in_diff = part.diff.as_ref().is_some_and(|diff| diff.contains(&same) || diff.contains(&new));
        assert!(in_content || in_diff, "line {at} of {} is not shown", part.path);
    }
    // Known lines are shown, or were part of the lines read.
    let read = &before[(moved.read[0].0 as usize - 1).min(before.len())..(moved.read[0].1 as usize).min(before.len())];
    for at in part.known.iter().flat_map(|(first, last)| *first..=*last) {
        let is_shown = cover(&part.shown, (at, at));
        let as_read = moved.read_at == Some(moved.version);
        assert!(is_shown || as_read || read.contains(&line(at)), "line {at} of {} is not known", part.path);
    }
    if moved.now.is_some() && part.is_whole && moved.read_at != Some(moved.version) {
        let lines = count(moved.now.unwrap_or_default());
        assert!(cover(&part.known, (1, lines)));
    }
    if part.view_again {
        assert!(payload.text.contains("view it again"));
    }
}
