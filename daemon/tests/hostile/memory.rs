//! The largest bodies that callers with few rights may send, all at once, to a daemon with little memory.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use crate::daemon::{Daemon, STEPS, remote_steps};
use crate::http::{Line, request};
use crate::process::peak_mib;

/// Limit of the daemon's data in MiB.
const DATA_MIB: u64 = 1536;

/// Number of concurrent callers, and the duration of their calls.
const CALLERS: usize = 24;
const TIME: Duration = Duration::from_secs(20);

/// Bodies of 8 MiB, each of them much larger once parsed.
fn bodies() -> Vec<String> {
    let size = (8 << 20) - 200;
    let of = |unit: &str| {
        let units = unit.repeat(size / unit.len());
        format!("{{\"worker\":\"walker\",\"patch\":[{units}1],\"event\":{{}}}}")
    };
    let names: String = (0..size / 14).map(|at| format!("\"{at:08}\":0,")).collect();
    vec![
        of("[],"),
        of("{},"),
        of("0,"),
        of("\"\","),
        of("1e9,"),
        format!("{{{names}\"worker\":\"walker\"}}"),
        format!("{{\"worker\":\"walker\",\"patch\":\"{}\"}}", "\\u0041".repeat(size / 6)),
        format!("{{\"worker\":\"walker\",\"patch\":{}", "[".repeat(size)),
        format!("{{\"source\":\"{}\"}}", "a: 1\\n".repeat(size / 6)),
    ]
}

#[tokio::test]
async fn the_largest_bodies_of_all_routes_at_once_fit_into_little_memory() {
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    // The other limits would reject most of the bodies.
    daemon.configure("[serve.limits]\nbody_mib_per_minute = 1000000\nprocessor_percent = 100\n");
    let admin = format!("Bearer {}", daemon.token("admin"));
    daemon.data_mib = Some(DATA_MIB);
    daemon.start();
    let headers = [("authorization", admin.as_str()), ("content-type", "application/json")];
    let body = Some(json!({"source": STEPS}).to_string());
    let made = daemon.request(Method::POST, "/v1/boards", &headers, body).await.expect_status(201);
    let board = made["board"].as_str().expect("an id").to_owned();
    let described = daemon.request(Method::GET, "/v1/openapi.json", &headers, None).await.expect_status(200);
    let routes = described["paths"].as_object().expect("an object").iter();
    let posted = routes.filter(|(_, methods)| !methods["post"]["requestBody"].is_null());
    let scopes =
        ["read".to_owned(), format!("board:{board}"), format!("seat:{board}/walker"), "person:boss".to_owned()];
    let tokens: Vec<String> = scopes.iter().map(|scope| daemon.token(scope)).collect();
    let named =
        [("{board}", board.as_str()), ("{worker}", "walker"), ("{seq}", "1"), ("{lease}", "1:1"), ("{handoff}", "h")];
    let paths: Vec<String> = posted
        .map(|(path, _)| named.iter().fold(path.clone(), |path, (name, value)| path.replace(name, value)))
        .collect();
    assert!(paths.len() > 20, "{paths:?}");
    let (bodies, until, address) = (bodies(), Instant::now() + TIME, daemon.address().to_owned());
    let answered: Vec<usize> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let (bodies, tokens, paths, address) = (&bodies, &tokens, &paths, &address);
                scope.spawn(move || {
                    let (mut line, mut answered, mut at) = (Line::new(address), 0, caller * 7);
                    while Instant::now() < until {
                        let token = &tokens[at % tokens.len()];
                        let path = &paths[at / tokens.len() % paths.len()];
                        let body = &bodies[at % bodies.len()];
                        answered += usize::from(line.ask(&request("POST", path, Some(token), body)).is_some());
                        at += 1;
                    }
                    answered
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("a caller does not panic")).collect()
    });
    daemon.request(Method::GET, "/healthz", &[], None).await.expect_status(200);
    daemon.request(Method::GET, &format!("/v1/boards/{board}"), &headers, None).await.expect_status(200);
    let (count, peak) = (answered.iter().sum::<usize>(), peak_mib(daemon.process()).expect("it lives"));
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
    assert!(count > 100, "{count} answers");
    println!(
        "memory: {count} bodies of 8 MiB by {CALLERS} callers to {} routes; at most {peak} MiB of {DATA_MIB}",
        paths.len()
    );
}

#[tokio::test]
async fn signals_that_wait_fit_into_little_memory() {
    let mut daemon = Daemon::not_started(&["--require-tokens"]);
    let admin = format!("Bearer {}", daemon.token("admin"));
    daemon.data_mib = Some(DATA_MIB);
    daemon.start();
    let headers = [("authorization", admin.as_str()), ("content-type", "application/json")];
    let remote = remote_steps("");
    let made = daemon.request(Method::POST, "/v1/boards", &headers, Some(json!({"source": remote}).to_string())).await;
    let board = made.expect_status(201)["board"].as_str().expect("an id").to_owned();
    let token = daemon.token(&format!("board:{board}"));
    // 60 kB of text that take about 8 MB as parsed values.
    let body = format!("{{\"name\":\"more\",\"value\":[{}0]}}", "{\"\":0},".repeat(8_500));
    let signal = request("POST", &format!("/v1/boards/{board}/signals"), Some(&token), &body);
    let mut line = Line::new(daemon.address());
    let answers: Vec<_> = (0..400).map(|_| line.ask(&signal)).collect();
    let [taken, refused] = [202, 429].map(|status| answers.iter().filter(|it| **it == Some(status)).count());
    let peak = peak_mib(daemon.process()).expect("it lives");
    println!("memory: {taken} signals of many values wait, {refused} were refused; at most {peak} MiB of {DATA_MIB}");
    assert_eq!((taken > 1, taken + refused), (true, 400), "{answers:?}");
    assert!(peak < DATA_MIB / 2, "{peak} MiB");
    // A restarted daemon loads the accepted signals again.
    daemon.kill();
    daemon.start();
    daemon.request(Method::GET, &format!("/v1/boards/{board}"), &headers, None).await.expect_status(200);
    let again = peak_mib(daemon.process()).expect("it lives");
    assert!(again < DATA_MIB / 2, "{again} MiB");
}
