//! tenure-types
