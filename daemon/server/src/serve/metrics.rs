//! Prometheus metrics: the families and their exposition.
//!
//! Labels have few values, all defined by this program: codes, kinds, route templates. Unbounded values chosen by
//! others, like ids of boards and names of workers, are never labels. [`counting`] updates the counters as records
//! become durable; the gauges ([`GaugeValues`]) are computed for each scrape. `docs/operations.md` lists the families,
//! and a test compares the two.

mod counting;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use patchboard_kernel::deferral::DeferralReason;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::record::{End, Kind};
use patchboard_llm::gate::ModelState;
use patchboard_runtime::observer::RestartScope;
use prometheus::core::Collector;
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, TextEncoder,
};

pub(crate) use self::counting::Counting;

pub(crate) const MEDIA_TYPE: &str = prometheus::TEXT_FORMAT;

/// Bounds in seconds: a disk sync takes 0.2 ms at best, and up to a second under load.
const COMMIT_BUCKETS: [f64; 12] = [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// Bounds in seconds: a script replies at once, a model on a small machine within minutes.
const INVOCATION_BUCKETS: [f64; 14] =
    [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0];

/// Bounds in seconds.
const REQUEST_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 20.0];

/// Defines the families of counters and histograms: the member, its type, and the method that adds it with a name, a
/// text of help, and labels or bounds.
macro_rules! families {
    ($($member:ident: $type:ty = $add:ident($($argument:expr),+);)+) => {
        pub(crate) struct Metrics {
            $($member: $type,)+
            /// All of them, in the order of the exposition.
            families: Vec<Box<dyn Collector>>,
            started_at: f64,
        }

        impl Metrics {
            fn started_at(started_at: f64) -> Self {
                let mut all = Families::default();
                Self { $($member: all.$add($($argument),+),)+ families: all.0, started_at }
            }
        }
    };
}

families! {
    commits: IntCounter = counter("patchboard_commits_total", "Proposals that were committed.");
    rejections: IntCounterVec = counters("patchboard_rejections_total",
        "Proposals that were refused, by stage of the pipeline and code of the first violation.", &["stage", "code"]);
    no_ops: IntCounter = counter("patchboard_no_ops_total", "Proposals that changed nothing.");
    failures: IntCounterVec = counters("patchboard_failures_total",
        "Attempts of invocations that ended without a proposal, by code.", &["code"]);
    deferrals: IntCounterVec = counters("patchboard_deferrals_total",
        "Attempts whose request the provider did not take, by reason.", &["reason"]);
    late: IntCounterVec = counters("patchboard_late_total",
        "Proposals that arrived after the end of their attempt, by code.", &["code"]);
    duplicates: IntCounter = counter("patchboard_duplicates_total",
        "Repeated proposals and requests, which got the first answer again.");
    records: IntCounterVec = counters("patchboard_records_total",
        "Records that were appended to journals, by kind.", &["kind"]);
    commit_seconds: Histogram = histogram("patchboard_commit_duration_seconds",
        "Time of a commit, from when the kernel takes the proposal up until it is durable.", &COMMIT_BUCKETS);
    invocation_seconds: HistogramVec = histograms("patchboard_invocation_duration_seconds",
        "Recorded time of attempts of invocations that were answered, by outcome.",
        &["outcome"], &INVOCATION_BUCKETS);
    tokens: IntCounterVec = counters("patchboard_tokens_total",
        "Tokens of models as providers counted them, or as estimated: of prompts and completions, by what they were \
            for.", &["component", "kind"]);
    money: CounterVec = amounts("patchboard_money_total",
        "Money of calls that were answered, in units of the currency, by the operator's name of the model.",
        &["model", "currency"]);
    breaker_moves: IntCounterVec = counters("patchboard_breaker_moves_total",
        "Transitions of breakers, by kind and reason.", &["change", "reason"]);
    boards_ended: IntCounterVec = counters("patchboard_boards_ended_total",
        "Ends of boards, by how they ended.", &["end"]);
    restarts: IntCounterVec = counters("patchboard_restarts_total",
        "Restarts of actors that had failed, by actor.", &["actor"]);
    notices: IntCounterVec = counters("patchboard_notify_deliveries_total",
        "Deliveries of notices that were tried, by receiver and outcome: delivered, failed, or refused.",
        &["receiver", "outcome"]);
    requests: IntCounterVec = counters("patchboard_http_requests_total",
        "HTTP requests that were answered, by template of the route, method and status.",
        &["route", "method", "status"]);
    request_seconds: HistogramVec = histograms("patchboard_http_request_duration_seconds",
        "Time until a request's answer begins, by template of the route and method.",
        &["route", "method"], &REQUEST_BUCKETS);
}

/// Values of the gauges at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct GaugeValues {
    pub(crate) boards: Vec<(&'static str, usize)>,
    /// Queued invocations of running boards.
    pub(crate) queued: usize,
    /// Invocations under way on running boards, without those that wait for people.
    pub(crate) running: usize,
    /// Proposals of running boards that wait for people.
    pub(crate) pending: usize,
    /// Steps queued for the journal writer.
    pub(crate) journal_queue: usize,
    /// Branches of running boards with an open breaker.
    pub(crate) open_branches: usize,
    /// Branches with a half-open breaker, which get one attempt.
    pub(crate) half_open_branches: usize,
    pub(crate) models: Vec<ModelState>,
    /// Age of the oldest undelivered notice, by receiver.
    pub(crate) undelivered: Vec<(&'static str, Duration)>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let this = Self::started_at(started_at);
        this.init_series();
        this
    }

    /// Initialises the series of labels with a known set of values to 0, so that a rate includes the first event.
    fn init_series(&self) {
        FailureCode::ALL.iter().for_each(|code| drop(self.failures.with_label_values(&[code.as_str()])));
        DeferralReason::ALL.iter().for_each(|reason| drop(self.deferrals.with_label_values(&[reason.as_str()])));
        Kind::ALL.iter().for_each(|kind| drop(self.records.with_label_values(&[kind.as_str()])));
        End::ALL.iter().for_each(|end| drop(self.boards_ended.with_label_values(&[end.as_str()])));
        RestartScope::ALL.iter().for_each(|what| drop(self.restarts.with_label_values(&[what.as_str()])));
        for component in counting::TokenPurpose::ALL {
            for kind in ["prompt", "completion"] {
                drop(self.tokens.with_label_values(&[component.as_str(), kind]));
            }
        }
    }

    pub(crate) fn count_delivery(&self, receiver: &str, outcome: &str) {
        self.notices.with_label_values(&[receiver, outcome]).inc();
    }

    /// Counts an answered request. `route` is a template, `method` one of a fixed set.
    pub(crate) fn count_request(&self, route: &str, method: &str, status: u16, seconds: f64) {
        self.requests.with_label_values(&[route, method, &status.to_string()]).inc();
        self.request_seconds.with_label_values(&[route, method]).observe(seconds);
    }

    /// Returns all families in the exposition format.
    pub(crate) fn text(&self, picture: &GaugeValues) -> String {
        let mut text = String::new();
        for family in self.families.iter().chain(&self.gauges(picture)) {
            for collected in family.collect() {
                if collected.get_metric().is_empty() {
                    // Families without series are listed too.
                    let kind = format!("{:?}", collected.get_field_type()).to_lowercase();
                    let (name, help) = (collected.name(), collected.help());
                    text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
                } else {
                    let written = TextEncoder::new().encode_utf8(&[collected], &mut text);
                    written.expect("it has a name and series, and a text takes everything");
                }
            }
        }
        text
    }

    /// Builds new collectors for each scrape, so that concurrent scrapes do not mix their values.
    fn gauges(&self, picture: &GaugeValues) -> Vec<Box<dyn Collector>> {
        let mut all = Families::default();
        picture.set(&mut all);
        let help = "The version that runs, as a label; the value is 1.";
        all.gauges("patchboard_build_info", help, &["version"])
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1.0);
        let help = "When the process started, in seconds since 1970.";
        all.gauge("process_start_time_seconds", help).set(self.started_at);
        all.0
    }
}

impl GaugeValues {
    fn set(&self, all: &mut Families) {
        #[expect(clippy::cast_precision_loss, reason = "nobody has 2^53 boards")]
        let number = |count: usize| count as f64;
        let boards = all.gauges(
            "patchboard_boards",
            "Boards in the data directory, by status: running, paused, waiting, interrupted, or how they ended.",
            &["status"],
        );
        for (status, count) in &self.boards {
            boards.with_label_values(&[status]).set(number(*count));
        }
        let invocations = all.gauges(
            "patchboard_invocations",
            "Invocations on boards that run, by state: queued, running, or pending (waiting for a person).",
            &["state"],
        );
        for (state, count) in [("queued", self.queued), ("running", self.running), ("pending", self.pending)] {
            invocations.with_label_values(&[state]).set(number(count));
        }
        let queue = all.gauge("patchboard_journal_queue", "Steps of boards that wait for the journal writer.");
        queue.set(number(self.journal_queue));
        let branches = all.gauges(
            "patchboard_breaker_branches",
            "Branches of running boards with a breaker that is not closed, by state: open or half_open.",
            &["state"],
        );
        for (state, count) in [("open", self.open_branches), ("half_open", self.half_open_branches)] {
            branches.with_label_values(&[state]).set(number(count));
        }
        let of_model = ["model", "server"];
        let help = "Whether a model that was used lately takes requests: 1, or 0 while it is away.";
        let available = all.gauges("patchboard_model_available", help, &of_model);
        let waiting = all.gauges("patchboard_model_waiting_calls", "Calls that wait for a model.", &of_model);
        for ((model, server), (is_available, calls)) in by_server(&self.models) {
            let label = [model, server.as_str()];
            available.with_label_values(&label).set(if is_available { 1.0 } else { 0.0 });
            waiting.with_label_values(&label).set(number(calls));
        }
        let undelivered = all.gauges(
            "patchboard_notify_oldest_undelivered_seconds",
            "Age of the oldest notice that is not delivered, by receiver; 0 if all are.",
            &["receiver"],
        );
        for (receiver, age) in &self.undelivered {
            undelivered.with_label_values(&[receiver]).set(age.as_secs_f64());
        }
    }
}

/// Returns availability and number of waiting calls, by model name and server. Endpoints of one server are merged.
fn by_server(models: &[ModelState]) -> BTreeMap<(&str, String), (bool, usize)> {
    let mut all = BTreeMap::new();
    for state in models {
        let url = reqwest::Url::parse(state.key.url()).ok();
        let host = url.as_ref().and_then(|url| Some((url.host_str()?, url.port())));
        let server = host.map_or_else(String::new, |(host, port)| match port {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        });
        let (is_available, waiting) = all.entry((state.key.model(), server)).or_insert((true, 0));
        *is_available &= state.outage.is_none();
        *waiting += state.waiting;
    }
    all
}

/// Returns name, kind, labels and help of each family.
#[cfg(test)]
fn described() -> Vec<(String, String, Vec<String>, String)> {
    let metrics = Metrics::new();
    let gauges = metrics.gauges(&GaugeValues::default());
    let described = metrics.families.iter().chain(&gauges).map(|family| {
        let desc = family.desc()[0];
        let kind = family.collect().first().map(|collected| format!("{:?}", collected.get_field_type()));
        let kind = kind.unwrap_or_default().to_lowercase();
        (desc.fq_name.clone(), kind, desc.variable_labels.clone(), desc.help.clone())
    });
    described.collect()
}

/// Collectors in the order of the exposition; each method adds one.
#[derive(Default)]
struct Families(Vec<Box<dyn Collector>>);

impl Families {
    fn add<C: Collector + Clone + 'static>(&mut self, made: prometheus::Result<C>) -> C {
        let collector = made.expect("a name that Prometheus takes, and bounds that rise");
        self.0.push(Box::new(collector.clone()));
        collector
    }

    fn counter(&mut self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help))
    }

    fn counters(&mut self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn amounts(&mut self, name: &str, help: &str, labels: &[&str]) -> CounterVec {
        self.add(CounterVec::new(Opts::new(name, help), labels))
    }

    fn gauge(&mut self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::new(name, help))
    }

    fn gauges(&mut self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.add(GaugeVec::new(Opts::new(name, help), labels))
    }

    fn histogram(&mut self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
    }

    fn histograms(&mut self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        self.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels))
    }
}

#[cfg(test)]
mod tests;
