//! Values for a program's specialization constants, and the keys made from them.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use vyre_foundation::ir::{DataType, Literal, Name, Program, Specialization};
use vyre_spec::{Diagnostic, codes};

use crate::pipeline::hex_encode;

/// The value of one specialization constant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SpecValue {
    /// An unsigned integer.
    U32(u32),
    /// A signed integer.
    I32(i32),
    /// A float; two are equal when their bits are.
    F32(f32),
    /// A truth value.
    Bool(bool),
    /// An element type, for keys of operations that exist for several. No constant of a program has this type.
    DType(DataType),
}

impl SpecValue {
    /// The value as the number that pipeline constants are set with: a bool is 0 or 1, a type is its tag.
    pub fn as_pipeline_f64(&self) -> f64 {
        match self {
            SpecValue::U32(value) => f64::from(*value),
            SpecValue::I32(value) => f64::from(*value),
            SpecValue::F32(value) => f64::from(*value),
            SpecValue::Bool(value) => f64::from(u8::from(*value)),
            SpecValue::DType(ty) => f64::from(ty.tag()),
        }
    }

    /// 64 bits of the digest of variant and value; floats by bit pattern, types with all their parameters.
    pub fn cache_hash(&self) -> u64 {
        let mut hasher = blake3::Hasher::new_derive_key("vyre specialization value 1");
        self.update(&mut hasher);
        low_u64(&hasher)
    }

    /// Feeds variant, length and value, so that no two values feed the same bytes.
    fn update(&self, hasher: &mut blake3::Hasher) {
        match self {
            SpecValue::U32(value) => part(hasher, b'u', &value.to_le_bytes()),
            SpecValue::I32(value) => part(hasher, b'i', &value.to_le_bytes()),
            SpecValue::F32(value) => part(hasher, b'f', &value.to_bits().to_le_bytes()),
            SpecValue::Bool(value) => part(hasher, b'b', &[u8::from(*value)]),
            SpecValue::DType(ty) => part(hasher, b't', &ty.key()),
        }
    }

    /// The name of the value's type, for people.
    fn type_name(&self) -> &'static str {
        match self {
            SpecValue::U32(_) => "u32",
            SpecValue::I32(_) => "i32",
            SpecValue::F32(_) => "f32",
            SpecValue::Bool(_) => "bool",
            SpecValue::DType(_) => "a data type",
        }
    }

    /// This value as a constant of type `ty`, when nothing is lost by it: equal types, or a number that the other type
    /// holds exactly.
    fn to_literal(&self, ty: &DataType) -> Option<Literal> {
        let integer = match self {
            SpecValue::U32(value) => Some(i64::from(*value)),
            SpecValue::I32(value) => Some(i64::from(*value)),
            _ => None,
        };
        Some(match (ty, self, integer) {
            (DataType::Bool, SpecValue::Bool(value), _) => Literal::Bool(*value),
            (DataType::U32, _, Some(value)) => Literal::U32(u32::try_from(value).ok()?),
            (DataType::I32, _, Some(value)) => Literal::I32(i32::try_from(value).ok()?),
            (DataType::U64, _, Some(value)) => Literal::U64(u64::try_from(value).ok()?),
            (DataType::I64, _, Some(value)) => Literal::I64(value),
            (DataType::F64, SpecValue::F32(value), _) => Literal::F64(f64::from(*value)),
            (DataType::F32, SpecValue::F32(value), _) => Literal::F32(*value),
            (DataType::F16, SpecValue::F32(value), _) => {
                let narrow = half::f16::from_f32(*value);
                if !value.is_nan() && narrow.to_f32().to_bits() != value.to_bits() {
                    return None;
                }
                Literal::F16(narrow)
            }
            _ => return None,
        })
    }
}

impl PartialEq for SpecValue {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (SpecValue::U32(a), SpecValue::U32(b)) => a == b,
            (SpecValue::I32(a), SpecValue::I32(b)) => a == b,
            (SpecValue::F32(a), SpecValue::F32(b)) => a.to_bits() == b.to_bits(),
            (SpecValue::Bool(a), SpecValue::Bool(b)) => a == b,
            (SpecValue::DType(a), SpecValue::DType(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for SpecValue {}

impl From<u32> for SpecValue {
    fn from(value: u32) -> Self {
        SpecValue::U32(value)
    }
}

impl From<i32> for SpecValue {
    fn from(value: i32) -> Self {
        SpecValue::I32(value)
    }
}

impl From<f32> for SpecValue {
    fn from(value: f32) -> Self {
        SpecValue::F32(value)
    }
}

impl From<bool> for SpecValue {
    fn from(value: bool) -> Self {
        SpecValue::Bool(value)
    }
}

impl From<DataType> for SpecValue {
    fn from(value: DataType) -> Self {
        SpecValue::DType(value)
    }
}

/// Values by constant name. The order of insertion never matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpecMap {
    values: BTreeMap<String, SpecValue>,
}

impl SpecMap {
    /// No values: every constant keeps its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a value and gives the one it replaces.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<SpecValue>) -> Option<SpecValue> {
        self.values.insert(name.into(), value.into())
    }

    /// The value of a constant.
    pub fn get(&self, name: &str) -> Option<&SpecValue> {
        self.values.get(name)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// There is no value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &SpecValue)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The values as pipeline constants are set, see [`SpecValue::as_pipeline_f64`].
    pub fn to_numeric_constants(&self) -> HashMap<String, f64> {
        self.values.iter().map(|(name, value)| (name.clone(), value.as_pipeline_f64())).collect()
    }

    /// 64 bits of [`SpecMap::digest`], for tables that check the whole key on a hit.
    pub fn cache_hash(&self) -> u64 {
        let digest = self.digest();
        u64::from_le_bytes([digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6], digest[7]])
    }

    /// 256-bit digest of all names and values. Every part is delimited, so different maps feed different bytes.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("vyre specialization map 1");
        hasher.update(&(self.values.len() as u64).to_le_bytes());
        for (name, value) in &self.values {
            part(&mut hasher, b'n', name.as_bytes());
            value.update(&mut hasher);
        }
        *hasher.finalize().as_bytes()
    }

    /// The values as the constants of `program`. An unknown name or a value that the constant's type can't hold exactly is
    /// refused.
    pub fn resolve(&self, program: &Program) -> Result<Specialization, Diagnostic> {
        let declared = program.constants();
        let mut resolved = Specialization::new();
        for (name, value) in &self.values {
            let Some(constant) = declared.iter().find(|constant| constant.name == name.as_str()) else {
                let known = if declared.is_empty() {
                    "it declares none".to_owned()
                } else {
                    let names: Vec<_> = declared.iter().map(|constant| constant.name.as_str()).collect();
                    format!("it declares {}", names.join(", "))
                };
                return Err(Diagnostic::new(
                    &codes::specialization::UNKNOWN_CONSTANT,
                    format!("the program has no specialization constant `{name}`; {known}"),
                ));
            };
            let ty = constant.default.data_type();
            let Some(literal) = value.to_literal(&ty) else {
                return Err(Diagnostic::new(
                    &codes::specialization::WRONG_TYPE,
                    format!("specialization constant `{name}` is {ty} and can't hold this {}", value.type_name()),
                ));
            };
            resolved.insert(Name::from(name), literal);
        }
        Ok(resolved)
    }
}

impl<N: Into<String>, V: Into<SpecValue>> FromIterator<(N, V)> for SpecMap {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(values: I) -> Self {
        SpecMap { values: values.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

/// Key of a specialized pipeline in a table that holds the whole key. Where a key selects code to run, use
/// [`SpecMap::digest`] instead of the 64-bit hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpecCacheKey {
    /// Hash of the program.
    pub shader_hash: u64,
    /// Hash of the binding layout.
    pub binding_sig: u64,
    /// Workgroup size.
    pub workgroup_size: [u32; 3],
    /// [`SpecMap::cache_hash`].
    pub spec_hash: u64,
}

impl SpecCacheKey {
    /// The key for these parts and values.
    pub fn new(shader_hash: u64, binding_sig: u64, workgroup_size: [u32; 3], values: &SpecMap) -> Self {
        SpecCacheKey { shader_hash, binding_sig, workgroup_size, spec_hash: values.cache_hash() }
    }
}

/// High half from the program alone, low half the specialization.
pub fn vsa_specialization_key(program: &Program, spec_hash: u64) -> u128 {
    let fingerprint = program.fingerprint();
    let mut high = [0; 8];
    high.copy_from_slice(&fingerprint[..8]);
    (u128::from(u64::from_le_bytes(high)) << 64) | u128::from(spec_hash)
}

/// 64 hex digits that name a compiled artifact. Each text is length-prefixed, so no two pairs of texts meet.
pub fn versioned_specialization_artifact_key(cache_version: u32, spec_hash: &str, backend_fingerprint: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("vyre specialization artifact 1");
    hasher.update(&cache_version.to_le_bytes());
    part(&mut hasher, b's', spec_hash.as_bytes());
    part(&mut hasher, b'b', backend_fingerprint.as_bytes());
    hex_encode(hasher.finalize().as_bytes())
}

fn part(hasher: &mut blake3::Hasher, tag: u8, bytes: &[u8]) {
    hasher.update(&[tag]);
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

fn low_u64(hasher: &blake3::Hasher) -> u64 {
    let mut low = [0; 8];
    hasher.finalize_xof().fill(&mut low);
    u64::from_le_bytes(low)
}
