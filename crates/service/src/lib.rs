//! tenure-service
