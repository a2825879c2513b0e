//! Reads are merged, moved with an agent's own edits, and declared within the limit.

use super::*;

fn path() -> FilePath {
    FilePath::parse("a.py").expect("a name")
}

fn entry(version: u64, lines: u32) -> FileEntry {
    let hash = Some(patchboard_kernel::digest::sha256(b""));
    FileEntry { version, hash, lines, bytes: 0, writer: "ada".into(), intent: String::new(), edits: BTreeMap::new() }
}

fn seen(reads: &Reads) -> Vec<(u64, Option<LineRange>)> {
    reads.for_file(&path()).into_iter().map(|read| (read.version, read.lines)).collect()
}

const fn step(at: u32, removed: u32, added: u32) -> LineShift {
    LineShift { at, removed, added }
}

fn note_own_edit(reads: &mut Reads, before: &FileEntry, moved: LineShift, text: &Arc<str>) {
    let (before, text) = (Some(before), Some(text));
    reads.note_own_edit(OwnEdit { path: &path(), before, moves: &[moved], version: 2, text });
}

#[test]
fn parts_of_one_version_join_and_the_whole_replaces_them() {
    let mut reads = Reads::default();
    reads.note(&path(), 3, Some((1, 4)), None);
    reads.note(&path(), 3, Some((5, 9)), None);
    reads.note(&path(), 4, Some((2, 3)), None);
    assert_eq!(seen(&reads), [(3, Some((1, 9))), (4, Some((2, 3)))]);
    reads.note(&path(), 5, None, None);
    reads.note(&path(), 5, Some((1, 1)), None);
    assert_eq!(seen(&reads), [(5, None)]);
}

#[test]
fn after_an_edit_of_its_own_an_agent_knows_what_it_knew_and_what_it_wrote() {
    let text: Arc<str> = "x\n".into();
    for (known, moved, expected) in [
        // Inside, after, before, across the beginning, across the end, across everything.
        ((10, 20), step(12, 1, 3), vec![(10, 22)]),
        ((10, 20), step(30, 1, 2), vec![(10, 20), (30, 31)]),
        ((10, 20), step(2, 1, 2), vec![(2, 3), (11, 21)]),
        ((10, 20), step(8, 4, 1), vec![(8, 17)]),
        ((10, 20), step(19, 4, 1), vec![(10, 19)]),
        ((10, 20), step(5, 30, 2), vec![(5, 6)]),
        ((10, 20), step(10, 0, 2), vec![(10, 22)]),
        ((10, 20), step(10, 11, 0), vec![]),
    ] {
        let mut reads = Reads::default();
        reads.note(&path(), 1, Some(known), None);
        note_own_edit(&mut reads, &entry(1, 40), moved, &text);
        let now: Vec<_> = seen(&reads).into_iter().map(|(_, lines)| lines.expect("lines")).collect();
        assert_eq!(now, expected, "{moved:?}");
    }
    let mut reads = Reads::default();
    reads.note(&path(), 1, None, None);
    note_own_edit(&mut reads, &entry(1, 40), step(3, 1, 1), &text);
    assert_eq!(seen(&reads), [(2, None)], "who knew the whole knows the whole");
    let mut reads = Reads::default();
    reads.note(&path(), 1, Some((1, 2)), None);
    note_own_edit(&mut reads, &entry(1, 2), step(1, 2, 0), &"".into());
    assert_eq!(seen(&reads), [(2, None)], "who empties a file knows that nothing is in it");
}

#[test]
fn a_long_line_is_read_once_all_of_it_was_shown() {
    let (mut reads, text): (Reads, Arc<str>) = (Reads::default(), "".into());
    reads.note_columns(&path(), 1, 7, ((1, 40), 100), &text);
    reads.note_columns(&path(), 1, 7, ((61, 100), 100), &text);
    assert!(!reads.knows(&path()));
    // Columns of different versions are not combined.
    reads.note_columns(&path(), 2, 7, ((41, 60), 100), &text);
    reads.note_columns(&path(), 1, 7, ((41, 60), 100), &text);
    assert!(!reads.knows(&path()));
    reads.note_columns(&path(), 1, 7, ((1, 50), 100), &text);
    reads.note_columns(&path(), 1, 7, ((50, 100), 100), &text);
    assert_eq!(seen(&reads), [(1, Some((7, 7)))]);
}

#[test]
fn too_much_is_declared_in_one_piece_where_it_is_no_target_and_holds_whenever_all_of_it_does() {
    let (target, other) = (path(), FilePath::parse("b.py").expect("a name"));
    let mut reads = Reads::default();
    for at in 1..=u32::try_from(DECLARED_MAX).expect("few") {
        reads.note(&other, 1, Some((2 * at, 2 * at)), None);
    }
    let declared = |reads: &mut Reads, now: &FileEntry| {
        let now = now.clone();
        let declared =
            reads.declared(&[path()], |_| Some(now.clone()), Granularity::Lines).expect("not too many files");
        declared.into_iter().map(|read| (read.path, read.version, read.lines)).collect::<Vec<_>>()
    };
    assert_eq!(declared(&mut reads, &entry(1, 9_000)).len(), DECLARED_MAX, "there is room for all");
    reads.note(&target, 1, Some((3, 4)), None);
    reads.note(&target, 1, Some((8, 9)), None);
    let whole = (2, u32::try_from(2 * DECLARED_MAX).expect("few"));
    let of_target = [(target.clone(), 1, Some((3, 4))), (target.clone(), 1, Some((8, 9)))];
    let expected = [&of_target[..], &[(other.clone(), 1, Some(whole))]].concat();
    assert_eq!(declared(&mut reads, &entry(1, 9_000)), expected, "of the target nothing is added");
    // Two lines removed: one before the lines read, and one among them.
    let mut moved = entry(3, 9_000);
    let edit = |at| patchboard_kernel::files::PastEdit { by: "bob".into(), moves: Some(vec![(at, 1, 0)]) };
    moved.edits = BTreeMap::from([(2, edit(1)), (3, edit(999))]);
    let now = declared(&mut reads, &moved);
    assert_eq!(now[2..], [(other.clone(), 1, Some((1000, 1000))), (other, 3, Some((1, whole.1 - 2)))]);
}

#[test]
fn of_too_many_files_the_oldest_are_forgotten_and_named() {
    let mut reads = Reads::default();
    let name = |at: usize| FilePath::parse(&format!("f{at}")).expect("a name");
    (0..DECLARED_MAX + 2).for_each(|at| reads.note(&name(at), 1, None, None));
    let declare = |reads: &mut Reads| reads.declared(&[name(1)], |_| Some(entry(1, 9)), Granularity::Lines);
    assert_eq!(declare(&mut reads), Err(vec![name(0), name(1)]));
    assert_eq!(declare(&mut reads).map(|reads| reads.len()), Ok(DECLARED_MAX));
}

#[test]
fn all_agents_together_hold_what_there_is_room_for() {
    let held = Arc::new(TextPool::default());
    let text: Arc<str> = "x".repeat(TEXT_BYTES_MAX).into();
    let mut all: Vec<Reads> = (0..20).map(|_| Reads::with_pool(&held)).collect();
    all.iter_mut().for_each(|reads| reads.note(&path(), 1, None, Some(&text)));
    assert_eq!(held.0.load(Ordering::Relaxed), HELD_BYTES_MAX);
    assert!(all.iter().all(|reads| reads.knows(&path())), "what was read is known all the same");
    all.clear();
    assert_eq!(held.0.load(Ordering::Relaxed), 0);
}

#[test]
fn texts_are_kept_while_there_is_room() {
    let mut reads = Reads::default();
    let large: Arc<str> = "x".repeat(TEXT_BYTES_MAX / 2).into();
    for name in ["a", "b", "c"] {
        reads.note(&FilePath::parse(name).expect("a name"), 1, None, Some(&large));
    }
    let kept = |name| reads.text(&FilePath::parse(name).expect("a name"), 1).is_some();
    assert_eq!([kept("a"), kept("b"), kept("c")], [false, true, true]);
    assert_eq!(reads.all().len(), 3, "what was read is known all the same");
}
