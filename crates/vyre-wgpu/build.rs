//! A digest of the sources that make code for adapters of kernels, so that stored code of an earlier state is not taken for this one's.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=VYRE_WGPU_SOURCES={:032x}", digest(Path::new("src")));
}

/// FNV-1a with 128 bits over the names and contents of all Rust sources in a folder, in order of their names.
fn digest(folder: &Path) -> u128 {
    let mut files = Vec::new();
    collect(folder, &mut files);
    files.sort();
    let mut digest = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for file in files {
        let name = file.to_string_lossy().replace('\\', "/");
        let contents = std::fs::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        for byte in name.bytes().chain([0]).chain(contents).chain([0]) {
            digest = (digest ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
    digest
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
