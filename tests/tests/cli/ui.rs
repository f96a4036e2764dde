//! `kubectl tenure ui`: its server as any caller sees it, and its page in a real browser.
#![allow(clippy::expect_used, clippy::panic, reason = "a failed helper is a failed test")]

mod browser;
mod files;
mod memory;
mod page;
mod picture;
mod requests;
mod users;
