//! Restores one library with a number of engineers, in one of the ways to share a directory.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use patchboard_workshop::{Workshop, name};
use patchboard_workspace::edit_author::EditAuthor;
use patchboard_workspace::git::error::GitCode;
use patchboard_workspace::metrics::{Metrics, metrics};
use patchboard_workspace::worktree::{Worktree, merge};
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::engineer::{Engineer, EngineerStats, Place};
use crate::library::Library;
use crate::plan::plan;

/// Maximum number of rounds of a run.
const ROUNDS_MAX: u32 = 20_000;

/// Way to share a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Edits are checked against the author's read set, line by line
    Storm,
    /// Edits are checked against the author's read set, file by file
    StormFile,
    /// Engineers are advised to take care, but never rejected
    Soft,
    /// Each engineer has its own working tree from the workspace; the trees are merged in sequence
    Worktree,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct Merges {
    pub(crate) tried: u64,
    /// Conflicting merges; the tree was dropped, and its work redone on the merged state.
    pub(crate) conflicts: u64,
    /// Edits repeated because of conflicts.
    pub(crate) again: u64,
}

pub(crate) struct Outcome {
    pub(crate) directory: TempDir,
    pub(crate) deeds: EngineerStats,
    /// Statistics from the board's records, for a shared directory.
    pub(crate) metrics: Option<Metrics>,
    pub(crate) merges: Option<Merges>,
    /// Set if all work was finished and accepted within the limits on attempts and rounds.
    pub(crate) is_whole: bool,
}

/// Restores a library; `presentation` is the level of detail of rejections.
pub(crate) async fn restore(
    library: &Library,
    mode: Mode,
    engineers: usize,
    seed: u64,
    presentation: &str,
) -> Result<Outcome, Box<dyn Error>> {
    let spec = match mode {
        Mode::Storm => json!({"isolation": "storm", "granularity": "lines", "presentation": presentation}),
        Mode::StormFile => json!({"isolation": "storm", "granularity": "file", "presentation": presentation}),
        Mode::Soft => json!({"isolation": "soft"}),
        Mode::Worktree => return worktrees(library, engineers, seed).await,
    };
    shared(library, engineers, seed, &spec).await
}

async fn shared(library: &Library, engineers: usize, seed: u64, spec: &Value) -> Result<Outcome, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    library.lay_out(directory.path())?;
    let shop = Workshop::at(engineers, spec, directory).await;
    let batches = plan(&library.exercise, engineers).into_iter().enumerate();
    let mut team: Vec<Engineer> = batches
        .map(|(number, batches)| {
            Engineer::new(&library.exercise, Place::Shared(Box::new(shop.session(number))), number, batches)
        })
        .collect();
    let is_over = work(&mut team, seed).await;
    let deeds = total_stats(&team);
    drop(team);
    let metrics = Some(metrics(&shop.records())?);
    let is_whole = is_over && deeds.given_up == 0;
    Ok(Outcome { directory: shop.closed(), deeds, metrics, merges: None, is_whole })
}

/// Runs each engineer in its own working tree, then merges the trees in order. The engineer of a conflicting tree
/// repeats its work in a new one, from the merged state, like a failed task that is assigned again.
async fn worktrees(library: &Library, engineers: usize, seed: u64) -> Result<Outcome, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    library.lay_out(directory.path())?;
    git(directory.path(), &["init", "--quiet", "--initial-branch=main"])?;
    git(directory.path(), &["add", "--all"])?;
    git(directory.path(), &["commit", "--quiet", "-m", "the library, blanked"])?;
    let shop = Workshop::at(engineers, &json!({"isolation": "worktree"}), directory).await;
    let plan = plan(&library.exercise, engineers);
    let mut team = Vec::with_capacity(engineers);
    for (number, batches) in plan.iter().enumerate() {
        team.push(Engineer::new(&library.exercise, tree(&shop, number).await?, number, batches.clone()));
    }
    let mut is_whole = work(&mut team, seed).await;
    let mut deeds = total_stats(&team);
    drop(team);
    let mut merges = Merges::default();
    for (number, batches) in plan.into_iter().enumerate() {
        if merged(&shop, number, &mut merges).await? {
            continue;
        }
        // The old tree would conflict again.
        std::fs::remove_dir_all(shop.directory.path().join(".patchboard/worktrees").join(name(number)))?;
        let mut alone = vec![Engineer::new(&library.exercise, tree(&shop, number).await?, number, batches)];
        is_whole &= work(&mut alone, seed).await;
        let more = total_stats(&alone);
        merges.again += more.accepted;
        deeds.add(&more);
        drop(alone);
        if !merged(&shop, number, &mut merges).await? {
            return Err(format!("the work of {} does not merge on what it was made of", name(number)).into());
        }
    }
    is_whole &= deeds.given_up == 0;
    Ok(Outcome { directory: shop.closed(), deeds, metrics: None, merges: Some(merges), is_whole })
}

async fn tree(shop: &Workshop, number: usize) -> Result<Place, Box<dyn Error>> {
    let author = shop.session(number).author().clone();
    Ok(Place::Own(Box::new(Worktree::open(&shop.workspace, author).await?)))
}

async fn merged(shop: &Workshop, number: usize, merges: &mut Merges) -> Result<bool, Box<dyn Error>> {
    merges.tried += 1;
    let manager = EditAuthor { name: Some("manager".to_owned()), ..shop.session(number).author().clone() };
    match merge(&shop.workspace, &manager, &name(number)).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == GitCode::MergeConflict.as_str() => {
            merges.conflicts += 1;
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Runs git, independent of the user's configuration.
fn git(directory: &Path, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=manager", "-c", "user.email=manager@example.invalid", "-c", "commit.gpgsign=false"]);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let output = command.args(arguments).current_dir(directory).output().map_err(|error| format!("git: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("git {}: {text}", arguments.join(" ")).into()) }
}

/// Runs the engineers in the worst order: all view what they need for their next files before any of them writes. Then
/// each writes once per round, the renaming engineer first in round 0, later in random order. Returns true if all work
/// was finished.
async fn work(team: &mut [Engineer], seed: u64) -> bool {
    let mut random = seed | 1;
    for round in 0..ROUNDS_MAX {
        if team.iter().all(Engineer::is_done) {
            return true;
        }
        if team.iter().all(Engineer::is_idle) {
            for engineer in team.iter_mut() {
                engineer.begin().await;
            }
        }
        for number in order(team.len(), round, &mut random) {
            team[number].turn().await;
        }
    }
    false
}

fn order(count: usize, round: u32, random: &mut u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if round == 0 {
        return order;
    }
    for last in (1..count).rev() {
        // xorshift64
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        let other = usize::try_from(*random % (last as u64 + 1)).unwrap_or_default();
        order.swap(last, other);
    }
    order
}

fn total_stats(team: &[Engineer]) -> EngineerStats {
    let mut deeds = EngineerStats::default();
    team.iter().for_each(|engineer| deeds.add(&engineer.deeds));
    deeds
}
