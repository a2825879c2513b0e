//! Fixtures for the lint: changes of a valid blueprint, each with the code that it must produce.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_lint::Diagnostic;
use patchboard_lint::source::{FileLoader, Source};
use patchboard_protocols::PLANS;

/// A blueprint without any finding.
pub(super) const SOUND: &str = r##"blueprint: 1
name: review
concurrency: 1
request: {type: object, required: [question], properties: {question: {type: string}}}
state:
  schema:
    type: object
    required: [claims]
    additionalProperties: false
    properties:
      request: true
      claims: {type: array, items: {$ref: "#/$defs/claim"}}
      answer: {type: string}
    $defs:
      claim:
        type: object
        required: [text]
        additionalProperties: false
        properties: {text: {type: string}, status: {enum: [draft, verified]}}
  initial: {claims: []}
workers:
  extractor:
    agent: llm
    reads: [/request/question, /claims]
    writes:
      - {path: /claims/-, ops: [add]}
  writer:
    agent: llm
    reads: [/request, /claims]
    writes:
      - {path: /answer, ops: [add]}
      - {path: /claims/*/status}
rules:
  - {name: begin, trigger: start, run: extractor}
  - name: claim-wakes-writer
    trigger: {op: add, path: /claims/*}
    when: value.text != ""
    run: writer
invariants:
  - {name: has-text, for: /claims/*, expr: size(self.text) > 0}
done: {when: has(state.answer)}
"##;

/// Expected code, and the changes of [`SOUND`] that produce it. A change is a text that occurs exactly once, and its
/// replacement.
pub(super) struct Fixture {
    pub(super) code: &'static str,
    pub(super) changes: &'static [(&'static str, &'static str)],
    /// Fragments by name; resolved only if there are any.
    pub(super) fragments: &'static [(&'static str, &'static str)],
    /// Request of the board to create, if one is created.
    pub(super) request: Option<&'static str>,
}

pub(super) const fn change(code: &'static str, changes: &'static [(&'static str, &'static str)]) -> Fixture {
    with(code, changes, &[])
}

/// Like [`change`], with fragments.
pub(super) const fn with(
    code: &'static str,
    changes: &'static [(&'static str, &'static str)],
    fragments: &'static [(&'static str, &'static str)],
) -> Fixture {
    Fixture { code, changes, fragments, request: None }
}

/// Switches to blueprint format 2.
pub(super) const FORMAT_2: (&str, &str) = ("blueprint: 1\n", "blueprint: 2\n");

/// Last line of the blueprint.
pub(super) const END: &str = "done: {when: has(state.answer)}\n";

/// Blueprint for a board nested in [`SOUND`].
pub(super) const INSIDE: &str = r#"blueprint: 1
name: inside
request:
  type: object
  required: [text]
  additionalProperties: false
  properties: {text: {type: string}, hint: {type: string}}
state:
  schema: {type: object, properties: {request: true, found: {type: object}}}
workers:
  finder: {agent: llm, reads: [/request], writes: [{path: /found}]}
rules:
  - {name: begin, trigger: start, run: finder}
done: {when: has(state.found)}
"#;

/// Variant of [`INSIDE`] for a board that never completes.
pub(super) const ENDLESS: &str = r#"blueprint: 1
name: inside
state: {schema: {type: object, properties: {request: true, found: {type: string}}}}
workers:
  finder: {agent: llm, reads: [/request], writes: [{path: /foumd}]}
rules:
  - {name: begin, trigger: start, run: finder}
"#;

/// Request that exceeds a small view budget.
pub(super) const LONG_REQUEST: &str = concat!(
    "{\"question\": \"",
    "Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? ",
    "Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? ",
    "Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? ",
    "Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? ",
    "Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? ",
    "Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? ",
    "Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? ",
    "Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? Why? ",
    "\"}"
);

/// Replaces a worker by a nested board.
pub(super) const IS_INSIDE: (&str, &str) = (
    "  extractor:\n    agent: llm",
    "  extractor:\n    agent: board\n    board: {of: inside, input: {text: /request/question}, output: {/claims/-: /found}}",
);

/// Declares the file of the nested board.
pub(super) const HAS_INSIDE: (&str, &str) = (END, "done: {when: has(state.answer)}\nboards: {inside: inside.yaml}\n");

/// Declares a departments folder and the promises that departments may use.
pub(super) const HAS_DEPARTMENTS: (&str, &str) = (
    END,
    "done: {when: has(state.answer)}\ndepartments: {from: departments, promises: {text: /request/question}, into: /claims/-, group: departments}\n",
);

/// Workflow with one node more than the limit.
pub(super) const TOO_MANY_NODES: &str = "nodes: {n00: {agent_id: writer}, n01: {agent_id: writer}, n02: {agent_id: writer}, n03: {agent_id: writer}, n04: {agent_id: writer}, n05: {agent_id: writer}, n06: {agent_id: writer}, n07: {agent_id: writer}, n08: {agent_id: writer}, n09: {agent_id: writer}, n10: {agent_id: writer}, n11: {agent_id: writer}, n12: {agent_id: writer}, n13: {agent_id: writer}, n14: {agent_id: writer}, n15: {agent_id: writer}, n16: {agent_id: writer}, n17: {agent_id: writer}, n18: {agent_id: writer}, n19: {agent_id: writer}, n20: {agent_id: writer}, n21: {agent_id: writer}, n22: {agent_id: writer}, n23: {agent_id: writer}, n24: {agent_id: writer}, n25: {agent_id: writer}, n26: {agent_id: writer}, n27: {agent_id: writer}, n28: {agent_id: writer}, n29: {agent_id: writer}, n30: {agent_id: writer}, n31: {agent_id: writer}, n32: {agent_id: writer}, n33: {agent_id: writer}, n34: {agent_id: writer}, n35: {agent_id: writer}, n36: {agent_id: writer}, n37: {agent_id: writer}, n38: {agent_id: writer}, n39: {agent_id: writer}, n40: {agent_id: writer}, n41: {agent_id: writer}, n42: {agent_id: writer}, n43: {agent_id: writer}, n44: {agent_id: writer}, n45: {agent_id: writer}, n46: {agent_id: writer}, n47: {agent_id: writer}, n48: {agent_id: writer}, n49: {agent_id: writer}, n50: {agent_id: writer}, n51: {agent_id: writer}, n52: {agent_id: writer}, n53: {agent_id: writer}, n54: {agent_id: writer}, n55: {agent_id: writer}, n56: {agent_id: writer}, n57: {agent_id: writer}, n58: {agent_id: writer}, n59: {agent_id: writer}, n60: {agent_id: writer}, n61: {agent_id: writer}, n62: {agent_id: writer}, n63: {agent_id: writer}, n64: {agent_id: writer}}\n";

/// Declares a workflow in a separate file.
pub(super) const HAS_WORKFLOW: (&str, &str) = (END, "done: {when: has(state.answer)}\nworkflow: flow.yaml\n");

/// Expects a finding about a workflow in a separate file.
pub(super) const fn flow(code: &'static str, fragments: &'static [(&'static str, &'static str)]) -> Fixture {
    with(code, &[HAS_WORKFLOW], fragments)
}

/// Department that fits [`SOUND`], except for the type of its results.
pub(super) const DEPARTMENT: &str = r#"department: 1
name: notes
description: Keeps notes.
needs:
  text: {type: string}
storage:
  entity: note
  fields:
    item: {type: string}
actions:
  add: {does: insert, description: keeps a note, sets: [item], confirm: "Noted: {item}."}
"#;

/// Variant with an additional need.
pub(super) const NEEDY: &str = r#"department: 1
name: notes
description: Keeps notes.
needs:
  text: {type: string}
  question_mark: {type: boolean}
storage: {entity: note, fields: {item: {type: string}}}
actions:
  add: {does: insert, description: keeps a note, sets: [item], confirm: "Noted: {item}."}
"#;

/// Variant with an input that is mapped from a promise that does not exist.
pub(super) const MAPPED: &str = r#"department: 1
name: notes
description: Keeps notes.
needs:
  text: {type: string}
dispatch: {input: {text: words}}
storage: {entity: note, fields: {item: {type: string}}}
actions:
  add: {does: insert, description: keeps a note, sets: [item], confirm: "Noted: {item}."}
"#;

/// Variant that expects a number instead of text.
pub(super) const COUNTING: &str = r#"department: 1
name: notes
description: Keeps notes.
needs:
  text: {type: integer}
storage: {entity: note, fields: {item: {type: string}}}
actions:
  add: {does: insert, description: keeps a note, sets: [item], confirm: "Noted: {item}."}
"#;

/// Variant with several errors; only the first is reported.
pub(super) const UNFIT: &str = r#"department: 1
name: notes
description: Keeps notes.
needs: {text: {type: string}}
storage: {entity: note, fields: {item: {type: string}}}
actions:
  add: {does: insert, description: keeps a note, sets: [thing], confirm: "Noted: {item}."}
  none: {does: delete, description: takes it away, finds: [item], confirm: "Gone: {place}."}
"#;

/// Variant with a misspelt field.
pub(super) const MISSPELT: &str = r#"department: 1
name: notes
descripton: Keeps notes.
"#;

/// Puts the writer into a group.
pub(super) const GROUPED: (&str, &str) = ("  writer:\n    agent: llm", "  writer:\n    group: team\n    agent: llm");
/// Makes a rule wait for a signal.
pub(super) const GO: (&str, &str) = ("trigger: start, run: extractor", "trigger: {signal: go}, run: extractor");
/// Adds a handoff agent and a group that may receive the claims.
pub(super) const DESK: (&str, &str) =
    (EXTRACTOR, "  extractor:\n    agent: builtin:handoff\n    with: {tasks: /claims}");
pub(super) const IN_AGENTS: (&str, &str) =
    ("  writer:\n    agent: llm", "  writer:\n    group: agents\n    agent: llm");
/// Worker definition that fixtures replace.
pub(super) const EXTRACTOR: &str = "  extractor:\n    agent: llm";

pub(super) const FIXTURES: &[Fixture] = &[
    // Parsing of the file.
    change("yaml_syntax", &[("name: review", "name: 0o17")]),
    change("yaml_syntax", &[("reads: [/request, /claims]", "reads: [/request, /claims")]),
    change("duplicate_key", &[("name: review", "name: review\nname: other")]),
    change(
        "too_large",
        &[(
            "name: review",
            "name: &a [[[[[[[[[[x]]]]]]]]]]\ndeep: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
        )],
    ),
    with("fragment_unreadable", &[(END, "use: [missing.yaml]\n")], &[("other.yaml", "")]),
    with("bad_fragment", &[(END, "use: [f.yaml]\n")], &[("f.yaml", "limits: {commits: 1}\n")]),
    with("fragment_clash", &[(END, "use: [f.yaml]\n")], &[("f.yaml", "workers:\n  writer: {agent: llm}\n")]),
    with("fragment_cycle", &[(END, "use: [f.yaml]\n")], &[("f.yaml", "use: [f.yaml]\n")]),
    with(
        "fragment_limit",
        &[(END, "use: [a]\n")],
        &[
            ("a", "use: [b]"),
            ("b", "use: [c]"),
            ("c", "use: [d]"),
            ("d", "use: [e]"),
            ("e", "use: [f]"),
            ("f", "use: [g]"),
            ("g", "use: [h]"),
            ("h", "use: [i]"),
            ("i", "rules: []"),
        ],
    ),
    with("fragment_unreadable", &[HAS_DEPARTMENTS], &[("f.yaml", "")]),
    with("fragment_unreadable", &[HAS_DEPARTMENTS], &[("departments/notes/readme.md", "")]),
    with(
        "fragment_clash",
        &[HAS_DEPARTMENTS, ("  extractor:\n", "  notes: {agent: human}\n  extractor:\n")],
        &[("departments/notes/department.yaml", DEPARTMENT)],
    ),
    with("unmet_need", &[HAS_DEPARTMENTS], &[("departments/notes/department.yaml", NEEDY)]),
    with("unmet_need", &[HAS_DEPARTMENTS], &[("departments/notes/department.yaml", MAPPED)]),
    with("mismatched_type", &[HAS_DEPARTMENTS], &[("departments/notes/department.yaml", COUNTING)]),
    with("bad_department", &[HAS_DEPARTMENTS], &[("departments/lists/department.yaml", DEPARTMENT)]),
    with("bad_department", &[HAS_DEPARTMENTS], &[("departments/notes/department.yaml", UNFIT)]),
    with("unknown_field", &[HAS_DEPARTMENTS], &[("departments/notes/department.yaml", MISSPELT)]),
    // A finding about the blueprint's own text is reported there: the promised place, and the destination of results.
    with(
        "unknown_path",
        &[(
            END,
            "done: {when: has(state.answer)}\ndepartments:\n  from: departments\n  promises: {text: /question}\n  into: /results/-\n  group: departments\n",
        )],
        &[("departments/notes/department.yaml", DEPARTMENT)],
    ),
    change("unresolved_fragment", &[HAS_DEPARTMENTS]),
    change("unresolved_fragment", &[HAS_WORKFLOW]),
    // Workflows.
    flow("fragment_unreadable", &[("f.yaml", "")]),
    flow("workflow_empty", &[("flow.yaml", "nodes: {}\n")]),
    flow("workflow_too_large", &[("flow.yaml", TOO_MANY_NODES)]),
    flow("workflow_node_id", &[("flow.yaml", "nodes:\n  writer: {node_id: scribe}\n")]),
    flow("workflow_node_name", &[("flow.yaml", "nodes:\n  \"to write\": {agent_id: writer}\n")]),
    flow("workflow_self_dependency", &[("flow.yaml", "nodes:\n  writer: {dependencies: [writer]}\n")]),
    flow(
        "workflow_unknown_dependency",
        &[("flow.yaml", "nodes:\n  writer: {dependencies: [extract]}\n  extractor: {}\n")],
    ),
    flow(
        "workflow_cycle_detected",
        &[(
            "flow.yaml",
            "nodes:\n  writer: {dependencies: [extractor]}\n  extractor:\n    dependencies:\n      - writer\n",
        )],
    ),
    flow(
        "workflow_bad_trigger",
        &[("flow.yaml", "nodes:\n  writer: {signal: go}\n  extractor: {trigger_type: EVENT, every: \"* * * * *\"}\n")],
    ),
    flow(
        "workflow_unreachable_node",
        &[("flow.yaml", "nodes:\n  extractor: {trigger_type: SCHEDULE}\n  writer: {dependencies: [extractor]}\n")],
    ),
    flow(
        "workflow_shared_output",
        &[(
            "flow.yaml",
            "nodes:\n  extractor: {output_mapping: {found: text}}\n  writer: {output_mapping: {written: text}}\n",
        )],
    ),
    change("handoff_unguarded", &[DESK, IN_AGENTS]),
    flow("undeclared_worker", &[("flow.yaml", "nodes:\n  writer: {agent_id: writr}\n  scribe: {}\n")]),
    flow("bad_condition", &[("flow.yaml", "nodes:\n  writer: {when: state.x > 0}\n")]),
    flow("not_boolean", &[("flow.yaml", "nodes:\n  writer: {when: data.x + 1}\n")]),
    flow("bad_schedule", &[("flow.yaml", "nodes:\n  writer: {trigger_type: SCHEDULE, every: \"0 0 30 2 *\"}\n")]),
    flow("unknown_field", &[("flow.yaml", "nodes:\n  writer: {depends: [extractor]}\n")]),
    flow("bad_value", &[("flow.yaml", "nodes:\n  writer: {trigger_type: TIMER}\n")]),
    with(
        "fragment_clash",
        &[
            HAS_WORKFLOW,
            ("{name: begin,", "{name: run-writer,"),
            ("      answer: {type: string}", "      answer: {type: string}\n      workflow: {type: object}"),
        ],
        &[("flow.yaml", "nodes:\n  writer: {}\n")],
    ),
    // A finding about the blueprint's own text is reported there.
    with(
        "workflow_cycle_detected",
        &[(
            END,
            "done: {when: has(state.answer)}\nworkflow:\n  nodes:\n    writer: {dependencies: [extractor]}\n    extractor: {dependencies: [writer]}\n",
        )],
        &[("f.yaml", "")],
    ),
    change("unresolved_fragment", &[(END, "done: {when: has(state.answer)}\nuse: [f.yaml]\n")]),
    // A finding inside a fragment names its file.
    with(
        "undeclared_worker",
        &[(END, "done: {when: has(state.answer)}\nuse: [f.yaml]\n")],
        &[("f.yaml", "rules:\n  - {name: again, trigger: manual, run: righter}\n")],
    ),
    // Structure.
    change("unknown_field", &[("    reads: [/request, /claims]", "    read: [/request, /claims]")]),
    change("unknown_field", &[(END, "banana: 1\n")]),
    change("missing_field", &[("blueprint: 1\n", "")]),
    change("bad_type", &[("reads: [/request, /claims]", "reads: /request")]),
    change(
        "bad_type",
        &[("    reads: [/request, /claims]", "    limits: {timeout: 60}\n    reads: [/request, /claims]")],
    ),
    change("bad_value", &[("{path: /answer, ops: [add]}", "{path: /answer, ops: [ad]}")]),
    change("bad_value", &[("  writer:\n    agent: llm", "  writer:\n    agent: lm")]),
    change("bad_value", &[("  writer:\n", "  writer:\n    view: {budget: 9000000}\n")]),
    change("bad_value", &[("  writer:\n", "  wri ter:\n")]),
    change("bad_value", &[(END, "circuit: {no_ops: {limit: 2, then: explode}}\n")]),
    change("bad_value", &[(EXTRACTOR, "  extractor:\n    agent: llm\n    with: {answers: /claims}")]),
    change("bad_value", &[(EXTRACTOR, "  extractor:\n    agent: llm\n    format: critic")]),
    change("bad_value", &[(EXTRACTOR, "  extractor:\n    agent: llm\n    format: critics")]),
    change(
        "bad_value",
        &[(EXTRACTOR, "  extractor:\n    agent: llm\n    format: expert\n    patch: {intent: required}")],
    ),
    change("bad_value", &[(EXTRACTOR, "  extractor:\n    agent: builtin:vote\n    patch: {intent: required}")]),
    with(
        "bad_value",
        &[IS_INSIDE, ("/claims/-: /found}}", "/claims/-: /found}}\n    patch: {intent: required}"), HAS_INSIDE],
        &[("inside.yaml", INSIDE)],
    ),
    with(
        "bad_value",
        &[
            IS_INSIDE,
            ("/claims/-: /found}}", "/claims/-: /found, /answer: /found}}\n    patch: {max_ops: 1}"),
            ("{path: /claims/-, ops: [add]}", "{path: /claims/-, ops: [add]}\n      - {path: /answer, ops: [add]}"),
            HAS_INSIDE,
        ],
        &[("inside.yaml", INSIDE)],
    ),
    change("unavailable_agent", &[(EXTRACTOR, "  extractor:\n    agent: builtin:voting")]),
    change("bad_value", &[("  writer:\n", "  writer:\n    limits: {timeout: 5 parsecs}\n")]),
    change("bad_value", &[("blueprint: 1", "blueprint: 3")]),
    change("newer_format", &[(END, "done: {when: has(state.answer)}\nlimits: {money: 2.5}\n")]),
    change("newer_format", &[(END, "done: {when: has(state.answer)}\nlimits: {patience: 1h}\n")]),
    change("newer_format", &[("  writer:\n", "  writer:\n    limits: {money: 0.1}\n")]),
    change(
        "newer_format",
        &[
            ("  writer:\n", "  writer:\n    clarify: {by: editor, expires: never}\n"),
            (EXTRACTOR, "  editor: {agent: human}\n  extractor:\n    agent: llm"),
        ],
    ),
    change("newer_format", &[("  writer:\n", "  writer:\n    limits: {unmetered_concurrency: true}\n")]),
    change("newer_format", &[("    run: writer\n", "    run: writer\n    priority: high\n")]),
    change("renamed_field", &[FORMAT_2, ("  writer:\n", "  writer:\n    limits: {exempt: true}\n")]),
    change("renamed_field", &[FORMAT_2, ("    run: writer\n", "    run: writer\n    urgent: true\n")]),
    change(
        "duplicate_key",
        &[FORMAT_2, ("    run: writer\n", "    run: writer\n    urgent: true\n    priority: high\n")],
    ),
    change("bad_value", &[("    run: writer\n", "    run: writer\n    priority: low\n")]),
    change("bad_value", &[(END, "models: {crowd: []}\n")]),
    change("bad_value", &[(END, "backlog: {go: {at: /claims, max: 3}}\n")]),
    change("bad_value", &[(END, "backlog: {go: {at: \"/claims/*\", max: 3}}\n"), GO]),
    change("bad_value", &[(END, "backlog: {go: {at: /claims, max: 0}}\n"), GO]),
    change("unknown_path", &[(END, "backlog: {go: {at: /claim, max: 3}}\n"), GO]),
    change("infinite_budget", &[("  writer:\n", "  writer:\n    view: {budget: unlimited}\n")]),
    change("infinite_budget", &[("  writer:\n", "  writer:\n    limits: {attempts: 0, timeout: 0s, tokens:}\n")]),
    change("infinite_budget", &[(END, "limits: {wall: never}\ncircuit: {rejections: {then: stop_board}}\n")]),
    // Other errors are still reported beside a number that JSON cannot represent.
    change("infinite_budget", &[("  writer:\n", "  writer:\n    view: {budget: .inf}\n"), (END, "banana: 1\n")]),
    change("infinite_budget", &[("  writer:\n", "  writer:\n    limits: {tokens: -.nan, attempts: 1e400}\n")]),
    change("yaml_syntax", &[("initial: {claims: []}", "initial: {claims: [], answer: .nan}"), (END, "banana: 1\n")]),
    change("bad_rule", &[("trigger: start", "trigger: begin")]),
    change("bad_rule", &[("trigger: {op: add, path: /claims/*}", "trigger: {on: add, path: /claims/*}")]),
    change("bad_rule", &[("trigger: start, run: extractor", "trigger: start, run: extractor, delay: {at: /ms}")]),
    change("bad_rule", &[("trigger: start, run: extractor", "trigger: start, run: extractor, delay: 400d")]),
    change("bad_rule", &[("trigger: start, run: extractor", "trigger: start, run: extractor, delay: never")]),
    change("bad_rule", &[GROUPED, ("trigger: start, run: extractor", "trigger: start, run: {group: team, at: /who}")]),
    change("bad_rule", &[GROUPED, ("when: value.text != \"\"\n    run: writer", "run: {group: team, at: text}")]),
    change("bad_value", &[("trigger: start, run: extractor", "trigger: start, run: [extractor]")]),
    change("bad_value", &[("  writer:\n", "  writer:\n    description: |\n      Two\n      lines.\n")]),
    change(
        "indistinct_worker",
        &[
            (EXTRACTOR, "  extractor:\n    group: team\n    description: Does  it.\n    agent: llm"),
            ("  writer:\n    agent: llm", "  writer:\n    group: team\n    description: does it.\n    agent: llm"),
            ("when: value.text != \"\"\n    run: writer", "run: {group: team, at: /text}"),
        ],
    ),
    change("unknown_path", &[GROUPED, ("when: value.text != \"\"\n    run: writer", "run: {group: team, at: /txt}")]),
    // Names.
    change("undeclared_group", &[GROUPED, ("trigger: start, run: extractor", "trigger: start, run: {group: tam}")]),
    change("undeclared_group", &[("trigger: start, run: extractor", "trigger: start, run: {group: team}")]),
    change("reserved_name", &[GROUPED, ("    $defs:\n", "    $defs:\n      \"group:team\": {type: string}\n")]),
    change("undeclared_worker", &[("trigger: start, run: extractor", "trigger: start, run: extracter")]),
    change(
        "undeclared_worker",
        &[(END, "done: {when: has(state.answer)}\ncircuit: {budget: {then: {wake: nobody}}}\n")],
    ),
    change(
        "undeclared_rule",
        &[("trigger: {op: add, path: /claims/*}\n    when: value.text != \"\"", "trigger: {after: [begun]}")],
    ),
    change("unknown_model", &[("  writer:\n", "  writer:\n    model: crow\n"), (END, "models: {crowd: [a, b]}\n")]),
    change(
        "unknown_model",
        &[
            ("  writer:\n", "  writer:\n    model: larg\n"),
            (END, "done: {when: has(state.answer)}\nmodels: {large: x}\n"),
        ],
    ),
    change("duplicate_name", &[("name: claim-wakes-writer", "name: begin")]),
    change(
        "duplicate_name",
        &[(END, "  - {name: has-text, expr: size(state.claims) < 9}\ndone: {when: has(state.answer)}\n")],
    ),
    change("reserved_name", &[("      answer: {type: string}", "      answer: {type: string}\n      $expand: {}")]),
    change("reserved_name", &[("initial: {claims: []}", "initial: {claims: [], request: {question: why}}")]),
    change("reserved_name", &[("reads: [/request, /claims]", "reads: [/request, /claims, /$expand]")]),
    change("unavailable_agent", &[("  writer:\n    agent: llm", "  writer:\n    agent: human")]),
    change("bad_value", &[("{path: /answer, ops: [add]}", "{path: /answer, ops: [add], approval: {by: writer}}")]),
    change("bad_value", &[("  writer:\n    agent: llm", "  writer:\n    clarify: {by: writer}\n    agent: llm")]),
    change("bad_schedule", &[("trigger: start", "trigger: {every: \"0 0 30 2 *\"}")]),
    change("bad_command", &[("  writer:\n", "  writer:\n    program: [rm, -r]\n    script: [[]]\n")]),
    change("bad_command", &[("  writer:\n    agent: llm", "  writer:\n    agent: script")]),
    change(
        "bad_command",
        &[("  writer:\n    agent: llm", "  writer:\n    agent: command\n    command: a\n    program: [b]")],
    ),
    // Files.
    change("bad_files", &[("  writer:\n    agent: llm", "  writer:\n    files: {edit: [src/**]}\n    agent: llm")]),
    change(
        "bad_files",
        &[
            ("  writer:\n    agent: llm", "  writer:\n    files: {edit: [/etc/**]}\n    agent: llm"),
            (END, "workspace: {dir: code, exclude: [\"[\"]}\n"),
            ("      request: true", "      request: true\n      files: true"),
        ],
    ),
    change(
        "bad_files",
        &[
            ("  writer:\n    agent: llm", "  writer:\n    files: {}\n    agent: command"),
            (END, "workspace: {dir: code}\n"),
            ("      request: true", "      request: true\n      files: true"),
        ],
    ),
    change(
        "bad_files",
        &[
            ("  writer:\n    agent: llm", "  writer:\n    files: {edit: [src/**], run: [git]}\n    agent: remote"),
            (END, "workspace: {dir: code}\n"),
            ("      request: true", "      request: true\n      files: true"),
        ],
    ),
    change(
        "no_worktree",
        &[
            ("  writer:\n    agent: llm", "  writer:\n    files: {edit: [src/**]}\n    agent: remote"),
            (END, "workspace: {dir: code, isolation: worktree}\n"),
            ("      request: true", "      request: true\n      files: true"),
        ],
    ),
    change(
        "reserved_name",
        &[
            ("  writer:", "  external:"),
            ("    run: writer", "    run: external"),
            (END, "workspace: {dir: code}\n"),
            ("      request: true", "      request: true\n      files: true"),
            ("path: /answer, ops: [add]", "path: /files/*/version, ops: [replace]"),
        ],
    ),
    change(
        "reserved_name",
        &[
            ("  writer:\n    agent: llm", "  Todo:\n    files: {edit: [src/**]}\n    agent: llm"),
            ("    run: writer", "    run: Todo"),
            (END, "workspace: {dir: code}\n"),
            ("      request: true", "      request: true\n      files: true"),
        ],
    ),
    change("unknown_path", &[(END, "workspace: {dir: code}\n")]),
    // State document.
    change("bad_schema", &[("answer: {type: string}", "answer: {type: strin}")]),
    change(
        "bad_schema",
        &[("{path: /answer, ops: [add]}", "{path: /answer, ops: [add], value: {$ref: \"https://example.org/x\"}}")],
    ),
    change("invalid_initial_state", &[("initial: {claims: []}", "initial: {claims: [{text: 1}]}")]),
    change("invalid_initial_state", &[("initial: {claims: []}", "initial: {}")]),
    change("invalid_initial_state", &[("claims: {type: array, items", "claims: {type: array, minItems: 1, items")]),
    change("invalid_initial_state", &[(END, "done: {when: has(state.answer)}\nlimits: {state_bytes: 4, depth: 1}\n")]),
    change("bad_condition", &[("when: value.text != \"\"", "when: value.text !=")]),
    change(
        "bad_condition",
        &[("when: value.text != \"\"", "when: |\n      value.text != \"\"\n        && claims.size() > 0")],
    ),
    change("bad_condition", &[("has(state.answer)", "has(value.answer)")]),
    change("bad_condition", &[("question, /claims]", "question, {path: /claims/*, where: worker in state.claims}]")]),
    change("bad_condition", &[("question, /claims]", "question, {path: /claims/*, where: worker ==}]")]),
    change("not_boolean", &[("question, /claims]", "question, {path: /claims/*, where: '[worker]'}]")]),
    change("bad_condition", &[("has(state.answer)", "state.claims != self")]),
    change("bad_condition", &[("for: /claims/*, expr", "expr")]),
    // Loops over a value that is not a list.
    change("bad_condition", &[("when: value.text != \"\"", "when: value.all(k, k.text != \"\")")]),
    change(
        "bad_condition",
        &[("size(self.text) > 0", "'has(self.text) && state.claims.all(c, c.text.exists(t, t == c))'")],
    ),
    // Places that can never exist.
    change("unknown_member", &[("has(state.answer)", "has(state.anwser)")]),
    change("unknown_member", &[("size(self.text) > 0", "has(self.text) && size(self.txt) > 0")]),
    change("unknown_member", &[("question, /claims]", "question, {path: /claims/*, where: self.txt == worker}]")]),
    change(
        "unknown_member",
        &[(
            "when: value.text != \"\"",
            "when: |\n      has(value.status) && value.status.x == 1\n        && state.claims.filter(c, c.text != '').all(d, d.txt == before.claims[0].sttus)",
        )],
    ),
    change(
        "unknown_member",
        &[(
            "when: value.text != \"\"",
            "when: event.ops == \"add\" || size(event.captures) > 0 || request.question.x == 1",
        )],
    ),
    change("unknown_member", &[("trigger: start,", "trigger: start, when: has(state.answer) || event.op == \"add\",")]),
    change("not_boolean", &[("size(self.text) > 0", "size(self.text) + 1")]),
    // Paths.
    change("bad_pattern", &[("{path: /answer, ops: [add]}", "{path: answer, ops: [add]}")]),
    change("bad_pattern", &[("for: /claims/*", "for: /claims/-/text")]),
    change("unknown_path", &[("{path: /answer, ops: [add]}", "{path: /anser, ops: [add]}")]),
    change("unknown_path", &[("reads: [/request, /claims]", "reads: [/request/question/text, /claims/*/sttus]")]),
    change("unknown_path", &[("trigger: {op: add, path: /claims/*}", "trigger: {op: add, path: /claim/*}")]),
    change("unknown_path", &[("- {path: /claims/*/status}", "- {path: /claims/first/status}")]),
    change("unknown_path", &[("      request: true\n", "")]),
    change(
        "unknown_path",
        &[
            (
                "      answer: {type: string}",
                "      answer: {type: string}\n      pat: {type: object, additionalProperties: false, patternProperties: {\"^s_\": true}}\n      tup: {type: array, prefixItems: [true, true], items: false}",
            ),
            ("reads: [/request, /claims]", "reads: [/request, /claims, /pat/zz, /pat/s_1, /tup/01, /tup/1]"),
        ],
    ),
    change("whole_document", &[("{path: /answer, ops: [add]}", "{path: \"\", ops: [add]}")]),
    change("missing_field", &[("question, /claims]", "question, {path: /claims/*}]")]),
    // Conditions of grants.
    change(
        "bad_condition",
        &[(
            "- {path: /claims/*/status}",
            "- {path: /claims/*/status, where: {of: /claims/*, expr: self.text == state.answer}}",
        )],
    ),
    change(
        "not_boolean",
        &[(
            "- {path: /claims/*/status}",
            "- {path: /claims/*/status, where: {of: /claims/*, expr: size(self.text) + 1}}",
        )],
    ),
    change(
        "unknown_member",
        &[(
            "- {path: /claims/*/status}",
            "- {path: /claims/*/status, where: {of: /claims/*, expr: self.txt == worker}}",
        )],
    ),
    change(
        "bad_pattern",
        &[("- {path: /claims/*/status}", "- {path: /claims/*/status, where: {of: claims, expr: worker != self.text}}")],
    ),
    change(
        "not_a_beginning",
        &[(
            "- {path: /claims/*/status}",
            "- {path: /claims/*/status, where: {of: /claims/0, expr: worker == self.text}}",
        )],
    ),
    change(
        "overlapping_grants",
        &[(
            "- {path: /claims/*/status}",
            "- {path: /claims/*}\n      - {path: /claims/*/status, where: {of: /claims/*, expr: worker == self.text}}",
        )],
    ),
    change("bad_pattern", &[("question, /claims]", "question, {path: claims, where: 'true'}]")]),
    change(
        "overlapping_grants",
        &[("question, /claims]", "question, /claims, {path: /claims/*, where: 'worker == self.text'}]")],
    ),
    change(
        "overlapping_grants",
        &[(
            "- {path: /claims/*/status}",
            "- {path: /claims/*, value: {required: [text]}}\n      - {path: /claims/*/status}",
        )],
    ),
    change(
        "overlapping_grants",
        &[(
            "- {path: /claims/-, ops: [add]}",
            "- {path: /claims/-, ops: [add], value: {type: object}}\n      - {path: /claims/0, ops: [add]}",
        )],
    ),
    change(
        "index_grant",
        &[
            ("reads: [/request/question, /claims]", "reads: [/request/question, /claims/0]"),
            ("- {path: /claims/*/status}", "- {path: /claims/*, ops: [remove]}\n      - {path: /claims/*/status}"),
        ],
    ),
    change(
        "index_grant",
        &[
            FORMAT_2,
            ("trigger: {op: add, path: /claims/*}", "trigger: {op: add, path: \"/claims/{claim}\"}"),
            ("reads: [/request, /claims]", "reads: [/request, \"/claims/{claim}\"]"),
            ("- {path: /claims/*/status}", "- {path: /claims/*, ops: [remove]}"),
        ],
    ),
    change(
        "unbound_name",
        &[
            FORMAT_2,
            ("reads: [/request, /claims]", "reads: [/request, \"/claims/{claim}\"]"),
            ("- {path: /claims/*/status}", "- {path: \"/claims/{claim}/status\"}"),
            (
                "invariants:\n",
                "  - {name: again, trigger: {signal: again}, run: writer}\n  - {name: last, trigger: {idle: [again]}, run: writer}\ninvariants:\n",
            ),
            ("for: /claims/*,", "for: \"/claims/{claim}\","),
            (END, "done: {when: has(state.answer)}\ncircuit: {no_ops: {limit: 2, then: {wake: writer}}}\n"),
        ],
    ),
    change("literal_name", &[("reads: [/request, /claims]", "reads: [/request, \"/claims/{claim}\"]")]),
    change("never_equal", &[("when: value.text != \"\"", "when: 'has(value.status) && value.status == \"verifed\"'")]),
    change("never_equal", &[("when: value.text != \"\"", "when: event.worker == \"extracter\"")]),
    change("never_equal", &[("expr: size(self.text) > 0", "expr: self.text != 3")]),
    change(
        "never_equal",
        &[(
            "done: {when: has(state.answer)}",
            "done: {when: 'state.claims.all(c, c.status in [\"verified\", \"done\"])'}",
        )],
    ),
    change(
        "unknown_keyword",
        &[
            ("answer: {type: string}", "answer: {type: string, maxLenght: 3, nullable: true, x-note: fine}"),
            ("required: [text]", "required: [text, staus]"),
            ("required: [question], properties", "required: [question], propertes: {}, properties"),
        ],
    ),
    change(
        "undeclared_name",
        &[
            ("    additionalProperties: false\n    properties:\n      request", "    properties:\n      request"),
            ("- {path: /answer, ops: [add]}", "- {path: /anwser, ops: [add]}"),
            (END, "done: {when: has(state.anwser)}\n"),
        ],
    ),
    change("wide_grant", &[("- {path: /answer, ops: [add]}", "- {path: /**, ops: [add]}")]),
    change(
        "writes_request",
        &[("- {path: /answer, ops: [add]}", "- {path: /answer, ops: [add]}\n      - {path: /request/question}")],
    ),
    change(
        "script_refused",
        &[(
            "  writer:\n    agent: llm\n",
            "  writer:\n    agent: script\n    script:\n      - [{op: add, path: /answer, value: a}]\n      - {patch: [{op: test, path: /x}, {op: replace, path: /claims/0/status, value: draft}, {op: add, path: /answers, value: b}]}\n",
        )],
    ),
    change(
        "script_refused",
        &[
            (
                "  writer:\n    agent: llm\n",
                "  writer:\n    agent: script\n    script: [[{op: add, path: /answer, value: long}]]\n",
            ),
            ("- {path: /answer, ops: [add]}", "- {path: /answer, ops: [add], value: {maxLength: 2}}"),
        ],
    ),
    change(
        "script_refused",
        &[
            FORMAT_2,
            ("trigger: {op: add, path: /claims/*}", "trigger: {op: add, path: \"/claims/{claim}\"}"),
            ("- {path: /claims/*/status}", "- {path: \"/claims/{claim}/status\"}"),
            (
                "  writer:\n    agent: llm\n",
                "  writer:\n    agent: script\n    script: [[{op: replace, path: \"/claims/{clame}/status\", value: verified}]]\n",
            ),
        ],
    ),
    change(
        "value_never_fits",
        &[("- {path: /claims/*/status}", "- {path: /claims/*/status, value: {enum: [done, over]}}")],
    ),
    change(
        "value_never_fits",
        &[(
            "- {path: /claims/-, ops: [add]}",
            "- {path: /claims/-, ops: [add], value: {properties: {status: {const: open}}}}",
        )],
    ),
    change("budget_too_small", &[("  writer:\n", "  writer:\n    view: {budget: 20}\n")]),
    Fixture {
        request: Some(LONG_REQUEST),
        ..change("view_shortage", &[("  writer:\n", "  writer:\n    view: {budget: 900}\n")])
    },
    Fixture {
        request: Some(LONG_REQUEST),
        ..change(
            "limit_too_low",
            &[
                FORMAT_2,
                ("initial: {claims: []}", "initial: {claims: [{text: a}, {text: b}, {text: c}]}"),
                ("trigger: {op: add, path: /claims/*}", "trigger: {start: /claims/*}"),
                ("  writer:\n", "  writer:\n    limits: {invocations: 2}\n"),
                (END, "done: {when: has(state.answer)}\nlimits: {commits: 3}\n"),
            ],
        )
    },
    Fixture {
        request: Some(LONG_REQUEST),
        ..change(
            "never_fires",
            &[
                FORMAT_2,
                ("trigger: {op: add, path: /claims/*}", "trigger: {start: \"/request/questions/{q}\"}"),
                ("reads: [/request, /claims]", "reads: [/request/questoin, /claims]"),
            ],
        )
    },
    // Control flow.
    change(
        "first_only",
        &[("invariants:\n", "  - {name: last, trigger: {after: [claim-wakes-writer]}, run: writer}\ninvariants:\n")],
    ),
    change(
        "newer_format",
        &[
            ("trigger: {op: add, path: /claims/*}", "trigger: {start: /claims/*}"),
            (
                "invariants:\n",
                "  - {name: last, trigger: {settled: [begin]}, run: writer}\n  - {name: first, trigger: {after_first: [begin]}, run: writer}\ninvariants:\n",
            ),
        ],
    ),
    change(
        "dependency_cycle",
        &[(
            "invariants:\n",
            "  - {name: a, trigger: {after: [b]}, run: writer}\n  - {name: b, trigger: {after: [begin, c]}, run: writer}\n  - {name: c, trigger: {after: [a]}, run: writer}\n  - {name: self, trigger: {after: [self]}, run: writer}\ninvariants:\n",
        )],
    ),
    change(
        "no_start",
        &[(
            "  - {name: begin, trigger: start, run: extractor}\n",
            "  - {name: begin, trigger: {path: /claims/*}, run: extractor}\n",
        )],
    ),
    change(
        "unguarded_old",
        &[("expr: size(self.text) > 0", "expr: 'old.text == self.text || size(self.text) > size(old.text)'")],
    ),
    // Names below required members, and below members of the initial state.
    change(
        "undeclared_name",
        &[
            ("        additionalProperties: false\n        properties: {text", "        properties: {text"),
            ("- {path: /claims/*/status}", "- {path: /claims/*/statsu}"),
        ],
    ),
    change(
        "unknown_member",
        &[
            ("        additionalProperties: false\n        properties: {text", "        properties: {text"),
            ("when: value.text != \"\"", "when: value.txt != \"\""),
        ],
    ),
    // Signal payloads.
    change(
        "undeclared_name",
        &[
            ("  - {name: begin, trigger: start,", "  - {name: begin, trigger: {signal: ordr},"),
            ("invariants:\n", "signals: {order: {type: object}}\ninvariants:\n"),
        ],
    ),
    change(
        "unknown_member",
        &[
            (
                "  - {name: begin, trigger: start,",
                "  - {name: begin, trigger: {signal: order}, when: value.amuont > 1,",
            ),
            ("invariants:\n", "signals: {order: {type: object, properties: {amount: {type: integer}}}}\ninvariants:\n"),
        ],
    ),
    change(
        "undeclared_name",
        &[
            ("        additionalProperties: false\n        properties: {text", "        properties: {text"),
            ("    when: value.text != \"\"\n", "    delay: {at: /sttus}\n"),
        ],
    ),
    // Values that the schema rejects.
    change(
        "script_refused",
        &[(
            "  writer:\n    agent: llm\n",
            "  writer:\n    agent: script\n    script: [[{op: replace, path: /claims/0/status, value: verifed}]]\n",
        )],
    ),
    change(
        "script_refused",
        &[(
            "  extractor:\n    agent: llm\n",
            "  extractor:\n    agent: script\n    script: [[{op: add, path: /claims/-, value: {txt: a}}]]\n",
        )],
    ),
    change("stale_storm", &[("concurrency: 1\n", "")]),
    change(
        "stale_storm",
        &[
            ("concurrency: 1\n", ""),
            (
                "      - {path: /claims/-, ops: [add]}\n",
                "      - {path: /claims/-, ops: [add]}\n      - {path: /claims/*/text}\n",
            ),
            ("trigger: {op: add, path: /claims/*}", "trigger: {path: /claims/*/text}"),
            ("when: value.text != \"\"", "when: value != \"\""),
        ],
    ),
    change(
        "loop_without_progress",
        &[(
            "{name: begin, trigger: start, run: extractor}",
            "{name: begin, trigger: start, run: extractor}\n  - {name: again, trigger: {idle: [begin, again]}, run: extractor}",
        )],
    ),
    change("never_fires", &[("trigger: {op: add, path: /claims/*}", "trigger: {op: remove, path: /claims/*}")]),
    change(
        "never_fires",
        &[(
            "invariants:\n",
            "  - {name: late, trigger: {path: /request/question}, run: writer}\n  - {name: later, trigger: {after: [begin, late]}, run: writer}\ninvariants:\n",
        )],
    ),
    change("never_fires", &[("when: value.text != \"\"", "when: \"false\"")]),
    change("never_fires", &[("when: value.text != \"\"", "when: 1 == 2 && has(state.answer)")]),
    change("never_fires", &[("trigger: start,", "trigger: start, when: 'value.text == \"\"',")]),
    change("never_fires", &[("trigger: start,", "trigger: start, when: 'has(state.answer) && event.op == \"add\"',")]),
    change("never_fires", &[("trigger: start,", "trigger: start, when: \"patch.exists(p, p.op == 'add')\",")]),
    change("never_fires", &[("trigger: start,", "trigger: {signal: go}, when: 'event.op == \"add\"',")]),
    change(
        "loop_without_progress",
        &[(
            "invariants:\n",
            "  - {name: again, trigger: {op: replace, path: /claims/*/status}, run: writer}\ninvariants:\n",
        )],
    ),
    change("trigger_unreadable", &[("reads: [/request, /claims]", "reads: [/request]")]),
    change("idle_worker", &[("trigger: start, run: extractor", "trigger: start, run: writer")]),
    change("no_done", &[(END, "")]),
    change("no_done", &[("has(state.answer)", "\"false\"")]),
    // Fields of elements.
    change(
        "second_writer",
        &[
            ("- {path: /claims/-, ops: [add]}", "- {path: /claims/-, ops: [add]}\n      - {path: \"/claims/*/*\"}"),
            (END, "writers: one\ndone: {when: has(state.answer)}\n"),
        ],
    ),
    change(
        "two_writers",
        &[("- {path: /claims/-, ops: [add]}", "- {path: /claims/-, ops: [add]}\n      - {path: \"/claims/*/*\"}")],
    ),
    change(
        "never_written",
        &[(
            "      answer: {type: string}",
            "      answer: {type: string}\n      summary: {type: object, properties: {text: {type: string}}}",
        )],
    ),
    change(
        "read_never_written",
        &[
            ("      answer: {type: string}", "      answer: {type: string}\n      summary: {type: string}"),
            ("reads: [/request, /claims]", "reads: [/request, /claims, /summary]"),
        ],
    ),
    change(
        "invalid_initial_state",
        &[(END, "  - {name: some, expr: size(state.claims) > 0}\ndone: {when: has(state.answer)}\n")],
    ),
    change(
        "costly_schema",
        &[(
            "claims: {type: array, items: {$ref: \"#/$defs/claim\"}}",
            "claims: {type: array, items: {$ref: \"#/$defs/claim\"}, uniqueItems: true, contains: {required: [text]}, minContains: 0}",
        )],
    ),
    change(
        "costly_schema",
        &[(
            "claims: {type: array, items: {$ref: \"#/$defs/claim\"}}",
            "claims: {type: array, items: {$ref: \"#/$defs/claim\"}, uniqueItems: true}",
        )],
    ),
    change(
        "costly_schema",
        &[(
            "      answer: {type: string}",
            "      answer: {type: string}\n    if: {properties: {claims: {items: {required: [status]}}}}\n    then: {required: [claims]}",
        )],
    ),
    change(
        "costly_shift",
        &[("{path: /claims/*/status}", "{path: /claims/*/status}\n      - {path: /claims/*, ops: [remove]}")],
    ),
    change(
        "costly_invariant",
        &[("done:", "  - {name: no-claim-is-the-answer, for: /claims/*, expr: 'self.text != state.answer'}\ndone:")],
    ),
    change(
        "costly_invariant",
        &[("done:", "  - {name: all-have-text, expr: 'state.claims.all(c, size(c.text) > 0)'}\ndone:")],
    ),
    change(
        "costly_invariant",
        &[(
            "done:",
            "  - {name: no-text-twice, for: /claims/*, expr: 'state.claims.exists_one(c, c.text == self.text)'}\n  - {name: a-text-stays, expr: 'before.claims.all(c, c in state.claims)'}\ndone:",
        )],
    ),
    change(
        "never_equal",
        &[("when: value.text != \"\"", "when: size(value.text) == \"3\" || size(value.text) > \"3\"")],
    ),
    change("never_equal", &[("when: value.text != \"\"", "when: event.op == \"added\" || worker == \"extractor\"")]),
    change("never_equal", &[(END, "done: {when: state.answer != null}\n")]),
    change("never_equal", &[("expr: size(self.text) > 0", "expr: self.text > 3")]),
    change("never_true", &[(END, "done: {when: state.answer}\n")]),
    change("decided_together", &[("when: value.text != \"\"", "when: value.text == \"a\" && value.text == \"b\"")]),
    change(
        "never_read",
        &[
            FORMAT_2,
            (
                "      answer: {type: string}",
                "      answer: {type: string}\n      notes: {type: array, items: {type: string}}",
            ),
            ("initial: {claims: []}", "initial: {claims: [], notes: []}"),
            ("    reads: [/request/question, /claims]\n    writes:\n", "    reads: [/request/question]\n    writes:\n"),
            ("      - {path: /claims/-, ops: [add]}", "      - {path: /notes/-, ops: [add]}"),
            ("trigger: {op: add, path: /claims/*}\n    when: value.text != \"\"", "trigger: {after: [begin]}"),
        ],
    ),
    change(
        "nothing_left",
        &[
            ("trigger: {op: add, path: /claims/*}\n    when: value.text != \"\"", "trigger: {path: /**}"),
            ("      - {path: /claims/*/status}\n", ""),
            (", status: {enum: [draft, verified]}", ""),
        ],
    ),
    change("whole_division", &[("when: value.text != \"\"", "when: size(state.claims) / size(value.text) > 1")]),
    change("void_keyword", &[("answer: {type: string}", "answer: {type: string, maximum: 3}")]),
    change("impossible_schema", &[("answer: {type: string}", "answer: {type: string, minLength: 3, maxLength: 2}")]),
    change("done_at_start", &[(END, "done: {when: 'state.claims.all(c, c.text != \"\")'}\n")]),
    Fixture {
        code: "done_at_start",
        changes: &[(END, "done: {when: request.question != \"\"}\n")],
        fragments: &[],
        request: Some(r#"{"question": "which?"}"#),
    },
    change("unusable_grant", &[("initial: {claims: []}", "initial: {claims: [], answer: none}")]),
    change(
        "undeclared_name",
        &[(
            "{path: /claims/-, ops: [add]}",
            "{path: /claims/-, ops: [add], value: {properties: {staus: {const: draft}}}}",
        )],
    ),
    change("undeclared_name", &[("reads: [/request/question, /claims]", "reads: [/request/documents, /claims]")]),
    change(
        "value_never_fits",
        &[(
            "{path: /claims/-, ops: [add]}",
            "{path: /claims/-, ops: [add], value: {properties: {text: {type: integer}}}}",
        )],
    ),
    change(
        "script_refused",
        &[(
            "    agent: llm\n    reads: [/request, /claims]",
            "    agent: llm\n    script: [[{op: replace, path: /answer, value: x}]]\n    reads: [/request, /claims]",
        )],
    ),
    change(
        "script_refused",
        &[(
            "    agent: llm\n    reads: [/request, /claims]",
            "    agent: llm\n    script: [{op: add, path: /answer, value: x}]\n    reads: [/request, /claims]",
        )],
    ),
    change(
        "script_refused",
        &[(
            "    agent: llm\n    reads: [/request, /claims]",
            "    agent: llm\n    script: [[{op: set, path: /answer, value: x}]]\n    reads: [/request, /claims]",
        )],
    ),
    change(
        "script_refused",
        &[(
            "    agent: llm\n    reads: [/request, /claims]",
            "    agent: llm\n    script: [[{op: add, path: answer, value: x}]]\n    reads: [/request, /claims]",
        )],
    ),
    change(
        "script_refused",
        &[(
            "    agent: llm\n    reads: [/request, /claims]",
            "    agent: llm\n    patch: {max_ops: 1, intent: required}\n    script: [[{op: add, path: /answer, value: x}]]\n    reads: [/request, /claims]",
        )],
    ),
    change(
        "early_join",
        &[
            FORMAT_2,
            (
                "workers:\n",
                "workers:\n  closer: {agent: llm, reads: [/claims], writes: [{path: /answer, ops: [add]}]}\n",
            ),
            ("invariants:\n", "  - {name: close, trigger: {after: [begin]}, run: closer}\ninvariants:\n"),
        ],
    ),
    change(
        "foreign_index",
        &[
            FORMAT_2,
            ("answer: {type: string}", "answer: {type: string}\n      others: {type: array, items: {type: string}}"),
            ("initial: {claims: []}", "initial: {claims: [], others: [one]}"),
            ("path: /claims/*}\n    when", "path: \"/claims/{claim}\"}\n    when"),
            ("reads: [/request, /claims]", "reads: [/request, /claims, \"/others/{claim}\"]"),
        ],
    ),
    change(
        "never_fires",
        &[
            ("trigger: {op: add, path: /claims/*}", "trigger: {op: add, path: /claims}"),
            ("    when: value.text != \"\"\n", ""),
        ],
    ),
    change(
        "never_fires",
        &[
            ("trigger: {op: add, path: /claims/*}", "trigger: {op: replace, path: /claims/*/status}"),
            ("    when: value.text != \"\"\n", ""),
        ],
    ),
    change("unknown_field", &[("done: {when: has(state.answer)}", "done: {when: size(state.claims) > max(1, 2)}")]),
    change("undeclared_worker", &[GROUPED, ("run: extractor", "run: team")]),
    // Nested boards.
    change("bad_board", &[("  extractor:\n    agent: llm", "  extractor:\n    agent: board")]),
    change("bad_board", &[IS_INSIDE]),
    with(
        "bad_board",
        &[
            (
                "  extractor:\n    agent: llm",
                "  extractor:\n    agent: llm\n    board: {of: inside, output: {/answer: /found}}",
            ),
            HAS_INSIDE,
        ],
        &[("inside.yaml", INSIDE)],
    ),
    with(
        "bad_board",
        &[
            (
                "  extractor:\n    agent: llm\n    reads: [/request/question, /claims]",
                "  extractor:\n    agent: board\n    board: {of: inside, input: {text: /request/question}, output: {/answer: /found}}\n    reads: [/claims]",
            ),
            HAS_INSIDE,
        ],
        &[("inside.yaml", INSIDE)],
    ),
    with("bad_board", &[IS_INSIDE, HAS_INSIDE], &[("inside.yaml", ENDLESS)]),
    with(
        "undeclared_key",
        &[
            (
                "  extractor:\n    agent: llm",
                "  extractor:\n    agent: board\n    board: {of: inside, input: {texts: /request/question}, output: {/claims/-: /foumd/0}}",
            ),
            HAS_INSIDE,
        ],
        &[("inside.yaml", INSIDE)],
    ),
    with("unused_board", &[HAS_INSIDE], &[("inside.yaml", INSIDE)]),
    change("default_model", &[(END, "done: {when: has(state.answer)}\nmodels: {large: x}\n")]),
    change(
        "unused_model",
        &[
            ("  writer:\n    agent: llm", "  writer:\n    agent: command\n    model: large"),
            (END, "done: {when: has(state.answer)}\nmodels: {large: x}\n"),
        ],
    ),
];

/// In-memory files.
pub(super) struct Texts<'a>(&'a BTreeMap<&'a str, &'a str>);

impl FileLoader for Texts<'_> {
    fn text(&mut self, name: &str) -> Result<String, String> {
        self.0.get(name).map(|text| (*text).to_owned()).ok_or("no such file".into())
    }

    fn folders(&mut self, name: &str) -> Result<Vec<String>, String> {
        let within = self.0.keys().filter_map(|file| file.strip_prefix(name)?.strip_prefix('/')?.split_once('/'));
        let folders: BTreeSet<String> = within.map(|(folder, _)| folder.to_owned()).collect();
        if folders.is_empty() { Err("no such directory".to_owned()) } else { Ok(folders.into_iter().collect()) }
    }
}

impl Fixture {
    pub(super) fn text(&self) -> String {
        self.changes.iter().fold(SOUND.to_owned(), |text, (from, to)| {
            assert_eq!(text.matches(from).count(), 1, "{}: {from:?} is there once", self.code);
            text.replace(from, to)
        })
    }

    pub(super) fn findings(&self) -> Vec<Diagnostic> {
        let source = Source::read("b.yaml", &self.text()).map_err(|finding| vec![finding]).and_then(|source| {
            if self.fragments.is_empty() {
                return Ok(source);
            }
            let texts: BTreeMap<&str, &str> = self.fragments.iter().copied().collect();
            patchboard_protocols::resolve(source, &mut Texts(&texts))
        });
        let source = match source {
            Ok(source) => source,
            Err(findings) => return findings,
        };
        let report = patchboard_protocols::check(&source);
        match (self.request, report.blueprint) {
            (Some(request), Some(blueprint)) => {
                let request = serde_json::from_str(request).expect("it is JSON");
                patchboard_lint::check_with_request(&source, blueprint, request, &PLANS).expect("it makes a board")
            }
            _ => report.findings,
        }
    }
}
