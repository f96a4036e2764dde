//! The configuration that all parts of the webhook read.
//!
//! `run.rs` replaces it when the file changes. Readers get a snapshot, which a later change leaves
//! alone.

use std::sync::Arc;

use parking_lot::RwLock;
use tenure_policy::config::Config;

/// The current configuration. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CurrentConfig(Arc<RwLock<Arc<Config>>>);

impl CurrentConfig {
    /// Replaces the configuration for all clones.
    pub fn set(&self, config: Config) {
        *self.0.write() = Arc::new(config);
    }

    /// Returns a snapshot of the current configuration.
    pub fn get(&self) -> Arc<Config> {
        Arc::clone(&self.0.read())
    }
}
