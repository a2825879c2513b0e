//! Measures the cost of a board per element, for the README's blueprint and for a variant that shows all elements to
//! every worker. Also measures readers of long documents under several view budgets.

use std::process::ExitCode;

use patchboard_tests::documents::{DOCUMENTS, read};
use patchboard_tests::elements::{play, readme, unbound};
use patchboard_tests::measure::{Goal, Row, run};

/// Numbers of elements of a board.
const SIZES: [usize; 5] = [5, 10, 20, 40, 100];
/// Factor by which an element may cost more on a larger board.
const GOAL: f64 = 1.1;

/// View budgets in characters; `None` is unlimited, the others are smaller than the documents that a reader may read.
const BUDGETS: [Option<u32>; 3] = [None, Some(4_000), Some(1_500)];

fn main() -> ExitCode {
    run("elements", |bench| {
        let whole = read(false, None);
        for (system, bound) in [("documents, all shown", false), ("documents, bound", true)] {
            for budget in BUDGETS {
                let size = budget.map_or_else(|| "no budget".to_owned(), |budget| format!("{budget} characters"));
                if !bench.wants(system, &size) {
                    continue;
                }
                let read = read(bound, budget);
                eprintln!("{system}, {size}: {} of {DOCUMENTS} read wholly, {} calls", read.whole, read.calls);
                #[expect(clippy::cast_precision_loss, reason = "there are fewer than 2^53 tokens")]
                let (tokens, of_all) = (read.tokens as f64, whole.tokens as f64);
                bench.add(
                    Row::number(system, &size, "tokens of all prompts", tokens, "tokens")
                        .ratio(tokens / of_all, "all shown, without a budget"),
                );
                #[expect(clippy::cast_precision_loss, reason = "there are a few")]
                let whole = read.whole as f64;
                bench.add(Row::number(system, &size, "documents read wholly", whole, "documents"));
            }
        }
        let few = play(&readme(), SIZES[0]);
        for elements in SIZES {
            let size = format!("{elements} elements");
            if !bench.wants("bound", &size) {
                continue;
            }
            let cost = play(&readme(), elements);
            let ratio = cost.per_element() / few.per_element();
            bench.add(
                Row::number("bound", &size, "tokens of prompts for each element", cost.per_element(), "tokens")
                    .ratio(ratio, "for each of 5")
                    .goal(Goal::at_most(GOAL, ratio, "×")),
            );
            let line =
                format!("{} of {elements} checked, {} calls, {} refusals", cost.checked, cost.calls, cost.rejected);
            eprintln!("bound, {size}: {line}");
            // Each rejection causes another call: larger sizes take long and show nothing new.
            if elements <= 40 {
                let all = play(&unbound(), elements);
                let line =
                    format!("{} of {elements} checked, {} calls, {} refusals", all.checked, all.calls, all.rejected);
                eprintln!("all shown, {size}: {line}");
                bench.add(
                    Row::number("all shown", &size, "tokens of prompts for each element", all.per_element(), "tokens")
                        .ratio(all.per_element() / cost.per_element(), "bound"),
                );
            }
        }
    })
}
