//! A digest of the sources that make kernels of programs, so that stored code of an earlier state is not taken for this one's.

fn main() {
    vyre_sources::set_digest("VYRE_FOUNDATION_SOURCES", "src/kernel");
}
