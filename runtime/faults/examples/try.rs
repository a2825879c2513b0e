//! try
use patchboard_faults::campaign::Campaign;
use patchboard_faults::class::Class;
use patchboard_faults::corpus::Corpus;
use patchboard_faults::injection::System;

fn main() {
    let mut args = std::env::args().skip(1);
    let instances = args.next().and_then(|n| n.parse().ok()).unwrap_or(3);
    let only = args.next();
    let classes: Vec<Class> = match &only {
        Some(name) => vec![Class::named(name).unwrap()],
        None => Class::ALL.to_vec(),
    };
    let campaign =
        Campaign { instances, seed: 1, classes, systems: System::ALL.to_vec(), corpus: Corpus::default(), threads: 2 };
    let report = campaign.run(|v| {
        if only.is_some() {
            println!("{}", serde_json::to_string(v).unwrap())
        }
    });
    for ((class, system), cell) in &report.cells {
        println!("{class} {system:?} {cell:?}");
    }
    println!("{:?}", report.idle_contracts());
}
