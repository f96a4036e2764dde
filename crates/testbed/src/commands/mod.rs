//! One module a subcommand.

pub(crate) mod build;
pub(crate) mod demo;
pub(crate) mod up;
