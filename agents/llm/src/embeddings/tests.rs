//! Answers are read or rejected, and similarities are symmetric.

use proptest::prelude::*;

use super::*;

fn embedding(numbers: &[f64]) -> Embedding {
    Embedding::new(numbers.to_vec()).expect("a direction")
}

#[test]
fn embeddings_need_finite_numbers_with_a_direction() {
    for numbers in [vec![], vec![0.0, -0.0], vec![1.0, f64::NAN], vec![f64::INFINITY], vec![1.0; DIMENSIONS_MAX + 1]] {
        assert_eq!(Embedding::new(numbers), None);
    }
    for numbers in [[f64::MAX, f64::MAX], [5e-324, 5e-324], [1.0, 1.0]] {
        let cosine = embedding(&numbers).cosine(&embedding(&[1.0, 1.0]));
        assert!(cosine > 0.999, "{numbers:?}: {cosine}");
    }
    assert_eq!(embedding(&[1.0]).cosine(&embedding(&[1.0, 0.0])), 0.0);
    assert_eq!(embedding(&[3.0, 0.0]).cosine(&embedding(&[-2.0, 0.0])), -1.0);
}

#[test]
fn an_answer_is_read_by_its_indices_or_in_its_order() {
    let (east, north) = (embedding(&[2.0, 0.0]), embedding(&[0.0, 1.0]));
    let item = |index: Value, numbers: Value| json!({"object": "embedding", "index": index, "embedding": numbers});
    let of = |data: Value| read(&json!({"object": "list", "data": data, "usage": {"prompt_tokens": 2}}), 2);
    let (first, second) = (item(json!(0), json!([1, 0])), item(json!(1), json!([0.0, 0.5])));
    assert_eq!(of(json!([second, first])), Ok(vec![east.clone(), north.clone()]));
    assert_eq!(of(json!([{"embedding": [1, 0]}, {"embedding": [0, 1]}])), Ok(vec![east, north]));
    for data in [
        json!(null),
        json!([]),
        json!([first]),
        json!([first, second, second]),
        json!([first, first]),
        json!([first, item(json!(2), json!([1, 0]))]),
        json!([first, item(json!(-1), json!([1, 0]))]),
        json!([first, item(json!(1), json!([]))]),
        json!([first, item(json!(1), json!([0, 0]))]),
        json!([first, item(json!(1), json!([1, null]))]),
        json!([first, item(json!(1), json!([1, "2"]))]),
        json!([first, item(json!(1), json!([[1, 2]]))]),
        json!([first, item(json!(1), json!("AACAPw=="))]),
        json!([first, item(json!(1), json!(vec![1; DIMENSIONS_MAX + 1]))]),
        json!([first, 1]),
    ] {
        assert!(of(data.clone()).is_err(), "{data}");
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<f64>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let member = prop_oneof![Just("data"), Just("embedding"), Just("index")].prop_map(str::to_owned);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(member, inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_cosine_is_the_same_both_ways_and_at_any_length(
        one in proptest::collection::vec(-1e6..1e6, 3),
        other in proptest::collection::vec(-1e6..1e6, 3),
        factor in 1e-3..1e3,
    ) {
        let longer = Embedding::new(one.iter().map(|number| number * factor).collect());
        let (Some(one), Some(other), Some(longer)) = (Embedding::new(one), Embedding::new(other), longer) else {
            return Ok(());
        };
        prop_assert!((one.cosine(&one) - 1.0).abs() < 1e-9);
        prop_assert_eq!(one.cosine(&other), other.cosine(&one));
        prop_assert!((-1.0..=1.0).contains(&one.cosine(&other)));
        prop_assert!((one.cosine(&other) - longer.cosine(&other)).abs() < 1e-9);
    }

    #[test]
    fn embedding_answers_are_read_completely_or_rejected(
        data in proptest::option::of(proptest::collection::vec(json(), 0..4)),
        other in json(),
        count in 0_usize..4,
    ) {
        let answer = data.map_or(other, |data| json!({"data": data}));
        if let Ok(read) = read(&answer, count) {
            prop_assert_eq!(read.len(), count);
        }
    }
}
