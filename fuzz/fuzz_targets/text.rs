//! Text either parses or is refused with diagnostics; what parses prints as text that parses to the same program.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vyre_foundation::text;

fuzz_target!(|source: &str| {
    if let Ok(program) = text::parse(source) {
        let printed = text::print(&program);
        match text::parse(&printed) {
            Ok(again) => assert!(again == program, "printing changes the program:\n{printed}"),
            Err(problems) => panic!("what was printed does not parse: {}\n{printed}", problems[0]),
        }
        let _ = program.validate();
    }
});
