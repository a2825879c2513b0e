//! Properties of all drafts and preferences.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..4_i64).prop_map(Value::from),
        "[ab/~]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map("[ab0/~]{0,2}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        3 => value().prop_map(Content::Json),
        1 => "([ab]\n){0,5}[ab]{0,1}".prop_map(Content::Text),
        1 => prop::collection::vec(any::<u8>(), 0..8).prop_map(Content::Bytes),
    ]
}

fn preferences() -> impl Strategy<Value = Preferences> {
    let hitl = prop::sample::select(vec![
        None,
        Some(Hitl::None),
        Some(Hitl::PauseOnFinalAccept),
        Some(Hitl::PauseBetweenRounds),
    ]);
    let number = || prop::option::of(0_u64..20_000);
    let share = || prop::option::of(-0.5..1.5_f64);
    let flag = || prop::option::of(any::<bool>());
    let counts = (prop::option::of(0_u32..20), number(), number(), number(), prop::option::of(0_u32..6));
    (counts, share(), share(), hitl, (flag(), flag(), share())).prop_map(
        |((rounds, timeout, tokens, total, turns), threshold, tolerance, hitl, (schema, examples, weight))| {
            Preferences {
                max_rounds: rounds,
                score_threshold: threshold,
                diff_tolerance: tolerance,
                round_timeout_ms: timeout,
                token_budget_per_round: tokens,
                total_token_budget: total,
                oscillation_limit: turns,
                hitl,
                scoring: ScoringPreferences {
                    require_schema_valid: schema,
                    require_examples_pass: examples,
                    llm_weight: weight,
                },
            }
        },
    )
}

/// Returns true if one policy is nowhere laxer than the other.
fn is_as_strict(one: &Policy, other: &Policy) -> bool {
    let total = |policy: &Policy| policy.total_token_budget.unwrap_or(u64::MAX);
    one.max_rounds <= other.max_rounds
        && one.score_threshold >= other.score_threshold
        && one.diff_tolerance >= other.diff_tolerance
        && one.round_timeout_ms <= other.round_timeout_ms
        && one.token_budget_per_round <= other.token_budget_per_round
        && total(one) <= total(other)
        && one.oscillation_limit <= other.oscillation_limit
        && one.hitl >= other.hitl
        && one.scoring.require_schema_valid >= other.scoring.require_schema_valid
        && one.scoring.require_examples_pass >= other.scoring.require_examples_pass
        && one.scoring.llm_weight <= other.scoring.llm_weight
}

proptest! {
    #[test]
    fn a_difference_is_a_share_that_is_none_only_of_equals(one in content(), other in content()) {
        let (there, back) = (delta(&one, &other), delta(&other, &one));
        prop_assert!((0.0..=1.0).contains(&there.magnitude));
        prop_assert!((there.magnitude - back.magnitude).abs() < 1e-12);
        let is_equal = match (&one, &other) {
            (Content::Json(one), Content::Json(other)) => one == other,
            (Content::Json(_), _) | (_, Content::Json(_)) => false,
            // Text and bytes are equal if their bytes are.
            (one, other) => one.bytes() == other.bytes(),
        };
        prop_assert_eq!(there.magnitude == 0.0, is_equal);
        prop_assert_eq!(there.changed_paths.is_empty(), is_equal);
        prop_assert_eq!(delta(&one, &one).magnitude, 0.0);
    }

    #[test]
    fn a_patch_leads_from_one_to_the_other(one in value(), other in value()) {
        let found = patch(&Content::Json(one.clone()), &Content::Json(other.clone())).expect("both are JSON");
        let ops: json_patch::Patch = serde_json::from_value(found.clone()).expect("a patch");
        let mut led = one;
        json_patch::patch(&mut led, &ops).expect("it applies");
        prop_assert_eq!(&led, &other);
        let whole = json!([{"op": "replace", "path": "", "value": other}]);
        prop_assert!(found.to_string().len() <= whole.to_string().len() + 40);
    }

    #[test]
    fn a_policy_only_gets_stricter_and_the_order_of_wishes_does_not_matter(
        wishes in prop::collection::vec(preferences(), 0..5),
        strictest in preferences(),
        seed in any::<u64>(),
    ) {
        let profile = Profile { strictest, ..Profile::default() };
        let found = effective_policy(&profile, &wishes);
        prop_assert!(is_as_strict(&found, &profile.policy), "{:?}", found);
        let mut other: Vec<&Preferences> = wishes.iter().collect();
        let by = usize::try_from(seed % 5).expect("small") % other.len().max(1);
        other.rotate_left(by);
        other.reverse();
        prop_assert_eq!(effective_policy(&profile, other), found);
        // An additional preference never relaxes the policy, and repeated ones change nothing.
        let twice = effective_policy(&profile, wishes.iter().chain(&wishes));
        prop_assert_eq!(twice, found);
        let more = effective_policy(&profile, wishes.iter().chain([&strictest]));
        prop_assert!(is_as_strict(&more, &found));
        // The result is never stricter than the profile's bound, unless the profile's own policy is.
        if let Some(rounds) = strictest.max_rounds {
            prop_assert!(found.max_rounds >= rounds.min(profile.policy.max_rounds));
        }
        if let Some(threshold) = strictest.score_threshold {
            prop_assert!(found.score_threshold <= threshold.max(profile.policy.score_threshold));
        }
    }
}
