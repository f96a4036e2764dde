//! The caller of a request, which may hang up before the answer: then the answer has no effect.
//!
//! `http.rs` holds the [`ExtenderCall`]; the thread that computes the answer holds the [`Caller`].

use std::{mem, sync::Arc};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::{Extender, waiters::Waiter};

/// The effects of an answer, which are undone if it isn't sent.
#[derive(Debug)]
pub struct GrantEffects {
    /// The preemptor's uid.
    pub uid: String,
    /// The time of the grant.
    pub at: Timestamp,
    /// The waiter that the grant removed.
    pub waited: Option<Waiter>,
}

#[derive(Debug, Default)]
enum CallState {
    /// No answer has an effect that could be undone.
    #[default]
    Waits,
    /// An answer has effects, and hasn't been sent.
    Granted(Box<GrantEffects>),
    /// The caller has left: no answer has an effect any more.
    Left,
}

/// A caller, for the thread that computes the answer. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Caller(Arc<Mutex<CallState>>);

impl Caller {
    /// Applies the effects of the answer, unless the caller has left. `act` returns those that can
    /// be undone. None: there are none.
    pub fn commit(&self, act: impl FnOnce() -> Option<GrantEffects>) {
        let mut state = self.0.lock();
        if !matches!(*state, CallState::Left) {
            *state = act().map_or(CallState::Waits, |granted| CallState::Granted(Box::new(granted)));
        }
    }

    /// True once the caller has left.
    pub fn has_left(&self) -> bool {
        matches!(*self.0.lock(), CallState::Left)
    }
}

/// A call while it is answered. If the call is dropped before [`ExtenderCall::answered`], as at a timeout,
/// the effects of the answer are undone.
#[derive(Debug)]
pub struct ExtenderCall {
    pub extender: Extender,
    pub caller: Caller,
}

impl ExtenderCall {
    /// Keeps the effects: the answer is on its way.
    pub fn answered(self) {
        *self.caller.0.lock() = CallState::Waits;
    }
}

impl Drop for ExtenderCall {
    fn drop(&mut self) {
        let state = mem::replace(&mut *self.caller.0.lock(), CallState::Left);
        let CallState::Granted(granted) = state else { return };
        let (GrantEffects { uid, at, waited }, extender) = (*granted, &self.extender);
        extender.permits.revoke(&uid, at);
        if let Some(waiter) = waited {
            extender.waiters.lock().wait_again(waiter);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;
    use tenure_index::Uid;

    use super::{super::Permit, *};
    use crate::{ClusterView, Metrics};

    fn extender() -> Extender {
        Extender::new(ClusterView::default(), Metrics::register(&mut Registry::default()))
    }

    fn call(extender: &Extender) -> ExtenderCall {
        ExtenderCall { extender: extender.clone(), caller: Caller::default() }
    }

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn waiter() -> Waiter {
        Waiter {
            uid: "p".to_owned(),
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
            scheduler: "s".to_owned(),
            priority: 1,
            node: "n".to_owned(),
            nominated: None,
            until: now(),
            failures: 0,
        }
    }

    /// Preemptor p gets victim v, for which it has waited.
    fn grant(extender: &Extender) -> GrantEffects {
        let [preemptor, namespace, name] = ["p", "p", "p"].map(str::to_owned);
        let (of_groups, others) = (vec![Uid::of("v")], Vec::new());
        extender.permits.grant(Permit { preemptor, namespace, name, at: now(), of_groups, others });
        GrantEffects { uid: "p".to_owned(), at: now(), waited: Some(waiter()) }
    }

    /// True if v is granted, true if it counts as gone, and the number of waiters.
    fn standing(extender: &Extender) -> (bool, bool, usize) {
        let is_granted = extender.permits.covering(Uid::of("v"), now()).is_some();
        let counts = !extender.permits.unsettled("q", now()).is_empty();
        (is_granted, counts, extender.waiters.lock().by_uid.len())
    }

    #[test]
    fn what_followed_from_an_answer_stays_once_it_is_on_its_way() {
        let extender = extender();
        let call = call(&extender);
        call.caller.clone().commit(|| Some(grant(&extender)));
        call.answered();
        assert_eq!(standing(&extender), (true, true, 0));
    }

    #[test]
    fn what_followed_from_an_answer_that_is_not_sent_is_undone() {
        let extender = extender();
        let call = call(&extender);
        call.caller.clone().commit(|| Some(grant(&extender)));
        drop(call);
        assert_eq!(standing(&extender), (false, false, 1));
    }

    #[test]
    fn nothing_follows_from_an_answer_to_a_caller_that_has_left() {
        let extender = extender();
        let call = call(&extender);
        let caller = call.caller.clone();
        drop(call);
        assert!(caller.has_left());
        caller.commit(|| Some(grant(&extender)));
        assert_eq!(standing(&extender), (false, false, 0));
    }
}
