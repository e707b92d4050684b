//! For build scripts of crates that make code of kernels: a digest of their sources, so that stored code of another state of them is not
//! taken for this one's. It knows nothing of programs, devices or caches.
//!
//! ```no_run
//! // build.rs; the crate then has `env!("MY_SOURCES")`.
//! vyre_sources::set_digest("MY_SOURCES", "src");
//! ```
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

/// Sets an environment variable for the crate that is built to the digest of all Rust sources in a folder of it, and has the build script
/// run again when one of them changes.
///
/// # Panics
/// Where a source can't be read: then nothing can be built either.
pub fn set_digest(variable: &str, folder: &str) {
    println!("cargo::rerun-if-changed={folder}");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env={variable}={:032x}", digest(Path::new(folder)));
}

/// FNV-1a with 128 bits over the names and contents of all Rust sources in a folder, in order of their names.
fn digest(folder: &Path) -> u128 {
    let mut files = Vec::new();
    collect(folder, &mut files);
    files.sort();
    let mut digest = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for file in files {
        let name = file.strip_prefix(folder).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        let contents = std::fs::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        // Lengths keep neighbours apart.
        let lengths = [name.len() as u64, contents.len() as u64].map(u64::to_le_bytes);
        for byte in lengths.concat().into_iter().chain(name.into_bytes()).chain(contents) {
            digest = (digest ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
    digest
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_byte_counts() {
        let root = std::env::temp_dir().join(format!("vyre-sources-{}", std::process::id()));
        let put = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            digest(&root)
        };
        let mut seen = vec![put("a.rs", "x"), put("b/c.rs", "y"), put("a.rs", "z"), put("d.rs", "")];
        std::fs::rename(root.join("d.rs"), root.join("e.rs")).unwrap();
        seen.push(digest(&root));
        // What is no source does not count.
        assert_eq!(put("notes.txt", "x"), seen[4]);
        std::fs::remove_dir_all(&root).unwrap();
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
