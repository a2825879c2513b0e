//! Tests of `principal.rs`.

use super::{Principal, SINCE_PRINCIPALS, SINCE_TOKEN_CREATORS};

#[test]
fn a_caller_without_a_token_may_be_any_other() {
    let token = |id| Principal::Token { id, name: String::new(), person: None, made_by: None };
    let person = |id, name: &str| {
        let (person, made_by) = (Some(name.into()), None);
        Principal::Token { id, name: String::new(), person, made_by }
    };
    let user = |name: &str| Principal::User { name: name.to_owned() };
    let address = |address: &str| Principal::Address { address: address.to_owned() };
    let pairs = [
        (token(1), token(1), true, true),
        (token(1), token(2), false, false),
        (person(1, "boss"), person(2, "boss"), true, true),
        (person(1, "boss"), person(2, "clerk"), false, false),
        (person(1, "boss"), token(2), false, false),
        (user("a"), user("a"), true, true),
        (user("a"), user("b"), false, false),
        (user("a"), token(1), false, false),
        (Principal::Host, Principal::Host, true, true),
        (Principal::Host, token(1), false, false),
        (address("::1"), address("10.0.0.1"), true, true),
        (address("::1"), Principal::Host, true, true),
        (address("::1"), token(1), false, true),
        (address("::1"), user("a"), false, true),
    ];
    for (one, other, before, now) in pairs {
        for (one, other) in [(&one, &other), (&other, &one)] {
            assert_eq!(
                (one.may_be_same_caller(other, SINCE_PRINCIPALS), one.may_be_same_caller(other, SINCE_TOKEN_CREATORS)),
                (before, now),
                "{one:?} {other:?}"
            );
        }
    }
}

#[test]
fn earlier_formats_name_no_makers() {
    let maker = Principal::User { name: "ann".to_owned() };
    let token = |person, made_by| Principal::Token { id: 1, name: "ci".to_owned(), person, made_by };
    let caller = token(Some("boss".into()), Some(Box::new(maker)));
    assert_eq!(caller.clone().in_format(SINCE_PRINCIPALS - 1), None);
    assert_eq!(caller.clone().in_format(SINCE_PRINCIPALS), Some(token(None, None)));
    assert_eq!(caller.clone().in_format(SINCE_TOKEN_CREATORS), Some(caller));
}
