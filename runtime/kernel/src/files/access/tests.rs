//! Tests of `access.rs`.

use super::*;

fn access(view: &[&str], edit: &[&str]) -> Access {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let spec = FileAccess { view: texts(view), edit: texts(edit), run: Vec::new(), iterations: 1 };
    Access::compile(&spec).expect("patterns")
}

#[test]
fn one_star_stays_within_a_part_and_who_may_not_read_may_not_write() {
    let access = access(&["src/**", "*.md"], &["**"]);
    let path = |text| FilePath::parse(text).expect("a name");
    for (text, may) in [("src/a.py", true), ("src/a/b.py", true), ("README.md", true), ("docs/a.md", false)] {
        assert_eq!(access.may_view(&path(text)), may, "{text}");
        assert_eq!(access.may_edit(&path(text)), may, "{text}");
    }
}

#[test]
fn patterns_after_an_exclamation_mark_exclude_files() {
    let access = access(&["**", "!secret/**"], &["!**/{.*,test_*}", "**", "!**/{.*,tests}/**"]);
    let path = |text| FilePath::parse(text).expect("a name");
    for (text, may) in [
        ("a.py", true),
        ("src/contest_.py", true),
        ("src/tests.py", true),
        (".env", false),
        ("src/.env", false),
        (".github/workflows/ci.yml", false),
        ("test_a.py", false),
        ("src/tests/deep/a.py", false),
        ("secret/a.py", false),
    ] {
        assert_eq!(access.may_edit(&path(text)), may, "{text}");
    }
    assert!(access.may_view(&path("test_a.py")) && !access.may_view(&path("secret/a.py")));
    let nothing = Access::compile(&FileAccess { edit: vec!["!/a".to_owned()], ..access.spec().clone() });
    assert!(nothing.is_err_and(|error| error.starts_with("edit: `/a`")));
}

#[test]
fn patterns_that_can_match_no_file_are_rejected() {
    for text in ["/src/**", "../x", "a//b", "./a", "[", "{a"] {
        assert!(patterns(&[text.to_owned()]).is_err(), "{text}");
    }
    assert!(patterns(&vec!["a".to_owned(); PATTERNS_MAX + 1]).is_err());
}
