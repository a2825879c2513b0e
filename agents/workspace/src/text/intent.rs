//! Intents as comments: one line with author and purpose above each block that an edit adds or changes.
//!
//! The board's state holds each intent in any case; the comments are for readers of the file. A comment is written only
//! at a position where it is certain to be one.

use std::collections::{BTreeMap, BTreeSet};

use patchboard_kernel::files::{LineRange, LineShift};

use super::edit::{EditCommand, EditError, EditResult, apply};
use super::hunks::{blocks, has_crlf, hunks, lines, number};
use super::language::{CommentPositions, CommentStyle, Language, refine_by_content};
use super::scan::{LineStart, Scan, head, names_encoding, scan};
use patchboard_kernel::text::one_line;

/// Maximum characters of an intent in a comment. A longer one is truncated there and complete in the state.
pub const INTENT_CHARS_MAX: usize = 120;

/// Maximum characters of a name in a comment.
const AUTHOR_CHARS_MAX: usize = 64;

/// Maximum number of other authors' comments kept above a line when one is added; the last ones stay.
pub const OTHERS_MAX: usize = 2;

/// Maximum number of blocks of one edit that get a comment.
const BLOCKS_MAX: usize = 256;

/// Maximum bytes of a text that gets comments.
const ANNOTATED_BYTES_MAX: usize = 1 << 20;

/// An intent comment found in a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Annotation {
    /// Line of the comment.
    pub line: u32,
    /// Author of the block below.
    pub author: String,
    /// Purpose of the block.
    pub intent: String,
}

/// A text with added comments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnnotatedText {
    /// New text.
    pub text: String,
    /// Lines of the comments in it.
    pub lines: Vec<u32>,
    /// Blocks without a comment, numbered as in the text before, because there was no position for one.
    pub without: Vec<LineRange>,
}

/// Author and intent of an edit, and the data to write them into a file.
#[derive(Clone, Copy)]
pub struct Signature<'a> {
    /// Language of the file.
    pub language: Language,
    /// Name of the author.
    pub author: &'a str,
    /// Purpose of the edit.
    pub intent: &'a str,
    /// Predicate for names of editors, because other comments may have this form.
    pub is_author: &'a dyn Fn(&str) -> bool,
}

/// Applies an edit and adds intent comments. Also returns the blocks without one.
pub fn apply_signed(
    command: &EditCommand,
    text: &str,
    signature: &Signature<'_>,
) -> Result<(EditResult, Vec<LineRange>), EditError> {
    let edited = apply(command, text)?;
    let annotated = annotate(&edited.text, &blocks(&edited.hunks), signature);
    let hunks = if annotated.text == edited.text { edited.hunks } else { hunks(text, &annotated.text) };
    Ok((EditResult { text: annotated.text, hunks }, annotated.without))
}

/// Adds a comment above each block: directly above, or at the nearest earlier position that allows one. It replaces the
/// author's own comment there; of other authors' comments the last [`OTHERS_MAX`] stay.
pub fn annotate(text: &str, blocks: &[LineRange], signature: &Signature<'_>) -> AnnotatedText {
    let unchanged = |without| AnnotatedText { text: text.to_owned(), lines: Vec::new(), without };
    let Some(intent) = harmless(signature.intent) else { return unchanged(blocks.to_vec()) };
    if text.len() > ANNOTATED_BYTES_MAX {
        return unchanged(blocks.to_vec());
    }
    let page = CommentLayout::new(text, signature);
    let (blocks, further) = blocks.split_at(blocks.len().min(BLOCKS_MAX));
    let mut without = Vec::new();
    // Zero-based lines that get a comment above them, and lines to remove.
    let mut places = BTreeSet::new();
    let mut removed = BTreeSet::new();
    for &block in blocks {
        match page.place(block) {
            Some((place, replaced)) => {
                places.insert(place);
                removed.extend(replaced);
            }
            None => without.push(block),
        }
    }
    without.extend_from_slice(further);
    let comment = comment(signature.language.style, &author_name(signature.author), &intent);
    let end = if has_crlf(text) { "\r\n" } else { "\n" };
    let mut annotated = AnnotatedText { text: String::with_capacity(text.len() + 200), lines: Vec::new(), without };
    let mut written = 0;
    for (at, line) in page.lines.iter().enumerate() {
        if places.contains(&at) {
            let indent = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
            annotated.text.extend([indent, comment.as_str(), end]);
            written += 1;
            annotated.lines.push(number(written));
        }
        if !removed.contains(&at) {
            annotated.text.push_str(line);
            written += 1;
        }
    }
    annotated
}

/// Returns the intent comments in a text.
pub fn annotations(text: &str, language: Language, is_author: &dyn Fn(&str) -> bool) -> Vec<Annotation> {
    let signature = Signature { language, author: "", intent: "", is_author };
    CommentLayout::new(text, &signature).annotations.into_values().collect()
}

/// Another author's comment that an edit removes or changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokenAnnotation {
    /// Comment before the edit.
    pub annotation: Annotation,
    /// Block below it before the edit; `None` if there was none.
    pub block: Option<LineRange>,
    /// True if the edit also changes the block.
    pub changes_block: bool,
    /// True if a comment of its author remains with other words.
    pub is_reworded: bool,
}

/// Returns the comments of authors other than `author` that the edit removes or changes.
pub fn broken_annotations(
    before: &str,
    after: &str,
    language: Language,
    author: &str,
    is_author: &dyn Fn(&str) -> bool,
) -> Vec<BrokenAnnotation> {
    let own = author_name(author);
    let signature = Signature { language, author, intent: "", is_author };
    let page = CommentLayout::new(before, &signature);
    let hunks = hunks(before, after);
    let touched = |first: u32, last: u32| {
        hunks
            .iter()
            .map(LineShift::from)
            .any(|step| step.removed > 0 && step.at <= last && first < step.at + step.removed)
    };
    let is_reworded = |line: u32| {
        let of = |step: &LineShift| step.at <= line && line < step.at + step.removed;
        let hunk = hunks.iter().find(|hunk| of(&LineShift::from(*hunk)));
        let was = page.annotations.get(&(line as usize - 1)).map(|annotation| annotation.author.as_str());
        let now = hunk.into_iter().flat_map(|hunk| hunk.now.lines());
        now.filter_map(|line| parse(page.language.style, line)).any(|(author, _)| Some(author) == was)
    };
    // A comment found elsewhere was moved with its block.
    let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
    for line in hunks.iter().flat_map(|hunk| hunk.now.lines()) {
        *kept.entry(line.trim()).or_default() += 1;
    }
    let mut broken = Vec::new();
    for (at, annotation) in &page.annotations {
        if annotation.author == own || !touched(annotation.line, annotation.line) {
            continue;
        }
        if let Some(count) = kept.get_mut(page.lines[*at].trim())
            && *count > 0
        {
            *count -= 1;
            continue;
        }
        let block = page.block_below(*at);
        let changes_block = block.is_some_and(|(first, last)| touched(first, last));
        let is_reworded = is_reworded(annotation.line);
        broken.push(BrokenAnnotation { annotation: annotation.clone(), block, changes_block, is_reworded });
    }
    broken
}

/// Returns the beginning of an editing tool's description, so that a model cannot miss it.
///
/// `is_required`: edits without an intent are rejected. `is_written`: intents are written into files as comments.
pub fn convention(author: &str, is_required: bool, is_written: bool) -> String {
    let author = author_name(author);
    let demand = if is_required { "EVERY EDIT NEEDS AN `intent`" } else { "Give each edit an `intent`" };
    let what = "one short sentence that says what the changed block does and why it is there, for the others who edit \
                these files at the same time as you";
    let place = if is_written {
        format!(
            "Your intent is written for you as a one-line comment right above each block that you add or change, like \
             `# {author}: refuse texts that are not numbers`; do not write this comment yourself. Comments of this form \
             under other names are the intents of others: take them into account before you edit, and leave them and \
             the blocks below them as they are, unless your task demands a change exactly there."
        )
    } else {
        "Your intent is kept with the file's version, and told to who looks at the file; do not write it into the file."
            .to_owned()
    };
    format!("{demand}: {what}. You are `{author}`. {place}\n")
}

/// Returns a name as comments show it: one word.
pub fn author_name(author: &str) -> String {
    let word = |c: char| if is_author_char(c) { c } else { '_' };
    author.trim().chars().map(word).take(AUTHOR_CHARS_MAX).collect()
}

fn is_author_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Reduces an intent to one line that cannot end a comment or begin code in any language; `None` if it is then empty.
fn harmless(intent: &str) -> Option<String> {
    // Bidirectional controls make the visible text differ from what compilers read.
    let is_direction =
        |c: &char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let visible: String = intent.chars().filter(|c| !is_direction(c)).collect();
    let mut line = one_line(&visible, INTENT_CHARS_MAX);
    for (ends, harmless) in
        [("*/", "* /"), ("/*", "/ *"), ("--", "- -"), ("?>", "? >"), ("#>", "# >"), ("\\u", "\\ u"), ("|#", "| #")]
    {
        while line.contains(ends) {
            line = line.replace(ends, harmless);
        }
    }
    // At the end of a line these would join the comment with the next line.
    let line = line.trim_end_matches(|c: char| c == '\\' || c == '-' || c.is_whitespace());
    let line = line.strip_suffix("??/").unwrap_or(line).trim_end();
    (!line.is_empty()).then(|| line.to_owned())
}

fn comment(style: CommentStyle, author: &str, intent: &str) -> String {
    match style {
        CommentStyle::Line(mark) => format!("{mark} {author}: {intent}"),
        CommentStyle::Block(open, close) => {
            format!("{open} {}: {intent} {close}", author.replace("--", "__"))
        }
    }
}

/// Parses author and intent of a comment in this form.
fn parse(style: CommentStyle, line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let body = match style {
        CommentStyle::Line(mark) => line.strip_prefix(mark)?,
        CommentStyle::Block(open, close) => line.strip_prefix(open)?.strip_suffix(close)?,
    };
    let (author, intent) = body.strip_prefix(' ')?.split_once(": ")?;
    let is_author = !author.is_empty() && author.chars().all(is_author_char);
    (is_author && author.chars().count() <= AUTHOR_CHARS_MAX).then(|| (author, intent.trim()))
}

/// A text with its comments and the positions for new ones.
struct CommentLayout<'a> {
    lines: Vec<&'a str>,
    scan: Scan,
    head: usize,
    language: Language,
    own: String,
    /// Zero-based line numbers.
    annotations: BTreeMap<usize, Annotation>,
    could_name_encoding: bool,
}

impl<'a> CommentLayout<'a> {
    fn new(text: &'a str, signature: &Signature<'_>) -> Self {
        let language = refine_by_content(signature.language, text);
        let own = author_name(signature.author);
        let lines = lines(text);
        let scan = scan(&language, text, &lines);
        let annotation = |(at, line): (usize, &&str)| {
            let (author, intent) = parse(language.style, line)?;
            let counts = author == own || (signature.is_author)(author);
            (counts && !scan.begins[at].is_inside).then(|| {
                (at, Annotation { line: number(at + 1), author: author.to_owned(), intent: intent.to_owned() })
            })
        };
        let annotations = lines.iter().enumerate().filter_map(annotation).collect();
        let head = head(&language, &lines);
        let could_name_encoding = names_encoding(&comment(language.style, &own, signature.intent));
        Self { lines, scan, head, language, own, annotations, could_name_encoding }
    }

    /// Returns the line above which a block's comment is inserted, and the comments it replaces: the author's own, and
    /// surplus ones of others.
    fn place(&self, (first, last): LineRange) -> Option<(usize, Vec<usize>)> {
        let begins = |at: &usize| !self.lines[*at].trim().is_empty() && !self.annotations.contains_key(at);
        let from = (first as usize - 1).max(self.head);
        let block = from..(last as usize).min(self.lines.len());
        let begin = block.clone().find(begins)?;
        let own = self.own_above(begin);
        let place = if own.is_empty() || !self.scan.safe[begin] {
            let nearest = (self.head..=begin).rev().find(|at| self.scan.safe[*at] && begins(at))?;
            self.with_attributes(nearest)
        } else {
            begin
        };
        // A comment in the first two lines could be read as an encoding declaration.
        if place < 2 && self.could_name_encoding { None } else { Some((place, self.replaced_above(place))) }
    }

    fn replaced_above(&self, line: usize) -> Vec<usize> {
        let mut replaced = self.own_above(line);
        let run = (0..line).rev().take_while(|at| self.annotations.contains_key(at));
        replaced.extend(run.filter(|at| self.annotations[at].author != self.own).skip(OTHERS_MAX));
        replaced
    }

    /// Returns the author's own comments directly above a line.
    fn own_above(&self, line: usize) -> Vec<usize> {
        let run = (0..line).rev().map_while(|at| self.annotations.get(&at).map(|annotation| (at, annotation)));
        run.filter(|(_, annotation)| annotation.author == self.own).map(|(at, _)| at).collect()
    }

    /// Returns the first of the attributes directly above a line, or the line itself.
    fn with_attributes(&self, mut line: usize) -> usize {
        let attributes = self.language.attributes;
        if attributes.is_empty() {
            return line;
        }
        let depth = self.scan.begins[line].depth;
        let starts = |at: &usize| {
            let LineStart { is_inside, depth: there } = self.scan.begins[*at];
            !is_inside && there <= depth
        };
        while let Some(above) = (self.head..line).rev().find(starts) {
            let is_attribute = attributes.iter().any(|mark| self.lines[above].trim_start().starts_with(mark));
            if !is_attribute || !self.scan.safe[above] {
                break;
            }
            line = above;
        }
        line
    }

    /// Returns the block below an intent comment. It begins at the next line that is no intent comment. It ends before
    /// an empty line, a less indented one or another intent comment.
    fn block_below(&self, annotation: usize) -> Option<LineRange> {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let least = indent(self.lines[annotation]);
        let first = (annotation + 1..self.lines.len()).find(|at| !self.annotations.contains_key(at))?;
        let below = (first..self.lines.len()).take_while(|at| {
            let line = self.lines[*at];
            // A closing tag has the indentation of its element, so it belongs to the block.
            let goes_on = indent(line) >= least || self.language.places == CommentPositions::Paragraphs;
            !line.trim().is_empty() && goes_on && !self.annotations.contains_key(at)
        });
        let last = below.last()?;
        Some((number(first + 1), number(last + 1)))
    }
}
