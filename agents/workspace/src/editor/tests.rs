//! Tools, their arguments and descriptions, in each manner of editing.

use super::*;

fn tools(said: Value) -> Vec<(EditorTool, ToolDefinition)> {
    tools_in(EditConcurrency::Checked, said)
}

fn tools_in(manner: EditConcurrency, said: Value) -> Vec<(EditorTool, ToolDefinition)> {
    definitions("ada", &serde_json::from_value(said).expect("a workspace"), true, manner)
}

#[test]
fn nothing_is_promised_that_is_not_so_in_the_manner_of_editing() {
    for (isolation, has_tree, manner, promises, is_signed, has_authors) in [
        ("storm", false, EditConcurrency::Checked, true, true, true),
        ("soft", false, EditConcurrency::Unchecked, false, true, true),
        // The agent that merges works in the shared directory.
        ("worktree", false, EditConcurrency::Unchecked, false, true, true),
        ("worktree", true, EditConcurrency::OwnTree, false, false, false),
    ] {
        let spec = json!({"dir": "code", "isolation": isolation});
        let workspace = serde_json::from_value(spec.clone()).expect("a workspace");
        assert_eq!(EditConcurrency::from_spec(&workspace, has_tree), manner);
        for (tool, ToolDefinition { description, parameters, .. }) in tools_in(manner, spec) {
            let promise = description.contains("counts as read") || description.contains("refused");
            assert_eq!(promise, promises && tool.name != "list", "{isolation}: {description}");
            assert_eq!(description.contains("You are `ada`"), is_signed && tool.is_edit(), "{description}");
            assert_eq!(parameters["properties"]["intent"].is_object(), is_signed && tool.is_edit(), "{parameters}");
            assert_eq!(
                description.contains("who changed"),
                has_authors && matches!(tool.name, "view" | "list"),
                "{description}"
            );
        }
    }
}

#[test]
fn every_command_is_a_tool_and_takes_what_the_command_takes() {
    let of_all = schema();
    let commands = of_all["properties"]["command"]["enum"].as_array().expect("a list");
    let commands: Vec<&str> = commands.iter().filter_map(Value::as_str).collect();
    assert_eq!(commands, ALL.map(|tool| tool.name));
    let mut described: Map<String, Value> = Map::new();
    for (tool, ToolDefinition { description, parameters, .. }) in tools(json!({"dir": "code"})) {
        let properties = parameters["properties"].as_object().expect("an object");
        let is_one_line = |argument: &Value| argument["description"].as_str().is_some_and(|text| !text.contains('\n'));
        assert!(properties.values().all(is_one_line), "{parameters}");
        let path = properties["path"]["description"].as_str().expect("a text");
        assert_eq!(path.contains("if absent"), matches!(tool.name, "list" | "search"), "{path}");
        described.extend(properties.clone());
        assert_eq!(properties.contains_key("intent"), tool.is_edit());
        assert_eq!(description.starts_with("EVERY EDIT NEEDS AN `intent`"), tool.is_edit(), "{description}");
        assert_eq!(description.contains("You are `ada`"), tool.is_edit());
        let required = parameters["required"].as_array().expect("a list");
        assert_eq!(required.contains(&json!("intent")), tool.is_edit());
    }
    // Every argument is described except `command`, which the tool's name replaces.
    assert_eq!(described.len() + 1, of_all["properties"].as_object().expect("an object").len());
    let range = &described["view_range"]["description"];
    assert!(range.as_str().is_some_and(|text| text.starts_with("The first")), "{range}");
}

#[test]
fn tool_descriptions_state_whether_an_intent_is_required() {
    for (intent, annotate) in [("required", true), ("required", false), ("optional", true), ("optional", false)] {
        for (tool, said) in tools(json!({"dir": "code", "intent": intent, "annotate": annotate})) {
            if !tool.is_edit() {
                assert!(!said.description.contains("`intent`"), "{}", said.description);
                continue;
            }
            let is_required = said.parameters["required"].as_array().expect("a list").contains(&json!("intent"));
            assert_eq!(is_required, intent == "required");
            let begins = if is_required { "EVERY EDIT NEEDS AN `intent`: " } else { "Give each edit an `intent`: " };
            assert!(said.description.starts_with(begins), "{}", said.description);
            assert_eq!(said.description.contains("like `# ada: "), annotate, "{}", said.description);
            assert_eq!(said.description.contains("do not write it into the file"), !annotate, "{}", said.description);
            let described = said.parameters["properties"]["intent"].to_string();
            assert!(!described.contains("needs"), "{described}");
        }
    }
}

#[test]
fn a_tool_does_what_its_name_says_whatever_its_arguments_say() {
    let given = json!({"command": "delete", "path": "a"});
    let Value::Object(given) = given else { unreachable!("it is written as an object") };
    assert_eq!(arguments("view", given.clone()), Some(json!({"command": "view", "path": "a"})));
    assert_eq!(arguments("undo_edit", given), None);
}
