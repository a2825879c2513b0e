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

macro_rules! templates {
    ($($name:literal $(with $workspace:literal)?: $about:literal, $($path:literal),+;)+) => {
        [$(Template {
            name: $name,
            about: $about,
            files: &[$(($path, include_str!(concat!("../../blueprints/templates/", $name, "/", $path)))),+],
            workspace: templates!(@workspace $($workspace)?),
        }),+]
    };
    (@workspace) => { None };
    (@workspace $name:literal) => { Some($name) };
}

/// Templates; the first is the default.
pub(crate) const ALL: [Template; 5] = templates! {
    "map-review":
        "Each document is read and checked by workers of its own, and a report is written from the confirmed findings.",
        "blueprint.yaml", "request.json";
    "pipeline": "A message is classified, answered and reviewed; rejected drafts are written again.",
        "blueprint.yaml", "request.json";
    "supervisor": "A supervisor splits a task among specialists, and an editor puts their results together.",
        "blueprint.yaml", "request.json";
    "approval": "Nothing is published before a person has agreed.", "blueprint.yaml", "request.json";
    "workspace" with "code": "Engineers change the files of one directory at the same time.",
        "blueprint.yaml", "request.json", "code/lamp.py";
};
