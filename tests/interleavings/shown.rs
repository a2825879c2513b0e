//! Knowledge of an agent about files, derived only from what it was shown. Independent of the session's read set and
//! of what the session forgets.
//!
//! Each line that was shown is known from then on, and so is each pair of adjacent lines. Outdated knowledge stays
//! out of date until its place is shown as it is now.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{History, Line};

/// Sentinels before the first line of a file and after the last.
const BEGIN: Line = 0;
const END: Line = Line::MAX;

/// Presence of a line (the same line twice), or adjacency of two lines.
type Fact = (Line, Line);

/// Completeness of the pieces shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// The whole file.
    Whole,
    /// The requested part.
    Part,
    /// Search hits, which do not count as a new view of their place.
    Found,
}

/// State of a known fact.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Last version at which it was shown.
    at: u64,
    /// True if the fact is outdated, and the content now in its place was shown since.
    is_made_up_for: bool,
}

#[derive(Clone, Debug, Default)]
struct File {
    facts: BTreeMap<Fact, Known>,
    /// Pieces that were shown on request, each with its version.
    pieces: Vec<(u64, Vec<Line>)>,
    /// Last version at which the file was shown to be absent.
    absent_at: Option<u64>,
    /// Last version that was shown at all.
    shown_at: Option<u64>,
}

/// Everything that one agent was shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    files: BTreeMap<String, File>,
}

/// Returns the lines of a version between the two sentinels, or `None` if there is no file.
fn bounded(history: &History, path: &str, version: u64) -> Option<Vec<Line>> {
    let lines = history.at(path, version)?.lines.as_ref()?;
    Some([&[BEGIN], lines.as_slice(), &[END]].concat())
}

fn is_so((first, second): Fact, lines: &[Line]) -> bool {
    let Some(at) = lines.iter().position(|line| *line == first) else { return false };
    first == second || lines.get(at + 1) == Some(&second)
}

/// Returns all facts in contiguous lines.
fn facts(lines: &[Line]) -> impl Iterator<Item = Fact> + '_ {
    let alone = lines.iter().map(|line| (*line, *line));
    alone.chain(lines.windows(2).map(|pair| (pair[0], pair[1])))
}

/// Returns the current lines between two lines of a version, including both. A missing one is replaced by the nearest
/// line before or after it that still exists.
fn place<'a>((first, second): Fact, then: &[Line], now: &'a [Line]) -> Option<&'a [Line]> {
    let (at, behind) = (then.iter().position(|line| *line == first)?, then.iter().position(|line| *line == second)?);
    let find = |line: &Line| now.iter().position(|there| there == line);
    let from = then[..=at].iter().rev().find_map(find)?;
    let to = then[behind..].iter().find_map(find)?;
    now.get(from..=to)
}

impl Shown {
    /// Records that pieces of the current file were shown.
    pub(crate) fn learn(&mut self, history: &History, path: &str, pieces: &[Vec<Line>], how: How) {
        let version = history.version(path);
        let Some(now) = bounded(history, path, version) else { return self.learn_absent(history, path) };
        let file = self.files.entry(path.to_owned()).or_default();
        file.shown_at = Some(version);
        file.absent_at = None;
        let pieces: Vec<Vec<Line>> = if how == How::Whole { vec![now.clone()] } else { pieces.to_vec() };
        let seen: BTreeSet<Line> = pieces.iter().flatten().copied().collect();
        let earlier = file.pieces.iter().filter(|(at, _)| *at == version).flat_map(|(_, piece)| piece);
        let shown_now: BTreeSet<Line> = earlier.copied().chain(seen.iter().copied()).collect();
        // Line by line, even if shown in separate pieces.
        let is_line = |(first, second): &&Fact| first == second;
        let known_lines: BTreeSet<Line> =
            file.facts.keys().filter(is_line).map(|(line, _)| *line).chain(seen.iter().copied()).collect();
        for (fact, known) in &mut file.facts {
            if is_so(*fact, &now) {
                continue;
            }
            let then = bounded(history, path, known.at).unwrap_or_default();
            let Some(place) = place(*fact, &then, &now) else { continue };
            // An empty place counts as seen once both its neighbours were shown, even in separate pieces.
            let between = &place[1..place.len() - 1];
            known.is_made_up_for |= match between {
                [] => place.iter().all(|line| [BEGIN, END].contains(line) || shown_now.contains(line)),
                between => between.iter().all(|line| known_lines.contains(line)),
            };
        }
        for fact in pieces.iter().flat_map(|piece| facts(piece)) {
            file.facts.insert(fact, Known { at: version, is_made_up_for: false });
        }
        if how != How::Found {
            file.pieces.extend(pieces.into_iter().map(|piece| (version, piece)));
        }
    }

    /// Records that the file was shown to be absent.
    pub(crate) fn learn_absent(&mut self, history: &History, path: &str) {
        let version = history.version(path);
        let absent = File { absent_at: Some(version), shown_at: Some(version), ..File::default() };
        self.files.insert(path.to_owned(), absent);
    }

    /// Records that the reply showed all differences since a version, so that all else is unchanged.
    pub(crate) fn learn_same(&mut self, history: &History, path: &str) {
        self.files.entry(path.to_owned()).or_default().shown_at = Some(history.version(path));
    }

    /// Records an edit by the agent itself: it knows the lines that it changed and wrote.
    pub(crate) fn wrote(&mut self, history: &History, path: &str) {
        let version = history.version(path);
        let Some(now) = bounded(history, path, version) else { return self.learn_absent(history, path) };
        let before = version.checked_sub(1).and_then(|before| bounded(history, path, before));
        let file = self.files.entry(path.to_owned()).or_default();
        let Some(before) = before else { return self.learn(history, path, &[], How::Whole) };
        let is_own = |fact: &Fact| is_so(*fact, &before) && !is_so(*fact, &now);
        file.facts.retain(|fact, _| !is_own(fact));
        // The agent also knows the new positions of its other lines.
        file.facts.iter_mut().filter(|(fact, _)| is_so(**fact, &now)).for_each(|(_, known)| known.at = version);
        let is_known = |line: Line| file.facts.contains_key(&(line, line));
        let mut pieces: Vec<Vec<Line>> = Vec::new();
        let mut at = 0;
        while at < now.len() {
            let run = now[at..].iter().take_while(|line| !before.contains(line)).count();
            if run > 0 {
                let from = if is_known(now[at - 1]) { at - 1 } else { at };
                let to = if is_known(now[at + run]) { at + run } else { at + run - 1 };
                pieces.push(now[from..=to].to_vec());
            }
            at += run + 1;
        }
        self.learn(history, path, &pieces, How::Part);
    }

    /// Returns an outdated fact with a place that was not shown since, if there is one.
    pub(crate) fn out_of_date(&self, history: &History, by_files: bool) -> Option<String> {
        self.files.iter().find_map(|(path, file)| {
            let now = history.version(path);
            if file.absent_at.is_some_and(|at| at < now) && history.lines(path).is_some() {
                return Some(format!("that there is no {path}"));
            }
            if by_files && file.shown_at.is_some_and(|at| at < now) {
                return Some(format!("{path} as of version {:?}, and nothing of version {now}", file.shown_at));
            }
            let lines = bounded(history, path, now).unwrap_or_default();
            let wrong = file.facts.iter().find(|(fact, known)| !known.is_made_up_for && !is_so(**fact, &lines));
            wrong.map(|((first, second), known)| format!("{path}, version {}: {first}, {second}", known.at))
        })
    }

    /// Like [`Self::out_of_date`], for one file.
    pub(crate) fn out_of_date_of(&self, history: &History, path: &str) -> Option<String> {
        let file = self.files.get(path)?.clone();
        Self { files: BTreeMap::from([(path.to_owned(), file)]) }.out_of_date(history, false)
    }

    /// Returns true if a read may count as stale: it has changed, and its place was not shown since in one piece.
    /// `lines` is `None` for a read of the whole version.
    pub(crate) fn may_count(&self, history: &History, path: &str, version: u64, lines: Option<&[Line]>) -> bool {
        let Some(file) = self.files.get(path) else { return false };
        let now = history.version(path);
        let absent_at = file.absent_at.unwrap_or(0);
        let Some(then) = bounded(history, path, version) else {
            return version.max(absent_at) < now && file.pieces.iter().all(|(at, _)| *at <= version);
        };
        let lines = lines.map_or_else(|| then.clone(), <[Line]>::to_vec);
        let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return false };
        let is_again = |(at, piece): &&(u64, Vec<Line>)| {
            let there = bounded(history, path, *at).unwrap_or_default();
            let place = place((*first, *last), &then, &there);
            *at > version && place.is_some_and(|place| piece.windows(place.len()).any(|part| part == place))
        };
        let again = file.pieces.iter().filter(is_again).map(|(at, _)| *at).max();
        again.unwrap_or(version).max(absent_at) < now
    }

    /// Returns the lines of a file that the agent knows and that still exist.
    pub(crate) fn lines(&self, history: &History, path: &str) -> BTreeSet<Line> {
        let there: BTreeSet<Line> = history.lines(path).unwrap_or_default().iter().copied().collect();
        let Some(file) = self.files.get(path) else { return BTreeSet::new() };
        there.into_iter().filter(|line| file.facts.contains_key(&(*line, *line))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Change;
    use super::*;

    const PATH: &str = "a.py";

    fn made(history: &mut History, lines: Option<&[Line]>) {
        let lines = lines.map(<[Line]>::to_vec);
        history.edit(&[Change { path: PATH.to_owned(), from: None, lines, pieces: Some(Vec::new()) }], "somebody");
    }

    fn shown_lines(history: &History, pieces: &[&[Line]]) -> Shown {
        let mut shown = Shown::default();
        shown.learn(history, PATH, &pieces.iter().map(|piece| piece.to_vec()).collect::<Vec<_>>(), How::Part);
        shown
    }

    #[test]
    fn changed_lines_stay_out_of_date_until_their_place_is_shown() {
        for (now, elsewhere, there) in [
            // Replaced, deleted, and separated by an insertion.
            (vec![1, 2, 9, 4, 5, 6], vec![1, 2], vec![2, 9, 4]),
            (vec![1, 2, 4, 5, 6], vec![5, 6], vec![2, 4]),
            (vec![1, 2, 3, 9, 4, 5, 6], vec![4, 5], vec![3, 9, 4]),
        ] {
            let mut history = History::new(usize::MAX);
            made(&mut history, Some(&[1, 2, 3, 4, 5, 6]));
            let mut shown = shown_lines(&history, &[&[1, 2, 3, 4, 5, 6]]);
            assert_eq!(shown.out_of_date(&history, false), None);
            made(&mut history, Some(&now));
            assert!(shown.out_of_date(&history, false).is_some(), "{now:?}");
            shown.learn(&history, PATH, std::slice::from_ref(&elsewhere), How::Part);
            assert!(shown.out_of_date(&history, false).is_some(), "{now:?}: {elsewhere:?} is elsewhere");
            assert!(shown.may_count(&history, PATH, 1, None));
            shown.learn(&history, PATH, &[there], How::Part);
            assert_eq!(shown.out_of_date(&history, false), None, "{now:?}");
            assert!(shown.may_count(&history, PATH, 1, None), "{now:?}: not all was shown again");
            assert!(!shown.may_count(&history, PATH, 1, Some(&[3])), "{now:?}: that was");
        }
    }

    #[test]
    fn a_partial_view_covers_only_the_lines_shown() {
        let mut history = History::new(usize::MAX);
        made(&mut history, Some(&[1, 2, 3]));
        let mut part = shown_lines(&history, &[&[1, 2, 3]]);
        let mut whole = Shown::default();
        whole.learn(&history, PATH, &[], How::Whole);
        made(&mut history, Some(&[1, 2, 3, 4]));
        assert_eq!(part.out_of_date(&history, false), None);
        assert!(part.out_of_date(&history, true).is_some(), "by files all of it has changed");
        assert!(whole.out_of_date(&history, false).is_some());
        whole.learn(&history, PATH, &[vec![4]], How::Part);
        assert_eq!(whole.out_of_date(&history, false), None);
        made(&mut history, None);
        assert!(part.out_of_date(&history, false).is_some());
        part.learn(&history, PATH, &[], How::Part);
        assert_eq!(part.out_of_date(&history, false), None);
        made(&mut history, Some(&[7]));
        assert!(part.out_of_date(&history, false).is_some(), "it knew that there is none");
    }

    #[test]
    fn an_agent_knows_its_own_changes() {
        let mut history = History::new(usize::MAX);
        made(&mut history, Some(&[1, 2, 3, 4]));
        let mut shown = shown_lines(&history, &[&[2, 3]]);
        made(&mut history, Some(&[1, 2, 8, 4]));
        shown.wrote(&history, PATH);
        assert_eq!(shown.out_of_date(&history, false), None);
        assert_eq!(shown.lines(&history, PATH), BTreeSet::from([2, 8]));
        made(&mut history, Some(&[1, 2, 9, 8, 4]));
        assert!(shown.out_of_date(&history, false).is_some(), "it put 8 behind 2");
    }
}
