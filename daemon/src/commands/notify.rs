//! `patchboard notify test`: checks the delivery of notices.

use std::path::Path;

use clap::Subcommand;
use patchboard_runtime::clock::{Clock as _, SystemClock};
use serde_json::json;

use crate::failure::{Exit, Failure, Outcome};
use crate::notify::notice::Notice;
use crate::notify::settings::Settings;
use crate::output::{Output, one_line};

/// Check that notices of `[notify]` reach their receivers
///
/// The daemon delivers notices to a webhook or a program: a board has a question for a person, waits for a provider,
/// stopped, or gave up.
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Examples:
  patchboard notify test
  patchboard notify test --config /etc/patchboard/patchboard.toml --output json")]
pub(crate) enum Command {
    /// Send a test notice once to every receiver, and print the result
    Test,
}

pub(crate) async fn run(command: &Command, config: Option<&Path>, output: Output) -> Outcome {
    let Command::Test = command;
    let settings = Settings::configured(config)?.ok_or_else(|| {
        Failure::invalid_input("bad_config", "there is no table [notify]")
            .help("name a webhook or a program in [notify] of patchboard.toml")
    })?;
    settings.warnings.iter().for_each(|warning| output.note(&format!("warning: {warning}")));
    let now = SystemClock.now();
    let notice = Notice::test(now, now.0.unsigned_abs());
    let mut results = Vec::new();
    for receiver in &settings.receivers {
        let delivered = receiver.deliver(&notice.id, &notice.body()).await;
        let (kind, name) = (receiver.kind(), receiver.name());
        if !output.is_json() {
            let outcome = match &delivered {
                Ok(()) => "delivered".to_owned(),
                Err(undelivered) => format!("not delivered: {}", one_line(&undelivered.why)),
            };
            output.line(&format!("{kind} {}: {outcome}", one_line(&name)))?;
        }
        let why = delivered.err().map(|undelivered| undelivered.why);
        results.push(json!({"receiver": kind, "name": name, "delivered": why.is_none(), "why": why}));
    }
    let is_done = results.iter().all(|result| result["delivered"] == true);
    if output.is_json() {
        output.json(&json!({"id": notice.id, "receivers": results}))?;
    }
    Ok(if is_done { Exit::Done } else { Exit::Failed })
}
