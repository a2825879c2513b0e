//! Requests over plain sockets, built in advance, so that sending them takes little processor time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(100);

/// Returns the bytes of a request.
pub(crate) fn request(method: &str, path: &str, token: Option<&str>, body: &str) -> Vec<u8> {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let length = if body.is_empty() && method == "GET" {
        String::new()
    } else {
        format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len())
    };
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{token}{length}\r\n{body}").into_bytes()
}

/// A keep-alive connection.
pub(crate) struct Line {
    address: String,
    stream: Option<TcpStream>,
}

impl Line {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), stream: None }
    }

    /// Sends a request and reads its answer, or the beginning of an endless one. Returns the status, or `None` if the
    /// connection was closed; the next request then reconnects.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Option<u16> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(&self.address)?,
        };
        let (status, is_kept) = exchange(&stream, request)?;
        self.stream = is_kept.then_some(stream);
        Some(status)
    }
}

pub(crate) fn connect(address: &str) -> Option<TcpStream> {
    let stream = TcpStream::connect(address).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    Some(stream)
}

fn exchange(mut stream: &TcpStream, request: &[u8]) -> Option<(u16, bool)> {
    stream.write_all(request).ok()?;
    let (mut head, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
    let end = loop {
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.read(&mut buffer).ok()? {
            0 => return None,
            read => head.extend_from_slice(&buffer[..read]),
        }
    };
    let text = String::from_utf8_lossy(&head[..end]).to_ascii_lowercase();
    let status = text.get(9..12)?.parse().ok()?;
    let Some((_, length)) = text.split_once("content-length: ") else { return Some((status, status == 204)) };
    let mut left = length.split("\r\n").next()?.parse::<usize>().ok()?.checked_sub(head.len() - end)?;
    while left > 0 {
        match stream.read(&mut buffer).ok()? {
            0 => return None,
            read => left = left.checked_sub(read)?,
        }
    }
    Some((status, !text.contains("connection: close")))
}
