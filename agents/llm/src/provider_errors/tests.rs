//! Messages and reasons of providers, in the forms that they use.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn error_messages_are_extracted_from_every_usual_body() {
    for (body, expected) in [
        (r#"{"error": {"message": "m", "code": 429}}"#, "m"),
        (r#"{"error": {"message": "m", "code": "bad_model"}}"#, "m (bad_model)"),
        (r#"{"error": {"code": "insufficient_quota"}}"#, "insufficient_quota"),
        (r#"{"error": "m"}"#, "m"),
        (r#"{"object": "error", "message": "m"}"#, "m"),
        (r#"{"detail": "m"}"#, "m"),
        (r#"{"detail": [{"loc": ["body"], "msg": "one"}, {"msg": "two"}]}"#, "one; two"),
        (r#"[{"error": {"message": "m"}}]"#, "m"),
        (r#"{"object": "error", "message": {"detail": [{"msg": "m", "loc": []}]}, "type": "t"}"#, "m"),
        (
            r#"{"error": {"message": "Provider returned error", "metadata": {"raw": "{\"error\":{\"message\":\"why\"}}"}}}"#,
            "Provider returned error (why)",
        ),
        (r#"{"success": false, "errors": [{"code": 7009, "message": "m"}], "result": null}"#, "m"),
        (r#"{"choices": [{"error": {"message": "m", "code": 502}}]}"#, "m"),
        ("plain", "plain"),
        (r#"{"other": 1}"#, r#"{"other": 1}"#),
        (
            "<html><head><title>502 Bad</title><style>b{}</style></head><body>Down<script>1</script></body></html>",
            "502 Bad Down",
        ),
        ("<html><title>503 Busy</title><h1>503 Busy</h1></html>", "503 Busy"),
    ] {
        assert_eq!(error_message(body).trim(), expected, "{body}");
    }
    assert_eq!([status_text(529, "", ""), status_text(599, "", "")], ["529 Overloaded", "599 status"]);
    assert_eq!(status_text(404, " (what to do)", "words"), "404 Not Found (what to do): words");
}

#[test]
fn an_error_inside_a_success_has_the_status_that_it_names() {
    for (answer, expected) in [
        (json!({"choices": [{"message": {"content": "x"}}], "error": null}), None),
        (json!({"choices": [{"message": {"content": "x"}}], "error": {"message": "late"}}), None),
        (json!({"choices": []}), None),
        (json!({"error": {"code": "429", "message": "busy"}}), Some(Some(429))),
        (json!({"choices": [], "error": {"code": 429}}), Some(Some(429))),
        (json!({"choices": null, "object": "error", "message": "died", "code": 500}), Some(Some(500))),
        (json!({"choices": [{"finish_reason": "error", "message": {"content": ""}}]}), Some(Some(503))),
        (json!([{"error": {"code": 429, "message": "m"}}]), Some(Some(429))),
        (json!({"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}), Some(Some(429))),
        (json!({"base_resp": {"status_code": 0}}), None),
        (json!({"success": false, "errors": [{"code": 3040, "message": "No more capacity"}]}), Some(Some(503))),
        (json!({"success": true, "errors": [], "choices": []}), None),
        (json!({"success": false, "errors": [{"code": 10000, "message": "Authentication error"}]}), Some(Some(401))),
        (json!({"error_code": 336501, "error_msg": "Rpm rate limit reached"}), Some(Some(429))),
        (json!({"detail": "Service overloaded"}), Some(Some(503))),
        (json!({"choices": [{"finish_reason": "error", "message": {"content": "[]"}}]}), None),
        (json!({"choices": [{"error": {"code": 502, "message": "m"}, "finish_reason": "error"}]}), Some(Some(502))),
        (json!({"error": {"type": "overloaded_error", "message": "m"}}), Some(Some(503))),
        (json!({"type": "error", "error": {"type": "api_error", "message": "m"}}), Some(Some(500))),
        (json!({"type": "error", "error": {"type": "authentication_error", "message": "m"}}), Some(Some(401))),
        (json!({"type": "error", "code": "server_error", "message": "m", "param": null}), Some(Some(500))),
        (json!({"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "m"}}), Some(Some(429))),
        (json!({"error": {"message": "strange"}}), Some(None)),
        (json!({"message": "what"}), Some(None)),
    ] {
        assert_eq!(embedded_error_status(&answer), expected, "{answer}");
    }
}

#[test]
fn words_count_as_words() {
    for (text, expected) in [
        ("stream must be true", true),
        ("'stream_options'", true),
        ("no streams", true),
        ("upstream error", false),
        ("streamlined upstream stream.", true),
        ("streamed", false),
        ("éstream", false),
        ("", false),
    ] {
        assert_eq!(contains_words(text, "stream"), expected, "{text}");
    }
}

#[test]
fn a_server_without_tools_is_one_that_says_so() {
    for (body, expected) in [
        (r#"{"error": {"message": "registry.ollama.ai/library/gemma3:4b does not support tools"}}"#, true),
        (r#"{"error": {"message": "No endpoints found that support tool use. Try disabling \"view\"."}}"#, true),
        (
            r#"{"message": "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"}"#,
            true,
        ),
        (r#"{"error": {"message": "Function calling is not supported by this model"}}"#, true),
        (r#"{"error": {"message": "tools param requires --jinja flag", "code": 500}}"#, true),
        (
            r#"{"error": {"message": "Missing `reasoning_content` field; not supported, see https://a/b#tool-calls"}}"#,
            false,
        ),
        (r#"{"error": {"message": "tool_call_id call_1 is not supported"}}"#, false),
        (r#"{"error": {"message": "The name of tool `a.b` is not allowed"}}"#, false),
        (
            r#"{"error": {"message": "Invalid schema for function 'answer': 'anyOf' is not supported in a tool schema"}}"#,
            false,
        ),
        (r#"{"error": {"message": "messages with role 'tool' must follow tool_calls"}}"#, false),
        (r#"{"error": {"message": "the tool view was used twice. Images are not supported."}}"#, false),
        ("", false),
    ] {
        assert_eq!(is_tools_unsupported(body), expected, "{body}");
    }
}

proptest! {
    #[test]
    fn no_page_makes_it_panic(text in "(<|>|/|script|style|é|\\PC| ){0,30}") {
        drop(error_message(&format!("<{text}")));
        drop(error_message(&text));
        is_key_refused(400, &text);
        is_tools_unsupported(&text);
    }
}
