//! Headers, redirects, proxies and the TLS provider.

use super::*;
use crate::config::{Setting, Variable};

#[test]
fn invalid_header_values_are_reported_without_the_value() {
    let variables = [("KEY".to_owned(), SecretString::from("sk-hush\nhush"))].into();
    let mut model = Model::new("http://localhost:1/v1", "m");
    model.api_key_env = Some("KEY".into());
    model.query.insert("api-version".into(), Setting::Text("2026 1".into()));
    let error = Endpoint::new(&model, &variables).err().expect("refused");
    assert!(error.contains("the key") && !error.contains("hush"), "{error}");
    model.api_key_env = None;
    let endpoint = Endpoint::new(&model, &variables).expect("its headers can be sent");
    let request = endpoint.request(Method::GET, "/models", None, Vec::new()).expect("it can be sent");
    assert_eq!(request.url().as_str(), "http://localhost:1/v1/models?api-version=2026+1");
    model.headers.insert("x-key".into(), Setting::Variable(Variable { env: "KEY".into() }));
    let error = Endpoint::new(&model, &variables).err().expect("refused");
    assert!(error.contains("x-key") && !error.contains("hush"), "{error}");
    model.query.insert("key".into(), Setting::Variable(Variable { env: "UNSET".into() }));
    let error = Endpoint::new(&model, &variables).err().expect("it is not set");
    assert_eq!(error, "set UNSET, which query.key is read from");
}

#[test]
fn the_provider_is_installed_once_however_often_it_is_asked_for() {
    install_tls_provider();
    install_tls_provider();
    assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    // Loads the system's certificates; fails without a panic if there are none.
    if let Err(error) = client("https://localhost:1") {
        assert!(error.contains("CA certificates"), "{error}");
    }
}

#[test]
fn a_redirect_names_the_base_that_it_leads_to() {
    let url = Url::parse("http://h/v1/chat/completions").expect("an address");
    for (location, expected) in [
        ("https://h/v1/chat/completions", "to https://h/v1: put"),
        ("/api/v1/chat/completions/", "to http://h/api/v1: put"),
        ("/login?next=secret#x", "to http://h/login, which serves no model"),
        ("http://[", "no address"),
    ] {
        let said = redirected(&url, Api::Chat, location);
        assert!(said.contains(expected) && !said.contains("secret"), "{said}");
    }
}

#[test]
fn loopback_addresses_are_never_sent_through_a_proxy() {
    for (url, expected) in [
        ("http://localhost:1/v1", true),
        ("http://127.0.0.2/v1", true),
        ("http://[::1]:8/v1", true),
        ("http://localhost.example/v1", false),
        ("https://10.0.0.1", false),
    ] {
        assert_eq!(is_loopback(&Url::parse(url).expect("an address")), expected, "{url}");
    }
}
