//! The daemon with TLS and a self-signed certificate, and the error of a binary without TLS.

#[cfg(feature = "tls")]
mod with {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use reqwest::{Certificate, Client};
    use serde_json::Value;

    use crate::daemon::{Daemon, send};

    /// Writes a certificate and its key; returns the certificate.
    fn certify(directory: &Path) -> String {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let certificate = made.cert.pem();
        std::fs::write(directory.join("cert.pem"), &certificate).expect("a file can be written");
        std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).expect("a file can be written");
        certificate
    }

    /// Returns a client that trusts only this certificate.
    fn trusting(certificate: &str) -> Client {
        drop(rustls::crypto::ring::default_provider().install_default());
        let certificate = Certificate::from_pem(certificate.as_bytes()).expect("a certificate");
        Client::builder().no_proxy().tls_certs_only([certificate]).build().expect("a client")
    }

    async fn boards(client: &Client, daemon: &Daemon) -> Result<Value, reqwest::Error> {
        let port = daemon.address().rsplit(':').next().expect("a port").to_owned();
        client.get(format!("https://localhost:{port}/v1/boards")).send().await?.json().await
    }

    #[tokio::test]
    async fn it_is_reached_by_its_certificate_which_can_be_renewed() {
        let mut daemon = Daemon::not_started(&[]);
        let first = certify(daemon.path());
        let config = "[serve]\ntls = {cert = \"cert.pem\", key = \"key.pem\"}\n";
        std::fs::write(daemon.path().join("patchboard.toml"), config).expect("a file can be written");
        daemon.start();
        assert_eq!(boards(&trusting(&first), &daemon).await.expect("it is trusted")["boards"], serde_json::json!([]));
        let plain = Client::builder().no_proxy().build().expect("a client");
        assert!(plain.get(format!("http://{}/healthz", daemon.address())).send().await.is_err());
        // An invalid certificate changes nothing.
        std::fs::write(daemon.path().join("cert.pem"), "none").expect("a file can be written");
        send("-HUP", daemon.process());
        boards(&trusting(&first), &daemon).await.expect("it is still the first");
        let second = certify(daemon.path());
        assert!(boards(&trusting(&second), &daemon).await.is_err());
        send("-HUP", daemon.process());
        let begun = Instant::now();
        while boards(&trusting(&second), &daemon).await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it never was the second");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(boards(&trusting(&first), &daemon).await.is_err());
        assert_eq!(daemon.stop(), Some(0));
    }

    #[test]
    fn without_a_certificate_it_does_not_start() {
        let daemon = Daemon::not_started(&[]);
        let config = "[serve]\ntls = {cert = \"cert.pem\", key = \"key.pem\"}\n";
        std::fs::write(daemon.path().join("patchboard.toml"), config).expect("a file can be written");
        let refused = daemon.command(&["serve", "--listen", "127.0.0.1:0"]).output().expect("the binary can be run");
        assert_eq!(refused.status.code(), Some(2));
        let printed: Value = serde_json::from_slice(&refused.stderr).expect("JSON");
        assert_eq!(printed["error"]["code"], "bad_tls");
    }
}

#[cfg(not(feature = "tls"))]
#[test]
fn a_binary_without_tls_refuses_to_listen_without_it() {
    let daemon = crate::daemon::Daemon::not_started(&[]);
    let config = "[serve]\ntls = {cert = \"cert.pem\", key = \"key.pem\"}\n";
    std::fs::write(daemon.path().join("patchboard.toml"), config).expect("a file can be written");
    let refused = daemon.command(&["serve", "--listen", "127.0.0.1:0"]).output().expect("the binary can be run");
    assert_eq!(refused.status.code(), Some(2));
    let printed: serde_json::Value = serde_json::from_slice(&refused.stderr).expect("JSON");
    assert_eq!(printed["error"]["code"], "no_tls");
}
