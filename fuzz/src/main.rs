//! Fuzzes one parser: `TENURE_PARSER` says which.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tenure_inputs::{PARSERS, Parser, parser};

static CHOSEN: LazyLock<Parser> = LazyLock::new(|| {
    let name = std::env::var("TENURE_PARSER").unwrap_or_default();
    let names: Vec<&str> = PARSERS.iter().map(|parser| parser.name).collect();
    parser(&name).unwrap_or_else(|| panic!("TENURE_PARSER={name}: must be one of {}", names.join(" ")))
});

fuzz_target!(|input: &[u8]| {
    // a refusal is as good as a value
    let _ = (CHOSEN.read)(input);
});
