//! The form of one cache entry: the blob, then a trailer with the key and a tag over all that only this user can make. The
//! blob comes first so that an entry is read into the memory it is returned in.

use super::PipelineDeviceFingerprint;
use super::key::CURRENT_PIPELINE_CACHE_KEY_VERSION;

/// Bytes after the blob.
pub(super) const TRAILER_BYTES: usize = 128;
const TAG_AT: usize = 96;
const MAGIC: &[u8; 8] = b"VYREPIPE";
const FORMAT: u32 = 1;

/// The key under which entries are authenticated.
pub(super) type Secret = [u8; 32];

/// The trailer for a blob.
pub(super) fn seal(
    secret: &Secret,
    digest: &[u8; 32],
    fingerprint: &PipelineDeviceFingerprint,
    blob: &[u8],
) -> [u8; TRAILER_BYTES] {
    let mut trailer = [0; TRAILER_BYTES];
    trailer[0..8].copy_from_slice(MAGIC);
    trailer[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    trailer[12..16].copy_from_slice(&CURRENT_PIPELINE_CACHE_KEY_VERSION.to_le_bytes());
    trailer[16..48].copy_from_slice(digest);
    trailer[48..52].copy_from_slice(&fingerprint.vendor.to_le_bytes());
    trailer[52..56].copy_from_slice(&fingerprint.device.to_le_bytes());
    trailer[56..88].copy_from_slice(&fingerprint.driver_digest);
    trailer[88..96].copy_from_slice(&(blob.len() as u64).to_le_bytes());
    let tag = tag(secret, &trailer, blob);
    trailer[TAG_AT..].copy_from_slice(tag.as_bytes());
    trailer
}

/// The key that an entry says it has, when its form is right and its tag is true.
pub(super) fn open(
    secret: &Secret,
    trailer: &[u8; TRAILER_BYTES],
    blob: &[u8],
) -> Option<([u8; 32], PipelineDeviceFingerprint)> {
    let word = |at: usize| u32::from_le_bytes([trailer[at], trailer[at + 1], trailer[at + 2], trailer[at + 3]]);
    let digest_at = |at: usize| -> [u8; 32] { std::array::from_fn(|i| trailer[at + i]) };
    let blob_bytes = u64::from(word(88)) | u64::from(word(92)) << 32;
    if &trailer[0..8] != MAGIC
        || word(8) != FORMAT
        || word(12) != CURRENT_PIPELINE_CACHE_KEY_VERSION
        || blob_bytes != blob.len() as u64
        // This type compares in constant time.
        || tag(secret, trailer, blob) != blake3::Hash::from_bytes(digest_at(TAG_AT))
    {
        return None;
    }
    let fingerprint = PipelineDeviceFingerprint { vendor: word(48), device: word(52), driver_digest: digest_at(56) };
    Some((digest_at(16), fingerprint))
}

/// The blob is authenticated under a key of its own, made from the secret and the rest of the trailer. AEGIS is several
/// times as fast as a hash where processors have AES, so that checking costs less than reading.
fn tag(secret: &Secret, trailer: &[u8; TRAILER_BYTES], blob: &[u8]) -> blake3::Hash {
    let key = blake3::keyed_hash(secret, &trailer[..TAG_AT]);
    let mut half = [0; 16];
    half.copy_from_slice(&key.as_bytes()[..16]);
    let mut mac = aegis::aegis128x4::Aegis128X4Mac::<32>::new(&half);
    mac.update(blob);
    mac.finalize().into()
}
