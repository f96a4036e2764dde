//! The objects that a label selector selects, of all that were read.

use std::collections::{BTreeMap, HashSet};

use tenure_index::Uid;
use tenure_types::selector::Selector;

/// Objects with labels as wanted. Without a selector, all objects are.
#[derive(Debug, Default)]
pub struct Selected {
    pub selector: Option<Selector>,
    uids: HashSet<Uid>,
}

impl Selected {
    /// Adds an object, if it is selected.
    pub fn take(&mut self, uid: Option<&str>, labels: Option<&BTreeMap<String, String>>) {
        let Self { selector: Some(selector), uids } = self else { return };
        let none = BTreeMap::new();
        if let Some(uid) = uid.filter(|_| selector.selects(labels.unwrap_or(&none))) {
            uids.insert(Uid::of(uid));
        }
    }

    pub fn contains(&self, uid: &Uid) -> bool {
        self.selector.is_none() || self.uids.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_was_not_read_is_not_selected() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let mut selected = Selected { selector: Some("a=1".parse().unwrap()), ..Selected::default() };
        selected.take(Some("u"), Some(&labels));
        selected.take(Some("v"), None);
        assert_eq!(["u", "v", "w"].map(|uid| selected.contains(&Uid::of(uid))), [true, false, false]);
        assert!(Selected::default().contains(&Uid::of("w")));
    }
}
