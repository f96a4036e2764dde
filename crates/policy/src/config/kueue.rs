//! What a file says about Kueue.

use super::{
    fields::{Field, Problems},
    tree::Node,
};

/// Whether Workloads of Kueue's are paused.
pub const KUEUE_ENABLED: &str = "kueue.enabled";

const ENABLED: &str = "enabled";

/// What is to be known of Kueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kueue {
    /// Whether its Workloads are paused, where it runs what is to be paused.
    pub enabled: bool,
}

impl Default for Kueue {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// By default Kueue counts where it is installed.
pub fn read(field: &Field<'_>, problems: &mut Problems) -> Kueue {
    let default = Kueue::default();
    let Some(mut fields) = field.fields(problems) else { return default };
    let enabled = fields.take(ENABLED).and_then(|field| field.boolean(problems));
    fields.end(problems);
    Kueue { enabled: enabled.unwrap_or(default.enabled) }
}

/// The paths of the fields that it sets.
pub fn set(kueue: &Node) -> Vec<&'static str> {
    let is_set = |name: &str| kueue.get(name).is_some_and(|value| !value.is_null());
    [(ENABLED, KUEUE_ENABLED)].into_iter().filter(|(name, _)| is_set(name)).map(|(_, path)| path).collect()
}
