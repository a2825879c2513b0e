//! Compiled blueprints, shared by the boards of a runtime.

use std::sync::{Arc, Weak};

use dashmap::DashMap;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::digest::{Digest, sha256};
use patchboard_kernel::plan::{Plan, PlanSource};

/// Plans in use, by their source. A plan is dropped with its last board.
#[derive(Default)]
pub(crate) struct PlanCache(DashMap<Digest, Weak<Plan>>);

impl PlanSource for PlanCache {
    fn plan_for_format(&self, blueprint: Blueprint, mode: &Mode, journal: u32) -> Result<Arc<Plan>, String> {
        let source = sha256(&serde_json::to_vec(&(mode, journal, &blueprint)).map_err(|error| error.to_string())?);
        if let Some(plan) = self.0.get(&source).and_then(|plan| plan.upgrade()) {
            return Ok(plan);
        }
        // Compiled without a lock; two concurrent compilers of one plan each keep their own.
        let plan = Arc::new(Plan::compile_for(Arc::new(blueprint), mode.clone(), journal)?);
        self.0.retain(|_, plan| plan.strong_count() > 0);
        self.0.insert(source, Arc::downgrade(&plan));
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
        let plans = PlanCache::default();
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
        assert_eq!(plans.0.len(), 1, "what is gone is forgotten");
    }
}
