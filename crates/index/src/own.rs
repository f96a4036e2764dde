//! Ceilings that people have noted on their own workloads.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::expiry::own_ceiling;
use tenure_types::keys;
use tracing::warn;

/// Objects change all the time, and what is wrong with an annotation is to be said once. After so many there has been
/// enough said.
const REMEMBERED: usize = 1_000;

/// Reads annotation `tenure.dev/max-duration`. One that can't be read has no effect, and is complained of.
#[derive(Debug, Default)]
pub struct OwnCeilings {
    complained: HashSet<u64>,
}

impl OwnCeilings {
    pub fn read(&mut self, metadata: &ObjectMeta) -> Option<SignedDuration> {
        let text = metadata.annotations.as_ref()?.get(keys::MAX_DURATION_ANNOTATION)?;
        match own_ceiling(text) {
            Ok(own) => Some(own),
            Err(error) => {
                if self.is_news(metadata, text) {
                    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
                    let cut = |text: &str| text.chars().take(100).collect::<String>();
                    let (value, error) = (cut(text), cut(&error));
                    warn!(namespace, name, value, error, "Annotation tenure.dev/max-duration has no effect");
                }
                None
            }
        }
    }

    fn is_news(&mut self, metadata: &ObjectMeta, text: &str) -> bool {
        if self.complained.len() >= REMEMBERED {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        (&metadata.uid, text).hash(&mut hasher);
        self.complained.insert(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn noted(uid: &str, text: &str) -> ObjectMeta {
        let metadata = json!({"uid": uid, "annotations": {"tenure.dev/max-duration": text}});
        serde_json::from_value(metadata).unwrap()
    }

    #[test]
    fn what_is_wrong_is_said_once() {
        let mut own = OwnCeilings::default();
        assert_eq!(own.read(&noted("a", "1m")), Some(SignedDuration::from_mins(1)));
        assert_eq!(own.read(&noted("a", "soon")), None);
        assert!(!own.is_news(&noted("a", "soon"), "soon"));
        assert!(own.is_news(&noted("a", "later"), "later"));
        assert!(own.is_news(&noted("b", "soon"), "soon"));
    }
}
