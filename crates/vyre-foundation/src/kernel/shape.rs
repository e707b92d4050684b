//! Types with their specialized sizes, ready for taking values and addresses apart.

use vyre_spec::{Diagnostic, codes};

use super::{Element, Scalar};
use crate::ir::{Count, DataType, Program, TypeDef};
use crate::launch::Constants;

/// Position in [`Shapes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShapeId(u32);

/// A type.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// Scalar (width 1) or vector.
    Vector(Element, u8),
    /// Members with their byte offsets.
    Struct(Vec<(ShapeId, u32)>),
    /// Elements; no count where the length is open.
    Array { element: ShapeId, count: Option<u32>, stride: u32 },
}

struct Info {
    shape: Shape,
    leaves: u32,
    units: u32,
}

/// The shapes of a program: scalars and vectors first, then its type table.
pub(super) struct Shapes {
    infos: Vec<Option<Info>>,
}

const ELEMENTS: [Element; 18] = [
    Element::Bool,
    Element::U32,
    Element::I32,
    Element::U64,
    Element::I64,
    Element::F16,
    Element::F32,
    Element::F64,
    Element::U8,
    Element::U16,
    Element::I8,
    Element::I16,
    Element::BF16,
    Element::F8E4M3,
    Element::F8E5M2,
    Element::I4,
    Element::FP4,
    Element::NF4,
];
const HANDLES: usize = ELEMENTS.len() * 4;

/// The element that a computed scalar has in memory.
pub(super) fn element_of(scalar: Scalar) -> Element {
    ELEMENTS[scalar as usize]
}

impl ShapeId {
    /// Scalar or vector.
    pub(super) fn vector(element: Element, width: u8) -> ShapeId {
        ShapeId(element as u32 * 4 + u32::from(width) - 1)
    }

    /// Scalar or vector that computes.
    pub(super) fn of(scalar: Scalar, width: u8) -> ShapeId {
        ShapeId::vector(element_of(scalar), width)
    }
}

impl Shapes {
    pub(super) fn new(program: &Program, constants: &Constants<'_>) -> Result<Shapes, Diagnostic> {
        let mut infos: Vec<Option<Info>> = Vec::with_capacity(HANDLES + program.types().len());
        for element in ELEMENTS {
            for width in 1..=4 {
                let shape = Shape::Vector(element, width);
                infos.push(Some(Info { shape, leaves: width.into(), units: 1 }));
            }
        }
        let mut shapes = Shapes { infos };
        for def in program.types() {
            let info = shapes.define(def, constants)?;
            shapes.infos.push(info);
        }
        Ok(shapes)
    }

    /// `None` when a part is a descriptor.
    fn define(&self, def: &TypeDef, constants: &Constants<'_>) -> Result<Option<Info>, Diagnostic> {
        Ok(match def {
            TypeDef::Struct { members, .. } => {
                let mut parts = Vec::with_capacity(members.len());
                let (mut leaves, mut units) = (0u32, 0u32);
                for member in members {
                    let Some(id) = self.find(&member.ty) else { return Ok(None) };
                    leaves = leaves.saturating_add(self.leaves(id));
                    units = units.saturating_add(self.units(id));
                    parts.push((id, member.offset));
                }
                Some(Info { shape: Shape::Struct(parts), leaves, units })
            }
            TypeDef::Array { element, count, stride } => {
                let Some(id) = self.find(element) else { return Ok(None) };
                let count = match count {
                    Count::Runtime => None,
                    Count::Fixed(count) => Some(*count),
                    Count::Constant(expr) => Some(constants.eval(expr, &[])?),
                };
                let leaves = self.leaves(id).saturating_mul(count.unwrap_or(0));
                Some(Info {
                    shape: Shape::Array { element: id, count, stride: *stride },
                    leaves,
                    units: self.units(id),
                })
            }
        })
    }

    fn find(&self, ty: &DataType) -> Option<ShapeId> {
        if let Some(element) = Element::of(ty) {
            return Some(ShapeId::vector(element, 1));
        }
        if let DataType::Handle(id) = ty {
            let index = HANDLES + id.0 as usize;
            return self.infos.get(index)?.as_ref().map(|_| ShapeId(index as u32));
        }
        let (element, count) = ty.as_vector()?;
        let element = Element::of(&element).filter(|element| element.bits() >= 8)?;
        (2..=4).contains(&count).then(|| ShapeId::vector(element, count as u8))
    }

    /// The shape of a type; a diagnostic for descriptors.
    pub(super) fn of(&self, ty: &DataType) -> Result<ShapeId, Diagnostic> {
        self.find(ty)
            .ok_or_else(|| Diagnostic::new(&codes::kernel::TYPE, format!("values of type {ty} can't be computed with")))
    }

    pub(super) fn get(&self, id: ShapeId) -> &Shape {
        match &self.infos[id.0 as usize] {
            Some(info) => &info.shape,
            None => unreachable!("ids of descriptors are never given out"),
        }
    }

    /// Scalars in a value of the type.
    pub(super) fn leaves(&self, id: ShapeId) -> u32 {
        self.infos[id.0 as usize].as_ref().map_or(0, |info| info.leaves)
    }

    /// Scalars and vectors in the type, arrays counted as one element.
    pub(super) fn units(&self, id: ShapeId) -> u32 {
        self.infos[id.0 as usize].as_ref().map_or(0, |info| info.units)
    }

    /// The shape that a value has once loaded.
    pub(super) fn computed(&self, id: ShapeId) -> ShapeId {
        match self.get(id) {
            Shape::Vector(element, width) => ShapeId::of(element.scalar(), *width),
            _ => id,
        }
    }

    /// Appends the types of a value's scalars.
    pub(super) fn push_leaf_types(&self, id: ShapeId, out: &mut Vec<Scalar>) {
        match self.get(id) {
            Shape::Vector(element, width) => out.extend((0..*width).map(|_| element.scalar())),
            Shape::Struct(members) => members.iter().for_each(|(member, _)| self.push_leaf_types(*member, out)),
            Shape::Array { element, count, .. } => {
                (0..count.unwrap_or(0)).for_each(|_| self.push_leaf_types(*element, out));
            }
        }
    }

    /// Some part is an array.
    pub(super) fn has_array(&self, id: ShapeId) -> bool {
        match self.get(id) {
            Shape::Vector(..) => false,
            Shape::Struct(members) => members.iter().any(|(member, _)| self.has_array(*member)),
            Shape::Array { .. } => true,
        }
    }
}
