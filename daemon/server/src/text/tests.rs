//! Text that is safe to show.

use super::{clean, json_line, one_line, short};

#[test]
fn nothing_that_acts_on_a_terminal_is_left_in_text() {
    let hostile = "red \u{1b}[31malert\u{1b}[0m \u{1b}]0;title\u{7} \u{9b}2Jgone\u{202e}txt\r\nnext\tcell";
    let cleaned = clean(hostile);
    let shown = "red <U+001B>[31malert<U+001B>[0m <U+001B>]0;title<U+0007> <U+009B>2Jgone";
    assert!(cleaned.starts_with(shown), "{cleaned:?}");
    assert_eq!(clean("5\u{8}9\r, 9\r\n"), "5<U+0008>9<U+000D>, 9\n");
    assert!(cleaned.ends_with("\nnext\tcell"), "{cleaned:?}");
    assert!(!cleaned.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{cleaned:?}");
    assert!(cleaned.contains("gone<U+202E>txt"), "{cleaned:?}");
    assert!(!one_line(hostile).contains(['\n', '\t']));
}

#[test]
fn escaping_json_leaves_the_value_the_same() {
    let value = serde_json::json!({"a\u{9b}": "\u{1b}[31m\u{202e}\u{7f}\u{2028}ü😀\u{e0041}\u{200b}"});
    let line = json_line(&value);
    assert!(line.chars().all(|c| !super::is_control_char(c) && !super::is_invisible_char(c)), "{line}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&line).expect("it is JSON"), value);
}

#[test]
fn invisible_characters_are_escaped() {
    let hidden = [
        0xad, 0x200b, 0x200c, 0x200d, 0x200e, 0x200f, 0x202a, 0x202e, 0x2060, 0x2064, 0x2066, 0x2069, 0xfeff, 0xe0000,
        0xe0041, 0xe007f, 0xe0100, 0x34f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x180b, 0x180f, 0x2800, 0x3164, 0xfe00,
        0xfe0e, 0xffa0, 0xfff0, 0x1bca0, 0x1d173, 0x1d17a,
    ];
    for code in hidden {
        let c = char::from_u32(code).expect("a character");
        for shown in [clean(&format!("a{c}b")), super::escape_invisible(&format!("a{c}b"))] {
            assert_eq!(shown, format!("a<U+{code:04X}>b"));
        }
        assert_eq!(one_line(&format!("a{c}\nb")), format!("a<U+{code:04X}> b"));
    }
    for plain in ["ü😀", "é\u{301}", "☂\u{fe0f}", "\u{1b}[31mred\u{1b}[0m"] {
        assert_eq!(super::escape_invisible(plain), plain);
    }
}

#[test]
fn a_long_text_is_cut_by_characters() {
    assert_eq!(short("äöüß", 4), "äöüß");
    assert_eq!(short("äöüßä", 4), "äöü…");
}
