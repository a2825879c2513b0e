//! Configuration reload while the daemon runs (SIGHUP).

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use patchboard_agents::config::Environment;
use patchboard_agents::registry::{AgentRegistry, InlinePrograms};
use tokio::sync::watch;

use super::Arguments;
use super::origins::OriginPolicy;
use super::retention::Retention;
use super::service::Daemon;
use super::settings::Settings;
use crate::failure::Failure;
use crate::notify::settings::Settings as NotifySettings;
use crate::text::one_line;

/// Start-up configuration, and the channels that receive a new one.
pub(super) struct Reload<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) config: Option<&'a Path>,
    pub(super) initial_registry: Arc<AgentRegistry>,
    pub(super) settings: Settings,
    /// Address on which the daemon is reachable.
    pub(super) address: SocketAddr,
    pub(super) origin_policy: watch::Sender<OriginPolicy>,
    pub(super) rest_after: watch::Sender<Duration>,
    pub(super) retention: watch::Sender<Retention>,
}

impl Reload<'_> {
    /// Reloads the configuration and applies the reloadable settings. An invalid configuration changes nothing.
    pub(super) fn reload(&self, daemon: &Daemon) {
        match self.apply(daemon) {
            Ok(()) => tracing::info!("the configuration was read again"),
            Err(Failure::Error(error)) => {
                let why = one_line(&error.message);
                tracing::error!(code = error.code, "the configuration is refused, the one before stays: {why}");
            }
            Err(Failure::StdoutClosed) => {}
        }
    }

    fn apply(&self, daemon: &Daemon) -> Result<(), Failure> {
        let mut config = self.arguments.models.build_registry(self.config, InlinePrograms::Denied)?.config().clone();
        let settings = Settings::read(config.serve.clone(), &self.arguments.flags)?;
        let retention = Retention::read(config.retention.clone())?;
        NotifySettings::configured(self.config)?;
        let initial = self.initial_registry.config();
        let of_tables = [
            ("[workspaces]", "boards have the directories open", initial.workspaces != config.workspaces),
            ("[notify]", "notices under way belong to their receivers", initial.notify != config.notify),
        ];
        let of_tables = of_tables.into_iter().filter(|(_, _, differs)| *differs).map(|(name, why, _)| (name, why));
        for (setting, why) in self.settings.fixed(&settings).into_iter().chain(of_tables) {
            tracing::warn!(setting, "{setting} keeps its value until the daemon is restarted: {why}");
        }
        config.workspaces.clone_from(&initial.workspaces);
        config.notify.clone_from(&initial.notify);
        daemon.registry.replace(config, &Environment::from_process());
        daemon.limits.replace(settings.limits);
        self.origin_policy.send_replace(settings.origin_policy(self.address));
        self.rest_after.send_replace(settings.rest_after);
        self.retention.send_replace(retention);
        Ok(())
    }
}
