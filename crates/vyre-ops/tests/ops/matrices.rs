use vyre_ops::{Activation, Epilogue, Ops, Transposed};

use crate::support::{Random, engines, read};

#[test]
fn products_are_chains_of_fused_sums() {
    let mut random = Random(30);
    let sizes: &[[usize; 4]] = &[
        [1, 1, 1, 1],
        [1, 3, 5, 2],
        [2, 33, 31, 17],
        [1, 130, 129, 70],
        [3, 16, 64, 8],
        [1, 5, 0, 4],
        [1, 0, 3, 4],
        [1, 11, 1, 300],
        [2, 128, 32, 128],
        // Copied to panels on processors, and with more rows than stay in a cache.
        [2, 67, 260, 70],
        [1, 133, 2100, 33],
        [1, 260, 260, 260],
    ];
    for (name, engine) in engines() {
        for &[batches, m, k, n] in sizes {
            let (x, y) = (random.units(batches * m * k), random.units(batches * k * n));
            for transposed in [(false, false), (true, false), (false, true), (true, true)] {
                let transposed = Transposed { a: transposed.0, b: transposed.1 };
                let a = engine.from_shape(if transposed.a { [batches, k, m] } else { [batches, m, k] }, &x).expect("a");
                let b = engine.from_shape(if transposed.b { [batches, n, k] } else { [batches, k, n] }, &y).expect("b");
                let mut expected = Vec::new();
                for at in 0..batches {
                    for row in 0..m {
                        for column in 0..n {
                            let mut sum = 0.0f32;
                            for d in 0..k {
                                let left = if transposed.a { d * m + row } else { row * k + d };
                                let right = if transposed.b { column * k + d } else { d * n + column };
                                sum = x[at * m * k + left].mul_add(y[at * k * n + right], sum);
                            }
                            expected.push(sum);
                        }
                    }
                }
                let product = a.matmul_transposed(&b, transposed).expect("product");
                assert_eq!(product.shape(), [batches, m, n]);
                assert!(read(Ok(product)).expect("f32") == expected, "{name} {batches} {m} {k} {n} {transposed:?}");
            }
        }
        let a = engine.from_shape([2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("a");
        let x = engine.array(&[1.0f32, 0.5, -1.0]).expect("x");
        assert_eq!(read(a.matvec(&x)).expect("f32"), [-1.0, 0.5], "{name}");
        assert_eq!(read(x.dot(&x)).expect("f32"), [2.25], "{name}");
        assert_eq!(a.matmul(&x).expect_err("no matrix").code(), "V1311");
        assert_eq!(a.matmul(&a).expect_err("does not fit").code(), "V1311");
    }
}

#[test]
fn rows_are_softened_and_normalised() {
    let mut random = Random(31);
    for (name, engine) in engines() {
        for [rows, along] in [[1, 1], [3, 5], [7, 128], [4, 1000], [2, 5000], [0, 4]] {
            let x: Vec<f32> = random.units(rows * along).iter().map(|x| x * 30.0).collect();
            let array = engine.from_shape([rows, along], &x).expect("x");
            let softmax = read(array.softmax()).expect("f32");
            let log = read(array.log_softmax()).expect("f32");
            let layer = read(array.layer_norm(1e-5)).expect("f32");
            let rms = read(array.rms_norm(1e-5)).expect("f32");
            for row in 0..rows {
                let x: Vec<f64> = x[row * along..][..along].iter().map(|&x| f64::from(x)).collect();
                let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
                let mean = x.iter().sum::<f64>() / along as f64;
                let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / along as f64;
                let square = x.iter().map(|x| x * x).sum::<f64>() / along as f64;
                for (at, x) in x.iter().enumerate() {
                    let here = row * along + at;
                    let near = |found: f32, expected: f64, most: f64| {
                        assert!(
                            (f64::from(found) - expected).abs() <= most,
                            "{name} {rows} {along}: {found} {expected}"
                        );
                    };
                    near(softmax[here], (x - most).exp() / sum, 1e-6);
                    near(log[here], x - most - sum.ln(), 1e-4);
                    near(layer[here], (x - mean) / (variance + 1e-5).sqrt(), 1e-4);
                    near(rms[here], x / (square + 1e-5).sqrt(), 1e-4);
                }
            }
        }
        let words = engine.array(&[1u32]).expect("words");
        assert_eq!(words.softmax().expect_err("whole numbers").code(), "V1314");
    }
}

#[test]
fn products_of_halves_are_summed_in_f32() {
    use half::f16;
    let mut random = Random(33);
    let mut tried = 0;
    for (name, engine) in engines() {
        for (m, k, n, transposed) in [
            (5, 7, 3, (false, false)),
            (128, 64, 256, (false, false)),
            (256, 32, 128, (true, true)),
            (130, 40, 9, (false, true)),
        ] {
            let x: Vec<f16> = (0..2 * m * k).map(|_| f16::from_f32(random.unit())).collect();
            let y: Vec<f16> = (0..2 * k * n).map(|_| f16::from_f32(random.unit())).collect();
            let transposed = Transposed { a: transposed.0, b: transposed.1 };
            let a = engine.from_shape(if transposed.a { [2, k, m] } else { [2, m, k] }, &x).expect("a");
            let b = engine.from_shape(if transposed.b { [2, n, k] } else { [2, k, n] }, &y).expect("b");
            let Some(found) = read(a.matmul_transposed(&b, transposed)) else { continue };
            tried += 1;
            for (at, found) in found.iter().map(|found| found.to_f64()).enumerate() {
                let (matrix, row, column) = (at / (m * n), at / n % m, at % n);
                let product = |d: usize| {
                    let left = if transposed.a { d * m + row } else { row * k + d };
                    let right = if transposed.b { column * k + d } else { d * n + column };
                    x[matrix * m * k + left].to_f64() * y[matrix * k * n + right].to_f64()
                };
                let exact: f64 = (0..k).map(product).sum();
                let near = exact.abs() * 2f64.powi(-10) + 1e-5;
                assert!((found - exact).abs() <= near, "{name} {m} {k} {n} {at}: {found} {exact}");
            }
        }
    }
    assert!(tried > 0, "the processor has f16");
}

/// Epilogues of all steps.
fn epilogues(engine: &vyre::Engine, bias: &[f32]) -> Vec<Epilogue> {
    let bias = engine.array(bias).expect("bias").to_term();
    let activations = [Activation::None, Activation::Relu, Activation::Gelu];
    let mut all = Vec::new();
    for (scale, bias) in [(None, None), (Some(0.3), None), (None, Some(&bias)), (Some(-1.7), Some(&bias))] {
        all.extend(activations.map(|activation| Epilogue { scale, bias: bias.cloned(), activation }));
    }
    all
}

#[test]
fn epilogues_give_the_bits_of_the_same_steps_behind_the_product() {
    let mut random = Random(34);
    for (name, engine) in engines() {
        let is_slow = name != "cpu" && !name.starts_with("cuda");
        // Of a few, one with panels on processors, one of whole tiles, and on GPUs one that has forms of its own.
        let sizes = [[1, 3, 5, 7], [2, 33, 31, 17], [1, 67, 260, 70], [1, 128, 16, 132], [1, 256, 256, 256]];
        for &[batches, m, k, n] in if is_slow { &sizes[..2] } else { &sizes[..] } {
            let (x, y, bias) = (random.units(batches * m * k), random.units(batches * k * n), random.units(n));
            let transposed = Transposed { a: random.below(2) == 1, b: random.below(2) == 1 };
            let a = engine.from_shape(if transposed.a { [batches, k, m] } else { [batches, m, k] }, &x).expect("a");
            let b = engine.from_shape(if transposed.b { [batches, n, k] } else { [batches, k, n] }, &y).expect("b");
            let product = a.matmul_transposed(&b, transposed).expect("product");
            let bias_array = engine.array(&bias).expect("bias");
            for epilogue in epilogues(engine, &bias) {
                let mut lazy = product.lazy();
                if let Some(scale) = epilogue.scale {
                    lazy = lazy * scale as f32;
                }
                if epilogue.bias.is_some() {
                    lazy = lazy + &bias_array;
                }
                let expected = match epilogue.activation {
                    Activation::None => lazy.eval(),
                    Activation::Relu => lazy.clone().le(0.0).select(0.0, &lazy).eval(),
                    Activation::Gelu => {
                        let inner = (&lazy * &lazy).mul_add(0.035_677_407_f32, 0.797_884_6);
                        let half = &lazy * 0.5;
                        half.mul_add((inner * &lazy).tanh(), half.clone()).eval()
                    }
                };
                let found = a.matmul_with(&b, transposed, &epilogue).expect("product");
                assert_eq!(found.shape(), [batches, m, n]);
                let bits = |all: Vec<f32>| all.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                let (found, expected) = (read(Ok(found)).expect("f32"), read(expected).expect("f32"));
                let told = format!("{name} {batches} {m} {k} {n} {:?} {:?}", epilogue.scale, epilogue.activation);
                assert!(bits(found) == bits(expected), "{told}");
            }
        }
        // Sums of nothing are zeros, and have a bias.
        let (a, b) =
            (engine.from_shape([2, 0], &[0f32; 0]).expect("a"), engine.from_shape([0, 3], &[0f32; 0]).expect("b"));
        let bias = engine.array(&[1.0f32, -2.0, 3.0]).expect("bias");
        let epilogue = Epilogue { bias: Some(bias.to_term()), activation: Activation::Relu, ..Epilogue::default() };
        let found = a.matmul_with(&b, Transposed::default(), &epilogue).expect("product");
        assert_eq!(read(Ok(found)).expect("f32"), [1.0, 0.0, 3.0, 1.0, 0.0, 3.0], "{name}");
        let other = engine.array(&[1.0f32, 2.0]).expect("bias");
        let epilogue = Epilogue { bias: Some(other.to_term()), ..Epilogue::default() };
        let refused = a.matmul_with(&b, Transposed::default(), &epilogue).expect_err("a bias of two columns");
        assert_eq!(refused.code(), "V1311");
        let words = engine.array(&[1u32, 2, 3]).expect("words");
        let epilogue = Epilogue { bias: Some(words.to_term()), ..Epilogue::default() };
        let refused = a.matmul_with(&b, Transposed::default(), &epilogue).expect_err("a bias of words");
        assert_eq!(refused.code(), "V1314");
    }
}

#[test]
fn epilogues_of_halves_are_rounded_once() {
    use half::f16;
    let mut random = Random(35);
    let mut tried = 0;
    for (name, engine) in engines() {
        for (m, k, n, transposed) in [
            (5, 7, 3, (false, false)),
            (128, 64, 256, (false, true)),
            (256, 256, 256, (false, false)),
            (130, 40, 9, (false, true)),
        ] {
            if m > 100 && name != "cpu" && !name.starts_with("cuda") {
                continue;
            }
            let halves = |random: &mut Random, count: usize| -> Vec<f16> {
                (0..count).map(|_| f16::from_f32(random.unit())).collect()
            };
            let (x, y, bias) = (halves(&mut random, m * k), halves(&mut random, k * n), halves(&mut random, n));
            let transposed = Transposed { a: transposed.0, b: transposed.1 };
            let a = engine.from_shape([m, k], &x).expect("a");
            let b = engine.from_shape(if transposed.b { [n, k] } else { [k, n] }, &y).expect("b");
            let array = engine.array(&bias).expect("bias");
            for activation in [Activation::None, Activation::Relu, Activation::Gelu] {
                let epilogue = Epilogue { scale: Some(0.75), bias: Some(array.to_term()), activation };
                let Some(found) = read(a.matmul_with(&b, transposed, &epilogue)) else { continue };
                tried += 1;
                for (at, found) in found.iter().map(|found| found.to_f64()).enumerate() {
                    let (row, column) = (at / n, at % n);
                    let product = |d: usize| {
                        let right = if transposed.b { column * k + d } else { d * n + column };
                        x[row * k + d].to_f64() * y[right].to_f64()
                    };
                    let sum = 0.75 * (0..k).map(product).sum::<f64>() + bias[column].to_f64();
                    let exact = match activation {
                        Activation::None => sum,
                        Activation::Relu => sum.max(0.0),
                        Activation::Gelu => {
                            sum / 2.0 * (1.0 + (0.797_884_560_8 * (sum + 0.044715 * sum.powi(3))).tanh())
                        }
                    };
                    // Half a unit of f16, twice where the device has sums in another order.
                    let near = exact.abs() * 2f64.powi(-10) + 2e-5;
                    assert!((found - exact).abs() <= near, "{name} {m} {k} {n} {activation:?} {at}: {found} {exact}");
                }
            }
        }
    }
    assert!(tried > 0, "the processor has f16");
}
