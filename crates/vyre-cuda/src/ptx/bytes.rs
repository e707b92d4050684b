//! Sums of four products of the bytes of two words, for which there is one instruction. What they are made of is still computed; the
//! assembler drops what nobody needs.

pub(super) use vyre_foundation::kernel::{ByteDot as Dot, byte_dots as dots};

#[cfg(test)]
mod tests {
    use vyre_foundation::kernel::{self, Options};
    use vyre_wgsl::{ImportOptions, import};

    use crate::ptx::{Target, emit, lowering};

    fn text(of: &str, ty: &str) -> String {
        let source = format!(
            "@group(0) @binding(0) var<storage, read> a: array<u32, 64>;
             @group(0) @binding(1) var<storage, read> b: array<u32, 64>;
             @group(0) @binding(2) var<storage, read_write> c: array<{ty}, 64>;
             @compute @workgroup_size(64)
             fn main(@builtin(local_invocation_id) id: vec3u) {{
                 let i = id.x;
                 c[i] = c[i] + {of};
             }}"
        );
        let program = import(&source, &ImportOptions::default()).expect("imports");
        let kernel = kernel::lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible: false }).expect("emits").text
    }

    #[test]
    fn sums_of_products_of_bytes_are_one_instruction() {
        let signed = text("dot4I8Packed(a[i], b[i])", "i32");
        assert!(signed.contains("dp4a.s32.s32"), "{signed}");
        let unsigned = text("dot4U8Packed(a[i], b[i])", "u32");
        assert!(unsigned.contains("dp4a.u32.u32"), "{unsigned}");
    }

    #[test]
    fn other_bytes_are_not() {
        let crossed = "(a[i] & 255u) * (b[i] & 255u) + ((a[i] >> 8u) & 255u) * ((b[i] >> 16u) & 255u)
            + ((a[i] >> 16u) & 255u) * ((b[i] >> 8u) & 255u) + (a[i] >> 24u) * (b[i] >> 24u)";
        assert!(!text(crossed, "u32").contains("dp4a"));
        let twice = "(a[i] & 255u) * (b[i] & 255u) + (a[i] & 255u) * (b[i] & 255u)
            + ((a[i] >> 16u) & 255u) * ((b[i] >> 16u) & 255u) + (a[i] >> 24u) * (b[i] >> 24u)";
        assert!(!text(twice, "u32").contains("dp4a"));
    }
}
