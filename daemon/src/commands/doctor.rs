//! `patchboard doctor`: checks the installation and suggests fixes.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use patchboard_kernel::record::FORMAT;
use patchboard_runtime::clock::{Clock as _, SystemClock};
use patchboard_storage::blocking::wait;
use patchboard_storage::journal::RecordLoss;
use serde_json::json;

use crate::client::{Client, DaemonArgument};
use crate::doctor::observe::{self, JournalCheck};
use crate::doctor::{self, Check, Finding, Severity};
use crate::failure::{Exit, Failure, Outcome};
use crate::notify::settings::Settings as NotifySettings;
use crate::output::{Output, one_line};
use crate::reader::{Reader, storage as storage_failure};
use crate::serve::instance_lock::lock_instance;
use crate::serve::settings::{Flags, Settings};
use crate::serve::tokens::{Action, AuditedAction, TokenStore};
use crate::user;
use crate::worker_agents::ModelArguments;
use patchboard_kernel::text::counted;

/// Timeout for a model server's response.
const PATIENCE: Duration = Duration::from_secs(10);

/// Models probed concurrently by `--models`.
const AT_ONCE: usize = 4;

/// Check the installation, and suggest a fix for each problem
///
/// Checks the configuration, the data directory, the disk, the journal (reads all of its file and verifies every
/// board), the clock, system limits, the model servers (requests each one's list of models, with its key), the
/// programs, and whether `serve` could start. Changes nothing, except with --accept-loss. No key or token is ever
/// printed.
///
/// With --models each configured model also gets a few tiny requests, which cost tokens: the report lists the model's
/// capabilities.
///
/// Exits with 0 if there are no errors (warnings aside), with 1 if there are, with 2 if the configuration is rejected.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  patchboard doctor
  patchboard doctor --data-dir /var/lib/patchboard --config /etc/patchboard/patchboard.toml
  patchboard doctor --output json | jq '.findings[] | select(.severity != \"ok\")'
  patchboard doctor --models
  patchboard doctor --ready")]
pub(crate) struct Arguments {
    /// Only check the daemon's readiness, as a health check does: at --url, or at the address it would use here
    #[arg(long)]
    ready: bool,
    #[command(flatten)]
    daemon: DaemonArgument,
    /// Probe each model's capabilities: reply formats, tools, streams, request members. COSTS TOKENS: at least four
    /// requests a model, each with a reply of at most 32 tokens. The limits concurrency, requests_per_minute and
    /// tokens_per_minute do not apply
    #[arg(long = "models", conflicts_with_all = ["ready", "offline"])]
    asks_models: bool,
    /// Timeout of --models in seconds, for each model
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    #[arg(requires = "asks_models")]
    timeout: u64,
    /// Accept the loss of acknowledged records of these boards (`records_lost`), so that the boards can be read and
    /// resumed from the remaining records; performs no other check
    #[arg(long, value_name = "BOARD", value_delimiter = ',', conflicts_with_all = ["ready", "asks_models"])]
    accept_loss: Vec<String>,
    /// Do not contact the model servers
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    models: ModelArguments,
}

pub(crate) async fn run(arguments: &Arguments, data_dir: &Path, config: Option<&Path>, output: Output) -> Outcome {
    if !arguments.accept_loss.is_empty() {
        return accept_loss(&arguments.accept_loss, data_dir, output);
    }
    let configured = arguments.models.build_registry(config, InlinePrograms::Denied).and_then(|seats| {
        let settings = Settings::read(seats.config().serve.clone(), &arguments.flags)?;
        NotifySettings::configured(config)?;
        Ok((seats, settings))
    });
    if arguments.ready {
        let client = match arguments.daemon.client()? {
            Some(client) => client,
            None => Client::new(&format!("http://{}", observe::local_address(configured?.1.listen)))?,
        };
        return ready(&client, output).await;
    }
    let mut findings =
        vec![Finding::ok(Check::Version, format!("patchboard {}, journal format {FORMAT}", env!("CARGO_PKG_VERSION")))];
    findings.push(match &configured {
        Ok(_) => Finding::ok(Check::Configuration, "it can be read"),
        Err(Failure::Error(error)) => Finding::error(
            Check::Configuration,
            error.message.clone(),
            error.help.clone().unwrap_or_else(|| "fix the file or the flag that it names".to_owned()),
        ),
        Err(Failure::StdoutClosed) => return Err(Failure::StdoutClosed),
    });
    findings.extend(storage(data_dir, output));
    findings.push(doctor::files(observe::files()));
    let exit = if let Ok((seats, settings)) = &configured {
        if !arguments.offline {
            findings.extend(models(seats).await);
            if arguments.asks_models {
                findings.extend(abilities(seats, Duration::from_secs(arguments.timeout)).await);
            }
            if let Some(configured) = &seats.config().embeddings {
                let probed = seats.probe(&configured.server(), PATIENCE).await;
                findings.push(doctor::server(Check::Embeddings, "embeddings", &configured.model, &probed));
            }
        }
        for (name, program) in &seats.config().commands {
            let wanted = program.program.first().map(String::as_str).unwrap_or_default();
            findings.push(doctor::command(name, wanted, &observe::program(program)));
        }
        findings.extend(serving(settings, data_dir));
        Exit::Failed
    } else {
        Exit::InvalidInput
    };
    let worst = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok);
    print_findings(&findings, worst, output)?;
    Ok(if worst == Severity::Error { exit } else { Exit::Done })
}

/// Accepts the loss of records of these boards; all of them or none.
fn accept_loss(boards: &[String], data_dir: &Path, output: Output) -> Outcome {
    if patchboard_storage::losses_without_journal(data_dir).map_err(storage_failure)?.is_empty() {
        drop(Reader::open(data_dir)?);
    }
    let _alone = lock_instance(data_dir)?;
    let journal = patchboard_storage::open(data_dir).map_err(storage_failure)?;
    let lost = wait(journal.record_losses()).map_err(storage_failure)?;
    let accepted = boards.iter().map(|board| {
        lost.iter().find(|lost| lost.board.as_str() == board).ok_or_else(|| {
            Failure::invalid_input("nothing_lost", format!("board {board} has no known loss"))
                .help("`patchboard doctor` names the boards with losses")
        })
    });
    let (tokens, by) = (TokenStore::open(data_dir)?, user::principal());
    for lost in accepted.collect::<Result<Vec<_>, _>>()? {
        let RecordLoss { board, known, found } = lost;
        let intended = AuditedAction { action: Action::LossAccepted, subject: Some(board.as_str()), by: Some(&by) };
        tokens.audited(&intended, SystemClock.now(), || wait(journal.accept_loss(board)).map_err(storage_failure))?;
        output.json_or_line(&json!({"board": board, "known": known, "found": found}), || {
            let rest = found
                .map_or_else(|| "nothing of it is left".to_owned(), |found| format!("it ends with record {found}"));
            format!("board {board}: what was lost up to record {known} is given up; {rest}")
        })?;
    }
    Ok(Exit::Done)
}

/// Checks the data directory, its contents, and the clock that timestamps records.
fn storage(data_dir: &Path, output: Output) -> Vec<Finding> {
    let (began, began_at) = (Instant::now(), SystemClock.now());
    let directory = observe::data_dir(data_dir);
    let mut findings = vec![doctor::data_dir(&directory)];
    findings.extend(doctor::sync(&directory));
    findings.push(doctor::disk(observe::free_bytes(data_dir)));
    let journal = observe::journal(data_dir, &|verified, boards| {
        output.note(&format!("{verified} of {boards} boards are verified"));
    });
    findings.push(doctor::journal(&journal));
    findings.extend(doctor::boards(&journal));
    let newest = if let JournalCheck::Read { newest, .. } = journal { newest } else { None };
    let now = SystemClock.now();
    findings.push(doctor::clock(now, newest, now.0.saturating_sub(began_at.0), began.elapsed()));
    findings
}

/// Probes all models concurrently: an unresponsive server does not delay the others.
async fn models(seats: &AgentRegistry) -> Vec<Finding> {
    let configured = &seats.config().models;
    if configured.is_empty() {
        return vec![Finding::ok(Check::Models, "none is configured")];
    }
    let asked = configured.iter().map(|(name, model)| async move {
        let probed = seats.probe(model, PATIENCE).await;
        doctor::server(Check::Models, name, &model.model, &probed)
    });
    join_all(asked).await
}

/// Probes the capabilities of models concurrently; findings are in the order of names.
async fn abilities(seats: &AgentRegistry, time: Duration) -> Vec<Finding> {
    let asked = seats
        .config()
        .models
        .iter()
        .map(|(name, model)| async move { doctor::abilities(name, seats.capabilities(model, time).await) });
    stream::iter(asked).buffered(AT_ONCE).collect().await
}

/// Checks that `serve` could start.
fn serving(settings: &Settings, data_dir: &Path) -> Vec<Finding> {
    let placed = observe::daemon_presence(data_dir);
    let count = match TokenStore::exist(data_dir) {
        false => Ok(0),
        true => TokenStore::open(data_dir)
            .and_then(|tokens| wait(tokens.list()))
            .map(|all| all.iter().filter(|token| token.is_valid(SystemClock.now())).count())
            .map_err(|failure| if let Failure::Error(error) = failure { error.message } else { String::new() }),
    };
    let address = settings.listen;
    vec![
        doctor::daemon(placed),
        doctor::address(address, &observe::bound(address), placed),
        doctor::tokens(settings.is_open(), address.ip().is_loopback(), count),
    ]
}

async fn ready(client: &Client, output: Output) -> Outcome {
    let answer = client.get("/readyz").await?;
    output.json_or_line(&answer, || "the daemon is ready".to_owned())?;
    Ok(Exit::Done)
}

fn print_findings(findings: &[Finding], worst: Severity, output: Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(&json!({"ok": worst != Severity::Error, "findings": findings}));
    }
    for finding in findings {
        let mark = finding.severity.as_str();
        output.line(&format!("{mark:<8} {:<14} {}", finding.check.as_str(), one_line(&finding.message)))?;
        if let Some(help) = &finding.help {
            output.line(&format!("{:24}help: {}", "", one_line(help)))?;
        }
        for (name, found) in finding.model_abilities.iter().flat_map(|able| able.abilities.lines()) {
            output.line(&format!("{:24}{name:<17} {}", "", one_line(&found)))?;
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    output.line(&format!("{}, {}", counted(errors, "error"), counted(warnings, "warning")))
}
