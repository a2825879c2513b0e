//! Shared compiled blueprint of a seed: compiling takes a tenth of the time of a whole board.

use std::cell::OnceCell;
use std::sync::Arc;

use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::Blueprint;
use patchboard_kernel::plan::{Plan, PlanSource};
use patchboard_protocols::PLANS;

#[derive(Default)]
pub(super) struct Shared(OnceCell<Arc<Plan>>);

impl Shared {
    /// Creates it from the plan of a board.
    pub(super) fn of_board(plan: &Arc<Plan>) -> Self {
        Self(OnceCell::from(Arc::clone(plan)))
    }
}

impl PlanSource for Shared {
    fn plan_for_format(&self, blueprint: Blueprint, mode: &Mode, journal: u32) -> Result<Arc<Plan>, String> {
        if let Some(plan) = self.0.get() {
            assert!(*plan.blueprint == blueprint && plan.mode == *mode, "a plan is asked for another blueprint");
            return Ok(Arc::clone(plan));
        }
        let plan = PLANS.plan_for_format(blueprint, mode, journal)?;
        Ok(Arc::clone(self.0.get_or_init(|| plan)))
    }
}
