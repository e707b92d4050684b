use vyre_foundation::ir::DataType;

/// What an array can hold: plain numbers and structs of them.
///
/// A struct of your own that is [`Pod`](bytemuck::Pod) becomes an element by `impl vyre::Element for Particle {}`; it then has to lie in
/// memory as WGSL lays its struct out, and its size is checked against that.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// The type as kernels know it; `None` for a struct.
    fn data_type() -> Option<DataType> {
        None
    }
}

macro_rules! elements {
    ($($rust:ty => $ty:expr),* $(,)?) => {
        $(impl Element for $rust {
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
    [u32; 2] => DataType::vector(DataType::U32, 2), [u32; 4] => DataType::vector(DataType::U32, 4),
    [i32; 2] => DataType::vector(DataType::I32, 2), [i32; 4] => DataType::vector(DataType::I32, 4),
    [f32; 2] => DataType::vector(DataType::F32, 2), [f32; 4] => DataType::vector(DataType::F32, 4),
}
