//! Logs: what developers and operators read, on stderr, apart from progress and results.

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

/// In what form logs are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object to a line.
    Json,
}

/// How much is logged, where `RUST_LOG` does not say so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Level {
    /// Whether it is a daemon's log, which tells what happens to boards.
    pub(crate) is_daemon: bool,
    /// Whether only what is wrong is told.
    pub(crate) quiet: bool,
    /// How often `-v` was given.
    pub(crate) verbose: u8,
}

impl Level {
    fn directives(self) -> &'static str {
        match (self.is_daemon, self.quiet, self.verbose) {
            // What gives a board up is told by the command itself, with what to do about it; what a client of MCP has wrong
            // is told to the client.
            (false, _, 0) => "warn,rmcp=error,patchboard_runtime::actors::board=off",
            (true, true, _) => "warn,rmcp=error",
            (false, _, 1) | (true, _, 0) => {
                "warn,rmcp=error,patchboard=info,patchboard_runtime=info,patchboard_agents=info"
            }
            _ => "info,rmcp=error,patchboard=debug,patchboard_runtime=debug,patchboard_agents=debug",
        }
    }
}

/// Ends when it is dropped: what is still to be exported goes out.
#[must_use]
pub(crate) struct Logging {
    #[cfg(feature = "otlp")]
    _exporter: Option<crate::otlp::Exporter>,
}

/// Starts logging. `RUST_LOG` decides what is logged, where it is set.
pub(crate) fn start(level: Level, format: LogFormat) -> Logging {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level.directives()));
    let lines = match format {
        LogFormat::Text => fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(anstream::stderr().current_choice() != anstream::ColorChoice::Never)
            .boxed(),
        LogFormat::Json => {
            fmt::layer().json().flatten_event(true).with_span_list(false).with_writer(std::io::stderr).boxed()
        }
    };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(filter));
    #[cfg(feature = "otlp")]
    let (exporter, problem) = match crate::otlp::start() {
        Ok(exporter) => (exporter, None),
        Err(problem) => (None, Some(problem)),
    };
    #[cfg(feature = "otlp")]
    let subscriber = subscriber.with(exporter.as_ref().map(crate::otlp::Exporter::layer));
    subscriber.init();
    #[cfg(feature = "otlp")]
    if let Some(problem) = problem {
        tracing::warn!(problem, "no traces are exported");
    }
    if format == LogFormat::Json {
        // Every line is to be an object, also that of a bug.
        std::panic::set_hook(Box::new(|panicked| {
            let at = panicked.location().map(ToString::to_string);
            let reason = panicked.payload_as_str().unwrap_or("without a text");
            tracing::error!(at, reason, "a panic");
        }));
    }
    Logging {
        #[cfg(feature = "otlp")]
        _exporter: exporter,
    }
}
