//! What kernels in PTX for `sm_90a` are put together of.

use std::fmt::Write;

use vyre::DataType;

/// A copy of a tile into shared memory, which tells a barrier how many bytes have come.
pub(crate) const COPY: &str = "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes";

/// A line of the text.
macro_rules! line {
    ($text:expr, $($part:tt)*) => {{
        // Writing to a string does not fail.
        let _ = writeln!($text, $($part)*);
    }};
}
pub(crate) use line;

/// Waits until a barrier has left the phase of this parity.
pub(crate) fn wait(t: &mut String, label: &str, barrier: &str, parity: &str) {
    line!(t, "{label}: mbarrier.try_wait.parity.shared::cta.b64 %p, [{barrier}], {parity}; @!%p bra {label};");
}

/// How instructions call the type.
pub(crate) fn name(ty: &DataType) -> &'static str {
    if *ty == DataType::BF16 { "bf16" } else { "f16" }
}

/// What a warpgroup's matrices are in shared memory: swizzled in groups of eight lines of 128 bytes. Where `k` goes along the lines a step of 16
/// is 32 bytes further; else it is 16 lines, and so many bytes later the next 64 columns follow.
pub(crate) fn descriptor(along_lines: bool, next_columns: usize) -> (u64, u32) {
    const SWIZZLED: u64 = 1 << 62;
    let groups = (1024 >> 4) << 32;
    match along_lines {
        true => (SWIZZLED | groups | 1 << 16, 32 >> 4),
        false => (SWIZZLED | groups | (next_columns as u64 >> 4) << 16, 2048 >> 4),
    }
}

/// Four lanes exchange four words each, so that a lane has those of its own eight columns: in `%r29` to `%r32`. `%odd` and `%upper` are the bits
/// of the lane's number among the four.
pub(crate) fn exchange(t: &mut String, words: [String; 4]) {
    let [x0, x1, x2, x3] = words;
    // A transpose of 4 by 4: between neighbours, then between pairs.
    line!(t, "selp.b32 %r21, {x0}, {x1}, %odd; shfl.sync.bfly.b32 %r21, %r21, 1, 31, 0xffffffff;");
    line!(t, "selp.b32 %r22, {x2}, {x3}, %odd; shfl.sync.bfly.b32 %r22, %r22, 1, 31, 0xffffffff;");
    line!(t, "selp.b32 %r23, %r21, {x0}, %odd; selp.b32 %r24, {x1}, %r21, %odd;");
    line!(t, "selp.b32 %r25, %r22, {x2}, %odd; selp.b32 %r26, {x3}, %r22, %odd;");
    line!(t, "selp.b32 %r27, %r23, %r25, %upper; shfl.sync.bfly.b32 %r27, %r27, 2, 31, 0xffffffff;");
    line!(t, "selp.b32 %r28, %r24, %r26, %upper; shfl.sync.bfly.b32 %r28, %r28, 2, 31, 0xffffffff;");
    line!(t, "selp.b32 %r29, %r27, %r23, %upper; selp.b32 %r30, %r28, %r24, %upper;");
    line!(t, "selp.b32 %r31, %r25, %r27, %upper; selp.b32 %r32, %r26, %r28, %upper;");
}

/// Registers of one name, as instructions list them.
pub(crate) fn registers(name: &str, range: std::ops::Range<usize>) -> String {
    let all: Vec<String> = range.map(|at| format!("%{name}{at}")).collect();
    all.join(", ")
}

/// Holds the texts of variants against the assembler that `VYRE_PTXAS` names; without one there is nothing to ask.
#[cfg(test)]
pub(crate) fn assemble(of: &str, variants: &[vyre::variant::Variant]) {
    let Some(ptxas) = std::env::var_os("VYRE_PTXAS") else {
        eprintln!("skipped: VYRE_PTXAS names no assembler");
        return;
    };
    let folder = std::env::temp_dir().join(format!("vyre-{of}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for variant in variants {
        let vyre::variant::Code::Ptx(ptx) = variant.code() else { panic!("it is PTX") };
        let (file, out) = (folder.join("kernel.ptx"), folder.join("kernel.cubin"));
        std::fs::write(&file, &ptx.text).expect("a file");
        let mut command = std::process::Command::new(&ptxas);
        command.args(["-arch=sm_90a", "-v"]).arg(&file).arg("-o").arg(out);
        let ran = command.output().expect("an assembler");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.contains("0 bytes spill stores"), "{variant}: {said}");
        assert!(!said.contains("serialized"), "{variant}: {said}");
    }
    std::fs::remove_dir_all(&folder).expect("it was there");
}
