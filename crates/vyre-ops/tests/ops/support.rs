//! Engines of this machine and numbers that are the same in every run.

use std::sync::OnceLock;

use vyre::{Array, Element, Engine, Error, codes::Class};

/// One engine for each backend of this machine that computes, and its name.
pub(crate) fn engines() -> &'static [(String, Engine)] {
    static ENGINES: OnceLock<Vec<(String, Engine)>> = OnceLock::new();
    ENGINES.get_or_init(|| {
        let all = Engine::builder().without_disk().open().expect("the engine opens");
        let mut engines = Vec::new();
        for device in all.devices() {
            let name = device.id.as_str().to_owned();
            let wanted = std::env::var("VYRE_OPS_ON").map_or(true, |only| only == name);
            if device.state.is_ok() && name != "reference" && wanted {
                let engine = Engine::builder()
                    .without_disk()
                    .without_default_backends()
                    .with_backend(all.backend(&name).expect("it is present"), 1)
                    .open()
                    .expect("the engine opens");
                engines.push((name, engine));
            }
        }
        assert!(!engines.is_empty(), "the processor is always here");
        engines
    })
}

/// The elements, or `None` where the backend can't compute with their type.
pub(crate) fn read<T: Element>(result: Result<Array<T>, Error>) -> Option<Vec<T>> {
    match result.and_then(|array| array.to_vec()) {
        Ok(values) => Some(values),
        Err(error) if error.class() == Class::Program && error.message().contains("64") => None,
        Err(error) if error.class() == Class::Program && error.message().contains("f16") => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// A sequence that looks random (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.bits() % end.max(1) as u64) as usize
    }

    /// From -1 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(crate) fn units(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.unit()).collect()
    }

    pub(crate) fn words(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.bits() as u32).collect()
    }
}

/// Lengths around every edge of the kernels: fewer for software that compiles slowly, larger ones only when asked for.
pub(crate) fn lengths(name: &str) -> Vec<usize> {
    if name != "cpu" && !name.starts_with("cuda") {
        return vec![0, 1, 33, 2049, 16_385];
    }
    let mut lengths = vec![0, 1, 2, 31, 32, 33, 255, 256, 257, 1000, 2047, 2049, 16_384, 16_385, 70_001];
    if std::env::var_os("VYRE_OPS_LONG").is_some() {
        lengths.extend([(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 24) + 7]);
    }
    lengths
}
