//! Many faults of every class, injected into every system: rates, refusals, and whether that is good enough.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use patchboard_kernel::blueprint::{AgentKind, Blueprint};
use patchboard_kernel::denials::Denials;
use patchboard_kernel::mode::Mode;
use patchboard_kernel::plan::{Plan, Plans};
use patchboard_kernel::rejection::Stage;

use crate::class::Class;
use crate::corpus::Corpus;
use crate::injection::inject;
use crate::scenario::{self, Scenario};
use crate::system::System;
use crate::verdict::Verdict;

/// What is injected.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// How many faults of each class, into each system.
    pub instances: u64,
    /// What everything follows from.
    pub seed: u64,
    /// Of which classes.
    pub classes: Vec<Class>,
    /// Into which systems.
    pub systems: Vec<System>,
    /// Given texts.
    pub corpus: Corpus,
    /// How many boards are played at once.
    pub threads: usize,
}

/// What came of all faults of one class in one system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cell {
    /// Faults that were made.
    pub made: usize,
    /// Boards whose document they have reached.
    pub contaminated: usize,
    /// Loops that a breaker stopped; of other classes, boards that ended.
    pub halted: usize,
    /// Tasks that were done all the same.
    pub done: usize,
    /// Boards whose journal does not make the same board again.
    pub unreplayed: usize,
}

/// What came of a campaign.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// By class and system.
    pub cells: BTreeMap<(Class, System), Cell>,
    /// What PatchBoard refused, by blueprint.
    pub denials: BTreeMap<&'static str, Denials>,
}

impl Report {
    fn count(&mut self, verdict: &Verdict, denials: Denials) {
        let cell = self.cells.entry((verdict.class, verdict.system)).or_default();
        // Of runs in which no moment was found nothing can be said, except how many there are.
        if !verdict.is_made {
            return;
        }
        cell.made += 1;
        cell.contaminated += usize::from(verdict.is_contaminated());
        cell.halted += usize::from(verdict.is_halted);
        cell.done += usize::from(verdict.is_done);
        cell.unreplayed += usize::from(!verdict.is_replayed);
        if verdict.system == System::Patchboard {
            self.denials.entry(verdict.scenario).or_default().add(denials);
        }
    }

    /// The write contracts that have refused nothing: nobody knows whether they hold.
    pub fn idle_contracts(&self) -> Vec<(&'static str, String)> {
        let mut idle = Vec::new();
        for scenario in scenario::ALL {
            let Some(denials) = self.denials.get(scenario.name()) else { continue };
            for (name, worker) in &scenario.blueprint().workers {
                if worker.agent != AgentKind::Human && denials.at(name, Stage::Authorization) == 0 {
                    idle.push((scenario.name(), name.to_string()));
                }
            }
        }
        idle
    }
}

/// The scenarios that a class can be injected into.
fn scenarios(class: Class) -> Vec<&'static dyn Scenario> {
    let all = scenario::ALL.iter().copied();
    all.filter(|scenario| !scenario::who_can_err(*scenario, class).is_empty()).collect()
}

impl Campaign {
    /// How many boards are played.
    pub fn boards(&self) -> usize {
        self.jobs().len()
    }

    fn jobs(&self) -> Vec<(Class, System, u64)> {
        let mut jobs = Vec::new();
        for class in &self.classes {
            for instance in 0..self.instances {
                jobs.extend(self.systems.iter().map(|system| (*class, *system, instance)));
            }
        }
        jobs
    }

    /// Injects all faults; `tell` hears of each, in an order that follows from the campaign alone.
    pub fn run(&self, mut tell: impl FnMut(&Verdict)) -> Report {
        let jobs = self.jobs();
        let plans = Cached::default();
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
                        if sender.send((index, verdict, Denials::of(&records))).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            // They come as they are ready, and are told in order.
            let mut early = BTreeMap::new();
            let mut told = 0;
            for (index, verdict, denials) in receiver {
                early.insert(index, (verdict, denials));
                while let Some((verdict, denials)) = early.remove(&told) {
                    tell(&verdict);
                    report.count(&verdict, denials);
                    told += 1;
                }
            }
        });
        report
    }
}

/// Plans of few blueprints in few modes.
#[derive(Default)]
struct Cached(Mutex<BTreeMap<PlanKey, Arc<Plan>>>);

/// Name and concurrency of a blueprint, the mode, and the journal format.
type PlanKey = (String, u32, String, u32);

impl Plans for Cached {
    fn of_format(&self, blueprint: Blueprint, mode: &Mode, journal: u32) -> Result<Arc<Plan>, String> {
        let key = (blueprint.name.to_string(), blueprint.concurrency, mode.to_string(), journal);
        let mut plans = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(plan) = plans.get(&key) {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(Plan::compile_for(Arc::new(blueprint), mode.clone(), journal)?);
        plans.insert(key, Arc::clone(&plan));
        Ok(plan)
    }
}
