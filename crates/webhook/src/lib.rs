//! tenure-webhook
