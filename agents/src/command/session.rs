//! Programs that keep state across calls: one process per worker and board.
//!
//! The first call starts the process. Each call is one line to it and one line from it, one call at a time; its
//! standard input stays open. Its group is killed when the board leaves this process, when this process exits, or when
//! a call is cancelled (time limit, breaker). It is also killed when it breaks the protocol, since its next answer
//! could then belong to any request. If this process is killed, the program reads the end of its standard input, and
//! should exit too.
//!
//! `restart` in the worker's configuration decides what happens after the process is gone. `fresh`: the next call
//! starts a fresh process; the program learns from its view what it has to redo. `fail`: the next call is rejected, and
//! so are all later ones on this board. `replay` is not implemented here (docs/decisions/0031.md).

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use patchboard_kernel::blueprint::Restart;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, WorkerName};
use patchboard_runtime::agent::{Call, CallResult, Failure};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::lines::{Lines, Output, StderrTail};
use super::{GRACE, answer_max, no_output_failure, read_reply, request, too_long, unreadable};
use patchboard_workspace::process_group::{Group, Leader};

/// Time limit for a call's process to appear, since the call that starts it may have been sent just before.
const STARTUP_TIMEOUT: Duration = GRACE;

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Bytes that a process may write unasked, as blank lines, before it is taken to break the protocol.
const UNSOLICITED_MAX: u64 = 4096;

/// Limits on processes that live across calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Number of processes; a call that needs one more fails.
    pub sessions: usize,
    /// Time that a process may wait for its next call.
    pub idle: Duration,
    /// Lifetime of a process; a call in flight at its end is still answered.
    pub life: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sessions: 256, idle: Duration::from_secs(30 * 60), life: Duration::from_secs(24 * 60 * 60) }
    }
}

/// Live processes, by board and worker.
#[derive(Default)]
pub(super) struct Sessions {
    pub(super) limits: Limits,
    live: Mutex<BTreeMap<(BoardId, WorkerName), Session>>,
}

/// Handle of a process. Dropping it kills the process with its group.
struct Session {
    /// Closed once the process accepts no more calls.
    jobs: mpsc::Sender<Job>,
    leader: Leader,
    loss: LossReason,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leader.kill();
    }
}

/// Reason that a process accepts no more calls.
#[derive(Clone, Default)]
struct LossReason(Arc<Mutex<String>>);

struct Job {
    request: Vec<u8>,
    answer_max: u64,
    answer: oneshot::Sender<CallResult>,
}

impl Sessions {
    /// Answers a call with the process of its worker. The caller enforces the time limit.
    pub(super) async fn ask(
        &self,
        call: &Call,
        restart: Restart,
        start: impl Fn() -> Result<Group, Failure>,
    ) -> CallResult {
        // Terminates: a process lost before it got this call has answered another one, or reported its failure.
        loop {
            let jobs = self.enter(call, restart, &start).await?;
            let (answer, answered) = oneshot::channel();
            let job = Job { request: request(call), answer_max: answer_max(call), answer };
            if jobs.send(job).await.is_ok() {
                // A caller that waits for an answer does not keep the process alive.
                drop(jobs);
                if let Ok(answer) = answered.await {
                    return answer;
                }
            }
        }
    }

    pub(super) fn end(&self, board: &BoardId) {
        self.live.lock().retain(|(owner, _), _| owner != board);
    }

    /// Returns the channel to the process of the call's worker, which is started if `restart` allows it.
    async fn enter(
        &self,
        call: &Call,
        restart: Restart,
        start: &impl Fn() -> Result<Group, Failure>,
    ) -> Result<mpsc::Sender<Job>, Failure> {
        let must_live = restart != Restart::Fresh && call.occurrence > 0;
        let until = Instant::now() + STARTUP_TIMEOUT;
        loop {
            {
                let mut live = self.live.lock();
                let session = live.get(&key(call));
                match session {
                    Some(session) if !session.jobs.is_closed() => return Ok(session.jobs.clone()),
                    Some(session) if must_live => return Err(lost(&session.loss.get())),
                    None if must_live && Instant::now() < until => {}
                    None if must_live => return Err(lost("it was not running when it was needed again")),
                    Some(_) | None => {
                        let session = self.start(&mut live, call, start)?;
                        let jobs = session.jobs.clone();
                        live.insert(key(call), session);
                        return Ok(jobs);
                    }
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn start(
        &self,
        live: &mut BTreeMap<(BoardId, WorkerName), Session>,
        call: &Call,
        start: &impl Fn() -> Result<Group, Failure>,
    ) -> Result<Session, Failure> {
        if live.len() >= self.limits.sessions {
            live.retain(|_, session| !session.jobs.is_closed());
        }
        if live.len() >= self.limits.sessions {
            let message = format!("{} programs that keep state are running, which is the limit", live.len());
            return Err(Failure::new(FailureCode::Unreachable, message));
        }
        let group = start()?;
        let (jobs, waiting) = mpsc::channel(1);
        let (leader, loss) = (group.leader(), LossReason::default());
        let worker = call.worker.clone();
        tokio::spawn(serve(group, waiting, loss.clone(), self.limits, worker));
        Ok(Session { jobs, leader, loss })
    }
}

impl LossReason {
    fn is(&self, why: &str) {
        *self.0.lock() = why.to_owned();
    }

    fn get(&self) -> String {
        self.0.lock().clone()
    }
}

fn key(call: &Call) -> (BoardId, WorkerName) {
    (call.board.clone(), call.worker.clone())
}

/// Builds the failure of a lost process. Retries do not help, since the state cannot be recovered.
fn lost(why: &str) -> Failure {
    let message = format!("the program has lost its state, and its seat says restart: fail; {why}");
    Failure::new(FailureCode::Refused, message)
}

/// Reason that the service of a process ends.
enum ServeEnd {
    /// No more calls are expected: the process may exit by itself.
    Unneeded(&'static str),
    /// The answer is invalid, its caller is gone, or the process wrote unasked.
    Broken(&'static str, Option<(oneshot::Sender<CallResult>, CallResult)>),
    /// The process closed its standard output.
    Silent(Option<oneshot::Sender<CallResult>>),
}

/// Passes calls to a process, one at a time, until the process or the stream of calls ends.
async fn serve(mut group: Group, mut jobs: mpsc::Receiver<Job>, loss: LossReason, limits: Limits, worker: WorkerName) {
    let mut stdin = group.stdin().expect("standard input is a pipe");
    let mut lines = Lines::new(group.stdout().expect("standard output is a pipe"));
    let stderr = group.stderr().expect("standard error is a pipe");
    let last_words = StderrTail::default();
    let mut drain = pin!(last_words.drain(stderr, worker.as_str()));
    let mut drained = false;
    let death = Instant::now() + limits.life;

    let mut has_served = false;
    let mut end = 'life: loop {
        let until = (Instant::now() + limits.idle).min(death);
        let mut job = loop {
            // Output written before a call is read before the call is sent.
            tokio::select! {
                biased;
                output = lines.next(UNSOLICITED_MAX) => match output {
                    Ok(Output::Line(_) | Output::TooLong) => break 'life ServeEnd::Broken("it wrote without being asked", None),
                    Ok(Output::Closed) | Err(_) => break 'life ServeEnd::Silent(None),
                },
                () = &mut drain, if !drained => drained = true,
                () = tokio::time::sleep_until(until) => {
                    break 'life ServeEnd::Unneeded("it was idle for too long, or old");
                }
                job = jobs.recv() => match job {
                    None => break 'life ServeEnd::Unneeded("the board is not run here any more"),
                    Some(job) if job.answer.is_closed() => {}
                    // The end of its output is not read yet. The caller starts or finds the next process.
                    Some(_) if has_served && group.has_ended() => break 'life ServeEnd::Silent(None),
                    Some(job) => break job,
                },
            }
        };
        has_served = true;
        let mut written = None;
        let output = {
            let mut write = pin!(stdin.write_all(&job.request));
            loop {
                tokio::select! {
                    biased;
                    result = &mut write, if written.is_none() => written = Some(result.is_ok()),
                    output = lines.next(job.answer_max) => break Some(output),
                    () = job.answer.closed() => break None,
                    () = &mut drain, if !drained => drained = true,
                }
            }
        };
        match output {
            None => break ServeEnd::Broken("a call to it was given up", None),
            Some(Ok(Output::Closed)) => break ServeEnd::Silent(Some(job.answer)),
            Some(Ok(Output::TooLong)) => {
                let answer = Err(too_long(job.answer_max));
                break ServeEnd::Broken("its answer was too long", Some((job.answer, answer)));
            }
            Some(Err(error)) => {
                break ServeEnd::Broken("it could not be read", Some((job.answer, Err(unreadable(&error)))));
            }
            Some(Ok(Output::Line(line))) => {
                let answer = read_reply(line);
                if answer.as_ref().is_err_and(|failure| failure.code == FailureCode::Protocol) {
                    break ServeEnd::Broken("its answer was no text", Some((job.answer, answer)));
                }
                if written != Some(true) {
                    break ServeEnd::Broken("it answered without reading", Some((job.answer, answer)));
                }
                // The caller may have given up at this moment; the program learns of it from the next view.
                drop(job.answer.send(answer));
            }
        }
    };

    // The call that started the process gets its failure; otherwise the caller would start another that fails alike.
    if !has_served
        && let ServeEnd::Silent(None) | ServeEnd::Broken(_, None) = end
        && let Ok(Some(job)) = tokio::time::timeout(GRACE, jobs.recv()).await
    {
        end = match end {
            ServeEnd::Broken(why, _) => {
                let answer =
                    Err(Failure::new(FailureCode::Protocol, "the program wrote something before it was asked"));
                ServeEnd::Broken(why, Some((job.answer, answer)))
            }
            ServeEnd::Unneeded(_) | ServeEnd::Silent(_) => ServeEnd::Silent(Some(job.answer)),
        };
    }
    // From here on, callers find the process gone, with the reason.
    let why = if let ServeEnd::Unneeded(why) | ServeEnd::Broken(why, _) = &end { why } else { "it had ended" };
    loss.is(why);
    jobs.close();
    drop(stdin);
    let status = if matches!(end, ServeEnd::Broken(..)) {
        None
    } else {
        let mut ended = pin!(tokio::time::timeout(GRACE, group.ended()));
        loop {
            tokio::select! {
                status = &mut ended => break status.ok(),
                () = &mut drain, if !drained => drained = true,
            }
        }
    };
    let exit = group.end().await;
    if status.is_some() && !drained {
        // The last message is in the pipe already; other holders of the pipe are not waited for.
        drop(tokio::time::timeout(Duration::from_millis(50), &mut drain).await);
    }
    tracing::debug!(%worker, why, "a program that keeps state is gone");
    match end {
        // The caller may be gone.
        ServeEnd::Broken(_, Some((asker, answer))) => drop(asker.send(answer)),
        ServeEnd::Silent(Some(asker)) => {
            drop(asker.send(Err(no_output_failure(status.and(exit.ok()), &last_words.get()))))
        }
        ServeEnd::Unneeded(_) | ServeEnd::Broken(_, None) | ServeEnd::Silent(None) => {}
    }
}
