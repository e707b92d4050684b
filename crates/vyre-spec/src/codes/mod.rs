//! The one table of diagnostic codes. Each area has its own file and its own hundred; the macro makes a code and its
//! entry together, so neither can exist without the other.

use crate::diagnostic::Severity;

/// What the table says about one code.
#[derive(Debug, PartialEq, Eq)]
pub struct CodeEntry {
    /// Stable id, `V` and four digits.
    pub id: &'static str,
    /// Default severity.
    pub severity: Severity,
    /// What it means, in one sentence.
    pub meaning: &'static str,
    /// What to do in general; a diagnostic may carry a more exact cure.
    pub cure: &'static str,
    /// Whom a failure with this code concerns.
    pub class: Class,
}

/// Whom a failure concerns, and so what may be tried next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The caller: inputs, configuration or the program itself. No other device would do better.
    Caller,
    /// This program on this device: another device may have what it needs.
    Program,
    /// This much work on this device now: less of it, or later, may do.
    Busy,
    /// The device: it is not to be trusted with more work until it has shown otherwise.
    Device,
}

/// A code is a reference to its entry.
pub type Code = &'static CodeEntry;

/// Defines codes: `NAME = "V0101", Error, "meaning", "cure";`, with the class of a failure behind the severity where it is not the
/// caller's: `NAME = "V0701", Error (Device), "meaning", "cure";`
macro_rules! codes {
    ($($name:ident = $id:literal, $severity:ident $(($class:ident))?, $meaning:literal, $cure:literal;)*) => {
        $(
            #[doc = concat!("`", $id, "`: ", $meaning)]
            pub static $name: $crate::codes::CodeEntry = $crate::codes::CodeEntry {
                id: $id,
                severity: $crate::Severity::$severity,
                meaning: $meaning,
                cure: $cure,
                class: codes!(@class $($class)?),
            };
        )*
        pub(super) static ENTRIES: &[(&str, $crate::codes::Code)] = &[$((stringify!($name), &$name)),*];
    };
    (@class) => { $crate::codes::Class::Caller };
    (@class $class:ident) => { $crate::codes::Class::$class };
}

pub mod backend;
pub mod cache;
pub mod command;
pub mod cpu;
pub mod cuda;
pub mod engine;
pub mod ir;
pub mod kernel;
pub mod reference;
pub mod registry;
pub mod routing;
pub mod specialization;
pub mod text;
pub mod tuner;
pub mod wgpu;
pub mod wgsl;
pub mod wire;

/// Every code with the name of its constant, in order of id.
pub fn all() -> Vec<(&'static str, Code)> {
    let mut all = [
        ir::ENTRIES,
        text::ENTRIES,
        wire::ENTRIES,
        wgsl::ENTRIES,
        kernel::ENTRIES,
        reference::ENTRIES,
        backend::ENTRIES,
        cache::ENTRIES,
        specialization::ENTRIES,
        tuner::ENTRIES,
        routing::ENTRIES,
        registry::ENTRIES,
        engine::ENTRIES,
        cpu::ENTRIES,
        wgpu::ENTRIES,
        cuda::ENTRIES,
        command::ENTRIES,
    ]
    .concat();
    all.sort_by_key(|(_, code)| code.id);
    all
}

/// The entry with this id.
pub fn find(id: &str) -> Option<Code> {
    all().into_iter().map(|(_, code)| code).find(|code| code.id.eq_ignore_ascii_case(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_well_formed() {
        let all = all();
        for pair in all.windows(2) {
            assert_ne!(pair[0].1.id, pair[1].1.id, "{} and {} share an id", pair[0].0, pair[1].0);
        }
        for (name, code) in all {
            assert!(code.id.len() == 5 && code.id.starts_with('V'), "{name}: {}", code.id);
            assert!(code.id[1..].bytes().all(|b| b.is_ascii_digit()), "{name}: {}", code.id);
            assert!(code.meaning.ends_with('.') && code.cure.ends_with('.'), "{name}: whole sentences, please");
        }
    }
}
