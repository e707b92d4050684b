//! WGSL source either imports or is refused with a diagnostic; what imports is valid or is refused by the validator.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vyre_wgsl::{ImportOptions, import};

fuzz_target!(|source: &str| {
    if let Ok(program) = import(source, &ImportOptions::default())
        && let Ok(valid) = program.validate()
    {
        let _ = vyre_wgsl::export(&valid);
    }
});
