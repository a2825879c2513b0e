//! A campaign of faults: no error on PatchBoard's boards, repeatable results, and every kind of fault tried.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_faults::campaign::{Campaign, Report};
use patchboard_faults::class::FaultClass;
use patchboard_faults::corpus::Corpus;
use patchboard_faults::system::System;
use patchboard_faults::verdict::Verdict;
use patchboard_protocols::PLANS;

fn campaign(instances: u64, classes: &[FaultClass], systems: &[System], threads: usize) -> (Report, Vec<Verdict>) {
    let (classes, systems) = (classes.to_vec(), systems.to_vec());
    let campaign = Campaign { instances, seed: 5, classes, systems, corpus: Corpus::default(), threads };
    let mut verdicts = Vec::new();
    let report = campaign.run(PLANS, |verdict| verdicts.push(verdict.clone()));
    assert_eq!(verdicts.len(), campaign.boards());
    (report, verdicts)
}

#[test]
fn nothing_wrong_reaches_a_board_of_patchboard_but_lies() {
    let (report, verdicts) = campaign(20, FaultClass::ALL, &[System::Patchboard], 2);
    for ((class, _), cell) in &report.cells {
        assert_eq!((cell.injected, cell.halted, cell.unreplayed), (20, 20, 0), "{class}");
        match class {
            FaultClass::FalseClaim => assert!(cell.contaminated > 0, "lies are caught by those who know better alone"),
            _ => assert_eq!(cell.contaminated, 0, "{class}"),
        }
    }
    for verdict in &verdicts {
        assert!(verdict.is_made && verdict.is_replayed && verdict.overdrawn == 0, "{verdict:?}");
        // A worker without further faults repairs a rejected reply.
        let is_harmless =
            matches!(verdict.class, FaultClass::NoFault | FaultClass::InvalidJson | FaultClass::UnauthorizedWrite);
        assert!(!is_harmless || verdict.is_done, "{verdict:?}");
    }
}

#[test]
fn blackboards_finish_undisturbed_scenarios_one_call_at_a_time() {
    let (_, verdicts) = campaign(6, &[FaultClass::NoFault], System::ALL, 2);
    for verdict in verdicts {
        // With concurrent workers, a blackboard goes wrong even without a fault, because it does not check read sets.
        let is_alone = verdict.scenario != "stockroom";
        assert_eq!(verdict.is_done, is_alone || verdict.system == System::Patchboard, "{verdict:?}");
        assert_eq!(verdict.is_contaminated(), !verdict.is_done, "{verdict:?}");
    }
}

#[test]
fn a_campaign_is_the_same_however_many_boards_are_played_at_once() {
    let classes = [FaultClass::UnauthorizedWrite, FaultClass::DuplicateDelivery, FaultClass::AgentHang];
    let alone = campaign(4, &classes, System::ALL, 1);
    let together = campaign(4, &classes, System::ALL, 5);
    assert_eq!(alone, together);
}

#[test]
fn every_way_of_erring_is_tried_by_every_worker() {
    let (report, verdicts) =
        campaign(120, &[FaultClass::UnauthorizedWrite, FaultClass::InvalidJson], &[System::Patchboard], 2);
    assert_eq!(report.idle_contracts(), Vec::new());
    let mut kinds = BTreeMap::<FaultClass, BTreeSet<&str>>::new();
    let mut workers = BTreeSet::new();
    for verdict in &verdicts {
        kinds.entry(verdict.class).or_default().insert(verdict.kind);
        workers.insert((verdict.scenario, verdict.worker.clone().expect("somebody erred")));
    }
    assert_eq!(kinds[&FaultClass::UnauthorizedWrite], BTreeSet::from(["alone", "behind_a_due_write"]));
    assert!(kinds[&FaultClass::InvalidJson].len() >= 20, "{kinds:?}");
    // Workers of three scenarios: four, four with the environment, and three.
    assert_eq!(workers.len(), 11, "{workers:?}");
}
