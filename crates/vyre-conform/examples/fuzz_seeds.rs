//! Writes the seeds of the fuzz targets: the file tests, the example kernels, and small random programs, each in the form that
//! the target reads.

use std::fs;
use std::path::Path;

use vyre_conform::{GenOptions, generate};
use vyre_foundation::{text, wire};

fn main() -> std::io::Result<()> {
    let root = &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    for target in ["wire", "text", "wgsl", "lower"] {
        fs::create_dir_all(root.join("seeds").join(target))?;
    }
    let write = |target: &str, name: &str, bytes: &[u8]| fs::write(root.join("seeds").join(target).join(name), bytes);
    for entry in fs::read_dir(root.join("../crates/vyre-conform/filetests"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let source = fs::read_to_string(&path)?;
        write("text", &name, source.as_bytes())?;
        if let Ok(program) = text::parse(&source) {
            write("wire", &name, &wire::encode(&program))?;
            write("lower", &name, &wire::encode(&program))?;
        }
    }
    let options = GenOptions { statements: (4, 12), ..GenOptions::default() };
    for seed in 0..60 {
        let program = generate(seed, &options).program;
        write("wire", &format!("random{seed}"), &wire::encode(&program))?;
        write("lower", &format!("random{seed}"), &wire::encode(&program))?;
        write("text", &format!("random{seed}"), text::print(&program).as_bytes())?;
    }
    for entry in fs::read_dir(root.join("../examples/kernels"))? {
        let path = entry?.path();
        write("wgsl", &path.file_name().unwrap_or_default().to_string_lossy(), &fs::read(&path)?)?;
    }
    Ok(())
}
