//! Loops over tiles in workgroup memory by one number of all invocations, which are laid along rows of the tile where nobody can tell.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

/// A kernel for some workgroups over an image of `width` by `height`; the text has what it does.
fn tiled(size: [u32; 2], [across, down]: [u32; 2], [width, height]: [u32; 2], text: &str) -> Case {
    let grid = [width.div_ceil(size[0]), height.div_ceil(size[1]), 1];
    let text = text
        .replace("$across", &across.to_string())
        .replace("$down", &down.to_string())
        .replace("$words", &(across * down).to_string())
        .replace("$all", &(size[0] * size[1]).to_string())
        .replace("$x", &size[0].to_string())
        .replace("$y", &size[1].to_string())
        .replace("$width", &width.to_string())
        .replace("$height", &height.to_string());
    let text = format!(
        "@group(0) @binding(0) var<storage, read> image: array<u32>;
         @group(0) @binding(1) var<storage, read_write> result: array<u32, {out}>;
         var<workgroup> tile: array<u32, {words}>;
         var<workgroup> other: array<u32, {words}>;
         @compute @workgroup_size({x}, {y})
         fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) own: vec3u, @builtin(local_invocation_index) li: u32) {{
             let place = (group.y * {x} * {y} + own.y * {x}) * {groups} + group.x * {x} + own.x;
             {text}
         }}",
        out = grid[0] * grid[1] * size[0] * size[1],
        words = across * down,
        x = size[0],
        y = size[1],
        groups = grid[0],
    );
    let program = import(&text, &ImportOptions::default()).expect("a kernel");
    Case { grid: Some(grid), ..Case::new(program, vec![words(width * height)]) }
}

fn check(what: &str, text: &str) {
    for size in [[16, 16], [8, 8], [32, 4], [16, 3]] {
        for tile in [[18, 18], [24, 24], [16, 40], [10, 7], [33, 5]] {
            for image in [[50, 20], [16, 3], [64, 64]] {
                agree(&format!("{what}: {size:?} {tile:?} {image:?}"), &tiled(size, tile, image, text));
            }
        }
    }
}

/// Reads some of the tile.
const READ: &str = "var sum = 0u;
    for (var k = 0u; k < 5u; k++) { sum = sum * 3u ^ tile[(li * 3u + k * 7u) % $wordsu]; }
    result[place] = sum;";

#[test]
fn tiles_are_clamped_to_an_image() {
    let clamped = "for (var i = i32(li); i < $words; i += $all) {
            let x = clamp(i32(group.x) * $x - 1 + i % $across, 0, $width - 1);
            let y = clamp(i32(group.y) * $y - 1 + i / $across, 0, $height - 1);
            tile[i] = image[y * $width + x];
        }
        workgroupBarrier();";
    check("clamped", &format!("{clamped} {READ}"));
    let by_difference = "for (var i = own.y * $xu + own.x; i < $wordsu; i += $allu) {
            let row = i / $acrossu;
            let column = i - row * $acrossu;
            var found = 77u;
            if (group.x * $xu + column < $widthu && group.y * $yu + row < $heightu) {
                found = image[(group.y * $yu + row) * $widthu + group.x * $xu + column];
            }
            tile[row * $acrossu + column] = found;
        }
        workgroupBarrier();";
    check("by difference", &format!("{by_difference} {READ}"));
}

#[test]
fn tiles_are_made_of_tiles() {
    let text = "for (var i = li; i < $wordsu; i += $allu) { other[i] = image[(i * 7u + group.x) % ($widthu * $heightu)]; }
        workgroupBarrier();
        let factor = other[0] | 1u;
        for (var i = li; i < $wordsu; i += $allu) {
            var sum = 0u;
            for (var k = 0u; k < 4u; k++) { sum = sum * other[1u] + other[(i / $acrossu) * $acrossu + (i % $acrossu + k) % $acrossu]; }
            tile[i] = sum * factor;
        }
        workgroupBarrier();";
    check("of tiles", &format!("{text} {READ}"));
}

#[test]
fn tiles_are_filled_in_every_round() {
    let text = "var sum = 0u;
        for (var t = 0u; t < 3u; t++) {
            for (var i = li; i < $wordsu; i += $allu) {
                tile[i] = image[(t * 11u + (i / $acrossu) * 5u + i % $acrossu) % ($widthu * $heightu)];
            }
            workgroupBarrier();
            for (var k = 0u; k < 5u; k++) { sum = sum * 3u ^ tile[(li * 3u + k * 7u) % $wordsu]; }
            workgroupBarrier();
        }
        result[place] = sum;";
    check("every round", text);
}

#[test]
fn whoever_knows_its_rounds_makes_them() {
    // What an invocation wrote before it reads without a barrier.
    let before = "for (var i = li; i < $wordsu; i += $allu) { other[i] = image[(i * 5u) % ($widthu * $heightu)] + li; }
        for (var i = li; i < $wordsu; i += $allu) { tile[i] = other[i] + i / $acrossu + i % $acrossu; }
        workgroupBarrier();";
    check("before", &format!("{before} {READ}"));
    // And what it wrote in the loop behind it.
    let behind = "for (var i = li; i < $wordsu; i += $allu) { tile[i] = image[i % $widthu] + i / $acrossu * 100u + i % $acrossu; }
        let mine = tile[li % min($allu, $wordsu)];
        workgroupBarrier();
        result[place] = select(0u, mine, li < $wordsu);";
    check("behind", behind);
    // One word for several rounds: of those of one invocation the last counts.
    let again = "if (li == 0u) { for (var i = 0u; i < $acrossu; i++) { tile[i] = 0u; } }
        workgroupBarrier();
        for (var i = li; i < $wordsu; i += $allu) {
            if (i % $allu == 0u) { tile[(i / $allu) % 2u] = image[i % $widthu] + i / $acrossu + i % $acrossu; }
        }
        workgroupBarrier();
        result[place] = tile[0] + tile[1];";
    check("again", again);
    // The invocation has a say.
    let own = "for (var i = li; i < $wordsu; i += $allu) { tile[i] = image[i % $widthu] + i / $acrossu + i % $acrossu * own.x + own.y; }
        workgroupBarrier();";
    check("own", &format!("{own} {READ}"));
}
