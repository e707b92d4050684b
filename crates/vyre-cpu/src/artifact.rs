//! Compiled kernels as bytes: what they bind, how they are laid out, and position-independent machine code.
//!
//! The caller authenticates the bytes and keeps them apart by device fingerprint. Reading still checks every length, so that
//! wrong bytes are refused and not followed.

/// Starts every artifact; the number changes with the layout of contexts or artifacts.
pub(crate) const MAGIC: &[u8; 8] = b"vyrecpu4";

/// Bytes under construction.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn word(&mut self, word: u32) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    pub(crate) fn words(&mut self, words: &[u32]) {
        self.word(words.len() as u32);
        for &word in words {
            self.word(word);
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }
}

/// Bytes being read.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn words(&mut self) -> Option<Vec<u32>> {
        let count = self.word()? as usize;
        let bytes = self.take(count.checked_mul(4)?)?;
        bytes.chunks_exact(4).map(|word| Some(u32::from_le_bytes(word.try_into().ok()?))).collect()
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.word()? as usize;
        self.take(count)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
