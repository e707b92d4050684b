//! Types and their definitions.

use smallvec::SmallVec;
use vyre_spec::codes;

use super::super::is_reserved;
use super::super::lex::Token;
use super::{Parsed, Parser};
use crate::ir::{Count, DataType, Member, TypeDef, TypeId};

impl Parser<'_> {
    pub(super) fn type_def(&mut self) -> Parsed<TypeDef> {
        let number: usize = match self.peek() {
            Token::Number(text) if text.parse() == Ok(self.parts.types.len()) => self.parts.types.len(),
            _ => return self.expected(&format!("`{}`, the number of this type,", self.parts.types.len())),
        };
        debug_assert_eq!(number, self.parts.types.len());
        self.next();
        self.mark("=")?;
        if self.eat_word("array") {
            self.mark("<")?;
            let element = self.ty()?;
            let count = if self.eat(",") { self.count(">")? } else { Count::Runtime };
            self.mark(">")?;
            self.word("stride")?;
            let stride = self.number()?;
            self.mark(";")?;
            return Ok(TypeDef::Array { element, count, stride });
        }
        self.word("struct")?;
        let name = self.name()?;
        self.word("size")?;
        let size = self.number()?;
        self.word("align")?;
        let align = self.number()?;
        self.mark("{")?;
        let mut members = Vec::new();
        while !self.is_mark("}") {
            self.item()?;
            let name = self.name()?;
            self.mark(":")?;
            let ty = self.ty()?;
            self.word("at")?;
            members.push(Member { name, ty, offset: self.number()? });
            if !self.eat(",") {
                break;
            }
        }
        self.mark("}")?;
        self.mark(";")?;
        Ok(TypeDef::Struct { name, members, size, align })
    }

    pub(super) fn ty(&mut self) -> Parsed<DataType> {
        self.nested(Self::ty_here)
    }

    pub(super) fn ty_here(&mut self) -> Parsed<DataType> {
        let Token::Word(word) = *self.peek() else { return self.expected("a type") };
        let plain = match word {
            "u32" => Some(DataType::U32),
            "i32" => Some(DataType::I32),
            "u64" => Some(DataType::U64),
            "vec2u32" => Some(DataType::Vec2U32),
            "vec4u32" => Some(DataType::Vec4U32),
            "bool" => Some(DataType::Bool),
            "bytes" => Some(DataType::Bytes),
            "f16" => Some(DataType::F16),
            "bf16" => Some(DataType::BF16),
            "f32" => Some(DataType::F32),
            "f64" => Some(DataType::F64),
            "u8" => Some(DataType::U8),
            "u16" => Some(DataType::U16),
            "i8" => Some(DataType::I8),
            "i16" => Some(DataType::I16),
            "i64" => Some(DataType::I64),
            "f8e4m3" => Some(DataType::F8E4M3),
            "f8e5m2" => Some(DataType::F8E5M2),
            "i4" => Some(DataType::I4),
            "fp4" => Some(DataType::FP4),
            "nf4" => Some(DataType::NF4),
            _ => None,
        };
        if let Some(ty) = plain {
            self.next();
            return Ok(ty);
        }
        if !is_reserved(word) {
            let Some(&id) = self.structs.get(word) else {
                return self.problem(&codes::text::TEXT_NAME, format!("there is no type `{word}`"));
            };
            self.next();
            return Ok(DataType::Handle(TypeId(id)));
        }
        if !matches!(word, "raw" | "tensor" | "type" | "vec" | "csr" | "coo" | "bsr" | "mesh" | "opaque") {
            return self.expected("a type");
        }
        self.next();
        if word == "tensor" && !self.is_mark("<") {
            return Ok(DataType::Tensor);
        }
        self.mark("<")?;
        let ty = match word {
            "raw" => DataType::Array { element_size: self.number()? },
            "type" => DataType::Handle(TypeId(self.number()?)),
            "opaque" => DataType::Opaque(TypeId(self.number()?)),
            "mesh" => DataType::DeviceMesh { axes: self.axis_list()? },
            "csr" => DataType::SparseCsr { element: Box::new(self.ty()?) },
            "coo" => DataType::SparseCoo { element: Box::new(self.ty()?) },
            _ => {
                let element = Box::new(self.ty()?);
                self.mark(",")?;
                match word {
                    "vec" => DataType::Vec { element, count: self.number()? },
                    "tensor" => DataType::TensorShaped { element, shape: self.axis_list()? },
                    _ => match self.axis_list()?[..] {
                        [block_rows, block_cols] => DataType::SparseBsr { element, block_rows, block_cols },
                        _ => return self.expected("rows and columns as in `2x2`, before this"),
                    },
                }
            }
        };
        self.mark(">")?;
        Ok(ty)
    }

    /// `2x3x4`, or nothing.
    pub(super) fn axis_list(&mut self) -> Parsed<SmallVec<[u32; 4]>> {
        let Token::Number(text) = *self.peek() else { return Ok(SmallVec::new()) };
        match text.split('x').map(str::parse).collect() {
            Ok(axes) => {
                self.next();
                Ok(axes)
            }
            Err(_) => self.problem(&codes::text::TEXT_NUMBER, format!("`{text}` is no shape such as `2x3`")),
        }
    }
}
