//! Starter blueprints, and the files that belong to them.

/// File of a template: its path below the directory, and its text.
pub(crate) type File = (&'static str, &'static str);

/// Starter blueprint. Each runs unchanged, from its scripts and with a model.
pub(crate) struct Template {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) files: &'static [File],
    /// Name of the workspace that a run needs, also of its directory.
    pub(crate) workspace: Option<&'static str>,
}

macro_rules! files {
    ($template:literal: $($path:literal),+) => {
        &[$(($path, include_str!(concat!("../../blueprints/templates/", $template, "/", $path)))),+]
    };
}

/// Templates; the first is the default.
pub(crate) const ALL: [Template; 5] = [
    Template {
        name: "map-review",
        about: "Each document is read and checked by workers of its own, and a report is written of what was found right.",
        files: files!("map-review": "blueprint.yaml", "request.json"),
        workspace: None,
    },
    Template {
        name: "pipeline",
        about: "A message is classified, answered and reviewed; what the review refuses is done again.",
        files: files!("pipeline": "blueprint.yaml", "request.json"),
        workspace: None,
    },
    Template {
        name: "supervisor",
        about: "A supervisor splits a task among specialists, and an editor puts their results together.",
        files: files!("supervisor": "blueprint.yaml", "request.json"),
        workspace: None,
    },
    Template {
        name: "approval",
        about: "Nothing is published before a person has agreed.",
        files: files!("approval": "blueprint.yaml", "request.json"),
        workspace: None,
    },
    Template {
        name: "workspace",
        about: "Engineers change the files of one directory at the same time.",
        files: files!("workspace": "blueprint.yaml", "request.json", "code/lamp.py"),
        workspace: Some("code"),
    },
];
