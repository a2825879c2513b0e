//! The description of the API: schemathesis sends requests that it allows and requests that it does not, and a
//! generated client takes a board through its life.

use std::time::Duration;

use super::Client;
use crate::daemon::Daemon;

/// Time limit of the client.
const TIME: Duration = Duration::from_secs(180);

#[test]
#[ignore = "full tier: packages from registries"]
fn the_daemon_is_as_it_describes_itself() {
    let Some(client) = Client::find("openapi") else { return };
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    // The client tries invalid tokens, and must not be rate-limited for that.
    let config = "[serve.limits]\nfailures_per_minute = 1000000\n";
    std::fs::write(daemon.path().join("patchboard.toml"), config).expect("a file can be written");
    let token = daemon.token("admin");
    daemon.start();
    let url = format!("http://{}", daemon.address());
    let report = client.run("openapi.py", &[&url, &token], TIME);
    let count = |before: &str| {
        let (_, rest) = report.split_once(before).unwrap_or_else(|| panic!("{report}"));
        rest.split_whitespace().next().and_then(|count| count.parse::<u32>().ok()).unwrap_or_else(|| panic!("{report}"))
    };
    // Guards against a description without routes, which any daemon would satisfy.
    assert!(count("Tested:") >= 25 && count("Test cases:") > 500, "{report}");
}

#[test]
#[ignore = "full tier: packages from registries"]
fn a_client_that_is_generated_from_the_description_takes_a_board_through_its_life() {
    let Some(client) = Client::find("generated") else { return };
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    let token = daemon.token("admin");
    daemon.start();
    let url = format!("http://{}", daemon.address());
    let printed = client.run("generated.py", &[&url, &token], TIME);
    assert!(printed.contains("records: 7"), "{printed}");
}
