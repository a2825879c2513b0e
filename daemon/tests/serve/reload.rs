//! Reloading the daemon's configuration at SIGHUP.

use std::time::{Duration, Instant};

use patchboard_endpoint::{Endpoint, ScriptedResponse};
use reqwest::Method;
use serde_json::json;

use crate::daemon::{Answer, Daemon, STEPS, send};

const PAGE: &str = "https://page.example";

/// Sends a request as a web page of another origin would.
async fn from_page(daemon: &Daemon) -> Answer {
    daemon.request(Method::GET, "/v1/boards", &[("origin", PAGE)], None).await
}

/// Sends SIGHUP, and waits until the daemon has logged `said` this many times.
async fn reload(daemon: &Daemon, said: &str, times: usize) {
    send("-HUP", daemon.process());
    let begun = Instant::now();
    while daemon.log().matches(said).count() < times {
        assert!(begun.elapsed() < Duration::from_secs(20), "{said:?} is not in {}", daemon.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn model(endpoint: &Endpoint) -> String {
    format!("[models.default]\nurl = \"{}\"\nmodel = \"m\"\n", endpoint.url)
}

fn walking() -> Endpoint {
    Endpoint::serving(|_| ScriptedResponse::answer(r#"[{"op":"add","path":"/steps/-","value":1}]"#, 9, 9))
}

#[tokio::test]
async fn reload_applies_changeable_settings_and_reports_the_others() {
    let (first, second) = (walking(), walking());
    let mut daemon = Daemon::not_started(&[]);
    daemon.configure(&model(&first));
    daemon.start();
    let source =
        STEPS.replacen("agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]\n", "agent: llm\n", 1);
    let walk = async || {
        let made = daemon.post("/v1/boards", &json!({ "source": source })).await.expect_status(201);
        daemon.until(made["board"].as_str().expect("an id"), "quiescent").await;
        (first.bodies().len(), second.bodies().len())
    };
    from_page(&daemon).await.expect_problem(403, "unknown_origin");
    assert_eq!(walk().await, (1, 0));

    let serve = format!("[serve]\norigins = [\"{PAGE}\"]\nrest_after = \"100ms\"\n");
    let limits = "[serve.limits]\nhead_bytes = 20000\nrequests_per_second = 1\nrequests_burst = 40\n";
    daemon.configure(&format!("{}{serve}{limits}[workspaces.code]\ndir = \".\"\n", model(&second)));
    reload(&daemon, "the configuration was read again", 1).await;
    let read = from_page(&daemon).await;
    let allowed = |answer: &Answer| answer.headers.get("access-control-allow-origin").cloned();
    assert_eq!(allowed(&read).expect("the page may read it"), PAGE);
    read.expect_status(200);
    assert!(!daemon.get("/v1/boards").await.headers.contains_key("vary"), "nothing is said of pages to others");
    // A browser sends a preflight request without a token.
    let asked = [
        ("origin", PAGE),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization"),
    ];
    let answered = daemon.request(Method::OPTIONS, "/v1/boards", &asked, None).await;
    let headers =
        ["origin", "methods", "headers"].map(|of| answered.headers[&format!("access-control-allow-{of}")].clone());
    assert_eq!(headers, [PAGE, "POST", "authorization"]);
    let evil = [("origin", "https://evil.example"), asked[1], asked[2]];
    let answered = daemon.request(Method::OPTIONS, "/v1/boards", &evil, None).await;
    assert_eq!((answered.status.as_u16(), allowed(&answered)), (403, None));
    assert_eq!(walk().await, (1, 1), "the model of the new configuration is asked");
    let log = daemon.log();
    for fixed in ["[serve.limits] head_bytes keeps its value", "[workspaces] keeps its value"] {
        assert!(log.contains(fixed), "{fixed:?} is not in {log}");
    }
    assert!(!log.contains("require_tokens keeps") && !log.contains("listen keeps"), "{log}");
    let mut answered = 0;
    while daemon.get("/v1/boards").await.status != 429 {
        answered += 1;
        assert!(answered < 200, "the limit of requests is that of the new configuration");
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[tokio::test]
async fn a_rejected_configuration_changes_nothing() {
    let (first, second) = (walking(), walking());
    let mut daemon = Daemon::not_started(&[]);
    daemon.configure(&format!("{}[serve]\norigins = [\"{PAGE}\"]\n", model(&first)));
    daemon.start();
    from_page(&daemon).await.expect_status(200);
    let wrong = [
        "[serve]\norigins = \"s3cret\"\n",
        "[serve.limits]\nstreams = 0\n",
        "[notify]\nwebhook = \"https://me:s3cret@h\"\n",
        "[retention]\nended = \"s3cret\"\n",
        "[models.b]\nurl = \"http://h/v1?key=s3cret\"\nmodel = \"m\"\n",
    ];
    for (times, wrong) in (1..).zip(wrong) {
        daemon.configure(&format!("{}{wrong}", model(&second)));
        reload(&daemon, "the configuration is refused, the one before stays", times).await;
        from_page(&daemon).await.expect_status(200);
    }
    let source =
        STEPS.replacen("agent: script\n    script: [[{op: add, path: /steps/-, value: 1}]]\n", "agent: llm\n", 1);
    let made = daemon.post("/v1/boards", &json!({ "source": source })).await.expect_status(201);
    daemon.until(made["board"].as_str().expect("an id"), "quiescent").await;
    assert_eq!((first.bodies().len(), second.bodies().len()), (1, 0));
    assert!(!daemon.log().contains("s3cret") && daemon.log().contains("bad_config"), "{}", daemon.log());
    assert_eq!(daemon.stop(), Some(0));
}
