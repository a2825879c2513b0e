//! Signals that stop a run or a daemon.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Signal that stops a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interrupt {
    /// User's request to stop.
    Stop,
    /// Terminal closed.
    HangUp,
}

/// Listener for the signals that stop a run: Ctrl-C, terminate, or hang-up of the terminal.
///
/// Listens from its creation on: a new listener for each wait would miss signals in between.
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Interrupts {
    /// Starts to listen.
    pub fn new() -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::failed("signals", format!("signals cannot be listened to: {error}"));
        let listen = |kind| signal(kind).map_err(failed);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.interrupt.recv() => Interrupt::Stop,
            _ = self.terminate.recv() => Interrupt::Stop,
            _ = self.hangup.recv() => Interrupt::HangUp,
        }
    }

    /// Waits for a signal that stops a daemon, which has no terminal.
    pub(crate) async fn stop(&mut self) {
        while self.next().await != Interrupt::Stop {}
    }
}
