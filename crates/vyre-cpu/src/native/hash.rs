//! A quick hash for tables of small plain keys that live as long as one compilation.

use std::hash::{BuildHasherDefault, Hasher};

/// Multiplies and rotates; good enough where nobody chooses keys to collide for long: tables are bounded by the kernel's size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quick(u64);

pub(super) type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Quick>>;
pub(super) type Set<K> = std::collections::HashSet<K, BuildHasherDefault<Quick>>;

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_i32(&mut self, n: i32) {
        self.write_u64(n as u32 as u64);
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }
}
