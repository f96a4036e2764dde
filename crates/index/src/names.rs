use std::{collections::HashSet, sync::Arc};

/// Names that many records share, each kept once.
#[derive(Debug, Default)]
pub struct Names {
    names: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Names {
    /// The shared copy of a name.
    pub fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(shared) = self.names.get(name) {
            return Arc::clone(shared);
        }
        self.sweep();
        let shared: Arc<str> = name.into();
        self.names.insert(Arc::clone(&shared));
        shared
    }

    /// Drops what nobody uses any more, now and then: clusters that make a namespace per build see millions.
    fn sweep(&mut self) {
        if self.names.len() < self.sweep_at {
            return;
        }
        self.names.retain(|name| Arc::strong_count(name) > 1);
        self.names.shrink_to_fit();
        self.sweep_at = self.names.len().saturating_mul(2).max(64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let mut names = Names::default();
        assert!(Arc::ptr_eq(&names.shared("a"), &names.shared("a")));
    }

    #[test]
    fn names_that_nobody_uses_go() {
        let mut names = Names::default();
        let kept = names.shared("kept");
        for number in 0..10_000 {
            names.shared(&number.to_string());
        }
        assert!(names.names.len() <= 64, "{}", names.names.len());
        assert!(Arc::ptr_eq(&kept, &names.shared("kept")));
    }
}
