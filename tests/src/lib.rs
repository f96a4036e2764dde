//! tenure-tests
