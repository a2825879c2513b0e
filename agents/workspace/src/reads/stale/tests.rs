//! Stale reads, after the agent has seen a part of the file again.

use std::collections::BTreeMap;

use patchboard_kernel::digest::sha256;
use patchboard_kernel::files::PastEdit;

use super::*;

fn path() -> FilePath {
    FilePath::parse("a.py").expect("a name")
}

/// Entry of a file with `lines` lines after these edits of its first version.
fn entry(lines: u32, edits: &[&[(u32, u32, u32)]]) -> FileEntry {
    let edits: BTreeMap<u64, PastEdit> = (2_u64..)
        .zip(edits)
        .map(|(version, moves)| (version, PastEdit { by: "bob".into(), moves: Some(moves.to_vec()) }))
        .collect();
    let (version, intent) = (1 + edits.len() as u64, String::new());
    FileEntry { version, hash: Some(sha256(b"")), lines, bytes: 0, writer: "bob".into(), intent, edits }
}

/// Returns the reads of an agent that read `read` at the first version and sees `sees` at the last one.
fn known(entry: &FileEntry, read: Option<LineRange>, sees: LineRange) -> Vec<(u64, Option<LineRange>)> {
    let mut reads = Reads::default();
    reads.note(&path(), 1, read, Some(&"".into()));
    reads.note(&path(), entry.version, Some(sees), Some(&"".into()));
    reads.catch_up(&path(), entry, Granularity::Lines);
    reads.for_file(&path()).into_iter().map(|read| (read.version, read.lines)).collect()
}

#[test]
fn changed_reads_stay_stale_until_their_place_is_seen() {
    // Line 10 of 20 is replaced; then two lines are inserted before everything.
    let changed = entry(22, &[&[(10, 1, 1)], &[(1, 0, 2)]]);
    let stale = (1, Some((9, 11)));
    assert_eq!(
        known(&changed, Some((5, 15)), (1, 2)),
        [stale, (3, Some((1, 2))), (3, Some((7, 11))), (3, Some((13, 17)))]
    );
    assert_eq!(known(&changed, Some((5, 15)), (12, 12)), [(3, Some((7, 17)))]);
    assert_eq!(known(&changed, Some((10, 10)), (12, 14)), [(3, Some((12, 14)))]);
    // Lines inserted before the first one matter only to an agent that has read the whole file.
    assert_eq!(known(&changed, None, (12, 12)), [(1, None), (3, Some((3, 22)))]);
    assert_eq!(known(&changed, Some((1, 20)), (12, 12)), [(3, Some((3, 22)))]);
}

#[test]
fn a_deletion_is_seen_by_viewing_both_neighbouring_lines() {
    let gone = entry(17, &[&[(10, 3, 0)]]);
    assert_eq!(known(&gone, Some((10, 12)), (9, 10)), [(2, Some((9, 10)))]);
    assert_eq!(known(&gone, Some((11, 15)), (1, 8)), [(1, Some((11, 13))), (2, Some((1, 8))), (2, Some((10, 12)))]);
}

#[test]
fn reads_of_deleted_lines_stay_stale_until_the_gap_is_shown() {
    let gone = entry(17, &[&[(10, 3, 0)]]);
    let caught_up = |read: &[(u64, LineRange)], sees: &[LineRange]| -> Vec<(u64, Option<LineRange>)> {
        let mut reads = Reads::default();
        read.iter().for_each(|(version, lines)| reads.note(&path(), *version, Some(*lines), Some(&"".into())));
        for lines in sees {
            reads.note(&path(), gone.version, Some(*lines), Some(&"".into()));
            reads.catch_up(&path(), &gone, Granularity::Lines);
        }
        reads.for_file(&path()).into_iter().map(|read| (read.version, read.lines)).collect()
    };
    let stale = (1, Some((9, 13)));
    let kept = [stale, (2, Some((5, 9))), (2, Some((10, 12))), (2, Some((17, 17)))];
    assert_eq!(caught_up(&[(1, (5, 15))], &[(17, 17)]), kept);
    assert_eq!(caught_up(&[(1, (5, 15))], &[(17, 17), (17, 17)]), kept, "it was not shown by then");
    for (beside, is_seen) in
        [(&[(9, 10)][..], true), (&[(9, 9)], false), (&[(10, 10)], false), (&[(9, 9), (10, 10)], true)]
    {
        let caught_up = caught_up(&[(1, (5, 15))], &[&[(17, 17)], beside, &[(17, 17)]].concat());
        assert_eq!(caught_up.iter().all(|(version, _)| *version == 2), is_seen, "{beside:?}: {caught_up:?}");
    }
    // The file now ends at a line number that was read before.
    let ends = entry(12, &[&[(13, 1, 1)], &[(13, 1, 0)]]);
    let mut reads = Reads::default();
    reads.note(&path(), 1, Some((13, 13)), Some(&"".into()));
    reads.note(&path(), 2, Some((2, 12)), Some(&"".into()));
    for (sees, is_made_up_for) in [((1, 1), false), ((12, 12), true)] {
        reads.note(&path(), 3, Some(sees), Some(&"".into()));
        reads.catch_up(&path(), &ends, Granularity::Lines);
        assert_eq!(reads.for_file(&path()).iter().all(|read| read.version > 1), is_made_up_for, "{sees:?}");
    }
    // Two reads; neither was current when the lines were removed.
    let kept = caught_up(&[(1, (10, 12)), (2, (1, 9))], &[(17, 17)]);
    assert!(kept.contains(&(1, Some((9, 13)))) || kept.contains(&(1, Some((10, 12)))), "{kept:?}");
}

#[test]
fn of_an_edit_of_which_nothing_is_known_everything_stays_until_all_is_seen() {
    let mut unknown = entry(20, &[&[(10, 1, 1)]]);
    unknown.edits.get_mut(&2).expect("an edit").moves = None;
    assert_eq!(known(&unknown, Some((1, 20)), (10, 10)), [(1, Some((1, 20))), (2, Some((10, 10)))]);
    let mut reads = Reads::default();
    reads.note(&path(), 1, Some((1, 20)), Some(&"".into()));
    for piece in [(1, 12), (13, 20)] {
        assert!(reads.for_file(&path()).iter().any(|read| read.version == 1), "a part is still to be seen");
        reads.note(&path(), 2, Some(piece), Some(&"".into()));
        reads.catch_up(&path(), &unknown, Granularity::Lines);
    }
    let known: Vec<_> = reads.for_file(&path()).into_iter().map(|read| (read.version, read.lines)).collect();
    assert_eq!(known, [(2, Some((1, 20)))]);
}
