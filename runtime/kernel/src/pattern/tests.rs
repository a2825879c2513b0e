//! Patterns: matching and overlap, compared with definitions and enumeration.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tree::Node;

fn tree(document: &Value) -> Node {
    let hasher = std::sync::Arc::new(crate::digest::Hasher::new(&crate::digest::Salt([7; 32])));
    Node::from_value(document, &crate::tree::Edit { revision: 0, hasher })
}

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).expect("a pattern of a test is well-formed")
}

fn pointer(text: &str) -> &Pointer {
    Pointer::parse(text).expect("a pointer of a test is well-formed")
}

#[test]
fn tokens_match_tokens_and_never_a_prefix_of_a_name() {
    let check = |text: &str, path: &str, expected: bool| {
        assert_eq!(pattern(text).matches(pointer(path)), expected, "{text} on {path}");
    };
    check("", "", true);
    check("", "/a", false);
    check("/task", "/task", true);
    check("/task", "/tasks", false);
    check("/task", "/task/0", false);
    check("/claims/*/status", "/claims/0/status", true);
    check("/claims/*/status", "/claims/0", false);
    check("/claims/*/status", "/claims/0/status/x", false);
    check("/claims/-", "/claims/-", true);
    check("/claims/-", "/claims/0", false);
    check("/claims/*", "/claims/-", true);
    check("/claims/0", "/claims/-", false);
    check("/claims/0", "/claims/00", false);
    check("/a~1b/~0", "/a~1b/~0", true);
    check("/a~1b", "/a/b", false);
    check("/", "/", true);
    check("/", "", false);
    check("/**", "", true);
    check("/**", "/a/b/-", true);
    check("/a/**/z", "/a/z", true);
    check("/a/**/z", "/a/b/c/z", true);
    check("/a/**/z", "/a/b/c", false);
    check("/**/x/**", "/a/x", true);
    check("/a*", "/a*", true);
    check("/a*", "/ab", false);
}

#[test]
fn invalid_patterns_are_rejected_with_the_reason() {
    let check = |text: &str, part: &str| {
        let refusal = Pattern::parse(text).expect_err(text);
        assert!(refusal.0.contains(part), "{text}: {refusal}");
    };
    check("claims", "begins with `/`");
    check("*", "begins with `/`");
    check("/a~2", "`~0`");
    check("/a~", "`~0`");
    check("/claims/-/status", "append position");
    check("/-/**", "append position");
    check(&"/a".repeat(33), "32 tokens");
    check(&"/**".repeat(5), "4 `**`");
    check(&format!("/{}", "x".repeat(2048)), "2048 bytes");
    assert!(Pattern::parse(&"/a".repeat(32)).is_ok());
}

#[test]
fn captures_are_the_tokens_matched_by_wildcards() {
    let check = |text: &str, path: &[&str], expected: Option<&[&str]>| {
        let expected = expected.map(|captures| captures.iter().map(|&capture| capture.to_owned()).collect());
        assert_eq!(pattern(text).captures(path), expected, "{text} on {path:?}");
    };
    check("/claims/*/status", &["claims", "3", "status"], Some(&["3"]));
    check("/claims/*/status", &["claims", "3"], None);
    check("/claims/-", &["claims", "-"], Some(&[]));
    check("/*/*", &["a/b", "-"], Some(&["a/b", "-"]));
    check("/a/**", &["a"], Some(&[""]));
    check("/a/**", &["a", "b/c", "d"], Some(&["/b~1c/d"]));
    check("/**/x/**", &["x", "a", "x", "b"], Some(&["", "/a/x/b"]));
    check("/**/*/x", &["a", "b", "x"], Some(&["/a", "b"]));
    check("/**/**", &["a"], Some(&["", "/a"]));
    check("", &[], Some(&[]));
}

#[test]
fn read_grants_cover_what_they_match_and_everything_below() {
    let sources = pattern("/sources/*");
    assert!(sources.covers(pointer("/sources/0")));
    assert!(sources.covers(pointer("/sources/0/text")));
    assert!(!sources.covers(pointer("/sources")));
    assert!(!sources.covers(pointer("/sourcesx/0")));
    assert!(pattern("").covers(pointer("/anything")));
    assert!(sources.reaches_below(pointer("")));
    assert!(sources.reaches_below(pointer("/sources")));
    assert!(!sources.reaches_below(pointer("/sources/0/text")));
    assert!(!sources.reaches_below(pointer("/claims")));
}

#[test]
fn instances_are_existing_places_in_document_order() {
    let document =
        json!({"claims": [{"status": 1}, {"other": 1}, {"status": 2}], "map": {"-": 1, "a/b": {"status": 3}}});
    let check = |text: &str, max: usize, expected: &[&str]| {
        let found = pattern(text).instances_of_value(&document, max);
        assert_eq!(found.iter().map(PointerBuf::to_string).collect::<Vec<_>>(), expected, "{text}");
        let tree = tree(&document);
        let found = pattern(text).instances(&tree, max);
        assert_eq!(found.iter().map(|one| one.place.to_string()).collect::<Vec<_>>(), expected, "{text}");
    };
    check("/claims/*/status", 9, &["/claims/0/status", "/claims/2/status"]);
    check("/claims/*", 2, &["/claims/0", "/claims/1"]);
    check("/claims/-", 9, &[]);
    check("/map/-", 9, &[]);
    check("/map/*", 9, &["/map/-", "/map/a~1b"]);
    check("/**/status", 9, &["/claims/0/status", "/claims/2/status", "/map/a~1b/status"]);
    check("", 9, &[""]);
    check("/**", 3, &["", "/claims", "/claims/0"]);
    check("/**", 0, &[]);
}

#[test]
fn a_large_tree_is_searched_in_the_order_of_the_document() {
    let members: serde_json::Map<_, _> = (0..90).map(|n| (format!("k{n}"), json!({"n": [n, n]}))).collect();
    let document = json!({"map": members, "list": (0..300).map(|n| json!({"n": n})).collect::<Vec<_>>(), "-": [[0]]});
    let tree = tree(&document);
    for text in [
        "",
        "/**",
        "/map/*",
        "/map/*/n/1",
        "/map/k7/n",
        "/list/*/n",
        "/list/299",
        "/list/300",
        "/list/007",
        "/**/n",
        "/**/7/**",
        "/*/*",
        "/-",
        "/*/0/*",
        "/**/k7/**/1",
        "/list/-",
        "/none/*",
    ] {
        for max in [1, 5, 100_000] {
            let places = pattern(text).instances_of_value(&document, max);
            let instances = pattern(text).instances(&tree, max);
            assert!(instances.iter().map(|one| &one.place).eq(places.iter()), "{text}, {max}");
            assert!(instances.iter().all(|one| tree.get(&one.place).is_some_and(|node| node == one.part.node)));
        }
    }
}

#[test]
fn a_deeply_nested_document_is_searched_without_recursion() {
    // Limited by `max`: the pointers of all places together would be quadratic in the depth.
    let mut document = json!(0);
    for _ in 0..2000 {
        document = Value::Array(vec![document]);
    }
    assert_eq!(pattern("/**").instances_of_value(&document, 1500).len(), 1500);
}

#[test]
fn many_deep_tokens_take_no_exponential_time() {
    let hard = pattern("/**/a/**/a/**/a/**/b");
    let path = vec!["a"; 20_000];
    assert_eq!(hard.captures(&path), None);
    assert!(!hard.matches(&PointerBuf::from_tokens(path.iter().copied())));
}

#[test]
fn append_patterns_collide_with_indices_and_lie_above_their_contents() {
    let check = |one: &str, another: &str, overlaps: bool, collides: bool, above: bool| {
        let (one, another) = (pattern(one), pattern(another));
        assert_eq!(one.overlaps(&another), overlaps, "{one} overlaps {another}");
        assert_eq!(another.overlaps(&one), overlaps, "{another} overlaps {one}");
        assert_eq!(one.collides(&another), collides, "{one} collides {another}");
        assert_eq!(another.collides(&one), collides, "{another} collides {one}");
        assert_eq!(one.lies_above(&another), above, "{one} lies above {another}");
    };
    check("/claims/-", "/claims/3", false, true, false);
    check("/claims/-", "/claims/03", false, false, false);
    check("/claims/-", "/claims/name", false, false, false);
    check("/claims/-", "/claims/*", true, true, false);
    check("/claims/-", "/**", true, true, true);
    check("/claims/-", "/claims/*/status", false, false, true);
    check("/claims/-", "/claims/3/status", false, false, true);
    check("/claims/*", "/claims/-", true, true, false);
    check("/claims", "/claims/-", false, false, true);
    check("/task", "/tasks/0", false, false, false);
    check("", "/a", false, false, true);
    check("/a", "/a", true, true, false);
    check("/**", "/**", true, true, true);
    check("/a/**/z", "/a/b/z/c", false, false, true);
    check("/a/**/z", "/a/b/c", false, false, false);
}

/// Definition of pattern matching, implemented literally.
fn matches_by_definition(tokens: &[PatternToken], path: &[&str]) -> bool {
    match tokens.split_first() {
        None => path.is_empty(),
        Some((PatternToken::Deep, rest)) => (0..=path.len()).any(|taken| matches_by_definition(rest, &path[taken..])),
        Some((one, rest)) => path.split_first().is_some_and(|(token, path)| {
            let fits = match one {
                PatternToken::Literal(name) => name == token,
                PatternToken::Append => *token == "-",
                PatternToken::Any | PatternToken::Deep => true,
                PatternToken::Bound(_) => false,
            };
            fits && matches_by_definition(rest, path)
        }),
    }
}

/// Returns every sequence of at most `length` of the words.
fn sequences(words: &[&'static str], length: usize) -> Vec<Vec<&'static str>> {
    let mut all = vec![Vec::new()];
    let mut longest = all.clone();
    for _ in 0..length {
        longest = longest
            .iter()
            .flat_map(|sequence| words.iter().map(move |&word| sequence.iter().copied().chain([word]).collect()))
            .collect::<Vec<Vec<_>>>();
        all.extend(longest.iter().cloned());
    }
    all
}

#[test]
fn pattern_relations_agree_with_enumeration() {
    // If two patterns of three tokens share a path, they share one of at most four tokens.
    let paths = sequences(&["a", "0", "-", "z"], 4);
    let patterns = sequences(&["a", "0", "*", "**", "-"], 3)
        .into_iter()
        .filter_map(|tokens| Pattern::parse(&tokens.iter().map(|token| format!("/{token}")).collect::<String>()).ok())
        .collect::<Vec<_>>();
    assert!(patterns.len() > 100, "only {} patterns", patterns.len());
    let matched = patterns
        .iter()
        .map(|pattern| {
            let by_definition =
                paths.iter().map(|path| matches_by_definition(pattern.tokens(), path)).collect::<Vec<_>>();
            for (path, &expected) in paths.iter().zip(&by_definition) {
                let pointer = PointerBuf::from_tokens(path.iter().copied());
                assert_eq!(pattern.matches(&pointer), expected, "{pattern} on {pointer}");
                assert_eq!(pattern.captures(path).is_some(), expected, "{pattern} on {pointer}");
                let covered = (0..=path.len()).any(|end| matches_by_definition(pattern.tokens(), &path[..end]));
                assert_eq!(pattern.covers(&pointer), covered, "{pattern} on {pointer}");
            }
            by_definition
        })
        .collect::<Vec<_>>();
    // An appended element may become `/0`, the only index among the words.
    let landing = |&token: &&'static str| if token == "-" { "0" } else { token };
    let landed = paths.iter().map(|path| path.iter().map(landing).collect::<Vec<_>>()).collect::<Vec<_>>();
    let place = |path: &[&str]| paths.iter().position(|other| other == path).expect("paths are closed under prefixes");
    let parents = paths.iter().map(|path| path.len().checked_sub(1).map(|end| place(&path[..end]))).collect::<Vec<_>>();
    let homes = landed.iter().map(|path| place(path)).collect::<Vec<_>>();
    for (one, ours) in patterns.iter().zip(&matched) {
        // Computes the pattern's locations after a write, and the places below them.
        let mut written = ours.clone();
        (0..paths.len()).filter(|&at| ours[at]).for_each(|at| written[homes[at]] = true);
        let mut below = vec![false; paths.len()];
        for at in 0..paths.len() {
            below[at] = parents[at].is_some_and(|parent| written[parent] || below[parent]);
        }
        for (another, theirs) in patterns.iter().zip(&matched) {
            let overlap = (0..paths.len()).any(|at| ours[at] && theirs[at]);
            assert_eq!(one.overlaps(another), overlap, "{one} overlaps {another}");
            let above = (0..paths.len()).any(|at| theirs[at] && below[at]);
            // A path long enough for both patterns may need one token more than was enumerated.
            if above || one.tokens().len() + another.tokens().len() < 5 {
                assert_eq!(one.lies_above(another), above, "{one} lies above {another}");
            }
        }
    }
}

#[test]
fn a_token_in_braces_is_a_name_in_a_template_only() {
    let template = PathSyntax::Named.parse("/notes/{note}/a{b}/{_x1}").expect("a template");
    assert_eq!(template.names().collect::<Vec<_>>(), ["note", "_x1"]);
    assert_eq!(template.to_string(), "/notes/{note}/a{b}/{_x1}");
    let plain = Pattern::parse("/notes/{note}").expect("a pattern");
    assert!(plain.matches(Pointer::parse("/notes/{note}").expect("a pointer")) && plain.names().next().is_none());
    for text in ["/{}", "/{a-b}", "/{1}", "/{a b}", "/{-}", "/{ä}", "/{a~1b}", &format!("/{{{}}}", "n".repeat(65))] {
        assert!(PathSyntax::Named.parse(text).is_err(), "{text}");
        assert!(PathSyntax::Plain.parse(text).is_ok(), "{text}");
    }
}

#[test]
fn template_relations_cover_every_binding() {
    let words = ["a", "0", "*", "**", "-", "{n}", "{m}"];
    let read = |tokens: &Vec<&str>| {
        PathSyntax::Named.parse(&tokens.iter().map(|token| format!("/{token}")).collect::<String>()).ok()
    };
    let patterns: Vec<Pattern> = sequences(&words, 2).iter().filter_map(read).collect();
    let paths = sequences(&["a", "0", "-", "z"], 3);
    let bound = |pattern: &Pattern| -> Vec<Pattern> {
        let tokens = ["a", "0", "z"];
        let pairs = tokens.iter().flat_map(|n| tokens.iter().map(move |m| (*n, *m)));
        pairs.map(|(n, m)| pattern.bind(|name| Some(if name == "n" { n } else { m }))).collect()
    };
    for one in patterns.iter().filter(|one| one.names().next().is_some()) {
        for path in &paths {
            let pointer = PointerBuf::from_tokens(path.iter().copied());
            assert!(!one.matches(&pointer), "a name that is not bound matches nothing: {one} on {pointer}");
            let is_matched = bound(one).iter().any(|one| one.matches(&pointer));
            assert!(!is_matched || one.under_any_binding().matches(&pointer), "{one} on {pointer}");
        }
        for another in &patterns {
            let others = bound(another);
            let meets = |how: fn(&Pattern, &Pattern) -> bool| {
                bound(one).iter().any(|one| others.iter().any(|another| how(one, another)))
            };
            assert!(!meets(Pattern::overlaps) || one.overlaps(another), "{one} overlaps {another}");
            assert!(!meets(Pattern::collides) || one.collides(another), "{one} collides with {another}");
            assert!(!meets(Pattern::lies_above) || one.lies_above(another), "{one} lies above {another}");
        }
    }
}

proptest! {
    #[test]
    fn a_pattern_is_read_back_as_it_was_written(tokens in prop::collection::vec("[a-z~/*0-9-]{0,3}", 0..6)) {
        let text = tokens.iter().map(|token| format!("/{}", jsonptr::Token::new(token.as_str()).encoded()));
        if let Ok(pattern) = Pattern::parse(&text.collect::<String>()) {
            prop_assert_eq!(Pattern::parse(&pattern.to_string()), Ok(pattern));
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,40}") {
        drop(Pattern::parse(&text));
    }

    #[test]
    fn captures_put_back_in_their_places_give_the_path(
        tokens in prop::collection::vec(prop::sample::select(vec!["a", "b", "*", "**"]), 0..6),
        path in prop::collection::vec(prop::sample::select(vec!["a", "b", "-", "x/y"]), 0..8),
    ) {
        let text = tokens.iter().map(|token| format!("/{token}")).collect::<String>();
        let Ok(pattern) = Pattern::parse(&text) else { return Ok(()) };
        let captures = pattern.captures(&path);
        prop_assert_eq!(captures.is_some(), matches_by_definition(pattern.tokens(), &path));
        if let Some(captures) = captures {
            let mut captures = captures.into_iter();
            let mut rebuilt = PointerBuf::root();
            for token in pattern.tokens() {
                match token {
                    PatternToken::Literal(name) => rebuilt.push_back(name.as_str()),
                    PatternToken::Append => rebuilt.push_back("-"),
                    PatternToken::Bound(name) => prop_assert!(false, "a plain path has no name {name}"),
                    PatternToken::Any => rebuilt.push_back(captures.next().expect("one for every star")),
                    PatternToken::Deep => {
                        let deep = captures.next().expect("one for every star");
                        rebuilt.append(PointerBuf::parse(deep).expect("a deep capture is a pointer"));
                    }
                }
            }
            prop_assert_eq!(captures.next(), None);
            prop_assert_eq!(rebuilt, PointerBuf::from_tokens(path.iter().copied()));
        }
    }
}
