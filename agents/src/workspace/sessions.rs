//! The agents at one board's directory that go on from call to call: which there are, and of which it is not known any more
//! what they have read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use patchboard_kernel::files::EditAttempt;
use patchboard_kernel::id::InvocationId;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::service::Workspace;
use super::session::{Answer, Asked, Author, Bases, Session};

/// Agents that are remembered; of more, who did nothing for the longest time has to begin anew.
pub const SESSIONS_MAX: usize = 256;

/// An invocation, and who it is where several share it.
type Who = (InvocationId, Option<String>);

/// The agents at one directory.
#[derive(Default)]
pub struct Sessions {
    seated: BTreeMap<Who, Seated>,
    /// Attempts of which somebody was forgotten.
    forgotten: BTreeSet<EditAttempt>,
}

struct Seated {
    at_work: AtWork,
    of: EditAttempt,
    used: Instant,
}

/// An agent that does one thing after the other, and may be asked for several at once.
#[derive(Clone)]
pub struct AtWork {
    session: Arc<Mutex<Session>>,
    bases: Bases,
}

impl AtWork {
    fn of(session: Session) -> Self {
        Self { bases: session.bases().clone(), session: Arc::new(Mutex::new(session)) }
    }

    /// Who does it.
    pub const fn session(&self) -> &Arc<Mutex<Session>> {
        &self.session
    }

    /// Does what is asked for when its turn comes. Until then others may be told something: that was not known.
    pub fn ask(&self, mut asked: Asked) -> impl Future<Output = Answer> + Send + use<> {
        let heard = asked.order.as_ref().map_or(u64::MAX, |order| order.heard);
        asked.basis.get_or_insert_with(|| self.bases.after(heard));
        let session = Arc::clone(&self.session);
        async move {
            let mut session = session.lock().await;
            session.unheard(asked.order.as_ref().map(|order| order.unheard.as_slice()).unwrap_or_default());
            session.once(asked).await
        }
    }
}

impl Sessions {
    /// An agent: the one that this attempt has been so far under this name, or one that has read nothing yet. The latter
    /// knows that it begins anew if it was forgotten, or if it `is_anew` by its own word; where it does not say, if it may
    /// have made an earlier attempt.
    pub fn of(&mut self, workspace: Arc<Workspace>, author: Author, is_anew: Option<bool>) -> AtWork {
        let snapshot = workspace.board().snapshot();
        let is_open = |of: &EditAttempt| snapshot.attempts.contains(&(of.invocation, of.attempt));
        self.seated.retain(|_, seated| is_open(&seated.of));
        self.forgotten.retain(is_open);
        let of = author.of;
        let who = (of.invocation, author.name.clone());
        if !is_open(&of) {
            // Nothing comes of its edits, and nobody has to know it.
            return AtWork::of(Session::anew(workspace, author));
        }
        if let Some(seated) = self.seated.get_mut(&who) {
            seated.used = Instant::now();
            return seated.at_work.clone();
        }
        if self.seated.len() >= SESSIONS_MAX
            && let Some(oldest) = self.seated.iter().min_by_key(|(_, seated)| seated.used).map(|(who, _)| who.clone())
            && let Some(seated) = self.seated.remove(&oldest)
        {
            self.forgotten.insert(seated.of);
        }
        let is_anew = is_anew.unwrap_or(of.attempt > 1) || self.forgotten.contains(&of);
        let session = match is_anew {
            true => Session::anew(workspace, author),
            false => Session::new(workspace, author),
        };
        let at_work = AtWork::of(session);
        self.seated.insert(who, Seated { at_work: at_work.clone(), of, used: Instant::now() });
        at_work
    }

    /// Forgets everybody: who goes on begins anew, and knows it.
    pub fn forget(&mut self) {
        self.forgotten.extend(std::mem::take(&mut self.seated).into_values().map(|seated| seated.of));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.seated.len()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.seated.is_empty()
    }
}
