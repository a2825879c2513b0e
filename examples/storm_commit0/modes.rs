//! One library restored by so many engineers, in one of the ways to share a directory.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use patchboard_agents::workspace::git::GitCode;
use patchboard_agents::workspace::metrics::{Metrics, metrics};
use patchboard_agents::workspace::session::Author;
use patchboard_agents::workspace::worktree::{Worktree, merge};
use patchboard_workshop::{Workshop, name};
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::engineer::{Deeds, Engineer, Place};
use crate::library::Library;
use crate::plan::plan;

/// Rounds after which a run is given up.
const ROUNDS_MAX: u32 = 20_000;

/// How engineers share a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Checked against what they have read, line by line
    Storm,
    /// Checked against what they have read, file by file
    StormFile,
    /// Told to take care, and never refused
    Soft,
    /// Each in a working tree of its own, as the workspace gives it, merged one after the other
    Worktree,
}

/// What merging came to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct Merges {
    pub(crate) tried: u64,
    /// Those that conflicted; the tree was dropped, and its work done again on what was merged.
    pub(crate) conflicts: u64,
    /// Edits that were made again for that.
    pub(crate) again: u64,
}

/// What came of it.
pub(crate) struct Outcome {
    /// What is there now.
    pub(crate) directory: TempDir,
    /// What the engineers did.
    pub(crate) deeds: Deeds,
    /// What the board's records say, of one directory that all share.
    pub(crate) metrics: Option<Metrics>,
    /// What merging came to, where there was some.
    pub(crate) merges: Option<Merges>,
    /// Bodies are not restored because somebody ran out of tries.
    pub(crate) is_whole: bool,
}

/// Has a library restored; `presentation` is how much refusals tell.
///
/// # Errors
/// Files or git.
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
    let deeds = together(&team);
    drop(team);
    let metrics = Some(metrics(&shop.records())?);
    let is_whole = is_over && deeds.given_up == 0;
    Ok(Outcome { directory: shop.closed(), deeds, metrics, merges: None, is_whole })
}

/// Each works as if alone, in a working tree of its own; then the trees are merged in the order of the engineers. Whose
/// tree conflicts does its work once more in a new one, of what is merged by then: a failed task is assigned a second time.
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
    let mut deeds = together(&team);
    drop(team);
    let mut merges = Merges::default();
    for (number, batches) in plan.into_iter().enumerate() {
        if merged(&shop, number, &mut merges).await? {
            continue;
        }
        // What is in the old tree conflicts for ever.
        std::fs::remove_dir_all(shop.directory.path().join(".patchboard/worktrees").join(name(number)))?;
        let mut alone = vec![Engineer::new(&library.exercise, tree(&shop, number).await?, number, batches)];
        is_whole &= work(&mut alone, seed).await;
        let more = together(&alone);
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

/// A working tree as the workspace gives it to an author.
async fn tree(shop: &Workshop, number: usize) -> Result<Place, Box<dyn Error>> {
    let author = shop.session(number).author().clone();
    Ok(Place::Own(Box::new(Worktree::open(&shop.workspace, author).await?)))
}

/// Merges what an engineer has done; whether nothing was in the way.
async fn merged(shop: &Workshop, number: usize, merges: &mut Merges) -> Result<bool, Box<dyn Error>> {
    merges.tried += 1;
    let manager = Author { name: Some("manager".to_owned()), ..shop.session(number).author().clone() };
    match merge(&shop.workspace, &manager, &name(number)).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == GitCode::MergeConflict.as_str() => {
            merges.conflicts += 1;
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whatever the user's own configuration says.
fn git(directory: &Path, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=manager", "-c", "user.email=manager@example.invalid", "-c", "commit.gpgsign=false"]);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let output = command.args(arguments).current_dir(directory).output().map_err(|error| format!("git: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("git {}: {text}", arguments.join(" ")).into()) }
}

/// The worst order: all look at what they need for their next files before any of them writes; then each writes once, in
/// turn, whoever renames first of all, and the others in an order that is another one in every round. Whether that came to
/// an end.
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

fn together(team: &[Engineer]) -> Deeds {
    let mut deeds = Deeds::default();
    team.iter().for_each(|engineer| deeds.add(&engineer.deeds));
    deeds
}
