//! Whether two backends, or two launches, gave the same results.

use vyre_foundation::ir::{BufferDecl, Count, DataType, Program, TypeDef, layout_of};

use crate::variant::Tolerance;

/// `None` when the results of a program agree, else where they differ first. Bytes must be equal, but every NaN equals every
/// other, and with a budget of `ulps` two floats may each be that far from the exact value.
pub fn difference(program: &Program, ulps: Option<u8>, left: &[Vec<u8>], right: &[Vec<u8>]) -> Option<String> {
    first_difference(program, ulps, left, right).map(|first| first.message)
}

/// [`difference`] of a variant's results: they may be `ulps` off, and so much of the largest number of their result besides.
pub fn difference_within(
    program: &Program,
    tolerance: Tolerance,
    left: &[Vec<u8>],
    right: &[Vec<u8>],
) -> Option<String> {
    find(program, u64::from(tolerance.ulps), tolerance.of_largest, left, right).map(|first| first.message)
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
    find(program, 2 * u64::from(ulps.unwrap_or(0)), 0.0, left, right)
}

fn find(program: &Program, ulps: u64, of_largest: f64, left: &[Vec<u8>], right: &[Vec<u8>]) -> Option<FirstDifference> {
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
        let layout = buffer.and_then(|buffer| Layout::of(program, buffer)).unwrap_or_else(Layout::bytes);
        if let Some(at) = layout.first_difference(left, right, ulps, of_largest) {
            let message = format!("its result {name} differs at byte {at}");
            return Some(FirstDifference { place: Some((position, at)), message });
        }
    }
    None
}

/// Where the values of a buffer are: some at its beginning, and some in each of the elements that follow. What is between them is no
/// value, and nobody says what a backend leaves there.
struct Layout {
    header: Vec<Leaf>,
    header_bytes: usize,
    element: Vec<Leaf>,
    stride: usize,
}

/// A number at an offset.
#[derive(Clone, Copy)]
struct Leaf {
    at: usize,
    bytes: usize,
    float: Option<Float>,
}

/// A type with more numbers in it is compared as bytes.
const MOST_LEAVES: usize = 4096;

impl Layout {
    /// Each byte is a value.
    fn bytes() -> Layout {
        Layout { header: Vec::new(), header_bytes: 0, element: vec![Leaf { at: 0, bytes: 1, float: None }], stride: 1 }
    }

    fn of(program: &Program, buffer: &BufferDecl) -> Option<Layout> {
        let types = program.types();
        let (mut header, mut element) = (Vec::new(), Vec::new());
        if let DataType::Handle(id) = &buffer.ty
            && let TypeDef::Struct { members, .. } = types.get(id.0 as usize)?
            && let [first @ .., last] = &members[..]
            && let DataType::Handle(tail) = &last.ty
            && let TypeDef::Array { element: of, count: Count::Runtime, stride } = types.get(tail.0 as usize)?
        {
            for member in first {
                leaves(&member.ty, types, member.offset as usize, &mut header)?;
            }
            leaves(of, types, 0, &mut element)?;
            return Some(Layout { header, header_bytes: last.offset as usize, element, stride: *stride as usize });
        }
        leaves(&buffer.ty, types, 0, &mut element)?;
        let stride = layout_of(&buffer.ty, types)?.stride as usize;
        (stride > 0).then_some(Layout { header, header_bytes: 0, element, stride })
    }

    fn first_difference(&self, left: &[u8], right: &[u8], ulps: u64, of_largest: f64) -> Option<usize> {
        let slack = if of_largest > 0.0 { of_largest * self.largest(left) } else { 0.0 };
        let differs = |leaves: &[Leaf], start: usize| {
            let differs = |leaf: &&Leaf| {
                let at = start + leaf.at;
                // A last element that is cut off has bytes all the same.
                let end = (at + leaf.bytes).min(left.len());
                let (a, b) = (&left[at.min(end)..end], &right[at.min(end)..end]);
                a != b
                    && !leaf.float.is_some_and(|float| {
                        a.len() == float.bytes && (float.close(a, b, ulps) || float.near(a, b, ulps, slack))
                    })
            };
            leaves.iter().find(differs).map(|leaf| start + leaf.at)
        };
        if let Some(at) = differs(&self.header, 0) {
            return Some(at);
        }
        let mut start = self.header_bytes;
        while start < left.len() {
            let end = (start + self.stride).min(left.len());
            if left[start..end] != right[start..end]
                && let Some(at) = differs(&self.element, start)
            {
                return Some(at);
            }
            start += self.stride;
        }
        None
    }
}

impl Layout {
    /// The largest magnitude of a finite float.
    fn largest(&self, bytes: &[u8]) -> f64 {
        let mut largest = 0f64;
        let mut look = |leaves: &[Leaf], start: usize| {
            for leaf in leaves {
                let place = start + leaf.at..start + leaf.at + leaf.bytes;
                if let (Some(float), Some(bytes)) = (leaf.float, bytes.get(place)) {
                    largest =
                        largest.max(Some(float.value(bytes).abs()).filter(|value| value.is_finite()).unwrap_or(0.0));
                }
            }
        };
        look(&self.header, 0);
        for start in (self.header_bytes..bytes.len()).step_by(self.stride.max(1)) {
            look(&self.element, start);
        }
        largest
    }
}

/// The numbers of a type from an offset on; `None` where it has too many, or some that don't fill bytes.
fn leaves(ty: &DataType, types: &[TypeDef], at: usize, out: &mut Vec<Leaf>) -> Option<()> {
    if out.len() >= MOST_LEAVES {
        return None;
    }
    if let DataType::Handle(id) = ty {
        // A type is made only of those before it, so this ends.
        let before = types.get(..id.0 as usize)?;
        match types.get(id.0 as usize)? {
            TypeDef::Struct { members, .. } => {
                for member in members {
                    leaves(&member.ty, before, at + member.offset as usize, out)?;
                }
            }
            TypeDef::Array { element, count: Count::Fixed(count), stride } => {
                for index in 0..*count as usize {
                    leaves(element, before, at + index * *stride as usize, out)?;
                }
            }
            TypeDef::Array { .. } => return None,
        }
        return Some(());
    }
    let (scalar, count) = ty.as_vector().unwrap_or_else(|| (ty.clone(), 1));
    let bits = scalar.bits()? as usize;
    if bits == 0 || !bits.is_multiple_of(8) {
        return None;
    }
    let (bytes, float) = (bits / 8, Float::of(&scalar));
    out.extend((0..count as usize).map(|index| Leaf { at: at + index * bytes, bytes, float }));
    Some(())
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
            _ => return None,
        })
    }

    fn value(self, bytes: &[u8]) -> f64 {
        let bits = bytes.iter().rev().fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
        match (self.bytes, self.infinity) {
            (2, 0x7c00) => half::f16::from_bits(bits as u16).to_f64(),
            (2, _) => half::bf16::from_bits(bits as u16).to_f64(),
            (4, _) => f64::from(f32::from_bits(bits as u32)),
            _ => f64::from_bits(bits),
        }
    }

    /// Finite, and apart by no more than so many units in the last place and an absolute slack.
    fn near(self, left: &[u8], right: &[u8], ulps: u64, slack: f64) -> bool {
        let (a, b) = (self.value(left), self.value(right));
        let digits = match (self.bytes, self.infinity) {
            (2, 0x7c00) => 10,
            (2, _) => 7,
            (4, _) => 23,
            _ => 52,
        };
        let unit = a.abs().max(b.abs()) * 2f64.powi(-digits);
        slack > 0.0 && a.is_finite() && b.is_finite() && (a - b).abs() <= slack + ulps as f64 * unit
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
    use vyre_foundation::ir::{Member, Node, TypeId};

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
        let vector = program(DataType::Vec { element: Box::new(DataType::F32), count: 3 });
        assert_eq!(
            difference(&vector, None, &floats(&[1.0, nan, 2.0, 7.0]), &floats(&[1.0, f32::NAN, 2.0, 8.0])),
            None
        );
        assert!(difference(&word, None, &floats(&[1.0]), &[]).is_some());
        assert!(difference(&word, None, &floats(&[1.0]), &floats(&[1.0, 2.0])).is_some());
    }

    #[test]
    fn sums_in_another_order_may_be_off_by_a_part_of_the_largest() {
        let program = Program::wrapped(vec![BufferDecl::output("o", 0, DataType::F32)], [1, 1, 1], Vec::<Node>::new());
        let tolerance = Tolerance { ulps: 1, of_largest: 1e-4 };
        let differs =
            |a: f32, b: f32| difference_within(&program, tolerance, &floats(&[100.0, a]), &floats(&[100.0, b]));
        assert_eq!(differs(0.001, 0.009), None);
        assert!(differs(0.0, 0.02).is_some_and(|how| how.contains("byte 4")));
        assert!(differs(1.0, f32::NAN).is_some() && differs(f32::INFINITY, 1.0).is_some());
        assert!(difference_within(&program, Tolerance::default(), &floats(&[0.001]), &floats(&[0.0011])).is_some());
    }

    #[test]
    fn members_of_structs_are_compared_by_their_types() {
        let member = |name: &str, ty, offset| Member { name: name.into(), ty, offset };
        let vector = DataType::Vec { element: Box::new(DataType::F32), count: 3 };
        let types = vec![TypeDef::Struct {
            name: "P".into(),
            members: vec![member("at", vector, 0), member("id", DataType::U32, 12), member("mass", DataType::F32, 16)],
            size: 32,
            align: 16,
        }];
        let program =
            Program::wrapped(vec![BufferDecl::output("o", 0, DataType::Handle(TypeId(0)))], [1, 1, 1], Vec::new())
                .with_types(types);
        let nan = f32::from_bits(0x7fc0_0001);
        let near = f32::from_bits(1.0f32.to_bits() + 2);
        let one = |values: [f32; 8]| floats(&values);
        let base = [1.0, 2.0, nan, 3.0, 1.0, 0.0, 0.0, 0.0];
        let with = |at: usize, value: f32| {
            let mut values = base;
            values[at] = value;
            one(values)
        };
        assert_eq!(difference(&program, None, &one(base), &with(2, f32::NAN)), None, "every NaN is a NaN");
        assert_eq!(difference(&program, Some(1), &one(base), &with(4, near)), None, "a float within the budget");
        assert!(difference(&program, None, &one(base), &with(4, near)).unwrap().contains("byte 16"));
        let id = f32::from_bits(3.0f32.to_bits() + 1);
        assert!(difference(&program, Some(9), &one(base), &with(3, id)).unwrap().contains("byte 12"), "an integer");
        assert_eq!(difference(&program, None, &one(base), &with(6, 5.0)), None, "what is between members is no value");
    }
}
