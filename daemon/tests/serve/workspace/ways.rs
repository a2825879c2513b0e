//! A proxy to the host that delays or drops requests and answers, or hangs.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use super::address;

/// Fate of a request or an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Delivers the message.
    Arrives,
    /// Closes the connection before the message.
    IsLost,
    /// Drops the message, keeps this connection open, closes the others, and accepts no new ones.
    Stalls,
}

/// Puts a proxy between the host and agents that connect from now on. `asked` and `answered` decide the fate of each
/// request and of its answer, by the request's text; they run when the message arrives.
pub(super) fn way(
    directory: &Path,
    asked: impl Fn(&str) -> Then + Send + Sync + 'static,
    answered: impl Fn(&str) -> Then + Send + Sync + 'static,
) {
    let mut address = address(directory);
    let host = u16::try_from(address["port"].as_u64().expect("a port")).expect("a port");
    let way = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let own = way.local_addr().expect("it listens");
    address["port"] = json!(own.port());
    std::fs::write(directory.join(".patchboard/host.json"), address.to_string()).expect("written");
    let (asked, answered) = (Arc::new(asked), Arc::new(answered));
    let is_over = Arc::new(AtomicBool::new(false));
    let all: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    std::thread::spawn(move || {
        for from in way.incoming() {
            let Ok(mut from) = from else { return };
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            let Ok(mut to) = TcpStream::connect(("127.0.0.1", host)) else { continue };
            let (mut back_from, mut back_to) = (to.try_clone().expect("a socket"), from.try_clone().expect("a socket"));
            all.lock().expect("whole").push(from.try_clone().expect("a socket"));
            let last: Arc<Mutex<String>> = Arc::default();
            let (asked, answered, is_over, all) =
                (Arc::clone(&asked), Arc::clone(&answered), Arc::clone(&is_over), Arc::clone(&all));
            let request = Arc::clone(&last);
            std::thread::spawn(move || {
                let mut bytes = [0; 65536];
                while let Ok(read @ 1..) = from.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
                    request.lock().expect("whole").clone_from(&text);
                    match asked(&text) {
                        Then::Arrives if to.write_all(&bytes[..read]).is_ok() => {}
                        Then::Arrives | Then::IsLost => break,
                        Then::Stalls => {
                            is_over.store(true, Ordering::SeqCst);
                            drop(TcpStream::connect(own));
                            let peer = from.peer_addr().ok();
                            let all = all.lock().expect("whole");
                            let others = all.iter().filter(|other| other.peer_addr().ok() != peer);
                            others.for_each(|other| drop(other.shutdown(Shutdown::Both)));
                            std::thread::sleep(Duration::from_secs(60));
                            break;
                        }
                    }
                }
                drop(to.shutdown(Shutdown::Both));
            });
            std::thread::spawn(move || {
                let mut bytes = [0; 65536];
                while let Ok(read @ 1..) = back_from.read(&mut bytes) {
                    let request = last.lock().expect("whole").clone();
                    if answered(&request) != Then::Arrives || back_to.write_all(&bytes[..read]).is_err() {
                        break;
                    }
                }
                drop((back_to.shutdown(Shutdown::Both), back_from.shutdown(Shutdown::Both)));
            });
        }
    });
}
