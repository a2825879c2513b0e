//! Sessions of the agents in one board's directory, kept between calls, and the attempts with a lost session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use patchboard_kernel::files::EditAttempt;
use patchboard_kernel::id::InvocationId;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::edit_author::EditAuthor;
use super::service::Workspace;
use super::session::{ReadHistory, Session, SessionAnswer, SessionRequest};

/// Maximum number of sessions; above it the least recently used is evicted, and its agent must read again.
pub const SESSIONS_MAX: usize = 256;

/// Invocation, and the agent's name if several share it.
type SessionKey = (InvocationId, Option<String>);

/// Sessions of one directory.
#[derive(Default)]
pub struct Sessions {
    entries: BTreeMap<SessionKey, SessionEntry>,
    evicted: BTreeSet<EditAttempt>,
}

struct SessionEntry {
    handle: SessionHandle,
    attempt: EditAttempt,
    used: Instant,
}

/// Handle of a session. Requests run one at a time, and may be submitted in parallel.
#[derive(Clone)]
pub struct SessionHandle {
    session: Arc<Mutex<Session>>,
    read_history: ReadHistory,
}

impl SessionHandle {
    fn new(session: Session) -> Self {
        Self { read_history: session.read_history.clone(), session: Arc::new(Mutex::new(session)) }
    }

    /// Returns the session.
    pub const fn session(&self) -> &Arc<Mutex<Session>> {
        &self.session
    }

    /// Executes a request after the earlier ones. It is based on the reads known now; results that arrive while it
    /// waits are not included.
    pub fn execute(&self, mut request: SessionRequest) -> impl Future<Output = SessionAnswer> + Send + use<> {
        let heard = request.order.as_ref().map_or(u64::MAX, |order| order.heard);
        request.basis.get_or_insert_with(|| self.read_history.after(heard));
        let session = Arc::clone(&self.session);
        async move {
            let mut session = session.lock().await;
            session.revert_answers(request.order.as_ref().map(|order| order.unheard.as_slice()).unwrap_or_default());
            session.execute(request).await
        }
    }
}

impl Sessions {
    /// Returns the session of this attempt and name, or a new one. The new session reports lost reads if the earlier
    /// one was evicted or the agent states it (`has_earlier_reads`). Without a statement it does so for every attempt
    /// after the first.
    pub fn get_or_create(
        &mut self,
        workspace: Arc<Workspace>,
        author: EditAuthor,
        has_earlier_reads: Option<bool>,
    ) -> SessionHandle {
        let status = workspace.board().status();
        let is_open = |of: &EditAttempt| status.attempts.contains(&(of.invocation, of.attempt));
        self.entries.retain(|_, seated| is_open(&seated.attempt));
        self.evicted.retain(is_open);
        let of = author.attempt;
        let key = (of.invocation, author.name.clone());
        if !is_open(&of) {
            // A closed attempt cannot edit, so its session is not stored.
            return SessionHandle::new(Session::with_lost_reads(workspace, author));
        }
        if let Some(seated) = self.entries.get_mut(&key) {
            seated.used = Instant::now();
            return seated.handle.clone();
        }
        if self.entries.len() >= SESSIONS_MAX
            && let Some(oldest) = self.entries.iter().min_by_key(|(_, seated)| seated.used).map(|(key, _)| key.clone())
            && let Some(seated) = self.entries.remove(&oldest)
        {
            self.evicted.insert(seated.attempt);
        }
        let has_earlier_reads = has_earlier_reads.unwrap_or(of.attempt > 1) || self.evicted.contains(&of);
        let session = match has_earlier_reads {
            true => Session::with_lost_reads(workspace, author),
            false => Session::new(workspace, author),
        };
        let handle = SessionHandle::new(session);
        self.entries.insert(key, SessionEntry { handle: handle.clone(), attempt: of, used: Instant::now() });
        handle
    }

    /// Drops all sessions; their agents are informed that their reads are lost.
    pub fn evict_all(&mut self) {
        self.evicted.extend(std::mem::take(&mut self.entries).into_values().map(|seated| seated.attempt));
    }

    /// Returns the number of sessions.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
