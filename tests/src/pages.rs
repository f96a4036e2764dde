//! The pages of `docs/` as their readers follow them: with real commands on a real API server. A
//! test opens a page with [`Walk`], follows its headings, and ends with the assertion that none is
//! left out.

mod output;
mod page;
mod script;
mod walk;

pub use page::{Block, Page, Step, workspace};
pub use script::{commands, run, run_in};
pub use walk::Walk;
