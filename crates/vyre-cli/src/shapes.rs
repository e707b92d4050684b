//! What the shapes of inputs and results tell the kernel: overrides and uniform members that are named for a part of a shape.

use vyre::ir::{BufferDecl, BufferKind, Count, Program};
use vyre::{Diagnostic, codes};

/// A part of a shape that a kernel may ask for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Width,
    Height,
    Depth,
    Length,
}

/// The names, and whether they come before a default that the kernel has: `rows` and `n` may mean something else.
const NAMES: [(&str, Part, bool); 7] = [
    ("width", Part::Width, true),
    ("height", Part::Height, true),
    ("depth", Part::Depth, true),
    ("columns", Part::Width, false),
    ("rows", Part::Height, false),
    ("n", Part::Length, false),
    ("len", Part::Length, false),
];

/// All names that stand for a part of a shape.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, ..)| *name)
}

/// A value of the kernel that was taken from a shape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Filled {
    /// `width`, or `params.width`.
    pub(crate) name: String,
    pub(crate) value: usize,
    /// The buffer whose shape tells it.
    pub(crate) from: String,
}

/// The buffers that have a shape, in binding order.
pub(crate) struct Shapes {
    pictures: Vec<(String, [usize; 3], usize)>,
    lengths: Vec<(String, usize)>,
}

impl Shapes {
    /// Where nothing has a shape.
    pub(crate) fn none() -> Shapes {
        Shapes { pictures: Vec::new(), lengths: Vec::new() }
    }

    /// `known` has shapes in numbers (of structs, in structs); `lengths` the elements of what is bound, by name.
    pub(crate) fn new(program: &Program, known: &[(String, Vec<usize>)], lengths: &[(String, usize)]) -> Shapes {
        let order = program.binding_order();
        let buffers = || order.iter().map(|&index| &program.buffers()[index]);
        let picture = |buffer: &BufferDecl| {
            let (name, shape) = known.iter().find(|(name, _)| buffer.name.as_str() == name)?;
            let (extent, axes) = extent(buffer, shape)?;
            Some((name.clone(), extent, axes))
        };
        let open: Vec<_> = buffers().filter(|buffer| buffer.count == Count::Runtime).filter_map(picture).collect();
        // Weights and the like have a declared size; what the kernel works on is open.
        let pictures = if open.is_empty() { buffers().filter_map(picture).collect() } else { open };
        let is_open = |buffer: &&BufferDecl| buffer.count == Count::Runtime && buffer.kind != BufferKind::Uniform;
        let length = |buffer: &BufferDecl| lengths.iter().find(|(name, _)| buffer.name.as_str() == name).cloned();
        Shapes { pictures, lengths: buffers().filter(is_open).filter_map(length).collect() }
    }

    /// What each buffer says a name should be; nothing where it is no name of a part, or no buffer says.
    fn answers(&self, part: Part) -> Vec<(usize, &str)> {
        let axis = |least: usize, at: usize| {
            let known = self.pictures.iter().filter(move |(_, _, axes)| *axes >= least);
            known.map(|(name, extent, _)| (extent[at], name.as_str())).collect()
        };
        match part {
            Part::Width => axis(2, 0),
            Part::Height => axis(2, 1),
            Part::Depth => axis(3, 2),
            Part::Length => self.lengths.iter().map(|(name, length)| (*length, name.as_str())).collect(),
        }
    }

    /// The value for a name that was not set. `has_default`: the kernel has one of its own. `full` is the name for messages.
    pub(crate) fn fill(&self, name: &str, full: &str, has_default: bool) -> Result<Option<Filled>, Diagnostic> {
        let Some(&(_, part, first)) = NAMES.iter().find(|(known, ..)| *known == name) else { return Ok(None) };
        if has_default && !first {
            return Ok(None);
        }
        let answers = self.answers(part);
        let Some(&(value, from)) = answers.first() else { return Ok(None) };
        if answers.iter().any(|(other, _)| *other != value) {
            let list: Vec<String> = answers.iter().map(|(value, from)| format!("{value} (`{from}`)")).collect();
            let message = format!("`{full}` is named for a shape, and could be {}", list.join(" or "));
            return Err(Diagnostic::new(&codes::command::SHAPE_CONFLICT, message).with_fix("Give it a value."));
        }
        Ok(Some(Filled { name: full.to_owned(), value, from: from.to_owned() }))
    }

    /// Refuses a value that was set and that no shape says. A length may be less than there is.
    pub(crate) fn agree(&self, name: &str, full: &str, value: f64) -> Result<(), Diagnostic> {
        let Some(&(_, part, true)) = NAMES.iter().find(|(known, ..)| *known == name) else { return Ok(()) };
        let answers = self.answers(part);
        let Some(&(right, from)) = answers.first() else { return Ok(()) };
        if answers.iter().any(|(answer, _)| *answer as f64 == value) {
            return Ok(());
        }
        let message = format!("`{full}` is set to {value}, and the shape of `{from}` says {right}");
        Err(Diagnostic::new(&codes::command::SHAPE_CONFLICT, message))
    }
}

/// Width, height and depth of a buffer of this shape, and how many of them there are. Rows are y and columns x, as pictures are stored;
/// what lies next to each other in one pixel is no axis.
fn extent(buffer: &BufferDecl, shape: &[usize]) -> Option<([usize; 3], usize)> {
    let lanes = buffer.ty.as_vector().map(|(_, lanes)| lanes as usize);
    match (lanes, shape) {
        (Some(lanes), [rest @ .., last]) if *last == lanes => plain_extent(rest),
        (None, &[height, width, 1..=4]) => Some(([width, height, 1], 2)),
        _ => plain_extent(shape),
    }
}

fn plain_extent(shape: &[usize]) -> Option<([usize; 3], usize)> {
    match *shape {
        [height, width] => Some(([width, height, 1], 2)),
        [depth, height, width] => Some(([width, height, depth], 3)),
        _ => None,
    }
}

/// The invocations that a buffer of this shape asks for where the kernel itself leaves that open.
pub(crate) fn domain(buffer: &BufferDecl, shape: &[usize]) -> Option<[u64; 3]> {
    extent(buffer, shape).map(|(extent, _)| extent.map(|axis| axis as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(text: &str, known: &[(&str, &[usize])], lengths: &[(&str, usize)]) -> Shapes {
        let program = vyre::wgsl(text).unwrap();
        let known: Vec<_> = known.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect();
        let lengths: Vec<_> = lengths.iter().map(|(name, length)| ((*name).to_owned(), *length)).collect();
        Shapes::new(&program, &known, &lengths)
    }

    const TWO: &str = "
        @group(0) @binding(0) var<storage, read> image: array<vec4<f32>>;
        @group(0) @binding(1) var<storage, read> weights: array<f32, 9>;
        @group(0) @binding(2) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(8, 8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            out[id.x + id.y] = u32(image[id.x].x * weights[id.y]);
        }";

    #[test]
    fn names_are_filled_where_shapes_agree() {
        let known: &[(&str, &[usize])] = &[("image", &[20, 30, 4]), ("weights", &[3, 3])];
        let shapes = shapes(TWO, known, &[("image", 600), ("out", 600)]);
        let filled = |name: &str, has_default| shapes.fill(name, name, has_default).unwrap().map(|one| one.value);
        assert_eq!((filled("width", true), filled("height", true), filled("depth", true)), (Some(30), Some(20), None));
        assert_eq!((filled("rows", true), filled("rows", false), filled("columns", false)), (None, Some(20), Some(30)));
        assert_eq!((filled("n", false), filled("n", true), filled("radius", false)), (Some(600), None, None));
        assert!(shapes.agree("width", "width", 30.0).is_ok() && shapes.agree("n", "n", 7.0).is_ok());
        assert_eq!(shapes.agree("width", "p.width", 31.0).unwrap_err().code.id, codes::command::SHAPE_CONFLICT.id);
    }

    #[test]
    fn where_shapes_differ_it_is_asked() {
        let shapes = shapes(TWO, &[("image", &[20, 30, 4]), ("out", &[5, 6])], &[("image", 600), ("out", 30)]);
        assert!(shapes.fill("width", "width", true).is_err() && shapes.fill("len", "len", false).is_err());
        assert!(shapes.agree("width", "width", 6.0).is_ok());
        // Of 4-vectors, 20 x 4 numbers are a row.
        let row = self::shapes(TWO, &[("image", &[20, 4])], &[]);
        assert_eq!(row.fill("width", "width", true), Ok(None));
    }
}
