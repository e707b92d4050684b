//! Bytes that decode are the canonical form of what they decode to, and whatever decodes can be validated.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vyre_foundation::wire;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(program) = wire::decode(bytes) {
        assert_eq!(wire::encode(&program), bytes, "decoding accepts what encoding would not write");
        let _ = program.validate();
    }
});
