//! Logs for developers and operators, on stderr, separate from progress and results.
//!
//! Fields may hold external text: ids, names, paths, provider errors. In text output, characters that control a
//! terminal, end a line or are invisible are written as numbers; in JSON they are escaped. One event is therefore one
//! line.

use std::io::{self, Write};

use tracing::{Metadata, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::{FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::output;

/// Format of logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Log level, unless `RUST_LOG` is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Level {
    /// Set for a daemon's log, which includes events of boards.
    pub(crate) is_daemon: bool,
    /// Set if only warnings and errors are logged.
    pub(crate) quiet: bool,
    pub(crate) verbose: u8,
}

impl Level {
    fn directives(self) -> &'static str {
        match (self.is_daemon, self.quiet, self.verbose) {
            // The command itself reports a board's failure, with a fix; errors of an MCP client are reported to the
            // client.
            (false, _, 0) => "warn,rmcp=error,patchboard_runtime::restarts=off",
            (true, true, _) => "warn,rmcp=error",
            // `patchboard` is a prefix of all our crates' names.
            (false, _, 1) | (true, _, 0) => "warn,rmcp=error,patchboard=info",
            _ => "info,rmcp=error,patchboard=debug",
        }
    }
}

/// Guard of logging; exports pending data when dropped.
#[must_use]
pub(crate) struct Logging {
    #[cfg(feature = "otlp")]
    _exporter: Option<crate::otlp::Exporter>,
}

/// Returns the layer that writes events as lines.
fn lines<S, W>(format: LogFormat, is_coloured: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    match format {
        LogFormat::Text => fmt::layer().fmt_fields(EscapedFields).with_writer(writer).with_ansi(is_coloured).boxed(),
        LogFormat::Json => {
            let writer = EscapedWriter(writer);
            fmt::layer().json().flatten_event(true).with_span_list(false).with_writer(writer).boxed()
        }
    }
}

/// Formatter for fields of events and spans that makes hidden characters visible.
struct EscapedFields;

impl<'w> FormatFields<'w> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> std::fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&output::escape_all(&text))
    }
}

/// Writer of JSON lines that escapes hidden characters.
struct EscapedWriter<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for EscapedWriter<W> {
    type Writer = EscapedWriter<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        EscapedWriter(self.0.make_writer())
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Self::Writer {
        EscapedWriter(self.0.make_writer_for(about))
    }
}

impl<W: Write> Write for EscapedWriter<W> {
    /// Writes a whole line: the formatter passes each line in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line).into_owned();
        self.0.write_all(output::escape_json(text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Starts logging. `RUST_LOG` overrides the level, if set.
pub(crate) fn start(level: Level, format: LogFormat) -> Logging {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level.directives()));
    let is_coloured = anstream::stderr().current_choice() != anstream::ColorChoice::Never;
    let lines = lines(format, is_coloured, std::io::stderr);
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
        // Every line must be an object, even for a panic.
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

#[cfg(test)]
mod tests;
