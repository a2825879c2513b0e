//! Tests of `text_search.rs`.

use serde_json::json;

use super::*;

fn needles(texts: &[&str], blueprint: &str) -> Needles {
    Needles::new(texts.iter().map(|text| (*text).to_owned()).collect(), blueprint)
}

#[test]
fn a_text_is_found_however_often_it_is_escaped() {
    let secret = "say \"ж\" \\ now\n";
    let needles = needles(&[secret], "");
    let mut text = format!("before {secret} after");
    for _ in 0..=ESCAPED_MAX {
        assert!(needles.occur_in(&text), "{text}");
        text = json!({"text": text}).to_string();
    }
    assert!(needles.occur_in(r#"[{"value":"s\u0061y \"\u0436\" \\ now\n"}]"#));
    assert!(!needles.occur_in("say ж now"));
}

#[test]
fn texts_of_any_length_and_number_are_found() {
    let texts: Vec<String> = (0..300).map(|n| format!("{n:04}{}", "ж\"".repeat(1500 + n))).collect();
    let long = "a long one, ".repeat(1 << 20);
    let all: Vec<&str> = texts.iter().map(String::as_str).chain([long.as_str()]).collect();
    let needles = needles(&all, "");
    for text in &all {
        assert!(needles.occur_in(&json!([text]).to_string()), "{}", &text[..4]);
    }
    assert!(!needles.occur_in(&long[1..]));
}

#[test]
fn short_texts_and_blueprint_texts_are_excluded_from_the_search() {
    let needles = needles(&["abc", "draft", "drafting", "$redacted:00"], "\"enum\":[\"draft\"]");
    assert!(!needles.occur_in("abc draft $redacted:00"));
    assert!(needles.occur_in("drafting"));
}

#[test]
fn a_word_is_mentioned_as_a_whole() {
    assert!(mentions("/people/*/name", "people"));
    assert!(!mentions("Annotate what Anna said", "Ann"));
    assert!(!mentions("text", ""));
}
