//! The worst concurrent load by callers with few rights, and a daemon that stays responsive.
//!
//! The callers are a separate process with lower priority, so that measurements show the daemon. Processor time of the
//! daemon is read from `/proc/PID/stat`. An administrator commits at a fixed rate, first alone and then beside the
//! callers; the difference in processor time is attributed to the callers.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use crate::daemon::{Daemon, remote_steps};
use crate::http::{Line, connect, request};
use crate::process::{is_optimised, processor_time};

/// Duration of a measurement.
const MEASURED: Duration = Duration::from_secs(30);

/// Warm-up before a measurement, during which callers use up their burst allowance.
const BEFORE: Duration = Duration::from_secs(10);

/// Interval of requests to `/healthz`, and of the administrator's commits.
const LOOK: Duration = Duration::from_millis(5);
const COMMIT: Duration = Duration::from_millis(20);

/// Environment variable with the instructions for the process of the callers.
const SETTINGS: &str = "PATCHBOARD_HOSTILE_CALLERS";

/// Kinds of callers whose requests are work of a board.
const REFUSED: &str = "refused proposals of 15 kB";
const SIGNALS: &str = "signals of 1 MB";
const SIGNALS_OF_MANY_VALUES: &str = "signals of many values";

/// A kind of callers and their number; `None` for each kind, with its default number.
type Kinds = Option<(&'static str, usize)>;

/// Measurements of a period.
struct Seen {
    /// Sorted latencies of `/healthz`.
    healthz: Vec<Duration>,
    /// Sorted latencies of commits.
    commits: Vec<Duration>,
    used: Duration,
    took: Duration,
}

impl Seen {
    fn share(&self) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.used.as_secs_f64() / (self.took.as_secs_f64() * cores as f64)
    }
}

/// The process of the callers, killed at the end of the test.
struct Callers(Child);

impl Drop for Callers {
    fn drop(&mut self) {
        // The process may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn quantile(ordered: &[Duration], permille: usize) -> Duration {
    ordered[(ordered.len() * permille / 1000).min(ordered.len() - 1)]
}

/// Requests `/healthz` and commits as the administrator for `time`.
fn watched(daemon: &Daemon, commit: &[u8], time: Duration) -> Seen {
    let (address, process) = (daemon.address().to_owned(), daemon.process());
    let (began, before, is_over) = (Instant::now(), processor_time(process), AtomicBool::new(false));
    let every = |pause: Duration, mut work: Box<dyn FnMut(usize) + Send>| {
        let (mut latencies, is_over) = (Vec::new(), &is_over);
        move || {
            let mut next = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                work(latencies.len());
                latencies.push(began.elapsed());
                next = (next + pause).max(Instant::now());
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            latencies.sort();
            latencies
        }
    };
    let look = request("GET", "/healthz", None, "");
    let (mut kept, here) = (Line::new(&address), address.clone());
    let look = every(
        LOOK,
        Box::new(move |number| {
            // Every tenth request uses a new connection.
            let status = if number % 10 == 0 { Line::new(&here).ask(&look) } else { kept.ask(&look) };
            assert_eq!(status, Some(200), "look {number}");
        }),
    );
    let (mut line, commit) = (Line::new(&address), commit.to_vec());
    let commit = every(COMMIT, Box::new(move |number| assert_eq!(line.ask(&commit), Some(200), "commit {number}")));
    let (healthz, commits) = std::thread::scope(|scope| {
        let (look, commit) = (scope.spawn(look), scope.spawn(commit));
        std::thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        (look.join().expect("it lives"), commit.join().expect("the administrator commits"))
    });
    Seen { healthz, commits, used: processor_time(process) - before, took: began.elapsed() }
}

/// A daemon with two boards: the callers have tokens of one, and the administrator commits to the other.
struct Attacked {
    daemon: Daemon,
    /// Request bytes of the administrator's commit.
    commit: Vec<u8>,
    board: String,
    tokens: Vec<String>,
    alone: Seen,
}

impl Attacked {
    async fn new() -> Self {
        let mut daemon = Daemon::not_started(&["--require-tokens"]);
        let admin = daemon.token("admin");
        daemon.data_mib = Some(3072);
        daemon.start();
        let header = format!("Bearer {admin}");
        let headers = [("authorization", header.as_str()), ("content-type", "application/json")];
        let remote = format!("{}limits: {{commits: 1000000}}\n", remote_steps(""));
        let mut boards = Vec::new();
        for _ in 0..2 {
            let body = Some(json!({"source": remote}).to_string());
            let made = daemon.request(Method::POST, "/v1/boards", &headers, body).await.expect_status(201);
            boards.push(made["board"].as_str().expect("an id").to_owned());
        }
        let [own, theirs] = [&boards[0], &boards[1]];
        let patch = json!([{"op": "add", "path": "/steps/-", "value": 1}]);
        let grown = json!({"worker": "walker", "patch": patch}).to_string();
        let commit = request("POST", &format!("/v1/boards/{own}/proposals"), Some(&admin), &grown);
        let scopes = [
            "read".to_owned(),
            "read".to_owned(),
            format!("seat:{theirs}/walker"),
            format!("seat:{theirs}/other"),
            "person:boss".to_owned(),
            format!("board:{theirs}"),
        ];
        let tokens = scopes.iter().map(|scope| daemon.token(scope)).collect();
        let alone = watched(&daemon, &commit, BEFORE);
        Self { commit, board: theirs.clone(), tokens, alone, daemon }
    }

    /// Runs callers of these kinds for `measured`, and returns their share of the processor time.
    fn hold_against(&self, kinds: Kinds, measured: Duration) -> f64 {
        let settings = json!({
            "address": self.daemon.address(),
            "board": self.board,
            "tokens": self.tokens,
            "kinds": kinds,
            "seconds": (BEFORE + measured).as_secs() + 5,
        });
        let mut callers = Command::new("nice");
        callers.args(["-n", "10"]).arg(std::env::current_exe().expect("this program has a path"));
        callers.args(["--exact", "callers::callers_of_little_right", "--ignored", "--nocapture"]);
        let callers =
            callers.env(SETTINGS, settings.to_string()).stdin(Stdio::null()).spawn().expect("`nice` can be run");
        let mut callers = Callers(callers);
        std::thread::sleep(BEFORE);
        let seen = watched(&self.daemon, &self.commit, measured);
        assert!(callers.0.wait().is_ok_and(|status| status.success()), "the callers are there to the end");
        let alone = &self.alone;
        let used = |seen: &Seen| seen.used.as_secs_f64() / seen.took.as_secs_f64();
        let per_commit = used(alone) * alone.took.as_secs_f64() / alone.commits.len() as f64;
        let own = per_commit * seen.commits.len() as f64 / seen.took.as_secs_f64();
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let share = (used(&seen) - own) / cores;
        let [p50, p99, most] = [500, 990, 1000].map(|at| quantile(&seen.healthz, at));
        println!(
            "{}: /healthz p50 {p50:.1?}, p99 {p99:.1?}, at most {most:.1?} of {} looks; {:.1} % of the processor time \
             of {cores} cores, beside {:.1} % for {} commits of an administrator, p99 {:.1?} (alone {:.1} %, p99 {:.1?}){}",
            kinds.map_or("worst callers".to_owned(), |(kind, count)| format!("{count} callers with {kind}")),
            seen.healthz.len(),
            share * 100.0,
            own / cores * 100.0,
            seen.commits.len(),
            quantile(&seen.commits, 990),
            alone.share() * 100.0,
            quantile(&alone.commits, 990),
            if is_optimised() { "" } else { "; not optimised" }
        );
        assert!(!self.daemon.log().contains("panicked"), "{}", self.daemon.log());
        let (looks, commits) = (measured.as_millis() / LOOK.as_millis(), measured.as_millis() / COMMIT.as_millis());
        assert!(seen.healthz.len() as u128 * 2 > looks, "{} looks", seen.healthz.len());
        assert!(seen.commits.len() as u128 * 4 > commits * 3, "{} commits", seen.commits.len());
        assert!(p99 < Duration::from_millis(100), "{p99:?}");
        assert!(share <= 0.2, "{share}");
        share
    }
}

#[tokio::test]
async fn the_worst_callers_leave_the_daemon_alive_and_four_fifths_of_its_processor_time() {
    let share = Attacked::new().await.hold_against(None, MEASURED);
    // Idle callers would prove nothing.
    assert!(share > 0.05, "{share}");
}

#[tokio::test]
async fn callers_who_do_one_thing_only_have_no_larger_share() {
    for kind in [REFUSED, SIGNALS, SIGNALS_OF_MANY_VALUES] {
        Attacked::new().await.hold_against(Some((kind, 8)), MEASURED / 2);
    }
}

/// Entry point of the process of the callers.
#[test]
#[ignore = "started by the test of the worst callers"]
fn callers_of_little_right() {
    let Ok(settings) = std::env::var(SETTINGS) else { return };
    let settings: serde_json::Value = serde_json::from_str(&settings).expect("JSON");
    let text = |name: &str| settings[name].as_str().expect("a text").to_owned();
    let (address, board) = (text("address"), text("board"));
    let tokens: Vec<&str> =
        settings["tokens"].as_array().expect("a list").iter().filter_map(|it| it.as_str()).collect();
    let until = Instant::now() + Duration::from_secs(settings["seconds"].as_u64().expect("a number"));
    let [reader, other, seat, seat_of_other, person, of_board] = tokens[..] else { panic!("six tokens") };
    let path = |rest: &str| format!("/v1/boards/{board}/{rest}");
    let bomb = json!({"source": crate::bombs::heavy()}).to_string();
    let large = json!({"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": "x".repeat(7 << 20)}]});
    let nested = format!("{{\"worker\":\"walker\",\"patch\":[{}1]}}", "[],".repeat(300_000));
    let small = json!({"worker": "walker", "patch": [{"op": "add", "path": "/steps/-", "value": 77}]}).to_string();
    let refused =
        json!({"worker": "walker", "patch": [{"op": "replace", "path": "/request", "value": "x".repeat(15_000)}]});
    let signal = json!({"name": "more", "value": "x".repeat(1_000_000)});
    let of_many_values = format!("{{\"name\":\"more\",\"value\":[{}0]}}", "{\"\":0},".repeat(8_500));
    let lease = json!({"worker": "other", "wait": 1}).to_string();
    let all: Vec<(&str, usize, Vec<u8>)> = vec![
        ("checks", 4, request("POST", "/v1/blueprints/check", Some(reader), &bomb)),
        ("checks of another", 2, request("POST", "/v1/blueprints/check", Some(other), &bomb)),
        ("large bodies", 2, request("POST", &path("proposals"), Some(seat), &large.to_string())),
        ("bodies of many values", 2, request("POST", &path("proposals"), Some(seat), &nested)),
        ("refused proposals", 2, request("POST", &path("proposals"), Some(seat), &small)),
        (REFUSED, 2, request("POST", &path("proposals"), Some(seat), &refused.to_string())),
        (SIGNALS, 2, request("POST", &path("signals"), Some(of_board), &signal.to_string())),
        (SIGNALS_OF_MANY_VALUES, 2, request("POST", &path("signals"), Some(of_board), &of_many_values)),
        ("large bodies of a person", 1, request("POST", &path("approvals/1"), Some(person), &large.to_string())),
        ("bad tokens", 4, request("GET", "/v1/boards", Some("pb_wrong"), "")),
        ("no token", 4, request("POST", "/v1/boards", None, "{}")),
        ("looks at /healthz", 4, request("GET", "/healthz", None, "")),
        ("no route", 2, request("GET", "/nowhere", None, "")),
        ("waits for a lease", 8, request("POST", &path("leases"), Some(seat_of_other), &lease)),
        ("pages of the journal", 2, request("GET", &path("journal?limit=1000"), Some(reader), "")),
        ("lists of boards", 2, request("GET", "/v1/boards?limit=1000", Some(other), "")),
        ("documents", 2, request("GET", &path("state?at=0"), Some(reader), "")),
        ("views", 2, request("GET", &path("views/walker"), Some(seat), "")),
        ("streams", 2, request("GET", &path("events"), Some(reader), "")),
        ("metrics", 1, request("GET", "/metrics", Some(other), "")),
        // Sends nothing.
        ("connections", 2, Vec::new()),
    ];
    let kinds: Vec<(&str, usize, Vec<u8>)> = match (settings["kinds"][0].as_str(), settings["kinds"][1].as_u64()) {
        (Some(kind), Some(count)) => {
            let chosen = all.into_iter().filter(|(name, ..)| *name == kind);
            chosen.map(|(name, _, request)| (name, count as usize, request)).collect()
        }
        _ => all,
    };
    assert!(!kinds.is_empty(), "there is no kind {}", settings["kinds"]);
    let counts: Vec<(&str, BTreeMap<u16, usize>)> = std::thread::scope(|scope| {
        let callers = kinds.iter().flat_map(|(name, count, request)| (0..*count).map(move |_| (*name, request)));
        let callers: Vec<_> = callers
            .map(|(name, request)| {
                let address = &address;
                scope.spawn(move || {
                    let (mut line, mut counts) = (Line::new(address), BTreeMap::new());
                    while Instant::now() < until {
                        let status = if request.is_empty() { connect(address).map(|_| 0) } else { line.ask(request) };
                        *counts.entry(status.unwrap_or(1)).or_default() += 1;
                        if status.is_none() || status == Some(429) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                    (name, counts)
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("a caller does not panic")).collect()
    });
    let mut all: BTreeMap<&str, BTreeMap<u16, usize>> = BTreeMap::new();
    for (name, counts) in counts {
        for (status, count) in counts {
            *all.entry(name).or_default().entry(status).or_default() += count;
        }
    }
    for (name, counts) in all {
        println!("  {name}: {counts:?}");
    }
}
