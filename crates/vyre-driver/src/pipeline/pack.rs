//! Warm packs: what one machine has compiled and decided, in one file for others.
//!
//! A pack is a header and records; each record carries a tag over its place, kind, name and bytes, so records can't be
//! changed, moved, left out or taken from another pack without notice. With a key of the fleet only holders of the key can
//! make a pack that others accept. Imported pipelines are executed later: import without a key only what you trust.

use std::io::{self, Read, Write};

use vyre_spec::{Diagnostic, codes};

use super::PipelineDeviceFingerprint;
use super::disk::{DiskPipelineCache, MAX_DISK_PIPELINE_BLOB_BYTES, io_diagnostic};

const MAGIC: &[u8; 8] = b"VYREPACK";
const FORMAT: u32 = 1;
/// Largest file of decisions or program in wire form.
const MAX_FILE_BYTES: u64 = 16 << 20;
const MAX_NAME_BYTES: u64 = 255;
/// Most decision files, and most programs.
const MAX_FILES: usize = 65_536;
/// Kind, name length, body length.
const RECORD_HEAD: usize = 13;

const END: u8 = 0;
const PIPELINE: u8 = 1;
const DECISIONS: u8 = 2;
const PROGRAM: u8 = 3;

/// What a pack holds besides pipelines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackContents {
    /// Decision files, by plain file name.
    pub decisions: Vec<(String, Vec<u8>)>,
    /// Programs in wire form.
    pub programs: Vec<Vec<u8>>,
}

/// What makes a pack believable.
#[derive(Clone, Copy, Debug)]
pub enum PackKey<'a> {
    /// Only holders of this key can make the pack.
    Secret(&'a [u8; 32]),
    /// Anyone can make the pack; damage is still found.
    Open,
}

impl PackKey<'_> {
    fn base(&self) -> [u8; 32] {
        match self {
            PackKey::Secret(key) => blake3::derive_key("vyre warm pack with key 1", *key),
            PackKey::Open => blake3::derive_key("vyre warm pack without key 1", &[]),
        }
    }
}

impl DiskPipelineCache {
    /// Writes a pack of all pipelines of this cache and the given contents, and gives the number of pipelines.
    pub fn export(&self, out: impl Write, contents: &PackContents, key: PackKey<'_>) -> io::Result<u64> {
        let mut packer = Packer::start(out, key)?;
        let mut pipelines = 0;
        self.for_each_entry(|entry| {
            if let Some((digest, fingerprint, blob)) = entry {
                let mut name = [0; 72];
                name[..32].copy_from_slice(&digest);
                name[32..36].copy_from_slice(&fingerprint.vendor.to_le_bytes());
                name[36..40].copy_from_slice(&fingerprint.device.to_le_bytes());
                name[40..].copy_from_slice(&fingerprint.driver_digest);
                packer.record(PIPELINE, &name, &blob)?;
                pipelines += 1;
            }
            Ok(())
        })?;
        for (name, bytes) in &contents.decisions {
            packer.record(DECISIONS, name.as_bytes(), bytes)?;
        }
        for program in &contents.programs {
            packer.record(PROGRAM, &[], program)?;
        }
        packer.record(END, &[], &[])?;
        packer.out.flush()?;
        Ok(pipelines)
    }

    /// Stores the pipelines of a pack in this cache, and gives their number and the rest of the contents. Every record is
    /// checked before it is used; a damaged pack is an error, and the pipelines before the damage stay.
    pub fn import(&self, pack: impl Read, key: PackKey<'_>) -> io::Result<(u64, PackContents)> {
        let mut unpacker = Unpacker::start(pack, key)?;
        let mut contents = PackContents::default();
        let mut pipelines = 0;
        loop {
            let (kind, name, body) = unpacker.record()?;
            match kind {
                END => {
                    // No tag covers what follows, so there may be nothing.
                    return if unpacker.is_at_end()? {
                        self.flush()?;
                        Ok((pipelines, contents))
                    } else {
                        Err(bad("bytes follow its end"))
                    };
                }
                PIPELINE => {
                    let name: &[u8; 72] = name.as_slice().try_into().map_err(|_| bad("a pipeline has no key"))?;
                    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| name[at + i]));
                    let fingerprint = PipelineDeviceFingerprint {
                        vendor: word(32),
                        device: word(36),
                        driver_digest: std::array::from_fn(|i| name[40 + i]),
                    };
                    self.write(std::array::from_fn(|i| name[i]), fingerprint, &body)?;
                    pipelines += 1;
                }
                DECISIONS => {
                    let name = String::from_utf8(name).map_err(|_| bad("a file name is not text"))?;
                    if contents.decisions.len() == MAX_FILES || !is_file_name(&name) {
                        return Err(bad("a decision file has no usable name"));
                    }
                    contents.decisions.push((name, body));
                }
                PROGRAM if contents.programs.len() < MAX_FILES => contents.programs.push(body),
                _ => return Err(bad("a record is of no known kind")),
            }
        }
    }
}

/// A name that can't leave its folder on any system.
fn is_file_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'%');
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain)
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Diagnostic::new(&codes::cache::BAD_PACK, format!("bad pack: {what}")))
}

fn limit_of(kind: u8) -> Option<u64> {
    match kind {
        END => Some(0),
        PIPELINE => Some(MAX_DISK_PIPELINE_BLOB_BYTES),
        DECISIONS | PROGRAM => Some(MAX_FILE_BYTES),
        _ => None,
    }
}

/// Tag of a record at its place. The key was made from the pack's random header, so places of two packs differ.
fn tag(key: &[u8; 32], place: u64, head: &[u8; RECORD_HEAD], name: &[u8], body: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&place.to_le_bytes());
    hasher.update(head);
    hasher.update(name);
    hasher.update(body);
    hasher.finalize()
}

struct Packer<W> {
    out: W,
    key: [u8; 32],
    place: u64,
}

impl<W: Write> Packer<W> {
    fn start(mut out: W, key: PackKey<'_>) -> io::Result<Self> {
        let mut header = [0; 44];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        getrandom::fill(&mut header[12..]).map_err(|error| io::Error::other(error.to_string()))?;
        out.write_all(&header)?;
        Ok(Packer { out, key: *blake3::keyed_hash(&key.base(), &header).as_bytes(), place: 0 })
    }

    fn record(&mut self, kind: u8, name: &[u8], body: &[u8]) -> io::Result<()> {
        let usable_name = kind != DECISIONS || std::str::from_utf8(name).is_ok_and(is_file_name);
        if !usable_name
            || name.len() as u64 > MAX_NAME_BYTES
            || limit_of(kind).is_none_or(|limit| body.len() as u64 > limit)
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                Diagnostic::new(&codes::cache::BAD_PACK, "a file is too large for a pack, or has no plain name")
                    .with_fix("Leave it out of the pack, or give it a name of letters, digits, dots, dashes and percent signs."),
            ));
        }
        let mut head = [0; RECORD_HEAD];
        head[0] = kind;
        head[1..5].copy_from_slice(&(name.len() as u32).to_le_bytes());
        head[5..].copy_from_slice(&(body.len() as u64).to_le_bytes());
        let tag = tag(&self.key, self.place, &head, name, body);
        self.place += 1;
        for part in [&head, name, body, tag.as_bytes()] {
            self.out.write_all(part)?;
        }
        Ok(())
    }
}

struct Unpacker<R> {
    pack: R,
    key: [u8; 32],
    place: u64,
}

impl<R: Read> Unpacker<R> {
    fn start(mut pack: R, key: PackKey<'_>) -> io::Result<Self> {
        let mut header = [0; 44];
        read_exact(&mut pack, &mut header)?;
        if header[..8] != *MAGIC || header[8..12] != FORMAT.to_le_bytes() {
            return Err(bad("it is not a pack of this version"));
        }
        Ok(Unpacker { pack, key: *blake3::keyed_hash(&key.base(), &header).as_bytes(), place: 0 })
    }

    fn is_at_end(&mut self) -> io::Result<bool> {
        let mut more = Vec::new();
        let read = (&mut self.pack).take(1).read_to_end(&mut more);
        read.map(|bytes| bytes == 0).map_err(|error| io_diagnostic("read a pack", error))
    }

    fn record(&mut self) -> io::Result<(u8, Vec<u8>, Vec<u8>)> {
        let mut head = [0; RECORD_HEAD];
        read_exact(&mut self.pack, &mut head)?;
        let name_bytes = u64::from(u32::from_le_bytes([head[1], head[2], head[3], head[4]]));
        let body_bytes = u64::from_le_bytes(std::array::from_fn(|i| head[5 + i]));
        if name_bytes > MAX_NAME_BYTES || limit_of(head[0]).is_none_or(|limit| body_bytes > limit) {
            return Err(bad("a record is over its limit"));
        }
        // Memory grows with what is really there, not with what the head claims.
        let mut take = |bytes: u64| -> io::Result<Vec<u8>> {
            let mut taken = Vec::new();
            (&mut self.pack)
                .take(bytes)
                .read_to_end(&mut taken)
                .map_err(|error| io_diagnostic("read a pack", error))?;
            if (taken.len() as u64) < bytes { Err(bad("it is cut off")) } else { Ok(taken) }
        };
        let (name, body) = (take(name_bytes)?, take(body_bytes)?);
        let mut stored = [0; 32];
        read_exact(&mut self.pack, &mut stored)?;
        if tag(&self.key, self.place, &head, &name, &body) != blake3::Hash::from_bytes(stored) {
            return Err(bad("a record's digest is wrong, or the key is another"));
        }
        self.place += 1;
        Ok((head[0], name, body))
    }
}

fn read_exact(pack: &mut impl Read, into: &mut [u8]) -> io::Result<()> {
    pack.read_exact(into).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => bad("it is cut off"),
        _ => io_diagnostic("read a pack", error),
    })
}
