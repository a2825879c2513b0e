//! Searches for a request that servers of many kinds accept, by trial and by the words of their rejections.

use super::*;

/// Climbs against a server that answers with `refuse(shape)`; returns the finding and the number of requests.
fn climb(refuse: impl Fn(RequestShape) -> Option<(u16, &'static str)>) -> (Option<DowngradeResult>, usize) {
    climb_with(false, refuse)
}

fn climb_with(
    has_tools: bool,
    refuse: impl Fn(RequestShape) -> Option<(u16, &'static str)>,
) -> (Option<DowngradeResult>, usize) {
    let mut climb = Downgrade::new(RequestShape::default(), has_tools);
    for asked in 1.. {
        match refuse(climb.shape) {
            None => return (climb.found(), asked),
            Some((status, body)) if climb.next(status, body) => {}
            Some(_) => return (None, asked),
        }
    }
    unreachable!("a climb is bounded")
}

fn shape(found: (Option<DowngradeResult>, usize)) -> (Option<RequestShape>, usize) {
    (found.0.map(|found| found.shape), found.1)
}

#[test]
fn differences_of_shapes_have_words() {
    let known = RequestShape { folded: true, ..RequestShape::default() };
    let shape = RequestShape {
        form: OutputMode::Object,
        temperature: Temperature::None,
        limit: Limit::MaxCompletionTokens,
        ..known
    };
    let shape = shape.without(OmittedMembers { seed: true, ..OmittedMembers::default() });
    let words = "the form of any JSON object, max_completion_tokens, no temperature, no seed";
    assert_eq!(shape.beside(known), words);
    assert!(
        shape.drops_settings_of(known) && !RequestShape { form: OutputMode::None, ..known }.drops_settings_of(known)
    );
}

#[test]
fn a_server_that_says_nothing_is_understood_by_trying() {
    let bare = RequestShape::default();
    for sought in [
        RequestShape { form: OutputMode::Strict, ..bare },
        RequestShape { form: OutputMode::Plain, ..bare },
        RequestShape { form: OutputMode::Object, ..bare },
        RequestShape { form: OutputMode::None, ..bare },
        RequestShape { limit: Limit::MaxCompletionTokens, ..bare },
        RequestShape { limit: Limit::None, ..bare },
        RequestShape { temperature: Temperature::Positive, ..bare },
        RequestShape { temperature: Temperature::None, ..bare },
        bare.without(OmittedMembers { seed: true, ..OmittedMembers::default() }),
        RequestShape { folded: true, ..bare },
        RequestShape { stream: Stream::WithUsage, ..bare },
        RequestShape { no_tools: true, form: OutputMode::None, ..bare },
    ] {
        let (found, asked) = climb_with(true, |shape| (shape != sought).then_some((400, "")));
        assert_eq!(found.map(|found| (found.shape, found.proof)), Some((sought, Certainty::Rejection)));
        assert!(asked <= TRIES_MAX, "{asked}");
    }
    let (found, _) = climb(|shape| (shape.form != OutputMode::None || !shape.folded).then_some((400, "no")));
    let found = found.expect("two parts without a word");
    assert!(found.shape.folded && found.shape.form == OutputMode::None);
    assert!(!found.is_form_refused, "nothing is known of a form in a request that is plain otherwise");
}

#[test]
fn the_words_of_a_refusal_decide_what_is_tried_first() {
    let gpt = |shape: RequestShape| match shape {
        RequestShape { limit: Limit::MaxTokens, .. } => {
            Some((400, "Use 'max_completion_tokens' instead of max_tokens"))
        }
        RequestShape { temperature: Temperature::Given | Temperature::Positive, .. } => Some((400, "temperature is 1")),
        _ => None,
    };
    let found =
        RequestShape { limit: Limit::MaxCompletionTokens, temperature: Temperature::None, ..RequestShape::default() };
    assert_eq!(shape(climb(gpt)), (Some(found), 3));
    let positive = |shape: RequestShape| (shape.temperature == Temperature::Given).then_some((422, "temperature > 0"));
    let found = RequestShape { temperature: Temperature::Positive, ..RequestShape::default() };
    assert_eq!(shape(climb(positive)), (Some(found), 2));
    let lower = |shape: RequestShape| (shape.cap != Some(512)).then_some((400, "max_tokens: at most 512, not 1024"));
    assert_eq!(shape(climb(lower)), (Some(RequestShape { cap: Some(512), ..RequestShape::default() }), 2));
    // A match inside a longer word does not count.
    let upstream = |shape: RequestShape| (shape.form == OutputMode::Derived).then_some((400, "upstream refused it"));
    assert_eq!(shape(climb(upstream)), (Some(RequestShape { form: OutputMode::Strict, ..RequestShape::default() }), 2));
}

#[test]
fn members_that_a_refusal_names_together_are_left_out_together_if_one_alone_does_not_help() {
    let both = "`temperature` and `top_p` are not supported";
    let out = RequestShape { temperature: Temperature::None, ..RequestShape::default() };
    let out = out.without(OmittedMembers { top_p: true, ..OmittedMembers::default() });
    let refuses =
        |shape: RequestShape| (shape.temperature != Temperature::None || !shape.left_out.top_p).then_some((400, both));
    assert_eq!(shape(climb(refuses)), (Some(out), 4));
    let either = |shape: RequestShape| (shape.temperature != Temperature::None).then_some((400, both));
    assert_eq!(
        shape(climb(either)).0,
        Some(RequestShape { temperature: Temperature::None, ..RequestShape::default() })
    );
    // Members named by chance cost one request, and hide no other cause.
    let form = |shape: RequestShape| (shape.form < OutputMode::Generic).then_some((400, both));
    assert_eq!(shape(climb(form)).0, Some(RequestShape { form: OutputMode::Generic, ..RequestShape::default() }));
}

#[test]
fn the_most_tokens_are_read_from_a_refusal() {
    for (words, expected) in [
        ("max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens for m", Some(8192)),
        ("this model supports at most 16384 completion tokens", Some(16384)),
        ("expected a value <= 64, but got 77 instead.", Some(64)),
        ("9000 > 0, which is the maximum", None),
        (", which is the maximum", None),
        ("prompt is too long: 210000 tokens > 200000 maximum", None),
    ] {
        assert_eq!(named_limit(words), expected, "{words}");
    }
}

#[test]
fn tools_are_left_out_after_the_form_of_the_tool_that_replies() {
    for words in ["invalid tool", "bad request", "tools are not supported"] {
        let (found, asked) = climb_with(true, |shape| (!shape.no_tools).then_some((400, words)));
        assert!(found.expect("taken").shape.no_tools, "{words}");
        assert!(asked <= if words.contains("tool") { 8 } else { TRIES_MAX }, "{asked}");
        // A server that rejects the form with the same text accepts tools.
        let (found, _) = climb_with(true, |shape| (shape.form < OutputMode::Generic).then_some((400, words)));
        assert_eq!(
            found.map(|found| found.shape),
            Some(RequestShape { form: OutputMode::Generic, ..RequestShape::default() })
        );
    }
}

#[test]
fn words_that_explain_a_refusal_do_not_end_the_search() {
    for words in ["our content policy: temperature must be 1", "see the page of the context window"] {
        let picky = |shape: RequestShape| (shape.temperature != Temperature::None).then_some((400, words));
        let (found, asked) = climb(picky);
        assert_eq!((found.expect("taken").proof, asked), (Certainty::Prompt, 2));
        let streamed = |shape: RequestShape| (shape.stream == Stream::Off).then_some((400, words));
        assert!(climb(streamed).0.is_some(), "{words}");
    }
    assert_eq!(climb(|_| Some((400, "maximum context length is 4096"))), (None, 7));
}

#[test]
fn turns_and_descriptions_of_tools_are_made_plainer_before_tools_are_left_out() {
    let echoed = "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property 'reasoning' is unsupported)]";
    let unknown =
        "Unknown name \"additionalProperties\" at 'tools[0].function_declarations[0].parameters': Cannot find field.";
    type Refuses = fn(RequestShape) -> bool;
    let cases: [(&str, Refuses, RequestShape, usize); 5] = [
        (
            echoed,
            |shape| shape.turns == TurnFormat::Unchanged,
            RequestShape { turns: TurnFormat::Known, ..RequestShape::default() },
            2,
        ),
        (
            "messages[1].content: expected a string, got null",
            |shape| shape.turns != TurnFormat::Filled,
            RequestShape { turns: TurnFormat::Filled, ..RequestShape::default() },
            3,
        ),
        (
            "GenerateContentRequest.contents[2].parts[0].function_response.name: Name cannot be empty.",
            |shape| shape.turns != TurnFormat::Filled,
            RequestShape { turns: TurnFormat::Filled, ..RequestShape::default() },
            3,
        ),
        (
            unknown,
            |shape| shape.tool_forms == ToolForms::Whole,
            RequestShape { tool_forms: ToolForms::Plain, ..RequestShape::default() },
            2,
        ),
        (
            "",
            |shape| shape.tool_forms == ToolForms::Whole,
            RequestShape { tool_forms: ToolForms::Plain, ..RequestShape::default() },
            TRIES_MAX,
        ),
    ];
    for (words, refuses, expected, most) in cases {
        let (found, asked) = shape(climb_with(true, |shape| refuses(shape).then_some((400, words))));
        assert_eq!(found, Some(expected), "{words}");
        assert!(asked <= most, "{words}: {asked}");
    }
    let (found, _) = shape(climb_with(true, |shape| (shape.tool_forms == ToolForms::Whole).then_some((500, "oops"))));
    assert_eq!(found, Some(RequestShape { tool_forms: ToolForms::Plain, ..RequestShape::default() }));
}

#[test]
fn the_room_that_a_prompt_leaves_is_tried_before_the_plainest_request() {
    for (words, expected) in [
        (
            "This model's maximum context length is 800 tokens. However, you requested 1524 tokens (500 in the messages, \
             1024 in the completion). Please reduce the length of the messages or completion.",
            Some(300),
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 1024. This model's maximum context length is 8,192 \
             tokens and your request has 8,000 input tokens (1024 > 8192 - 8000).",
            Some(192),
        ),
        (
            "`inputs` tokens + `max_new_tokens` must be <= 2048. given: 1500 `inputs` tokens and 1024 `max_new_tokens`",
            Some(548),
        ),
        (
            "requested token count exceeds the model's maximum context length of 8192 tokens. you requested a total of \
             9000 tokens: 8000 tokens from the input messages and 1000 tokens for the completion.",
            Some(192),
        ),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
            Some(10_000),
        ),
        ("maximum context length is 800 tokens, and the prompt has 795 in the messages", None),
        ("maximum context length is 800 tokens, and the prompt has 900 in the messages", None),
        ("maximum context length is 4096", None),
        ("maximum context length is 8192 tokens\u{ff08}8000 in the messages", Some(192)),
        ("maximum context length is 8192 tokens, \u{ff08} in the messages", None),
    ] {
        assert_eq!(named_room(&words.to_ascii_lowercase()), expected, "{words}");
    }
    let words = "maximum context length is 800 tokens: 500 in the messages, 1024 in the completion";
    let (found, asked) = climb(|shape| (shape.cap != Some(300)).then_some((400, words)));
    let found = found.expect("taken");
    assert_eq!(
        (found.shape, found.proof, asked),
        (RequestShape { cap: Some(300), ..RequestShape::default() }, Certainty::Prompt, 2)
    );
    let (found, asked) = climb(|shape| (shape.form != OutputMode::None).then_some((400, words)));
    assert_eq!((found.map(|found| found.proof), asked), (Some(Certainty::Prompt), 3));
}

#[test]
fn stream_options_are_omitted_together_with_other_refused_members() {
    let words = "stream_options: Extra inputs are not permitted; response_format.json_schema: not permitted";
    let asked = RequestShape { stream: Stream::WithUsage, ..RequestShape::default() };
    let mut climb = Downgrade::new(asked, false);
    // After each plainer form.
    for _ in 0..7 {
        let is_taken = climb.shape.stream == Stream::On && climb.shape.form == OutputMode::None;
        if is_taken {
            return;
        }
        assert!(climb.next(422, words));
    }
    panic!("both are left out");
}

#[test]
fn a_climb_ends_and_a_fault_proves_nothing() {
    assert!(climb(|_| Some((400, "no"))).1 <= TRIES_MAX);
    assert!(climb_with(true, |_| Some((400, "no"))).1 <= TRIES_MAX);
    assert_eq!(climb(|_| Some((429, "slow"))), (None, 1));
    assert_eq!(climb(|_| Some((400, "API key not valid. Please pass a valid API key."))), (None, 1));
    assert_eq!(climb_with(true, |_| Some((500, "oops"))), (None, 7));
    for words in ["oops", "bad grammar"] {
        let (found, asked) = climb(|shape| (shape.form == OutputMode::Derived).then_some((500, words)));
        assert_eq!((found.map(|found| found.proof), asked), (Some(Certainty::ServerFailure), 2));
    }
    let (found, asked) = climb(|shape| (!shape.folded).then_some((500, "template: system role not supported")));
    assert_eq!((found.map(|found| (found.shape.folded, found.proof)), asked), (Some((true, Certainty::Rejection)), 2));
}

#[test]
fn a_server_without_forms_is_one_that_refused_the_general_one_too() {
    let none = |shape: RequestShape| (shape.form != OutputMode::None).then_some((400, "response_format"));
    assert!(climb(none).0.expect("taken").is_form_refused);
    let plain = |shape: RequestShape| (shape.form < OutputMode::Plain).then_some((400, "response_format"));
    assert!(!climb(plain).0.expect("taken").is_form_refused);
}
