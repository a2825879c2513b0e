//! MCP server for one agent of a shared directory: the file tools, and a tool for recent changes.

use std::sync::{Arc, Weak};

use patchboard_kernel::blueprint::WorkspaceSpec;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData as McpError, ServerHandler};
use serde_json::{Map, Value, json};

use super::command_queue::RunningCommand;
use super::host_client::HostClient;
use crate::failure::Failure;
use crate::serve::host;
use crate::serve::mcp::{editor, no_such_tool};

const CHANGES: &str = "changes";

/// Member of `_meta` with the client's name, since protocol version 2026-07-28.
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";

/// Editor of one agent. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Editor {
    client: Arc<HostClient>,
    spec: Arc<WorkspaceSpec>,
    /// Turn of the current command, while the client waits for its result.
    command: Weak<RunningCommand>,
}

impl Editor {
    pub(crate) fn new(client: Arc<HostClient>) -> Self {
        // Invalid settings are reported by the host, at the first command.
        let spec = host::blueprint(&client.settings().unwrap_or_default()).workspace;
        let spec = spec.expect("the blueprint has a workspace");
        Self { client, spec: Arc::new(spec), command: Weak::new() }
    }

    pub(crate) fn for_command(&self, command: &Arc<RunningCommand>) -> Self {
        Self { command: Arc::downgrade(command), ..self.clone() }
    }

    /// Records the client's name from a message, if it has one.
    pub(crate) fn note_client_name(&self, message: &Value) {
        let params = &message["params"];
        let names = [&params["clientInfo"]["name"], &params["_meta"][CLIENT]["name"]];
        if let Some(client) = names.into_iter().find_map(Value::as_str) {
            // An error is reported again at the first command.
            drop(self.client.resolve_name(Some(client)));
        }
    }

    fn tools(&self) -> Vec<Tool> {
        let name = self.client.resolve_name(None).unwrap_or_default();
        let mut tools = editor::tools(&name, &self.spec);
        tools.push(changes());
        tools
    }
}

fn changes() -> Tool {
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let Value::Object(schema) = schema else { unreachable!("it is written as an object") };
    let description = "Show who changed which files lately and what for, the newest first: the other agents, and `external` \
                       for whatever is changed around the editor.";
    Tool::new(CHANGES, description, Arc::new(schema))
        .with_title("Show the last changes")
        .with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
}

impl ServerHandler for Editor {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("patchboard", env!("CARGO_PKG_VERSION")))
            .with_instructions(format!("{} {}", editor::instructions(&self.spec), self.client.introduction()))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, McpError> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, McpError> {
        let raw_arguments: Map<String, Value> = request.arguments.unwrap_or_default();
        let result = match editor::arguments(&request.name, raw_arguments) {
            Some(arguments) => match self.command.upgrade() {
                Some(command) => self.client.call(command, arguments).await,
                None => return Err(McpError::internal_error("the request was cancelled", None)),
            },
            None if request.name == CHANGES => self.client.changes().await,
            None => return Err(no_such_tool(&request.name)),
        };
        Ok(match result {
            Ok(result) => editor::result(result),
            Err(Failure::Error(error)) => CallToolResult::structured_error(
                json!({"code": error.code, "message": error.message, "help": error.help}),
            ),
            Err(Failure::StdoutClosed) => CallToolResult::structured_error(json!({"code": "output_failed"})),
        }
        .into())
    }
}
