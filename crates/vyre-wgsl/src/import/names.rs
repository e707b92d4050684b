use std::collections::{HashMap, HashSet};

use vyre_foundation::ir::Name;

/// Hands out names that are not in use yet.
#[derive(Clone)]
pub(super) struct Names {
    taken: HashSet<Name>,
    next: HashMap<Name, u32>,
}

impl Default for Names {
    fn default() -> Self {
        // Room for the names of most kernels.
        Names { taken: HashSet::with_capacity(48), next: HashMap::new() }
    }
}

impl Names {
    /// `wanted`, made a plain identifier, and with a number where it is taken.
    pub(super) fn fresh(&mut self, wanted: &str) -> Name {
        let mut base: String =
            wanted.chars().take(60).map(|c| if c == '_' || c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if base.is_empty() || base.starts_with(|c: char| c.is_ascii_digit() || c == '_') {
            base.insert(0, 'v');
        }
        let base = Name::from(base);
        if self.taken.insert(base.clone()) {
            return base;
        }
        let next = self.next.entry(base.clone()).or_insert(1);
        loop {
            let name = Name::from(format!("{base}_{next}"));
            *next += 1;
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}
