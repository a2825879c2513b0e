//! Blueprints: read and checked, whoever sent them.

use axum::Json;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::lint::{self, Report, Severity};
use patchboard_kernel::source::{self, Source};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::ProblemDocument;
use crate::diagnostics;
use crate::serve::access::Need;
use crate::serve::http::{Body, Caller};
use crate::serve::problem::{Answered, Code, Problem};

/// What findings call a blueprint that was sent.
const NAME: &str = "blueprint";

/// A blueprint as it is sent: one of the two.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Written {
    /// The blueprint as JSON.
    #[schema(value_type = Option<Object>)]
    blueprint: Option<Map<String, Value>>,
    /// The text of a blueprint file, YAML or JSON; findings name its lines.
    source: Option<String>,
}

/// What was found in a blueprint.
#[derive(Serialize, ToSchema)]
pub(crate) struct Checked {
    /// Whether a board could be made of it.
    ok: bool,
    /// Each with severity, code, pointer, line, column, message and help.
    #[schema(value_type = Vec<Object>)]
    findings: Vec<Value>,
}

impl Written {
    fn read(&self) -> Answered<Report> {
        let text = match (&self.blueprint, &self.source) {
            (Some(blueprint), None) => format!("{:#}", json!(blueprint)),
            (None, Some(source)) => source.clone(),
            _ => {
                let detail = "give either blueprint (JSON) or source (the text of a file)";
                return Err(Problem::of(Code::BadBody, detail));
            }
        };
        // What else there is on this machine is not for those who send blueprints (SPEC section 11).
        let mut none = |_: &str| Err("a blueprint that is sent must be whole: it cannot name files".to_owned());
        let refused = |findings| Report { blueprint: None, findings, opaque: Vec::new() };
        Ok(match Source::read(NAME, &text) {
            Ok(source) => source::resolve(source, &mut none).map_or_else(refused, |source| lint::check(&source)),
            Err(finding) => refused(vec![finding]),
        })
    }

    /// The blueprint, if nothing is wrong with it.
    pub(crate) fn accepted(&self) -> Answered<Blueprint> {
        let report = self.read()?;
        let findings: Vec<Value> = report.findings.iter().map(diagnostics::json).collect();
        let errors = report.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
        let blueprint = report.blueprint.ok_or_else(|| {
            Problem::of(Code::BlueprintRefused, format!("the blueprint has {errors} errors"))
                .help("mend what the findings say; POST /v1/blueprints/check finds the same")
                .detail("findings", json!(findings))
        })?;
        if blueprint.rules.is_empty() {
            let detail = "the blueprint has no rules: nothing would ever wake a worker, and the board would never end";
            return Err(Problem::of(Code::NoRules, detail)
                .help("add a rule, such as {name: begin, trigger: start, run: WORKER}"));
        }
        Ok(blueprint)
    }
}

/// Check a blueprint: every finding with its line, a stable code and how to mend it
#[utoipa::path(post, path = "/v1/blueprints/check", tag = "blueprints", request_body = Written,
    responses((status = 200, body = Checked), (status = "default", body = ProblemDocument, content_type = "application/problem+json")))]
pub(crate) async fn check(caller: Caller, Body(written): Body<Written>) -> Answered<Json<Checked>> {
    caller.needs(&Need::SeeAll)?;
    let report = written.read()?;
    let findings = report.findings.iter().map(diagnostics::json).collect();
    Ok(Json(Checked { ok: report.blueprint.is_some(), findings }))
}
