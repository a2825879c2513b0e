//! Parsing of blueprint texts: values, rejections and positions.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(text: &str) -> Source {
    Source::read("b.yaml", text).unwrap_or_else(|finding| panic!("{text}: {finding:?}"))
}

/// Returns a rejection as `line:column code message`.
fn refused(text: &str) -> String {
    let finding = Source::read("b.yaml", text).expect_err(text);
    let position = finding.position.expect("a refusal of a text has a place");
    assert!(!finding.help.is_empty(), "{text}: no help");
    format!("{}:{} {} {}", position.line, position.column, finding.code, finding.message)
}

fn at(source: &Source, pointer: &str) -> (u32, u32) {
    let position = source.position(pointer).expect("every part of a text has a place");
    (position.line, position.column)
}

#[test]
fn scalars_mean_what_json_would_have_them_mean() {
    let text = "a: no\nb: off\nc: yes\nd: true\ne: ~\nf:\ng: 1.50\nh: 1e3\ni: -0.0\nj: '1'\nk: 60s\nl: 2026-01-01\nm: 1:30\n\
                n: 1.2.3\no: !!str 017\np: y\nq: null\nr: -9223372036854775808\ns: 18446744073709551615\nt: \"\\ud83d\\ude00\"";
    let expected = json!({
        "a": "no", "b": "off", "c": "yes", "d": true, "e": null, "f": null, "g": 1.5, "h": 1000, "i": 0, "j": "1",
        "k": "60s", "l": "2026-01-01", "m": "1:30", "n": "1.2.3", "o": "017", "p": "y", "q": null,
        "r": i64::MIN, "s": u64::MAX, "t": "😀",
    });
    assert_eq!(*read(text).value(), expected);
}

#[test]
fn keys_are_strings_as_they_are_written() {
    assert_eq!(
        *read("1: a\ntrue: b\n0x10: c\n'': d\nno: e").value(),
        json!({"1": "a", "true": "b", "0x10": "c", "": "d", "no": "e"})
    );
}

#[test]
fn json_is_read_by_the_same_reader() {
    let text = "{\n\t\"a\\u00e9\": [1, 2.5, true, null, \"x\\/y\\n\"],\n\t\"b\": {}\n}\n";
    let strict = json::parse_any(text);
    assert_eq!(*read(text).value(), strict);
    assert_eq!(at(&read(text), "/aé/4"), (2, 34));
}

mod json {
    pub(super) fn parse_any(text: &str) -> serde_json::Value {
        let limits = patchboard_kernel::json::Limits { bytes: super::BYTES_MAX, depth: super::DEPTH_MAX };
        patchboard_kernel::json::parse(text.as_bytes(), limits).expect("the text is JSON")
    }
}

#[test]
fn ambiguous_yaml_is_rejected_with_its_position() {
    let cases = [
        ("a: 0o17", "1:4 yaml_syntax readers of YAML disagree on what `0o17` is"),
        ("a: 017", "1:4 yaml_syntax readers of YAML disagree on what `017` is"),
        ("a: 0x1F", "1:4 yaml_syntax readers of YAML disagree on what `0x1F` is"),
        ("a: 1_000", "1:4 yaml_syntax readers of YAML disagree on what `1_000` is"),
        ("a: +1", "1:4 yaml_syntax readers of YAML disagree on what `+1` is"),
        ("a: .5", "1:4 yaml_syntax readers of YAML disagree on what `.5` is"),
        ("a: 1.", "1:4 yaml_syntax readers of YAML disagree on what `1.` is"),
        ("a: !!int 3", "1:10 yaml_syntax the tag `!!int` means nothing here"),
        ("a: !thing {b: 1}", "1:11 yaml_syntax the tag `!thing` means nothing here"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "3:3 yaml_syntax merge keys (`<<`) are not part of YAML 1.2"),
        ("? [a, b]\n: 1", "1:3 yaml_syntax a key must be a plain or quoted string"),
        ("a: 1\n---\nb: 2", "2:1 yaml_syntax a second document begins here"),
        ("%YAML 1.1\n---\na: yes", "1:1 yaml_syntax YAML directives are disallowed"),
        ("", "1:1 yaml_syntax the file is empty"),
        ("# nothing", "1:1 yaml_syntax the file is empty"),
        ("a: &x [*x]", "1:8 yaml_syntax this alias is inside the value it names"),
        ("a: *nope", "1:4 yaml_syntax while parsing node, found unknown anchor"),
        ("a: b: c", "1:5 yaml_syntax mapping values are not allowed in this context"),
        ("a: \"open", "1:4 yaml_syntax unclosed quote"),
        ("a: 1\nb: 2\na: 3", "3:1 duplicate_key the key `a` occurs twice (first on line 1)"),
        ("{\"1\": 1, 1: 2}", "1:10 duplicate_key the key `1` occurs twice (first on line 1)"),
        ("x: [{a: 1, a: 2}]", "1:12 duplicate_key the key `a` occurs twice (first on line 1)"),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(text), expected, "{text}");
    }
    assert!(refused("a: 123456789012345678901234567890").starts_with("1:4 yaml_syntax"));
}

#[test]
fn numbers_beyond_json_are_read_as_text_and_marked() {
    let source =
        Source::read("x", "a: [.inf, -.NaN, 1e999, '.inf', !!str .nan, 1.5]\nb: &b -1E400\nc: *b").expect("it is read");
    let marked: Vec<&str> = source.beyond_json().collect();
    assert_eq!(marked, ["/a/0", "/a/1", "/a/2", "/b"]);
    let expected =
        serde_json::json!({"a": [".inf", "-.NaN", "1e999", ".inf", ".nan", 1.5], "b": "-1E400", "c": "-1E400"});
    assert_eq!(*source.value(), expected);
}

#[test]
fn size_depth_and_copies_are_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    read(&nested(DEPTH_MAX));
    assert_eq!(refused(&nested(DEPTH_MAX + 1)), "1:65 too_large nested deeper than 64");
    assert!(refused(&nested(100_000)).contains("too_large"));
    let blocks: String = (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(refused(&blocks).contains("too_large"));
    assert!(refused(&format!("a: {}", "x".repeat(BYTES_MAX))).contains("too_large the file has"));
    // Ten levels of nine aliases each are 9^10 values.
    let mut laughs = "a0: &a0 ha\n".to_owned();
    for level in 1..=10 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        laughs.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    assert!(refused(&laughs).contains("too_large more than 100000 values"));
    let long = format!("a: &a {}\nb: [{}]", "x".repeat(100_000), vec!["*a"; 50].join(", "));
    assert!(refused(&long).contains("too_large more than 4194304 bytes"));
    let deep = format!("a: &a {}\nb: {}*a{}", nested(40), "[".repeat(40), "]".repeat(40));
    assert!(refused(&deep).contains("too_large nested deeper than 64"));
}

#[test]
fn values_and_keys_have_their_places() {
    let source = read("name: x\nworkers:\n  a/b~:\n    reads: [/x,\n      /y]\n  é: 1\n");
    assert_eq!(at(&source, ""), (1, 1));
    assert_eq!(at(&source, "/name"), (1, 7));
    assert_eq!(at(&source, "/workers/a~1b~0/reads/0"), (4, 13));
    assert_eq!(at(&source, "/workers/a~1b~0/reads/1"), (5, 7));
    assert_eq!(source.key_position("/workers/a~1b~0/reads"), Some(Position { line: 4, column: 5 }));
    assert_eq!(at(&source, "/workers/é"), (6, 6));
    // A missing value is reported at its nearest ancestor.
    assert_eq!(at(&source, "/workers/é/limits/tokens"), (6, 6));
    assert_eq!(source.key_position("/workers/é/limits"), Some(Position { line: 6, column: 6 }));
    assert_eq!(Source::from_value("v", json!({"a": 1})).position("/a"), None);
}

#[test]
fn values_inside_an_alias_have_the_position_of_their_anchor() {
    let source = read("base: &b\n  x: {y: 1}\nuse: [0, *b]\n");
    assert_eq!(source.value()["use"][1], json!({"x": {"y": 1}}));
    assert_eq!(at(&source, "/use/1"), (3, 10));
    assert_eq!(at(&source, "/use/1/x/y"), (2, 10));
    assert_eq!(source.key_position("/use/1/x"), Some(Position { line: 2, column: 3 }));
}

#[test]
fn offsets_in_strings_are_found_in_every_notation() {
    let place = |text: &str, needle: &str| {
        let source = read(text);
        let offset = source.value()["e"].as_str().expect("a string").find(needle).expect("it is there");
        let position = source.position_in("/e", offset).expect("it has a place");
        (position.line, position.column)
    };
    assert_eq!(place("e: a == oops", "oops"), (1, 9));
    assert_eq!(place("e: 'it''s == oops'", "oops"), (1, 14));
    assert_eq!(place("e: \"a == \\\"x\\\" && oops\"", "oops"), (1, 19));
    assert_eq!(place("e: |\n  a ==\n    1\n  && oops\n", "oops"), (4, 6));
    assert_eq!(place("e: >-\n  a ==\n  1 && oops\n", "oops"), (3, 8));
    assert_eq!(place("e: a\n  ==   \n  oops", "oops"), (3, 3));
    // An offset beyond the end is reported at the value itself.
    assert_eq!(read("e: abc").position_in("/e", 99), Some(Position { line: 1, column: 4 }));
    // A line ending counts as no character, in either notation.
    for (offset, line, column) in [(2, 1, 6), (4, 2, 4), (5, 2, 5)] {
        for text in ["e: ab\r\n  cd\r\n  ef\r\n", "e: ab\n  cd\n  ef\n"] {
            assert_eq!(read(text).position_in("/e", offset), Some(Position { line, column }), "{text:?}");
        }
    }
}

/// Resolves a blueprint with fragments from a map.
fn resolved(text: &str, fragments: &[(&str, &str)]) -> Result<Source, Vec<Diagnostic>> {
    let fragments: BTreeMap<&str, &str> = fragments.iter().copied().collect();
    let mut load = |name: &str| fragments.get(name).map(|text| (*text).to_owned()).ok_or("no such file".to_owned());
    resolve(read(text), &mut load, &[])
}

/// Returns a rejection as `file line:column code message`.
fn unresolved(text: &str, fragments: &[(&str, &str)]) -> String {
    let findings = resolved(text, fragments).expect_err("it is refused");
    let [finding] = findings.try_into().expect("one finding");
    let position = finding.position.map_or_else(String::new, |place| format!("{}:{}", place.line, place.column));
    format!("{} {position} {} {}", finding.file.unwrap_or_default(), finding.code, finding.message)
}

#[test]
fn fragments_add_what_they_may_and_keep_their_places() {
    let main = "rules: [{name: r1}]\nworkers: {a: 1}\nuse: [one, two]\nstate: {schema: {type: object}}\n";
    let one = "workers:\n  b: 2\nrules:\n  - name: r2\nuse: [two]\n";
    let two = "models: {m: x}\nstate: {schema: {$defs: {d: {}}}}\ninvariants:\n- {name: i}\n";
    let source = resolved(main, &[("one", one), ("two", two)]).expect("it resolves");
    let expected = json!({
        "rules": [{"name": "r1"}, {"name": "r2"}], "workers": {"a": 1, "b": 2}, "models": {"m": "x"},
        "state": {"schema": {"type": "object", "$defs": {"d": {}}}}, "invariants": [{"name": "i"}], "use": [],
    });
    assert_eq!(*source.value(), expected);
    assert_eq!(at(&source, "/rules/1/name"), (4, 11));
    assert_eq!(source.fragment("/rules/1/name"), Some("one"));
    assert_eq!(source.fragment("/invariants/0"), Some("two"));
    assert_eq!(at(&source, "/invariants/0"), (4, 3));
    assert_eq!(source.key_position("/workers/b"), Some(Position { line: 2, column: 3 }));
    assert_eq!(source.fragment("/workers/a"), None);
    assert_eq!(source.fragment("/state/schema/$defs/d"), Some("two"));
}

#[test]
fn boards_are_named_by_file_or_written_and_keep_their_places() {
    let main = "boards:\n  a: one\n  b:\n    use: [two]\n    boards: {c: three}\nuse: [two]\n";
    let one = "name: a\nuse:\n- two\nboards:\n  c: three\n";
    let two = "workers:\n  w: 1\n";
    let source = resolved(main, &[("one", one), ("two", two), ("three", "name: c")]).expect("it resolves");
    let inner = json!({"name": "a", "use": [], "workers": {"w": 1}, "boards": {"c": {"name": "c"}}});
    let written = json!({"use": [], "workers": {"w": 1}, "boards": {"c": {"name": "c"}}});
    let expected = json!({"boards": {"a": inner, "b": written}, "use": [], "workers": {"w": 1}});
    assert_eq!(*source.value(), expected);
    for (pointer, place, file) in [
        ("/boards/a/name", (1, 7), Some("one")),
        ("/boards/a/workers/w", (2, 6), Some("two")),
        ("/boards/a/boards/c/name", (1, 7), Some("three")),
        ("/boards/b/use", (4, 10), None),
        ("/boards/b/workers/w", (2, 6), Some("two")),
        ("/boards/b/boards/c/name", (1, 7), Some("three")),
        ("/workers/w", (2, 6), Some("two")),
    ] {
        assert_eq!((at(&source, pointer), source.fragment(pointer)), (place, file), "{pointer}");
    }
    assert_eq!(source.key_position("/boards/a"), Some(Position { line: 1, column: 1 }), "in its own file");
    assert_eq!(source.key_position("/boards/b"), Some(Position { line: 3, column: 3 }));
    assert_eq!(
        unresolved("boards: {a: f}", &[("f", "boards:\n  x: f")]),
        "f 2:6 fragment_cycle `f` includes itself: b.yaml → f → f"
    );
    assert_eq!(
        unresolved("boards: {a: x}", &[]),
        " 1:13 fragment_unreadable the fragment `x` cannot be read: no such file"
    );
}

#[test]
fn a_blueprint_without_fragments_is_left_alone() {
    for text in ["a: 1", "use: []", "use: x", "use: [1]", "[]"] {
        let before = read(text);
        let after = resolved(text, &[]).expect("there is nothing to load");
        assert_eq!(before.value(), after.value(), "{text}");
    }
}

#[test]
fn clashing_and_cyclic_fragments_are_rejected() {
    let clash = [("f", "workers: {b: 1,\n  a: 2}\n")];
    assert_eq!(
        unresolved("workers: {a: 1}\nuse: [f]", &clash),
        "f 2:3 fragment_clash `a` is there already (b.yaml, line 1)"
    );
    assert_eq!(
        unresolved("use: [f]\nrules:\n- {name: r}", &[("f", "rules: [{name: r}]")]),
        "f 1:9 fragment_clash `r` is there already (b.yaml, line 3)"
    );
    assert_eq!(
        unresolved("use: [f, g]", &[("f", "use: [g]"), ("g", "use:\n- f")]),
        "g 2:3 fragment_cycle `f` includes itself: b.yaml → f → g → f"
    );
    assert_eq!(unresolved("use: [b.yaml]", &[]), " 1:7 fragment_cycle `b.yaml` includes itself: b.yaml → b.yaml");
    assert_eq!(unresolved("use: [x]", &[]), " 1:7 fragment_unreadable the fragment `x` cannot be read: no such file");
    assert_eq!(
        unresolved("use: [x]", &[("x", "a: 1\na: 2")]),
        "x 2:1 duplicate_key the key `a` occurs twice (first on line 1)"
    );
    let flow = "rules: []\nworkflow:\n  nodes:\n    a: {dependencies: [b]}\n";
    assert_eq!(
        unresolved("workflow: {nodes: {a: {}}}\nuse: [x]", &[("x", flow)]),
        "x 2:1 fragment_clash `workflow` is there already (b.yaml, line 1)"
    );
    assert_eq!(unresolved("use: [x]", &[("x", "[]")]), "x 1:1 bad_fragment a fragment is a mapping");
    assert_eq!(unresolved("use: [x]", &[("x", "done: {}")]), "x 1:1 bad_fragment a fragment cannot say `done`");
    assert_eq!(unresolved("use: [x]", &[("x", "workers: []")]), "x 1:1 bad_fragment `/workers` is a mapping");
    assert_eq!(unresolved("use: [x]", &[("x", "rules: {}")]), "x 1:1 bad_fragment `rules` is a list");
    assert_eq!(unresolved("use: [x]", &[("x", "use: 1")]), "x 1:1 bad_fragment `use` is a list of file names");
    assert_eq!(
        unresolved("use: [x]", &[("x", "state: {initial: {}}")]),
        "x 1:1 bad_fragment of `state`, a fragment can only say `schema.$defs`"
    );
}

#[test]
fn the_number_and_nesting_of_fragments_are_bounded() {
    let chain: Vec<(String, String)> = (0..20)
        .map(|n| (format!("f{n}"), format!("use: [f{}]", n + 1)))
        .chain([("f20".into(), "rules: []".into())])
        .collect();
    let chain: Vec<(&str, &str)> = chain.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert!(unresolved("use: [f0]", &chain).starts_with("f7 1:7 fragment_limit"));
    resolved("use: [f13]", &chain).expect("eight deep is allowed");
    let wide: Vec<String> = (0..=FRAGMENTS_MAX).map(|n| format!("w{n}")).collect();
    let files: Vec<(&str, &str)> = wide.iter().map(|name| (name.as_str(), "rules: []")).collect();
    assert!(unresolved(&format!("use: [{}]", wide.join(", ")), &files).contains("fragment_limit"));
    resolved(&format!("use: [{}]", wide[1..].join(", ")), &files).expect("thirty-two are allowed");
}

proptest! {
    #[test]
    fn any_json_text_reads_the_same_as_by_the_json_reader(value in any_json()) {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).expect("a value is text")] {
            prop_assert_eq!(read(&text).value().clone(), json::parse_any(&text));
        }
    }

    #[test]
    fn any_text_is_read_or_rejected_with_a_position(text in "[a-z0-9:{}\\[\\],&*!|>'\"#%@\n \t.~-]{0,60}") {
        if let Err(finding) = Source::read("x", &text) {
            prop_assert!(finding.position.is_some());
        }
    }

    #[test]
    fn every_value_of_a_text_has_its_own_place(value in any_json()) {
        let source = read(&value.to_string());
        let mut pending = vec![(String::new(), &value)];
        while let Some((pointer, value)) = pending.pop() {
            prop_assert!(source.places.contains_key(&pointer), "{}", pointer);
            match value {
                Value::Array(items) => pending.extend(items.iter().enumerate().map(|(n, item)| (format!("{pointer}/{n}"), item))),
                Value::Object(map) => pending.extend(map.iter().map(|(key, item)| (child(&pointer, key), item))),
                _ => {}
            }
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e15..1e15f64).prop_map(Value::from),
        "[ -~éß\\n\\t☃]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[ -~é]{0,8}", inner, 0..5).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

#[test]
fn a_member_that_is_taken_out_is_gone_with_its_places() {
    let mut source = Source::read("test", "a: 1\ninput: {x: .inf}\ninputs: 2\n").expect("YAML");
    assert_eq!(source.take_member("input"), Some(serde_json::json!({"x": ".inf"})));
    assert_eq!(source.take_member("input"), None);
    assert_eq!(source.value(), &serde_json::json!({"a": 1, "inputs": 2}));
    assert_eq!(source.beyond_json().count(), 0);
    assert_eq!(source.position("/inputs").map(|place| place.line), Some(3));
}

#[test]
fn the_number_and_nesting_of_boards_are_bounded() {
    // Every file names the next one many times, and each file is small.
    let names = (0..30).map(|nth| format!("  b{nth}: next.yaml\n")).collect::<String>();
    let mut loads = 0;
    let mut load = |_: &str| {
        loads += 1;
        Ok(format!("blueprint: 1\nname: n{loads}\nboards: {{a: {{boards: {{c: file{loads}.yaml}}}}}}\n"))
    };
    let root = |boards: &str| read(&format!("blueprint: 1\nname: n\nboards:\n{boards}"));
    let refused = |source: Source, load: &mut dyn FileLoader| match resolve(source, load, &[]) {
        Ok(_) => panic!("it is refused"),
        Err(found) => found[0].code,
    };
    assert_eq!(refused(root(&names), &mut load), "bad_board");
    let many = (0..65).map(|nth| format!("  b{nth}: {{}}\n")).collect::<String>();
    assert_eq!(refused(root(&many), &mut load), "bad_board");
    assert!(loads < 64, "{loads}");
    let sound = "{blueprint: 1, name: n, state: {schema: {}}, workers: {w: {agent: llm}}, done: {when: \"true\"}}";
    let many = (0..70).map(|nth| format!("  b{nth}: {sound}\n")).collect::<String>();
    let unresolved = crate::check(&root(&many), &[]);
    assert!(unresolved.findings.iter().any(|finding| finding.message.contains("more than 64 boards")));
}
