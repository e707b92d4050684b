//! Kernels that somebody else wrote: parameters wider than a word, and descriptions of arrays for bulk copies.

use std::ffi::{c_int, c_uint};

use smallvec::SmallVec;
use vyre_driver::variant::TensorMap;
use vyre_foundation::ir::DataType;

use super::{Api, CudaError, DevicePointer, Ptr};

/// Words of a tensor map.
pub(crate) const MAP_WORDS: usize = 16;

/// As the driver wants it.
#[repr(C, align(64))]
struct Encoded([u64; MAP_WORDS]);

type Encode = unsafe extern "system" fn(
    *mut Encoded,
    c_int,
    c_uint,
    Ptr,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;

/// The addresses of a kernel's parameters: the first of them are tensor maps, and every other takes eight bytes.
pub(super) fn addresses(params: &mut [u64], tensor_maps: u32) -> SmallVec<[Ptr; 64]> {
    let maps = (tensor_maps as usize * MAP_WORDS).min(params.len());
    let (maps, rest) = params.split_at_mut(maps);
    let maps = maps.chunks_mut(MAP_WORDS).map(|map| map.as_mut_ptr().cast());
    maps.chain(rest.iter_mut().map(|param| (&raw mut *param).cast())).collect()
}

impl Api {
    /// An array in device memory as bulk copies take it, or why not.
    pub(crate) fn encode(&self, map: &TensorMap, at: DevicePointer) -> Result<[u64; MAP_WORDS], String> {
        let element = match map.element {
            DataType::U8 => 0,
            DataType::U16 => 1,
            DataType::U32 => 2,
            DataType::I32 => 3,
            DataType::U64 => 4,
            DataType::I64 => 5,
            DataType::F16 => 6,
            DataType::F32 => 7,
            DataType::F64 => 8,
            DataType::BF16 => 9,
            ref other => return Err(format!("tensor maps have no elements of {other}")),
        };
        let swizzle = match map.swizzle {
            0 => 0,
            32 => 1,
            64 => 2,
            128 => 3,
            other => return Err(format!("tensor maps have no swizzle of {other} bytes")),
        };
        let rank = map.extents.len();
        if !(1..=5).contains(&rank) || map.strides.len() + 1 != rank || map.tile.len() != rank {
            return Err(format!(
                "a tensor map has {rank} extents, {} strides and {} sizes of a tile",
                map.strides.len(),
                map.tile.len()
            ));
        }
        // Drivers before CUDA 12 don't have it.
        let Some(library) = &self.table._library else { return Err("the driver has no tensor maps".to_owned()) };
        // SAFETY: the type is that of the driver's header for this symbol.
        let encode = unsafe { library.get::<Encode>(b"cuTensorMapEncodeTiled") };
        let encode = encode.map_err(|_| "the driver has no tensor maps".to_owned())?;
        const L2_256_BYTES: c_int = 3;
        let (mut encoded, steps) = (Encoded([0; MAP_WORDS]), [1u32; 5]);
        // SAFETY: all lists have `rank` entries, the strides one less, as the driver reads them; the result is aligned.
        let code = unsafe {
            encode(
                &raw mut encoded,
                element,
                rank as c_uint,
                at as Ptr,
                map.extents.as_ptr(),
                map.strides.as_ptr(),
                map.tile.as_ptr(),
                steps.as_ptr(),
                0,
                swizzle,
                L2_256_BYTES,
                0,
            )
        };
        match code {
            0 => Ok(encoded.0),
            code => Err(CudaError::new(Some(self), "cuTensorMapEncodeTiled", code).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_maps_take_sixteen_words_and_others_one() {
        let mut words = [0u64; 2 * MAP_WORDS + 3];
        let start = words.as_ptr().addr();
        let at: Vec<usize> = addresses(&mut words, 2).iter().map(|place| (place.addr() - start) / 8).collect();
        assert_eq!(at, [0, 16, 32, 33, 34]);
        let plain: Vec<usize> = addresses(&mut words[..3], 0).iter().map(|place| (place.addr() - start) / 8).collect();
        assert_eq!(plain, [0, 1, 2]);
    }

    #[test]
    fn maps_that_make_no_sense_are_refused_before_the_driver_sees_them() {
        let map = TensorMap {
            buffer: 0,
            element: DataType::F16,
            extents: vec![64, 64],
            strides: vec![128],
            tile: vec![64, 64],
            swizzle: 128,
        };
        let api = Api::fake();
        for (wrong, says) in [
            (TensorMap { strides: Vec::new(), ..map.clone() }, "0 strides"),
            (TensorMap { swizzle: 48, ..map.clone() }, "48 bytes"),
            (TensorMap { element: DataType::Bool, ..map.clone() }, "bool"),
            (map, "no tensor maps"),
        ] {
            let why = api.encode(&wrong, 0).expect_err("it must be refused");
            assert!(why.contains(says), "{why}");
        }
    }
}
