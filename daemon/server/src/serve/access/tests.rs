//! Scopes of tokens, and the permissions that they grant.

use super::{Permission, Scope};

#[test]
fn a_scope_allows_what_it_says_and_nothing_else() {
    let needs = [
        Permission::Authenticated,
        Permission::Administer,
        Permission::ViewAll,
        Permission::View("b1".into()),
        Permission::Operate("b1".into()),
        Permission::ViewAs("b1".into(), "w".into()),
        Permission::ActAs("b1".into(), "w".into()),
        Permission::ActAs("b1".into(), "v".into()),
        Permission::View("b2".into()),
        Permission::Operate("b2".into()),
        Permission::ActAs("b2".into(), "w".into()),
        Permission::OperateOrActAs("b1".into()),
        Permission::OperateOrActAs("b2".into()),
        Permission::ActAsPerson("b1".into(), "w".into()),
        Permission::ActAsPerson("b2".into(), "w".into()),
        Permission::ActAsPerson("b1".into(), "v".into()),
    ];
    for (scope, allowed) in [
        ("admin", "yyyyyyyyyyyyy---"),
        ("read", "y-yy-y--y-------"),
        ("board:b1", "y--yyyyy---y----"),
        ("seat:b1/w", "y----yy----y-y--"),
        ("person:w", "y----------yyyy-"),
        ("read+person:w", "y-yy-y--y--yyyy-"),
        ("board:b1+person:w", "y--yyyyy---yyyy-"),
    ] {
        let scope: Scope = scope.parse().expect("a scope");
        let said: String = needs.iter().map(|need| if scope.allows(need) { 'y' } else { '-' }).collect();
        assert_eq!(said, allowed, "{scope}");
    }
}

#[test]
fn a_scope_is_read_as_it_is_written() {
    for text in
        ["admin", "read", "board:0199", "seat:0199/planner", "person:boss", "read+person:boss", "board:0199+person:a+b"]
    {
        assert_eq!(text.parse::<Scope>().map(|scope| scope.to_string()), Ok(text.to_owned()));
    }
    for text in [
        "",
        "root",
        "board:",
        "board:a/b",
        "seat:a",
        "seat:/w",
        "seat:a/",
        "person:",
        "read+person:",
        "admin+person:a",
        "board:+person:a",
        "read+read",
    ] {
        assert!(text.parse::<Scope>().is_err(), "{text}");
    }
}
