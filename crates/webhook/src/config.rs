//! The configuration that all parts of the webhook read.

use std::sync::Arc;

use parking_lot::RwLock;
use tenure_policy::config::Config;

/// The configuration as it was last taken up. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CurrentConfig(Arc<RwLock<Arc<Config>>>);

impl CurrentConfig {
    /// Replaces the configuration.
    pub fn set(&self, config: Config) {
        *self.0.write() = Arc::new(config);
    }

    /// Returns the configuration of now.
    pub fn get(&self) -> Arc<Config> {
        Arc::clone(&self.0.read())
    }
}
