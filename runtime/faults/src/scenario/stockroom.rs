//! `blueprints/stockroom.yaml`: six orders of two scarce items, and six orders of a sold-out one.

use std::sync::LazyLock;

use patchboard_kernel::blueprint::Blueprint;
use serde_json::{Value, json};

use super::{Scenario, add, list, replace, shipped, unknown_members};
use crate::random::Random;

static BLUEPRINT: LazyLock<Blueprint> =
    LazyLock::new(|| shipped("stockroom.yaml", include_str!("../../../../blueprints/stockroom.yaml")));

const ITEMS: [&str; 2] = ["lamp", "kettle"];
const SOLD_OUT: &str = "rope";
/// Number of orders of either kind.
const ORDERS: u64 = 6;

pub(super) struct Stockroom;

/// Returns the index of the list element with this value as a member.
fn find(elements: &[Value], member: &str, value: &Value) -> Option<usize> {
    elements.iter().position(|element| element[member] == *value)
}

/// Returns the order that a path belongs to, or else the first open one.
fn order_of(woken: Option<&str>, document: &Value) -> Option<usize> {
    let orders = list(document, "orders");
    let named = woken.and_then(|place| place.strip_prefix("/orders/")?.split('/').next()?.parse::<usize>().ok());
    let is_open = |index: &usize| orders.get(*index).is_some_and(|order| order["status"] == "open");
    named.filter(is_open).or_else(|| (0..orders.len()).find(is_open))
}

impl Scenario for Stockroom {
    fn name(&self) -> &'static str {
        "stockroom"
    }

    fn blueprint(&self) -> &Blueprint {
        &BLUEPRINT
    }

    fn request(&self, random: &mut Random, planted: Option<&str>) -> Value {
        let stock = ITEMS.iter().map(|item| json!({"item": item, "count": 1 + random.below(3)}));
        let stock: Vec<Value> = stock.chain([json!({"item": SOLD_OUT, "count": 0})]).collect();
        let orders = (1..=2 * ORDERS).map(|number| {
            let item = if number <= ORDERS { *random.pick(&ITEMS) } else { SOLD_OUT };
            let mut order = json!({"number": number, "item": item});
            if let Some(text) = planted.filter(|_| number < 3) {
                order["note"] = text.into();
            }
            order
        });
        let orders: Vec<Value> = orders.collect();
        json!({"stock": stock, "orders": orders})
    }

    fn answer(&self, worker: &str, woken: Option<&str>, document: &Value) -> Vec<Value> {
        match worker {
            "receiver" => {
                let shelves = list(&document["request"], "stock")
                    .iter()
                    .map(|stock| add("/shelves/-", json!({"item": stock["item"], "left": stock["count"]})));
                let orders = list(&document["request"], "orders").iter().map(|order| {
                    let mut order = order.clone();
                    order["status"] = "open".into();
                    add("/orders/-", order)
                });
                shelves.chain(orders).collect()
            }
            "clerk" => {
                let Some(index) = order_of(woken, document) else { return Vec::new() };
                let order = &list(document, "orders")[index];
                let shelves = list(document, "shelves");
                let shelf = find(shelves, "item", &order["item"]);
                match shelf.and_then(|shelf| Some((shelf, shelves[shelf]["left"].as_u64().filter(|left| *left > 0)?))) {
                    Some((shelf, left)) => vec![
                        replace(format!("/shelves/{shelf}/left"), left - 1),
                        add("/bookings/-", order["number"].clone()),
                        replace(format!("/orders/{index}/status"), "booked"),
                    ],
                    None => vec![replace(format!("/orders/{index}/status"), "refused")],
                }
            }
            _ => {
                let refused = list(document, "orders").iter().filter(|order| order["status"] == "refused").count();
                vec![add("/report", json!({"booked": list(document, "bookings").len(), "refused": refused}))]
            }
        }
    }

    fn document_errors(&self, document: &Value) -> Vec<String> {
        let mut wrongs = unknown_members(document, &["request", "shelves", "orders", "bookings", "report"]);
        let request = &document["request"];
        let (shelves, orders, bookings) =
            (list(document, "shelves"), list(document, "orders"), list(document, "bookings"));
        for name in ["shelves", "orders", "bookings"] {
            if !document[name].is_array() {
                wrongs.push(format!("/{name} is no list"));
            }
        }
        let items = |wanted: &Value| {
            let of_item = |number: &&Value| {
                find(list(request, "orders"), "number", number)
                    .is_some_and(|index| list(request, "orders")[index]["item"] == *wanted)
            };
            bookings.iter().filter(of_item).count() as u64
        };
        for (index, shelf) in shelves.iter().enumerate() {
            let stock = find(list(request, "stock"), "item", &shelf["item"]);
            let count = stock.and_then(|stock| list(request, "stock")[stock]["count"].as_u64());
            let is_first = find(shelves, "item", &shelf["item"]) == Some(index);
            let left = shelf["left"].as_u64();
            let balances = count.is_some_and(|count| left == count.checked_sub(items(&shelf["item"])));
            if !is_first || !balances || shelf.as_object().is_none_or(|members| members.len() != 2) {
                wrongs.push(format!("/shelves/{index} does not balance"));
            }
        }
        for (index, order) in orders.iter().enumerate() {
            let mut given = order.clone();
            given.as_object_mut().map(|members| members.remove("status"));
            let is_given = list(request, "orders").contains(&given);
            let is_first = find(orders, "number", &order["number"]) == Some(index);
            let is_booked = bookings.contains(&order["number"]);
            let is_gone = find(shelves, "item", &order["item"]).is_none_or(|shelf| shelves[shelf]["left"] == 0);
            let fits = match order["status"].as_str() {
                Some("booked") => is_booked,
                Some("refused") => !is_booked && is_gone,
                Some("open") => !is_booked,
                _ => false,
            };
            if !is_given || !is_first || !fits {
                wrongs.push(format!("/orders/{index} is not what was ordered, or not what became of it"));
            }
        }
        for (index, number) in bookings.iter().enumerate() {
            if bookings[..index].contains(number) || find(orders, "number", number).is_none() {
                wrongs.push(format!("/bookings/{index} is no order, or booked twice"));
            }
        }
        if let Some(report) = document.get("report") {
            let refused = orders.iter().filter(|order| order["status"] == "refused").count();
            if *report != json!({"booked": bookings.len(), "refused": refused}) {
                wrongs.push("/report counts something else".to_owned());
            }
        }
        wrongs
    }

    fn permanent_entries(&self, document: &Value) -> Vec<String> {
        let all = |name: &'static str, member: &'static str| {
            list(document, name).iter().map(move |one| format!("{name}: {}", one.get(member).unwrap_or(one)))
        };
        all("shelves", "item").chain(all("orders", "number")).chain(all("bookings", "")).collect()
    }

    fn has_concurrent_writers(&self, worker: &str) -> bool {
        worker == "clerk"
    }

    fn split_off_later(&self, worker: &str, ops: &mut Vec<Value>) -> Vec<Value> {
        if worker != "receiver" {
            return Vec::new();
        }
        // Orders for scarce items arrive later; orders for the sold-out item are present from the beginning.
        let is_late =
            |op: &Value| op["path"] == "/orders/-" && op["value"]["number"].as_u64().is_some_and(|n| n < ORDERS);
        ops.extract_if(.., |op| is_late(op)).collect()
    }

    fn is_done(&self, document: &Value) -> bool {
        let orders = list(document, "orders");
        orders.len() == list(&document["request"], "orders").len()
            && orders.iter().all(|order| order["status"] != "open")
            && document.get("report").is_some()
            && self.document_errors(document).is_empty()
    }

    fn unauthorized_write(&self, worker: &str, document: &Value, random: &mut Random) -> Vec<Value> {
        let number = list(&document["request"], "orders").len() as u64;
        let report = add("/report", json!({"booked": 40, "refused": 0}));
        let all = match worker {
            "receiver" => vec![
                report,
                add("/bookings/-", 1),
                // A value that its grant does not allow.
                add("/orders/-", json!({"number": 1, "item": "crown", "status": "booked"})),
                replace("/request/stock/0/count", 900),
                json!({"op": "remove", "path": "/request/orders/0"}),
            ],
            "clerk" => vec![
                report,
                add("/shelves/-", json!({"item": "crown", "left": 9})),
                replace("/orders/0/item", "crown"),
                json!({"op": "remove", "path": "/orders/0"}),
                replace("/request/stock/0/count", 900),
            ],
            _ => vec![
                replace("/shelves/0/left", 99),
                add("/bookings/-", number + 7),
                replace("/orders/0/status", "open"),
                json!({"op": "remove", "path": "/bookings/0"}),
            ],
        };
        vec![random.pick(&all).clone()]
    }

    fn false_claim(&self, worker: &str, document: &Value, random: &mut Random) -> Option<Vec<Value>> {
        Some(match worker {
            // A stock that is too high, or an order that was never placed.
            "receiver" if random.percent(50) => vec![add("/shelves/-", json!({"item": "lamp", "left": 500}))],
            "receiver" => vec![add("/orders/-", json!({"number": 99, "item": "crown", "status": "open"}))],
            "clerk" => {
                let orders = list(document, "orders");
                let open = orders.iter().position(|order| order["status"] == "open")?;
                let shelf = find(list(document, "shelves"), "item", &orders[open]["item"]);
                let is_left = shelf.is_some_and(|shelf| document["shelves"][shelf]["left"] != 0);
                match random.below(3) {
                    // Booked without taking it off the shelf.
                    0 => vec![
                        add("/bookings/-", orders[open]["number"].clone()),
                        replace(format!("/orders/{open}/status"), "booked"),
                    ],
                    // Refused although the item is available.
                    1 if is_left => vec![replace(format!("/orders/{open}/status"), "refused")],
                    // Taken off the shelf without a booking.
                    _ => vec![replace(format!("/shelves/{}/left", shelf.filter(|_| is_left)?), 0)],
                }
            }
            _ => vec![add("/report", json!({"booked": 0, "refused": 0}))],
        })
    }

    fn can_cycle(&self, worker: &str) -> bool {
        worker == "clerk"
    }

    fn cycle_step(&self, _: &str, document: &Value, length: usize, nth: usize) -> Option<Vec<Value>> {
        // Opens one order for the sold-out item and refuses the next, repeatedly; the state repeats after `length`
        // steps.
        let place = |nth: usize| {
            let number = json!(2 * ORDERS - (nth % length) as u64);
            Some(format!("/orders/{}/status", find(list(document, "orders"), "number", &number)?))
        };
        let refuse = replace(place(nth)?, "refused");
        match nth.checked_sub(1) {
            Some(before) => Some(vec![replace(place(before)?, "open"), refuse]),
            None => Some(vec![refuse]),
        }
    }
}
