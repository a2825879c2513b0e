//! A configuration that is read again while the daemon runs (SIGHUP).

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use patchboard_agents::config::{Config, Environment};
use patchboard_agents::seats::{Inline, Seats};
use tokio::sync::watch;

use super::Arguments;
use super::http::Door;
use super::retention::Retention;
use super::service::Daemon;
use super::settings::Settings;
use crate::failure::Failure;
use crate::notify::settings::Settings as NotifySettings;
use crate::output::one_line;
use crate::trust::config_file;

/// What the daemon was started with, and where what holds is put.
pub(super) struct Reload<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) config: Option<&'a Path>,
    /// Seats of the configuration that it began with.
    pub(super) begun: Arc<Seats>,
    pub(super) settings: Settings,
    /// Address that it is reached at.
    pub(super) address: SocketAddr,
    pub(super) doors: watch::Sender<Door>,
    pub(super) rest_after: watch::Sender<Duration>,
    pub(super) retention: watch::Sender<Retention>,
}

/// A configuration that can be used.
struct Read {
    config: Config,
    settings: Settings,
    retention: Retention,
}

impl Reload<'_> {
    /// Reads the configuration again and puts in place what can be. One that is refused changes nothing.
    pub(super) fn again(&self, daemon: &Daemon) {
        match self.read() {
            Ok(read) => self.put(read, daemon),
            Err(Failure::Told(told)) => {
                let why = one_line(&told.message);
                tracing::error!(code = told.code, "the configuration is refused, the one before stays: {why}");
            }
            Err(Failure::StdoutClosed) => {}
        }
    }

    fn read(&self) -> Result<Read, Failure> {
        let config = self.arguments.models.seats(self.config, Inline::Refused)?.config().clone();
        let settings = Settings::read(config.serve.clone(), &self.arguments.flags)?;
        let retention = Retention::read(config.retention.clone())?;
        config_file(self.config)?.map(|file| NotifySettings::read(file, &Environment::of_process())).transpose()?;
        Ok(Read { config, settings, retention })
    }

    fn put(&self, read: Read, daemon: &Daemon) {
        let Read { mut config, settings, retention } = read;
        let begun = self.begun.config();
        let of_tables = [
            ("[workspaces]", "boards have the directories open", begun.workspaces != config.workspaces),
            ("[notify]", "notices under way belong to their receivers", begun.notify != config.notify),
        ];
        let of_tables = of_tables.into_iter().filter(|(_, _, differs)| *differs).map(|(name, why, _)| (name, why));
        for (setting, why) in self.settings.fixed(&settings).into_iter().chain(of_tables) {
            tracing::warn!(setting, "{setting} stays as it is until the daemon is started anew: {why}");
        }
        config.workspaces.clone_from(&begun.workspaces);
        config.notify.clone_from(&begun.notify);
        daemon.seats.replace(config, &Environment::of_process());
        daemon.limits.replace(settings.limits);
        self.doors.send_replace(settings.door(self.address));
        self.rest_after.send_replace(settings.rest_after);
        self.retention.send_replace(retention);
        tracing::info!("the configuration was read again");
    }
}
