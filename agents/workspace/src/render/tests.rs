//! Views and lists fit their room and name the rest.

use super::*;

fn lines(count: usize) -> String {
    (1..=count).map(|at| format!("line {at}\n")).collect()
}

#[test]
fn a_view_ends_with_a_line_and_says_how_to_see_the_rest() {
    let text = lines(400);
    let whole = view(&text, None, None, 64_000);
    assert!(whole.is_whole && !whole.text.contains('['), "{}", whole.text);
    let mut next = 1;
    for _ in 0..20 {
        let part = view(&text, Some((next, None)), None, 1_000);
        assert!(part.text.chars().count() <= 1_000, "{}", part.text);
        let [(first, last)] = part.shown[..] else { panic!("{part:?}") };
        assert_eq!(first, next);
        assert!(
            part.text.contains(&format!("\tline {last}\n")) && !part.text.contains(&format!("line {}\n", last + 1))
        );
        if last == 400 {
            return;
        }
        next = last + 1;
        assert!(
            part.text.contains(&format!("of 400; `view_range` [{next}, 400] shows what follows]")),
            "{}",
            part.text
        );
    }
    panic!("it does not end");
}

#[test]
fn a_long_line_is_shown_alone_and_in_parts() {
    let long = "0123456789".repeat(1_000);
    let text = format!("a\n{long}\nb\n");
    let all = view(&text, None, None, 64_000);
    assert_eq!(all.shown, [(1, 1), (3, 3)]);
    assert!(all.text.contains("`view_range` [2, 2]"), "{}", all.text);
    let alone = view(&text, Some((2, Some(2))), None, 64_000);
    assert_eq!((alone.shown.as_slice(), alone.text.as_str()), (&[(2, 2)][..], &*format!("     2\t{long}\n")));
    let (mut from, mut seen) = (1, String::new());
    while from <= 10_000 {
        let FileView { text, part, shown, .. } = view(&text, Some((2, Some(2))), Some((from, None)), 3_000);
        assert!(text.chars().count() <= 3_000 && shown.is_empty(), "{text}");
        let (2, (first, last), 10_000) = part.expect("a part") else { panic!("{text}") };
        assert_eq!(first, from);
        seen.extend(text.lines().next().and_then(|line| line.split_once('\t')).map(|(_, line)| line));
        from = last + 1;
    }
    assert_eq!(seen, long);
    let nothing = view(&text, Some((2, Some(2))), Some((20_000, None)), 3_000);
    assert!(nothing.part.is_none() && nothing.shown.is_empty(), "{nothing:?}");
    assert!(view(&text, Some((9, Some(9))), None, 3_000).shown.is_empty());
}

#[test]
fn a_list_fits_and_counts_what_does_not() {
    let names: Vec<String> = (0..100).map(|at| format!("file {at}")).collect();
    let (text, listed) = list(&names, 600);
    assert!(text.chars().count() <= 600 && (1..100).contains(&listed), "{text}");
    assert!(text.contains(&format!("[{} more files", 100 - listed)), "{text}");
    assert_eq!(list(&names, 64_000).1, 100);
    let path = |name: &str| FilePath::parse(name).expect("a name");
    assert!(is_below(&path("src/a"), Some(&path("src"))) && !is_below(&path("srcs/a"), Some(&path("src"))));
}
