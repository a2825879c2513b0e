//! Configuration files in the working directory: used only after the user has trusted them.

use std::process::Command;

use patchboard_endpoint::Endpoint;
use serde_json::json;

use crate::sandbox::{Sandbox, notes_by};

/// A configuration that came with another user's files.
fn found(url: &str) -> String {
    format!("[models.default]\nurl = \"{url}\"\nmodel = \"m\"\napi_key_env = \"PATCHBOARD_TEST_KEY\"\n")
}

/// Returns the binary's command without an explicit configuration.
fn plain(sandbox: &Sandbox, arguments: &[&str]) -> Command {
    let mut command = sandbox.command(arguments);
    command.env_remove("PATCHBOARD_CONFIG").env("PATCHBOARD_TEST_KEY", "sk-secret");
    command
}

#[test]
fn a_configuration_that_is_found_is_used_once_it_was_agreed_to() {
    let sandbox = Sandbox::new();
    let endpoint = Endpoint::new(Vec::new());
    sandbox.write("patchboard.toml", found(&endpoint.url));
    sandbox.write("llm.yaml", notes_by("llm", ""));
    let run = ["run", "llm.yaml", "--request", r#"{"topic":"x"}"#, "--output", "json"];
    let tried = |arguments: &[&str]| {
        let output = plain(&sandbox, arguments).output().expect("the binary can be run");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    for arguments in
        [&run[..], &["doctor", "--output", "json"], &["serve", "--listen", "127.0.0.1:0", "--output", "json"]]
    {
        let (code, printed) = tried(arguments);
        assert_ne!(code, Some(0), "{printed}");
        assert!(printed.contains("patchboard trust") && !printed.contains("sk-secret"), "{printed}");
    }
    assert_eq!(endpoint.requests().len(), 0, "nothing was sent anywhere");

    let (code, printed) = tried(&["trust"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("models.default.api_key_env = \"PATCHBOARD_TEST_KEY\""), "{printed}");
    assert!(printed.contains(&format!("models.default.url = \"{}\"", endpoint.url)), "{printed}");
    let (_, printed) = tried(&["doctor", "--offline", "--output", "json"]);
    assert!(!printed.contains("patchboard trust"), "{printed}");

    // Trust ends when the file changes.
    sandbox.write("patchboard.toml", found(&endpoint.url) + "temperature = 1.0\n");
    let (code, printed) = tried(&run);
    assert_eq!((code, printed.contains("has changed since")), (Some(2), true), "{printed}");
    assert_eq!(tried(&["trust"]).0, Some(0));
    assert_eq!(tried(&["trust", "--list"]).1.lines().count(), 1);
    assert_eq!(tried(&["trust", "--revoke"]).0, Some(0));
    let (code, printed) = tried(&run);
    assert_eq!((code, printed.contains("config_untrusted")), (Some(2), true), "{printed}");
    assert_eq!(endpoint.requests().len(), 0);

    // Naming a configuration counts as consent, and a model on the command line needs none.
    let named = tried(&["doctor", "--config", "patchboard.toml", "--output", "json"]);
    assert!(!endpoint.requests().is_empty(), "{named:?}");
}

/// A checkout must not use a link to a trusted configuration to choose the directory of its relative paths.
#[cfg(unix)]
#[test]
fn a_link_to_a_configuration_that_was_agreed_to_is_another() {
    let (mine, other) = (Sandbox::new(), Sandbox::new());
    mine.write("patchboard.toml", found("http://127.0.0.1:9/v1"));
    let home = mine.path().join("home");
    let of = |sandbox: &Sandbox, arguments: &[&str], home: &std::path::Path| {
        let output = plain(sandbox, arguments).env("XDG_CONFIG_HOME", home).output().expect("the binary can be run");
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    assert!(of(&mine, &["trust"], &home).0);
    let link = other.path().join("patchboard.toml");
    std::os::unix::fs::symlink(mine.path().join("patchboard.toml"), link).expect("a link");
    let doctor = ["doctor", "--offline", "--output", "json"];
    let (_, printed) = of(&other, &doctor, &home);
    assert!(printed.contains("patchboard trust"), "{printed}");
    assert!(of(&other, &["trust"], &home).0);
    let (_, printed) = of(&other, &doctor, &home);
    assert!(!printed.contains("patchboard trust"), "{printed}");
    // A trust list inside the checkout is not the user's.
    assert!(of(&other, &["trust", "--list"], std::path::Path::new("home")).0);
    assert!(!other.path().join("home").exists());
    let endless = Sandbox::new();
    std::os::unix::fs::symlink("/dev/zero", endless.path().join("patchboard.toml")).expect("a link");
    assert!(of(&endless, &["trust"], &home).1.contains("more than"));
    let named = of(&endless, &["check", "notes.yaml", "--config", "/dev/zero"], &home);
    assert!(!named.0 && named.1.contains("more than"), "{named:?}");
}

#[test]
fn no_command_repeats_a_value_of_a_broken_configuration() {
    let model = "[models.default]\nurl = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n";
    let broken = [
        "api_key = \"s3cret\"",
        "api_key_env = \"sk-s3cret\"",
        "api_key_env = \"K\" s3cret",
        "api_key_env = \"s3cret",
        "api_key_command = \"s3cret\"",
        "api_key_command = [\"pass\",\n\"s3cret\"\ntemperature = 1",
        "patience = \"s3cret\"",
        "s3cretS3cretS3cretS3cret=",
        "[models.b]\nurl = \"https://me:s3cret@h/v1\"\nmodel = \"m\"",
        "[models.b]\nurl = \"https://h/v1?key=s3cret\"\nmodel = \"m\"",
        "[models.b]\nurl = \"ftp://h/s3cret\"\nmodel = \"m\"",
        "[notify]\nwebhook = \"https://me:s3cret@h/x\"",
        "[notify]\nwebhook = \"ftp://h/?key=s3cret\"",
        "[notify]\nwebhook = \"https://h/s3cret\"\non = [\"sk-s3cret-S3cret-0123456789\"]",
        "[notify]\nwebhook = \"https://h/s3cret\"\ntimeout = \"s3cret\"",
        "[serve]\norigins = \"https://me:s3cret@h\"",
        "[serve]\nlisten = \"s3cret\"",
        "[serve.limits]\nstreams = \"s3cret\"",
        "[retention]\nended = \"s3cret\"",
    ];
    let run = ["run", "notes.yaml", "--request", r#"{"topic":"x"}"#];
    let commands: [&[&str]; 6] = [
        &["doctor", "--offline"],
        &run,
        &["serve", "--listen", "127.0.0.1:0"],
        &["trust"],
        &["check", "notes.yaml", "--config", "patchboard.toml"],
        &["architect", "A task", "-o", "out.yaml"],
    ];
    let sandbox = Sandbox::new();
    for broken in broken {
        sandbox.write("patchboard.toml", format!("{model}{broken}\n"));
        for command in commands {
            for form in ["text", "json"] {
                let ran = sandbox.run(&[command, &["--output", form]].concat());
                let printed = format!("{}{}", ran.stdout, ran.stderr);
                // `trust` shows the file that the user agrees to.
                let is_shown = ran.code == 0 && command[0] == "trust";
                let is_repeated = printed.contains("s3cret") || printed.contains("S3cret");
                assert!(is_shown || !is_repeated, "{command:?} with {broken}: {printed}");
                // A command checks only the syntax of tables that it does not use.
                let is_refused = ran.code == 2 || matches!(command[0], "check" | "run" | "architect" | "trust");
                assert!(is_refused, "{command:?} with {broken}: {printed}");
            }
        }
    }
}

#[test]
fn trust_shows_the_settings_without_possible_secrets() {
    let sandbox = Sandbox::new();
    let text = "[models.default]\nurl = \"https://h/v1\"\nmodel = \"m\"\nheaders = {x = \"s3cret\"}\nquery = {key = \"s3cret\"}\n\
                [commands.c]\nprogram = [\"sh\"]\nenv = {TOKEN = \"s3cret\"}\n[notify]\nwebhook = \"https://hooks.example/s3cret\"\n";
    sandbox.write("patchboard.toml", text);
    for form in ["text", "json"] {
        let stdout = sandbox.run(&["trust", "--output", form]).expect_exit(0).stdout;
        assert!(!stdout.contains("s3cret"), "{stdout}");
        for shown in
            ["models.default.query.key = …", "commands.c.env.TOKEN = …", "https://hooks.example/…", "https://h/v1"]
        {
            assert!(stdout.contains(shown), "{shown} is not in {stdout}");
        }
    }
}

#[test]
fn all_that_a_configuration_does_is_shown_as_it_is() {
    let sandbox = Sandbox::new();
    let long = "x".repeat(1000);
    sandbox.write(
        "patchboard.toml",
        format!(
            "[commands.c]\nprogram = [\"sh\", \"-c\", \"echo ok # \\ntouch {long}; evil\"]\n[retention]\nended = \"1s\"\nthen = \"delete\"\n\
             [serve]\norigins = [\"https://evil.example\"]\n"
        ),
    );
    let stdout = sandbox.run(&["trust"]).expect_exit(0).stdout;
    for shown in [
        "echo ok # \\ntouch x",
        "; evil\"]",
        "retention.then = \"delete\"",
        "serve.origins = [\"https://evil.example\"]",
    ] {
        assert!(stdout.contains(shown), "{shown} is not in {stdout}");
    }
}

#[test]
fn a_configuration_of_a_checkout_is_anothers_even_under_a_name_that_was_agreed_to() {
    let (mine, other) = (Sandbox::new(), Sandbox::new());
    for sandbox in [&mine, &other] {
        sandbox.write("patchboard.toml", found("http://127.0.0.1:9/v1"));
    }
    let home = mine.path().join("home");
    let agreed = plain(&mine, &["trust"]).env("XDG_CONFIG_HOME", &home).status();
    assert!(agreed.is_ok_and(|status| status.success()));
    let doctor = ["doctor", "--offline", "--output", "json"];
    let output = plain(&other, &doctor).env("XDG_CONFIG_HOME", &home).output().expect("the binary can be run");
    assert!(String::from_utf8_lossy(&output.stdout).contains("patchboard trust"));
    let listed = mine.run(&["trust", "--list", "--output", "json"]).expect_exit(0).json();
    assert_eq!(listed["path"], json!(mine.path().canonicalize().expect("a path").join("patchboard.toml")));
}
