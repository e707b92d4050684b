//! Matrix fragments: how the lanes of a subgroup hold a small matrix.

use half::{bf16, f16};

/// What the fragments of a [matrix operation](super::Expr::MatrixMultiplyAdd) are made of. Sums are always f32.
///
/// A subgroup of 32 lanes multiplies a matrix A of 16 rows by a matrix B of 8 columns. They meet in a depth of 16 (f16 and bf16,
/// two in a register) or 8 (tf32, one in a register). With `row = lane / 4` and `part = lane % 4`, a lane holds:
///
/// | register | f16, bf16 (low half, high half) | tf32 |
/// |---|---|---|
/// | `a.x` | `A[row][2·part]`, `A[row][2·part + 1]` | `A[row][part]` |
/// | `a.y` | the same in row `row + 8` | the same in row `row + 8` |
/// | `a.z` | `A[row][2·part + 8]`, `A[row][2·part + 9]` | `A[row][part + 4]` |
/// | `a.w` | the same in row `row + 8` | the same in row `row + 8` |
/// | `b.x` | `B[2·part][row]`, `B[2·part + 1][row]` | `B[part][row]` |
/// | `b.y` | `B[2·part + 8][row]`, `B[2·part + 9][row]` | `B[part + 4][row]` |
///
/// and of C and of the result, whatever the kind, `C[row][2·part]`, `C[row][2·part + 1]`, `C[row + 8][2·part]` and
/// `C[row + 8][2·part + 1]`. It is the layout of PTX's `mma.sync.aligned.m16n8k16` and `m16n8k8` with `row.col`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixKind {
    /// Two f16 in a register.
    F16,
    /// Two bf16 in a register.
    Bf16,
    /// The bits of an f32 whose lower 13 are taken as zero.
    Tf32,
}

/// Rows of A and of the result.
pub const MATRIX_ROWS: usize = 16;
/// Columns of B and of the result.
pub const MATRIX_COLUMNS: usize = 8;
/// Lanes that hold a fragment together.
pub const MATRIX_LANES: u32 = 32;

impl MatrixKind {
    /// Columns of A and rows of B.
    pub fn depth(self) -> usize {
        8 * self.in_register()
    }

    /// How many elements of A and B a register holds, the first one lowest.
    pub fn in_register(self) -> usize {
        match self {
            MatrixKind::F16 | MatrixKind::Bf16 => 2,
            MatrixKind::Tf32 => 1,
        }
    }

    /// Row and column of an element of A.
    pub fn place_in_a(self, lane: usize, register: usize, element: usize) -> (usize, usize) {
        (lane / 4 + register % 2 * 8, (lane % 4 + register / 2 * 4) * self.in_register() + element)
    }

    /// Row and column of an element of B.
    pub fn place_in_b(self, lane: usize, register: usize, element: usize) -> (usize, usize) {
        ((lane % 4 + register * 4) * self.in_register() + element, lane / 4)
    }

    /// Row and column of an element of C and of the result.
    pub fn place_in_c(lane: usize, register: usize) -> (usize, usize) {
        (lane / 4 + register / 2 * 8, lane % 4 * 2 + register % 2)
    }

    /// The value of an element in a register of A or B; every one is an f32 too.
    pub fn element(self, register: u32, element: usize) -> f32 {
        let half = (register >> (element % 2 * 16)) as u16;
        match self {
            MatrixKind::F16 => f16::from_bits(half).to_f32(),
            MatrixKind::Bf16 => bf16::from_bits(half).to_f32(),
            MatrixKind::Tf32 => f32::from_bits(register & !0x1fff),
        }
    }
}
