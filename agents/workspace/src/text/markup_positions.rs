//! Positions for a comment line in languages without statements: elements, paragraphs, entries.

/// Marks lines that begin an element: outside tags, comments and elements with significant text, and away from text.
pub(super) fn elements(text: &str, lines: &[&str]) -> Vec<bool> {
    let mut outside = vec![false; lines.len()];
    let starts: Vec<usize> = lines
        .iter()
        .scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some(start)
        })
        .collect();
    let mut at = 0;
    let mut next = 0;
    while at < text.len() {
        // Lines that begin before the next `<` are outside; lines within its span are not.
        let Some(found) = text[at..].find('<') else {
            mark(&mut outside, &starts, &mut next, at, text.len());
            break;
        };
        mark(&mut outside, &starts, &mut next, at, at + found);
        at += found;
        at += spanned(&text[at..]);
        while next < starts.len() && starts[next] < at {
            next += 1;
        }
    }
    let mut ends_tag = true;
    lines
        .iter()
        .zip(outside)
        .map(|(line, is_outside)| {
            let line = line.trim();
            let is_safe = is_outside && ends_tag && line.starts_with('<');
            if !line.is_empty() {
                ends_tag = line.ends_with('>');
            }
            is_safe
        })
        .collect()
}

fn mark(outside: &mut [bool], starts: &[usize], next: &mut usize, from: usize, to: usize) {
    while *next < starts.len() && starts[*next] <= to {
        outside[*next] = starts[*next] >= from;
        *next += 1;
    }
}

/// Returns the length in bytes of the construct that begins with this `<`: comment, declaration, tag or raw-text
/// element.
fn spanned(rest: &str) -> usize {
    let until = |close: &str, from: usize| rest[from..].find(close).map_or(rest.len(), |at| from + at + close.len());
    if rest.starts_with("<!--") {
        return until("-->", 4);
    }
    if rest.starts_with("<![CDATA[") {
        return until("]]>", 9);
    }
    if rest.starts_with("<?") {
        return until("?>", 2);
    }
    let mut quote = None;
    let mut brackets = 0_u32;
    let mut end = rest.len();
    for (at, byte) in rest.bytes().enumerate().skip(1) {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'[') => brackets += 1,
            (None, b']') => brackets = brackets.saturating_sub(1),
            (None, b'>') if brackets == 0 => {
                end = at + 1;
                break;
            }
            _ => {}
        }
    }
    let name = rest[1..].split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default().to_ascii_lowercase();
    let is_raw = matches!(name.as_str(), "script" | "style" | "pre" | "textarea" | "title" | "text" | "code");
    if !is_raw || rest[..end].ends_with("/>") {
        return end;
    }
    let closes = |at: &usize| {
        rest.as_bytes()
            .get(at + 2..at + 2 + name.len())
            .is_some_and(|close| close.eq_ignore_ascii_case(name.as_bytes()))
    };
    rest[end..].match_indices("</").map(|(at, _)| end + at).find(closes).unwrap_or(rest.len())
}

/// Marks lines that begin a paragraph: after an empty line, outside code.
pub(super) fn paragraphs(lines: &[&str]) -> Vec<bool> {
    let head = front_matter(lines);
    let mut fence: Option<&str> = None;
    let mut is_comment = false;
    let mut after_blank = true;
    let mut safe = Vec::with_capacity(lines.len());
    for (at, line) in lines.iter().enumerate() {
        if at < head {
            safe.push(false);
            continue;
        }
        let bare = line.trim();
        let is_code = line.starts_with("    ") || line.starts_with('\t');
        safe.push(after_blank && fence.is_none() && !is_comment && !is_code && !bare.is_empty());
        if let Some(mark) = fence {
            if bare.starts_with(mark) && bare.trim_start_matches(&mark[..1]).is_empty() {
                fence = None;
            }
        } else if is_comment {
            is_comment = !bare.contains("-->");
        } else if bare.starts_with("```") || bare.starts_with("~~~") {
            let len = bare.len() - bare.trim_start_matches(&bare[..1]).len();
            fence = Some(&bare[..len]);
        } else if bare.starts_with("<!--") {
            is_comment = !bare.contains("-->");
        }
        after_blank = bare.is_empty();
    }
    safe
}

/// Returns the number of lines of the YAML front matter, including its marks.
pub(super) fn front_matter(lines: &[&str]) -> usize {
    let is_mark = |line: &str| line.trim_end() == "---";
    if !lines.first().is_some_and(|first| is_mark(first.trim_start_matches('\u{feff}'))) {
        return 0;
    }
    lines.iter().skip(1).position(|line| is_mark(line)).map_or(0, |end| end + 2)
}

/// Marks lines that begin a YAML entry, outside literals, flow collections and multi-line scalars.
pub(super) fn entries(lines: &[&str]) -> Vec<bool> {
    let mut safe = Vec::with_capacity(lines.len());
    // Lines indented further than this are text.
    let mut literal: Option<Option<usize>> = None;
    let mut flow = Flow::default();
    // Indentation of the previous entry, and whether it may contain nested entries.
    let (mut column, mut opens) = (0, true);
    for line in lines {
        let bare = line.trim();
        let indent = line.len() - line.trim_start_matches(' ').len();
        if let Some(parent) = literal {
            let is_text = bare.is_empty() || parent.is_none_or(|parent| indent > parent);
            if is_text && !is_mark(line) {
                safe.push(false);
                continue;
            }
            literal = None;
        }
        if bare.is_empty() || (bare.starts_with('#') && flow.is_closed()) {
            // Another comment is valid next to an existing one.
            safe.push(!bare.is_empty());
            continue;
        }
        let was_closed = flow.is_closed();
        // A document may begin after its mark.
        let content = flow.read(if was_closed { line.strip_prefix("---").unwrap_or(line) } else { line });
        let dashes = content.len() - content.trim_start_matches([' ', '-']).len();
        let begins_entry = (bare.starts_with("- ") || bare == "-" || has_key(&content)) && !line.starts_with('\t');
        safe.push(was_closed && begins_entry && (indent <= column || opens) && !is_mark(line));
        if was_closed {
            column = dashes;
            let end = content.trim_end();
            opens = end.ends_with(':') || end.ends_with('-') || is_mark(line);
            let header = end.rsplit([' ', ':']).next().unwrap_or_default();
            if header.starts_with(['|', '>']) && header.len() <= 3 {
                literal = Some((!is_mark(line)).then_some(indent));
            }
        }
    }
    safe
}

fn is_mark(line: &str) -> bool {
    line.starts_with("---") || line.starts_with("...")
}

fn has_key(content: &str) -> bool {
    let content = content.trim();
    content.ends_with(':') || content.contains(": ")
}

/// Open quotes and brackets between lines.
#[derive(Default)]
struct Flow {
    quote: Option<char>,
    brackets: u32,
}

impl Flow {
    const fn is_closed(&self) -> bool {
        self.quote.is_none() && self.brackets == 0
    }

    /// Reads one line; returns it without comments and quoted text.
    fn read(&mut self, line: &str) -> String {
        let mut content = String::with_capacity(line.len());
        let mut before = ' ';
        // True where a value may begin; only there can a quote or bracket open.
        let mut is_start = true;
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match (self.quote, c) {
                (Some('"'), '\\') => {
                    chars.next();
                }
                (Some('\''), '\'') if chars.peek() == Some(&'\'') => {
                    chars.next();
                }
                (Some(open), _) if open == c => {
                    self.quote = None;
                    content.push('_');
                    is_start = false;
                }
                (Some(_), _) => {}
                (None, '#') if before.is_whitespace() => break,
                (None, '"' | '\'') if is_start => self.quote = Some(c),
                (None, '[' | '{') if is_start || self.brackets > 0 => self.brackets += 1,
                (None, ']' | '}') if self.brackets > 0 => self.brackets -= 1,
                (None, _) => {
                    content.push(c);
                    // Tags and anchors precede the value.
                    let is_word = !(c.is_whitespace() || "-?:,".contains(c));
                    let is_property = is_start && "!&".contains(c);
                    if is_property {
                        while let Some(more) = chars.next_if(|c| !c.is_whitespace()) {
                            content.push(more);
                        }
                    } else if is_word {
                        is_start = false;
                    } else if matches!(c, ':' | ',') || (c == '-' && is_start) {
                        is_start = chars.peek().is_none_or(|next| next.is_whitespace()) || self.brackets > 0;
                    }
                }
            }
            before = c;
        }
        content
    }
}
