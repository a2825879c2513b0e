//! A program that keeps state across calls: one process for each worker on each board.
//!
//! The first call starts it. Each call is one line to it and one line from it, one call at a time; its standard input
//! stays open. Its group is killed when the board is not run here any more, with this process, when a call is given up
//! (its time limit, a breaker), or when it breaks the protocol: what it would answer next could belong to any request.
//! Should this process be killed itself, the program sees its standard input end, and should end too.
//!
//! What follows when the process is gone, the seat says with `restart`. `fresh`: the next call starts a fresh process;
//! the program finds out from what it is shown what it has to do again. `fail`: the next call is refused, on this board
//! for good. `replay` is not here (DECISIONS.md, 31).

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use patchboard_kernel::blueprint::Restart;
use patchboard_kernel::failure::FailureCode;
use patchboard_kernel::id::{BoardId, WorkerName};
use patchboard_runtime::agent::{Answer, Call, Failure};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::group::{Group, Leader};
use super::lines::{LastWords, Lines, Output};
use super::{GRACE, answer_max, read_reply, request, silence, too_long, unreadable};
use crate::failure;

/// How long the process that a call needs may take to appear: the call that starts it may have been sent just before.
const APPEARS: Duration = GRACE;

/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// The most bytes that a process may write unasked before it is not listened to any more; blank lines are allowed.
const UNASKED_MAX: u64 = 4096;

/// What processes that live across calls are limited to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How many there may be; a call that needs one more fails.
    pub sessions: usize,
    /// How long one may wait for its next call.
    pub idle: Duration,
    /// How long one may live; a call that is under way then is still answered.
    pub life: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sessions: 256, idle: Duration::from_secs(30 * 60), life: Duration::from_secs(24 * 60 * 60) }
    }
}

/// The processes that live, by board and worker.
#[derive(Default)]
pub(super) struct Sessions {
    pub(super) limits: Limits,
    live: Mutex<BTreeMap<(BoardId, WorkerName), Session>>,
}

/// The way to a process. Dropping it kills the process with its group.
struct Session {
    /// Closed once the process takes no more calls.
    jobs: mpsc::Sender<Job>,
    leader: Leader,
    loss: Loss,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leader.kill();
    }
}

/// Why a process takes no more calls.
#[derive(Clone, Default)]
struct Loss(Arc<Mutex<String>>);

/// One call.
struct Job {
    request: Vec<u8>,
    answer_max: u64,
    answer: oneshot::Sender<Answer>,
}

impl Sessions {
    /// Answers a call with the process of its worker. The time limit is the caller's.
    pub(super) async fn ask(
        &self,
        call: &Call,
        restart: Restart,
        start: impl Fn() -> Result<Group, Failure>,
    ) -> Answer {
        // Ends: a process that was lost before it got this call has answered another one, or told why it cannot.
        loop {
            let jobs = self.enter(call, restart, &start).await?;
            let (answer, answered) = oneshot::channel();
            let job = Job { request: request(call), answer_max: answer_max(call), answer };
            if jobs.send(job).await.is_ok() {
                // Whoever waits for an answer does not keep the process alive.
                drop(jobs);
                if let Ok(answer) = answered.await {
                    return answer;
                }
            }
        }
    }

    /// Kills the processes of a board.
    pub(super) fn end(&self, board: &BoardId) {
        self.live().retain(|(owner, _), _| owner != board);
    }

    /// The way to the process of the call's worker; it is started where `restart` allows it.
    async fn enter(
        &self,
        call: &Call,
        restart: Restart,
        start: &impl Fn() -> Result<Group, Failure>,
    ) -> Result<mpsc::Sender<Job>, Failure> {
        let must_live = restart != Restart::Fresh && call.occurrence > 0;
        let until = Instant::now() + APPEARS;
        loop {
            {
                let mut live = self.live();
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
            tokio::time::sleep(LOOK).await;
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
            return Err(failure(FailureCode::Unreachable, message));
        }
        let group = start()?;
        let (jobs, waiting) = mpsc::channel(1);
        let (leader, loss) = (group.leader(), Loss::default());
        let worker = call.worker.clone();
        tokio::spawn(serve(group, waiting, loss.clone(), self.limits, worker));
        Ok(Session { jobs, leader, loss })
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<(BoardId, WorkerName), Session>> {
        // Nothing panics while the lock is held; if it did, the table would still be whole.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Loss {
    fn is(&self, why: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why.to_owned();
    }

    fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn key(call: &Call) -> (BoardId, WorkerName) {
    (call.board.clone(), call.worker.clone())
}

/// No further attempt helps: the state does not come back.
fn lost(why: &str) -> Failure {
    let message = format!("the program has lost its state, and its seat says restart: fail; {why}");
    failure(FailureCode::Refused, message)
}

/// How the service of a process ends.
enum End {
    /// Nobody asks any more: it may end by itself.
    Unneeded(&'static str),
    /// The answer to the last call is no answer, or nobody waits for it, or the process spoke unasked.
    Broken(&'static str, Option<(oneshot::Sender<Answer>, Answer)>),
    /// Its standard output is closed.
    Silent(Option<oneshot::Sender<Answer>>),
}

/// Passes calls to a process, one at a time, until one of both ends.
async fn serve(mut group: Group, mut jobs: mpsc::Receiver<Job>, loss: Loss, limits: Limits, worker: WorkerName) {
    let mut stdin = group.stdin().expect("standard input is a pipe");
    let mut lines = Lines::new(group.stdout().expect("standard output is a pipe"));
    let stderr = group.stderr().expect("standard error is a pipe");
    let last_words = LastWords::default();
    let mut drain = pin!(last_words.drain(stderr, worker.as_str()));
    let mut drained = false;
    let death = Instant::now() + limits.life;

    let mut has_served = false;
    let mut end = 'life: loop {
        let until = (Instant::now() + limits.idle).min(death);
        let mut job = loop {
            // What it has written before it was asked is seen before it is asked.
            tokio::select! {
                biased;
                output = lines.next(UNASKED_MAX) => match output {
                    Ok(Output::Line(_) | Output::TooLong) => break 'life End::Broken("it wrote without being asked", None),
                    Ok(Output::Closed) | Err(_) => break 'life End::Silent(None),
                },
                () = &mut drain, if !drained => drained = true,
                () = tokio::time::sleep_until(until) => {
                    break 'life End::Unneeded("it was idle for too long, or old");
                }
                job = jobs.recv() => match job {
                    None => break 'life End::Unneeded("the board is not run here any more"),
                    Some(job) if job.answer.is_closed() => {}
                    // Its end has not been read yet. Whoever asks goes to the next one.
                    Some(_) if has_served && group.has_ended() => break 'life End::Silent(None),
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
            None => break End::Broken("a call to it was given up", None),
            Some(Ok(Output::Closed)) => break End::Silent(Some(job.answer)),
            Some(Ok(Output::TooLong)) => {
                let answer = Err(too_long(job.answer_max));
                break End::Broken("its answer was too long", Some((job.answer, answer)));
            }
            Some(Err(error)) => {
                break End::Broken("it could not be read", Some((job.answer, Err(unreadable(&error)))));
            }
            Some(Ok(Output::Line(line))) => {
                let answer = read_reply(line);
                if answer.as_ref().is_err_and(|failure| failure.code == FailureCode::Protocol) {
                    break End::Broken("its answer was no text", Some((job.answer, answer)));
                }
                if written != Some(true) {
                    break End::Broken("it answered without reading", Some((job.answer, answer)));
                }
                // Whoever asked may have stopped waiting in this moment; the next call finds out from what it shows.
                drop(job.answer.send(answer));
            }
        }
    };

    // Whoever had it started is told what became of it; otherwise the next one would start it for the same end.
    if !has_served
        && let End::Silent(None) | End::Broken(_, None) = end
        && let Ok(Some(job)) = tokio::time::timeout(GRACE, jobs.recv()).await
    {
        end = match end {
            End::Broken(why, _) => {
                let answer = Err(failure(FailureCode::Protocol, "the program wrote something before it was asked"));
                End::Broken(why, Some((job.answer, answer)))
            }
            End::Unneeded(_) | End::Silent(_) => End::Silent(Some(job.answer)),
        };
    }
    // Whoever comes now finds the process gone, and why.
    let why = match &end {
        End::Unneeded(why) | End::Broken(why, _) => why,
        End::Silent(_) => "it had ended",
    };
    loss.is(why);
    jobs.close();
    drop(stdin);
    let status = if matches!(end, End::Broken(..)) {
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
        // What it said last is in the pipe already; whoever else holds the pipe open is not waited for.
        drop(tokio::time::timeout(Duration::from_millis(50), &mut drain).await);
    }
    tracing::debug!(%worker, why, "a program that keeps state is gone");
    match end {
        // Nobody may wait any more.
        End::Broken(_, Some((asker, answer))) => drop(asker.send(answer)),
        End::Silent(Some(asker)) => drop(asker.send(Err(silence(status.and(exit.ok()), &last_words.get())))),
        End::Unneeded(_) | End::Broken(_, None) | End::Silent(None) => {}
    }
}
