//! What an adapter rounds as IEEE 754 says: Vulkan promises little, most drivers do much, so a few hard cases are tried once.

use vyre_driver::backend::{Binding, CompileOptions, Launch, Order};
use vyre_driver::{BackendError, VyreBackend};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, MathOp, Node, Program};
use vyre_foundation::kernel::{Binary, Block, Features, Inst, Kernel, Memory, Op, Scalar, Unary, Value};

use crate::backend::WgpuBackend;
use crate::emit::Arithmetic;

/// The kernel has operations that adapters may round otherwise.
pub(crate) fn matters(kernel: &Kernel) -> bool {
    fn block(kernel: &Kernel, body: &Block) -> bool {
        body.insts.iter().any(|inst| match inst {
            Inst::Let(_, Op::Fma(..) | Op::Unary(Unary::Sqrt, _)) => true,
            Inst::Let(value, Op::Const(literal)) => {
                let scalar = kernel.values[value.index()].ty.scalar;
                scalar.is_float() && literal.bits() & !(1 << (scalar.bits() - 1)) == 0
            }
            // Zeros that the driver's compiler may find by itself.
            Inst::Let(value, Op::Cast(from) | Op::BitCast(from)) => {
                let is_float = |value: &Value| kernel.values[value.index()].ty.scalar.is_float();
                is_float(value) && !is_float(from)
            }
            Inst::Let(value, Op::Load { address, .. }) => {
                matches!(address.memory, Memory::Local(_)) && kernel.values[value.index()].ty.scalar.is_float()
            }
            Inst::Let(_, Op::Binary(Binary::Div | Binary::Rem, left, _)) => {
                kernel.values[left.index()].ty.scalar.is_float()
            }
            Inst::If { then, otherwise, .. } => block(kernel, then) || block(kernel, otherwise),
            Inst::Loop(repeat) => block(kernel, &repeat.body),
            _ => false,
        })
    }
    block(kernel, &kernel.body)
}

/// The kernel divides integers of 64 bits.
pub(crate) fn divides_wide(kernel: &Kernel) -> bool {
    fn block(kernel: &Kernel, body: &Block) -> bool {
        body.insts.iter().any(|inst| match inst {
            Inst::Let(value, Op::Binary(Binary::Div | Binary::Rem, ..)) => {
                matches!(kernel.values[value.index()].ty.scalar, Scalar::U64 | Scalar::I64)
            }
            Inst::If { then, otherwise, .. } => block(kernel, then) || block(kernel, otherwise),
            Inst::Loop(repeat) => block(kernel, &repeat.body),
            _ => false,
        })
    }
    block(kernel, &kernel.body)
}

/// Whether quotients of 64 bits are right also where the driver's compiler knows something of the dividend. NVIDIA's (580) then mixes up their
/// halves: `(x - min(x, 1 << 63)) / 17` is not 0 for a small `x`.
pub(crate) fn wide_quotients(backend: &WgpuBackend) -> Result<bool, BackendError> {
    const HIGH: u64 = 1 << 63;
    let at = || Expr::global_id(0);
    let x = || Expr::load("x", at());
    let chosen = |op: MathOp| Expr::Math { op, args: vec![x(), Expr::u64(HIGH)] };
    let output = |name: &str, binding| BufferDecl::output(name, binding, DataType::U64);
    let program = Program::wrapped(
        vec![BufferDecl::read("x", 0, DataType::U64), output("least", 1), output("most", 2), output("rest", 3)],
        [64, 1, 1],
        vec![
            Node::store("least", at(), (x() - chosen(MathOp::Min)) / Expr::u64(17)),
            Node::store("most", at(), (x() - chosen(MathOp::Max)) / Expr::u64(17)),
            Node::store("rest", at(), (x() - chosen(MathOp::Max)) % Expr::u64(17)),
        ],
    );
    let numbers: Vec<u64> = (0..64).map(|at| if at % 3 == 2 { HIGH + 1000 * at } else { at / 2 }).collect();
    let bytes = |each: &dyn Fn(u64) -> u64| numbers.iter().flat_map(|&x| each(x).to_le_bytes()).collect::<Vec<u8>>();
    let expected: [Vec<u8>; 3] = [
        bytes(&|x| (x - x.min(HIGH)) / 17),
        bytes(&|x| x.wrapping_sub(x.max(HIGH)) / 17),
        bytes(&|x| x.wrapping_sub(x.max(HIGH)) % 17),
    ];
    let valid = program.validate()?;
    let options = CompileOptions::default();
    let pipeline = backend.compile_lowered(&backend.lower(&valid, &options)?, &options, Arithmetic::exact)?;
    let (size, order) = (8 * numbers.len() as u64, Order::default());
    let bindings = [(); 4].map(|()| backend.allocate(size));
    let bindings =
        bindings.into_iter().map(|buffer| Ok(Binding::from(buffer?))).collect::<Result<Vec<_>, BackendError>>()?;
    backend.upload(&bindings[0].buffer, 0, &bytes(&|x| x), &order).map(|ticket| backend.forget(ticket))?;
    let ticket = backend.submit(&pipeline, &Launch::new(&bindings, [1, 1, 1]))?;
    backend.wait(ticket, None)?;
    for (binding, expected) in bindings[1..].iter().zip(&expected) {
        let mut results = vec![0; expected.len()];
        backend.download(&binding.buffer, 0, &mut results, &order)?;
        if results != *expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The kernel computes with floats of 16 or 32 bits, and so may meet subnormal numbers; moving them is no computing.
pub(crate) fn computes_floats(kernel: &Kernel) -> bool {
    fn block(kernel: &Kernel, body: &Block) -> bool {
        let narrow = |value: Value| matches!(kernel.values[value.index()].ty.scalar, Scalar::F16 | Scalar::F32);
        body.insts.iter().any(|inst| match inst {
            Inst::Let(value, Op::Unary(_, a) | Op::Cast(a)) => narrow(*value) || narrow(*a),
            Inst::Let(_, Op::Binary(_, a, _) | Op::Fma(a, ..) | Op::Subgroup(_, a, _)) => narrow(*a),
            Inst::Let(_, Op::Matrix(_)) => true,
            Inst::If { then, otherwise, .. } => block(kernel, then) || block(kernel, otherwise),
            Inst::Loop(repeat) => block(kernel, &repeat.body),
            _ => false,
        })
    }
    block(kernel, &kernel.body)
}

/// Tries each operation on each float type that the adapter has. What can't be tried counts as not exact.
pub(crate) fn measure(backend: &WgpuBackend) -> Arithmetic {
    let features = backend.capabilities().features;
    let f64 = features.contains(Features::F64.union(Features::INT64));
    let mut arithmetic =
        Arithmetic { fma: [false; 3], divide: [false; 3], sqrt: [false; 3], zeros: true, subnormals: true, f64 };
    let tried = [
        features.contains(Features::F16).then(|| try_type(backend, &HALF)),
        Some(try_type(backend, &SINGLE)),
        f64.then(|| try_type(backend, &DOUBLE)),
    ];
    for (at, tried) in tried.into_iter().enumerate() {
        let Some(tried) = tried else { continue };
        let [fma, divide, sqrt, zeros] = tried.unwrap_or([false; 4]);
        (arithmetic.fma[at], arithmetic.divide[at], arithmetic.sqrt[at]) = (fma, divide, sqrt);
        arithmetic.zeros &= zeros;
    }
    arithmetic.subnormals = keeps_subnormals(backend).unwrap_or(false);
    arithmetic
}

/// Whether the smallest f32 is more than zero, and its own absolute value.
fn keeps_subnormals(backend: &WgpuBackend) -> Result<bool, BackendError> {
    let number = || Expr::load("a", Expr::u32(0));
    let absolute = Expr::Math { op: MathOp::Abs, args: vec![-number()] };
    let program = Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::F32), BufferDecl::output("out", 1, DataType::F32).with_count(2)],
        [1, 1, 1],
        vec![
            Node::store("out", Expr::u32(0), Expr::select(number().gt(Expr::f32(0.0)), number(), Expr::f32(1.0))),
            Node::store("out", Expr::u32(1), absolute),
        ],
    );
    let smallest = f32::from_bits(1).to_le_bytes();
    let valid = program.validate()?;
    let pipeline = backend.compile_with(&valid, &CompileOptions::default(), Arithmetic::exact)?;
    let (input, output) = (backend.allocate(4)?, backend.allocate(8)?);
    let order = Order::default();
    backend.upload(&input, 0, &smallest, &order).map(|ticket| backend.forget(ticket))?;
    let bindings = [Binding::from(input), Binding::from(output.clone())];
    let ticket = backend.submit(&pipeline, &Launch::new(&bindings, [1, 1, 1]))?;
    backend.wait(ticket, None)?;
    let mut results = [0; 8];
    backend.download(&output, 0, &mut results, &order)?;
    Ok(results[..4] == smallest && results[4..] == smallest)
}

/// A float type with its own arithmetic on the host.
struct Float {
    ty: DataType,
    bytes: usize,
    /// From a whole number and a power of two.
    make: fn(i64, i32) -> Vec<u8>,
    fma: fn([&[u8]; 3]) -> Vec<u8>,
    divide: fn([&[u8]; 2]) -> Vec<u8>,
    sqrt: fn(&[u8]) -> Vec<u8>,
}

macro_rules! float {
    ($name:ident, $variant:ident, $ty:ty, $bytes:literal) => {
        const $name: Float = {
            fn read(bytes: &[u8]) -> $ty {
                <$ty>::from_le_bytes(std::array::from_fn(|i| bytes[i]))
            }
            Float {
                ty: DataType::$variant,
                bytes: $bytes,
                make: |digits, power| ((digits as f64 * 2f64.powi(power)) as $ty).to_le_bytes().to_vec(),
                fma: |[a, b, c]| read(a).mul_add(read(b), read(c)).to_le_bytes().to_vec(),
                divide: |[a, b]| (read(a) / read(b)).to_le_bytes().to_vec(),
                sqrt: |a| read(a).sqrt().to_le_bytes().to_vec(),
            }
        };
    };
}
float!(SINGLE, F32, f32, 4);
float!(DOUBLE, F64, f64, 8);

const HALF: Float = {
    use half::f16;
    fn read(bytes: &[u8]) -> f64 {
        f16::from_le_bytes([bytes[0], bytes[1]]).to_f64()
    }
    fn write(value: f64) -> Vec<u8> {
        f16::from_f64(value).to_le_bytes().to_vec()
    }
    // f64 has more than four times the digits and all exponents, so these are rounded once.
    Float {
        ty: DataType::F16,
        bytes: 2,
        make: |digits, power| write(digits as f64 * 2f64.powi(power)),
        fma: |[a, b, c]| write(read(a) * read(b) + read(c)),
        divide: |[a, b]| write(read(a) / read(b)),
        sqrt: |a| write(read(a).sqrt()),
    }
};

/// Whether `fma`, division and square root give what the host gives.
fn try_type(backend: &WgpuBackend, float: &Float) -> Result<[bool; 4], BackendError> {
    let at = || Expr::global_id(0);
    let operand = |name: &str| Expr::load(name, at());
    let math = |op, args| Expr::Math { op, args };
    let zero = || Expr::f32(0.0).cast(float.ty.clone());
    let program = Program::wrapped(
        vec![
            BufferDecl::read("a", 0, float.ty.clone()),
            BufferDecl::read("b", 1, float.ty.clone()),
            BufferDecl::read("c", 2, float.ty.clone()),
            BufferDecl::output("fma", 3, float.ty.clone()),
            BufferDecl::output("divide", 4, float.ty.clone()),
            BufferDecl::output("sqrt", 5, float.ty.clone()),
            BufferDecl::output("zeros", 6, float.ty.clone()),
        ],
        [64, 1, 1],
        vec![
            Node::store("fma", at(), math(MathOp::Fma, vec![operand("a"), operand("b"), operand("c")])),
            Node::store("divide", at(), operand("a") / operand("b")),
            Node::store("sqrt", at(), math(MathOp::Sqrt, vec![operand("a")])),
            // Nothing times zero, negated, is the zero that plus zero makes positive.
            Node::store("zeros", at(), -(operand("c") * zero()) + zero()),
        ],
    );
    // Numbers of all digits, near each other and apart; the third takes most of the product away where it can.
    let digits = float.bytes as u32 * 8 - [0, 0, 5, 0, 8, 0, 0, 0, 11][float.bytes];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        state ^ (state >> 29)
    };
    const COUNT: usize = 512;
    let mut inputs = [Vec::new(), Vec::new(), Vec::new()];
    for case in 0..COUNT {
        let mut number = |power: i32| {
            let whole = (next() >> (64 - digits)) as i64 | (1 << (digits - 1)) | 1;
            (float.make)(whole, power - digits as i32 + 1)
        };
        let spread = (case % 7) as i32 - 3;
        let (a, b) = (number(spread), number(-(case as i32 % 3)));
        let zero = vec![0; float.bytes];
        let product = (float.fma)([&a, &b, &zero]);
        let mut c = if case % 3 == 0 { product } else { number(spread) };
        if let Some(last) = c.last_mut() {
            *last ^= 0x80;
        }
        for (input, number) in inputs.iter_mut().zip([a, b, c]) {
            input.extend(number);
        }
    }
    let valid = program.validate()?;
    let pipeline = backend.compile_with(&valid, &CompileOptions::default(), Arithmetic::exact)?;
    let bytes = (COUNT * float.bytes) as u64;
    let mut bindings = Vec::new();
    for slot in 0..7 {
        let buffer = backend.allocate(bytes)?;
        if let Some(input) = inputs.get(slot) {
            backend.upload(&buffer, 0, input, &Order::default()).map(|ticket| backend.forget(ticket))?;
        }
        bindings.push(Binding::new(buffer, bytes));
    }
    let grid = [COUNT as u32 / 64, 1, 1];
    let ticket = backend.submit(&pipeline, &Launch::new(&bindings, grid))?;
    backend.wait(ticket, None)?;
    let mut same = [true; 4];
    let [a, b, c] = inputs.each_ref().map(|input| input.chunks_exact(float.bytes).collect::<Vec<_>>());
    for (operation, same) in same.iter_mut().enumerate() {
        let mut results = vec![0; bytes as usize];
        backend.download(&bindings[3 + operation].buffer, 0, &mut results, &Order::default())?;
        *same = results.chunks_exact(float.bytes).enumerate().all(|(case, result)| {
            let expected = match operation {
                0 => (float.fma)([a[case], b[case], c[case]]),
                1 => (float.divide)([a[case], b[case]]),
                2 => (float.sqrt)(a[case]),
                _ => vec![0; float.bytes],
            };
            result == expected
        });
    }
    Ok(same)
}
