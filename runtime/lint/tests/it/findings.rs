//! Produces every lint code by a small change of a valid blueprint, and records the messages.
//!
//! The snapshot beside this file is what a user reads; review a change of it as prose.

mod fixtures;

use std::fmt::Write as _;

use patchboard_kernel::ablation::Mode;
use patchboard_kernel::plan::PlanSource as _;
use patchboard_lint::source::Source;
use patchboard_lint::{Diagnostic, FINDINGS_MAX, Severity};
use patchboard_protocols::PLANS;
use proptest::prelude::*;
use serde_json::json;

use fixtures::*;

/// Renders a finding as a terminal shows it.
fn render(finding: &Diagnostic) -> String {
    let severity = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let file = finding.file.as_ref().map_or_else(String::new, |file| format!("{file}:"));
    let place = finding.position.map_or_else(String::new, |place| format!("{}:{} ", place.line, place.column));
    format!("{file}{place}{severity} {}: {}\n    / {}\n", finding.code, finding.message, finding.help)
}

#[test]
fn the_sound_blueprint_has_no_finding_and_is_returned() {
    let report = patchboard_protocols::check(&Source::read("b.yaml", SOUND).expect("it is YAML"));
    let rendered: String = report.findings.iter().map(render).collect();
    assert_eq!(rendered, "");
    let blueprint = report.blueprint.expect("there is no error");
    assert_eq!(blueprint.name, "review");
    // The blueprint as stored in the journal passes the lint as well.
    let stored = serde_json::to_value(&blueprint).expect("a blueprint is JSON");
    let again = patchboard_protocols::check_value(stored);
    assert_eq!(again.findings, []);
    assert_eq!(again.blueprint, Some(blueprint));
}

/// Former names are silent in format 1, and in fragments, which serve both formats; new names are silent in format 2.
#[test]
fn a_former_name_is_reported_only_in_the_text_of_a_blueprint_of_format_2() {
    const LIMITS: &str = "  writer:\n    limits: {exempt: true}\n";
    const RULE: &str = "    run: writer\n    urgent: true\n";
    assert_eq!(found(&[("  writer:\n", LIMITS), ("    run: writer\n", RULE)]), []);
    const NEW_LIMITS: &str = "  writer:\n    limits: {unmetered_concurrency: true}\n";
    const NEW_RULE: &str = "    run: writer\n    priority: high\n";
    assert_eq!(found(&[FORMAT_2, ("  writer:\n", NEW_LIMITS), ("    run: writer\n", NEW_RULE)]), []);
    const FRAGMENT: &str =
        "rules:\n  - {name: late, trigger: {op: replace, path: /claims/*}, run: writer, urgent: true}\n";
    let fixture =
        with("none", &[FORMAT_2, ("name: review\n", "name: review\nuse: [late.yaml]\n")], &[("late.yaml", FRAGMENT)]);
    assert!(fixture.findings().iter().all(|finding| finding.code != "renamed_field"));
}

/// A rule on a group is judged for each of its members, and `$defs/group:team` resolves in a schema.
#[test]
fn a_group_is_judged_by_all_who_are_in_it() {
    const TEXT: (&str, &str) =
        ("properties: {text: {type: string}", "properties: {text: {$ref: \"#/$defs/group:team\"}");
    const CHOSEN: (&str, &str) = ("when: value.text != \"\"\n    run: writer", "run: {group: team, at: /text}");
    const SECOND: (&str, &str) = ("workers:\n", "workers:\n  other: {agent: llm, group: team, reads: [/claims]}\n");
    const BLIND: (&str, &str) = ("workers:\n", "workers:\n  other: {agent: llm, group: team}\n");
    assert_eq!(found(&[GROUPED, TEXT, CHOSEN, SECOND]), []);
    assert_eq!(found(&[GROUPED, TEXT, CHOSEN, BLIND]), [("trigger_unreadable", "/rules/1/trigger/path".to_owned())]);
    // The loop ends only if every member is limited, and one is not.
    const AGAIN: (&str, &str) = (
        "invariants:\n",
        "  - {name: again, trigger: {op: replace, path: /claims/*/status}, run: {group: team}}\ninvariants:\n",
    );
    assert_eq!(found(&[GROUPED, SECOND, AGAIN]), [("loop_without_progress", "/rules/2".to_owned())]);
}

#[test]
fn every_code_has_a_fixture_that_brings_it_about() {
    for (code, severity, meaning) in patchboard_protocols::codes() {
        assert!(meaning.ends_with('.'), "{code}");
        // Needs a large blueprint or a small bound: see `bombs`.
        if *code == "too_costly" {
            continue;
        }
        let mut fixtures = FIXTURES.iter().filter(|fixture| fixture.code == *code).peekable();
        assert!(fixtures.peek().is_some(), "{code} has no fixture");
        for fixture in fixtures {
            let findings = fixture.findings();
            let rendered: String = findings.iter().map(render).collect();
            let found = findings.iter().find(|finding| finding.code == *code);
            let found = found.unwrap_or_else(|| panic!("{code} is not found in\n{}\n{rendered}", fixture.text()));
            assert_eq!(found.severity, *severity, "{code}");
        }
    }
}

#[test]
fn every_finding_has_a_place_a_message_and_a_mend() {
    for finding in FIXTURES.iter().flat_map(Fixture::findings) {
        assert!(
            patchboard_protocols::codes().any(|(code, ..)| *code == finding.code),
            "{} is not in the table",
            finding.code
        );
        assert!(finding.position.is_some(), "{finding:?}");
        assert!(!finding.message.is_empty() && !finding.help.is_empty(), "{finding:?}");
        assert!(!finding.message.ends_with('.') && finding.help.ends_with(['.', '?']), "{finding:?}");
    }
}

#[test]
fn findings_read_like_a_compilers() {
    let mut page = String::new();
    for fixture in FIXTURES {
        let _ = writeln!(page, "## {}", fixture.code);
        for (from, to) in fixture.changes {
            let _ = writeln!(page, "{from:?}\n => {to:?}");
        }
        fixture.findings().iter().for_each(|finding| page.push_str(&render(finding)));
        page.push('\n');
    }
    insta::assert_snapshot!("findings", page);
}

/// Returns the codes of a changed blueprint, with their pointers.
fn found(changes: &'static [(&'static str, &'static str)]) -> Vec<(&'static str, String)> {
    let findings = change("none", changes).findings();
    findings.into_iter().map(|finding| (finding.code, finding.pointer)).collect()
}

#[test]
fn unguarded_grants_of_handoff_agents_are_found() {
    const STATUS: &str = "      - {path: /claims/*/status}";
    const GUARDED: &str = "      - {path: /claims/*/status, where: {of: /claims/*, expr: self.text == worker}}";
    let unguarded = vec![("handoff_unguarded", "/workers/writer/writes/1".to_owned())];
    assert_eq!(found(&[DESK, IN_AGENTS]), unguarded);
    assert_eq!(found(&[DESK, IN_AGENTS, (STATUS, "      - {path: /claims/*, ops: [replace]}")]), unguarded);
    // A worker outside the agents' group has nothing to hand over, and a worker that adds an element changes none.
    assert_eq!(found(&[DESK]), []);
    assert_eq!(found(&[IN_AGENTS]), []);
    assert_eq!(found(&[DESK, IN_AGENTS, (STATUS, "      - {path: /claims/-, ops: [add]}")]), []);
    assert_eq!(found(&[DESK, IN_AGENTS, (STATUS, GUARDED)]), []);
}

#[test]
fn grants_that_only_append_do_not_overwrite_each_other() {
    const APPEND: (&str, &str) = ("- {path: /claims/-, ops: [add]}", "- {path: /claims/-}");
    assert_eq!(
        found(&[APPEND, ("- {path: /answer, ops: [add]}", "- {path: /answer, ops: [add]}\n      - {path: /claims/-}")]),
        []
    );
    assert_eq!(found(&[APPEND, ("- {path: /claims/*/status}", "- {path: /claims/*}")]), []);
}

/// Returns the findings of a blueprint with one more invariant, and with changes of its schema and limits.
fn of_invariant(invariant: &str, others: &[(&str, &str)]) -> Vec<(&'static str, String)> {
    let text = SOUND.replacen("done:", &format!("  - {{name: more, {invariant}}}\ndone:"), 1);
    let text = others.iter().fold(text, |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from:?} is there once");
        text.replace(from, to)
    });
    let findings = patchboard_protocols::check(&Source::read("b.yaml", &text).expect("it is YAML")).findings;
    findings.into_iter().map(|finding| (finding.code, finding.message)).collect()
}

#[test]
fn an_invariant_that_costs_what_a_patch_touches_is_not_reported() {
    const SHORT: (&str, &str) = ("claims: {type: array,", "claims: {type: array, maxItems: 100,");
    const FEW_COMMITS: (&str, &str) = (END, "done: {when: has(state.answer)}\nlimits: {commits: 16}\n");
    const MORE_COMMITS: (&str, &str) = (END, "done: {when: has(state.answer)}\nlimits: {commits: 17}\n");
    const NOTES: (&str, &str) =
        ("      answer: {type: string}", "      answer: {type: string}\n      notes: {type: array}");
    const WRITES_NOTES: (&str, &str) =
        ("- {path: /answer, ops: [add]}", "- {path: /answer, ops: [add]}\n      - {path: /notes}");
    const WRITES_A_NOTE: (&str, &str) = (
        "- {path: /answer, ops: [add]}",
        "- {path: /answer, ops: [add]}\n      - {path: /notes}\n      - {path: /notes/-, ops: [add]}",
    );
    let all = "expr: 'state.claims.all(c, size(c.text) > 0)'";
    let twice = "for: /claims/*, expr: 'state.claims.exists_one(c, c.text == self.text)'";
    let answer = "for: /claims/*, expr: 'self.text != state.answer'";
    let last = "for: /claims/*, expr: '!has(state.answer) || self.text != state.answer'";
    let asked = "for: /claims/*, expr: 'self.text != request.question'";
    let notes = "expr: '!has(state.notes) || !(\"\" in state.notes)'";
    let is_costly = |invariant, others: &[_]| {
        let found = of_invariant(invariant, others);
        assert!(found.iter().all(|(code, _)| *code == "costly_invariant"), "{found:?}");
        !found.is_empty()
    };
    for (invariant, others, expected) in [
        (all, &[] as &[_], true),
        (all, &[SHORT], false),
        // Eight operations per commit create at most 128 claims.
        (all, &[FEW_COMMITS], false),
        (all, &[MORE_COMMITS], true),
        (twice, &[], true),
        (twice, &[SHORT], false),
        (answer, &[], true),
        (answer, &[SHORT], false),
        // The answer is written once, after all claims.
        (last, &[], false),
        // No worker writes the request.
        (asked, &[], false),
        ("expr: 'size(state.claims) < 1000'", &[], false),
        ("for: /answer, expr: 'size(self) > 0'", &[], false),
        ("for: /answer, expr: 'size(self) < size(state.claims)'", &[], false),
        // A list that is only written as a whole costs as much.
        (notes, &[NOTES, WRITES_NOTES], false),
        (notes, &[NOTES, WRITES_A_NOTE], true),
    ] {
        assert_eq!(is_costly(invariant, others), expected, "{invariant} {others:?}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may read files")]
fn the_shipped_blueprints_have_no_finding_of_costs() {
    for path in ["blueprints/alfworld.yaml", "blueprints/evidence-review.yaml", "examples/word_count.yaml"] {
        let text = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        let text = std::fs::read_to_string(text).expect("it is there");
        let findings = patchboard_protocols::check(&Source::read(path, &text).expect("it is YAML")).findings;
        let rendered: String = findings.iter().map(render).collect();
        assert!(!rendered.contains("costly"), "{path}:\n{rendered}");
        // The invariants iterate over lists that the schema and the limits keep short.
        let longer =
            text.replace("limits: {commits: 60,", "limits: {commits: 600,").replace("\n        maxItems: 8\n", "\n");
        let findings = patchboard_protocols::check(&Source::read(path, &longer).expect("it is YAML")).findings;
        assert_eq!(findings.iter().any(|finding| finding.code == "costly_invariant"), longer != text, "{path}");
    }
}

/// A grant's `value` decides which values it creates. Later changes belong to other grants, with conditions on the
/// state before the patch.
#[test]
fn conditional_grants_overlap_with_replacements_but_not_with_creations() {
    const STATUS: &str = "- {path: /claims/*/status}";
    let with = |grants: &str| -> Vec<&'static str> {
        let text = SOUND.replace(STATUS, grants);
        let findings = patchboard_protocols::check(&Source::read("b.yaml", &text).expect("it is YAML")).findings;
        findings.into_iter().map(|finding| finding.code).collect()
    };
    let own = |path: &str| format!("{{path: {path}, where: {{of: /claims/*, expr: worker == self.text}}}}");
    let made = "- {path: /claims/-, ops: [add], value: {required: [text]}}";
    assert_eq!(with(&format!("{made}\n      - {}", own("/claims/*/status"))), [""; 0]);
    assert_eq!(with(&format!("{made}\n      {STATUS}")), ["overlapping_grants"]);
    let put = "- {path: /claims/*, ops: [replace], value: {required: [text]}}";
    assert!(with(&format!("{put}\n      - {}", own("/claims/*/status"))).contains(&"overlapping_grants"));
    // If both have a condition, the state decides which worker may write.
    let two = |of_other: &str| {
        let text = SOUND.replace(STATUS, &format!("- {}", own("/claims/*/status")));
        let text = text.replace(
            "- {path: /claims/-, ops: [add]}",
            &format!("- {{path: /claims/-, ops: [add]}}\n      - {of_other}"),
        );
        let findings = patchboard_protocols::check(&Source::read("b.yaml", &text).expect("it is YAML")).findings;
        findings.iter().any(|finding| finding.code == "two_writers")
    };
    assert!(two("{path: /claims/*/status}") && !two(&own("/claims/*/status")));
}

#[test]
fn permitted_expressions_give_no_findings() {
    for expr in [
        "value.text != \"\" && has(value.status)",
        "has(state.request) && request.question != \"\" && size(event.captures) == 1",
        "event.worker == \"extractor\" && event.version > 1 && patch.exists(p, p.path == event.path)",
        "state.claims.all(c, c.text != before.claims[0].text) && [[1]].all(x, x.all(y, y > 0))",
        "state.claims[size(state.claims) - 1].text == \"\" && state[\"claims\"] == []",
    ] {
        let text = SOUND.replace("when: value.text != \"\"", &format!("when: '{expr}'"));
        let report = patchboard_protocols::check(&Source::read("b.yaml", &text).expect("it is YAML"));
        assert_eq!(report.findings, [], "{expr}");
    }
    // Either operand of `||` may hold.
    for expr in ["event == null", "has(state.answer) || value == null", "!has(state.answer)"] {
        let text = SOUND.replace("trigger: start,", &format!("trigger: start, when: '{expr}',"));
        let report = patchboard_protocols::check(&Source::read("b.yaml", &text).expect("it is YAML"));
        assert_eq!(report.findings, [], "{expr}");
    }
    assert_eq!(found(&[("trigger: start,", "trigger: manual, when: event.name == \"begin\" && value.x == 1,")]), []);
}

#[test]
fn an_error_keeps_the_blueprint_from_being_returned_and_a_warning_does_not() {
    for fixture in FIXTURES.iter().filter(|fixture| fixture.fragments.is_empty()) {
        let Ok(source) = Source::read("b.yaml", &fixture.text()) else { continue };
        let report = patchboard_protocols::check(&source);
        let refused = report.findings.iter().any(|finding| finding.severity == Severity::Error);
        assert_eq!(report.blueprint.is_none(), refused, "{}", fixture.code);
        let severities: Vec<Severity> = report.findings.iter().map(|finding| finding.severity).collect();
        assert!(severities.is_sorted(), "errors come first");
    }
}

#[test]
fn a_value_without_text_is_checked_without_positions() {
    let source = Source::read("b.yaml", &SOUND.replace("run: extractor", "run: nobody")).expect("it is YAML");
    let report = patchboard_protocols::check_value(source.value().clone());
    let codes: Vec<(&str, Option<_>, &str)> =
        report.findings.iter().map(|finding| (finding.code, finding.position, finding.pointer.as_str())).collect();
    assert_eq!(codes, [("undeclared_worker", None, "/rules/0/run")]);
}

#[test]
fn a_report_lists_a_bounded_number_of_findings() {
    let mut text = SOUND.to_owned();
    text.push_str("models:\n");
    for number in 0..300 {
        let _ = writeln!(text, "  m{number}: {number}");
    }
    assert_eq!(
        patchboard_protocols::check(&Source::read("b.yaml", &text).expect("it is YAML")).findings.len(),
        FINDINGS_MAX
    );
    let rules: String = (0..200).map(|n| format!("  - {{name: r{n}, trigger: manual, run: nobody}}\n")).collect();
    let text = SOUND.replace("invariants:\n", &format!("{rules}invariants:\n"));
    assert_eq!(
        patchboard_protocols::check(&Source::read("b.yaml", &text).expect("it is YAML")).findings.len(),
        FINDINGS_MAX
    );
}

#[test]
fn paths_and_conditions_may_use_only_names_bound_by_the_trigger() {
    const TRIGGER: &str = "trigger: {op: add, path: /claims/*}";
    const BOUND: (&str, &str) = (TRIGGER, "trigger: {op: add, path: \"/claims/{claim}\"}");
    const READS: (&str, &str) = ("reads: [/request, /claims]", "reads: [/request, \"/claims/{claim}\"]");
    const WRITES: (&str, &str) = ("- {path: /claims/*/status}", "- {path: \"/claims/{claim}/status\"}");
    const WHEN: &str = "when: value.text != \"\"";
    assert_eq!(found(&[FORMAT_2, BOUND, READS, WRITES]), []);
    assert_eq!(found(&[FORMAT_2, BOUND, READS, WRITES, (WHEN, "when: bound.claim != \"0\"")]), []);
    let unbound = [("unbound_name", "/rules/1/trigger".to_owned())];
    assert_eq!(found(&[FORMAT_2, READS]), unbound);
    assert_eq!(found(&[FORMAT_2, (TRIGGER, "trigger: {op: add, path: \"/claims/{other}\"}"), WRITES]), unbound);
    let when = [("unknown_member", "/rules/1/when".to_owned())];
    assert_eq!(found(&[FORMAT_2, BOUND, READS, (WHEN, "when: bound.clam != \"0\"")]), when);
    assert_eq!(found(&[FORMAT_2, (WHEN, "when: bound.claim != \"0\"")]), when);
    // The condition of a grant requires the names that it uses to be bound.
    const LOOKS: (&str, &str) =
        ("reads: [/request, /claims]", "reads: [/request, {path: /claims, where: bound.claim == \"0\"}]");
    assert_eq!(found(&[FORMAT_2, BOUND, LOOKS]), []);
    assert_eq!(found(&[FORMAT_2, LOOKS]), [("unbound_name", "/rules/1/trigger".to_owned())]);
    // Only a signal binds its payload.
    const SIGNAL: (&str, &str) = (
        "trigger: {op: add, path: /claims/*}\n    when: value.text != \"\"",
        "trigger: {signal: look}\n    bind: {claim: /id}",
    );
    assert_eq!(found(&[FORMAT_2, SIGNAL, READS, WRITES]), []);
    const CARRIED: (&str, &str) = ("\nrules:", "\nsignals: {look: {}}\nrules:");
    assert_eq!(found(&[FORMAT_2, SIGNAL, READS, WRITES, CARRIED]), []);
    let never = [("unbound_name", "/rules/1/bind/claim".to_owned())];
    const CARRIED_0: (&str, &str) =
        ("look: {}", "look: {type: object, properties: {id: {type: integer}}, additionalProperties: false}");
    assert_eq!(found(&[FORMAT_2, SIGNAL, READS, WRITES, CARRIED, CARRIED_0]), []);
    const CARRIED_1: (&str, &str) = ("look: {}", "look: {type: object, properties: {id: {}}}");
    assert_eq!(found(&[FORMAT_2, SIGNAL, READS, WRITES, CARRIED, CARRIED_1]), []);
    const CARRIED_2: (&str, &str) =
        ("look: {}", "look: {type: object, properties: {is: {}}, additionalProperties: false}");
    assert_eq!(found(&[FORMAT_2, SIGNAL, READS, WRITES, CARRIED, CARRIED_2]), never);
    const CARRIED_3: (&str, &str) = ("look: {}", "look: {type: object, properties: {id: {type: array}}}");
    assert_eq!(found(&[FORMAT_2, SIGNAL, READS, WRITES, CARRIED, CARRIED_3]), never);
    const CARRIED_4: (&str, &str) = ("look: {}", "look: {type: string}");
    assert_eq!(found(&[FORMAT_2, SIGNAL, READS, WRITES, CARRIED, CARRIED_4]), never);
    // One invocation for each place of the initial document.
    const EACH: (&str, &str) = (TRIGGER, "trigger: {start: \"/claims/{claim}\"}");
    const GIVEN: (&str, &str) = ("initial: {claims: []}", "initial: {claims: [{text: a}]}");
    assert_eq!(found(&[FORMAT_2, EACH, READS, WRITES, GIVEN]), []);
    assert_eq!(found(&[FORMAT_2, EACH, READS, WRITES]), [("never_fires", "/rules/1/trigger".to_owned())]);
    const PART: (&str, &str) = ("reads: [/request, /claims]", "reads: [/request, /claims, \"/claims/x{claim}\"]");
    assert!(found(&[FORMAT_2, PART]).contains(&("literal_name", "/workers/writer/reads/2".to_owned())));
    assert_eq!(
        found(&[FORMAT_2, (TRIGGER, "trigger: {start: /nowhere/*}"), (WHEN, "")]),
        [("unknown_path", "/rules/1/trigger/start".to_owned())]
    );
    let in_format_1 = found(&[SIGNAL]);
    assert_eq!(in_format_1, [("newer_format", "/rules/1/bind".to_owned())]);
    const BIND: (&str, &str) = (WHEN, "bind: {claim: /text}");
    assert_eq!(found(&[FORMAT_2, BIND]), [("bad_rule", "/rules/1/bind".to_owned())]);
    const TWICE: (&str, &str) = (TRIGGER, "trigger: {op: add, path: \"/claims/{a}/{a}\"}");
    assert_eq!(found(&[FORMAT_2, TWICE, (WHEN, "")])[0], ("bad_pattern", "/rules/1/trigger/path".to_owned()));
    const NO_NAME: (&str, &str) = (TRIGGER, "trigger: {op: add, path: \"/claims/{a-b}\"}");
    assert_eq!(found(&[FORMAT_2, NO_NAME]), [("bad_pattern", "/rules/1/trigger/path".to_owned())]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Lines of the valid blueprint are removed, duplicated, moved or replaced; the lint must not panic.
    #[test]
    fn no_mangled_blueprint_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..5u8), 1..4),
        junk in "[ -~]{0,20}",
    ) {
        let mut lines: Vec<String> = SOUND.lines().map(str::to_owned).collect();
        for (from, to, kind) in edits {
            let (from, to) = (from.index(lines.len()), to.index(lines.len()));
            let line = lines[from].clone();
            match kind {
                0 => drop(lines.remove(from)),
                1 => lines.insert(to, line),
                2 => lines.swap(from, to),
                3 => lines[from] = format!("{}{junk}", &line[..line.len() - line.trim_start().len()]),
                _ => lines[from] = line.replace(['/', '*'], &junk),
            }
            if lines.is_empty() {
                break;
            }
        }
        let text = lines.join("\n");
        if let Ok(source) = Source::read("x", &text) {
            let report = patchboard_protocols::check(&source);
            prop_assert!(report.findings.len() <= FINDINGS_MAX);
            prop_assert!(report.findings.iter().all(|finding| finding.position.is_some()), "{:?}", report.findings);
        }
    }
}

#[test]
fn regular_expressions_of_all_schemas_of_a_blueprint_count_together() {
    // Each of them is within the limit on its own.
    let with = |count: usize| {
        let grants = (0..count).map(|index| {
            let pattern = format!(r"^\p{{L}}{{1,{}}}$", 190 + index);
            json!({"path": format!("/a{index}"), "ops": ["add"], "value": {"pattern": pattern}})
        });
        patchboard_protocols::check_value(json!({
            "blueprint": 1,
            "name": "letters",
            "state": {"schema": {"type": "object"}, "initial": {}},
            "workers": {"w": {"agent": "llm", "role": "Write.", "writes": grants.collect::<Vec<_>>()}},
            "rules": [{"name": "r", "trigger": "start", "run": "w"}],
        }))
    };
    let accepted = with(5);
    let blueprint = accepted.blueprint.unwrap_or_else(|| panic!("{:?}", accepted.findings));
    assert!(PLANS.plan(blueprint, &Mode::default()).is_ok());
    let refused = with(9);
    let errors = refused.findings.iter().filter(|finding| finding.severity == Severity::Error);
    let codes: Vec<_> = errors.map(|finding| (finding.code, finding.pointer.as_str())).collect();
    assert_eq!(codes, [("bad_schema", "/workers/w/writes/5/value")], "{:?}", refused.findings);
    assert!(refused.findings.iter().any(|finding| finding.message.contains("more than 16 MiB")));
}

#[test]
fn a_grant_that_only_removes_checks_no_value() {
    const BOTH: &str =
        "- {path: /claims/-, ops: [add], value: {required: [text]}}\n      - {path: /claims/*, ops: [remove]}";
    let codes = found(&[("- {path: /claims/-, ops: [add]}", BOTH)]);
    assert!(codes.iter().all(|(code, _)| *code != "overlapping_grants"), "{codes:?}");
}

#[test]
fn a_worker_that_sees_what_woke_it_makes_no_storm() {
    const SIDE_BY_SIDE: (&str, &str) = ("concurrency: 1\n", "");
    const TARGET: (&str, &str) = ("  writer:\n", "  writer:\n    freshness: target\n");
    const ONE: (&str, &str) = ("  writer:\n", "  writer:\n    limits: {concurrency: 1}\n");
    const ELEMENT: (&str, &str) = ("reads: [/request, /claims]", "reads: [/request, /claims/*/text]");
    assert_eq!(found(&[SIDE_BY_SIDE]), [("stale_storm", "/rules/1/run".to_owned())]);
    for codes in [found(&[SIDE_BY_SIDE, TARGET]), found(&[SIDE_BY_SIDE, ONE]), found(&[SIDE_BY_SIDE, ELEMENT])] {
        assert!(codes.iter().all(|(code, _)| *code != "stale_storm"), "{codes:?}");
    }
}

/// Returns codes and places of the findings for a blueprint that triggers a group of two at the start and joins it.
fn group(format: u8, run: &str) -> Vec<(&'static str, String)> {
    let text = format!(
        r#"blueprint: {format}
name: group
state:
  schema: {{properties: {{a: {{type: string}}, b: {{type: string}}, end: {{type: string}}}}}}
workers:
  a: {{agent: llm, group: g, reads: [/request], writes: [{{path: /a}}]}}
  b: {{agent: llm, group: g, reads: [/request], writes: [{{path: /b}}]}}
  c: {{agent: llm, reads: [/a, /b], writes: [{{path: /end}}]}}
rules:
  - {{name: all, trigger: start, run: {run}}}
  - {{name: end, trigger: {{after: [all]}}, run: c}}
done: {{when: has(state.end)}}
"#
    );
    let report = patchboard_protocols::check(&Source::read("group", &text).expect("it is YAML"));
    report.findings.into_iter().map(|finding| (finding.code, finding.pointer)).collect()
}

#[test]
fn a_join_that_fires_after_the_first_worker_of_a_group_is_found() {
    assert_eq!(group(1, "{group: g}"), [("first_only", "/rules/1/trigger/after".to_owned())]);
    assert_eq!(group(2, "{group: g}"), []);
    assert!(group(1, "a").iter().all(|(code, _)| *code != "first_only"));
}

#[test]
fn a_grant_on_members_moves_no_element() {
    let found = |removed: &str| {
        let text = format!(
            r#"blueprint: 2
name: moves
state:
  schema: {{properties: {{l: {{type: array, items: {{properties: {{s: {{type: string}}, t: {{type: string}}}}}}}}}}}}
  initial: {{l: []}}
workers:
  w: {{agent: llm, reads: ["/l/{{i}}"], writes: [{{path: "/l/{{i}}/t"}}, {{path: /l/-, ops: [add]}}]}}
  clean: {{agent: llm, reads: [/l], writes: [{{path: "{removed}", ops: [remove]}}]}}
rules:
  - {{name: begin, trigger: start, run: clean}}
  - {{name: each, trigger: {{op: add, path: "/l/{{i}}"}}, run: w}}
done: {{when: "size(state.l) == 3"}}
"#
        );
        let report = patchboard_protocols::check(&Source::read("moves", &text).expect("it is YAML"));
        report.findings.iter().any(|finding| finding.code == "index_grant")
    };
    assert!(!found("/**/s") && !found("/l/*/s"));
    assert!(found("/l/*") && found("/**") && found("/l/0"));
}

#[test]
fn values_that_fit_no_place_are_found_however_they_are_written() {
    let finds = |there: &str, value: &str| {
        let text = format!(
            r#"blueprint: 2
name: values
state:
  schema: {{properties: {{l: {{type: array, items: {there}}}}}}}
  initial: {{l: []}}
workers:
  w: {{agent: llm, reads: [/l], writes: [{{path: /l/-, ops: [add], value: {value}}}]}}
rules: [{{name: begin, trigger: start, run: w}}]
done: {{when: "size(state.l) == 1"}}
"#
        );
        let report = patchboard_protocols::check(&Source::read("values", &text).expect("it is YAML"));
        assert!(report.blueprint.is_some(), "{:?}\n{text}", report.findings);
        report.findings.iter().any(|finding| finding.code == "value_never_fits")
    };
    let note = "{type: object, required: [t, s], properties: {t: {type: string}, s: {enum: [a, b]}}}";
    let closed = "{type: object, additionalProperties: false, properties: {t: {type: string}}}";
    for (there, value) in [
        (note, "{properties: {s: false}}"),
        (note, "{additionalProperties: false, properties: {t: {type: string}}}"),
        (note, "{maxProperties: 1}"),
        (note, "{allOf: [{properties: {s: {const: c}}}]}"),
        (note, "{anyOf: [{properties: {s: {const: c}}}, {type: string}]}"),
        (closed, "{required: [s]}"),
        ("{type: number, maximum: 9}", "{exclusiveMinimum: 9}"),
        ("{type: number, exclusiveMaximum: 9}", "{minimum: 9}"),
        ("{oneOf: [{const: a}, {const: b}]}", "{type: integer}"),
        ("{type: array, items: {enum: [a, b]}}", "{items: {const: z}, minItems: 1}"),
    ] {
        assert!(finds(there, value), "{there} {value}");
    }
    for (there, value) in [
        (note, "{properties: {s: {const: a}}}"),
        (note, "{maxProperties: 2}"),
        (note, "{anyOf: [{properties: {s: {const: c}}}, {properties: {s: {const: a}}}]}"),
        (note, "{additionalProperties: false, properties: {t: {type: string}, s: {type: string}}}"),
        (closed, "{properties: {s: false}}"),
        ("{type: number, maximum: 9}", "{minimum: 9}"),
        ("{oneOf: [{const: a}, {type: integer}]}", "{type: integer}"),
        ("{type: array, items: {enum: [a, b]}}", "{items: {const: z}}"),
        ("{type: [object, string], required: [t]}", "{additionalProperties: false}"),
    ] {
        assert!(!finds(there, value), "{there} {value}");
    }
}
