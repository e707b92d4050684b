//! Numbers and texts that the works share, on the host and in an engine that has one device alone.

use std::cell::RefCell;

use vyre::{Array, Element, Engine};

/// How large the works are.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) elements: usize,
    pub(crate) keys: usize,
    /// Rows and columns of tables.
    pub(crate) side: usize,
    pub(crate) bodies: usize,
    /// Sides of the matrices that are multiplied.
    pub(crate) matrices: &'static [usize],
    /// Points of the Fourier transforms.
    pub(crate) points: [usize; 2],
    /// Heads, steps and rows of attention.
    pub(crate) attention: [usize; 3],
    /// Pictures, channels and sides of a convolution.
    pub(crate) pictures: [usize; 3],
    /// Bytes of a text.
    pub(crate) bytes: usize,
}

impl Sizes {
    /// Those of processors.
    pub(crate) const SMALL: Sizes = Sizes {
        elements: 1 << 24,
        keys: 1 << 22,
        side: 2048,
        bodies: 1 << 12,
        matrices: &[512, 2048],
        points: [256, 1 << 14],
        attention: [8, 512, 64],
        pictures: [2, 16, 56],
        bytes: 1 << 26,
    };
    pub(crate) const MEDIUM: Sizes = Sizes { elements: 1 << 26, ..Sizes::LARGE };
    pub(crate) const LARGE: Sizes = Sizes {
        elements: 1 << 28,
        keys: 1 << 26,
        side: 8192,
        bodies: 1 << 15,
        matrices: &[4096],
        points: [1024, 1 << 20],
        attention: [32, 4096, 128],
        pictures: [32, 64, 56],
        bytes: 1 << 26,
    };
}

pub(crate) const NEEDLE: &[u8] = b"Zarathustra spoke";

pub(crate) struct Data {
    pub(crate) engine: Engine,
    pub(crate) sizes: Sizes,
    /// From -1 to 1.
    pub(crate) x: Vec<f32>,
    pub(crate) y: Vec<f32>,
    pub(crate) keys: Vec<u32>,
    /// Positions among the elements, as many as there are keys.
    pub(crate) places: Vec<u32>,
    /// Below 256.
    pub(crate) codes: Vec<u32>,
    pub(crate) text: Vec<u8>,
    pub(crate) words: Vec<Vec<u8>>,
    /// Room for what peers compute.
    pub(crate) out: RefCell<Vec<f32>>,
    pub(crate) sorted: RefCell<Vec<u32>>,
    pub(crate) kept: RefCell<Vec<f32>>,
}

/// Words that look random.
pub(crate) fn words(count: usize) -> Vec<u32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    (0..count).map(|_| next()).collect()
}

/// An engine with one device alone.
pub(crate) fn engine(on: &str) -> Engine {
    let all = Engine::builder().without_disk().open().expect("the engine opens");
    let only = all.backend(on).expect("the backend is here");
    let engine = Engine::builder().without_disk().without_default_backends().with_backend(only, 1).open();
    engine.expect("the engine opens")
}

impl Data {
    pub(crate) fn new(on: &str, sizes: Sizes) -> Data {
        let unit = |word: &u32| (word >> 8) as f32 / (1u32 << 23) as f32 - 1.0;
        let count = sizes.elements.max(Sizes::SMALL.elements).max(sizes.keys).max(sizes.side * sizes.side);
        let random = words(2 * count);
        let (first, second) = random.split_at(count);
        // Letters about as often as in English, and what is looked for a few times.
        let letters = b"etaoinshrdlucmfwypvbgkqjxz     ETAOINSHRDLU,.\n";
        let letter = |word: &u32| letters[(word % 64).min(word >> 8 & 63) as usize % letters.len()];
        let mut text: Vec<u8> = words(sizes.bytes).iter().map(letter).collect();
        for at in (1..8).map(|part| part * sizes.bytes / 8) {
            text[at..at + NEEDLE.len()].copy_from_slice(NEEDLE);
        }
        let words_of = words(1 << 12);
        let pattern = |at: usize| words_of[at * 8..at * 8 + 8].iter().map(|word| b'a' + (word % 26) as u8).collect();
        let keys = first[..sizes.keys].to_vec();
        Data {
            engine: engine(on),
            sizes,
            x: first.iter().map(unit).collect(),
            y: second.iter().map(unit).collect(),
            places: keys.iter().map(|key| key % sizes.elements as u32).collect(),
            keys,
            codes: first[..sizes.elements].iter().map(|word| word & 255).collect(),
            text,
            words: (0..256).map(pattern).collect(),
            out: RefCell::new(vec![0.0; count]),
            sorted: RefCell::default(),
            kept: RefCell::default(),
        }
    }

    /// Values that the engine and its peers read in the same memory. Whoever had a copy of their own would find more or less of it in the
    /// caches than the others, by how often each of them runs.
    pub(crate) fn both<T: Element>(&self, values: &[T]) -> (Array<T>, &'static [T]) {
        let values = values.to_vec();
        let (start, length) = (values.as_ptr(), values.len());
        assert!(start.addr().is_multiple_of(8), "memory that is not used in place");
        let array = self.engine.array_of_vec(values).expect("an array");
        std::mem::forget(array.clone());
        // SAFETY: the array has the vector's memory, which nobody writes, and which stays because one handle of it is never dropped.
        (array, unsafe { std::slice::from_raw_parts(start, length) })
    }

    pub(crate) fn array(&self, shape: &[usize], values: &[f32]) -> Array<f32> {
        let count: usize = shape.iter().product();
        self.engine.from_shape(shape, &values[..count]).expect("an array")
    }

    /// The same in f16.
    pub(crate) fn halves(array: &Array<f32>) -> Array<half::f16> {
        array.lazy().cast::<half::f16>().eval().expect("halves")
    }
}
