//! tenure-keeper
