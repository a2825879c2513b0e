//! Cost of a board for each of its elements: the README's blueprint, and the same where every worker is shown all elements; and what
//! the budget of a view makes of readers of long documents.

use std::process::ExitCode;

use patchboard_tests::documents::{DOCUMENTS, read};
use patchboard_tests::elements::{play, readme, unbound};
use patchboard_tests::measure::{Goal, Row, run};

/// Elements of a board.
const SIZES: [usize; 5] = [5, 10, 20, 40, 100];
/// How much dearer an element may be on a larger board.
const GOAL: f64 = 1.1;

/// Budgets of views in characters; none has room for all that a reader may read.
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
            let told =
                format!("{} of {elements} checked, {} calls, {} refusals", cost.checked, cost.calls, cost.rejected);
            eprintln!("bound, {size}: {told}");
            // Each refusal is asked again: more than this takes long and says no more.
            if elements <= 40 {
                let all = play(&unbound(), elements);
                let told =
                    format!("{} of {elements} checked, {} calls, {} refusals", all.checked, all.calls, all.rejected);
                eprintln!("all shown, {size}: {told}");
                bench.add(
                    Row::number("all shown", &size, "tokens of prompts for each element", all.per_element(), "tokens")
                        .ratio(all.per_element() / cost.per_element(), "bound"),
                );
            }
        }
    })
}
