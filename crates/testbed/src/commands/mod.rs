//! The subcommands, one module each.

pub(crate) mod build;
pub(crate) mod demo;
pub(crate) mod up;
