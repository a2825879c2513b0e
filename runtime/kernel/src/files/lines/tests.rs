//! Tests of `lines.rs`.

use super::*;

const fn step(at: u32, removed: u32, added: u32) -> LineShift {
    LineShift { at, removed, added }
}

#[test]
fn lines_are_counted_with_and_without_an_end() {
    let cases = [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n", 1), ("\n\n", 2), ("a\r\nb\r\n", 2)];
    for (text, lines) in cases {
        assert_eq!(count(text), lines, "{text:?}");
    }
}

#[test]
fn an_edit_shifts_what_it_does_not_touch() {
    let cases = [
        // Before, right before, at the first line, inside, at the last line, right after, far after.
        ((10, 20), step(3, 2, 5), Some((13, 23))),
        ((10, 20), step(8, 2, 0), Some((8, 18))),
        ((10, 20), step(9, 2, 2), None),
        ((10, 20), step(12, 1, 1), None),
        ((10, 20), step(20, 1, 0), None),
        ((10, 20), step(21, 4, 9), Some((10, 20))),
        ((10, 20), step(40, 1, 1), Some((10, 20))),
        // Pure insertions: before the first line they shift the range, between two lines they touch it.
        ((10, 20), step(10, 0, 3), Some((13, 23))),
        ((10, 20), step(11, 0, 3), None),
        ((10, 20), step(20, 0, 3), None),
        ((10, 20), step(21, 0, 3), Some((10, 20))),
    ];
    for (lines, edit, expected) in cases {
        assert_eq!(shift_lines(lines, &[edit]), expected, "{edit:?}");
    }
    assert_eq!(shift_lines((10, 20), &[step(1, 1, 2), step(5, 0, 4), step(21, 3, 0)]), Some((15, 25)));
}

#[test]
fn ranges_join_where_nothing_lies_between_them() {
    assert_eq!(union([(5, 6), (1, 2), (3, 3), (9, 12), (10, 11)]), [(1, 3), (5, 6), (9, 12)]);
    assert!(cover(&[(1, 3), (5, 6)], (2, 3)));
    assert!(!cover(&[(1, 3), (5, 6)], (3, 5)));
    assert!(cover(&[], (4, 3)), "no lines");
}
