//! Faults between our servers and the API server.

mod diary;

pub use diary::Diary;
