//! Arrays that come from files or generators and go to files or the terminal.

mod csv;
mod generate;
mod npy;
mod png;
mod summary;

use std::path::Path;

use vyre::{DataType, Diagnostic, codes};

pub(crate) use generate::{generate, push_number};
pub(crate) use summary::summary;

/// Bytes with a type and a shape, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) ty: DataType,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Array {
    /// Elements, two to a byte for the 4-bit types.
    pub(crate) fn len(&self) -> usize {
        match self.ty.bits() {
            Some(bits) if bits > 0 => (self.bytes.len() as u64 * 8 / u64::from(bits)) as usize,
            _ => 0,
        }
    }
}

/// Reads an array by the ending of its file's name. `want` is the element type that the kernel declares; it decides the type of
/// `.csv` numbers, of `.png` pixels and of raw bytes.
pub(crate) fn read(path: &Path, want: &DataType) -> Result<Array, Diagnostic> {
    let bytes = std::fs::read(path).map_err(|error| {
        Diagnostic::new(&codes::command::CANT_READ, format!("`{}` can't be read: {error}", path.display()))
    })?;
    match extension(path).as_str() {
        "npy" => npy::decode(&bytes).map_err(|problem| bad_file(path, problem)),
        "csv" | "txt" => csv::decode(&bytes, want).map_err(|problem| bad_file(path, problem)),
        "png" => png::decode(&bytes, want).map_err(|problem| bad_file(path, problem)),
        _ => {
            let bits = want.bits().unwrap_or(8) as usize;
            Ok(Array { ty: want.clone(), shape: vec![bytes.len() * 8 / bits.max(1)], bytes })
        }
    }
}

/// The bytes of a file that holds an array, by the ending of its name.
pub(crate) fn encode(path: &Path, array: &Array) -> Result<Vec<u8>, Diagnostic> {
    Ok(match extension(path).as_str() {
        "npy" => npy::encode(array),
        "csv" | "txt" => csv::encode(array),
        "png" => png::encode(array).map_err(|problem| {
            Diagnostic::new(&codes::command::CANT_WRITE, format!("`{}` can't be written: {problem}", path.display()))
                .with_fix("Write a result of u8 or f32 pixels whose shape is height x width, or give --shape.")
        })?,
        _ => array.bytes.clone(),
    })
}

fn extension(path: &Path) -> String {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase()
}

fn bad_file(path: &Path, problem: String) -> Diagnostic {
    Diagnostic::new(&codes::command::BAD_FILE, format!("`{}` is not usable: {problem}", path.display()))
}
