//! Output in Graphviz's DOT language.

use super::{Figure, ShapeKind, Style, line};

pub(super) fn write(figure: &Figure) -> String {
    let mut text = format!("digraph \"{}\" {{\n  rankdir=LR;\n", escaped(&figure.title));
    for (number, node) in figure.nodes.iter().enumerate() {
        let shape = match node.kind {
            ShapeKind::Trigger => "oval",
            ShapeKind::Place => "cylinder",
            ShapeKind::Worker => "box",
        };
        let label: Vec<String> = node.label.iter().map(|line| escaped(line)).collect();
        let marked = if node.is_contested { ", color=\"#cc0000\", penwidth=3" } else { "" };
        line(&mut text, format_args!("n{number} [shape={shape}, label=\"{}\"{marked}];", label.join("\\n")));
    }
    for arrow in &figure.arrows {
        let style = match arrow.style {
            Style::Plain => "solid",
            Style::Dotted => "dotted",
            Style::Thick => "bold",
        };
        let label =
            if arrow.label.is_empty() { String::new() } else { format!(", label=\"{}\"", escaped(&arrow.label)) };
        line(&mut text, format_args!("n{} -> n{} [style={style}{label}];", arrow.from, arrow.to));
    }
    text.push_str("}\n");
    text
}

/// Escapes `"` and `\`, which are special in quotes, and `&`, which may begin an entity.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('&', "&amp;")
}
