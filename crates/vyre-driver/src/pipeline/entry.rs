//! The form of one cache entry: a header with the key, and a tag over header and blob that only this user can make.

use super::PipelineDeviceFingerprint;
use super::key::CURRENT_PIPELINE_CACHE_KEY_VERSION;

/// Bytes before the blob.
pub(super) const HEADER_BYTES: usize = 128;
const TAG_AT: usize = 96;
const MAGIC: &[u8; 8] = b"VYREPIPE";
const FORMAT: u32 = 1;

/// The key under which entries are authenticated.
pub(super) type Secret = [u8; 32];

/// The header for a blob.
pub(super) fn seal(
    secret: &Secret,
    digest: &[u8; 32],
    fingerprint: &PipelineDeviceFingerprint,
    blob: &[u8],
) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&CURRENT_PIPELINE_CACHE_KEY_VERSION.to_le_bytes());
    header[16..48].copy_from_slice(digest);
    header[48..52].copy_from_slice(&fingerprint.vendor.to_le_bytes());
    header[52..56].copy_from_slice(&fingerprint.device.to_le_bytes());
    header[56..88].copy_from_slice(&fingerprint.driver_digest);
    header[88..96].copy_from_slice(&(blob.len() as u64).to_le_bytes());
    let tag = tag(secret, &header, blob);
    header[TAG_AT..].copy_from_slice(tag.as_bytes());
    header
}

/// The key that an entry says it has, when its form is right and its tag is true.
pub(super) fn open(
    secret: &Secret,
    header: &[u8; HEADER_BYTES],
    blob: &[u8],
) -> Option<([u8; 32], PipelineDeviceFingerprint)> {
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let digest_at = |at: usize| -> [u8; 32] { std::array::from_fn(|i| header[at + i]) };
    let blob_bytes = u64::from(word(88)) | u64::from(word(92)) << 32;
    if &header[0..8] != MAGIC
        || word(8) != FORMAT
        || word(12) != CURRENT_PIPELINE_CACHE_KEY_VERSION
        || blob_bytes != blob.len() as u64
        // `blake3::Hash` compares in constant time.
        || tag(secret, header, blob) != blake3::Hash::from_bytes(digest_at(TAG_AT))
    {
        return None;
    }
    let fingerprint = PipelineDeviceFingerprint { vendor: word(48), device: word(52), driver_digest: digest_at(56) };
    Some((digest_at(16), fingerprint))
}

/// The blob is hashed under a key made from the header, so that it starts at a block and is hashed at full speed.
fn tag(secret: &Secret, header: &[u8; HEADER_BYTES], blob: &[u8]) -> blake3::Hash {
    let key = blake3::keyed_hash(secret, &header[..TAG_AT]);
    blake3::keyed_hash(key.as_bytes(), blob)
}
