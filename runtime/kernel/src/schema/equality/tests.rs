//! Tests of `equality.rs`.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::digest::{Hasher, Salt};
use crate::tree::Edit;

fn tree(mut value: Value) -> Node {
    crate::json::normalise(&mut value);
    Node::from_value(&value, &Edit { revision: 0, hasher: Arc::new(Hasher::new(&Salt([0; 32]))) })
}

#[test]
fn numbers_are_compared_by_what_they_mean() {
    let two_53 = 9_007_199_254_740_992_u64;
    for (one, other, same) in [
        (json!(1), json!(1.0), true),
        (json!(0), json!(-0.0), true),
        (json!(1), json!(1.5), false),
        (json!(two_53), json!(9_007_199_254_740_992.0), true),
        (json!(two_53 + 1), json!(9_007_199_254_740_992.0), false),
        (json!(u64::MAX), json!(18_446_744_073_709_551_615.0), false),
        (json!(i64::MIN), json!(-9_223_372_036_854_775_808.0), true),
        (json!(1e300), json!(1e300), true),
        (json!(1), json!(true), false),
        (json!({"a": [1, {"b": 2.0}]}), json!({"a": [1.0, {"b": 2}]}), true),
    ] {
        assert_eq!(equals_value(&tree(one.clone()), &other), same, "{one} {other}");
        assert_eq!(equal(&tree(one.clone()), &tree(other.clone())), same, "{one} {other}");
        let mut long: Vec<Value> = (0..40).map(|number| json!([number])).collect();
        long.extend([one.clone(), other.clone()]);
        let Node::Array(long) = tree(long.into()) else { unreachable!("it is an array") };
        assert_eq!(is_unique(&long), !same, "{one} {other}");
        assert_eq!(stays_unique(&long, &[41]), !same, "{one} {other}");
        let Node::Array(short) = tree(json!([one, other])) else { unreachable!("it is an array") };
        assert_eq!(is_unique(&short), !same);
    }
}
