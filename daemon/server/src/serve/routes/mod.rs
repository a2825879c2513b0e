//! Routes under `/v1`. Each checks the permission of its caller, queries the daemon, and responds.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use patchboard_kernel::deferral::DeferralReason;
use serde::Serialize;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi as Description, Ref, Response, ResponseBuilder};
use utoipa::{Modify, OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::json::SortedJson;
use super::problem::Problem;
use super::service::Daemon;

pub(crate) mod agui;
pub(crate) mod artifacts;
pub(crate) mod audit_log;
pub(crate) mod blueprints;
pub(crate) mod boards;
pub(crate) mod files;
pub(crate) mod handoffs;
pub(crate) mod history;
pub(crate) mod leases;
pub(crate) mod mcp;
pub(crate) mod metrics;
pub(crate) mod negotiations;
pub(crate) mod people;
pub(crate) mod proposal_outcome;
pub(crate) mod proposals;
mod protocols;
pub(crate) mod rooms;
pub(crate) mod storage;
pub(crate) mod tokens;
pub(crate) mod workflows;

/// Error document (RFC 9457), with extension members where there are details.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemDocument {
    /// `urn:patchboard:problem:` and the code.
    #[serde(rename = "type")]
    kind: String,
    /// Code in words.
    title: String,
    /// HTTP status of the response.
    status: u16,
    /// Description of the error, for people.
    detail: String,
    /// Stable code; docs/codes.md has the meanings.
    code: String,
    /// Advice for the caller.
    help: Option<String>,
}

/// Description of the API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "PatchBoard",
        description = "Boards on which agents propose JSON Patches, and a kernel that commits or rejects them."
    ),
    components(schemas(ProblemDocument)),
    modifiers(&Tokens),
    security(("token" = [])),
    tags(
        (name = "blueprints", description = "Checking blueprints"),
        (name = "boards", description = "Boards and their life cycle"),
        (name = "history", description = "State, records, views, causes and costs of a board"),
        (name = "proposals", description = "Patches and signals from outside"),
        (name = "leases", description = "Calls of remote workers"),
        (name = "mcp", description = "MCP integration"),
        (name = "people", description = "Approvals and questions"),
        (name = "protocols", description = "Rooms, negotiations, handoffs, workflows and artefacts"),
        (name = "storage", description = "Redaction, archive and deletion"),
        (name = "tokens", description = "Authentication and authorization"),
        (name = "operations", description = "Monitoring"),
    )
)]
struct Api;

/// Security scheme of the API.
struct Tokens;

impl Modify for Tokens {
    fn modify(&self, description: &mut Description) {
        let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        let components = description.components.get_or_insert_default();
        components.add_security_scheme("token", token);
    }
}

pub(crate) fn all() -> (Router<Arc<Daemon>>, Description) {
    let (routes, mut description) = routes().split_for_parts();
    let items = description.paths.paths.values_mut();
    let operations = items.flat_map(|item| [&mut item.get, &mut item.post, &mut item.put, &mut item.delete]);
    for operation in operations.flatten() {
        operation.responses.responses.entry("default".to_owned()).or_insert_with(|| problem().into());
    }
    (routes, description)
}

/// Returns the response to a request that failed.
fn problem() -> Response {
    let schema = Ref::from_schema_name(ProblemDocument::name());
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new().description("A problem with its code and help");
    response.content("application/problem+json", content).build()
}

fn routes() -> OpenApiRouter<Arc<Daemon>> {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(blueprints::check))
        .routes(routes!(boards::list, boards::create))
        .routes(routes!(boards::show, storage::delete))
        .routes(routes!(boards::pause))
        .routes(routes!(boards::resume))
        .routes(routes!(boards::retry))
        .routes(routes!(boards::cancel))
        .routes(routes!(history::state))
        .routes(routes!(history::view))
        .routes(routes!(history::journal))
        .routes(routes!(history::events))
        .routes(routes!(agui::follow, agui::run))
        .routes(routes!(history::why))
        .routes(routes!(history::cost))
        .routes(routes!(history::rejections))
        .route("/v1/boards/{board}/denials", get(history::denials))
        .routes(routes!(proposals::propose))
        .routes(routes!(proposals::signal))
        .routes(routes!(leases::list, leases::lease))
        .routes(routes!(leases::renew))
        .routes(routes!(leases::answer))
        .routes(routes!(leases::fail))
        .routes(routes!(files::command))
        .routes(routes!(mcp::own_seat))
        .routes(routes!(mcp::seat))
        .routes(routes!(people::inbox))
        .routes(routes!(people::answer))
        .routes(routes!(rooms::propose))
        .routes(routes!(rooms::vote))
        .routes(routes!(rooms::decision))
        .routes(routes!(handoffs::request, handoffs::pending))
        .routes(routes!(handoffs::show))
        .routes(routes!(handoffs::accept))
        .routes(routes!(handoffs::reject))
        .routes(routes!(workflows::check))
        .routes(routes!(workflows::show))
        .routes(routes!(workflows::resume))
        .routes(routes!(negotiations::say))
        .routes(routes!(negotiations::show))
        .routes(routes!(artifacts::append))
        .routes(routes!(storage::redact))
        .routes(routes!(storage::vacuum))
        .routes(routes!(storage::to_archive))
        .routes(routes!(storage::restore))
        .routes(routes!(storage::archived))
        .routes(routes!(audit_log::list))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(metrics::show))
}

#[derive(Serialize)]
pub(crate) struct ProbeReport {
    /// Status: `alive` or `ready`.
    status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    models_away: Vec<AwayModelInfo>,
}

#[derive(Serialize)]
struct AwayModelInfo {
    model: String,
    /// Reason: a code of docs/codes.md.
    reason: DeferralReason,
    /// Seconds until the next request to the provider, if one is planned.
    next_try_s: Option<f64>,
    waiting_calls: usize,
}

pub(crate) async fn alive() -> SortedJson<ProbeReport> {
    SortedJson(ProbeReport { status: "alive", models_away: Vec::new() })
}

/// Readiness probe: boards recovered and journal usable. Lists the unavailable models, with the number of waiting
/// calls.
pub(crate) async fn ready(State(daemon): State<Arc<Daemon>>) -> Result<SortedJson<ProbeReport>, Problem> {
    daemon.ready().await?;
    let away = daemon.models().into_iter().filter_map(|model| {
        let outage = model.outage?;
        let next_try_s = outage.next_try.map(|next_try| next_try.as_secs_f64().ceil());
        let (model, waiting_calls) = (model.key.model().to_owned(), model.waiting);
        Some(AwayModelInfo { model, reason: outage.reason, next_try_s, waiting_calls })
    });
    Ok(SortedJson(ProbeReport { status: "ready", models_away: away.collect() }))
}
