//! One small kernel for each language feature, run on the reference interpreter.

use vyre_foundation::ir::{DataType, Expr, Literal, Name, Program, TypeDef};
use vyre_reference::RunOptions;
use vyre_wgsl::{ImportOptions, import};

fn text(problems: &[vyre_spec::Diagnostic]) -> String {
    problems.iter().map(|problem| problem.to_string()).collect::<Vec<_>>().join("\n")
}

fn program(source: &str) -> Program {
    let program = import(source, &ImportOptions::default()).unwrap_or_else(|problems| panic!("{}", text(&problems)));
    program.validate().unwrap_or_else(|problems| panic!("{}\n{program:?}", text(&problems)));
    program
}

fn run_with(source: &str, inputs: &[&[u8]], options: &RunOptions) -> Vec<Vec<u8>> {
    let valid = program(source).validate().expect("validated before");
    vyre_reference::run(&valid, inputs, options).unwrap_or_else(|problem| panic!("{problem}"))
}

/// Runs one workgroup of statements that write to `out`, an array of 16 words of the type `ty`.
fn eval(ty: &str, declarations: &str, statements: &str) -> Vec<u32> {
    let source = format!(
        "enable f16;
        {declarations}
        @group(0) @binding(0) var<storage, read_write> out: array<{ty}, 16>;
        @compute @workgroup_size(1)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            var zero = 0u;
            {statements}
        }}"
    );
    let options = RunOptions { grid: Some([1, 1, 1]), ..RunOptions::default() };
    let results = run_with(&source, &[], &options);
    results[0].as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn floats(declarations: &str, statements: &str) -> Vec<f32> {
    eval("f32", declarations, statements).into_iter().map(f32::from_bits).collect()
}

fn close(actual: &[f32], expected: &[f32]) {
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!(a == e || (a - e).abs() <= 1e-5 * e.abs().max(1.0), "element {i}: {a}, expected {e}");
    }
}

#[test]
fn a_value_read_before_a_store_keeps_its_value() {
    let out = eval(
        "u32",
        "fn change(p: ptr<function, u32>) -> u32 { *p = *p + 1u; return *p; }",
        "var x = 5u;
         out[0] = x + change(&x);
         let before = x;
         x = 9u;
         out[1] = before;
         var i = 2u;
         let p = &out[i];
         i = 7u;
         *p = 11u;
         var a = 1u;
         var b = 2u;
         let swap = a; a = b; b = swap;
         out[3] = a * 10u + b;",
    );
    assert_eq!(out[..4], [11, 6, 11, 21]);
}

#[test]
fn loops_of_all_kinds() {
    let out = eval(
        "i32",
        "",
        "var n = 0;
         for (var i = 10; i > 0; i -= 3) { if i == 4 { continue; } n += i; }
         out[0] = n;
         var k = 0;
         while true { k++; if k > 6 { break; } }
         out[1] = k;
         var m = 1;
         loop { m *= 2; continuing { m += 1; break if m > 50; } }
         out[2] = m;
         var nested = 0;
         for (var y = 0; y < 5; y++) {
             for (var x = 0; x < 5; x++) {
                 if x == y { continue; }
                 if x > 3 { break; }
                 nested += x * y;
             }
         }
         out[3] = nested;
         var last = 0;
         for (var i = 2147483646; i < 2147483647; i++) { last += 1; }
         out[4] = last;
         var ones = 0;
         for (var i = 0; i < 3; i++) { var fresh: i32; fresh += 1; ones += fresh; }
         out[5] = ones;",
    );
    let mut nested = 0;
    for y in 0..5 {
        for x in 0..4 {
            nested += if x == y { 0 } else { x * y };
        }
    }
    assert_eq!(out[..6], [18, 7, 63, nested, 1, 3]);
}

#[test]
fn switches_with_default_anywhere() {
    let out = eval(
        "u32",
        "fn kind(x: i32) -> u32 {
             switch x {
                 default: { return 1u; }
                 case -1, 2: { return 2u; }
                 case 3: { if x == 3 { break; } return 9u; }
             }
             return 3u;
         }",
        "out[0] = kind(0); out[1] = kind(-1); out[2] = kind(2); out[3] = kind(3);
         switch zero { case 1u, default { out[4] = 7u; } case 5u { out[4] = 8u; } }",
    );
    assert_eq!(out[..5], [1, 2, 2, 3, 7]);
}

#[test]
fn pointers_and_private_variables() {
    let out = eval(
        "u32",
        "var<private> counter: u32 = 3u;
         var<private> table: array<u32, 4>;
         struct Pair { a: u32, b: array<u32, 2> }
         fn bump(by: u32) -> u32 { counter += by; table[counter % 4u] = counter; return counter; }
         fn twice(by: u32) -> u32 { return bump(by) + bump(by); }
         fn change(p: ptr<function, Pair>, i: u32) { (*p).b[i] = 40u + i; (*p).a = 1u; }
         fn sum(p: ptr<function, array<u32, 2>>) -> u32 { return (*p)[0] + (*p)[1]; }
         fn set_one(p: ptr<function, u32>) { *p = 77u; }",
        "out[0] = twice(2u);
         out[1] = counter;
         out[2] = table[1] * 100u + table[3];
         var pair = Pair(0u, array<u32, 2>(1u, 2u));
         change(&pair, 1u);
         out[3] = pair.a * 1000u + pair.b[0] * 100u + pair.b[1];
         out[4] = sum(&pair.b);
         set_one(&pair.b[zero]);
         out[5] = pair.b[0];",
    );
    assert_eq!(out[..6], [12, 7, 507, 1141, 42, 77]);
}

#[test]
fn overrides_become_constants() {
    let source = "
        override size: u32 = 4u;
        override twice: u32 = size * 2u;
        override on: bool = true;
        @id(7) override by: i32 = -3;
        var<workgroup> mem: array<u32, twice + 1u>;
        @group(0) @binding(0) var<storage, read_write> out: array<i32>;
        @compute @workgroup_size(size, 1, 1)
        fn main(@builtin(local_invocation_index) i: u32) {
            mem[i] = i;
            workgroupBarrier();
            if on { out[i] = by * i32(twice + mem[i]); }
        }";
    let made = program(source);
    let names: Vec<_> = made.constants().iter().map(|constant| constant.name.as_str()).collect();
    assert_eq!(names, ["size", "on", "by"]);
    assert_eq!(made.workgroup_exprs()[0], Some(Expr::constant("size")));
    let mut options = RunOptions { grid: Some([1, 1, 1]), ..RunOptions::default() };
    options.output_elements.push((Name::from("out"), 3));
    options.specialization.insert(Name::from("size"), Literal::U32(3));
    let results = run_with(source, &[], &options);
    assert_eq!(results[0], [-18i32, -21, -24].map(i32::to_le_bytes).concat());
}

#[test]
fn struct_layouts_are_wgsl_layouts() {
    let made = program(
        "struct Inner { v: vec3<f32>, s: f32 }
         struct Outer { @size(32) a: u32, inner: array<Inner, 2>, m: mat3x2<f32>, @align(32) tail: u32, rest: array<vec2<u32>> }
         @group(0) @binding(0) var<storage, read_write> x: Outer;
         @compute @workgroup_size(1) fn main() { x.rest[0].y = arrayLength(&x.rest) + x.a; x.m[1].x = x.inner[1].s; }",
    );
    let DataType::Handle(id) = made.buffer("x").expect("x").ty.clone() else { panic!("a struct") };
    let TypeDef::Struct { members, align, .. } = &made.types()[id.0 as usize] else { panic!("a struct") };
    assert_eq!(members.iter().map(|member| member.offset).collect::<Vec<_>>(), [0, 32, 64, 96, 104]);
    assert!(align.is_power_of_two() && *align >= 16);
}

#[test]
fn geometry_functions() {
    let out = floats(
        "",
        "let a = vec3(1.0, 2.0, 3.0 + f32(zero)); let b = vec3(-2.0, 0.5, 4.0);
         out[0] = length(a); out[1] = distance(a, b); out[2] = cross(a, b).y; out[3] = normalize(a).z;
         out[4] = reflect(a, vec3(0.0, 1.0, 0.0)).y; out[5] = faceForward(a, b, a).x;
         out[6] = refract(vec2(0.6, -0.8 + f32(zero)), vec2(0.0, 1.0), 0.5).y;
         out[7] = mix(a, b, 0.25).x; out[8] = step(vec3(2.0), a).y; out[9] = smoothstep(0.0, 4.0, a.x);
         out[10] = degrees(a.x); out[11] = radians(a.z); out[12] = saturate(b).y; out[13] = fract(-a.x * 0.25);
         out[14] = sign(b.x); out[15] = dot(a, b);",
    );
    close(
        &out,
        &[
            3.741_657_4,
            3.5,
            -10.0,
            0.801_783_7,
            -2.0,
            -1.0,
            -0.953_939_2,
            0.25,
            1.0,
            0.156_25,
            57.295_78,
            0.052_359_88,
            0.5,
            0.75,
            -1.0,
            11.0,
        ],
    );
}

#[test]
fn matrix_functions() {
    let out = floats(
        "",
        "let x = f32(zero);
         let m = mat2x3<f32>(vec3(1.0 + x, 2.0, 3.0), vec3(4.0, 5.0, 6.0));
         let v = m * vec2(1.0, -1.0); out[0] = v.x; out[1] = v.z;
         let w = vec3(1.0, 0.0, 2.0) * m; out[2] = w.x; out[3] = w.y;
         let t = transpose(m); out[4] = t[2].y;
         let p = t * m; out[5] = p[0][0]; out[6] = p[1].x;
         let q = m * 2.0 + m - 0.5 * m; out[7] = q[1][2];
         out[8] = determinant(mat3x3<f32>(2.0, 0.0, 1.0 + x, 1.0, 3.0, 0.0, 0.0, 1.0, 4.0));
         var n = mat2x2<f32>(); n[1] = vec2(3.0, 4.0); n[0].y = 5.0; out[9] = n[zero].y + n[1].x;",
    );
    close(&out, &[-3.0, -3.0, 7.0, 16.0, 6.0, 14.0, 32.0, 15.0, 25.0, 8.0]);
}

#[test]
fn numbers_taken_apart() {
    let out = floats(
        "",
        "let x = f32(zero);
         let m = modf(-3.75 + x); out[0] = m.fract; out[1] = m.whole;
         let f = frexp(10.0 + x); out[2] = f.fract; out[3] = f32(f.exp);
         let s = frexp(1e-40 + x); out[4] = s.fract; out[5] = f32(s.exp);
         out[6] = ldexp(0.75 + x, 5); out[7] = ldexp(1.0 + x, -149) * 1e38; out[8] = ldexp(1.5 + x, 200);
         let z = frexp(x); out[9] = f32(z.exp) + z.fract;
         out[10] = quantizeToF16(1.0009765 + x); out[11] = round(2.5 + x); out[12] = trunc(-1.5 + x);
         out[13] = f32(f16(0.1h) * 3.0h);",
    );
    let tiny = f32::from_bits(1) * 1e38;
    let third = half::f16::from_f32(half::f16::from_f32(0.1).to_f32() * 3.0).to_f32();
    let exponent = -132.0;
    let fraction = (f64::from(1e-40f32) * 2f64.powi(132)) as f32;
    close(
        &out,
        &[-0.75, -3.0, 0.625, 4.0, fraction, exponent, 24.0, tiny, f32::INFINITY, 0.0, 1.000_976_6, 2.0, -1.0, third],
    );
    assert_eq!(out[8], f32::INFINITY);
}

#[test]
fn packing_and_bits() {
    let out = eval(
        "u32",
        "",
        "let f = f32(zero);
         out[0] = pack4x8snorm(vec4(-1.0 + f, 0.5, 2.0, 0.0)); out[1] = pack2x16unorm(vec2(1.0 + f, 0.5));
         out[2] = pack2x16float(vec2(1.0 + f, -65504.0)); out[3] = bitcast<u32>(unpack2x16float(0xfbff3c00u + zero).y);
         out[4] = bitcast<u32>(unpack4x8snorm(0x807f0001u + zero).w); out[5] = bitcast<u32>(dot4I8Packed(0xff02fe01u + zero, 0x01010303u));
         out[6] = dot4U8Packed(0xff02fe01u + zero, 0x01010303u); out[7] = pack4xI8Clamp(vec4(-200, 200, 5, -1) + i32(zero));
         out[8] = u32(unpack4xI8(0x80ffu + zero).y + 200); out[9] = bitcast<u32>(firstLeadingBit(-5 + i32(zero)));
         out[10] = insertBits(0xffffffffu - zero, 0u, 8u, 8u); out[11] = bitcast<u32>(extractBits(-1 - i32(zero), 3u, 5u));
         out[12] = u32(any(vec2<bool>(zero == 1u, zero == 0u))) + 2u * u32(all(vec2<bool>(zero == 0u, zero == 1u)));
         out[13] = bitcast<u32>(unpack2x16float(0x00010001u + zero).x);",
    );
    let signed = |a: [i32; 4], b: [i32; 4]| a.iter().zip(b).map(|(a, b)| a * b).sum::<i32>() as u32;
    assert_eq!(out[0], 0x007f_4081);
    assert_eq!(out[1], 0x8000_ffff);
    assert_eq!(out[2], 0xfbff_3c00);
    assert_eq!(f32::from_bits(out[3]), -65504.0);
    assert_eq!(f32::from_bits(out[4]), -1.0);
    assert_eq!(out[5], signed([1, -2, 2, -1], [3, 3, 1, 1]));
    assert_eq!(out[6], 3 + 3 * 254 + 2 + 255);
    assert_eq!(out[7], 0xff05_7f80);
    assert_eq!(out[8], 72);
    assert_eq!(out[9], 2);
    assert_eq!(out[10], 0xffff_00ff);
    assert_eq!(out[11] as i32, -1);
    assert_eq!(out[12], 1);
    assert_eq!(f32::from_bits(out[13]), 2f32.powi(-24));
}

#[test]
fn vectors_mixed_with_scalars() {
    let out = eval(
        "i32",
        "const table = array<i32, 5>(10, 20, 30, 40, 50);",
        "let x = i32(zero);
         var v = vec4<i32>(1, 2, 3, 4) + x; v.y = 9; v[x + 2] = 7; v.w += 1;
         out[0] = v.x; out[1] = v.y; out[2] = v.z; out[3] = v.w;
         let w = 2 * v.wzyx - 1; out[4] = w.x; out[5] = w.w;
         out[6] = (v % 4).y; out[7] = select(v, -v, v > vec4(5)).y; out[8] = table[x + 3]; out[9] = v[x + 9];
         out[10] = i32(vec2<f32>(2.5, -7.9)[x + 1]); out[11] = (vec2<i32>(1, 2) << vec2<u32>(3u, zero + 33u)).y;",
    );
    assert_eq!(out[..12].iter().map(|&x| x as i32).collect::<Vec<_>>(), [1, 9, 7, 5, 9, 1, 1, -9, 40, 0, -7, 4]);
}

#[test]
fn atomics_in_structs_and_their_results() {
    let source = "
        struct State { lock: atomic<u32>, best: atomic<i32>, log: array<u32, 4> }
        @group(0) @binding(0) var<storage, read_write> state: State;
        @compute @workgroup_size(1)
        fn main() {
            let first = atomicCompareExchangeWeak(&state.lock, 1u, 5u);
            let second = atomicCompareExchangeWeak(&state.lock, 1u, 6u);
            state.log[0] = u32(first.exchanged) * 10u + u32(second.exchanged);
            state.log[1] = second.old_value;
            state.log[2] = atomicSub(&state.lock, 2u) + atomicExchange(&state.lock, 8u);
            atomicMax(&state.best, -1);
            atomicStore(&state.lock, atomicLoad(&state.lock) + 1u);
            state.log[3] = u32(atomicMin(&state.best, -9));
        }";
    let input = [1u32, (-4i32) as u32, 0, 0, 0, 0].map(u32::to_le_bytes).concat();
    let results = run_with(source, &[&input], &RunOptions { grid: Some([1, 1, 1]), ..RunOptions::default() });
    let expected = [9u32, (-9i32) as u32, 10, 5, 8, u32::MAX].map(u32::to_le_bytes).concat();
    assert_eq!(results[0], expected);
}

#[test]
fn subgroup_operations() {
    let source = "enable subgroups;
        @group(0) @binding(0) var<storage, read_write> out: array<vec4<u32>, 8>;
        @compute @workgroup_size(8)
        fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_size) size: u32) {
            let sum = subgroupAdd(i);
            let before = subgroupExclusiveAdd(i);
            let swapped = subgroupShuffleXor(i, 1u);
            let bits = subgroupBallot(i % 2u == 0u);
            out[i] = vec4<u32>(sum, before, swapped, bits.x + size + lane);
        }";
    let options = RunOptions { grid: Some([1, 1, 1]), subgroup_size: 4, ..RunOptions::default() };
    let results = run_with(source, &[], &options);
    let expected: Vec<u32> = (0..8u32)
        .flat_map(|i| {
            let first = i / 4 * 4;
            [4 * first + 6, (first..i).sum(), i ^ 1, 5 + 4 + i % 4]
        })
        .collect();
    assert_eq!(results[0], expected.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>());
}

#[test]
fn wide_types() {
    let source = "
        @group(0) @binding(0) var<storage, read_write> a: array<u64, 2>;
        @group(0) @binding(1) var<storage, read_write> b: array<f64, 1>;
        @compute @workgroup_size(1)
        fn main() {
            var x = 0xffffffffffflu; x = x * 3lu + u64(7u);
            a[0] = x >> 4u; a[1] = bitcast<u64>(i64(-2li));
            var y = 0.1lf; b[0] = y * 3.0lf;
        }";
    let results = run_with(source, &[], &RunOptions { grid: Some([1, 1, 1]), ..RunOptions::default() });
    assert_eq!(results[0], [(0xfff_ffff_ffffu64 * 3 + 7) >> 4, -2i64 as u64].map(u64::to_le_bytes).concat());
    assert_eq!(results[1], (0.1f64 * 3.0).to_le_bytes());
}
