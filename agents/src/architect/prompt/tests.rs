//! Prompts fit a small context and name each finding.

use super::*;
use crate::architect::Document;
use crate::architect::review::review;
use crate::config::Architect;

#[test]
fn the_example_is_one_that_would_be_accepted() {
    for example in examples() {
        let reviewed = review(&example.to_string(), &DesignRequest::default(), &DesignLimits::default());
        assert!(reviewed.is_ok(), "{:?}", reviewed.err());
    }
}

#[test]
fn the_whole_prompt_leaves_room_for_an_answer_in_a_small_context() {
    let document = Document { title: "t".repeat(200), text: "word ".repeat(1000) };
    let mut brief = DesignRequest { request: "Answer.".into(), wants_input: true, ..DesignRequest::default() };
    let chars = |brief: &DesignRequest| {
        let prompt = build(brief, &DesignLimits::default(), &[]);
        prompt.system.chars().count() + prompt.user.chars().count()
    };
    assert!(chars(&brief) < 9_500, "{}", chars(&brief));
    brief.documents = vec![document; 100];
    brief.request = "word ".repeat(4000);
    assert!(chars(&brief) <= PROMPT_MAX, "{}", chars(&brief));
}

#[test]
fn a_repair_has_room_in_it_too_however_much_went_wrong() {
    let reply_tokens = Architect::default().reply_tokens as usize;
    let round = |draft: usize, findings: usize| {
        let long = "m".repeat(400);
        let finding = Diagnostic::new("bad_condition", &format!("/{long}"), long.clone(), "h".repeat(400));
        let prompt = Prompt { system: String::new(), user: String::new() };
        Round { prompt, draft: "d".repeat(draft), findings: vec![finding; findings], failure: None, usage: None }
    };
    let long = DesignRequest {
        request: "word ".repeat(4000),
        documents: vec![Document { title: "t".repeat(200), text: "word ".repeat(1000) }; 100],
        input: Some((0..50).map(|number| (format!("member{number}"), Value::from("v".repeat(500)))).collect()),
        wants_input: true,
    };
    for brief in [&DesignRequest { request: "Answer.".into(), ..DesignRequest::default() }, &long] {
        for round in [round(20_000, 20), round(20_000, 1), round(0, 20)] {
            let Prompt { system, user } = build(brief, &DesignLimits::default(), std::slice::from_ref(&round));
            let tokens = (system.chars().count() + user.chars().count()).div_ceil(3) + reply_tokens;
            assert!(tokens <= 8192, "{tokens} tokens");
            assert!(user.ends_with("mended.\n\nWrite the blueprint for this request.\n"), "{user}");
            assert!(user.contains("[bad_condition]"), "at least one finding is told: {user}");
            assert!(round.draft.is_empty() || user.contains(&"d".repeat(500)), "the draft is told: {user}");
        }
    }
    // A draft of the expected size is shown whole.
    let user = build(&DesignRequest::default(), &DesignLimits::default(), &[round(3500, 3)]).user;
    assert!(user.contains(&"d".repeat(3500)), "{user}");
}

#[test]
fn findings_are_reported_with_place_code_and_fix() {
    let draft = "{\"blueprint\": 1,\n\"workers\": {}}".to_owned();
    let findings = review(&draft, &DesignRequest::default(), &DesignLimits::default()).expect_err("refused");
    let prompt = build(&DesignRequest::default(), &DesignLimits::default(), &[]);
    let round = Round { prompt, draft, findings, failure: None, usage: None };
    let user = build(&DesignRequest::default(), &DesignLimits::default(), &[round]).user;
    for part in ["Your last answer was:\n{\"blueprint\": 1,", "[missing_field]", "line 1, the whole", "Add it."] {
        assert!(user.contains(part), "{part:?} is not in:\n{user}");
    }
}

#[test]
fn a_draft_that_came_twice_is_not_shown_a_third_time() {
    let draft = "{\"blueprint\": 1}".to_owned();
    let findings = review(&draft, &DesignRequest::default(), &DesignLimits::default()).expect_err("refused");
    let prompt = build(&DesignRequest::default(), &DesignLimits::default(), &[]);
    let round = Round { prompt, draft: draft.clone(), findings, failure: None, usage: None };
    let user = |rounds: &[Round]| build(&DesignRequest::default(), &DesignLimits::default(), rounds).user;
    let twice = user(&[round.clone(), round.clone()]);
    assert!(!twice.contains(&draft) && twice.contains("[missing_field]"), "{twice}");
    let other = Round { draft: "{}".into(), ..round.clone() };
    assert!(user(&[round, other]).contains("Your last answer was:\n{}"));
}
