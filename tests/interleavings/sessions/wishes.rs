//! Commands of agents and their expected effect on files.

use super::*;

/// A command and its expected changes.
pub(super) struct Wish {
    pub(super) arguments: Value,
    pub(super) changes: Vec<Change>,
    /// Line endings of the file after the command.
    form: Form,
}

impl Played {
    fn intent(&mut self) -> String {
        self.intents += 1;
        format!("reason {}", self.intents)
    }

    /// Draws a command and its expected changes.
    pub(super) fn wish(&mut self, agent: usize, path: &str, there: Option<&[Line]>, reads: &[Read]) -> Wish {
        let intent = self.intent();
        let lines = there.unwrap_or_default();
        let form = self.pages.form(path);
        let from = self.oracle.history.now(path).and_then(Version::hash);
        let whole = |new: Vec<Line>| vec![Piece { at: 0, gone: lines.len(), new }];
        let wish = |arguments: Value, form: Form, pieces: Vec<Piece>| {
            let after = apply(lines, &pieces);
            let form = form.of(after.len());
            let change = Change { path: path.to_owned(), from, lines: Some(after), pieces: Some(pieces) };
            Wish { arguments, changes: vec![change], form }
        };
        let gone = || Change { path: path.to_owned(), from, lines: None, pieces: Some(whole(Vec::new())) };
        let kind = self.random.below(20);
        if kind < 2 || there.is_none() || (lines.is_empty() && self.random.percent(50)) {
            let is_empty = self.look.has_empty && !lines.is_empty() && self.random.percent(10);
            let count = if is_empty { 0 } else { 1 + self.random.index(20) };
            let new = self.oracle.history.fresh(count);
            let form = self.look.form(&mut self.random).of(count);
            let text = self.pages.content(&new, form);
            let arguments = json!({"command": "create", "path": path, "file_text": text, "intent": intent});
            // An agent that has not read the path expects no file there.
            let from = from.filter(|_| reads.iter().any(|read| read.path == path));
            let pieces =
                if from.is_some() { whole(new.clone()) } else { vec![Piece { at: 0, gone: 0, new: new.clone() }] };
            let change = Change { path: path.to_owned(), from, lines: Some(new), pieces: Some(pieces) };
            return Wish { arguments, changes: vec![change], form };
        }
        if kind == 2 {
            let arguments = json!({"command": "delete", "path": path, "intent": intent});
            return Wish { arguments, changes: vec![gone()], form };
        }
        if kind == 3 {
            let to = file((self.random.index(FILES - 1) + 1 + file_number(path)) % FILES);
            let made = Piece { at: 0, gone: 0, new: lines.to_vec() };
            let made = Change { path: to.clone(), from: None, lines: Some(lines.to_vec()), pieces: Some(vec![made]) };
            let arguments = json!({"command": "rename", "path": path, "new_path": to, "intent": intent});
            return Wish { arguments, changes: vec![gone(), made], form };
        }
        let insertion = if kind < 8 || lines.is_empty() { self.insertion(path, lines, reads) } else { None };
        if let Some((insert_line, at)) = insertion.or(lines.is_empty().then_some((0, 0))) {
            let count = 1 + self.random.index(2);
            let new = self.oracle.history.fresh(count);
            let text = self.pages.content(&new, Form::default());
            let arguments = json!({
                "command": "insert", "path": path, "insert_line": insert_line, "insert_text": text, "intent": intent,
            });
            if !form.is_open || at < lines.len() {
                return wish(arguments, form, vec![Piece { at, gone: 0, new }]);
            }
            // The last line gets a line end, and thereby a new identity with the same text.
            let last = self.oracle.history.fresh(1)[0];
            self.pages.say(last, self.pages.says(lines[at - 1]));
            return wish(arguments, form, vec![Piece { at: at - 1, gone: 1, new: [vec![last], new].concat() }]);
        }
        // Mostly at lines that the agent knows.
        let shown = self.known[agent].lines(&self.oracle.history, path);
        let known: Vec<usize> = (0..lines.len()).filter(|at| shown.contains(&lines[*at])).collect();
        let at = match known.is_empty() || self.random.percent(15) {
            true => self.random.index(lines.len()),
            false => *self.random.pick(&known),
        };
        let gone = (1 + self.random.index(3)).min(lines.len() - at);
        let new = self.random.index(3);
        let new = self.oracle.history.fresh(new);
        // Without the line end that an open last line lacks.
        let piece = Form { has_crlf: false, is_open: form.is_open && at + gone == lines.len() };
        let (old, text) = (self.pages.content(&lines[at..at + gone], piece), self.pages.content(&new, piece));
        let arguments =
            json!({"command": "str_replace", "path": path, "old_str": old, "new_str": text, "intent": intent});
        let form = Form { is_open: form.is_open && !(piece.is_open && new.is_empty()), ..form };
        wish(arguments, form, vec![Piece { at, gone, new }])
    }

    /// Draws the line to insert after: its number as the author last saw it, and its current position.
    fn insertion(&mut self, path: &str, lines: &[Line], reads: &[Read]) -> Option<(usize, usize)> {
        let own: Vec<&Read> = reads.iter().filter(|read| read.path == path).collect();
        let length =
            |version: u64| self.oracle.history.at(path, version).and_then(|at| at.lines.as_ref()).map_or(0, Vec::len);
        let number = match own.is_empty() {
            true => self.random.index(lines.len() + 1),
            false => {
                let read = *self.random.pick(&own);
                match &read.what {
                    What::Whole => self.random.index(length(read.version) + 1),
                    What::Part { first, lines } => *first as usize - 1 + self.random.index(lines.len() + 1),
                }
            }
        };
        let concerns = |read: &&&Read| match &read.what {
            What::Whole => true,
            What::Part { first, lines } => {
                let first = *first as usize;
                first <= number + 1 && number < first + lines.len()
            }
        };
        let concerned: Vec<&Read> = own.iter().filter(concerns).copied().collect();
        let newest = concerned.iter().map(|read| read.version).max();
        let by_number = (number <= lines.len()).then_some((number, number));
        let Some(version) = newest.filter(|_| number > 0) else { return by_number };
        // Anchor: the line to insert after if it was read, otherwise the next line.
        let sees = |read: &&Read| match &read.what {
            What::Whole => true,
            What::Part { first, .. } => *first as usize <= number,
        };
        let is_behind = concerned.iter().filter(|read| read.version == version).any(sees);
        let then = self.oracle.history.at(path, version)?.lines.as_ref()?;
        let line = *then.get(if is_behind { number - 1 } else { number })?;
        match lines.iter().position(|there| *there == line) {
            Some(at) => Some((number, at + usize::from(is_behind))),
            // The edit is rejected in either case.
            None => by_number,
        }
    }

    /// Returns the changes of an accepted edit, with its comment where intents are written into files.
    pub(super) fn made(&mut self, agent: usize, wish: &Wish) -> Vec<Change> {
        let mut changes = wish.changes.clone();
        let [change] = changes.as_mut_slice() else {
            self.pages.set_form(&changes[1].path, wish.form);
            return changes;
        };
        let before = self.oracle.history.lines(&change.path).unwrap_or_default().to_vec();
        self.pages.set_form(&change.path, wish.form);
        if !self.look.annotates {
            return changes;
        }
        let Some(asked) = change.lines.clone() else { return changes };
        let text = self.shop.text(&change.path).expect("it is there");
        let (own, intent) = (comment_of(agent), wish.arguments["intent"].as_str().unwrap_or_default());
        let comment = format!("{own}{intent}");
        let says: Vec<String> = asked.iter().map(|line| self.pages.says(*line)).collect();
        let without = |lines: Vec<String>| lines.into_iter().filter(|line| !line.starts_with(&own)).collect::<Vec<_>>();
        let there: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(without(there.clone()), without(says), "but for its own comments {}: {text}", wish.arguments);
        let new = asked.iter().find(|line| !before.contains(line)).map(|line| self.pages.says(*line));
        let place = there.iter().position(|line| *line == comment);
        let above = place.and_then(|at| there.get(at + 1)).cloned();
        assert_eq!(above, new, "the intent stands above what is new: {}: {text}", wish.arguments);
        assert_eq!(there.iter().filter(|line| **line == comment).count(), usize::from(new.is_some()), "{text}");
        self.counts.comments += u64::from(place.is_some());
        let lost = before.iter().filter(|line| !asked.contains(line) && self.is_comment_of_others(agent, **line));
        for line in lost {
            let is_comment = |line: &&Line| self.pages.says(**line).starts_with('#');
            // Other comments may be between a comment and its block.
            let below = before.iter().skip_while(|other| *other != line).skip_while(is_comment);
            let mut block = below.take_while(|line| !is_comment(line));
            assert!(block.any(|line| !asked.contains(line)), "{} goes without its block", self.pages.says(*line));
        }
        let known = [asked, before].concat();
        let mut lines = Vec::new();
        for said in there {
            let line = self.pages.line(&known, &said).unwrap_or_else(|| self.oracle.history.fresh(1)[0]);
            self.pages.say(line, said);
            lines.push(line);
        }
        let form = wish.form;
        self.pages.set_form(&change.path, form.of(lines.len()));
        change.lines = Some(lines);
        changes
    }

    fn is_comment_of_others(&self, agent: usize, line: Line) -> bool {
        let said = self.pages.says(line);
        said.starts_with("# engineer_") && !said.starts_with(&comment_of(agent))
    }

    /// Returns true if an edit removes a comment of another agent.
    pub(super) fn takes_comment(&self, agent: usize, there: &[Line], changes: &[Change]) -> bool {
        let mut gone = changes[0].pieces.iter().flatten().flat_map(|piece| piece.at..piece.at + piece.gone);
        self.look.annotates && gone.any(|at| self.is_comment_of_others(agent, there[at]))
    }
}

fn file_number(path: &str) -> usize {
    (0..FILES).find(|at| file(*at) == path).unwrap_or(0)
}
