//! Which workers that are woken for each of many elements are found to make each other stale, and which are not.

use patchboard_kernel::lint;
use patchboard_kernel::source::Source;

/// A blueprint whose worker `w` is woken by `trigger`, and whether a storm is found.
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
    let report = lint::check(&Source::read("storm", &text).expect("it is YAML"));
    assert!(report.blueprint.is_some(), "{:?}\n{text}", report.findings);
    report.findings.iter().any(|finding| finding.code == "stale_storm")
}

#[test]
fn calls_that_are_shown_what_others_write_are_found() {
    for (trigger, reads, writes) in [
        // What all are shown, and each changes a part of.
        (r#"{op: add, path: "/notes/{n}"}"#, "/notes", r#"{path: "/notes/{n}/s"}"#),
        (r#"{op: add, path: "/notes/*"}"#, "/notes/*", "{path: /notes/*/s}"),
        (r#"{op: add, path: "/notes/*"}"#, "/notes/*", "{path: /notes/*/s, ops: [add]}"),
        (r#"{op: add, path: "/notes/**"}"#, "/notes/*", "{path: /notes/*/s}"),
        // One of two names keeps no two calls apart.
        (r#"{op: add, path: "/docs/{d}/notes/{n}"}"#, r#""/docs/{d}/notes""#, r#"{path: "/docs/{d}/notes/{n}/s"}"#),
        // What is written need not be of the element.
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
        // What comes to a collection makes nothing stale that was shown of it.
        (r#"{op: add, path: "/notes/*"}"#, "", "/notes", "{path: /notes/-, ops: [add]}"),
        (r#"{start: "/request/docs/{d}"}"#, "", "/marks", r#"{path: "/marks/{d}", ops: [add]}"#),
        // A condition may let one element of many through.
        (r#"{op: replace, path: "/notes/*/s"}"#, ", when: 'size(state.notes) > 3'", "/notes", "{path: /total}"),
    ] {
        assert!(!is_storm(trigger, when, reads, writes), "{trigger} {reads} {writes}");
    }
}
