//! The CPU backend's machine code as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use iced_x86::{
    Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, Mnemonic, OpKind, SymbolResolver, SymbolResult,
};
use vyre_cpu::CpuBackend;
use vyre_driver::VyreBackend;
use vyre_driver::backend::CompileOptions;
use vyre_foundation::ValidProgram;
use vyre_foundation::kernel::Options;
use vyre_spec::{Diagnostic, codes};

/// The assembly text of the machine code that the CPU backend makes of a program on this processor. What it interprets, and what other
/// processors run, has no such text, and the diagnostic says why.
pub fn to_asm(program: &ValidProgram, options: &Options) -> Result<String, Diagnostic> {
    let backend = CpuBackend::new().map_err(|error| error.into_diagnostic())?;
    let mut compile = CompileOptions::default();
    compile.specialization = options.specialization.clone();
    compile.workgroup_size = options.workgroup_size;
    let made = backend.compile(program, &compile).and_then(|pipeline| {
        Ok((backend.explain(&pipeline)?, backend.machine_code(&pipeline)?, Arc::clone(&pipeline).workgroup_size()))
    });
    let (how, code, [x, y, z]) = made.map_err(|error| error.into_diagnostic())?;
    match code {
        Some(code) if cfg!(target_arch = "x86_64") => {
            let name = program.name();
            Ok(format!("; {name}, workgroups of {x} x {y} x {z}: {how}\n{}", disassemble(&code)))
        }
        _ => Err(Diagnostic::new(
            &codes::backend::UNSUPPORTED_FEATURE,
            format!("there is no x86-64 code to show: {how}"),
        )
        .with_fix("Show the kernel form instead (`--to kernel`), or use a processor with AVX2.")),
    }
}

/// Code with labels, and the constants behind it. Branches are within the code, and the lowest address that an instruction reads
/// relative to itself is where the constants begin.
fn disassemble(code: &[u8]) -> String {
    let mut instructions = Vec::new();
    let mut constants: BTreeSet<u64> = BTreeSet::new();
    let mut labels = Labels::default();
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    while decoder.can_decode() && constants.first().is_none_or(|&first| decoder.ip() < first) {
        let instruction = decoder.decode();
        if instruction.is_ip_rel_memory_operand() {
            constants.insert(instruction.ip_rel_memory_address());
        }
        if matches!(instruction.op0_kind(), OpKind::NearBranch64) {
            labels.0.insert(instruction.near_branch_target(), String::new());
        }
        instructions.push(instruction);
    }
    // Between the last return and the constants there is only padding.
    let end = instructions.iter().rposition(|instruction| instruction.mnemonic() == Mnemonic::Ret);
    instructions.truncate(end.map_or(0, |at| at + 1));
    for (number, label) in labels.0.values_mut().enumerate() {
        *label = format!("L{}", number + 1);
    }
    for (number, &at) in constants.iter().enumerate() {
        labels.0.insert(at, format!("C{}", number + 1));
    }
    let mut formatter = IntelFormatter::with_options(Some(Box::new(labels.clone())), None);
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_hex_prefix("0x");
    formatter.options_mut().set_hex_suffix("");
    formatter.options_mut().set_rip_relative_addresses(false);
    let mut text = String::new();
    for instruction in &instructions {
        if let Some(label) = labels.0.get(&instruction.ip()) {
            let _ = writeln!(text, "{label}:");
        }
        text.push_str("    ");
        formatter.format(instruction, &mut text);
        text.push('\n');
    }
    // Each reaches to the next; a vector is the most that one can be.
    const MOST: u64 = 64;
    let ends = constants.iter().skip(1).copied().chain([code.len() as u64]);
    for (at, end) in constants.iter().zip(ends) {
        let bytes = code.get(*at as usize..end.min(at + MOST) as usize).unwrap_or_default();
        let words: Vec<String> = bytes
            .chunks_exact(4)
            .map(|word| format!("0x{:08x}", u32::from_le_bytes([word[0], word[1], word[2], word[3]])))
            .collect();
        let _ = writeln!(text, "{}: dd {}", labels.0[at], words.join(", "));
    }
    text
}

/// Names of addresses.
#[derive(Clone, Default)]
struct Labels(BTreeMap<u64, String>);

impl SymbolResolver for Labels {
    /// Only targets of branches and addresses relative to the instruction have names; other numbers are numbers, also where one
    /// is the address of a label.
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _: u32,
        operand: Option<u32>,
        address: u64,
        _: u32,
    ) -> Option<SymbolResult<'_>> {
        let named = match instruction.op_kind(operand?) {
            OpKind::NearBranch64 => true,
            OpKind::Memory => instruction.is_ip_rel_memory_operand(),
            _ => false,
        };
        self.0.get(&address).filter(|_| named).map(|name| SymbolResult::with_str(address, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_and_constants_have_names() {
        // L: vaddps zmm0, zmm0, [rip to the constants]; jmp L; ret; padding; four words.
        let mut code = vec![0x62, 0xf1, 0x7c, 0x48, 0x58, 0x05];
        code.extend(18u32.to_le_bytes());
        code.extend([0xeb, 0xf4, 0xc3]);
        code.resize(28, 0);
        code.extend(1.5f32.to_le_bytes());
        let text = disassemble(&code);
        assert_eq!(text, "L1:\n    vaddps zmm0, zmm0, [C1]\n    jmp short L1\n    ret\nC1: dd 0x3fc00000\n");
    }

    #[test]
    fn numbers_that_happen_to_be_addresses_stay_numbers() {
        // mov eax, 5; L: add rax, [rax + 5]; jmp L; ret: the label is at 5, too.
        let code = [0xb8, 5, 0, 0, 0, 0x48, 0x03, 0x40, 5, 0xeb, 0xfa, 0xc3];
        let text = disassemble(&code);
        assert_eq!(text, "    mov eax, 5\nL1:\n    add rax, [rax+5]\n    jmp short L1\n    ret\n");
    }

    #[test]
    fn real_code_is_read_to_its_end() {
        let program = crate::wgsl(
            "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
             @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                 x[id.x] = sin(x[id.x]) * 3.25;
             }",
        );
        let program = program.expect("the kernel is good").validate().expect("it is valid");
        match to_asm(&program, &Options::default()) {
            Ok(text) => assert!(text.contains("ret") && text.contains("mul") && !text.contains("(bad)"), "{text}"),
            Err(why) => assert!(!vyre_cpu::CpuPath::Avx2.is_here(), "{why}"),
        }
    }
}
