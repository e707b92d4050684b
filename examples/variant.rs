//! A kernel and a second implementation of it: a Rust function for the processor, and PTX for NVIDIA GPUs from compute capability 8.0 on. The
//! engine compares each with the kernel on copies of the data before it runs, measures it as it works, and uses what is fastest.
//!
//! `cargo run --example variant`

use vyre::variant::{Blocks, HostSlice, Param, Ptx, Variant};

/// Sums of the whole numbers up to each element, the long way.
const KERNEL: &str = "
    @group(0) @binding(0) var<storage, read> x: array<u32>;
    @group(0) @binding(1) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(64) fn triangle(@builtin(global_invocation_id) id: vec3u) {
        if id.x >= arrayLength(&y) { return; }
        var sum = 0u;
        for (var i = 0u; i <= x[id.x]; i += 1u) { sum = (sum ^ i) + 2u * (sum & i); }
        y[id.x] = sum;
    }";

/// The short way, x (x + 1) / 2, one element for each thread.
const PTX: &str = "
.version 7.0
.target sm_80
.address_size 64
.visible .entry triangle(.param .u64 x, .param .u64 y, .param .u64 count)
{
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<8>;
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r0, %r0, %r1, %r2;
    ld.param.u64 %d0, [count]; cvt.u64.u32 %d1, %r0; setp.ge.u64 %p, %d1, %d0; @%p bra END;
    ld.param.u64 %d2, [x]; cvta.to.global.u64 %d2, %d2; shl.b64 %d3, %d1, 2; add.s64 %d2, %d2, %d3;
    ld.global.u32 %r1, [%d2]; add.u32 %r2, %r1, 1; mul.wide.u32 %d4, %r1, %r2; shr.u64 %d4, %d4, 1; cvt.u32.u64 %r3, %d4;
    ld.param.u64 %d5, [y]; cvta.to.global.u64 %d5, %d5; add.s64 %d5, %d5, %d3; st.global.u32 [%d5], %r3;
END:
    ret;
}
";

fn on_the_processor(buffers: &mut [HostSlice<'_>]) {
    let [x, y] = buffers else { return };
    for (y, x) in y.bytes_mut().chunks_exact_mut(4).zip(x.bytes().chunks_exact(4)) {
        let x = u64::from(u32::from_le_bytes([x[0], x[1], x[2], x[3]]));
        y.copy_from_slice(&((x * (x + 1) / 2) as u32).to_le_bytes());
    }
}

fn on_the_gpu() -> Variant {
    let ptx = Ptx {
        target: "sm_80".to_owned(),
        entry: "triangle".to_owned(),
        text: PTX.to_owned(),
        block: [256, 1, 1],
        blocks: Blocks::Each([256, 1, 1]),
        shared: 0,
        tensor_maps: Vec::new(),
        params: vec![Param::Buffer(0), Param::Buffer(1), Param::Elements(1)],
    };
    // SAFETY: each thread reads and writes the one element of its number, if there is one.
    unsafe { Variant::ptx("closed form", ptx) }
}

fn main() -> Result<(), vyre::Error> {
    let engine = vyre::Engine::builder().without_disk().open()?;
    // The number behind the name tells versions of the function apart: what was measured of another is forgotten.
    let function = Variant::host("closed form", 1, on_the_processor);
    let kernel = engine.kernel(&vyre::wgsl(KERNEL)?)?.variant(function)?.variant(on_the_gpu())?;
    let x = engine.array(&(0..65_536u32).map(|i| 1000 + i % 1000).collect::<Vec<_>>())?;
    let mut y = engine.zeros::<u32>(65_536)?;
    for _ in 0..400 {
        kernel.bind("x", &x).bind("y", &mut y).launch()?.wait()?;
    }
    assert_eq!(y.to_vec()?[999], 1999 * 2000 / 2);
    println!("{}", kernel.explain());
    for notice in engine.take_notices() {
        println!("{}: {}", notice.code.id, notice.message);
    }
    Ok(())
}
