//! What the open pages are told: all that is known, and then what changes. All of them share one look.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{Notify, broadcast};

use super::look::Look;

/// The messages that a page may be late by. One that is later gets all again.
const LATE: usize = 16;

/// A message to a page: an object in one line.
pub type Message = Arc<str>;

#[derive(Debug)]
pub struct Live {
    look: Mutex<Look>,
    messages: broadcast::Sender<Message>,
    opened: Notify,
}

impl Live {
    pub fn new(look: Look) -> Self {
        Self { look: Mutex::new(look), messages: broadcast::channel(LATE).0, opened: Notify::new() }
    }

    /// Returns all that is known, and the messages about what changes from there.
    pub fn open(&self) -> (Message, broadcast::Receiver<Message>) {
        let look = self.look.lock();
        let opened = (message(&Look::default(), &look, true), self.messages.subscribe());
        drop(look);
        self.opened.notify_one();
        opened
    }

    /// Waits until a page is open.
    pub async fn watched(&self) {
        while self.messages.receiver_count() == 0 {
            self.opened.notified().await;
        }
    }

    /// Tells the pages what has changed. They are told, too, if nothing has.
    pub fn show(&self, look: Look) {
        let mut known = self.look.lock();
        let changes = message(&known, &look, false);
        *known = look;
        // no page may be open
        let _ = self.messages.send(changes);
    }

    /// Tells the pages that the cluster can't be read.
    pub fn fail(&self, error: &str) {
        let _ = self.messages.send(json!({"error": error}).to_string().into());
    }

    /// Returns the row of a workload, as the last look has it.
    pub fn row(&self, id: &str) -> Option<Value> {
        self.look.lock().rows.get(id).cloned()
    }
}

/// The rows and parts that differ. Those that are gone are null.
fn message(before: &Look, after: &Look, is_all: bool) -> Message {
    let rows = changes(&before.rows, &after.rows);
    let parts = changes(&before.parts, &after.parts);
    json!({"now": after.now, "all": is_all, "rows": rows, "parts": parts}).to_string().into()
}

fn changes<'v, K: Ord>(
    before: &'v BTreeMap<K, Value>,
    after: &'v BTreeMap<K, Value>,
) -> BTreeMap<&'v K, &'v Value>
where
    &'v K: Ord,
{
    let names: BTreeSet<&K> = before.keys().chain(after.keys()).collect();
    let changed = names.into_iter().filter(|name| before.get(name) != after.get(name));
    changed.map(|name| (name, after.get(name).unwrap_or(&Value::Null))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(rows: &[(&str, u32)]) -> Look {
        let rows = rows.iter().map(|(id, value)| ((*id).to_owned(), json!(value)));
        Look { rows: rows.collect(), ..Look::default() }
    }

    fn read(message: &Message) -> Value {
        serde_json::from_str(message).unwrap()
    }

    #[tokio::test]
    async fn a_page_is_told_all_and_then_the_rows_that_change() {
        let live = Live::new(look(&[("a", 1), ("b", 2)]));
        let (all, mut messages) = live.open();
        assert_eq!((&read(&all)["rows"], &read(&all)["all"]), (&json!({"a": 1, "b": 2}), &json!(true)));
        live.show(look(&[("a", 1), ("c", 3)]));
        let changed = read(&messages.recv().await.unwrap());
        assert_eq!((&changed["rows"], &changed["all"]), (&json!({"b": null, "c": 3}), &json!(false)));
        live.fail("away");
        assert_eq!(read(&messages.recv().await.unwrap()), json!({"error": "away"}));
        assert_eq!((live.row("c"), live.row("b")), (Some(json!(3)), None));
    }

    #[tokio::test]
    async fn nothing_is_read_while_no_page_is_open() {
        let live = Live::new(look(&[]));
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), live.watched());
        assert!(waits.await.is_err());
        let (_, open) = live.open();
        live.watched().await;
        drop(open);
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), live.watched());
        assert!(waits.await.is_err());
    }
}
