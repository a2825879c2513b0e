//! Tests of `demands.rs`.

use super::*;

/// Renders demands as text: `rows.*.id in state.tasks.*.id`, `n < state.list`.
fn demands(source: &str) -> Vec<String> {
    let way = |steps: &[LookupStep]| {
        let step = |step: &LookupStep| match step {
            LookupStep::Member(name) => name.clone(),
            LookupStep::Any | LookupStep::Element => "*".to_owned(),
        };
        steps.iter().map(step).collect::<Vec<_>>().join(".")
    };
    let expr = Expr::compile(source, &["self", "state", "request", "before"]).expect("an expression");
    let describe = |demand: Demand| {
        let (relation, look) = match &demand.requirement {
            Requirement::BeOneOf(look) => ("in", look),
            Requirement::BeBelowSizeOf(look) => ("<", look),
        };
        format!("{} {relation} {}.{}", way(&demand.part), look.variable, way(&look.steps))
    };
    expr.demands("self").into_iter().map(describe).collect()
}

#[test]
fn only_necessary_demands_of_an_expression_are_found() {
    for (source, expected) in [
        ("state.tasks.exists(t, t.id == self)", &[" in state.tasks.*.id"][..]),
        ("state.docs.exists(d, d.lines.exists(l, self == l))", &[" in state.docs.*.lines.*"]),
        ("self.id in request.ids && self.n < size(state.list)", &["id in request.ids.*", "n < state.list"]),
        ("self.rests_on.all(i, i < size(state.verified))", &["rests_on.* < state.verified"]),
        (
            "self.rows.all(r, size(state.l) > r.at && r.of in state.names)",
            &["rows.*.at < state.l", "rows.*.of in state.names.*"],
        ),
        ("self.rows.all(r, r.all(c, state.cells.exists(x, x == c)))", &["rows.*.* in state.cells.*"]),
        ("!has(self.of) || self.of in state.names", &["of in state.names.*"]),
        ("self.parent in state.names || !has(self.parent)", &["parent in state.names.*"]),
        ("self == state.next", &[" in state.next"]),
        // No demands: only some elements need to satisfy the condition.
        ("self.rows.exists(r, r in state.names)", &[]),
        ("self.rows[0] in state.names", &[]),
        ("state.names.all(n, n == self)", &[]),
        ("self.rows.all(r, self.kind in state.kinds)", &[]),
        ("!has(self.of) || self.kind in state.kinds", &[]),
        ("has(self.of) || self.of in state.names", &[]),
        ("self.a in state.names || self.b in state.names", &[]),
        ("!(self in state.names)", &[]),
        ("self.n > size(state.list)", &[]),
        ("self.a == self.b && self.a in self.list", &[]),
        ("self.rows.filter(r, r.ok).all(r, r.id in state.ids)", &[]),
    ] {
        assert_eq!(demands(source), expected, "{source}");
    }
}
