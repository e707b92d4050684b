//! Makes a digest of the sources that kernels go through, by which stored code of another state of them is known: the optimiser's,
//! where it lies next to this crate, and this crate's own.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or_else(|| io::Error::other("not run by cargo"))?);
    let mut files = Vec::new();
    for folder in ["src", "../vyre-foundation/src/kernel"] {
        if root.join(folder).is_dir() {
            collect(&root.join(folder), &mut files)?;
            println!("cargo::rerun-if-changed={folder}");
        }
    }
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in files {
        let name = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        let text = fs::read(&file)?;
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
        hasher.update(&(text.len() as u64).to_le_bytes()).update(&text);
    }
    println!("cargo::rustc-env=VYRE_CUDA_SOURCES={}", hasher.finalize().to_hex());
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
