//! Command lines in pages and help texts are valid.

#[path = "../../tests/documented/mod.rs"]
mod documented;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory as _, Parser as _};

use self::documented::Line;
use super::Cli;

/// Returns the help texts of a command and its subcommands, each with its command line.
fn helps(command: &Command, name: &str) -> Vec<(String, String)> {
    let arguments = command.get_arguments().flat_map(|argument| [argument.get_help(), argument.get_long_help()]);
    let about =
        [command.get_about(), command.get_long_about(), command.get_after_help(), command.get_after_long_help()];
    let texts = about.into_iter().chain(arguments).flatten().map(ToString::to_string);
    let own = (format!("{name} --help"), texts.collect::<Vec<_>>().join("\n\n"));
    let below = command.get_subcommands().flat_map(|one| helps(one, &format!("{name} {}", one.get_name())));
    [own].into_iter().chain(below).collect()
}

/// Returns the reason why a line is invalid.
fn wrong(line: &Line) -> Option<String> {
    let words = line.words.iter().map(String::as_str).filter(|word| !(line.is_mention && *word == "…"));
    let error = Cli::try_parse_from(["patchboard"].into_iter().chain(words)).err()?;
    let is_shown = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let why = error.to_string();
    // A sentence names a command and some flags, without every required argument.
    let is_part = match error.kind() {
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        ErrorKind::InvalidValue => why.contains("none was supplied"),
        ErrorKind::ValueValidation => line.words.iter().any(|word| word.contains('…')),
        _ => false,
    };
    if is_shown || line.is_mention && is_part {
        return None;
    }
    Some(format!("{}: {:?}: {}", line.place, line.words.join(" "), why.lines().next().unwrap_or_default()))
}

#[test]
fn every_command_line_of_pages_and_help_is_one_that_there_is() {
    let cli = Cli::command();
    let commands: Vec<String> = cli.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let helps = helps(&cli, "patchboard");
    let of_help = helps.iter().flat_map(|(place, text)| documented::of_help(place, text, &commands));
    let lines: Vec<Line> = documented::of_pages(&commands).into_iter().chain(of_help).collect();
    let (mentions, others) = lines.iter().partition::<Vec<_>, _>(|line| line.is_mention);
    assert!(mentions.len() > 100 && others.len() > 150, "{} mentions, {} others", mentions.len(), others.len());
    let wrong: Vec<String> = lines.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for name in &commands {
        let shown = others.iter().any(|line| line.words.first() == Some(name));
        assert!(shown, "neither a page nor the help of `{name}` has an example of it");
    }
}

#[test]
fn a_line_that_there_is_not_is_found() {
    for (text, is_wrong) in [
        ("Examples:\n  patchboard log last --rejected", false),
        ("Examples:\n  patchboard storage last", true),
        ("Examples:\n  patchboard log last --refused", true),
        ("Examples:\n  patchboard log", true),
        ("Examples:\n  jq . a.json | patchboard run r.yaml --request @-   # of a pipe", false),
        ("Examples:\n  patchboard approve last SEQ --reason 'it is; fine'", false),
        ("Examples:\n  patchboard state last --at first", true),
        ("See `patchboard log`.", false),
        ("See `patchboard logs`.", true),
        ("See `log --rejected`.", false),
        ("See `log --refused`.", true),
    ] {
        let commands = ["log".to_owned()];
        let lines = documented::of_help("a text", text, &commands);
        assert_eq!(lines.len(), 1, "{text}: {lines:?}");
        assert_eq!(wrong(&lines[0]).is_some(), is_wrong, "{text}: {lines:?}");
    }
}
