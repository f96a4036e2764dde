//! tenure-testbed
