//! Products of bf16 matrices, in every layout and at sizes that fill no tile.

use half::bf16;
use vyre::Engine;
use vyre_ops::{Activation, Epilogue, Transposed, matmul_bf16, matmul_bf16_with};

fn numbers(count: usize, seed: u64) -> Vec<bf16> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(|_| bf16::from_f32(next())).collect()
}

#[test]
fn products_of_bf16_are_added_up_in_f32_and_rounded_once() -> Result<(), vyre::Error> {
    let engine = Engine::builder().without_disk().open()?;
    for [batches, m, n, k] in [[1, 1, 1, 1], [1, 33, 40, 31], [2, 128, 128, 32], [1, 24, 8, 200], [3, 17, 19, 0]] {
        for (a_is, b_is) in [(false, false), (false, true), (true, false), (true, true)] {
            let (left, right) = (numbers(batches * m * k, 3), numbers(batches * k * n, 5));
            let a_shape = if a_is { [batches, k, m] } else { [batches, m, k] };
            let b_shape = if b_is { [batches, n, k] } else { [batches, k, n] };
            let (a, b) = (engine.array(&left)?.shaped(a_shape)?, engine.array(&right)?.shaped(b_shape)?);
            let product = matmul_bf16(&a, &b, Transposed { a: a_is, b: b_is })?;
            assert_eq!(product.shape(), [batches, m, n]);
            for (at, got) in product.to_vec()?.into_iter().enumerate() {
                let (batch, row, column) = (at / (m * n), at / n % m, at % n);
                let (mut sum, mut size) = (0f64, 0f64);
                for d in 0..k {
                    let x = if a_is { left[(batch * k + d) * m + row] } else { left[(batch * m + row) * k + d] };
                    let y =
                        if b_is { right[(batch * n + column) * k + d] } else { right[(batch * k + d) * n + column] };
                    sum += f64::from(x) * f64::from(y);
                    size += (f64::from(x) * f64::from(y)).abs();
                }
                // Half a unit of bf16, and the rounding of f32 sums.
                let bound = sum.abs() / 256.0 + size * 1e-6;
                assert!((f64::from(got) - sum).abs() <= bound, "{m}x{n}x{k} at {at}: {got} is not {sum}");
            }
        }
    }
    Ok(())
}

#[test]
fn epilogues_of_bf16_are_computed_in_f32() -> Result<(), vyre::Error> {
    let engine = Engine::builder().without_disk().open()?;
    let (m, n, k) = (33, 40, 31);
    let (left, right, bias) = (numbers(m * k, 3), numbers(k * n, 5), numbers(n, 7));
    let (a, b) = (engine.array(&left)?.shaped([m, k])?, engine.array(&right)?.shaped([k, n])?);
    let epilogue = Epilogue {
        scale: Some(2.0),
        bias: Some(engine.array(&bias)?.lazy().term().clone()),
        activation: Activation::Relu,
    };
    let found = matmul_bf16_with(&a, &b, Transposed::default(), &epilogue)?.to_vec()?;
    for (at, found) in found.into_iter().enumerate() {
        let (row, column) = (at / n, at % n);
        let sum: f64 = (0..k).map(|d| f64::from(left[row * k + d]) * f64::from(right[d * n + column])).sum();
        let exact = (2.0 * sum + f64::from(bias[column])).max(0.0);
        assert!((f64::from(found) - exact).abs() <= exact / 256.0 + 1e-5, "{at}: {found} is not {exact}");
    }
    Ok(())
}
