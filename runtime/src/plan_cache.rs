//! Compiled blueprints, shared by the boards of a runtime.

use std::sync::{Arc, Weak};

use dashmap::DashMap;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::plan::{Plan, PlanSource, UncachedPlans};

/// Plans in use, by their source. A plan is dropped with its last board.
pub(crate) struct PlanCache {
    compiler: UncachedPlans,
    plans: DashMap<Digest, Weak<Plan>>,
}

impl PlanCache {
    /// Creates an empty cache.
    pub(crate) fn new(compiler: UncachedPlans) -> Self {
        Self { compiler, plans: DashMap::new() }
    }
}

impl PlanSource for PlanCache {
    fn plan_for_format(&self, blueprint: Blueprint, mode: &Mode, journal: u32) -> Result<Arc<Plan>, String> {
        let source = sha256(&serde_json::to_vec(&(mode, journal, &blueprint)).map_err(|error| error.to_string())?);
        if let Some(plan) = self.plans.get(&source).and_then(|plan| plan.upgrade()) {
            return Ok(plan);
        }
        // Compiled without a lock; two concurrent compilers of one plan each keep their own.
        let plan = self.compiler.plan_for_format(blueprint, mode, journal)?;
        self.plans.retain(|_, plan| plan.strong_count() > 0);
        self.plans.insert(source, Arc::downgrade(&plan));
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blueprint(name: &str) -> Blueprint {
        serde_json::from_value(serde_json::json!({
            "blueprint": 1, "name": name, "state": {"schema": true, "initial": {}}, "workers": {},
        }))
        .expect("a blueprint")
    }

    #[test]
    fn boards_of_one_blueprint_share_a_plan_while_one_of_them_is_there() {
        let plans = PlanCache::new(patchboard_protocols::PLANS);
        let of = |name| plans.plan(blueprint(name), &Mode::default()).expect("a plan");
        let first = of("shared");
        let plain = plans.plan(blueprint("shared"), &Mode::Plain {}).expect("a plan");
        assert!(!Arc::ptr_eq(&first, &plain), "what a mode makes of a blueprint is a plan of its own");
        drop(plain);
        assert!(Arc::ptr_eq(&first, &of("shared")));
        assert!(!Arc::ptr_eq(&first, &of("another")));
        let gone = Arc::downgrade(&first);
        drop(first);
        assert!(gone.upgrade().is_none(), "nobody but boards keeps it");
        assert_eq!(of("shared").blueprint.name, "shared");
        assert_eq!(plans.plans.len(), 1, "what is gone is forgotten");
    }
}
