//! Finds what a request makes of a blueprint: looks at the board at its beginning.

use serde_json::Value;

use super::Diagnostic;
use crate::blueprint::Blueprint;
use crate::board::{Board, BoardError, Genesis};
use crate::digest::Salt;
use crate::id::{BoardId, Timestamp, WorkerName};
use crate::mode::Mode;
use crate::plan::Own;
use crate::source::Source;

/// Begins a board in memory, and finds what its workers may read and their views have no room for. `blueprint` is that of
/// the source, with view budgets.
///
/// # Errors
/// Those of [`Board::create`].
pub fn check_beginning(source: &Source, blueprint: Blueprint, request: Value) -> Result<Vec<Diagnostic>, BoardError> {
    let genesis = Genesis {
        board: BoardId::from("check"),
        blueprint,
        mode: Mode::default(),
        architect: None,
        parent: None,
        request,
        salt: Salt::ZERO,
        at: Timestamp::default(),
    };
    let (board, _) = Board::create(genesis, &Own)?;
    let mut findings = Vec::new();
    let place = |worker: &WorkerName| {
        let pointer = format!("/workers/{worker}");
        let given = format!("{pointer}/view/budget");
        if source.value().pointer(&given).is_some() { given } else { pointer }
    };
    for (worker, seat) in &board.plan().seats {
        let (least, budget) = (seat.fixed.minimum(), seat.worker.view_budget());
        if least > budget {
            let message =
                format!("the view of `{worker}` must show {least}, and the context of its model leaves {budget}");
            let help = "Use a model with a larger context, or set `view.budget`.";
            findings.push(Diagnostic::at(source, "budget_too_small", &place(worker), message, help));
        }
    }
    for (worker, shortage) in board.present_shortages() {
        let pointer = place(&worker);
        for sentence in shortage.sentences(worker.as_str()) {
            let message = format!("with this request, {sentence}");
            let help = "Raise `view.budget`, use a model with a larger context, or bind names in the trigger so that each \
                        call reads one part.";
            findings.push(Diagnostic::at(source, "view_shortage", &pointer, message, help));
        }
    }
    Ok(findings)
}
