//! Stored pipelines as bytes. The caller authenticates the bytes and keeps them apart by device fingerprint. Reading still checks
//! every length, so that wrong bytes are refused and not followed.

/// Bytes under construction.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Starts an artifact with the bytes by which its kind is known.
    pub fn new(magic: &[u8; 8]) -> Writer {
        Writer(magic.to_vec())
    }

    /// Adds a number.
    pub fn word(&mut self, word: u32) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    /// Adds a number of 64 bits.
    pub fn long(&mut self, long: u64) {
        self.0.extend_from_slice(&long.to_le_bytes());
    }

    /// Adds numbers and how many they are.
    pub fn words(&mut self, words: &[u32]) {
        self.word(words.len() as u32);
        for &word in words {
            self.word(word);
        }
    }

    /// Adds bytes and how many they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    /// The artifact.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Bytes being read. Everything is `None` from the first thing that is not there.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts to read an artifact of a kind; `None` when it is of another.
    pub fn new(bytes: &'a [u8], magic: &[u8; 8]) -> Option<Reader<'a>> {
        bytes.strip_prefix(magic).map(Reader)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number.
    pub fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// A number of 64 bits.
    pub fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Numbers.
    pub fn words(&mut self) -> Option<Vec<u32>> {
        let count = self.word()? as usize;
        let bytes = self.take(count.checked_mul(4)?)?;
        bytes.chunks_exact(4).map(|word| Some(u32::from_le_bytes(word.try_into().ok()?))).collect()
    }

    /// Bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.word()? as usize;
        self.take(count)
    }

    /// Everything was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
