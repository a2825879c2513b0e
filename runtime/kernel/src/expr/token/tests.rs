//! Tests of `token.rs`.

use super::*;

fn refusal(source: &str) -> (&'static str, Option<usize>) {
    let error = read(source).expect_err(source);
    (error.code, error.offset)
}

#[test]
fn brackets_inside_strings_and_comments_do_not_nest() {
    for source in [
        format!("'{}' == x", "(".repeat(500)),
        format!("\"\"\"{}\n\"\"\" == x", "[".repeat(500)),
        format!("r'\\{}' == x", "{".repeat(500)),
        format!("true // {}", "(".repeat(500)),
        format!("'\\'{}' == x", "(".repeat(500)),
    ] {
        drop(read(&source).expect(&source));
    }
}

#[test]
fn excessive_depth_of_any_kind_is_rejected() {
    for open in ["(", "[", "{", "f(", "a[", "!(", "-(", "x ? y : ", "a ? (", "[{"] {
        assert_eq!(refusal(&format!("{}1", open.repeat(60))).0, "cel_too_complex", "{open}");
    }
}

#[test]
fn long_chains_are_rejected() {
    for link in [".b", "+1", "&& x ", "!", "-", "== 1 ", "[0]", ", 1"] {
        assert_eq!(refusal(&format!("a{}", link.repeat(401))).0, "cel_too_complex", "{link}");
    }
}

#[test]
fn invalid_tokens_are_reported_with_their_offset() {
    assert_eq!(refusal("a == é"), ("cel_syntax", Some(5)));
    assert_eq!(refusal("a == 'x"), ("cel_syntax", Some(5)));
    assert_eq!(refusal("a == 'x\n'"), ("cel_syntax", Some(5)));
    assert_eq!(refusal("a == 'x\\"), ("cel_syntax", Some(7)));
    assert_eq!(refusal("a == 'x\\q'"), ("cel_syntax", Some(7)));
    assert_eq!(refusal("a == b'x'"), ("cel_unsupported", Some(5)));
    assert_eq!(refusal("a = 1"), ("cel_syntax", Some(2)));
    assert_eq!(refusal("`a` == 1"), ("cel_syntax", Some(0)));
    assert_eq!(refusal(" \n"), ("cel_syntax", Some(0)));
}

#[test]
fn a_long_source_is_rejected_before_it_is_read() {
    assert_eq!(refusal(&"\u{0}".repeat(SOURCE_BYTES_MAX + 1)), ("cel_too_long", None));
    drop(read(&format!("{}true", " ".repeat(SOURCE_BYTES_MAX - 4))).expect("spaces cost only bytes"));
}
