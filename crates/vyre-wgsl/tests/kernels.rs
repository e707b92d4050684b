//! The example kernels import, validate, travel through WGSL text, and compute what plain Rust computes.

use std::path::PathBuf;

use half::f16;
use vyre_foundation::ir::{Literal, Name, Program};
use vyre_reference::RunOptions;
use vyre_wgsl::{ImportOptions, export, import};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kernels"))
}

fn text(problems: &[vyre_spec::Diagnostic]) -> String {
    problems.iter().map(|problem| problem.to_string()).collect::<Vec<_>>().join("\n")
}

fn load(name: &str) -> Program {
    let path = folder().join(format!("{name}.wgsl"));
    let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let options = ImportOptions { file: Some(format!("{name}.wgsl")), ..Default::default() };
    let program = import(&source, &options).unwrap_or_else(|problems| panic!("{}", text(&problems)));
    program.validate().unwrap_or_else(|problems| panic!("{name}: {}", text(&problems)));
    program
}

/// A kernel with what it is launched with.
struct Run {
    program: Program,
    options: RunOptions,
}

fn kernel(name: &str) -> Run {
    Run { program: load(name), options: RunOptions::default() }
}

impl Run {
    fn grid(mut self, x: u32, y: u32) -> Run {
        self.options.grid = Some([x, y, 1]);
        self
    }

    fn output(mut self, name: &str, elements: u64) -> Run {
        self.options.output_elements.push((Name::from(name), elements));
        self
    }

    fn set(mut self, name: &str, value: Literal) -> Run {
        self.options.specialization.insert(Name::from(name), value);
        self
    }

    /// Runs the import, and what comes back from WGSL text, which must agree bit for bit.
    fn run(&self, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let valid = self.program.validate().expect("validated before");
        let results = vyre_reference::run(&valid, &inputs, &self.options).unwrap_or_else(|problem| panic!("{problem}"));
        let printed = export(&valid).unwrap_or_else(|problem| panic!("{problem}"));
        let again = import(&printed, &ImportOptions::default())
            .unwrap_or_else(|problems| panic!("{}\n{printed}", text(&problems)));
        let again = again.validate().unwrap_or_else(|problems| panic!("{}\n{printed}", text(&problems)));
        let second = vyre_reference::run(&again, &inputs, &self.options)
            .unwrap_or_else(|problem| panic!("{problem}\n{printed}"));
        assert_eq!(results, second, "the printed program gives other results\n{printed}");
        results
    }
}

fn u32s(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn as_u32s(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn as_f32s(bytes: &[u8]) -> Vec<f32> {
    as_u32s(bytes).into_iter().map(f32::from_bits).collect()
}

#[track_caller]
fn close(actual: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(actual.len(), expected.len());
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance * e.abs().max(1.0), "element {i}: {a} instead of {e}");
    }
}

/// Numbers that look random and are the same everywhere.
fn noise(count: usize) -> Vec<u32> {
    let mut x = 0x1234_5678u32;
    (0..count)
        .map(|_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            x ^ (x >> 15)
        })
        .collect()
}

fn unit_noise(count: usize) -> Vec<f32> {
    noise(count).into_iter().map(|word| (word >> 8) as f32 / 16_777_216.0).collect()
}

#[test]
fn there_are_at_least_thirty_and_all_import() {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder of kernels")
        .filter_map(|entry| entry.expect("a folder entry").path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    names.sort();
    assert!(names.len() >= 30, "only {} kernels", names.len());
    for name in names {
        load(&name);
    }
}

#[test]
fn saxpy() {
    let (x, y) = (unit_noise(100), unit_noise(100));
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 3.5 * x + y).collect();
    let run = kernel("saxpy").set("scale", Literal::F32(3.5));
    assert_eq!(as_f32s(&run.run(&[f32s(&x), f32s(&y)])[0]), expected);
}

#[test]
fn reductions() {
    let values: Vec<u32> = noise(200).into_iter().map(|word| word >> 8).collect();
    for block in [64usize, 32] {
        let groups = values.len().div_ceil(block);
        let run = kernel("reduce_sum")
            .set("block", Literal::U32(block as u32))
            .grid(groups as u32, 1)
            .output("sums", groups as u64);
        let expected: Vec<u32> = values.chunks(block).map(|block| block.iter().sum()).collect();
        assert_eq!(as_u32s(&run.run(&[u32s(&values)])[0]), expected);
    }
    let values = unit_noise(150);
    let results = kernel("reduce_max_index").grid(3, 1).output("best", 3).run(&[f32s(&values)]);
    for (group, block) in values.chunks(64).enumerate() {
        let best = block.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).expect("not empty");
        let words = as_u32s(&results[0][group * 8..][..8]);
        assert_eq!((f32::from_bits(words[0]), words[1] as usize), (*best.1, group * 64 + best.0));
    }
}

#[test]
fn scans() {
    let values: Vec<u32> = noise(128).into_iter().map(|word| word % 1000).collect();
    let inclusive = |block: &[u32]| {
        block
            .iter()
            .scan(0, |sum, value| {
                *sum += value;
                Some(*sum)
            })
            .collect::<Vec<u32>>()
    };
    let expected: Vec<u32> = values.chunks(64).flat_map(inclusive).collect();
    assert_eq!(as_u32s(&kernel("scan_inclusive").run(&[u32s(&values)])[0]), expected);
    let exclusive: Vec<u32> = expected.iter().zip(&values).map(|(sum, value)| sum - value).collect();
    assert_eq!(as_u32s(&kernel("scan_exclusive").grid(2, 1).run(&[u32s(&values)])[0]), exclusive);
}

#[test]
fn sorts() {
    let values = noise(256);
    let mut expected = values.clone();
    expected.chunks_mut(128).for_each(<[u32]>::sort);
    assert_eq!(as_u32s(&kernel("bitonic_sort").run(&[u32s(&values)])[0]), expected);
    let keys = noise(128);
    let sorted = kernel("radix_sort_step").run(&[u32s(&[8]), u32s(&keys)]);
    let mut expected = keys.clone();
    expected.chunks_mut(64).for_each(|block| block.sort_by_key(|key| (key >> 8) & 15));
    assert_eq!(as_u32s(&sorted[0]), expected);
}

#[test]
fn matrices() {
    let (rows, inner, columns) = (9usize, 13, 11);
    let (a, b) = (unit_noise(rows * inner), unit_noise(inner * columns));
    let mut expected = vec![0f32; rows * columns];
    for row in 0..rows {
        for column in 0..columns {
            for k in 0..inner {
                expected[row * columns + column] += a[row * inner + k] * b[k * columns + column];
            }
        }
    }
    let inputs = [u32s(&[rows as u32, inner as u32, columns as u32]), f32s(&a), f32s(&b)];
    let naive = kernel("matmul_naive").grid(2, 2).output("c", (rows * columns) as u64).run(&inputs);
    assert_eq!(as_f32s(&naive[0]), expected);
    for tile in [8u32, 4] {
        let groups = |n: usize| (n as u32).div_ceil(tile);
        let tiled = kernel("matmul_tiled")
            .set("tile", Literal::U32(tile))
            .grid(groups(columns), groups(rows))
            .output("c", (rows * columns) as u64)
            .run(&inputs);
        assert_eq!(as_f32s(&tiled[0]), expected);
    }
    let (rows, inner, columns) = (128usize, 16, 256);
    let (a, b) = (unit_noise(rows * inner), unit_noise(inner * columns));
    let expected: Vec<f32> = (0..rows * columns)
        .map(|at| (0..inner).fold(0.0, |sum, k| sum + a[at / columns * inner + k] * b[k * columns + at % columns]))
        .collect();
    let inputs = [u32s(&[rows as u32, inner as u32, columns as u32]), f32s(&a), f32s(&b)];
    let made = kernel("matmul_registers").grid(2, 1).output("c", (rows * columns) as u64).run(&inputs);
    assert_eq!(as_f32s(&made[0]), expected);
    let size = 13usize;
    let source = unit_noise(size * size);
    let turned = kernel("transpose").grid(2, 2).run(&[u32s(&[size as u32]), f32s(&source)]);
    let expected: Vec<f32> = (0..size * size).map(|i| source[(i % size) * size + i / size]).collect();
    assert_eq!(as_f32s(&turned[0]), expected);
}

#[test]
fn stencils() {
    let (width, height, rate) = (11usize, 9usize, 0.2f32);
    let before = unit_noise(width * height);
    let uniform = [u32s(&[width as u32, height as u32]), f32s(&[rate])].concat();
    let after = kernel("stencil_heat").grid(2, 2).run(&[uniform, f32s(&before)]);
    let mut expected = before.clone();
    for y in 1..height - 1 {
        for x in 1..width - 1 {
            let at = |x: usize, y: usize| before[y * width + x];
            let around = at(x - 1, y) + at(x + 1, y) + at(x, y - 1) + at(x, y + 1);
            expected[y * width + x] = at(x, y) + rate * (around - 4.0 * at(x, y));
        }
    }
    assert_eq!(as_f32s(&after[0]), expected);

    let (right, guess) = (unit_noise(70), unit_noise(70));
    let better = kernel("jacobi").run(&[f32s(&right), f32s(&guess)]);
    let at = |i: isize| usize::try_from(i).ok().and_then(|i| guess.get(i)).copied().unwrap_or(0.0);
    let expected: Vec<f32> = (0..70).map(|i| 0.5 * (right[i as usize] + at(i - 1) + at(i + 1))).collect();
    assert_eq!(as_f32s(&better[0]), expected);
}

#[test]
fn life() {
    let (width, height) = (10i32, 7i32);
    let cells: Vec<u32> = noise((width * height) as usize).into_iter().map(|word| (word >> 9) & 1).collect();
    let next = kernel("life").grid(2, 1).run(&[u32s(&[width as u32, height as u32]), u32s(&cells)]);
    let expected: Vec<u32> = (0..width * height)
        .map(|i| {
            let (x, y) = (i % width, i / width);
            let at = |x: i32, y: i32| cells[(y.rem_euclid(height) * width + x.rem_euclid(width)) as usize];
            let mut around = 0;
            for (dx, dy) in [(-1, -1), (0, -1), (1, -1), (-1, 0), (1, 0), (-1, 1), (0, 1), (1, 1)] {
                around += at(x + dx, y + dy);
            }
            u32::from(around == 3 || around == 2 && at(x, y) == 1)
        })
        .collect();
    assert_eq!(as_u32s(&next[0]), expected);
}

#[test]
fn mandelbrot() {
    let (width, limit, step) = (16u32, 50u32, 0.15f32);
    let uniform = [f32s(&[-1.8, -1.2, step]), u32s(&[width, limit, 0])].concat();
    let steps = kernel("mandelbrot").grid(2, 2).output("steps", 256).run(&[uniform]);
    let expected: Vec<u32> = (0..256u32)
        .map(|i| {
            let c = (-1.8 + (i % 16) as f32 * step, -1.2 + (i / 16) as f32 * step);
            let (mut z, mut n) = ((0f32, 0f32), 0);
            while n < limit && z.0 * z.0 + z.1 * z.1 <= 4.0 {
                z = (z.0 * z.0 - z.1 * z.1 + c.0, 2.0 * z.0 * z.1 + c.1);
                n += 1;
            }
            n
        })
        .collect();
    assert_eq!(as_u32s(&steps[0]), expected);
}

#[test]
fn nbody() {
    let count = 40usize;
    let numbers = unit_noise(count * 8);
    let bodies: Vec<&[f32]> = numbers.chunks(8).collect();
    let moved = kernel("nbody").grid(2, 1).run(&[f32s(&[0.01, 0.05]), f32s(&numbers)]);
    let moved = as_f32s(&moved[0]);
    for (i, body) in bodies.iter().enumerate() {
        let mut force = [0f64; 3];
        for other in &bodies {
            let to: Vec<f64> = (0..3).map(|k| f64::from(other[k]) - f64::from(body[k])).collect();
            let distance = to.iter().map(|d| d * d).sum::<f64>() + f64::from(0.05f32);
            (0..3).for_each(|k| force[k] += to[k] * f64::from(other[3]) / distance.powf(1.5));
        }
        let velocity: Vec<f32> = (0..3).map(|k| body[4 + k] + (force[k] * 0.01) as f32).collect();
        let position: Vec<f32> = (0..3).map(|k| body[k] + velocity[k] * 0.01).collect();
        close(&moved[i * 8..i * 8 + 3], &position, 1e-5);
        close(&moved[i * 8 + 4..i * 8 + 7], &velocity, 1e-5);
    }
}

#[test]
fn hashes() {
    let words = noise(70);
    let expected: Vec<u32> = words
        .iter()
        .map(|word| {
            word.to_le_bytes().iter().fold(2_166_136_261u32, |h, &b| (h ^ u32::from(b)).wrapping_mul(16_777_619))
        })
        .collect();
    assert_eq!(as_u32s(&kernel("fnv1a").run(&[u32s(&words)])[0]), expected);

    // Known answers of MurmurHash3_x86_32 come from its definition, computed here on the same bytes.
    let murmur = |words: &[u32], seed: u32| {
        let mut h = words.iter().fold(seed, |h, word| {
            let k = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
            (h ^ k).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
        }) ^ 16;
        h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
        h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
        h ^ (h >> 16)
    };
    let keys = noise(40);
    let run = kernel("murmur3").output("hashes", 10).set("seed", Literal::U32(7));
    let expected: Vec<u32> = keys.chunks(4).map(|key| murmur(key, 7)).collect();
    assert_eq!(as_u32s(&run.run(&[u32s(&keys)])[0]), expected);

    // The message "abc", padded, and the empty message.
    let mut abc = [0u32; 16];
    (abc[0], abc[15]) = (0x6162_6380, 24);
    let mut empty = [0u32; 16];
    empty[0] = 0x8000_0000;
    let digests = kernel("sha256").run(&[u32s(&[abc, empty].concat())]);
    let expected = [
        [0xba78_16bfu32, 0x8f01_cfea, 0x4141_40de, 0x5dae_2223, 0xb003_61a3, 0x9617_7a9c, 0xb410_ff61, 0xf200_15ad],
        [0xe3b0_c442, 0x98fc_1c14, 0x9afb_f4c8, 0x996f_b924, 0x27ae_41e4, 0x649b_934c, 0xa495_991b, 0x7852_b855],
    ];
    assert_eq!(as_u32s(&digests[0]), expected.concat());
}

#[test]
fn histogram() {
    let words = noise(150);
    let mut expected = vec![1u32; 256];
    words.iter().flat_map(|word| word.to_le_bytes()).for_each(|byte| expected[byte as usize] += 1);
    let counts = kernel("histogram").grid(3, 1).run(&[u32s(&words), u32s(&[1; 256])]);
    assert_eq!(as_u32s(&counts[0]), expected);
}

#[test]
fn softmax() {
    let columns = 50usize;
    let logits: Vec<f32> = unit_noise(2 * columns).into_iter().map(|x| 8.0 * x - 4.0).collect();
    let results = kernel("softmax").grid(2, 1).run(&[u32s(&[columns as u32]), f32s(&logits)]);
    let expected: Vec<f32> = logits
        .chunks(columns)
        .flat_map(|row| {
            let total: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            row.iter().map(move |&x| (f64::from(x).exp() / total) as f32).collect::<Vec<_>>()
        })
        .collect();
    close(&as_f32s(&results[0]), &expected, 1e-6);
}

#[test]
fn images() {
    let (width, height) = (12usize, 9usize);
    let image = unit_noise(width * height);
    let weights = [1.0f32, 2.0, 1.0, 0.0, 0.5, -3.0, 0.5, 0.0, 1.0, 0.25, 1.0, 0.0];
    let uniform = [f32s(&weights), u32s(&[width as u32, height as u32, 0, 0])].concat();
    let result = kernel("convolution").grid(2, 2).run(&[uniform, f32s(&image)]);
    let at = |x: isize, y: isize| {
        let inside = x >= 0 && y >= 0 && x < width as isize && y < height as isize;
        if inside { image[y as usize * width + x as usize] } else { 0.0 }
    };
    let expected: Vec<f32> = (0..(width * height) as isize)
        .map(|i| {
            let (x, y) = (i % width as isize, i / width as isize);
            let mut sum = 0.0;
            for ky in 0..3isize {
                for kx in 0..3isize {
                    sum += weights[(ky * 4 + kx) as usize] * at(x + kx - 1, y + ky - 1);
                }
            }
            sum
        })
        .collect();
    assert_eq!(as_f32s(&result[0]), expected);

    let words = noise(width * height / 4);
    let bytes: Vec<u8> = u32s(&words);
    let edges =
        kernel("sobel").grid(2, 2).output("edges", (width * height) as u64).run(&[u32s(&[12, 9]), u32s(&words)]);
    let grey = |x: isize, y: isize| {
        let (x, y) = (x.clamp(0, 11) as usize, y.clamp(0, 8) as usize);
        f32::from(bytes[y * width + x]) / 255.0
    };
    let expected: Vec<f32> = (0..(width * height) as isize)
        .map(|i| {
            let (x, y) = (i % 12, i / 12);
            let side = |d: isize| grey(x + d, y - 1) + 2.0 * grey(x + d, y) + grey(x + d, y + 1);
            let row = |d: isize| grey(x - 1, y + d) + 2.0 * grey(x, y + d) + grey(x + 1, y + d);
            (side(1) - side(-1)).hypot(row(1) - row(-1))
        })
        .collect();
    close(&as_f32s(&edges[0]), &expected, 1e-5);
}

#[test]
fn black_scholes() {
    let options = [[100.0f32, 95.0, 1.0, 0.03, 0.2], [50.0, 60.0, 0.5, 0.01, 0.4]];
    let prices = kernel("black_scholes").output("prices", 2).run(&[f32s(&options.concat())]);
    // Computed with the exact normal distribution.
    close(&as_f32s(&prices[0]), &[12.179_702, 2.480_711_6], 1e-4);
}

#[test]
fn random_numbers() {
    let (groups, points) = (2u32, 40u32);
    let hits = kernel("monte_carlo_pi").grid(groups, 1).run(&[u32s(&[5]), u32s(&[points])]);
    let mut expected = 5;
    for id in 0..groups * 64 {
        let mut state = id * 9781 + 1;
        let mut unit = || {
            let old = state;
            state = old.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            let word = ((old >> ((old >> 28) + 4)) ^ old).wrapping_mul(277_803_737);
            (((word >> 22) ^ word) >> 8) as f32 / 16_777_216.0
        };
        for _ in 0..points {
            let (x, y) = (unit(), unit());
            expected += u32::from(x * x + y * y <= 1.0);
        }
    }
    assert_eq!(as_u32s(&hits[0]), [expected]);

    let numbers = kernel("xorshift").run(&[]);
    let expected: Vec<u32> = (0..96u32)
        .map(|id| {
            (0..=id % 7).fold(2_463_534_242u32 ^ id, |mut x, _| {
                x ^= x << 13;
                x ^= x >> 17;
                x ^ (x << 5)
            })
        })
        .collect();
    assert_eq!(as_u32s(&numbers[0]), expected);
}

#[test]
fn text_kernels() {
    let word = |text: &str| {
        let mut words = vec![text.len() as u32];
        words.extend((0..16).map(|i| text.as_bytes().get(i).copied().map_or(0, u32::from)));
        words
    };
    let pairs = [("kitten", "sitting", 3u32), ("flaw", "lawn", 2), ("", "abc", 3), ("same", "same", 0)];
    let input: Vec<u32> = pairs.iter().flat_map(|(a, b, _)| [word(a), word(b)].concat()).collect();
    let distances = kernel("levenshtein").output("distances", 4).run(&[u32s(&input)]);
    assert_eq!(as_u32s(&distances[0]), pairs.map(|(_, _, distance)| distance));

    let haystack = "abracadabra, abra";
    let letters = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let pattern = [vec![4], letters("abra")].concat();
    let run = kernel("string_search").grid(1, 1).output("found", haystack.len() as u64);
    let found = as_u32s(&run.run(&[u32s(&pattern), u32s(&letters(haystack))])[0]);
    let places: Vec<usize> = haystack.match_indices("abra").map(|(at, _)| at).collect();
    assert_eq!((0..found.len()).filter(|&i| found[i] == 1).collect::<Vec<_>>(), places);
}

#[test]
fn graphs() {
    let edges = [[0u32, 1], [2, 3], [1, 3], [5, 6], [6, 7], [4, 4]];
    let parents: Vec<u32> = (0..9).collect();
    let joined = kernel("union_find").grid(1, 1).run(&[u32s(&edges.concat()), u32s(&parents)]);
    let joined = as_u32s(&joined[0]);
    let root = |mut node: u32| {
        while joined[node as usize] != node {
            node = joined[node as usize];
        }
        node
    };
    assert_eq!((0..9).map(root).collect::<Vec<_>>(), [0, 0, 0, 0, 4, 5, 5, 5, 8]);

    // A ring of six nodes, searched from node 0.
    let starts: Vec<u32> = (0..=6).map(|i| 2 * i).collect();
    let neighbours: Vec<u32> = (0..6u32).flat_map(|i| [(i + 5) % 6, (i + 1) % 6]).collect();
    let mut levels = vec![u32::MAX; 6];
    levels[0] = 0;
    for level in 0..4 {
        let inputs = [u32s(&starts), u32s(&neighbours), u32s(&levels), u32s(&[0, level])];
        let results = kernel("bfs_step").grid(1, 1).run(&inputs);
        levels = as_u32s(&results[0]);
        assert_eq!(as_u32s(&results[1]), [u32::from(level < 3), level]);
    }
    assert_eq!(levels, [0, 1, 2, 3, 2, 1]);

    let rows = [vec![(0u32, 1.5f32), (3, 2.0)], vec![], vec![(1, -1.0), (2, 0.5), (4, 4.0)]];
    let x = [1.0f32, 2.0, 3.0, 4.0, 5.0];
    let mut starts = vec![0u32];
    rows.iter().for_each(|row| starts.push(starts[starts.len() - 1] + row.len() as u32));
    let columns: Vec<u32> = rows.iter().flatten().map(|entry| entry.0).collect();
    let values: Vec<f32> = rows.iter().flatten().map(|entry| entry.1).collect();
    let run = kernel("spmv_csr").output("y", 3);
    let y = run.run(&[u32s(&starts), u32s(&columns), f32s(&values), f32s(&x)]);
    assert_eq!(as_f32s(&y[0]), [9.5, 0.0, 19.5]);
}

#[test]
fn kmeans() {
    let points = [[0.0f32, 0.1], [5.0, 5.0], [0.3, 0.0], [4.5, 5.5], [9.0, 0.0]];
    let centres = [[0.0f32, 0.0], [5.0, 5.0], [9.0, 1.0]];
    let run = kernel("kmeans_step").grid(1, 1).output("nearest", 5);
    let results = run.run(&[f32s(&points.concat()), f32s(&centres.concat()), u32s(&[0; 24])]);
    let expected = [0u32, 1, 0, 1, 2];
    assert_eq!(as_u32s(&results[0]), expected);
    let mut sums = vec![0u32; 24];
    for (point, &centre) in points.iter().zip(&expected) {
        let at = centre as usize * 3;
        for k in 0..2 {
            sums[at + k] = sums[at + k].wrapping_add((point[k] * 256.0).round_ties_even() as i32 as u32);
        }
        sums[at + 2] += 1;
    }
    assert_eq!(as_u32s(&results[1]), sums);
}

#[test]
fn geometry() {
    // A quarter turn around z, given with a length that is not one.
    let rotation = [0.0f32, 0.0, 2.0, 2.0];
    let turned = kernel("quaternion_rotate").grid(1, 1).output("turned", 1);
    let turned = turned.run(&[f32s(&rotation), f32s(&[1.0, 2.0, 3.0, 0.0])]);
    close(&as_f32s(&turned[0])[..3], &[-2.0, 1.0, 3.0], 1e-6);

    let model: Vec<f32> = (0..16).map(|i| i as f32 * 0.5 - 3.0).collect();
    let normal: Vec<f32> = (0..12).map(|i| i as f32 * 0.25).collect();
    let vertex = [1.0f32, -2.0, 0.5, 0.0, 0.25, 1.0, -1.0, 0.0];
    let uniform = [f32s(&model), f32s(&normal)].concat();
    let moved = as_f32s(&kernel("matrix_transform").grid(1, 1).run(&[uniform, f32s(&vertex)])[0]);
    let point = [vertex[0], vertex[1], vertex[2], 1.0];
    let expected: Vec<f32> =
        (0..3).map(|row| (0..4).map(|column| model[column * 4 + row] * point[column]).sum()).collect();
    close(&moved[..3], &expected, 1e-6);
    let expected: Vec<f32> =
        (0..3).map(|column| (0..3).map(|row| normal[column * 4 + row] * vertex[4 + row]).sum()).collect();
    close(&moved[4..7], &expected, 1e-6);
}

#[test]
fn perlin_noise() {
    let results = kernel("perlin_noise").grid(4, 4).output("noise", 1024).run(&[u32s(&[32])]);
    let noise = as_f32s(&results[0]);
    // Zero at the corners of cells, bounded, and not flat in between.
    for y in (0..32).step_by(8) {
        for x in (0..32).step_by(8) {
            assert_eq!(noise[y * 32 + x], 0.0);
        }
    }
    assert!(noise.iter().all(|value| value.abs() <= 1.0));
    assert!(noise.iter().any(|value| *value > 0.2) && noise.iter().any(|value| *value < -0.2));
}

#[test]
fn prefix_table() {
    let image: Vec<u32> = noise(70).into_iter().map(|word| word % 100).collect();
    let table = kernel("prefix_table").grid(2, 1).run(&[u32s(&[10, 7]), u32s(&image)]);
    let expected: Vec<u32> = (0..70)
        .map(|i| (0..=i / 10).flat_map(|y| (0..=i % 10).map(move |x| (x, y))).map(|(x, y)| image[y * 10 + x]).sum())
        .collect();
    assert_eq!(as_u32s(&table[0]), expected);
}

#[test]
fn bit_tricks() {
    let words = [noise(20), vec![0, 1, 2, 3, 0x8000_0000, u32::MAX]].concat();
    let facts = kernel("bit_tricks").output("facts", 26).run(&[u32s(&words)]);
    let spread = |word: u32| (0..16).fold(0, |all, bit| all | ((word >> bit) & 1) << (2 * bit));
    let expected: Vec<u32> = words
        .iter()
        .flat_map(|&word| {
            let next = if word <= 1 { 1 } else { word.checked_next_power_of_two().unwrap_or(1) };
            [
                word.count_ones(),
                word.leading_zeros(),
                word.trailing_zeros(),
                word.reverse_bits(),
                word ^ (word >> 1),
                next,
                spread(word) | (spread(word >> 16) << 1),
                (word & !0xf0) | 0x50,
            ]
        })
        .collect();
    assert_eq!(as_u32s(&facts[0]), expected);
}

#[test]
fn half_precision() {
    let values: Vec<f16> = (0..40).map(|i| f16::from_f32(i as f32 * 0.37 - 7.0)).collect();
    let bytes = |values: &[f16]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let scaled = kernel("half_precision").run(&[bytes(&values)]);
    let expected: Vec<f16> = values
        .iter()
        .map(|value| f16::from_f32(f16::from_f32(value.to_f32() * 1.5).to_f32().clamp(-8.0, 8.0)))
        .collect();
    assert_eq!(scaled[0], bytes(&expected));
}

#[test]
fn pack_unpack() {
    let colours = [0.0f32, 0.25, 0.5, 1.0, -1.0, 0.001, 2.0, 0.7];
    let results = kernel("pack_unpack").output("packed", 2).output("unpacked", 2).run(&[f32s(&colours)]);
    let mut packed = Vec::new();
    let mut unpacked = Vec::new();
    for colour in colours.chunks(4) {
        let bytes: Vec<u32> = colour.iter().map(|x| (0.5 + 255.0 * x.clamp(0.0, 1.0)).floor() as u32).collect();
        let halves = [f16::from_f32(colour[0] * 100.0), f16::from_f32(colour[1] * 100.0)];
        packed.push(bytes.iter().rev().fold(0, |word, byte| (word << 8) | byte));
        packed.push(u32::from(halves[0].to_bits()) | u32::from(halves[1].to_bits()) << 16);
        unpacked.extend([bytes[2] as f32 / 255.0, bytes[3] as f32 / 255.0, halves[0].to_f32(), halves[1].to_f32()]);
    }
    assert_eq!(as_u32s(&results[0]), packed);
    assert_eq!(as_f32s(&results[1]), unpacked);
}

#[test]
fn polynomial() {
    let coefficients = [1.0f32, -2.0, 0.5, 3.0];
    let xs = [0.0f32, 1.0, -1.5, 2.25];
    let input = [vec![2.0f32, 1.0], coefficients.to_vec()].concat();
    let results = kernel("polynomial").grid(1, 1).output("results", 4).run(&[f32s(&input), f32s(&xs)]);
    let expected: Vec<f32> = xs
        .iter()
        .flat_map(|x| {
            let x = 2.0 * x + 1.0;
            let [a, b, c, d] = coefficients;
            [a + x * (b + x * (c + x * d)), b + x * (2.0 * c + x * 3.0 * d)]
        })
        .collect();
    close(&as_f32s(&results[0]), &expected, 1e-6);
}

#[test]
fn collatz() {
    let starts = [1u32, 2, 3, 7, 27, 97, 0, 4_294_967_295];
    let steps = kernel("collatz").run(&[u32s(&starts)]);
    assert_eq!(as_u32s(&steps[0]), [0, 1, 7, 16, 111, 118, 0, u32::MAX]);
}

/// The front end ends every branch with a `return`; a kernel whose work stands in an `if` must not have two ways out for that.
#[test]
fn work_in_a_branch_leaves_at_the_end() {
    let source = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        fn put(at: u32) { if at > 3u { out[at] = 1u; } else { switch at { case 1u: { out[at] = 2u; } default: { } } } }
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            for (var i = 0u; i < 4u; i++) { if out[i] == 9u { return; } }
            if id.x < arrayLength(&out) { { put(id.x); } }
        }";
    let program = import(source, &ImportOptions::default()).unwrap_or_else(|problems| panic!("{}", text(&problems)));
    let printed = vyre_foundation::text::print(&program);
    assert_eq!(printed.matches("return").count(), 1, "only that in the loop leaves early: {printed}");
}
