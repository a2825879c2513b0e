//! Signals that stop a run or a daemon.

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
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
    #[cfg(windows)]
    interrupt: tokio::signal::windows::CtrlC,
}

impl Interrupts {
    /// Starts to listen.
    #[cfg(unix)]
    pub fn new() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).map_err(|error| signal_error(&error));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Starts to listen.
    #[cfg(windows)]
    pub fn new() -> Result<Self, Failure> {
        Ok(Self { interrupt: tokio::signal::windows::ctrl_c().map_err(|error| signal_error(&error))? })
    }

    /// Waits for the next signal.
    #[cfg(unix)]
    pub async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.interrupt.recv() => Interrupt::Stop,
            _ = self.terminate.recv() => Interrupt::Stop,
            _ = self.hangup.recv() => Interrupt::HangUp,
        }
    }

    /// Waits for the next signal.
    #[cfg(windows)]
    pub async fn next(&mut self) -> Interrupt {
        self.interrupt.recv().await;
        Interrupt::Stop
    }

    /// Waits for a signal that stops a daemon, which has no terminal.
    pub(crate) async fn stop(&mut self) {
        while self.next().await != Interrupt::Stop {}
    }
}

fn signal_error(error: &std::io::Error) -> Failure {
    Failure::failed("signals", format!("signals cannot be listened to: {error}"))
}
