//! Where the numbers of an element lie.

use vyre::DataType;
use vyre::ir::{Count, TypeDef};

use super::number::{is_number, width};

/// One number of an element.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    /// `mass`, `position.x`, `weights[3]`; a plain number has none.
    pub(crate) name: String,
    pub(crate) offset: usize,
    pub(crate) ty: DataType,
}

/// The numbers of an element, and the distance of neighbours.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    pub(crate) fields: Vec<Field>,
    pub(crate) size: usize,
    /// Its numbers have names, and files hold it by name.
    pub(crate) is_struct: bool,
}

/// More numbers than that in one element are not listed.
const MOST: usize = 4096;

impl Layout {
    /// The layout of a buffer's elements; none where they are no numbers, too many of them, or of open number.
    pub(crate) fn of(types: &[TypeDef], ty: &DataType) -> Option<Layout> {
        let mut fields = Vec::new();
        let size = flatten(types, ty, 0, "", &mut fields)?;
        let is_struct = matches!(ty, DataType::Handle(_));
        // Vectors of three are spaced as those of four.
        let size = match ty.as_vector() {
            Some((element, 3)) => 4 * width(&element),
            _ => size,
        };
        fields.iter().all(|field| is_number(&field.ty)).then_some(Layout { fields, size, is_struct })
    }

    /// The only type of its numbers, where they lie next to each other from the first to the last.
    pub(crate) fn packed(&self) -> Option<&DataType> {
        let ty = &self.fields.first()?.ty;
        let size = width(ty);
        let dense = self.fields.iter().enumerate().all(|(at, field)| field.ty == *ty && field.offset == at * size);
        (dense && self.size == size * self.fields.len()).then_some(ty)
    }

    /// The fields that a name stands for: one number, or all those of a member.
    pub(crate) fn named(&self, name: &str) -> Vec<usize> {
        let name = indexed(name);
        let of = |field: &Field| {
            let full = indexed(&field.name);
            full.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        (0..self.fields.len()).filter(|&at| of(&self.fields[at])).collect()
    }

    /// The members, each once.
    pub(crate) fn members(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for field in &self.fields {
            let name = field.name.split(['.', '[']).next().unwrap_or_default();
            if names.last() != Some(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// Lanes of a vector may be written with letters or numbers.
pub(crate) fn indexed(name: &str) -> String {
    for (letter, number) in [(".x", "[0]"), (".y", "[1]"), (".z", "[2]"), (".w", "[3]")] {
        if let Some(vector) = name.strip_suffix(letter) {
            return format!("{vector}{number}");
        }
    }
    name.to_owned()
}

/// Appends the numbers of a type, and gives its size.
fn flatten(types: &[TypeDef], ty: &DataType, offset: usize, name: &str, out: &mut Vec<Field>) -> Option<usize> {
    if out.len() > MOST {
        return None;
    }
    if let DataType::Handle(id) = ty {
        return match types.get(id.0 as usize)? {
            TypeDef::Struct { members, size, .. } => {
                for member in members {
                    let name = match name {
                        "" => member.name.to_string(),
                        outer => format!("{outer}.{}", member.name),
                    };
                    flatten(types, &member.ty, offset + member.offset as usize, &name, out)?;
                }
                Some(*size as usize)
            }
            TypeDef::Array { element, count: Count::Fixed(count), stride } => {
                for index in 0..*count as usize {
                    flatten(types, element, offset + index * *stride as usize, &format!("{name}[{index}]"), out)?;
                }
                (*count as usize).checked_mul(*stride as usize)
            }
            TypeDef::Array { .. } => None,
        };
    }
    let (element, lanes) = ty.as_vector().unwrap_or((ty.clone(), 1));
    let size = element.bits()? as usize / 8;
    for lane in 0..lanes as usize {
        let letter = ["x", "y", "z", "w"].get(lane).filter(|_| lanes > 1);
        let name = match (name, letter) {
            (name, None) => name.to_owned(),
            ("", Some(letter)) => (*letter).to_owned(),
            (name, Some(letter)) => format!("{name}.{letter}"),
        };
        out.push(Field { name, offset: offset + lane * size, ty: element.clone() });
    }
    Some(size * lanes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vyre::ir::Member;

    #[test]
    fn numbers_have_names_and_places() {
        let member = |name: &str, ty, offset| Member { name: name.into(), ty, offset };
        let vec3 = DataType::Vec { element: Box::new(DataType::F32), count: 3 };
        let types = [
            TypeDef::Array { element: DataType::U32, count: Count::Fixed(2), stride: 4 },
            TypeDef::Struct {
                name: "P".into(),
                members: vec![
                    member("at", vec3.clone(), 0),
                    member("mass", DataType::F32, 12),
                    member("tags", DataType::Handle(vyre::ir::TypeId(0)), 16),
                ],
                size: 32,
                align: 16,
            },
        ];
        let layout = Layout::of(&types, &DataType::Handle(vyre::ir::TypeId(1))).unwrap();
        let names: Vec<_> = layout.fields.iter().map(|field| (field.name.as_str(), field.offset)).collect();
        let expected = [("at.x", 0), ("at.y", 4), ("at.z", 8), ("mass", 12), ("tags[0]", 16), ("tags[1]", 20)];
        assert_eq!(names, expected);
        assert_eq!(layout.members(), ["at", "mass", "tags"]);
        assert_eq!(layout.named("at"), [0, 1, 2]);
        assert_eq!((layout.named("at.y"), layout.named("at[1]"), layout.named("a")), (vec![1], vec![1], vec![]));
        assert_eq!(layout.packed(), None);
        let plain = Layout::of(&[], &vec3).unwrap();
        assert_eq!((plain.size, plain.packed(), plain.is_struct), (16, None, false));
    }
}
