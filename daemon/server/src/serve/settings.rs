//! Settings of the daemon: the table `[serve]` of the operator's configuration, the environment, and flags.

use std::net::SocketAddr;
use std::time::Duration as Time;

use clap::Args;
use patchboard_kernel::blueprint::Duration;
use serde::Deserialize;

use super::limits::LimitSettings;
use super::origins::{OriginPolicy, names_of};
#[cfg(feature = "tls")]
use super::tls::Files;
use crate::failure::Failure;

/// Default address.
const LISTEN: &str = "127.0.0.1:7733";

/// Default time that an ended board stays in memory.
const REST_AFTER: Time = Time::from_secs(60);

/// Settings from the command line and the environment.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Server")]
pub struct Flags {
    /// The address to listen on [default: 127.0.0.1:7733]
    #[arg(long, value_name = "ADDR", env = "PATCHBOARD_LISTEN")]
    listen: Option<SocketAddr>,
    /// Require tokens on a loopback address too
    #[arg(long, env = "PATCHBOARD_REQUIRE_TOKENS")]
    require_tokens: bool,
    /// Maximum open connections, idle ones included [default: 1024]
    #[arg(long, value_name = "COUNT", env = "PATCHBOARD_CONNECTIONS_MAX")]
    connections_max: Option<usize>,
}

/// The table `[serve]`.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Table {
    listen: Option<SocketAddr>,
    require_tokens: bool,
    hosts: Vec<String>,
    origins: Vec<String>,
    rest_after: Option<Duration>,
    limits: LimitSettings,
    #[cfg(feature = "tls")]
    tls: Option<Files>,
    #[cfg(not(feature = "tls"))]
    tls: Option<toml::Table>,
}

/// Effective settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Address to listen on.
    pub listen: SocketAddr,
    require_tokens: bool,
    hosts: Vec<String>,
    origins: Vec<String>,
    /// Time that an ended or stalled board stays in memory.
    pub(crate) rest_after: Time,
    pub(crate) limits: LimitSettings,
    /// Certificate and key, if TLS is enabled.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Files>,
}

impl Settings {
    /// Merges the table of the file and the flags, which take precedence.
    pub fn read(table: toml::Table, flags: &Flags) -> Result<Self, Failure> {
        let table: Table = table.try_into().map_err(|error: toml::de::Error| {
            Failure::invalid_input("bad_config", format!("[serve]: {}", error.message()))
        })?;
        let mut limits = table.limits;
        limits.connections = flags.connections_max.unwrap_or(limits.connections);
        if let Some(wrong) = limits.validation_error() {
            return Err(Failure::invalid_input("bad_config", format!("[serve.limits]: {wrong}")));
        }
        #[cfg(not(feature = "tls"))]
        if table.tls.is_some() {
            return Err(Failure::invalid_input("no_tls", "[serve] tls is set, and this binary was built without TLS")
                .help("build it with `--features tls`, or put a proxy before it that speaks TLS"));
        }
        let default = LISTEN.parse().expect("an address and a port");
        Ok(Self {
            listen: flags.listen.or(table.listen).unwrap_or(default),
            require_tokens: flags.require_tokens || table.require_tokens,
            hosts: table.hosts,
            origins: table.origins,
            rest_after: table.rest_after.map_or(REST_AFTER, |after| Time::from_millis(after.as_ms())),
            limits,
            #[cfg(feature = "tls")]
            tls: table.tls,
        })
    }

    /// Returns the default settings for an address, with tokens required.
    pub(crate) fn for_address(listen: SocketAddr) -> Result<Self, Failure> {
        Self::read(toml::Table::new(), &Flags { listen: Some(listen), require_tokens: true, ..Flags::default() })
    }

    /// Returns true if callers without a token are administrators.
    pub const fn is_open(&self) -> bool {
        !self.require_tokens && self.listen.ip().is_loopback()
    }

    /// Returns the settings that differ from `other` and cannot change while the daemon runs, each with the reason.
    pub(crate) fn fixed(&self, other: &Self) -> Vec<(&'static str, &'static str)> {
        let (own, others) = (&self.limits, &other.limits);
        #[cfg(feature = "tls")]
        let is_other_tls = self.tls != other.tls;
        #[cfg(not(feature = "tls"))]
        let is_other_tls = false;
        let all = [
            ("[serve] listen", "the address is open", self.listen != other.listen),
            ("[serve] require_tokens", "callers were let in by it", self.require_tokens != other.require_tokens),
            ("[serve] tls", "connections were made with it", is_other_tls),
            ("[serve.limits] connections", "the places are given out", own.connections != others.connections),
            ("[serve.limits] head_bytes", "connections were made with it", own.head_bytes != others.head_bytes),
            (
                "[serve.limits] body_memory_mib",
                "the memory is given out",
                own.body_memory_mib != others.body_memory_mib,
            ),
        ];
        all.into_iter().filter(|(_, _, differs)| *differs).map(|(name, why, _)| (name, why)).collect()
    }

    /// Returns the host and origin policy for the bound address.
    pub(crate) fn origin_policy(&self, address: SocketAddr) -> OriginPolicy {
        let hosts = names_of(address).into_iter().chain(self.hosts.iter().cloned()).collect();
        OriginPolicy { hosts, origins: self.origins.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Flags, Settings};

    #[test]
    fn a_flag_is_stronger_than_the_file_and_the_file_than_the_default() {
        let file = || toml::from_str("listen = \"127.0.0.1:1\"\nhosts = [\"a\"]").expect("TOML");
        let flags = Flags { listen: Some("0.0.0.0:2".parse().expect("an address")), ..Flags::default() };
        let read = |table: toml::Table, flags: &Flags| Settings::read(table, flags).expect("settings");
        let listen = |settings: Settings| (settings.listen.to_string(), settings.is_open());
        assert_eq!(listen(read(toml::Table::new(), &Flags::default())), ("127.0.0.1:7733".into(), true));
        assert_eq!(listen(read(file(), &Flags::default())), ("127.0.0.1:1".into(), true));
        assert_eq!(listen(read(file(), &flags)), ("0.0.0.0:2".into(), false));
        let strict = Flags { require_tokens: true, ..Flags::default() };
        assert!(!read(file(), &strict).is_open());
        for wrong in ["lissten = 1", "limits = {streams = 0}", "limits = {stream = 1}"] {
            assert!(Settings::read(toml::from_str(wrong).expect("TOML"), &strict).is_err(), "{wrong}");
        }
        let limits =
            |flags| read(toml::from_str("limits = {connections = 5}").expect("TOML"), flags).limits.connections;
        assert_eq!((limits(&Flags::default()), limits(&Flags { connections_max: Some(7), ..strict })), (5, 7));
    }
}
