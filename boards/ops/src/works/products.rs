//! Products of matrices and what is made of them, and bodies that attract each other.

use std::hint::black_box;

use gemm::Parallelism;
use vyre_ops::{Activation, Epilogue, Ops, Transposed};

use super::rows::table;
use crate::data::Data;
use crate::measure::{Work, under_way};
use crate::plain;

pub(super) fn works(data: &Data) -> Vec<Work<'_>> {
    let mut works = Vec::new();
    for &side in data.sizes.matrices {
        works.extend(products(data, side));
    }
    works.extend(attention(data));
    let bodies = data.sizes.bodies;
    let (own, x) = data.both(&data.x[..4 * bodies]);
    let own = own.shaped([bodies, 4]).expect("bodies");
    let pairs = (bodies as f64).powi(2);
    works.push(
        Work::new("bodies", 28 * bodies, 20.0 * pairs, move || under_way(own.accelerations(1e-2)))
            .beside("rayon", move || plain::bodies(x, &mut data.out.borrow_mut()[..3 * bodies])),
    );
    let [images, channels, edge] = data.sizes.pictures;
    let elements = images * channels * edge * edge;
    let pictures = data.array(&[images, channels, edge, edge], &data.x);
    let windows = data.array(&[channels, channels, 3, 3], &data.y);
    works.push(Work::new("convolution 3 x 3", 8 * elements, 18.0 * (elements * channels) as f64, move || {
        under_way(pictures.convolution(&windows, 1, 1))
    }));
    works
}

fn products(data: &Data, side: usize) -> [Work<'_>; 5] {
    let s = side * side;
    let flops = 2.0 * (side as f64).powi(3);
    let ((a, x), (b, y)) = (data.both(&data.x[..s]), data.both(&data.y[..s]));
    let [a, b] = [a, b].map(|factor| factor.shaped([side, side]).expect("a matrix"));
    let (a_half, b_half) = (Data::halves(&a), Data::halves(&b));
    let bias = data.array(&[side], &data.y);
    let half_bias = Data::halves(&bias);
    let (a2, b2, a_half2, b_half2) = (a.clone(), b.clone(), a_half.clone(), b_half.clone());
    let (a_half3, b_half3) = (a_half.clone(), b_half.clone());
    let epilogue = |bias: vyre::expression::Term, activation| Epilogue { scale: None, bias: Some(bias), activation };
    let gelu = epilogue(bias.to_term(), Activation::Gelu);
    let [relu_half, gelu_half] = [Activation::Relu, Activation::Gelu].map(|last| epilogue(half_bias.to_term(), last));
    [
        Work::new(format!("matmul {side}"), 12 * s, flops, move || under_way(a.matmul(&b)))
            .beside("rayon", move || plain::matmul(x, y, &mut data.out.borrow_mut()[..s], side, side))
            .beside("gemm", move || product(x, y, &mut data.out.borrow_mut()[..s], side))
            .beside("ndarray", move || drop(black_box(table(x, side).dot(&table(y, side))))),
        Work::new(format!("matmul f16 {side}"), 6 * s, flops, move || under_way(a_half.matmul(&b_half))),
        Work::new(format!("linear, gelu {side}"), 12 * s, flops, move || {
            under_way(a2.matmul_with(&b2, Transposed::default(), &gelu))
        }),
        Work::new(format!("linear f16, relu {side}"), 6 * s, flops, move || {
            under_way(a_half2.matmul_with(&b_half2, Transposed::default(), &relu_half))
        }),
        Work::new(format!("linear f16, gelu {side}"), 6 * s, flops, move || {
            under_way(a_half3.matmul_with(&b_half3, Transposed::default(), &gelu_half))
        }),
    ]
}

fn product(a: &[f32], b: &[f32], out: &mut [f32], side: usize) {
    assert!([a.len(), b.len(), out.len()].iter().all(|elements| *elements == side * side));
    let (n, stride) = (side, side as isize);
    let (out, a, b) = (out.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    let threads = Parallelism::Rayon(0);
    // SAFETY: the three matrices have so many rows and columns, one row after another.
    unsafe {
        gemm::gemm(n, n, n, out, 1, stride, false, a, 1, stride, b, 1, stride, 0.0, 1.0, false, false, false, threads);
    }
}

fn attention(data: &Data) -> [Work<'_>; 3] {
    let [heads, steps, dim] = data.sizes.attention;
    let elements = heads * steps * dim;
    let flops = 4.0 * (elements * steps) as f64;
    let shape = [heads, steps, dim];
    let [q, k, v] = [&data.x[..], &data.y, &data.x[1..]].map(|values| data.array(&shape, values));
    let [q_half, k_half, v_half] = [&q, &k, &v].map(Data::halves);
    let [q_causal, k_causal, v_causal] = [q_half.clone(), k_half.clone(), v_half.clone()];
    [
        Work::new("attention", 16 * elements, flops, move || under_way(q.attention(&k, &v, false))).beside(
            "rayon",
            move || {
                let inputs = [&data.x[..elements], &data.y[..elements], &data.x[1..=elements]];
                plain::attention(inputs, &mut data.out.borrow_mut()[..elements], [steps, dim]);
            },
        ),
        Work::new("attention f16", 8 * elements, flops, move || under_way(q_half.attention(&k_half, &v_half, false))),
        Work::new("attention f16, causal", 8 * elements, flops / 2.0, move || {
            under_way(q_causal.attention(&k_causal, &v_causal, true))
        }),
    ]
}
