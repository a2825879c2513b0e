//! Parts of snapshots, and their collection.

use patchboard_kernel::digest::sha256;
use patchboard_kernel::id::{BoardId, Seq};
use patchboard_kernel::record::{Body, Snapshot};
use patchboard_kernel::snapshot::SnapshotPart;
use patchboard_storage::journal::{GarbageCollection, NewParts};
use patchboard_storage::testing::Writer;

use crate::drivers::{Driver, for_every_driver};

for_every_driver!(parts_are_stored_once_and_after_those_they_name, unnamed_parts_and_old_snapshots_are_collected);

/// Returns a part that names others.
fn part(text: &str, names: &[&SnapshotPart]) -> SnapshotPart {
    let names: Vec<_> = names.iter().map(|part| part.hash).collect();
    let text = serde_json::json!([text, names]).to_string();
    SnapshotPart { hash: sha256(text.as_bytes()), text: text.into(), names }
}

async fn parts_are_stored_once_and_after_those_they_name(driver: &impl Driver) {
    let journal = driver.open();
    let board = BoardId::from("b");
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    let (leaf, other) = (part("leaf", &[]), part("other", &[]));
    let manifest = part("manifest", &[&leaf, &other]);
    let refused = journal.store_parts(&board, 0, vec![leaf.clone(), manifest.clone()]).await;
    assert_eq!(refused.expect_err("one is missing").code(), "missing_part");
    assert_eq!(journal.part(&board, leaf.hash).await, Ok(None), "all or none");
    let all = vec![leaf.clone(), other.clone(), manifest.clone()];
    let bytes = all.iter().map(|part| part.text.len() as u64).sum();
    assert_eq!(journal.store_parts(&board, 0, all.clone()).await, Ok(NewParts { count: 3, bytes }));
    assert_eq!(journal.store_parts(&board, 0, all).await, Ok(NewParts::default()));
    assert_eq!(journal.store_parts(&board, 1, vec![leaf]).await.expect_err("fenced").code(), "journal_fenced");
    assert_eq!(driver.open().part(&board, manifest.hash).await, Ok(Some(manifest.text.to_string())));
    assert_eq!(driver.open().cached_refs(&board, manifest.hash).await, Ok(Some(manifest.names)));
    assert_eq!(journal.part(&"another".into(), manifest.hash).await, Ok(None));
}

async fn unnamed_parts_and_old_snapshots_are_collected(driver: &impl Driver) {
    let journal = driver.open();
    let board = BoardId::from("b");
    let mut writer = Writer::new("b");
    journal.append(writer.created()).await.expect("appended");
    let shared = part("shared", &[]);
    let mut manifests = Vec::new();
    for number in 0..4 {
        let own = part(&format!("own {number}"), &[]);
        let manifest = part(&format!("manifest {number}"), &[&shared, &own]);
        let of = writer.head.expect("a head").seq;
        let parts = vec![shared.clone(), own.clone(), manifest.clone()];
        journal.store_parts(&board, 0, parts).await.expect("stored");
        let body = Body::Snapshot(Snapshot { of, layout: 1, digest: manifest.hash });
        journal.append(writer.batch(vec![body])).await.expect("appended");
        manifests.push((of, manifest, own));
    }
    let unstored = Body::Snapshot(Snapshot { of: Seq(3), layout: 1, digest: sha256(b"not stored") });
    journal.append(writer.batch(vec![unstored])).await.expect("appended");
    let kept = |snapshots: Vec<patchboard_storage::journal::KeptSnapshot>| -> Vec<Seq> {
        snapshots.into_iter().map(|snapshot| snapshot.of).collect()
    };
    let newest_first: Vec<Seq> = manifests.iter().rev().map(|(of, ..)| *of).collect();
    assert_eq!(kept(journal.snapshots(&board).await.expect("read")), newest_first);
    assert_eq!(journal.collect_garbage(&board, 1, 2, &[]).await.expect_err("fenced").code(), "journal_fenced");
    // The newest is unusable, so the two before it stay.
    let collected = journal.collect_garbage(&board, 0, 2, &newest_first[..1]).await;
    assert_eq!(collected, Ok(GarbageCollection { kept: 5, removed: 4 }));
    assert_eq!(kept(driver.open().snapshots(&board).await.expect("read")), newest_first[1..3]);
    for (of, manifest, own) in &manifests {
        let stays = newest_first[1..3].contains(of);
        for part in [manifest, own] {
            assert_eq!(journal.part(&board, part.hash).await.expect("read").is_some(), stays);
        }
    }
    assert!(journal.part(&board, shared.hash).await.expect("read").is_some());
}
