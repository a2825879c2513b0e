//! Comments that name the author and the intent of a block.

use patchboard_kernel::files::LineRange;
use proptest::prelude::*;

use super::{language, path};
use crate::text::edit::EditCommand;
use crate::text::intent::{
    INTENT_CHARS_MAX, Signature, annotate, annotations, apply_signed, author_name, broken_annotations, convention,
};
use crate::text::language::{CommentStyle, Language};

fn is_author(name: &str) -> bool {
    matches!(name, "alice" | "bob" | "engineer_1")
}

fn sign(file: &str, text: &str, block: LineRange, intent: &str) -> Option<String> {
    let signature = Signature { language: language(file), author: "bob", intent, is_author: &is_author };
    let annotated = annotate(text, &[block], &signature);
    assert_eq!(annotated.without.is_empty(), !annotated.lines.is_empty());
    annotated.without.is_empty().then_some(annotated.text)
}

#[test]
fn files_are_known_by_their_names() {
    let line = |mark| Some(CommentStyle::Line(mark));
    let cases = [
        ("a.py", line("#")),
        ("src/A.PY", line("#")),
        ("Makefile", line("#")),
        ("deploy/Dockerfile.test", line("#")),
        ("a.rs", line("//")),
        ("a.tsx", line("//")),
        ("a.sql", line("--")),
        ("a.el", line(";")),
        ("a.tex", line("%")),
        ("a.css", Some(CommentStyle::Block("/*", "*/"))),
        ("a.md", Some(CommentStyle::Block("<!--", "-->"))),
        ("a.json", None),
        ("a.csv", None),
        ("a.txt", None),
        ("a.png", None),
        ("LICENSE", None),
    ];
    for (name, expected) in cases {
        assert_eq!(Language::for_path(&path(name)).map(|language| language.style()), expected, "{name}");
    }
}

/// Each text has one line that ends in `§`, the block, and `¶` at the expected comment. Without `¶`, no comment is
/// expected.
#[test]
fn a_comment_is_placed_above_its_block_where_it_surely_is_a_comment() {
    let cases = [
        ("a.py", "x = 1\n¶y = 2§\n"),
        ("a.py", "def f():\n¶    return 2§\n"),
        ("a.py", "a\n¶@cache\n@wraps(\n    g)\ndef f():§\n    pass\n"),
        ("a.py", "a\n¶x = '''\ntext§\n'''\n"),
        ("a.py", "¶'''text\nmore§'''\n"),
        ("a.py", "¶x = 1 + \\\n    2§\n"),
        ("a.py", "x = {\n¶    1: 2,§\n}\n"),
        ("a.py", "#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n¶x = 1§\n"),
        ("a.py", "#!/usr/bin/env python3§\nx = 1\n"),
        ("a.py", "\u{feff}x = 1§\n"),
        ("a.py", "x\r\n¶y§\r\nz\r\n"),
        ("a.rs", "a;\n¶#[test]\nfn f() {}§\n"),
        ("a.rs", "¶let s = r#\"\n\"x§\n\"#;\n"),
        ("a.rs", "let c = '\"';\n¶let d = 'x';§\n"),
        ("a.rs", "fn f<'a>() {}\n¶b§\n"),
        ("a.c", "¶#define A \\\n  1§\n"),
        ("a.cpp", "¶f(R\"x(\n)\"§\n)x\");\n"),
        ("a.js", "¶const a = `\n${b}§\n`;\n"),
        ("a.js", "const a = /[`/]/;\n¶b();§\n"),
        ("a.jsx", "¶const a = () => (\n  <p>\n    text§\n  </p>\n);\n"),
        ("a.js", "¶const a = (\n  <p>\n    text§\n  </p>\n);\n"),
        ("a.go", "import \"C\"\nx§\n"),
        ("a.sh", "¶cat <<EOF\ntext§\nEOF\n"),
        ("a.sh", "cat <<EOF\ntext\nEOF\n¶echo§\n"),
        ("a.sh", "¶cat <<EOF\n  EOF\ntext§\nEOF\n"),
        ("a.sh", "¶x=`\n  echo a§\n`\n"),
        ("Makefile", "¶all:\n\tcc§\n"),
        ("a.yaml", "¶a: |\n  text§\nb: 1\n"),
        ("a.yaml", "a: |\n  text\n¶b: 1§\n"),
        ("a.yaml", "a:\n¶  - b§\n"),
        ("a.yaml", "¶a: b\n  - c§\n"),
        ("a.yaml", "¶a: {\n  b: 1§\n}\n"),
        ("a.yaml", "¶a: \"b\n  c: d§\"\n"),
        ("a.yaml", "- b: it's\n¶  c: d's§\n"),
        ("a.md", "---\ntitle: x\n---\n\n¶# Title§\n"),
        ("a.md", "---\ntitle: x§\n---\n"),
        ("a.md", "¶One\ntwo§\nthree\n"),
        ("a.md", "¶a\n```\ncode\n\nmore§\n```\n"),
        ("a.html", "<!DOCTYPE html>\n<html>\n¶<script>\nlet a;§\n</script>\n"),
        ("a.html", "¶<p>\n  text§\n</p>\n"),
        ("a.xml", "<?xml version='1.0'?>\n¶<a>§\n</a>\n"),
        ("a.xml", "¶<a b='1'\n   c='2'>§\n</a>\n"),
        ("a.php", "<?php\n¶f();§\n"),
        ("a.php", "<b>§\n<?php f() ?>\n"),
        ("a.rb", "¶def f\n  <<~X\n    a§\n  X\nend\n"),
    ];
    for (file, marked) in cases {
        let line = marked.lines().position(|line| line.contains('§')).expect("a block") + 1;
        let line = u32::try_from(line).expect("a number");
        let expected = marked.split_once('¶').map(|(above, below)| {
            let (open, close) = match language(file).style() {
                CommentStyle::Line(mark) => (mark, String::new()),
                CommentStyle::Block(open, close) => (open, format!(" {close}")),
            };
            let end = if marked.contains("\r\n") { "\r\n" } else { "\n" };
            let indent = &below[..below.len() - below.trim_start_matches(' ').len()];
            format!("{above}{indent}{open} bob: why{close}{end}{below}").replace('§', "")
        });
        let text = marked.replace(['§', '¶'], "");
        assert_eq!(sign(file, &text, (line, line), "why"), expected, "{file} {marked:?}");
    }
}

#[test]
fn ones_own_comment_is_replaced_and_those_of_others_stay() {
    let cases = [
        // Above the block.
        ("# bob: old\nx = 1\n", (2, 2), "# bob: new\nx = 1\n"),
        ("# alice: hers\nx = 1\n", (2, 2), "# alice: hers\n# bob: new\nx = 1\n"),
        ("# bob: old\n# alice: hers\nx = 1\n", (3, 3), "# alice: hers\n# bob: new\nx = 1\n"),
        ("# TODO: more\nx = 1\n", (2, 2), "# TODO: more\n# bob: new\nx = 1\n"),
        // Comments within the block, written by the author.
        ("# bob: new\nx = 1\n", (1, 2), "# bob: new\nx = 1\n"),
        ("# bob: other\nx = 1\n", (1, 2), "# bob: new\nx = 1\n"),
        ("@d\n# bob: old\ndef f(): pass\n", (2, 3), "@d\n# bob: new\ndef f(): pass\n"),
        ("# alice: hers\nx = 1\n", (1, 2), "# alice: hers\n# bob: new\nx = 1\n"),
        // Blank lines at the beginning of a block are skipped.
        ("x = 1\n\n\ny = 2\n", (2, 4), "x = 1\n\n\n# bob: new\ny = 2\n"),
    ];
    for (text, block, expected) in cases {
        assert_eq!(sign("a.py", text, block, "new").as_deref(), Some(expected), "{text:?}");
    }
    assert_eq!(sign("a.py", "x\n\n\n", (2, 3), "new"), None, "nothing but blank lines");
    assert_eq!(sign("a.py", "x\n", (1, 1), " \u{202e}\n "), None, "nothing to say");
}

#[test]
fn an_intent_ends_no_comment_and_says_nothing_about_the_encoding() {
    let cases = [
        ("a.c", "a */ b \\", "// bob: a * / b\nx\n"),
        ("a.c", "a\nb\u{2028}c", "// bob: a b c\nx\n"),
        ("a.css", "a */ b", "/* bob: a * / b */\nx\n"),
        ("a.xml", "a --> b ---", "<!-- bob: a - -> b -->\n<x>\n"),
        ("a.java", "a \\u000a b", "// bob: a \\ u000a b\nx\n"),
        ("a.php", "a ?> b", "// bob: a ? > b\nx\n"),
        ("a.py", "a \u{202e}b", "# bob: a b\nx\n"),
    ];
    for (file, intent, expected) in cases {
        let (_, text) = expected.split_once('\n').expect("two lines");
        // PHP files begin with an opening tag.
        let mark = if file == "a.php" { "<?php\n" } else { "" };
        let line = 1 + u32::from(!mark.is_empty());
        let signed = sign(file, &format!("{mark}{text}"), (line, line), intent);
        assert_eq!(signed, Some(format!("{mark}{expected}")), "{file} {intent:?}");
    }
    let long = sign("a.py", "x\n", (1, 1), &"w ".repeat(200)).expect("signed");
    assert_eq!(long.lines().next().map(|line| line.chars().count()), Some("# bob: ".len() + INTENT_CHARS_MAX));
    assert_eq!(sign("a.py", "x\n", (1, 1), "coding: latin-1"), None);
    assert_eq!(
        sign("a.py", "x\ny\nz\n", (3, 3), "coding: latin-1").as_deref(),
        Some("x\ny\n# bob: coding: latin-1\nz\n")
    );
    assert_eq!(author_name("Bob: the\nsecond"), "Bob__the_second");
}

#[test]
fn comments_are_read_back_and_those_in_literals_are_none() {
    let text = "# alice: one\nx = 1\n# TODO: not one\ns = '''\n# bob: text\n'''\n    # bob: two: three\n#bob: no\n";
    let found = annotations(text, language("a.py"), &is_author);
    let found: Vec<_> = found.iter().map(|it| (it.line, it.author.as_str(), it.intent.as_str())).collect();
    assert_eq!(found, [(1, "alice", "one"), (7, "bob", "two: three")]);
}

#[test]
fn edits_that_break_annotations_of_others_are_found() {
    let before =
        "# alice: adds\ndef add(a, b):\n    return a + b\n\n# bob: subtracts\ndef sub(a, b):\n    return a - b\n";
    let check = |after: &str| {
        let broken = broken_annotations(before, after, language("a.py"), "bob", &is_author);
        broken.iter().map(|it| (it.annotation.line, it.block, it.changes_block)).collect::<Vec<_>>()
    };
    assert_eq!(check(before), []);
    assert_eq!(check(&before.replace("# bob: subtracts\n", "")), [], "one's own");
    assert_eq!(check(&before.replace("return a + b", "return b + a")), [], "kept above what changes");
    assert_eq!(check(&format!("{}{before}", "import x\n")), [], "moved");
    assert_eq!(check(&before.replace("# alice: adds\n", "")), [(1, Some((2, 3)), false)]);
    assert_eq!(check(&before.replace("alice: adds", "alice: sums")), [(1, Some((2, 3)), false)]);
    assert_eq!(
        check(&before.replace("# alice: adds\ndef add(a, b):\n    return a + b\n", "")),
        [(1, Some((2, 3)), true)]
    );
    assert_eq!(check(""), [(1, Some((2, 3)), true)]);
}

#[test]
fn comments_of_one_block_belong_together_and_reworded_ones_are_recognised() {
    let before = "# alice: adds\n# engineer_1: faster\ndef add(a, b):\n    return a + b\n";
    let broken = |after: &str| broken_annotations(before, after, language("a.py"), "bob", &is_author);
    let all = broken("def add(a, b):\n    return sum([a, b])\n");
    assert_eq!(all.iter().map(|it| (it.block, it.changes_block)).collect::<Vec<_>>(), [(Some((3, 4)), true); 2]);
    let one = broken(&before.replace("alice: adds", "alice: sums"));
    assert_eq!(one.iter().map(|it| (it.is_reworded, it.changes_block)).collect::<Vec<_>>(), [(true, false)]);
    let gone = broken(&before.replace("# alice: adds\n", ""));
    assert_eq!(gone.iter().map(|it| (it.is_reworded, it.changes_block)).collect::<Vec<_>>(), [(false, false)]);
}

#[test]
fn of_the_comments_of_others_the_last_ones_stay() {
    let text = "# alice: one\n# engineer_1: two\n# carol: three\n# bob: mine\nx = 1\n";
    let is_author = |name: &str| matches!(name, "alice" | "bob" | "engineer_1" | "carol");
    let signature = Signature { language: language("a.py"), author: "bob", intent: "again", is_author: &is_author };
    let annotated = annotate(text, &[(5, 5)], &signature);
    assert_eq!(annotated.text, "# engineer_1: two\n# carol: three\n# bob: again\nx = 1\n");
    assert_eq!(annotate(&annotated.text, &[(4, 4)], &signature).text, annotated.text);
}

#[test]
fn an_edit_is_signed_where_it_changes_text() {
    let signature = Signature {
        language: language("a.py"),
        author: "engineer_1",
        intent: "validate numbers",
        is_author: &is_author,
    };
    let text = "def add(a, b):\n    return a + b\n";
    let edit = EditCommand::StrReplace {
        old_str: "    return a + b".to_owned(),
        new_str: "    if a is None:\n        raise TypeError\n    return a + b".to_owned(),
    };
    let (edited, without) = apply_signed(&edit, text, &signature).expect("made");
    let expected = "def add(a, b):\n    # engineer_1: validate numbers\n    if a is None:\n        raise TypeError\n    return a + b\n";
    assert_eq!((edited.text.as_str(), without.len(), edited.hunks.len()), (expected, 0, 1));
    let gone = EditCommand::StrReplace { old_str: "    return a + b\n".to_owned(), new_str: String::new() };
    let (edited, without) = apply_signed(&gone, text, &signature).expect("made");
    assert_eq!((edited.text.as_str(), without.len()), ("def add(a, b):\n", 0), "nothing to stand above");
}

#[test]
fn the_convention_names_the_author_and_comes_to_the_point_first() {
    let text = convention("engineer_1", true, true);
    assert!(text.starts_with("EVERY EDIT NEEDS AN `intent`") && text.contains("# engineer_1: "), "{text}");
}

proptest! {
    #[test]
    fn any_text_of_any_language_can_be_signed_and_loses_no_line(
        text in "([a-z'\"`{}()/*<>!#|:\\\\$ \t-]{0,12}(\n|\r\n|é)){0,12}",
        file in proptest::sample::select(&[
            "a.py", "a.rs", "a.js", "a.jsx", "a.sh", "a.rb", "a.cpp", "a.yaml", "a.md", "a.html", "a.lua", "a.php", "a.ps1", "a.ini",
        ]),
        first in 1_u32..12,
        len in 0_u32..4,
    ) {
        let signature = Signature { language: language(file), author: "bob", intent: "why", is_author: &|_| false };
        let annotated = annotate(&text, &[(first, first + len)], &signature);
        let rest = annotated.text.split_inclusive('\n').enumerate();
        let rest: String = rest.filter(|(at, _)| !annotated.lines.contains(&u32::try_from(at + 1).expect("a line"))).map(|(_, line)| line).collect();
        prop_assert_eq!(rest, text);
    }
}
