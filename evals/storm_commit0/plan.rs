//! Distributes the pieces of a library over a number of engineers, each piece to one of them.
//!
//! Files that refer to each other most stay together, up to one engineer's share. A larger file is split by functions;
//! the others are assigned whole to the engineer with the least work.

use std::collections::{BTreeMap, BTreeSet};

use crate::exercise::Exercise;

/// Maximum number of pieces in a batch.
const BATCH_MAX: usize = 8;

/// Maximum number of lines of a file that is rewritten instead of edited piece by piece. Only every second engineer
/// works that way.
const REWRITTEN_LINES_MAX: u32 = 400;

/// Pieces of one file that an engineer restores together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    pub(crate) path: String,
    pub(crate) pieces: Vec<usize>,
    /// Set if the whole file is rewritten with these pieces.
    pub(crate) is_rewritten: bool,
}

/// Returns the batches of each engineer, in order. The first engineer also does the renames, before all other work.
pub(crate) fn plan(exercise: &Exercise, engineers: usize) -> Vec<Vec<Batch>> {
    let mut tasks = tasks(exercise, engineers);
    tasks.sort_by_key(|task| std::cmp::Reverse(lines(exercise, task)));
    let mut shares: Vec<Vec<usize>> = vec![Vec::new(); engineers];
    for task in tasks {
        let least = shares.iter_mut().min_by_key(|share| lines(exercise, share)).expect("there are engineers");
        least.extend(task);
    }
    let mut authors: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (engineer, share) in shares.iter().enumerate() {
        for piece in share {
            authors.entry(&exercise.pieces[*piece].path).or_default().insert(engineer);
        }
    }
    let batches = |(engineer, share): (usize, &Vec<usize>)| {
        let mut files: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        share.iter().for_each(|piece| files.entry(&exercise.pieces[*piece].path).or_default().push(*piece));
        let mut files: Vec<_> = files.into_iter().collect();
        // All engineers begin with the files that most of them edit.
        files.sort_by_key(|(path, _)| (std::cmp::Reverse(authors[path].len()), *path));
        let made = files.into_iter().flat_map(|(path, mut pieces)| {
            pieces.sort_unstable();
            let is_rewritten = engineer % 2 == 1 && pieces.len() >= 3 && exercise.sizes[path] <= REWRITTEN_LINES_MAX;
            let most = if is_rewritten { pieces.len() } else { BATCH_MAX };
            let batch = |pieces: &[usize]| Batch { path: path.to_owned(), pieces: pieces.to_vec(), is_rewritten };
            pieces.chunks(most).map(batch).collect::<Vec<_>>()
        });
        made.collect()
    };
    shares.iter().enumerate().map(batches).collect()
}

fn lines(exercise: &Exercise, pieces: &[usize]) -> u32 {
    pieces.iter().map(|piece| exercise.pieces[*piece].lines).sum()
}

/// Groups the pieces that stay together.
fn tasks(exercise: &Exercise, engineers: usize) -> Vec<Vec<usize>> {
    let total: u32 = exercise.pieces.iter().map(|piece| piece.lines).sum();
    let share = total.div_ceil(u32::try_from(engineers).unwrap_or(u32::MAX)).max(1);
    let mut groups: Vec<(BTreeSet<&str>, Vec<usize>)> = Vec::new();
    for (number, piece) in exercise.pieces.iter().enumerate() {
        match groups.iter_mut().find(|(paths, _)| paths.contains(piece.path.as_str())) {
            Some((_, pieces)) => pieces.push(number),
            None => groups.push((BTreeSet::from([piece.path.as_str()]), vec![number])),
        }
    }
    while let Some((one, other)) = closest(exercise, &groups, share) {
        let (paths, pieces) = groups.remove(other);
        groups[one].0.extend(paths);
        groups[one].1.extend(pieces);
    }
    groups.into_iter().flat_map(|(_, pieces)| split(exercise, &pieces, share)).collect()
}

/// Returns the two groups with the most references to each other, if together they do not exceed a share.
fn closest(exercise: &Exercise, groups: &[(BTreeSet<&str>, Vec<usize>)], share: u32) -> Option<(usize, usize)> {
    let refers = |from: &[usize], to: &BTreeSet<&str>| {
        let needs = from.iter().flat_map(|piece| &exercise.pieces[*piece].needs);
        needs.filter(|need| to.contains(exercise.definitions[**need].path.as_str())).count()
    };
    let mut found = None;
    for one in 0..groups.len() {
        for other in one + 1..groups.len() {
            let ((paths, pieces), (others, more)) = (&groups[one], &groups[other]);
            let weight = refers(pieces, others) + refers(more, paths);
            let fits = lines(exercise, pieces) + lines(exercise, more) <= share;
            if fits && weight > found.map_or(0, |(most, _)| most) {
                found = Some((weight, (one, other)));
            }
        }
    }
    found.map(|(_, pair)| pair)
}

/// Splits a group that is much more than a share.
fn split(exercise: &Exercise, pieces: &[usize], share: u32) -> Vec<Vec<usize>> {
    let all = lines(exercise, pieces);
    if all <= share + share / 4 {
        return vec![pieces.to_vec()];
    }
    let parts = all.div_ceil(share);
    let (mut made, mut done) = (vec![Vec::new()], 0);
    for piece in pieces {
        let begun = u32::try_from(made.len()).unwrap_or(u32::MAX);
        if done * parts >= all * begun {
            made.push(Vec::new());
        }
        made.last_mut().expect("there is one").push(*piece);
        done += exercise.pieces[*piece].lines;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exercise() -> Exercise {
        let piece = |path: &str, lines: u32, needs: &[usize]| {
            serde_json::json!({
                "name": "f", "path": path, "stub": "", "from": 1, "at": 2, "bodies": [""], "helper": null,
                "lines": lines, "imports": [], "needs": needs,
            })
        };
        let mut pieces: Vec<_> = (0..20).map(|_| piece("large.py", 10, &[])).collect();
        pieces.extend([piece("a.py", 20, &[0]), piece("b.py", 20, &[]), piece("c.py", 20, &[])]);
        let definition = serde_json::json!({"name": "f", "path": "b.py", "head": "def f(", "first": 1, "last": 1});
        serde_json::from_value(serde_json::json!({
            "library": "l", "path": ".", "pieces": pieces, "definitions": [definition], "imports": [], "helpers": [],
            "anchors": {}, "renames": [],
            "sizes": {"large.py": 900, "a.py": 50, "b.py": 50, "c.py": 50},
        }))
        .expect("an exercise")
    }

    #[test]
    fn every_piece_has_one_engineer_and_shares_are_balanced() {
        let exercise = exercise();
        for engineers in [1, 2, 4, 8] {
            let plan = plan(&exercise, engineers);
            let mut all: Vec<usize> = plan.iter().flatten().flat_map(|batch| batch.pieces.clone()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..exercise.pieces.len()).collect::<Vec<_>>(), "{engineers}");
            let share = |batches: &Vec<Batch>| batches.iter().map(|batch| lines(&exercise, &batch.pieces)).sum::<u32>();
            let (least, most) = (plan.iter().map(share).min(), plan.iter().map(share).max());
            assert!(most <= least.map(|least| least * 2), "{engineers}: {least:?} {most:?}");
        }
    }

    #[test]
    fn files_that_refer_to_each_other_stay_together_and_large_ones_are_split() {
        let exercise = exercise();
        let plan = plan(&exercise, 4);
        let paths = |batches: &Vec<Batch>| batches.iter().map(|batch| batch.path.clone()).collect::<BTreeSet<_>>();
        let with_a: Vec<_> = plan.iter().map(paths).filter(|paths| paths.contains("a.py")).collect();
        assert!(with_a.len() == 1 && with_a[0].contains("b.py"), "{plan:?}");
        assert!(plan.iter().map(paths).filter(|paths| paths.contains("large.py")).count() >= 3, "{plan:?}");
    }
}
