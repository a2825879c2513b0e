//! Disturbs a running board from outside: pauses, kernel crashes, changes of owner, and unsolicited proposals.

use std::sync::Arc;
use std::time::Duration;

use patchboard_faults::random::Random;
use patchboard_kernel::board::{Proposal, ProposalSource, ReplyBody};
use patchboard_kernel::id::IdempotencyKey;
use patchboard_runtime::error::RuntimeError;
use patchboard_runtime::handle::BoardHandle;
use patchboard_runtime::runtime::Runtime;

use crate::Ending;

/// Disturbs a board until it ends. Returns the board and its end.
pub(crate) async fn disturb(runtime: &Arc<Runtime>, mut board: BoardHandle, mut random: Random) -> Ending {
    loop {
        let moment = Duration::from_millis(500 + random.below(4_000));
        if let Ok(ended) = tokio::time::timeout(moment, board.wait_for_end()).await {
            return match ended {
                // Closed here, and not resumed yet.
                Err(RuntimeError::Closed(_)) => Err(RuntimeError::Closed(board.id().clone())),
                ended => ended.map(|ended| (board, ended)),
            };
        }
        // A board may end at any moment, so failed disturbances are ignored.
        match random.below(20) {
            0..3 => {
                drop(board.pause(None).await);
                tokio::time::sleep(Duration::from_millis(random.below(500))).await;
                drop(board.resume(None).await);
            }
            3..5 => board.crash(),
            5..7 => {
                let id = board.id().clone();
                runtime.close(&id).await;
                board = runtime.resume(&id).await?;
            }
            7..10 => {
                let token = random.percent(50).then(|| IdempotencyKey::from(format!("stranger-{}", random.below(3))));
                let from = ProposalSource::Direct { key: token, base: None };
                let worker = (*random.pick(&["planner", "clerk", "actor", "nobody"])).into();
                let reply = ReplyBody::Text(r#"[{"op": "replace", "path": "/request", "value": null}]"#.to_owned());
                drop(board.propose(Proposal { from, worker, reply, usage: None, raw: None }).await);
            }
            10 => drop(board.signal("news", serde_json::Value::Null, None).await),
            11 if random.percent(20) => drop(board.cancel().await),
            _ => {}
        }
    }
}
