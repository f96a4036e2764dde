//! tenure-policy
