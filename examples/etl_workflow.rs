//! Plays `blueprints/etl.yaml` with workers written in Rust: orders are parsed, cleaned, counted and reported. Each
//! node uses the results of the nodes before it.
//!
//! The workflow (`builtin:workflow`, docs/workflows.md) selects the next node, prepares its input and stores its
//! output.
//!
//! `cargo run --package patchboard-examples --bin etl_workflow`

use std::error::Error;
use std::path::Path;

use patchboard_examples::custom_agents::{play, view_value};
use patchboard_runtime::agent::Call;
use serde_json::{Value, json};

/// Content of the file of orders. One line is invalid.
const ORDERS: &str = "Apples, 3\npears, 0\n quinces ,2\nplums, many\nApples, 4\n";

/// Returns the output of a node for its input.
fn output(worker: &str, input: &Value) -> Option<Value> {
    let rows = || input["rows"].as_array().into_iter().flatten();
    let count = |row: &Value| row["count"].as_u64().unwrap_or_default();
    Some(match worker {
        "parser" => {
            let row = |line: &str| {
                let (item, count) = line.split_once(',')?;
                Some(json!({"item": item, "count": count.trim().parse::<u64>().ok()?}))
            };
            let read: Vec<Option<Value>> = ORDERS.lines().map(row).collect();
            let unreadable = read.iter().filter(|row| row.is_none()).count();
            json!({"rows": read.into_iter().flatten().collect::<Vec<_>>(), "unreadable": unreadable})
        }
        "cleaner" => {
            let clean = |row: &Value| {
                let item = row["item"].as_str()?.trim().to_lowercase();
                (count(row) > 0).then(|| json!({"item": item, "count": count(row)}))
            };
            json!({"rows": rows().filter_map(clean).collect::<Vec<_>>()})
        }
        "counter" => json!({"total": rows().map(count).sum::<u64>()}),
        "inspector" => json!({"finding": format!("{} lines cannot be read", input["lines"])}),
        "writer" => {
            let orders = input["orders"].as_array().into_iter().flatten();
            let each: Vec<String> =
                orders.map(|row| format!("{} {}", row["count"], row["item"].as_str().unwrap_or_default())).collect();
            json!({"text": format!("{} pieces in {} orders: {}.", input["total"], each.len(), each.join(", "))})
        }
        _ => return None,
    })
}

/// Returns the reply of a node's worker for its input.
fn worker(call: &Call) -> Option<Value> {
    let input = call.context.trigger_place()?.strip_suffix("/input")?;
    let made = output(call.worker.as_str(), &view_value(call, &format!("{input}/input")))?;
    Some(json!([{"op": "add", "path": format!("{input}/output"), "value": made}]))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../blueprints/etl.yaml");
    let played = play(&path, json!({}), worker).await?;
    let workflow = &played.state["workflow"];
    for (id, node) in workflow["nodes"].as_object().into_iter().flatten() {
        println!("{id}: {}", node["status"].as_str().unwrap_or_default());
    }
    println!("{}", workflow["data"]["report"].as_str().unwrap_or_default());
    println!("{} at version {}, {} records verified", played.end, played.version, played.records);
    Ok(())
}
