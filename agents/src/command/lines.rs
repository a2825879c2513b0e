//! Reads the output lines of a process: answers on standard output, messages on standard error.

use std::io;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

use patchboard_kernel::text::one_line;

/// Bytes of standard error that go to the log; the rest is read and dropped.
const LOGGED_MAX: usize = 64 * 1024;

/// Characters kept of one line of standard error.
pub(super) const LINE_MAX: usize = 500;

/// Result of reading a process's standard output.
pub(super) enum Output {
    /// Line, without its newline.
    Line(Vec<u8>),
    /// Line that exceeds the limit; only its beginning was read.
    TooLong,
    Closed,
}

/// Standard output, line by line. Cancelling a read loses no data.
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    /// Current line so far.
    line: Vec<u8>,
    /// Bytes read since the last returned line.
    seen: u64,
    /// Open brackets of a JSON value that may span lines; `None` if each line is a value of its own.
    nesting: Option<Nesting>,
}

/// Open brackets of a JSON value.
#[derive(Default)]
struct Nesting {
    open: usize,
    is_text: bool,
    is_escaped: bool,
}

impl Nesting {
    fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.is_text => self.is_escaped = true,
                b'"' => self.is_text = !self.is_text,
                b'{' | b'[' if !self.is_text => self.open += 1,
                b'}' | b']' if !self.is_text => self.open = self.open.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// Returns true if the value may continue on the next line. A string may not.
    const fn goes_on(&self) -> bool {
        self.open > 0 && !self.is_text
    }
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(stdout: R) -> Self {
        Self { reader: BufReader::new(stdout), line: Vec::new(), seen: 0, nesting: None }
    }

    /// Reads an object or array that spans lines as one line.
    pub(super) fn of_values(stdout: R) -> Self {
        Self { nesting: Some(Nesting::default()), ..Self::new(stdout) }
    }

    /// Reads the next line that is not blank. It has at most `max` bytes, including the blank lines before it, without
    /// its newline.
    pub(super) async fn next(&mut self, max: u64) -> io::Result<Output> {
        loop {
            let bytes = self.reader.fill_buf().await?;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            let is_over = bytes.is_empty() || end.is_some();
            self.line.extend_from_slice(&bytes[..taken]);
            let is_value = matches!(self.line.trim_ascii_start().first(), Some(b'{' | b'['));
            let nesting = self.nesting.as_mut().filter(|_| is_value);
            let goes_on = nesting.is_some_and(|nesting| {
                nesting.read(&bytes[..taken]);
                nesting.goes_on()
            });
            self.reader.consume(taken);
            self.seen += taken as u64;
            if self.seen > max + u64::from(end.is_some()) {
                return Ok(Output::TooLong);
            }
            if goes_on && taken > 0 {
                continue;
            }
            if is_over && !self.line.trim_ascii().is_empty() {
                self.seen = 0;
                self.nesting = self.nesting.take().map(|_| Nesting::default());
                return Ok(Output::Line(std::mem::take(&mut self.line).trim_ascii().to_vec()));
            }
            if taken == 0 {
                return Ok(Output::Closed);
            }
            if is_over {
                self.line.clear();
            }
        }
    }
}

/// Last line that a process wrote to its standard error.
#[derive(Default)]
pub(super) struct StderrTail(Mutex<String>);

impl StderrTail {
    /// Returns the line; empty if there was none.
    pub(super) fn get(&self) -> String {
        self.0.lock().clone()
    }

    /// Reads standard error to its end, so that the program never blocks on it; keeps the last line.
    pub(super) async fn drain(&self, stderr: impl AsyncRead + Unpin, worker: &str) {
        let mut stderr = BufReader::new(stderr);
        let mut logged = 0;
        loop {
            let mut line = Vec::new();
            // A line without an end is read in pieces of this size.
            let piece = (&mut stderr).take(LOGGED_MAX as u64).read_until(b'\n', &mut line).await;
            if !matches!(piece, Ok(1..)) {
                return;
            }
            let text = one_line(&String::from_utf8_lossy(&line), LINE_MAX);
            if text.is_empty() {
                continue;
            }
            if logged < LOGGED_MAX {
                logged += line.len();
                tracing::debug!(worker, stderr = %text, "a program says");
            }
            *self.0.lock() = text;
        }
    }
}
