//! Whether two backends, or two launches, gave the same results.

use vyre_foundation::ir::{BufferDecl, DataType, Program};

/// `None` when the results of a program agree, else where they differ first. Bytes must be equal, but every NaN equals every
/// other, and with a budget of `ulps` two floats may each be that far from the exact value.
pub fn difference(program: &Program, ulps: Option<u8>, left: &[Vec<u8>], right: &[Vec<u8>]) -> Option<String> {
    first_difference(program, ulps, left, right).map(|first| first.message)
}

/// Where two runs of a program differ first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstDifference {
    /// Which result, and the byte in it; none where the results are not of one size.
    pub place: Option<(usize, usize)>,
    /// In words.
    pub message: String,
}

/// [`difference`] with its place.
pub fn first_difference(
    program: &Program,
    ulps: Option<u8>,
    left: &[Vec<u8>],
    right: &[Vec<u8>],
) -> Option<FirstDifference> {
    let unplaced = |message: String| Some(FirstDifference { place: None, message });
    if left.len() != right.len() {
        return unplaced(format!("it gave {} results, not {}", left.len(), right.len()));
    }
    let order = program.binding_order();
    let mut declared: Vec<Option<&BufferDecl>> =
        order.iter().map(|&index| &program.buffers()[index]).filter(|b| b.kind.is_result()).map(Some).collect();
    // A backend may answer with other results than the program declares; then they have no names and no types.
    if declared.len() != left.len() {
        declared = vec![None; left.len()];
    }
    for (position, ((left, right), buffer)) in left.iter().zip(right).zip(declared).enumerate() {
        if left == right {
            continue;
        }
        let name = buffer.map_or_else(|| position.to_string(), |buffer| format!("`{}`", buffer.name));
        if left.len() != right.len() {
            return unplaced(format!("its result {name} has {} bytes, not {}", left.len(), right.len()));
        }
        let float = buffer.and_then(|buffer| Float::of(&buffer.ty)).filter(|float| left.len() % float.bytes == 0);
        let at = match float {
            Some(float) => {
                let allowed = 2 * u64::from(ulps.unwrap_or(0));
                let mut pairs = left.chunks_exact(float.bytes).zip(right.chunks_exact(float.bytes));
                pairs.position(|(a, b)| !float.close(a, b, allowed)).map(|element| element * float.bytes)
            }
            None => left.iter().zip(right).position(|(a, b)| a != b),
        };
        if let Some(at) = at {
            let message = format!("its result {name} differs at byte {at}");
            return Some(FirstDifference { place: Some((position, at)), message });
        }
    }
    None
}

/// A float format: its size and the bits of infinity.
#[derive(Clone, Copy)]
struct Float {
    bytes: usize,
    infinity: u64,
}

impl Float {
    fn of(ty: &DataType) -> Option<Float> {
        Some(match ty {
            DataType::F16 => Float { bytes: 2, infinity: 0x7c00 },
            DataType::BF16 => Float { bytes: 2, infinity: 0x7f80 },
            DataType::F32 => Float { bytes: 4, infinity: 0x7f80_0000 },
            DataType::F64 => Float { bytes: 8, infinity: 0x7ff0_0000_0000_0000 },
            _ => return Float::of(&ty.as_vector()?.0),
        })
    }

    fn close(self, left: &[u8], right: &[u8], ulps: u64) -> bool {
        if left == right {
            return true;
        }
        let bits = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
        let sign = 1u64 << (self.bytes * 8 - 1);
        let (left, right) = (bits(left), bits(right));
        let (a, b) = (left & !sign, right & !sign);
        if a > self.infinity || b > self.infinity {
            return a > self.infinity && b > self.infinity;
        }
        // Without a budget zeros of different sign differ, because a program can tell them apart.
        let distance = if (left ^ right) & sign == 0 { a.abs_diff(b) } else { a + b };
        ulps > 0 && distance <= ulps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vyre_foundation::ir::Node;

    fn floats(values: &[f32]) -> Vec<Vec<u8>> {
        vec![values.iter().flat_map(|value| value.to_le_bytes()).collect()]
    }

    #[test]
    fn floats_agree_by_value_and_budget_and_integers_by_bits() {
        let program = |ty| Program::wrapped(vec![BufferDecl::output("o", 0, ty)], [1, 1, 1], Vec::<Node>::new());
        let float = program(DataType::F32);
        let nan = f32::from_bits(0x7fc0_0001);
        assert_eq!(difference(&float, None, &floats(&[1.0, nan]), &floats(&[1.0, f32::NAN])), None);
        let near = f32::from_bits(1.0f32.to_bits() + 2);
        assert!(difference(&float, None, &floats(&[1.0]), &floats(&[near])).unwrap().contains("`o` differs at byte 0"));
        assert_eq!(difference(&float, Some(1), &floats(&[1.0]), &floats(&[near])), None);
        assert!(difference(&float, Some(1), &floats(&[1.0]), &floats(&[-1.0])).is_some());
        assert!(difference(&float, Some(200), &floats(&[nan]), &floats(&[1.0])).is_some());
        assert!(difference(&float, None, &floats(&[0.0]), &floats(&[-0.0])).is_some());
        let word = program(DataType::U32);
        assert!(difference(&word, Some(9), &floats(&[nan]), &floats(&[f32::NAN])).is_some());
        assert!(difference(&word, None, &floats(&[1.0]), &[]).is_some());
        assert!(difference(&word, None, &floats(&[1.0]), &floats(&[1.0, 2.0])).is_some());
    }
}
