//! Whatever validates can be lowered, with every pass and with none, to a well-made kernel. The bytes are a wire form, or, where they are not one, the seed of a random program.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vyre_conform::{GenOptions, generate};
use vyre_foundation::kernel::{self, Options, Passes};
use vyre_foundation::wire;

fuzz_target!(|bytes: &[u8]| {
    let program = match wire::decode(bytes) {
        Ok(program) => program,
        Err(_) => {
            let seed = bytes.iter().fold(0u64, |seed, &byte| seed.wrapping_mul(257).wrapping_add(u64::from(byte)));
            generate(seed, &GenOptions::default()).program
        }
    };
    let Ok(valid) = program.validate() else { return };
    for passes in [Passes::none(), Passes::all()] {
        for expand_math in [false, true] {
            let options = Options { passes, expand_math, ..Options::default() };
            if let Ok(kernel) = kernel::lower(&valid, &options) {
                kernel::verify(&kernel).expect("a kernel that was lowered is well made");
            }
        }
    }
});
