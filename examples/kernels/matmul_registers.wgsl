// c = a · b for row-major matrices whose sizes are multiples of the tile: each workgroup makes 128 × 128 elements from tiles
// of 128 × 8 in workgroup memory, and each invocation 8 × 8 of them in private arrays, which become registers.
const TILE = 128u;
const DEPTH = 8u;
const PART = 8u;

struct Sizes {
    rows: u32,
    inner: u32,
    columns: u32,
}

@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

var<workgroup> tile_a: array<f32, DEPTH * TILE>;
var<workgroup> tile_b: array<f32, DEPTH * TILE>;

@compute @workgroup_size(16, 16)
fn matmul_registers(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
) {
    let row = group.y * TILE;
    let column = group.x * TILE;
    var sums: array<array<f32, PART>, PART>;
    for (var k = 0u; k < sizes.inner; k += DEPTH) {
        for (var i = 0u; i < 4u; i++) {
            let at = i * 256u + index;
            tile_a[(at % DEPTH) * TILE + at / DEPTH] = a[(row + at / DEPTH) * sizes.inner + k + at % DEPTH];
            tile_b[at] = b[(k + at / TILE) * sizes.columns + column + at % TILE];
        }
        workgroupBarrier();
        for (var d = 0u; d < DEPTH; d++) {
            var left: array<f32, PART>;
            var right: array<f32, PART>;
            for (var i = 0u; i < PART; i++) {
                left[i] = tile_a[d * TILE + local.y * PART + i];
                right[i] = tile_b[d * TILE + local.x * PART + i];
            }
            for (var i = 0u; i < PART; i++) {
                for (var j = 0u; j < PART; j++) {
                    sums[i][j] += left[i] * right[j];
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < PART; i++) {
        for (var j = 0u; j < PART; j++) {
            c[(row + local.y * PART + i) * sizes.columns + column + local.x * PART + j] = sums[i][j];
        }
    }
}
