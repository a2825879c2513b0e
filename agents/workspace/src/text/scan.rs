//! Positions for comment lines, found by a scanner for literals, comments, brackets and continued lines, without a
//! grammar.
//!
//! Conservative: lines within a construct that the scanner does not recognise are unsafe. The comment then goes to an
//! earlier line, or is omitted.

use super::language::{CommentPositions, Dialect, Language, Lexis, Quote};
use super::markup_positions;

/// Lexical state at the beginning of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineStart {
    /// True inside a literal or comment, or on a continuation of the previous line.
    pub(super) is_inside: bool,
    /// Number of open brackets.
    pub(super) depth: u32,
}

/// For each line, its lexical state, and whether a comment may be inserted directly above it.
pub(super) struct Scan {
    pub(super) begins: Vec<LineStart>,
    pub(super) safe: Vec<bool>,
}

/// Scans a text, given with its lines and their ends.
pub(super) fn scan(language: &Language, text: &str, lines: &[&str]) -> Scan {
    if language.never.iter().any(|word| text.contains(word)) {
        let begins = vec![LineStart { is_inside: true, depth: 0 }; lines.len()];
        return Scan { begins, safe: vec![false; lines.len()] };
    }
    let outside = || vec![LineStart { is_inside: false, depth: 0 }; lines.len()];
    let (begins, mut safe) = match language.places {
        CommentPositions::Markup => (outside(), markup_positions::elements(text, lines)),
        CommentPositions::Paragraphs => (outside(), markup_positions::paragraphs(lines)),
        CommentPositions::Yaml => (outside(), markup_positions::entries(lines)),
        CommentPositions::Any | CommentPositions::Statements(_) | CommentPositions::Margin => {
            let (lexis, bytes) = (&language.lexis, text.as_bytes());
            let mut scanner = Scanner { lexis, bytes, at: 0, begins: Vec::new(), depth: 0, heredocs: 0 };
            scanner.run(text);
            let mut begins = scanner.begins;
            begins.resize(lines.len(), LineStart { is_inside: true, depth: 0 });
            regions(&language.lexis, lines, &mut begins);
            let safe =
                begins.iter().zip(lines).map(|(begin, line)| !begin.is_inside && fits(language.places, begin, line));
            let safe = safe.collect();
            (begins, safe)
        }
    };
    for flag in safe.iter_mut().take(head(language, lines)) {
        *flag = false;
    }
    Scan { begins, safe }
}

fn fits(places: CommentPositions, begin: &LineStart, line: &str) -> bool {
    match places {
        CommentPositions::Margin => !line.starts_with([' ', '\t']),
        CommentPositions::Statements(words) => begin.depth == 0 && words.iter().any(|word| line.starts_with(word)),
        CommentPositions::Any | CommentPositions::Markup | CommentPositions::Paragraphs | CommentPositions::Yaml => {
            true
        }
    }
}

/// Returns the number of lines that must stay at the top of the text.
pub(super) fn head(language: &Language, lines: &[&str]) -> usize {
    let Some(first) = lines.first() else { return 0 };
    if language.places == CommentPositions::Paragraphs {
        return markup_positions::front_matter(lines);
    }
    let of_head = |line: &&&str| {
        let line = line.trim_start_matches('\u{feff}');
        language.head.iter().any(|word| line.starts_with(word)) || names_encoding(line)
    };
    let head = lines.iter().take_while(of_head).count();
    let head = head.max(lines.iter().take(2).rposition(|line| names_encoding(line)).map_or(0, |at| at + 1));
    // Nothing may precede a byte order mark.
    head.max(usize::from(first.starts_with('\u{feff}')))
}

/// Returns whether a comment declares the file's encoding, which is effective in the first two lines only.
pub(super) fn names_encoding(line: &str) -> bool {
    line.trim_start().starts_with('#') && (line.contains("coding:") || line.contains("coding="))
}

fn regions(lexis: &Lexis, lines: &[&str], begins: &mut [LineStart]) {
    let mut until: Option<&str> = None;
    for (line, begin) in lines.iter().zip(begins) {
        let line = line.trim_start();
        if let Some(end) = until {
            begin.is_inside = true;
            if !end.is_empty() && line.starts_with(end) {
                until = None;
            }
        } else if let Some((_, end)) = lexis.regions.iter().find(|(start, _)| line.starts_with(start)) {
            until = Some(end);
        }
    }
}

/// Maximum number of heredoc openings checked for an end; further ones are assumed to have one.
const HEREDOCS_LOOKED_UP_MAX: u32 = 50;

struct Scanner<'a> {
    lexis: &'a Lexis,
    bytes: &'a [u8],
    at: usize,
    begins: Vec<LineStart>,
    depth: u32,
    heredocs: u32,
}

/// End mark of a heredoc, and whether it may be indented.
type Heredoc = (String, bool);

impl Scanner<'_> {
    fn run(&mut self, text: &str) {
        let mut pending: Vec<Heredoc> = Vec::new();
        self.begin(false);
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            if rest[0] == b'\n' {
                let joined = self.lexis.continues && self.before_end() == Some(b'\\');
                self.at += 1;
                self.begin(joined);
                for heredoc in std::mem::take(&mut pending) {
                    self.heredoc(&heredoc);
                }
            } else if let Some((open, close)) =
                self.lexis.block.iter().find(|(open, _)| rest.starts_with(open.as_bytes()))
            {
                self.block(open.as_bytes(), close.as_bytes());
            } else if self.lexis.line.iter().any(|mark| self.is_comment(mark)) {
                self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            } else if self.dialect(text) {
            } else if let Some(quote) = self.lexis.quotes.iter().find(|quote| rest.starts_with(quote.open.as_bytes())) {
                self.quote(quote);
            } else if self.lexis.heredocs
                && let Some((heredoc, len)) = opens_heredoc(&text[self.at..])
                && self.has_end(&text[self.at..], &heredoc)
            {
                pending.push(heredoc);
                self.at += len;
            } else {
                match rest[0] {
                    b'(' | b'[' | b'{' => self.depth += 1,
                    b')' | b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                    // Skips the escaped character.
                    b'\\' if rest.get(1).is_some_and(|byte| !matches!(byte, b'\n' | b'\r')) => self.at += 1,
                    _ => {}
                }
                self.at += 1;
                self.skip_to_boundary(text);
            }
        }
    }

    /// Returns whether a possible heredoc has an end; a left shift has none.
    fn has_end(&mut self, rest: &str, heredoc: &Heredoc) -> bool {
        self.heredocs += 1;
        self.heredocs > HEREDOCS_LOOKED_UP_MAX || rest.lines().skip(1).any(|line| ends_heredoc(line, heredoc))
    }

    fn skip_to_boundary(&mut self, text: &str) {
        while !text.is_char_boundary(self.at.min(self.bytes.len())) {
            self.at += 1;
        }
    }

    fn begin(&mut self, is_inside: bool) {
        self.begins.push(LineStart { is_inside, depth: self.depth });
    }

    /// Returns the last byte of the line that ends here.
    fn before_end(&self) -> Option<u8> {
        let line = &self.bytes[..self.at];
        line.strip_suffix(b"\r").unwrap_or(line).last().copied()
    }

    fn before(&self) -> Option<u8> {
        self.bytes[..self.at].last().copied()
    }

    fn is_comment(&self, mark: &str) -> bool {
        let begins_word = |byte: u8| byte.is_ascii_whitespace() || b";&|()".contains(&byte);
        self.bytes[self.at..].starts_with(mark.as_bytes())
            && (self.lexis.dialect != Dialect::Words || self.before().is_none_or(begins_word))
    }

    fn block(&mut self, open: &[u8], close: &[u8]) {
        let mut nested = 1;
        self.at += open.len();
        while self.at < self.bytes.len() && nested > 0 {
            let rest = &self.bytes[self.at..];
            if rest.starts_with(close) {
                nested -= 1;
                self.at += close.len();
            } else if self.lexis.is_nested && rest.starts_with(open) {
                nested += 1;
                self.at += open.len();
            } else {
                self.inside();
            }
        }
    }

    /// Skips one byte of a construct that may span lines.
    fn inside(&mut self) {
        self.at += 1;
        if self.bytes[self.at - 1] == b'\n' {
            self.begin(true);
        }
    }

    fn quote(&mut self, quote: &Quote) {
        self.at += quote.open.len();
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            if rest.starts_with(quote.close.as_bytes()) {
                self.count_lines(quote.close.len());
                return;
            }
            if quote.escapes && rest[0] == b'\\' && rest.len() > 1 {
                let pair = if rest.starts_with(b"\\\r\n") { 3 } else { 2 };
                self.count_lines(pair);
            } else if rest[0] == b'\n' && !quote.spans {
                return;
            } else {
                self.inside();
            }
        }
    }

    fn count_lines(&mut self, bytes: usize) {
        for _ in 0..bytes {
            self.inside();
        }
    }

    fn heredoc(&mut self, heredoc: &Heredoc) {
        // Its first line has already begun.
        loop {
            if let Some(begin) = self.begins.last_mut() {
                begin.is_inside = true;
            }
            let rest = &self.bytes[self.at..];
            let len = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            let is_end = str::from_utf8(&rest[..len]).is_ok_and(|line| ends_heredoc(line, heredoc));
            self.at += len;
            if len == 0 {
                return;
            }
            self.begin(!is_end);
            if is_end {
                return;
            }
        }
    }

    /// Handles constructs of a single dialect; returns whether one was found.
    fn dialect(&mut self, text: &str) -> bool {
        match self.lexis.dialect {
            Dialect::Plain | Dialect::Words => false,
            Dialect::Rust => self.rust(text),
            Dialect::Cpp => self.raw_cpp(text),
            Dialect::Script => self.script(text),
        }
    }

    fn rust(&mut self, text: &str) -> bool {
        let rest = &text[self.at..];
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if let Some(hashes) = rest.strip_prefix('r')
            && self.before().is_none_or(|byte| !is_word(byte) || byte == b'b' || byte == b'c')
        {
            let count = hashes.bytes().take_while(|byte| *byte == b'#').count();
            if hashes[count..].starts_with('"') {
                self.at += 2 + count;
                self.skip_to_close(&format!("\"{}", "#".repeat(count)));
                return true;
            }
        }
        if let Some(literal) = rest.strip_prefix('\'') {
            let mut chars = literal.chars();
            let len = match (chars.next(), chars.next()) {
                (Some('\\'), Some(escaped)) => {
                    let from = 1 + escaped.len_utf8();
                    literal[from..].find(['\'', '\n']).map_or(0, |end| from + end)
                }
                (Some(one), Some('\'')) => one.len_utf8(),
                _ => 0,
            };
            self.at += if len == 0 { 1 } else { len + 1 + usize::from(literal[len..].starts_with('\'')) };
            return true;
        }
        false
    }

    fn raw_cpp(&mut self, text: &str) -> bool {
        // Digit separators are also character quotes.
        if self.bytes[self.at] == b'\'' && self.before().is_some_and(|byte| byte.is_ascii_hexdigit()) {
            self.at += 1;
            return true;
        }
        let Some(rest) = text[self.at..].strip_prefix("R\"") else { return false };
        let Some(len) = rest.find('(').filter(|len| *len <= 16) else { return false };
        let close = format!("){}\"", &rest[..len]);
        self.at += 3 + len;
        self.skip_to_close(&close);
        true
    }

    fn skip_to_close(&mut self, close: &str) {
        while self.at < self.bytes.len() && !self.bytes[self.at..].starts_with(close.as_bytes()) {
            self.inside();
        }
        self.at = (self.at + close.len()).min(self.bytes.len());
    }

    fn script(&mut self, text: &str) -> bool {
        match self.bytes[self.at] {
            b'`' => {
                self.template();
                true
            }
            b'/' if begins_regex(text[..self.at].trim_end()) => {
                let rest = &self.bytes[self.at..];
                let mut in_class = false;
                let mut len = 1;
                while len < rest.len() && rest[len] != b'\n' {
                    match rest[len] {
                        b'\\' if rest.get(len + 1).is_some_and(|byte| *byte != b'\n') => len += 1,
                        b'[' => in_class = true,
                        b']' => in_class = false,
                        b'/' if !in_class => break,
                        _ => {}
                    }
                    len += 1;
                }
                self.at += (len + 1).min(rest.len());
                // Without an end it is no expression; scanning continues at the next line.
                if rest.get(len) == Some(&b'\n') {
                    self.at -= 1;
                }
                true
            }
            _ => false,
        }
    }

    /// Skips a template with its embedded code, which gets no comments.
    fn template(&mut self) {
        self.at += 1;
        // Number of open braces in the embedded code of each open template.
        let mut open: Vec<Option<u32>> = vec![None];
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            match (open.last_mut(), rest[0]) {
                (None, _) => return,
                (Some(None), b'\\') if rest.len() > 1 => self.count_lines(2),
                (Some(None), b'`') => {
                    open.pop();
                    self.at += 1;
                }
                (Some(code @ None), b'$') if rest.get(1) == Some(&b'{') => {
                    *code = Some(0);
                    self.at += 2;
                }
                (Some(Some(_)), b'`') => {
                    open.push(None);
                    self.at += 1;
                }
                (Some(Some(braces)), b'{') => {
                    *braces += 1;
                    self.at += 1;
                }
                (Some(code @ Some(0)), b'}') => {
                    *code = None;
                    self.at += 1;
                }
                (Some(Some(braces)), b'}') => {
                    *braces -= 1;
                    self.at += 1;
                }
                (Some(Some(_)), b'"' | b'\'') => {
                    let mark = if rest[0] == b'"' { "\"" } else { "'" };
                    self.quote(&Quote { open: mark, close: mark, escapes: true, spans: false });
                }
                (Some(_), _) => self.inside(),
            }
        }
    }
}

/// Returns whether a `/` after this code begins a regular expression rather than a division.
fn begins_regex(before: &str) -> bool {
    let word = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).next().unwrap_or_default();
    match before.chars().next_back() {
        None => true,
        Some(_) if !word.is_empty() => {
            matches!(
                word,
                "return" | "typeof" | "case" | "in" | "of" | "delete" | "void" | "throw" | "new" | "else" | "do"
            )
        }
        Some(last) => !matches!(last, ')' | ']' | '}' | '"' | '\'' | '`'),
    }
}

fn opens_heredoc(rest: &str) -> Option<(Heredoc, usize)> {
    let marks = rest.strip_prefix("<<")?;
    // PHP has three; in a shell this is a one-line text.
    let marks = marks.strip_prefix('<').unwrap_or(marks);
    let may_indent = marks.starts_with(['-', '~']) || rest.starts_with("<<<");
    let name = marks.trim_start_matches(['-', '~']).trim_start_matches([' ', '"', '\'', '\\', '`']);
    let len = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name.len());
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_well.then(|| ((name[..len].to_owned(), may_indent), rest.len() - name.len() + len))
}

fn ends_heredoc(line: &str, (name, may_indent): &Heredoc) -> bool {
    let line = line.trim_end();
    let line = if *may_indent { line.trim_start() } else { line };
    line.strip_suffix([';', ',', ')']).unwrap_or(line) == name
}
