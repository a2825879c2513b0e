//! Every code of the lint, brought about by a small change of a sound blueprint, with what is said about it.
//!
//! The snapshot beside this file is what a user reads; look at a change of it as prose.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use patchboard_kernel::lint::{self, CODES, Diagnostic, FINDINGS_MAX, Severity};
use patchboard_kernel::mode::Mode;
use patchboard_kernel::plan::Plan;
use patchboard_kernel::source::{self, Files, Source};
use proptest::prelude::*;
use serde_json::json;

/// A blueprint without any finding.
const SOUND: &str = r##"blueprint: 1
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

/// A code, and what to change in [`SOUND`] for it: the text to replace, which is there once, and its replacement. `$` at
/// the end of a replacement's first field stands for appending.
struct Fixture {
    code: &'static str,
    changes: &'static [(&'static str, &'static str)],
    /// Fragments by name; they are only resolved if there are any.
    fragments: &'static [(&'static str, &'static str)],
    /// The request of a board that is begun, if one is.
    request: Option<&'static str>,
}

const fn change(code: &'static str, changes: &'static [(&'static str, &'static str)]) -> Fixture {
    with(code, changes, &[])
}

/// The same with fragments.
const fn with(
    code: &'static str,
    changes: &'static [(&'static str, &'static str)],
    fragments: &'static [(&'static str, &'static str)],
) -> Fixture {
    Fixture { code, changes, fragments, request: None }
}

/// With what later formats have.
const FORMAT_2: (&str, &str) = ("blueprint: 1\n", "blueprint: 2\n");

/// The place behind everything.
const END: &str = "done: {when: has(state.answer)}\n";

/// A blueprint for a board inside [`SOUND`].
const INSIDE: &str = r#"blueprint: 1
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

/// The same that is never done.
const ENDLESS: &str = r#"blueprint: 1
name: inside
state: {schema: {type: object, properties: {request: true, found: {type: string}}}}
workers:
  finder: {agent: llm, reads: [/request], writes: [{path: /foumd}]}
rules:
  - {name: begin, trigger: start, run: finder}
"#;

/// A request that small views have no room for.
const LONG_REQUEST: &str = concat!(
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

/// A worker that is a board.
const IS_INSIDE: (&str, &str) = (
    "  extractor:\n    agent: llm",
    "  extractor:\n    agent: board\n    board: {of: inside, input: {text: /request/question}, output: {/claims/-: /found}}",
);

/// Where it is.
const HAS_INSIDE: (&str, &str) = (END, "done: {when: has(state.answer)}\nboards: {inside: inside.yaml}\n");

/// Says where departments are, and what they meet with.
const HAS_DEPARTMENTS: (&str, &str) = (
    END,
    "done: {when: has(state.answer)}\ndepartments: {from: departments, promises: {text: /request/question}, into: /claims/-, group: departments}\n",
);

/// One node more than there may be.
const TOO_MANY_NODES: &str = "nodes: {n00: {agent_id: writer}, n01: {agent_id: writer}, n02: {agent_id: writer}, n03: {agent_id: writer}, n04: {agent_id: writer}, n05: {agent_id: writer}, n06: {agent_id: writer}, n07: {agent_id: writer}, n08: {agent_id: writer}, n09: {agent_id: writer}, n10: {agent_id: writer}, n11: {agent_id: writer}, n12: {agent_id: writer}, n13: {agent_id: writer}, n14: {agent_id: writer}, n15: {agent_id: writer}, n16: {agent_id: writer}, n17: {agent_id: writer}, n18: {agent_id: writer}, n19: {agent_id: writer}, n20: {agent_id: writer}, n21: {agent_id: writer}, n22: {agent_id: writer}, n23: {agent_id: writer}, n24: {agent_id: writer}, n25: {agent_id: writer}, n26: {agent_id: writer}, n27: {agent_id: writer}, n28: {agent_id: writer}, n29: {agent_id: writer}, n30: {agent_id: writer}, n31: {agent_id: writer}, n32: {agent_id: writer}, n33: {agent_id: writer}, n34: {agent_id: writer}, n35: {agent_id: writer}, n36: {agent_id: writer}, n37: {agent_id: writer}, n38: {agent_id: writer}, n39: {agent_id: writer}, n40: {agent_id: writer}, n41: {agent_id: writer}, n42: {agent_id: writer}, n43: {agent_id: writer}, n44: {agent_id: writer}, n45: {agent_id: writer}, n46: {agent_id: writer}, n47: {agent_id: writer}, n48: {agent_id: writer}, n49: {agent_id: writer}, n50: {agent_id: writer}, n51: {agent_id: writer}, n52: {agent_id: writer}, n53: {agent_id: writer}, n54: {agent_id: writer}, n55: {agent_id: writer}, n56: {agent_id: writer}, n57: {agent_id: writer}, n58: {agent_id: writer}, n59: {agent_id: writer}, n60: {agent_id: writer}, n61: {agent_id: writer}, n62: {agent_id: writer}, n63: {agent_id: writer}, n64: {agent_id: writer}}\n";

/// Says that there is a workflow, in a file.
const HAS_WORKFLOW: (&str, &str) = (END, "done: {when: has(state.answer)}\nworkflow: flow.yaml\n");

/// A finding about a workflow in a file.
const fn flow(code: &'static str, fragments: &'static [(&'static str, &'static str)]) -> Fixture {
    with(code, &[HAS_WORKFLOW], fragments)
}

/// A department that fits [`SOUND`], but for what its results are.
const DEPARTMENT: &str = r#"department: 1
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

/// The same in need of something else.
const NEEDY: &str = r#"department: 1
name: notes
description: Keeps notes.
needs:
  text: {type: string}
  question_mark: {type: boolean}
storage: {entity: note, fields: {item: {type: string}}}
actions:
  add: {does: insert, description: keeps a note, sets: [item], confirm: "Noted: {item}."}
"#;

/// The same, which is given something by a promise of another name that nobody makes.
const MAPPED: &str = r#"department: 1
name: notes
description: Keeps notes.
needs:
  text: {type: string}
dispatch: {input: {text: words}}
storage: {entity: note, fields: {item: {type: string}}}
actions:
  add: {does: insert, description: keeps a note, sets: [item], confirm: "Noted: {item}."}
"#;

/// The same that takes a number for words.
const COUNTING: &str = r#"department: 1
name: notes
description: Keeps notes.
needs:
  text: {type: integer}
storage: {entity: note, fields: {item: {type: string}}}
actions:
  add: {does: insert, description: keeps a note, sets: [item], confirm: "Noted: {item}."}
"#;

/// The same of which several things are wrong; the first is told.
const UNFIT: &str = r#"department: 1
name: notes
description: Keeps notes.
needs: {text: {type: string}}
storage: {entity: note, fields: {item: {type: string}}}
actions:
  add: {does: insert, description: keeps a note, sets: [thing], confirm: "Noted: {item}."}
  none: {does: delete, description: takes it away, finds: [item], confirm: "Gone: {place}."}
"#;

/// The same in another form.
const MISSPELT: &str = r#"department: 1
name: notes
descripton: Keeps notes.
"#;

/// Puts the writer into a group.
const GROUPED: (&str, &str) = ("  writer:\n    agent: llm", "  writer:\n    group: team\n    agent: llm");
/// Has a rule wait for a signal.
const GO: (&str, &str) = ("trigger: start, run: extractor", "trigger: {signal: go}, run: extractor");
/// Has somebody hand claims over, and somebody who may have them.
const DESK: (&str, &str) = (EXTRACTOR, "  extractor:\n    agent: builtin:handoff\n    with: {tasks: /claims}");
const IN_AGENTS: (&str, &str) = ("  writer:\n    agent: llm", "  writer:\n    group: agents\n    agent: llm");
/// A worker, to be changed.
const EXTRACTOR: &str = "  extractor:\n    agent: llm";

const FIXTURES: &[Fixture] = &[
    // Reading the file.
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
    // What stands in the blueprint is found there: the place that is promised, and where results go.
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
    // What stands in the blueprint itself is found there.
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
    // The form.
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
    change("bad_value", &[(END, "models: {crowd: []}\n")]),
    change("bad_value", &[(END, "backlog: {go: {at: /claims, max: 3}}\n")]),
    change("bad_value", &[(END, "backlog: {go: {at: \"/claims/*\", max: 3}}\n"), GO]),
    change("bad_value", &[(END, "backlog: {go: {at: /claims, max: 0}}\n"), GO]),
    change("unknown_path", &[(END, "backlog: {go: {at: /claim, max: 3}}\n"), GO]),
    change("infinite_budget", &[("  writer:\n", "  writer:\n    view: {budget: unlimited}\n")]),
    change("infinite_budget", &[("  writer:\n", "  writer:\n    limits: {attempts: 0, timeout: 0s, tokens:}\n")]),
    change("infinite_budget", &[(END, "limits: {wall: never}\ncircuit: {rejections: {then: stop_board}}\n")]),
    // What is wrong elsewhere is found beside a number that JSON does not have.
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
    // The document.
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
    // Loops over what is no list.
    change("bad_condition", &[("when: value.text != \"\"", "when: value.all(k, k.text != \"\")")]),
    change(
        "bad_condition",
        &[("size(self.text) > 0", "'has(self.text) && state.claims.all(c, c.text.exists(t, t == c))'")],
    ),
    // Places that can never be there.
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
    // Conditions of what is written.
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
    // The flow.
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
    change("stale_storm", &[("concurrency: 1\n", "")]),
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
    // The fields.
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
        &[(
            "done:",
            "  - {name: no-claim-is-the-answer, for: /claims/*, expr: '!has(state.answer) || self.text != state.answer'}\ndone:",
        )],
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
    // Boards inside boards.
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

/// Files that are in memory.
struct Texts<'a>(&'a BTreeMap<&'a str, &'a str>);

impl Files for Texts<'_> {
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
    fn text(&self) -> String {
        self.changes.iter().fold(SOUND.to_owned(), |text, (from, to)| {
            assert_eq!(text.matches(from).count(), 1, "{}: {from:?} is there once", self.code);
            text.replace(from, to)
        })
    }

    fn findings(&self) -> Vec<Diagnostic> {
        let source = Source::read("b.yaml", &self.text()).map_err(|finding| vec![finding]).and_then(|source| {
            if self.fragments.is_empty() {
                return Ok(source);
            }
            let texts: BTreeMap<&str, &str> = self.fragments.iter().copied().collect();
            source::resolve(source, &mut Texts(&texts))
        });
        let source = match source {
            Ok(source) => source,
            Err(findings) => return findings,
        };
        let report = lint::check(&source);
        match (self.request, report.blueprint) {
            (Some(request), Some(blueprint)) => {
                let request = serde_json::from_str(request).expect("it is JSON");
                lint::check_beginning(&source, blueprint, request).expect("it makes a board")
            }
            _ => report.findings,
        }
    }
}

/// A finding as a terminal shows it.
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
    let report = lint::check(&Source::read("b.yaml", SOUND).expect("it is YAML"));
    let rendered: String = report.findings.iter().map(render).collect();
    assert_eq!(rendered, "");
    let blueprint = report.blueprint.expect("there is no error");
    assert_eq!(blueprint.name, "review");
    // What the journal stores is found sound as well.
    let stored = serde_json::to_value(&blueprint).expect("a blueprint is JSON");
    let again = lint::check_value(stored);
    assert_eq!(again.findings, []);
    assert_eq!(again.blueprint, Some(blueprint));
}

/// What a rule on a group does is judged for everybody in it, and what a schema says of the group is known.
#[test]
fn a_group_is_judged_by_all_who_are_in_it() {
    const TEXT: (&str, &str) =
        ("properties: {text: {type: string}", "properties: {text: {$ref: \"#/$defs/group:team\"}");
    const CHOSEN: (&str, &str) = ("when: value.text != \"\"\n    run: writer", "run: {group: team, at: /text}");
    const SECOND: (&str, &str) = ("workers:\n", "workers:\n  other: {agent: llm, group: team, reads: [/claims]}\n");
    const BLIND: (&str, &str) = ("workers:\n", "workers:\n  other: {agent: llm, group: team}\n");
    assert_eq!(found(&[GROUPED, TEXT, CHOSEN, SECOND]), []);
    assert_eq!(found(&[GROUPED, TEXT, CHOSEN, BLIND]), [("trigger_unreadable", "/rules/1/trigger/path".to_owned())]);
    // All of them would have to be limited for a loop to end, and one is not.
    const AGAIN: (&str, &str) = (
        "invariants:\n",
        "  - {name: again, trigger: {op: replace, path: /claims/*/status}, run: {group: team}}\ninvariants:\n",
    );
    assert_eq!(found(&[GROUPED, SECOND, AGAIN]), [("loop_without_progress", "/rules/2".to_owned())]);
}

#[test]
fn every_code_has_a_fixture_that_brings_it_about() {
    for (code, severity, meaning) in CODES {
        assert!(meaning.ends_with('.'), "{code}");
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
        assert!(CODES.iter().any(|(code, ..)| *code == finding.code), "{} is not in the table", finding.code);
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

/// The codes that a changed blueprint has, with what they are about.
fn found(changes: &'static [(&'static str, &'static str)]) -> Vec<(&'static str, String)> {
    let findings = change("none", changes).findings();
    findings.into_iter().map(|finding| (finding.code, finding.pointer)).collect()
}

#[test]
fn who_may_write_only_to_what_is_still_its_own_hands_it_over_for_good() {
    const STATUS: &str = "      - {path: /claims/*/status}";
    const GUARDED: &str = "      - {path: /claims/*/status, where: {of: /claims/*, expr: self.text == worker}}";
    let unguarded = vec![("handoff_unguarded", "/workers/writer/writes/1".to_owned())];
    assert_eq!(found(&[DESK, IN_AGENTS]), unguarded);
    assert_eq!(found(&[DESK, IN_AGENTS, (STATUS, "      - {path: /claims/*, ops: [replace]}")]), unguarded);
    // Who is in no group of agents has nothing to hand over, and who adds a piece changes none.
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

/// The findings of a blueprint with one more invariant, its schema and limits changed as well.
fn of_invariant(invariant: &str, others: &[(&str, &str)]) -> Vec<(&'static str, String)> {
    let text = SOUND.replacen("done:", &format!("  - {{name: more, {invariant}}}\ndone:"), 1);
    let text = others.iter().fold(text, |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from:?} is there once");
        text.replace(from, to)
    });
    let findings = lint::check(&Source::read("b.yaml", &text).expect("it is YAML")).findings;
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
    let answer = "for: /claims/*, expr: '!has(state.answer) || self.text != state.answer'";
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
        // Eight operations each make 128 claims at most.
        (all, &[FEW_COMMITS], false),
        (all, &[MORE_COMMITS], true),
        (twice, &[], true),
        (twice, &[SHORT], false),
        (answer, &[], true),
        (answer, &[SHORT], false),
        // Nobody writes the request.
        (asked, &[], false),
        ("expr: 'size(state.claims) < 1000'", &[], false),
        ("for: /answer, expr: 'size(self) > 0'", &[], false),
        ("for: /answer, expr: 'size(self) < size(state.claims)'", &[], false),
        // Where a list is only written as a whole, that costs as much.
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
        let findings = lint::check(&Source::read(path, &text).expect("it is YAML")).findings;
        let rendered: String = findings.iter().map(render).collect();
        assert!(!rendered.contains("costly"), "{path}:\n{rendered}");
        // Its invariants look at lists, which are short because the schema and the end of the board keep them so.
        let longer =
            text.replace("limits: {commits: 60,", "limits: {commits: 600,").replace("\n        maxItems: 8\n", "\n");
        let findings = lint::check(&Source::read(path, &longer).expect("it is YAML")).findings;
        assert_eq!(findings.iter().any(|finding| finding.code == "costly_invariant"), longer != text, "{path}");
    }
}

/// What a grant makes is judged by its `value`; what becomes of it later, by a grant whose condition is of what was there.
#[test]
fn grants_under_conditions_meet_others_only_where_they_take_something_from_them() {
    const STATUS: &str = "- {path: /claims/*/status}";
    let with = |grants: &str| -> Vec<&'static str> {
        let text = SOUND.replace(STATUS, grants);
        let findings = lint::check(&Source::read("b.yaml", &text).expect("it is YAML")).findings;
        findings.into_iter().map(|finding| finding.code).collect()
    };
    let own = |path: &str| format!("{{path: {path}, where: {{of: /claims/*, expr: worker == self.text}}}}");
    let made = "- {path: /claims/-, ops: [add], value: {required: [text]}}";
    assert_eq!(with(&format!("{made}\n      - {}", own("/claims/*/status"))), [""; 0]);
    assert_eq!(with(&format!("{made}\n      {STATUS}")), ["overlapping_grants"]);
    let put = "- {path: /claims/*, ops: [replace], value: {required: [text]}}";
    assert!(with(&format!("{put}\n      - {}", own("/claims/*/status"))).contains(&"overlapping_grants"));
    // Where each has a condition, the state says whose turn it is.
    let two = |of_other: &str| {
        let text = SOUND.replace(STATUS, &format!("- {}", own("/claims/*/status")));
        let text = text.replace(
            "- {path: /claims/-, ops: [add]}",
            &format!("- {{path: /claims/-, ops: [add]}}\n      - {of_other}"),
        );
        let findings = lint::check(&Source::read("b.yaml", &text).expect("it is YAML")).findings;
        findings.iter().any(|finding| finding.code == "two_writers")
    };
    assert!(two("{path: /claims/*/status}") && !two(&own("/claims/*/status")));
}

#[test]
fn what_an_expression_may_look_at_is_not_reported() {
    for expr in [
        "value.text != \"\" && has(value.status)",
        "has(state.request) && request.question != \"\" && size(event.captures) == 1",
        "event.worker == \"extractor\" && event.version > 1 && patch.exists(p, p.path == event.path)",
        "state.claims.all(c, c.text != before.claims[0].text) && [[1]].all(x, x.all(y, y > 0))",
        "state.claims[size(state.claims) - 1].text == \"\" && state[\"claims\"] == []",
        "request.more.exists(x, x.y)",
    ] {
        let text = SOUND.replace("when: value.text != \"\"", &format!("when: '{expr}'"));
        let report = lint::check(&Source::read("b.yaml", &text).expect("it is YAML"));
        assert_eq!(report.findings, [], "{expr}");
    }
    // Either of two sides may hold.
    for expr in ["event == null", "has(state.answer) || value == null", "!has(state.answer)"] {
        let text = SOUND.replace("trigger: start,", &format!("trigger: start, when: '{expr}',"));
        let report = lint::check(&Source::read("b.yaml", &text).expect("it is YAML"));
        assert_eq!(report.findings, [], "{expr}");
    }
    assert_eq!(found(&[("trigger: start,", "trigger: manual, when: event.name == \"begin\" && value.x == 1,")]), []);
}

#[test]
fn an_error_keeps_the_blueprint_from_being_returned_and_a_warning_does_not() {
    for fixture in FIXTURES.iter().filter(|fixture| fixture.fragments.is_empty()) {
        let Ok(source) = Source::read("b.yaml", &fixture.text()) else { continue };
        let report = lint::check(&source);
        let refused = report.findings.iter().any(|finding| finding.severity == Severity::Error);
        assert_eq!(report.blueprint.is_none(), refused, "{}", fixture.code);
        let severities: Vec<Severity> = report.findings.iter().map(|finding| finding.severity).collect();
        assert!(severities.is_sorted(), "errors come first");
    }
}

#[test]
fn a_value_without_text_is_checked_without_positions() {
    let source = Source::read("b.yaml", &SOUND.replace("run: extractor", "run: nobody")).expect("it is YAML");
    let report = lint::check_value(source.value().clone());
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
    assert_eq!(lint::check(&Source::read("b.yaml", &text).expect("it is YAML")).findings.len(), FINDINGS_MAX);
    let rules: String = (0..200).map(|n| format!("  - {{name: r{n}, trigger: manual, run: nobody}}\n")).collect();
    let text = SOUND.replace("invariants:\n", &format!("{rules}invariants:\n"));
    assert_eq!(lint::check(&Source::read("b.yaml", &text).expect("it is YAML")).findings.len(), FINDINGS_MAX);
}

#[test]
fn what_a_trigger_binds_is_what_paths_and_conditions_use() {
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
    // A condition of a grant needs what it looks at.
    const LOOKS: (&str, &str) =
        ("reads: [/request, /claims]", "reads: [/request, {path: /claims, where: bound.claim == \"0\"}]");
    assert_eq!(found(&[FORMAT_2, BOUND, LOOKS]), []);
    assert_eq!(found(&[FORMAT_2, LOOKS]), [("unbound_name", "/rules/1/trigger".to_owned())]);
    // A signal binds what it carries; nothing else does.
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
    // Each place that the document begins with.
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

    /// A line of the sound blueprint is removed, doubled, moved or replaced, and nothing panics.
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
            let report = lint::check(&source);
            prop_assert!(report.findings.len() <= FINDINGS_MAX);
            prop_assert!(report.findings.iter().all(|finding| finding.position.is_some()), "{:?}", report.findings);
        }
    }
}

#[test]
fn regular_expressions_of_all_schemas_of_a_blueprint_count_together() {
    // Each of them could be used alone.
    let with = |count: usize| {
        let grants = (0..count).map(|index| {
            let pattern = format!(r"^\p{{L}}{{1,{}}}$", 190 + index);
            json!({"path": format!("/a{index}"), "ops": ["add"], "value": {"pattern": pattern}})
        });
        lint::check_value(json!({
            "blueprint": 1,
            "name": "letters",
            "state": {"schema": {"type": "object"}, "initial": {}},
            "workers": {"w": {"agent": "llm", "role": "Write.", "writes": grants.collect::<Vec<_>>()}},
            "rules": [{"name": "r", "trigger": "start", "run": "w"}],
        }))
    };
    let accepted = with(5);
    let blueprint = accepted.blueprint.unwrap_or_else(|| panic!("{:?}", accepted.findings));
    assert!(Plan::compile(Arc::new(blueprint), Mode::default()).is_ok());
    let refused = with(9);
    let errors = refused.findings.iter().filter(|finding| finding.severity == Severity::Error);
    let told: Vec<_> = errors.map(|finding| (finding.code, finding.pointer.as_str())).collect();
    assert_eq!(told, [("bad_schema", "/workers/w/writes/5/value")], "{:?}", refused.findings);
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
