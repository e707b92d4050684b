//! A digest of the sources that make PTX of kernels, so that stored code of an earlier state is not taken for this one's.

fn main() {
    vyre_sources::set_digest("VYRE_CUDA_SOURCES", "src");
}
