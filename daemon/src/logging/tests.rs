//! Log lines without hidden characters.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tracing_subscriber::layer::SubscriberExt as _;

use super::{LogFormat, lines};

const HOSTILE: &str = "a\u{1b}[2J\nERROR forged\r\u{9b}31m\u{202e}b\u{200b}\u{2028}c\u{7f}\u{7}\u{0}\u{85}\u{e0041}";

/// Buffer shared by several writers.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("a buffer").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logged(format: LogFormat) -> String {
    let written = Shared::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::registry().with(lines(format, false, move || writer.clone()));
    tracing::subscriber::with_default(subscriber, || {
        let _span = tracing::info_span!("span", of = %HOSTILE, debugged = ?HOSTILE).entered();
        let error = std::io::Error::other(HOSTILE);
        tracing::info!(board = %HOSTILE, text = HOSTILE, debugged = ?HOSTILE, error = &error as &dyn std::error::Error, "a {HOSTILE}");
    });
    String::from_utf8(written.0.lock().expect("a buffer").clone()).expect("text")
}

fn is_plain(line: &str) -> bool {
    let hidden = ['\u{202e}', '\u{200b}', '\u{2028}', '\u{e0041}'];
    !line.chars().any(|c| c.is_control() || hidden.contains(&c))
}

#[test]
fn a_text_line_hides_nothing_and_ends_where_its_event_does() {
    let text = logged(LogFormat::Text);
    let line = text.strip_suffix('\n').expect("a line");
    assert!(is_plain(line), "{line:?}");
    for spelled in ["<U+000A>ERROR forged<U+000D>", "<U+202E>b<U+200B><U+2028>c", "<U+E0041>"] {
        assert!(line.matches(spelled).count() >= 2, "{spelled}: {line}");
    }
}

#[test]
fn a_line_of_json_hides_nothing_and_keeps_the_values() {
    let text = logged(LogFormat::Json);
    let line = text.strip_suffix('\n').expect("a line");
    assert!(is_plain(line), "{line:?}");
    let event: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!((&event["board"], &event["text"]), (&HOSTILE.into(), &HOSTILE.into()));
}
