//! The messages to open pages: first all that is known, then the changes. All pages share one read
//! of the cluster.
//!
//! `ui` calls [`Live::show`] after each read; the server calls [`Live::open`] for each page. A page
//! that misses messages gets everything again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, broadcast},
    time::Instant,
};

use super::content::PageLook;

/// The number of messages by which a page may be late. A page that is later gets everything again.
const LATE: usize = 16;

/// A message to a page: an object in one line.
pub type PageMessage = Arc<str>;

/// The last read, and the pages that follow it.
#[derive(Debug)]
pub struct Live {
    seen: Mutex<LastLook>,
    messages: broadcast::Sender<PageMessage>,
    opened: Notify,
}

#[derive(Debug)]
struct LastLook {
    content: PageLook,
    at: Instant,
    /// The longest time until the next read, unless the next read takes longer than this one.
    every: Duration,
    /// The reason why the reads since then have failed. None: none has failed.
    error: Option<String>,
}

impl LastLook {
    /// Returns a message about what differs from an earlier read, with the age of this one.
    /// `is_all`: the page forgets all that it knows.
    fn message(&self, before: &PageLook, is_all: bool) -> PageMessage {
        let Self { content, at, every, error } = self;
        let (rows, parts) = (changes(&before.rows, &content.rows), changes(&before.parts, &content.parts));
        let [age, every] =
            [at.elapsed(), *every].map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let message = json!({
            "now": content.now, "age": age, "every": every, "error": error, "all": is_all, "rows": rows, "parts": parts,
        });
        message.to_string().into()
    }
}

impl Live {
    /// Returns the state after the first read.
    pub fn new(content: PageLook) -> Self {
        let seen = LastLook { content, at: Instant::now(), every: Duration::ZERO, error: None };
        Self { seen: Mutex::new(seen), messages: broadcast::channel(LATE).0, opened: Notify::new() }
    }

    /// Returns a message with all that is known, and the messages about changes from there on.
    pub fn open(&self) -> (PageMessage, broadcast::Receiver<PageMessage>) {
        let seen = self.seen.lock();
        let opened = (seen.message(&PageLook::default(), true), self.messages.subscribe());
        drop(seen);
        self.opened.notify_one();
        opened
    }

    pub async fn watched(&self) {
        while self.messages.receiver_count() == 0 {
            self.opened.notified().await;
        }
    }

    /// Sends the changes to the pages, even if there are none: the pages then know that the read is
    /// recent.
    pub fn show(&self, content: PageLook, every: Duration) {
        let mut seen = self.seen.lock();
        let before =
            std::mem::replace(&mut *seen, LastLook { content, at: Instant::now(), every, error: None });
        // an error means that no page is open
        let _ = self.messages.send(seen.message(&before.content, false));
    }

    pub fn fail(&self, error: &str) {
        let mut seen = self.seen.lock();
        seen.error = Some(error.to_owned());
        let _ = self.messages.send(seen.message(&seen.content, false));
    }

    /// Returns the row of a workload, as the last read has it. None: the workload is gone.
    pub fn row(&self, id: &str) -> Option<Value> {
        self.seen.lock().content.rows.get(id).cloned()
    }
}

/// Returns the entries that differ. An entry that is gone is null.
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
    use tokio::time::timeout;

    use super::*;

    fn content(rows: &[(&str, u32)]) -> PageLook {
        let rows = rows.iter().map(|(id, value)| ((*id).to_owned(), json!(value)));
        PageLook { rows: rows.collect(), ..PageLook::default() }
    }

    fn read(message: &PageMessage) -> Value {
        serde_json::from_str(message).unwrap()
    }

    #[tokio::test]
    async fn a_page_is_sent_all_and_then_the_rows_that_change() {
        let live = Live::new(content(&[("a", 1), ("b", 2)]));
        let (all, mut messages) = live.open();
        assert_eq!((&read(&all)["rows"], &read(&all)["all"]), (&json!({"a": 1, "b": 2}), &json!(true)));
        live.show(content(&[("a", 1), ("c", 3)]), Duration::from_secs(1));
        let changed = read(&messages.recv().await.unwrap());
        assert_eq!((&changed["rows"], &changed["all"]), (&json!({"b": null, "c": 3}), &json!(false)));
        live.fail("away");
        let failed = read(&messages.recv().await.unwrap());
        assert_eq!((&failed["error"], &failed["rows"]), (&json!("away"), &json!({})));
        assert_eq!(read(&live.open().0)["error"], json!("away"), "a page that opens later is told, too");
        assert_eq!((live.row("c"), live.row("b")), (Some(json!(3)), None));
    }

    #[tokio::test]
    async fn nothing_is_read_while_no_page_is_open() {
        let live = Live::new(content(&[]));
        let waits = timeout(Duration::from_millis(20), live.watched());
        assert!(waits.await.is_err());
        let (_, open) = live.open();
        live.watched().await;
        drop(open);
        let waits = timeout(Duration::from_millis(20), live.watched());
        assert!(waits.await.is_err());
    }
}
