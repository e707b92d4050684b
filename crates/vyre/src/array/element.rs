use std::fmt;
use std::ops::{Deref, DerefMut};

use vyre_foundation::ir::DataType;

/// What an array can hold: plain numbers, arrays and structs of them.
///
/// `[f32; 2]` and `[f32; 4]` are WGSL's vectors, [`Vec3`] is the one of three, and `[[f32; 4]; 4]` is a matrix, column by column.
///
/// A struct of your own that is [`Pod`](bytemuck::Pod) becomes an element by `impl vyre::Element for Particle {}`; it then has to lie in
/// memory as WGSL lays its struct out, and its size is checked against that. `vyre::kernels!` makes such structs of those in a WGSL file.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// The type as kernels know it; of an array that is no vector the type of its elements, and `None` for a struct.
    fn data_type() -> Option<DataType> {
        None
    }
}

macro_rules! elements {
    ($($rust:ty => $ty:expr),* $(,)?) => {
        $(impl Element for $rust {
            #[inline]
            fn data_type() -> Option<DataType> {
                Some($ty)
            }
        })*
    };
}

elements! {
    u8 => DataType::U8, i8 => DataType::I8, u16 => DataType::U16, i16 => DataType::I16,
    u32 => DataType::U32, i32 => DataType::I32, u64 => DataType::U64, i64 => DataType::I64,
    f32 => DataType::F32, f64 => DataType::F64, half::f16 => DataType::F16, half::bf16 => DataType::BF16,
}

impl<T: Element, const N: usize> Element for [T; N] {
    fn data_type() -> Option<DataType> {
        vector_of(T::data_type()?, N)
    }
}

/// The vector of so many of a type, where WGSL has one; else the type itself.
fn vector_of(element: DataType, count: usize) -> Option<DataType> {
    use DataType::{F16, F32, F64, I32, I64, U32, U64};
    Some(match (&element, count) {
        (U32 | I32 | F32 | F16 | U64 | I64 | F64, 2..=4) => DataType::vector(element, count as u32),
        _ => element,
    })
}

/// WGSL's vector of three as arrays hold it: with room for a fourth, which means nothing.
///
/// ```
/// let mut position = vyre::Vec3::from([1.0f32, 2.0, 3.0]);
/// position[2] = 5.0;
/// assert_eq!(*position, [1.0, 2.0, 5.0]);
/// assert_eq!(size_of_val(&position), 16);
/// ```
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Vec3<T>([T; 4]);

impl<T: Element> Vec3<T> {
    /// The vector with these components.
    pub fn new(x: T, y: T, z: T) -> Vec3<T> {
        Vec3([x, y, z, T::zeroed()])
    }
}

impl<T: Element> Element for Vec3<T> {
    fn data_type() -> Option<DataType> {
        vector_of(T::data_type()?, 3)
    }
}

impl<T: Element> From<[T; 3]> for Vec3<T> {
    fn from([x, y, z]: [T; 3]) -> Self {
        Vec3::new(x, y, z)
    }
}

impl<T> From<Vec3<T>> for [T; 3] {
    fn from(Vec3([x, y, z, _]): Vec3<T>) -> Self {
        [x, y, z]
    }
}

impl<T> Deref for Vec3<T> {
    type Target = [T; 3];

    fn deref(&self) -> &[T; 3] {
        let (first, _) = self.0.split_first_chunk().expect("four have a first three");
        first
    }
}

impl<T> DerefMut for Vec3<T> {
    fn deref_mut(&mut self) -> &mut [T; 3] {
        let (first, _) = self.0.split_first_chunk_mut().expect("four have a first three");
        first
    }
}

impl<T: PartialEq> PartialEq for Vec3<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: PartialEq> PartialEq<[T; 3]> for Vec3<T> {
    fn eq(&self, other: &[T; 3]) -> bool {
        **self == *other
    }
}

impl<T: fmt::Debug> fmt::Debug for Vec3<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
