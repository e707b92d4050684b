//! Kernels of different kinds without `--grid`: all of the work is done, or the command asks. What is right is computed here.

use super::{Home, bytes, chance};

const ID: &str = "@builtin(global_invocation_id) id: vec3<u32>";

/// Runs a kernel with `out` as its result, and compares.
#[track_caller]
fn right(kernel: &str, files: &[(&str, Vec<u8>)], words: &str, expected: &[u32]) -> String {
    let home = Home::new();
    home.file("k.wgsl", kernel);
    for (name, bytes) in files {
        home.file(name, bytes);
    }
    let done = home.done(&format!("run k.wgsl {words} --out out=out.bin"));
    let made = home.numbers("out.bin");
    assert!(made.len() >= expected.len(), "{} numbers, and not {}", made.len(), expected.len());
    let wrong = made.iter().zip(expected).filter(|(a, b)| a != b).count();
    let first = made.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(wrong, 0, "{wrong} of {} numbers are wrong, the first at {first:?}\n{}", expected.len(), done.said);
    assert!(!done.said.contains("V0199"), "{}", done.said);
    done.said
}

#[test]
fn a_histogram_counts_all_of_a_million_bytes() {
    let data: Vec<u8> = chance(1_000_000).iter().map(|number| (number >> 24) as u8).collect();
    let mut expected = vec![0u32; 256];
    data.iter().for_each(|byte| expected[usize::from(*byte)] += 1);
    let kernel = format!(
        "@group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read_write> out: array<atomic<u32>, 256>;
         @compute @workgroup_size(256) fn count({ID}) {{
             if id.x < arrayLength(&data) {{ atomicAdd(&out[data[id.x]], 1u); }}
         }}"
    );
    let said = right(&kernel, &[("data.raw", data)], "--in data=bytes:data.raw", &expected);
    assert!(said.contains("1000000 invocations") && said.contains("arrayLength(&data)"), "{said}");
}

#[test]
fn a_search_finds_all_sixty() {
    let mut text = vec![b'.'; 50_000];
    let places: Vec<usize> = (0..60).map(|hit| 113 + hit * 821).collect();
    for &at in &places {
        text[at..at + 4].copy_from_slice(b"vyre");
    }
    let kernel = format!(
        "@group(0) @binding(0) var<storage, read> text: array<u32>;
         @group(0) @binding(1) var<storage, read_write> found: atomic<u32>;
         @group(0) @binding(2) var<storage, read_write> out: array<u32, 64>;
         @compute @workgroup_size(64) fn search({ID}) {{
             if id.x + 4u > arrayLength(&text) {{ return; }}
             let here = text[id.x] | text[id.x + 1u] << 8u | text[id.x + 2u] << 16u | text[id.x + 3u] << 24u;
             if here == 0x65727976u {{ out[atomicAdd(&found, 1u)] = id.x; }}
         }}"
    );
    let home = Home::new();
    home.file("k.wgsl", kernel);
    home.file("text.raw", &text);
    home.done("run k.wgsl --in text=bytes:text.raw --out found=found.bin --out out=out.bin");
    assert_eq!(home.numbers("found.bin"), [60]);
    let mut found = home.numbers("out.bin")[..60].to_vec();
    found.sort_unstable();
    assert_eq!(found, places.iter().map(|&at| at as u32).collect::<Vec<_>>());
}

#[test]
fn a_line_under_a_cube_of_workgroups_is_filled_or_asked_about() {
    let kernel = |index: &str| {
        format!(
            "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
             @compute @workgroup_size(4, 4, 4) fn fill({ID}) {{
                 {index}
                 if at < arrayLength(&out) {{ out[at] = at * 3u + 1u; }}
             }}"
        )
    };
    let expected: Vec<u32> = (0..32768).map(|at| at * 3 + 1).collect();
    // The edges are in the kernel, so that it is known how much there is to do.
    let edges = "if id.x >= 32u || id.y >= 32u || id.z >= 32u { return; } let at = id.x + 32u * (id.y + 32u * id.z);";
    right(&kernel(edges), &[], "--shape out=32768", &expected);
    // Here they are not.
    let home = Home::new();
    home.file("k.wgsl", kernel("let at = id.x + 32u * (id.y + 32u * id.z);"));
    let output = home.vyre("run k.wgsl --shape out=32768 --out out=out.bin");
    match output.status.code() {
        Some(0) => assert_eq!(home.numbers("out.bin"), expected),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("[V0198]") && said.contains("--domain"), "{said}");
        }
    }
    home.done("run k.wgsl --shape out=32768 --domain 32x32x32 --out out=out.bin");
    assert_eq!(home.numbers("out.bin"), expected);
}

#[test]
fn a_serial_kernel_runs_once() {
    let data = chance(39_063 * 64);
    let mut sum = 0u32;
    let expected: Vec<u32> = data
        .iter()
        .map(|number| {
            sum = sum.wrapping_add(*number);
            sum
        })
        .collect();
    let kernel = "@group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(1) fn serial() {
             var sum = 0u;
             for (var at = 0u; at < arrayLength(&data); at++) { sum += data[at]; out[at] = sum; }
         }";
    let said = right(kernel, &[("data.bin", bytes(&data))], "--in data=data.bin", &expected);
    assert!(said.contains("1 workgroup of 1 for 1 invocation (no id is used)"), "{said}");
}

#[test]
fn a_line_under_a_plane_of_workgroups_is_filled_or_asked_about() {
    let kernel = format!(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(16, 16) fn fill({ID}) {{
             let at = id.y * 100u + id.x;
             if id.x < 100u && at < arrayLength(&out) {{ out[at] = at ^ 5u; }}
         }}"
    );
    let expected: Vec<u32> = (0..10_000).map(|at| at ^ 5).collect();
    right(&kernel, &[], "--shape out=10000", &expected);
    let open = kernel.replace("id.x < 100u && ", "");
    let home = Home::new();
    home.file("k.wgsl", open);
    let output = home.vyre("run k.wgsl --shape out=10000 --out out=out.bin");
    match output.status.code() {
        Some(0) => assert_eq!(home.numbers("out.bin"), expected),
        _ => assert!(String::from_utf8_lossy(&output.stderr).contains("[V0198]")),
    }
}

#[test]
fn elements_one_by_one_without_a_guard() {
    let (x, y) = (chance(1000), (0..1000).collect::<Vec<u32>>());
    let expected: Vec<u32> = x.iter().zip(&y).map(|(x, y)| x.wrapping_mul(3).wrapping_add(*y)).collect();
    let kernel = format!(
        "@group(0) @binding(0) var<storage, read> x: array<u32>;
         @group(0) @binding(1) var<storage, read> y: array<u32>;
         @group(0) @binding(2) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(64) fn saxpy({ID}) {{ out[id.x] = x[id.x] * 3u + y[id.x]; }}"
    );
    right(&kernel, &[("x.bin", bytes(&x))], "--in x=x.bin --in y=iota:1000", &expected);
}

#[test]
fn a_transpose_takes_its_size_from_a_uniform() {
    let data = chance(37 * 53);
    let expected: Vec<u32> = (0..53 * 37).map(|at| data[at % 37 * 53 + at / 37]).collect();
    let kernel = format!(
        "struct Size {{ columns: u32, rows: u32 }}
         @group(0) @binding(0) var<uniform> size: Size;
         @group(0) @binding(1) var<storage, read> a: array<u32>;
         @group(0) @binding(2) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(8, 8) fn transpose({ID}) {{
             if id.x >= size.columns || id.y >= size.rows {{ return; }}
             out[id.x * size.rows + id.y] = a[id.y * size.columns + id.x];
         }}"
    );
    let said =
        right(&kernel, &[("a.bin", bytes(&data))], "--in a=a.bin --in size.columns=53 --in size.rows=37", &expected);
    assert!(said.contains("53 x 37 invocations"), "{said}");
}

#[test]
fn blocks_are_summed_in_workgroup_memory() {
    let data = chance(10_000);
    let expected: Vec<u32> =
        data.chunks(64).map(|block| block.iter().fold(0u32, |sum, one| sum.wrapping_add(*one))).collect();
    let kernel = "@group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         var<workgroup> part: array<u32, 64>;
         @compute @workgroup_size(64) fn sums(@builtin(global_invocation_id) id: vec3<u32>,
             @builtin(local_invocation_index) local: u32, @builtin(workgroup_id) group: vec3<u32>) {
             part[local] = select(0u, data[id.x], id.x < arrayLength(&data));
             for (var half = 32u; half > 0u; half /= 2u) {
                 workgroupBarrier();
                 if local < half { part[local] += part[local + half]; }
             }
             if local == 0u && id.x < arrayLength(&data) { out[group.x] = part[0]; }
         }";
    let home = Home::new();
    home.file("k.wgsl", kernel);
    home.file("data.bin", bytes(&data));
    let output = home.vyre("run k.wgsl --in data=data.bin --shape out=157 --out out=out.bin");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        assert_eq!(home.numbers("out.bin"), expected, "{said}");
    } else {
        assert!(said.contains("[V0198]"), "{said}");
        home.done("run k.wgsl --in data=data.bin --shape out=157 --domain 10000 --out out=out.bin");
        assert_eq!(home.numbers("out.bin"), expected);
    }
}

#[test]
fn a_picture_of_any_size_is_filled() {
    let kernel = format!(
        "override width: u32 = 900u;
         override height: u32 = 600u;
         @group(0) @binding(0) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(16, 16) fn paint({ID}) {{
             if id.x < width && id.y < height {{ out[id.y * width + id.x] = id.x * 1000u + id.y * height; }}
         }}"
    );
    let expected: Vec<u32> = (0..23 * 37).map(|at| at % 37 * 1000 + at / 37 * 23).collect();
    right(&kernel, &[], "--shape out=23x37", &expected);
}

#[test]
fn a_number_in_a_struct_bounds_the_ids() {
    let data = chance(5000);
    let mut expected: Vec<u32> = data.iter().take(777).map(|number| number ^ 0xffff).collect();
    expected.resize(5000, 0);
    let kernel = format!(
        "struct Params {{ n: u32, mask: u32 }}
         @group(0) @binding(0) var<uniform> p: Params;
         @group(0) @binding(1) var<storage, read> data: array<u32>;
         @group(0) @binding(2) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(64) fn first({ID}) {{
             if id.x >= p.n {{ return; }}
             out[id.x] = data[id.x] ^ p.mask;
         }}"
    );
    let home = Home::new();
    home.file("k.wgsl", kernel);
    home.file("data.bin", bytes(&data));
    let done = home.done("run k.wgsl --in data=data.bin --in p.n=777 --in p.mask=0xffff --out out=out.bin");
    assert_eq!(home.numbers("out.bin"), expected);
    assert!(done.said.contains("777 invocations (`id.x < p.n`)"), "{}", done.said);
    // What is left out is said.
    assert!(done.said.contains("V0199") && done.said.contains("777 of the 5000"), "{}", done.said);
}

#[test]
fn loops_over_the_whole_grid_are_right_or_asked_about() {
    let data = chance(10_000);
    let expected: Vec<u32> = data.iter().map(|number| number.rotate_left(7)).collect();
    let kernel = "@group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(64) fn turn(@builtin(global_invocation_id) id: vec3<u32>,
             @builtin(num_workgroups) groups: vec3<u32>) {
             for (var at = id.x; at < arrayLength(&data); at += groups.x * 64u) { out[at] = data[at] << 7u | data[at] >> 25u; }
         }";
    let home = Home::new();
    home.file("k.wgsl", kernel);
    home.file("data.bin", bytes(&data));
    let output = home.vyre("run k.wgsl --in data=data.bin --out out=out.bin");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        assert_eq!(home.numbers("out.bin"), expected, "{said}");
    } else {
        assert!(said.contains("[V0198]"), "{said}");
    }
    home.done("run k.wgsl --in data=data.bin --grid 4 --out out=out.bin");
    assert_eq!(home.numbers("out.bin"), expected);
}

#[test]
fn pairs_are_joined_into_half_as_many() {
    let data = chance(4098);
    let expected: Vec<u32> = data.chunks(2).map(|pair| pair[0] ^ pair[1]).collect();
    let kernel = format!(
        "@group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(64) fn join({ID}) {{
             if id.x < arrayLength(&out) {{ out[id.x] = data[2u * id.x] ^ data[2u * id.x + 1u]; }}
         }}"
    );
    right(&kernel, &[("data.bin", bytes(&data))], "--in data=data.bin --shape out=2049", &expected);
}

#[test]
fn elements_are_scattered_where_others_say() {
    let count = 3001u32;
    let places: Vec<u32> = (0..count).map(|at| at * 1000 % count).collect();
    let data = chance(count as usize);
    let mut expected = vec![0; count as usize];
    places.iter().zip(&data).for_each(|(&at, &number)| expected[at as usize] = number);
    let kernel = format!(
        "@group(0) @binding(0) var<storage, read> places: array<u32>;
         @group(0) @binding(1) var<storage, read> data: array<u32>;
         @group(0) @binding(2) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(128) fn scatter({ID}) {{
             if id.x < arrayLength(&places) {{ out[places[id.x]] = data[id.x]; }}
         }}"
    );
    let files = [("places.bin", bytes(&places)), ("data.bin", bytes(&data))];
    right(&kernel, &files, "--in places=places.bin --in data=data.bin", &expected);
}
