//! Lint for storms: detects workers that are triggered per element and make each other stale, and no others.

use patchboard_lint::source::Source;

/// Returns true if the lint finds a storm for a worker `w` that is triggered by `trigger`.
fn is_storm(trigger: &str, when: &str, reads: &str, writes: &str) -> bool {
    let text = format!(
        r#"blueprint: 2
name: storm
state:
  schema:
    properties:
      docs: {{additionalProperties: {{properties: {{notes: {{additionalProperties: {{properties: {{s: {{type: string}}}}}}}}}}}}}}
      notes: {{type: array, items: {{properties: {{s: {{type: string}}, t: {{type: string}}}}}}}}
      marks: {{additionalProperties: {{properties: {{s: {{type: string}}}}}}}}
      total: {{type: integer}}
  initial: {{docs: {{}}, notes: [], marks: {{}}, total: 0}}
workers:
  begin:
    agent: llm
    reads: [/request]
    writes: [{{path: "/docs/*"}}, {{path: "/docs/*/notes/*"}}, {{path: /notes/-, ops: [add]}}]
  w:
    agent: llm
    reads: [{reads}]
    writes: [{writes}]
rules:
  - {{name: begin, trigger: start, run: begin}}
  - {{name: each, trigger: {trigger}, run: w{when}}}
done: {{when: "state.total == 3"}}
"#
    );
    let report = patchboard_protocols::check(&Source::read("storm", &text).expect("it is YAML"));
    assert!(report.blueprint.is_some(), "{:?}\n{text}", report.findings);
    report.findings.iter().any(|finding| finding.code == "stale_storm")
}

#[test]
fn calls_that_are_shown_what_others_write_are_found() {
    for (trigger, reads, writes) in [
        // All calls see the whole list, and each changes a part of it.
        (r#"{op: add, path: "/notes/{n}"}"#, "/notes", r#"{path: "/notes/{n}/s"}"#),
        (r#"{op: add, path: "/notes/*"}"#, "/notes/*", "{path: /notes/*/s}"),
        (r#"{op: add, path: "/notes/*"}"#, "/notes/*", "{path: /notes/*/s, ops: [add]}"),
        (r#"{op: add, path: "/notes/**"}"#, "/notes/*", "{path: /notes/*/s}"),
        // One shared name does not keep two calls apart.
        (r#"{op: add, path: "/docs/{d}/notes/{n}"}"#, r#""/docs/{d}/notes""#, r#"{path: "/docs/{d}/notes/{n}/s"}"#),
        // The written place may lie outside the element.
        (r#"{start: "/request/docs/{d}"}"#, "/marks", r#"{path: "/marks/{d}/s"}"#),
        (r#"{start: "/request/docs/{d}"}"#, r#""/request/docs/{d}", /total"#, "{path: /total, ops: [replace]}"),
        (r#"{start: "/request/docs/{d}"}"#, r#""/request/docs/{d}""#, "{path: /total, ops: [replace]}"),
    ] {
        assert!(is_storm(trigger, "", reads, writes), "{trigger} {reads} {writes}");
    }
}

#[test]
fn calls_that_are_apart_or_only_add_are_not() {
    for (trigger, when, reads, writes) in [
        (r#"{op: add, path: "/notes/{n}"}"#, "", r#""/notes/{n}""#, r#"{path: "/notes/{n}/s"}"#),
        (
            r#"{op: add, path: "/docs/{d}/notes/{n}"}"#,
            "",
            r#""/docs/{d}/notes/{n}""#,
            r#"{path: "/docs/{d}/notes/{n}/s"}"#,
        ),
        // An addition to a collection does not make an earlier view of it stale.
        (r#"{op: add, path: "/notes/*"}"#, "", "/notes", "{path: /notes/-, ops: [add]}"),
        (r#"{start: "/request/docs/{d}"}"#, "", "/marks", r#"{path: "/marks/{d}", ops: [add]}"#),
        // A condition may select one element of many.
        (r#"{op: replace, path: "/notes/*/s"}"#, ", when: 'size(state.notes) > 3'", "/notes", "{path: /total}"),
    ] {
        assert!(!is_storm(trigger, when, reads, writes), "{trigger} {reads} {writes}");
    }
}

/// Returns true if a storm is found for two workers that read `reads` of an element. Each writes one of its members,
/// and these rules trigger them for new elements.
fn reviewers(rules: &str, reads: &str, of_worker: &str) -> bool {
    let text = format!(
        r#"blueprint: 2
name: reviews
state:
  schema:
    properties:
      notes: {{additionalProperties: {{properties: {{t: {{type: string}}, a: {{type: string}}, b: {{type: string}}}}}}}}
  initial: {{notes: {{}}}}
workers:
  begin:
    agent: llm
    reads: [/request]
    writes: [{{path: "/notes/*", ops: [add]}}]
  a: {{agent: llm, group: rev, reads: ["{reads}"], writes: [{{path: "/notes/{{n}}/a"}}]{of_worker}}}
  b: {{agent: llm, group: rev, reads: ["{reads}"], writes: [{{path: "/notes/{{n}}/b"}}]{of_worker}}}
rules:
  - {{name: begin, trigger: start, run: begin}}
{rules}
done: {{when: "size(state.notes) == 3"}}
"#
    );
    let report = patchboard_protocols::check(&Source::read("reviews", &text).expect("it is YAML"));
    assert!(report.blueprint.is_some(), "{:?}\n{text}", report.findings);
    report.findings.iter().any(|finding| finding.code == "stale_storm")
}

#[test]
fn workers_that_one_element_wakes_together_are_found_where_each_is_shown_what_the_others_write() {
    let group = r#"  - {name: r, trigger: {op: add, path: "/notes/{n}"}, run: {group: rev}}"#;
    let two = r#"  - {name: ra, trigger: {op: add, path: "/notes/{n}"}, run: a}
  - {name: rb, trigger: {op: add, path: "/notes/{n}"}, run: b}"#;
    let one_after_the_other = r#"  - {name: ra, trigger: {op: add, path: "/notes/{n}"}, run: a}
  - {name: rb, trigger: {op: add, path: "/notes/{n}/a"}, run: b}"#;
    let one_of_them = r#"  - {name: ra, trigger: {op: add, path: "/notes/{n}"}, when: "value.t == 'x'", run: a}
  - {name: rb, trigger: {op: add, path: "/notes/{n}"}, when: "value.t == 'y'", run: b}"#;
    for (rules, reads, of_worker, is_found) in [
        (group, "/notes/{n}", "", true),
        (two, "/notes/{n}", "", true),
        (two, "/notes/{n}", ", limits: {concurrency: 1}", true),
        (group, "/notes/{n}/t", "", false),
        (two, "/notes/{n}", ", freshness: target", false),
        (two, "/notes/{n}", ", limits: {conflicts: 5}", false),
        (one_after_the_other, "/notes/{n}", "", false),
        (one_of_them, "/notes/{n}", "", false),
    ] {
        assert_eq!(reviewers(rules, reads, of_worker), is_found, "{rules} {reads}{of_worker}");
    }
}
