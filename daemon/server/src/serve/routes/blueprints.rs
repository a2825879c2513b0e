//! Parsing and checking of submitted blueprints.

use std::sync::Arc;

use axum::extract::State;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_lint::source::Source;
use patchboard_lint::{FINDINGS_MAX, Report, Severity};
use patchboard_protocols::PLANS;
use patchboard_runtime::error::RuntimeError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::diagnostics::{self, FindingInfo};
use crate::serve::http::{StrictJson, request_body};
use crate::serve::json::Json;
use crate::serve::problem::{ApiResult, Code, Problem};
use crate::serve::service::Daemon;

/// Name of a submitted blueprint in findings.
const NAME: &str = "blueprint";

/// Blueprint as JSON or as text; exactly one of the two.
#[derive(Deserialize, ToSchema)]
pub(crate) struct BlueprintInput {
    /// Blueprint as JSON.
    #[schema(value_type = Option<Object>)]
    blueprint: Option<Map<String, Value>>,
    /// Text of a blueprint file, YAML or JSON; findings refer to its lines.
    source: Option<String>,
}

/// Result of a check.
#[derive(Serialize, ToSchema)]
pub(crate) struct BlueprintReport {
    /// True if a board can be created from the blueprint.
    ok: bool,
    /// Findings.
    findings: Vec<FindingInfo>,
}

/// Blueprint to check.
#[derive(Deserialize, ToSchema)]
pub(crate) struct CheckBlueprintRequest {
    /// Blueprint.
    #[serde(flatten)]
    written: BlueprintInput,
    /// Request of a board: adds the findings on a board that starts with it, like `view_shortage`.
    request: Option<Value>,
}

request_body!(CheckBlueprintRequest: ViewAll, large);

struct ParsedBlueprint {
    /// Source; `None` if it cannot be parsed.
    source: Option<Source>,
    report: Report,
}

impl BlueprintInput {
    fn read(&self) -> ApiResult<ParsedBlueprint> {
        let text = match (&self.blueprint, &self.source) {
            (Some(blueprint), None) => format!("{:#}", json!(blueprint)),
            (None, Some(source)) => source.clone(),
            _ => {
                let detail = "give either blueprint (JSON) or source (the text of a file)";
                return Err(Problem::from_code(Code::BadBody, detail));
            }
        };
        // Callers must not reach other files on this machine (SPEC section 11).
        let mut none = |_: &str| Err("a blueprint that is sent must be whole: it cannot name files".to_owned());
        let source = Source::read(NAME, &text).map_err(|finding| vec![finding]);
        Ok(match source.and_then(|source| patchboard_protocols::resolve(source, &mut none)) {
            Ok(source) => ParsedBlueprint { report: patchboard_protocols::check(&source), source: Some(source) },
            Err(findings) => {
                ParsedBlueprint { source: None, report: Report { blueprint: None, findings, opaque: Vec::new() } }
            }
        })
    }

    /// Returns the blueprint, or a problem with its findings.
    pub(crate) fn read_valid(&self) -> ApiResult<Blueprint> {
        let ParsedBlueprint { report, .. } = self.read()?;
        let findings: Vec<Value> = report.findings.iter().map(diagnostics::json).collect();
        let errors = report.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
        let blueprint = report.blueprint.ok_or_else(|| {
            Problem::from_code(Code::BlueprintRefused, format!("the blueprint has {errors} errors"))
                .help("fix the findings; POST /v1/blueprints/check reports the same")
                .detail("findings", json!(findings))
        })?;
        if blueprint.rules.is_empty() {
            let detail = "the blueprint has no rules: no worker would ever be triggered, and the board would never end";
            return Err(Problem::from_code(Code::NoRules, detail)
                .help("add a rule, such as {name: begin, trigger: start, run: WORKER}"));
        }
        Ok(blueprint)
    }
}

/// Check a blueprint: returns every finding with its line, a stable code and a fix
///
/// With a `request`, starts a board in memory, with the models of this daemon; 422 `bad_request` if that fails.
#[utoipa::path(post, operation_id = "checkBlueprint", path = "/v1/blueprints/check", tag = "blueprints", request_body = CheckBlueprintRequest,
    responses((status = 200, description = "The findings", body = BlueprintReport)))]
pub(crate) async fn check(
    State(daemon): State<Arc<Daemon>>,
    StrictJson(to_check): StrictJson<CheckBlueprintRequest>,
) -> ApiResult<Json<BlueprintReport>> {
    let on_daemon = Arc::clone(&daemon);
    daemon.query(move |_| Ok(check_input(&on_daemon, to_check))).await?.map(Json)
}

/// Returns the findings on a blueprint, and on a board in memory that starts with the request.
fn check_input(daemon: &Daemon, to_check: CheckBlueprintRequest) -> ApiResult<BlueprintReport> {
    let ParsedBlueprint { source, mut report } = to_check.written.read()?;
    if let (Some(request), Some(source), Some(blueprint)) = (to_check.request, &source, &report.blueprint) {
        let mut blueprint = blueprint.clone();
        daemon.fit_views(&mut blueprint);
        let found =
            patchboard_lint::check_with_request(source, blueprint, request, &PLANS).map_err(RuntimeError::Board)?;
        report.findings.extend(found);
        report.findings.truncate(FINDINGS_MAX);
    }
    let findings = report.findings.iter().map(FindingInfo::new).collect();
    Ok(BlueprintReport { ok: report.blueprint.is_some(), findings })
}
