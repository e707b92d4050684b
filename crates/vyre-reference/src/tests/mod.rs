//! Whole programs against results worked out by hand.

mod flow;
mod groups;
mod limits;
mod memory;
mod operations;

use vyre_foundation::ir::Program;
use vyre_spec::Diagnostic;

use crate::{RunOptions, run};

fn execute(program: &Program, inputs: &[&[u8]], options: &RunOptions) -> Result<Vec<Vec<u8>>, Diagnostic> {
    run(&program.validate().expect("valid"), inputs, options)
}

/// The results under the default options.
fn results(program: &Program, inputs: &[&[u8]]) -> Vec<Vec<u8>> {
    execute(program, inputs, &RunOptions::default()).expect("runs")
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}
