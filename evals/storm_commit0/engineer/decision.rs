//! Decides an engineer's next action from what it knows.

use serde_json::{Value, json};

use super::{Engineer, Range, Step, bare, is_annotation};

pub(super) enum NextAction {
    Nothing,
    /// View a file that is no longer known.
    Look(String),
    View((String, Option<Range>)),
    Find(usize),
    Search,
    Edit(Value),
}

impl Engineer {
    pub(super) fn wanted(&self, step: &Step) -> NextAction {
        match step {
            Step::View { path, range } => NextAction::View((path.clone(), range.clone())),
            Step::Find(helper) => NextAction::Find(*helper),
            Step::Sweep => NextAction::Search,
            Step::Head { path, imports, helpers } => {
                let added = self.missing(path, imports, helpers);
                if added.is_empty() {
                    return NextAction::Nothing;
                }
                let Some(line) = self.place(path) else { return NextAction::Look(path.clone()) };
                let intent = "what the functions below need";
                let arguments = json!({"command": "insert", "path": path, "insert_line": line, "insert_text": added, "intent": intent});
                NextAction::Edit(arguments)
            }
            Step::Restore(number) => {
                let piece = &self.exercise.pieces[*number];
                let stub = self.named(&piece.stub);
                if self.text(&piece.path).is_some_and(|text| !text.contains(&stub)) {
                    return NextAction::Nothing;
                }
                let intent = format!("restore {}", piece.name);
                NextAction::Edit(json!({
                    "command": "str_replace", "path": piece.path, "old_str": stub, "new_str": self.body(*number),
                    "intent": intent,
                }))
            }
            Step::Rewrite { path, pieces, imports, helpers } => {
                let Some(mut text) = self.text(path) else { return NextAction::Look(path.clone()) };
                let Some(line) = self.place(path) else { return NextAction::Nothing };
                let at: usize = text.split_inclusive('\n').take(line as usize).map(str::len).sum();
                text.insert_str(at, &self.missing(path, imports, helpers));
                for piece in pieces {
                    text = text.replacen(&self.named(&self.exercise.pieces[*piece].stub), &self.body(*piece), 1);
                }
                self.create(path, &text, "restore what was missing here")
            }
            Step::Rename { path } => {
                let Some(text) = self.text(path) else { return NextAction::Look(path.clone()) };
                // Annotations by other engineers stay unchanged.
                let line = |line: &str| if is_annotation(line) { line.to_owned() } else { self.exercise.renamed(line) };
                let text: String = text.split_inclusive('\n').map(line).collect();
                self.create(path, &text, &self.renaming())
            }
            Step::Move { path } => {
                if !self.memory.whole.contains(path) {
                    return NextAction::Look(path.clone());
                }
                let Some(to) = self.exercise.names_of(path).nth(1) else { return NextAction::Nothing };
                NextAction::Edit(json!({"command": "rename", "path": path, "new_path": to, "intent": self.renaming()}))
            }
        }
    }

    fn renaming(&self) -> String {
        let each: Vec<_> =
            self.exercise.renames.iter().map(|rename| format!("{} is called {} now", rename.old, rename.new)).collect();
        each.join("; ")
    }

    fn create(&self, path: &str, text: &str, intent: &str) -> NextAction {
        if self.text(path).as_deref() == Some(text) {
            return NextAction::Nothing;
        }
        NextAction::Edit(json!({"command": "create", "path": path, "file_text": text, "intent": intent}))
    }

    /// Returns the needed lines that the head of a file lacks.
    fn missing(&self, path: &str, imports: &[usize], helpers: &[usize]) -> String {
        let lacks = |line: &str| !self.memory.present.contains(&(path.to_owned(), bare(line)));
        let statements = imports.iter().map(|import| self.named(&self.exercise.imports[*import].statement));
        let mut added: String = statements.filter(|statement| lacks(statement)).collect();
        for helper in helpers.iter().filter(|helper| !self.memory.variants.contains_key(helper)) {
            added.push_str("\n\n");
            added.push_str(&self.named(&self.exercise.helpers[*helper].definitions[self.helper_variant]));
        }
        added
    }

    /// Returns a text with the new names that the engineer knows.
    pub(super) fn named(&self, text: &str) -> String {
        let known = self.memory.renamed.iter().map(|number| &self.exercise.renames[*number]);
        known.fold(text.to_owned(), |text, rename| rename.apply(&text))
    }

    fn body(&self, number: usize) -> String {
        let piece = &self.exercise.pieces[number];
        let variant = piece.helper.and_then(|helper| self.memory.variants.get(&helper)).copied();
        let variant = variant.unwrap_or(if piece.helper.is_some() { self.helper_variant } else { 0 });
        self.named(&piece.bodies[variant])
    }

    /// Returns the line after which to add to the head of a file.
    fn place(&self, path: &str) -> Option<u32> {
        let anchor = &self.exercise.anchors[path];
        let lines = self.memory.lines.get(path)?;
        let text = bare(&anchor.text);
        let renamed = self.exercise.renamed(&text);
        let (at, _) = lines.iter().find(|(_, line)| **line == text || **line == renamed)?;
        Some(if anchor.before { at - 1 } else { *at })
    }

    fn text(&self, path: &str) -> Option<String> {
        let is_known = self.memory.whole.contains(path);
        is_known.then(|| self.memory.lines[path].values().map(|line| format!("{line}\n")).collect())
    }
}
