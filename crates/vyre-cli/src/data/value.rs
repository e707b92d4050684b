//! Results: the bytes of a buffer with the type of its elements and a shape.

use vyre::DataType;
use vyre::ir::TypeDef;

use super::layout::Layout;
use super::number::{Number, width};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// As people call it.
    pub(crate) ty: String,
    /// None where the elements are no numbers: the 8- and 4-bit floats, structs that end in an array of open length.
    pub(crate) layout: Option<Layout>,
    /// In numbers, for structs in elements, for what has no layout in bytes.
    pub(crate) shape: Vec<usize>,
    /// As they lie in the buffer.
    pub(crate) bytes: Vec<u8>,
}

impl Value {
    /// A result of its natural shape, or of one that was given and holds as many.
    pub(crate) fn new(types: &[TypeDef], ty: &DataType, bytes: Vec<u8>, shape: Option<&[usize]>) -> Value {
        let layout = Layout::of(types, ty);
        let name = match (ty, ty.as_vector()) {
            (DataType::Handle(id), _) => match types.get(id.0 as usize) {
                Some(TypeDef::Struct { name, .. }) => name.to_string(),
                _ => "array".to_owned(),
            },
            (_, Some((element, _))) => element.to_string(),
            _ => ty.to_string(),
        };
        let mut value = Value { ty: name, layout, shape: Vec::new(), bytes };
        let lanes = value.layout.as_ref().map_or(1, |layout| layout.fields.len());
        let elements = value.elements();
        let is_struct = value.layout.as_ref().is_some_and(|layout| layout.is_struct);
        let count = if is_struct { elements } else { elements * lanes };
        value.shape = match shape {
            Some(shape) if shape.iter().product::<usize>() == count => shape.to_vec(),
            _ if !is_struct && lanes > 1 => vec![elements, lanes],
            _ => vec![count],
        };
        value
    }

    #[cfg(test)]
    pub(crate) fn plain(ty: DataType, shape: Vec<usize>, bytes: Vec<u8>) -> Value {
        Value::new(&[], &ty, bytes, Some(&shape))
    }

    fn elements(&self) -> usize {
        self.bytes.len() / self.layout.as_ref().map_or(1, |layout| layout.size.max(1))
    }

    /// Numbers, or bytes where there are none.
    pub(crate) fn len(&self) -> usize {
        self.elements() * self.layout.as_ref().map_or(1, |layout| layout.fields.len())
    }

    /// The type of all numbers, where there is one.
    pub(crate) fn number_type(&self) -> Option<DataType> {
        let fields = &self.layout.as_ref()?.fields;
        let ty = &fields.first()?.ty;
        fields.iter().all(|field| field.ty == *ty).then(|| ty.clone())
    }

    /// The number at a place, counted through all elements, with its type.
    pub(crate) fn typed(&self, at: usize) -> Option<(Number, &DataType)> {
        let layout = self.layout.as_ref()?;
        let field = layout.fields.get(at % layout.fields.len().max(1))?;
        let start = at / layout.fields.len() * layout.size + field.offset;
        let bytes = self.bytes.get(start..start + width(&field.ty))?;
        Some((Number::read(bytes, &field.ty)?, &field.ty))
    }

    pub(crate) fn number(&self, at: usize) -> Option<Number> {
        self.typed(at).map(|(number, _)| number)
    }

    /// The number at a place as text; a byte in hexadecimal where there are no numbers.
    pub(crate) fn show(&self, at: usize) -> String {
        match self.typed(at) {
            Some((number, ty)) => number.show(ty),
            None => self.bytes.get(at).map_or_else(String::new, |byte| format!("{byte:02x}")),
        }
    }
}
