//! Compares the parser with that of the `cel` crate on random texts.

use cel::common::ast::{EntryExpr, IdedExpr, LiteralValue, operators};
use proptest::prelude::*;

use super::super::lower::Binary;
use super::super::parse::{self, Part, Term};
use super::CompileError;
use super::oracle::{scraps, sources};

/// Returns a tree without source positions.
fn bare(part: Part) -> Part {
    let boxed = |part: Box<Part>| Box::new(bare(*part));
    let all = |parts: Vec<Part>| parts.into_iter().map(bare).collect();
    let term = match part.term {
        Term::Member(of, name) => Term::Member(boxed(of), name),
        Term::Index(of, key) => Term::Index(boxed(of), boxed(key)),
        Term::Call { of, name, args } => Term::Call { of: of.map(boxed), name, args: all(args) },
        Term::Not(of) => Term::Not(boxed(of)),
        Term::Negate(of) => Term::Negate(boxed(of)),
        Term::And(a, b) => Term::And(boxed(a), boxed(b)),
        Term::Or(a, b) => Term::Or(boxed(a), boxed(b)),
        Term::If(a, b, c) => Term::If(boxed(a), boxed(b), boxed(c)),
        Term::Binary(binary, a, b) => Term::Binary(binary, boxed(a), boxed(b)),
        Term::List(elements) => Term::List(all(elements)),
        Term::Map(entries) => Term::Map(entries.into_iter().map(|(key, value)| (bare(key), bare(value))).collect()),
        term @ (Term::Null | Term::Bool(_) | Term::Int(_) | Term::UInt(_) | Term::Double(_)) => term,
        term @ (Term::Text(_) | Term::Name(_)) => term,
    };
    Part { at: 0, term }
}

/// Converts the tree of the crate's parser; `None` for unsupported constructs.
fn converted(expr: &IdedExpr) -> Option<Part> {
    let boxed = |expr: &IdedExpr| converted(expr).map(Box::new);
    let term = match &expr.expr {
        cel::common::ast::Expr::Literal(literal) => match literal {
            LiteralValue::Null => Term::Null,
            LiteralValue::Boolean(value) => Term::Bool(*value.inner()),
            LiteralValue::Int(int) => Term::Int(*int.inner()),
            LiteralValue::UInt(uint) => Term::UInt(*uint.inner()),
            LiteralValue::Double(double) => Term::Double(*double.inner()),
            LiteralValue::String(text) => Term::Text(text.inner().to_owned()),
            LiteralValue::Bytes(_) => return None,
        },
        cel::common::ast::Expr::Ident(name) => Term::Name(name.clone()),
        cel::common::ast::Expr::Select(select) => Term::Member(boxed(&select.operand)?, select.field.clone()),
        cel::common::ast::Expr::List(list) => Term::List(list.elements.iter().map(converted).collect::<Option<_>>()?),
        cel::common::ast::Expr::Map(map) => {
            let entries = map.entries.iter().map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => Some((converted(&entry.key)?, converted(&entry.value)?)),
                EntryExpr::StructField(_) => None,
            });
            Term::Map(entries.collect::<Option<_>>()?)
        }
        cel::common::ast::Expr::Call(call) => {
            let binary = match call.func_name.as_str() {
                operators::ADD => Some(Binary::Add),
                operators::SUBSTRACT => Some(Binary::Subtract),
                operators::MULTIPLY => Some(Binary::Multiply),
                operators::DIVIDE => Some(Binary::Divide),
                operators::MODULO => Some(Binary::Remainder),
                operators::EQUALS => Some(Binary::Equal),
                operators::NOT_EQUALS => Some(Binary::Unequal),
                operators::LESS => Some(Binary::Less),
                operators::LESS_EQUALS => Some(Binary::LessOrEqual),
                operators::GREATER => Some(Binary::Greater),
                operators::GREATER_EQUALS => Some(Binary::GreaterOrEqual),
                operators::IN => Some(Binary::In),
                _ => None,
            };
            match (call.func_name.as_str(), call.args.as_slice(), binary) {
                (_, [a, b], Some(binary)) => Term::Binary(binary, boxed(a)?, boxed(b)?),
                (operators::LOGICAL_NOT, [of], _) => Term::Not(boxed(of)?),
                (operators::NEGATE, [of], _) => Term::Negate(boxed(of)?),
                (operators::LOGICAL_AND, [a, b], _) => Term::And(boxed(a)?, boxed(b)?),
                (operators::LOGICAL_OR, [a, b], _) => Term::Or(boxed(a)?, boxed(b)?),
                (operators::INDEX, [a, b], _) => Term::Index(boxed(a)?, boxed(b)?),
                (operators::CONDITIONAL, [a, b, c], _) => Term::If(boxed(a)?, boxed(b)?, boxed(c)?),
                (name, args, _) => Term::Call {
                    of: call.target.as_deref().map(boxed).map_or(Some(None), |of| of.map(Some))?,
                    name: name.to_owned(),
                    args: args.iter().map(converted).collect::<Option<_>>()?,
                },
            }
        }
        _ => return None,
    };
    Some(Part { at: 0, term })
}

/// Checks that both parsers read a text alike, or both reject it; texts beyond our size limits are skipped.
fn check_parsers(source: &str) -> Result<(), TestCaseError> {
    let ours = match parse::parse(source) {
        Err(CompileError { code: "cel_too_long" | "cel_too_complex", .. }) => return Ok(()),
        ours => ours.map(bare),
    };
    let theirs = cel::Env::default().with_optional_support(false).compile(source);
    let theirs = theirs.ok().map(|program| converted(program.expression()));
    match (&ours, &theirs) {
        (Ok(ours), Some(Some(theirs))) => prop_assert_eq!(ours, theirs, "{}", source),
        (Err(_), None | Some(None)) => {}
        // A form feed is no white space in JSON or YAML.
        (Err(_), Some(_)) if source.contains('\u{c}') => {}
        _ => prop_assert!(false, "{:?}: {:?}, the crate has {:?}", source, ours, theirs),
    }
    Ok(())
}

#[test]
fn texts_are_read_as_the_crates_parser_reads_them() {
    for source in [
        "a",
        "-1",
        "- 1",
        "--1",
        "---1",
        "!!a",
        "!-1",
        "-(1)",
        "- x",
        "a--1",
        "a - -1",
        "-1.5e3",
        "-0x10",
        "0x1Fu",
        "7u",
        "1 in [1]",
        "1in [1]",
        "a && b && c && d && e",
        "a || b || c",
        "a ? b : c ? d : e",
        "a ? b ? c : d : e",
        "[1,]",
        "[,]",
        "[,1]",
        "{'a': 1,}",
        "{,}",
        "f(a,)",
        "f()",
        "a.f(b).c[d]",
        "a.b{}",
        "a{b: 1}",
        ".a.b",
        ".f(x)",
        ". a",
        "a.true",
        "a.in",
        "a.loop",
        "loop",
        "loop(1)",
        "a.loop()",
        "1.5.x",
        "1.x",
        "1.",
        ".5",
        "a.5",
        "1 .5",
        "1e5",
        "1e",
        "1e+5",
        "0x",
        "0xg",
        "9223372036854775808",
        "-9223372036854775808",
        "18446744073709551615u",
        "1e999",
        "'a' 'b'",
        "r'a\\'",
        "R\"\\d\"",
        "'''a'b'''",
        "\"\"\"a\nb\"\"\"",
        "''",
        "''''''",
        "'\\x41\\u0042\\U00000043\\104'",
        "'\\uD800'",
        "'\\400'",
        "'\\08'",
        "'\\X41'",
        "'''a\r\nb\rc'''",
        "r'''a\r\nb'''",
        "'\\?\\`'",
        "a // b\n + c",
        "a + b * c - d / e % f",
        "a < b == c",
        "a == b < c",
        "true",
        "null",
        "!true",
        "-true",
        "a[b][c]",
        "a.b.c",
        "x.all(y, y)",
        "has(a.b)",
        "has(a)",
        "a?.b",
        "a[?b]",
        "`a`",
        "a.`b`",
        "a = b",
        "a & b",
        "a\u{c}b",
        "in",
        "a in b in c",
        "!a.b",
        "-a.b",
        "! - a",
        "- ! a",
        "(a",
        "a)",
        "[a",
        "{a",
        "{a:b",
        "a b",
        "@",
        "é",
        "'é'",
    ] {
        check_parsers(source).unwrap_or_else(|error| panic!("{error}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn the_crates_own_parser_agrees(source in prop_oneof![2 => sources(), 3 => scraps(), 1 => "[ -~]{0,12}"]) {
        check_parsers(&source)?;
    }
}
