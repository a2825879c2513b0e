//! Bounds the work of one check of a blueprint (`patchboard-lint`).
//!
//! A step is a comparison of two paths, or equivalent work of another kind. Steps are counted instead of time, so that
//! a check has equal findings on every machine. Once the steps are used up, every question gets a cheap answer, and the
//! check drops all answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kinds of work that take steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkKind {
    /// Compiling schemas.
    Schemas,
    /// Finding the parts of a schema for the places of a path.
    Places,
    /// Comparing grants with each other.
    Grants,
}

/// Step budget of one check, shared by all its parts. By default there is no bound, and no step is counted.
#[derive(Clone, Default, Debug)]
pub struct WorkBudget(Option<Arc<WorkCounters>>);

#[derive(Debug)]
struct WorkCounters {
    max: u64,
    used: AtomicU64,
    by_work: [AtomicU64; 3],
}

impl WorkBudget {
    /// Creates a budget of `max` steps.
    pub fn with_max(max: u64) -> Self {
        Self(Some(Arc::new(WorkCounters { max, used: AtomicU64::new(0), by_work: Default::default() })))
    }

    /// Takes steps; returns false if the budget is exceeded.
    pub fn spend(&self, work: WorkKind, steps: u64) -> bool {
        let Some(all) = &self.0 else { return true };
        all.by_work[work as usize].fetch_add(steps, Ordering::Relaxed);
        all.used.fetch_add(steps, Ordering::Relaxed) + steps <= all.max
    }

    /// Returns true if the budget is exceeded.
    pub fn is_spent(&self) -> bool {
        !self.spend(WorkKind::Grants, 0)
    }

    /// Returns the steps taken for each kind of work.
    pub fn used(&self) -> [(WorkKind, u64); 3] {
        [WorkKind::Schemas, WorkKind::Places, WorkKind::Grants].map(|work| {
            let taken = self.0.as_ref().map(|all| all.by_work[work as usize].load(Ordering::Relaxed));
            (work, taken.unwrap_or(0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{WorkBudget, WorkKind};

    #[test]
    fn steps_of_all_work_have_one_bound() {
        let effort = WorkBudget::with_max(10);
        assert!(effort.spend(WorkKind::Schemas, 4) && effort.clone().spend(WorkKind::Grants, 6));
        assert_eq!((effort.is_spent(), effort.used().map(|(_, taken)| taken)), (false, [4, 0, 6]));
        assert!(!effort.spend(WorkKind::Places, 1) && effort.is_spent());
        assert!(WorkBudget::default().spend(WorkKind::Schemas, u64::MAX), "without a bound nothing is counted");
    }
}
