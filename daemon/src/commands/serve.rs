//! `patchboard serve`: runs the daemon of [`patchboard_server`].

use std::path::Path;

use serde_json::json;

use crate::failure::Outcome;
use crate::output::Output;
use crate::serve::{self, Arguments};

pub(crate) async fn run(arguments: &Arguments, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
    let announce = |scheme: &str, address: std::net::SocketAddr| {
        let report = json!({"listen": address.to_string(), "pid": std::process::id()});
        output.json_or_line(&report, || format!("listening on {scheme}://{address}"))
    };
    serve::run(arguments, data_dir, config, announce).await
}
