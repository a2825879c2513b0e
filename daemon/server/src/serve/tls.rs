//! TLS with `rustls` and `ring`: certificate and key from files, reloaded on SIGHUP.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum_server::tls_rustls::RustlsConfig;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use super::problem::Problem;
use crate::failure::Failure;

#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Files {
    /// Certificate chain, in PEM.
    cert: PathBuf,
    /// Private key, in PEM.
    key: PathBuf,
}

impl Files {
    pub(crate) fn read(&self) -> Result<RustlsConfig, Failure> {
        self.config().map(RustlsConfig::from_config)
    }

    fn config(&self) -> Result<Arc<ServerConfig>, Failure> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&read(&self.cert)?)
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(&self.cert, "holds no certificate", error))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|error| wrong(&self.key, "holds no key", error))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| wrong(&self.cert, "does not serve", error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Reloads the files on each SIGHUP. Files that cannot be used change nothing.
    pub(crate) fn follow(self, current: RustlsConfig) -> io::Result<JoinHandle<()>> {
        let mut hangups = signal(SignalKind::hangup())?;
        Ok(tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                // A short blocking read: the two files are small.
                match self.config() {
                    Ok(config) => {
                        current.reload_from_config(config);
                        tracing::info!("certificate and key were read again");
                    }
                    Err(failure) => {
                        let problem = Problem::from(failure);
                        tracing::error!(code = problem.code, "the certificate stays as it was: {}", problem.detail);
                    }
                }
            }
        }))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| wrong(path, "cannot be read", error))
}

fn wrong(path: &Path, how: &str, error: impl std::fmt::Display) -> Failure {
    Failure::invalid_input("bad_tls", format!("{} {how}: {error}", path.display()))
        .help("name a certificate and its key, both in PEM, under [serve] tls in patchboard.toml")
}
