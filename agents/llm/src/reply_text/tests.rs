//! One JSON text in every wrapping; ambiguous and damaged texts stay unchanged.

use proptest::prelude::*;

use super::*;

const PATCH: &str = r#"{"patch": [{"op": "add", "path": "/a", "value": "</think> ```"}]}"#;

#[test]
fn only_a_fence_around_the_whole_text_is_taken_off() {
    for (text, expected) in [
        (" [] \n", "[]"),
        ("```json\n[]\n```", "[]"),
        ("```\n[\n]\n```\n", "[\n]"),
        ("```json\r\n[]\r\n```", "[]"),
        ("```json\n\n  []\n\n  ```", "[]"),
        ("```\n```", ""),
        // All texts below stay unchanged.
        ("Here:\n```json\n[]\n```", "Here:\n```json\n[]\n```"),
        ("```json\n[]\n```\nDone.", "```json\n[]\n```\nDone."),
        ("```json\n[]```", "```json\n[]```"),
        ("```json\n[]\n```\n```json\n[]\n```", "```json\n[]\n```\n```json\n[]\n```"),
        ("```see below\n[]\n```", "```see below\n[]\n```"),
        ("```[]```", "```[]```"),
        ("```", "```"),
        ("", ""),
    ] {
        assert_eq!(unfence(text), expected, "{text:?}");
    }
}

#[test]
fn one_json_text_is_found_in_every_wrapping() {
    let encoded = Value::from(PATCH).to_string();
    for text in [
        PATCH.to_owned(),
        format!("\u{feff} {PATCH}\n\t"),
        format!("```json\n{PATCH}\n```"),
        format!("~~~\n{PATCH}\n~~~"),
        format!("```{PATCH}```"),
        format!("Here it is:\n```JSON\n{PATCH}\n```\nSee [1] and {{x}}."),
        format!("The patch is {PATCH}"),
        format!("<think>\nI could write {{\"patch\": []}}.\n</think>\n\n{PATCH}"),
        format!("<THINK></THINK><thinking>x</thinking>{PATCH}"),
        format!("I could write {{\"patch\": []}}\n</think>{PATCH}"),
        format!(
            "<|channel|>analysis<|message|>{{\"a\": 1}}<|end|><|start|>assistant<|channel|>final<|message|>{PATCH}<|return|>"
        ),
        format!("<|start|>assistant<|channel|>final <|constrain|>json<|message|>{PATCH}"),
        format!("{PATCH}<|im_end|>\n<|endoftext|>"),
        format!("<s> {PATCH}</s>"),
        format!("<|START_THINKING|>so {{\"a\": 1}}<|END_THINKING|><|START_RESPONSE|>{PATCH}<|END_RESPONSE|>"),
        format!("<|START_RESPONSE|>{PATCH}<|END_RESPONSE|>"),
        format!("Thinking...\nso {{\"a\": 1}}\n...done thinking.\n\n{PATCH}"),
        format!("{PATCH}<｜end▁of▁sentence｜>"),
        format!("{PATCH}\n{PATCH}"),
        encoded.clone(),
        Value::from(encoded).to_string(),
        format!("\u{feff}```json\n\u{feff}{PATCH}\n```<|eot_id|>"),
    ] {
        assert_eq!(extract_json(&text), PATCH, "{text}");
    }
}

#[test]
fn ambiguous_or_damaged_json_stays_unchanged() {
    for text in [
        "",
        "Sure: []",
        "I cannot do that.",
        "{\"a\": 1} or {\"a\": 2}",
        "```json\n{\"a\": 1}\n```\n```json\n{\"a\": 2}\n```",
        "{\"patch\": [{\"op\": \"add\"},]}",
        "{'patch': [{'op': \"x\"}]}",
        "{\"patch\": [{\"op\": \"add\"",
        "x {\"patch\": [{\"op\": \"add\"}] and more",
        "\"text\"",
    ] {
        assert_eq!(extract_json(text), text, "{text}");
    }
    assert_eq!(extract_json("```json\n[]\n```\nDone."), "[]");
    assert_eq!(extract_json("<think>unfinished {\"a\": 1}"), "");
}

#[test]
fn words_keep_their_prose() {
    assert_eq!(
        strip_wrapping("<think>x</think>\nI think {\"a\": 1} is right.<|im_end|>"),
        "I think {\"a\": 1} is right."
    );
    assert_eq!(strip_wrapping("```\nname: x\n```"), "name: x");
}

proptest! {
    #[test]
    fn extracted_json_is_contained_or_encoded_in_the_text(
        text in "(\\{|\\}|\\[|\\]|\"|:|,|<|\\||>|think|/|```|~~~|\n|é|\u{ff5c}|\\\\|1| ){0,40}"
    ) {
        let found = extract_json(&text);
        if let Cow::Borrowed(found) = &found {
            prop_assert!(text.contains(found));
        }
        prop_assert_eq!(extract_json(&found), found.clone());
    }
}
