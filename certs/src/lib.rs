//! tenure-certs
