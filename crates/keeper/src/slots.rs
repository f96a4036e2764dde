//! Slots for calls that may hang, shared by namespaces.
//!
//! A call that is slow shows that something answers badly for its namespace, such as an admission webhook that hangs.
//! The namespace is then in trouble for a while: it shares slots with other namespaces in trouble, and takes none of
//! the slots of the rest.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

/// The most calls that are under way at the same time for namespaces without trouble, and as many for the others. The
/// limiter sets the rate; this only hides latency.
pub const SLOTS: usize = 16;

/// The most calls that are under way for one namespace.
const PER_NAMESPACE: usize = 8;

/// The time after which a call is slow.
const PROMPT: Duration = Duration::from_secs(1);

/// More namespaces are remembered only while they are in trouble.
const MOST_SHARES: usize = 128;

/// The time for which a namespace counts as in trouble after a slow or failed call.
const TROUBLE: Duration = Duration::from_mins(1);

/// Slots for calls. Clones share them.
#[derive(Clone, Debug)]
pub struct FairSlots {
    taken: Arc<Mutex<Taken>>,
    changed: Arc<Notify>,
    prompt: Duration,
}

impl Default for FairSlots {
    fn default() -> Self {
        Self::new(SLOTS, PER_NAMESPACE, Duration::ZERO)
    }
}

#[derive(Debug)]
struct Taken {
    /// The most for namespaces without trouble, and as many for the others.
    slots: usize,
    per_namespace: usize,
    shares: HashMap<String, Share>,
    /// The lines that have a call under way which isn't slow.
    lines: HashSet<String>,
    /// The slots that are taken by namespaces without trouble.
    fine: usize,
    /// The slots that are taken by namespaces in trouble.
    troubled: usize,
}

#[derive(Debug, Default)]
struct Share {
    taken: usize,
    troubled_until: Option<Instant>,
}

/// A slot that is taken, until this is dropped.
#[derive(Debug)]
pub struct TakenSlot {
    slots: FairSlots,
    namespace: String,
    /// The line, until the call is slow.
    line: Mutex<Option<String>>,
}

impl FairSlots {
    /// So many slots, of which one namespace may take `per_namespace`. A call of which `waiting` is a part may last so much
    /// longer before it is slow.
    pub fn new(slots: usize, per_namespace: usize, waiting: Duration) -> Self {
        let (shares, lines, fine, troubled) = Default::default();
        let taken = Taken { slots, per_namespace, shares, lines, fine, troubled };
        let prompt = PROMPT.saturating_add(waiting);
        Self { taken: Arc::new(Mutex::new(taken)), changed: Arc::default(), prompt }
    }

    /// True if the calls of a namespace were slow of late, or have failed.
    #[cfg(test)]
    fn is_troubled(&self, namespace: &str) -> bool {
        self.taken.lock().is_troubled(namespace)
    }

    /// Takes a slot for a call in a namespace; none if there is none for it now.
    pub fn take(&self, namespace: &str) -> Option<TakenSlot> {
        self.take_in_line(namespace, None)
    }

    /// Takes a slot for a call in a line that is served in order: the next call of a line begins when the one before has
    /// ended, or is slow. A namespace in trouble holds up no line, and waits for none.
    pub fn take_in_line(&self, namespace: &str, line: Option<&str>) -> Option<TakenSlot> {
        let mut taken = self.taken.lock();
        let line = line.filter(|_| !taken.is_troubled(namespace));
        if line.is_some_and(|line| taken.lines.contains(line)) || !taken.begin(namespace) {
            return None;
        }
        let line = line.map(str::to_owned);
        taken.lines.extend(line.clone());
        drop(taken);
        Some(TakenSlot { slots: self.clone(), namespace: namespace.to_owned(), line: Mutex::new(line) })
    }

    /// Returns when a slot was given back, or a call has turned out to be slow.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Taken {
    /// True if a namespace is in trouble: at the end of the time, until its last call has ended.
    fn is_troubled(&self, namespace: &str) -> bool {
        let now = Instant::now();
        let is_troubled =
            |share: &Share| share.troubled_until.is_some_and(|until| share.taken > 0 || until > now);
        self.shares.get(namespace).is_some_and(is_troubled)
    }

    fn begin(&mut self, namespace: &str) -> bool {
        let is_troubled = self.is_troubled(namespace);
        let Self { slots, per_namespace, shares, fine, troubled, .. } = self;
        let pool = if is_troubled { troubled } else { fine };
        if *pool >= *slots || shares.get(namespace).is_some_and(|share| share.taken >= *per_namespace) {
            return false;
        }
        *pool = pool.saturating_add(1);
        let share = shares.entry(namespace.to_owned()).or_default();
        share.taken = share.taken.saturating_add(1);
        share.troubled_until = share.troubled_until.filter(|_| is_troubled);
        true
    }

    fn trouble(&mut self, namespace: &str) {
        let Self { shares, fine, troubled, .. } = self;
        let Some(share) = shares.get_mut(namespace) else { return };
        if share.troubled_until.replace(Instant::now() + TROUBLE).is_none() {
            *fine = fine.saturating_sub(share.taken);
            *troubled = troubled.saturating_add(share.taken);
        }
    }

    fn end(&mut self, namespace: &str) {
        let Self { shares, fine, troubled, .. } = self;
        let Some(share) = shares.get_mut(namespace) else { return };
        share.taken = share.taken.saturating_sub(1);
        let pool = if share.troubled_until.is_some() { troubled } else { fine };
        *pool = pool.saturating_sub(1);
        let now = Instant::now();
        let is_kept =
            |share: &Share| share.taken > 0 || share.troubled_until.is_some_and(|until| until > now);
        if !is_kept(share) {
            shares.remove(namespace);
        }
        // the rest were in trouble, and had no call since
        if shares.len() > MOST_SHARES {
            shares.retain(|_, share| is_kept(share));
        }
    }
}

impl TakenSlot {
    /// Waits for a call. If it is slow, the namespace is in trouble from then on, and the line goes on without it.
    pub async fn watch<T>(&self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        tokio::select! {
            biased;
            result = &mut call => return result,
            () = sleep(self.slots.prompt) => self.trouble(),
        }
        call.await
    }

    /// The namespace is in trouble: a call was slow, or failed in a way that makes other calls fail.
    pub fn trouble(&self) {
        let mut taken = self.slots.taken.lock();
        taken.trouble(&self.namespace);
        self.leave_line(&mut taken);
        drop(taken);
        self.slots.changed.notify_one();
    }

    fn leave_line(&self, taken: &mut Taken) {
        if let Some(line) = self.line.lock().take() {
            taken.lines.remove(&line);
        }
    }
}

impl Drop for TakenSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock();
        taken.end(&self.namespace);
        self.leave_line(&mut taken);
        drop(taken);
        self.slots.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(slots: &FairSlots, namespace: &str) -> Vec<TakenSlot> {
        std::iter::from_fn(|| slots.take(namespace)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_leaves_slots_for_others_and_all_together_are_bounded() {
        let slots = FairSlots::default();
        let held = [take_all(&slots, "a"), take_all(&slots, "b"), take_all(&slots, "c")];
        assert_eq!(held.each_ref().map(Vec::len), [PER_NAMESPACE, SLOTS - PER_NAMESPACE, 0]);
        drop(held);
        assert_eq!(take_all(&slots, "c").len(), PER_NAMESPACE);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_hang_take_no_slots_of_other_namespaces() {
        let slots = FairSlots::default();
        let hanging: Vec<TakenSlot> = ["a", "b"].iter().flat_map(|name| take_all(&slots, name)).collect();
        assert!(slots.take("c").is_none());
        let watch = hanging.iter().map(|slot| slot.watch(std::future::pending::<()>()));
        let hang = tokio::time::timeout(PROMPT * 2, futures::future::join_all(watch));
        assert!(hang.await.is_err());
        slots.changed().await;
        assert_eq!(take_all(&slots, "c").len(), PER_NAMESPACE);
        assert!(slots.take("a").is_none(), "those in trouble share the other slots");
        drop(hanging);
        let mut troubled = take_all(&slots, "a");
        troubled.extend(take_all(&slots, "b"));
        assert_eq!((troubled.len(), take_all(&slots, "c").len()), (SLOTS, PER_NAMESPACE));
        drop(troubled);
        tokio::time::advance(TROUBLE).await;
        let fine = [take_all(&slots, "a"), take_all(&slots, "b")].map(|held| held.len());
        assert_eq!(fine, [PER_NAMESPACE; 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_is_served_in_order_unless_a_call_is_slow() {
        let (slots, line) = (FairSlots::default(), || Some("queue"));
        let first = slots.take_in_line("a", line()).unwrap();
        assert!(slots.take_in_line("b", line()).is_none() && slots.take_in_line("b", None).is_some());
        assert!(tokio::time::timeout(PROMPT * 2, first.watch(std::future::pending::<()>())).await.is_err());
        let second = slots.take_in_line("b", line()).unwrap();
        drop(first);
        assert!(slots.take_in_line("c", line()).is_none(), "the second has not ended");
        drop(second);
        assert!(slots.take_in_line("c", line()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_without_calls_are_forgotten() {
        let slots = FairSlots::default();
        for number in 0..10_000 {
            slots.take(&format!("fine-{number}")).unwrap();
            slots.take(&format!("troubled-{number}")).unwrap().trouble();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(slots.taken.lock().shares.len() <= MOST_SHARES + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_slot_is_for_one_call_and_time_in_a_queue_is_no_trouble() {
        let waiting = Duration::from_secs(5);
        let slots = FairSlots::new(1, 1, waiting);
        let held = slots.take("a").unwrap();
        assert!(slots.take("a").is_none() && slots.take("b").is_none());
        let hang = |time| tokio::time::timeout(time, held.watch(std::future::pending::<()>()));
        assert!(hang(waiting).await.is_err() && !slots.is_troubled("a"));
        assert!(hang(waiting + PROMPT * 2).await.is_err() && slots.is_troubled("a"));
        assert!(slots.take("b").is_some() && slots.take("a").is_none());
    }
}
