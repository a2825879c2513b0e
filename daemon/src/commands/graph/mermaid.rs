//! Output as a Mermaid flowchart.

use std::fmt::Write as _;

use super::{Figure, ShapeKind, Style, line};

pub(super) fn write(figure: &Figure) -> String {
    let mut text = format!("---\ntitle: \"{}\"\n---\nflowchart LR\n", quoted_in_yaml(&figure.title));
    for (number, node) in figure.nodes.iter().enumerate() {
        let (open, close) = match node.kind {
            ShapeKind::Trigger => ("([", "])"),
            ShapeKind::Place => ("[(", ")]"),
            ShapeKind::Worker => ("[", "]"),
        };
        let label: Vec<String> = node.label.iter().map(|line| escaped(line)).collect();
        let class = if node.is_contested { ":::contested" } else { "" };
        line(&mut text, format_args!("n{number}{open}\"{}\"{close}{class}", label.join("<br/>")));
    }
    for arrow in &figure.arrows {
        let sign = match arrow.style {
            Style::Plain => "-->",
            Style::Dotted => "-.->",
            Style::Thick => "==>",
        };
        let label = if arrow.label.is_empty() { String::new() } else { format!("|\"{}\"|", escaped(&arrow.label)) };
        line(&mut text, format_args!("n{} {sign}{label} n{}", arrow.from, arrow.to));
    }
    if figure.nodes.iter().any(|node| node.is_contested) {
        line(&mut text, format_args!("classDef contested stroke:#c00,stroke-width:3px"));
    }
    text
}

/// Escapes a label. In quotes only `"` and `#` are special to the parser, but labels are then read as Markdown and as
/// HTML. Everything except letters, digits and harmless characters is written as a character code.
fn escaped(label: &str) -> String {
    let mut escaped = String::with_capacity(label.len());
    for (at, c) in label.char_indices() {
        // A dash at the beginning would make a list.
        if c.is_alphanumeric() || " /,:".contains(c) || (c == '-' && at > 0) {
            escaped.push(c);
        } else {
            write!(escaped, "#{};", u32::from(c)).expect("a string takes everything");
        }
    }
    escaped
}

fn quoted_in_yaml(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
