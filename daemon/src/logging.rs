//! Logs: what developers and operators read, on stderr, apart from progress and results.

use tracing_subscriber::EnvFilter;

/// Starts logging. `RUST_LOG` decides where it is set; otherwise `-v` shows what the project's crates do.
pub(crate) fn start(verbose: u8) {
    let default = match verbose {
        // What gives a board up is told by the command itself, with what to do about it.
        0 => "warn,patchboard_runtime::actors::board=off",
        1 => "warn,patchboard=info,patchboard_runtime=info,patchboard_agents=info",
        _ => "info,patchboard=debug,patchboard_runtime=debug,patchboard_agents=debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(anstream::stderr().current_choice() != anstream::ColorChoice::Never)
        .init();
}
