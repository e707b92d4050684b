//! What a matrix operation computes: the products are exact, their sum with C is taken in f64 from the lowest depth up, and the
//! result is rounded to f32 once. Devices round more often; `docs/conformance.md` says how far off they may be.

use vyre_foundation::ir::{Literal, MATRIX_COLUMNS, MATRIX_LANES, MATRIX_ROWS, MatrixKind};

use crate::value::Value;

/// The result for each lane, from its fragments of A, B and C. `None` when they are not those of a whole subgroup.
pub(crate) fn multiply_add(kind: MatrixKind, lanes: &[[Value; 3]]) -> Option<Vec<Value>> {
    if lanes.len() != MATRIX_LANES as usize {
        return None;
    }
    let mut a = vec![[0.0f64; MATRIX_ROWS]; kind.depth()];
    let mut b = vec![[0.0f64; MATRIX_COLUMNS]; kind.depth()];
    let mut d = [[0.0f64; MATRIX_COLUMNS]; MATRIX_ROWS];
    for (lane, [in_a, in_b, in_c]) in lanes.iter().enumerate() {
        for element in 0..kind.in_register() {
            for (register, bits) in in_a.lanes().iter().enumerate() {
                let Literal::U32(bits) = *bits else { return None };
                let (row, depth) = kind.place_in_a(lane, register, element);
                *a.get_mut(depth)?.get_mut(row)? = f64::from(kind.element(bits, element));
            }
            for (register, bits) in in_b.lanes().iter().enumerate() {
                let Literal::U32(bits) = *bits else { return None };
                let (depth, column) = kind.place_in_b(lane, register, element);
                *b.get_mut(depth)?.get_mut(column)? = f64::from(kind.element(bits, element));
            }
        }
        for (register, sum) in in_c.lanes().iter().enumerate() {
            let Literal::F32(sum) = *sum else { return None };
            let (row, column) = MatrixKind::place_in_c(lane, register);
            *d.get_mut(row)?.get_mut(column)? = f64::from(sum);
        }
    }
    for (a, b) in a.iter().zip(&b) {
        for (row, a) in d.iter_mut().zip(a) {
            for (sum, b) in row.iter_mut().zip(b) {
                *sum += a * b;
            }
        }
    }
    let result = |lane: usize| {
        let sums: [Literal; 4] = std::array::from_fn(|register| {
            let (row, column) = MatrixKind::place_in_c(lane, register);
            Literal::F32(d[row][column] as f32)
        });
        Value::from_lanes(&sums)
    };
    (0..lanes.len()).map(result).collect()
}
