//! Injects many faults of every class into every system; reports rates, rejections and untested contracts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use patchboard_kernel::ablation::Mode;
use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::plan::{Plan, PlanSource, UncachedPlans};
use patchboard_kernel::rejection::Stage;
use patchboard_kernel::rejection_counts::RejectionCounts;

use crate::class::FaultClass;
use crate::corpus::Corpus;
use crate::injection::inject;
use crate::scenario::{self, Scenario};
use crate::system::System;
use crate::verdict::Verdict;

/// Parameters of a fault-injection run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Number of faults of each class in each system.
    pub instances: u64,
    /// Random seed; determines the whole campaign.
    pub seed: u64,
    /// Fault classes to inject.
    pub classes: Vec<FaultClass>,
    /// Systems under test.
    pub systems: Vec<System>,
    /// Additional texts to inject.
    pub corpus: Corpus,
    /// Number of boards played in parallel.
    pub threads: usize,
}

/// Results of all faults of one class in one system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cell {
    /// Faults that were injected.
    pub injected: usize,
    /// Boards with a contaminated document.
    pub contaminated: usize,
    /// Loops that a breaker stopped; for other classes, boards that ended.
    pub halted: usize,
    /// Tasks that were completed correctly despite the fault.
    pub done: usize,
    /// Boards that could not be replayed from their journal.
    pub unreplayed: usize,
}

/// Results of a campaign.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// Results by class and system.
    pub cells: BTreeMap<(FaultClass, System), Cell>,
    /// PatchBoard's rejections, by blueprint.
    pub denials: BTreeMap<&'static str, RejectionCounts>,
}

impl Report {
    fn count(&mut self, verdict: &Verdict, denials: RejectionCounts) {
        let cell = self.cells.entry((verdict.class, verdict.system)).or_default();
        // Runs without an injected fault are not counted.
        if !verdict.is_made {
            return;
        }
        cell.injected += 1;
        cell.contaminated += usize::from(verdict.is_contaminated());
        cell.halted += usize::from(verdict.is_halted);
        cell.done += usize::from(verdict.is_done);
        cell.unreplayed += usize::from(!verdict.is_replayed);
        if verdict.system == System::Patchboard {
            self.denials.entry(verdict.scenario).or_default().merge(denials);
        }
    }

    /// Returns the workers with write contracts that rejected nothing: the campaign did not test them.
    pub fn idle_contracts(&self) -> Vec<(&'static str, String)> {
        let mut idle = Vec::new();
        for scenario in scenario::ALL {
            let Some(denials) = self.denials.get(scenario.name()) else { continue };
            for (name, worker) in &scenario.blueprint().workers {
                if worker.agent != AgentKind::Human && denials.at_stage(name, Stage::Authorization) == 0 {
                    idle.push((scenario.name(), name.to_string()));
                }
            }
        }
        idle
    }
}

/// Returns the scenarios that a class can be injected into.
fn scenarios(class: FaultClass) -> Vec<&'static dyn Scenario> {
    let all = scenario::ALL.iter().copied();
    all.filter(|scenario| !scenario::fault_candidates(*scenario, class).is_empty()).collect()
}

impl Campaign {
    /// Returns the number of boards to play.
    pub fn boards(&self) -> usize {
        self.jobs().len()
    }

    fn jobs(&self) -> Vec<(FaultClass, System, u64)> {
        let mut jobs = Vec::new();
        for class in &self.classes {
            for instance in 0..self.instances {
                jobs.extend(self.systems.iter().map(|system| (*class, *system, instance)));
            }
        }
        jobs
    }

    /// Injects all faults. Calls `on_verdict` with each verdict, in an order that depends on the campaign alone.
    pub fn run(&self, plans: UncachedPlans, mut on_verdict: impl FnMut(&Verdict)) -> Report {
        let jobs = self.jobs();
        let plans = CachedPlans { compiler: plans, plans: Mutex::default() };
        let next = AtomicUsize::new(0);
        let mut report = Report::default();
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..self.threads.clamp(1, 64) {
                let (sender, jobs, plans, next) = (sender.clone(), &jobs, &plans, &next);
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some((class, system, instance)) = jobs.get(index).copied() else { break };
                        let all = scenarios(class);
                        let scenario = all[usize::try_from(instance).unwrap_or_default() % all.len()];
                        let (verdict, records) =
                            inject(class, system, scenario, instance, self.seed, &self.corpus, plans);
                        if sender.send((index, verdict, RejectionCounts::from_records(&records))).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            // Verdicts arrive in completion order and are reported in job order.
            let mut early = BTreeMap::new();
            let mut reported = 0;
            for (index, verdict, denials) in receiver {
                early.insert(index, (verdict, denials));
                while let Some((verdict, denials)) = early.remove(&reported) {
                    on_verdict(&verdict);
                    report.count(&verdict, denials);
                    reported += 1;
                }
            }
        });
        report
    }
}

struct CachedPlans {
    compiler: UncachedPlans,
    plans: Mutex<BTreeMap<PlanKey, Arc<Plan>>>,
}

/// Key: name and concurrency of a blueprint, the mode, and the journal format.
type PlanKey = (String, u32, String, u32);

impl PlanSource for CachedPlans {
    fn plan_for_format(&self, blueprint: Blueprint, mode: &Mode, journal: u32) -> Result<Arc<Plan>, String> {
        let key = (blueprint.name.to_string(), blueprint.concurrency, mode.to_string(), journal);
        let mut plans = self.plans.lock();
        if let Some(plan) = plans.get(&key) {
            return Ok(Arc::clone(plan));
        }
        let plan = self.compiler.plan_for_format(blueprint, mode, journal)?;
        plans.insert(key, Arc::clone(&plan));
        Ok(plan)
    }
}
