//! Minimal cases of the read set: a read stays in the read set until the agent is shown the current content of its
//! place.

use patchboard_workshop::Workshop;
use patchboard_workspace::session::{CommandResult, Session};
use serde_json::{Value, json};

use super::sessions::in_memory;

/// Opens a workshop with two agents, a long file and a short one.
async fn two(spec: &Value) -> (Workshop, Session, Session) {
    in_memory();
    let lines: String = (1..=600).map(|at| format!("line {at};\n")).collect();
    let mut all = json!({"annotate": false});
    all.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    let shop = Workshop::open(2, &all, &[("a.txt", &lines), ("b.txt", "one\n"), ("empty.txt", "")]).await;
    let (ada, bob) = (shop.session(0), shop.session(1));
    (shop, ada, bob)
}

async fn view(session: &mut Session, path: &str, range: Option<(u32, u32)>) -> CommandResult {
    let mut arguments = json!({"command": "view", "path": path});
    if let Some((first, last)) = range {
        arguments["view_range"] = json!([first, last]);
    }
    session.call(arguments).await
}

/// Changes a line of the long file.
async fn change(session: &mut Session, line: u32) {
    view(session, "a.txt", Some((line, line))).await;
    let arguments = json!({
        "command": "str_replace", "path": "a.txt", "old_str": format!("line {line};"), "new_str": format!("new {line};"),
        "intent": "another line",
    });
    let result = session.call(arguments).await;
    assert_eq!(result.code, None, "{}", result.text);
}

/// Edits the other file, with all earlier reads in the read set.
async fn edit(session: &mut Session) -> Option<String> {
    let arguments =
        json!({"command": "insert", "path": "b.txt", "insert_line": 1, "insert_text": "two\n", "intent": "more"});
    session.call(arguments).await.code
}

#[tokio::test]
async fn a_view_of_other_lines_does_not_make_up_for_what_has_changed() {
    for elsewhere in [Some((1, 2)), Some((700, 710))] {
        let (_shop, mut ada, mut bob) = two(&json!({})).await;
        view(&mut ada, "a.txt", None).await;
        view(&mut ada, "b.txt", None).await;
        change(&mut bob, 100).await;
        view(&mut ada, "a.txt", elsewhere).await;
        assert_eq!(edit(&mut ada).await.as_deref(), Some("stale_read"), "line 100 was not shown again: {elsewhere:?}");
    }
}

#[tokio::test]
async fn a_view_of_the_place_makes_up_for_what_has_changed() {
    for there in [Some((100, 100)), Some((90, 110)), None] {
        let (_shop, mut ada, mut bob) = two(&json!({})).await;
        view(&mut ada, "a.txt", Some((100, 100))).await;
        view(&mut ada, "b.txt", None).await;
        change(&mut bob, 100).await;
        view(&mut ada, "a.txt", there).await;
        assert_eq!(edit(&mut ada).await, None, "line 100 was shown again: {there:?}");
    }
}

#[tokio::test]
async fn a_rejection_keeps_reads_of_other_versions() {
    for presentation in ["full", "diff", "brief"] {
        let (_shop, mut ada, mut bob) = two(&json!({"presentation": presentation})).await;
        view(&mut ada, "b.txt", None).await;
        view(&mut ada, "a.txt", Some((1, 5))).await;
        change(&mut bob, 300).await;
        view(&mut ada, "a.txt", Some((500, 560))).await;
        change(&mut bob, 3).await;
        change(&mut bob, 501).await;
        assert_eq!(edit(&mut ada).await.as_deref(), Some("stale_read"), "{presentation}");
        change(&mut bob, 550).await;
        assert_eq!(edit(&mut ada).await.as_deref(), Some("stale_read"), "line 550 was shown once: {presentation}");
    }
}

#[tokio::test]
async fn an_author_with_nothing_left_to_view_can_retry() {
    for presentation in ["full", "diff", "brief"] {
        let filled = ("empty.txt", None, "a\nb\n");
        let (emptied, taken_away) = (("a.txt", None, ""), ("a.txt", Some((10, 10)), "line 9;\nline 11;\n"));
        for (path, range, then) in [filled, emptied, taken_away] {
            let (shop, mut ada, _) = two(&json!({"presentation": presentation})).await;
            view(&mut ada, "b.txt", None).await;
            view(&mut ada, path, range).await;
            std::fs::write(shop.directory.path().join(path), then).expect("written");
            let arguments =
                json!({"command": "insert", "path": "b.txt", "insert_line": 1, "insert_text": "x\n", "intent": "more"});
            let result = ada.call(arguments).await;
            assert_eq!(result.code.as_deref(), Some("stale_read"), "{}", result.text);
            if result.data["stale"][0]["view_again"] == true {
                view(&mut ada, path, None).await;
            }
            let case = format!("{presentation}, {path} {range:?} to {then:?}: {}", result.text);
            assert_eq!(edit(&mut ada).await, None, "{case}");
        }
    }
}
