//! tenure-index
