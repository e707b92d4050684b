// c = a · b for row-major matrices, by square tiles in workgroup memory. The tile's edge is an override constant that also
// sets the workgroup size and the shared arrays.
override tile: u32 = 8u;

struct Sizes {
    rows: u32,
    inner: u32,
    columns: u32,
}

@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

var<workgroup> tile_a: array<f32, tile * tile>;
var<workgroup> tile_b: array<f32, tile * tile>;

@compute @workgroup_size(tile, tile)
fn matmul_tiled(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let tiles = (sizes.inner + tile - 1u) / tile;
    var sum = 0.0;
    for (var t = 0u; t < tiles; t++) {
        let k_a = t * tile + local.x;
        let k_b = t * tile + local.y;
        var from_a = 0.0;
        if id.y < sizes.rows && k_a < sizes.inner {
            from_a = a[id.y * sizes.inner + k_a];
        }
        var from_b = 0.0;
        if k_b < sizes.inner && id.x < sizes.columns {
            from_b = b[k_b * sizes.columns + id.x];
        }
        tile_a[local.y * tile + local.x] = from_a;
        tile_b[local.y * tile + local.x] = from_b;
        workgroupBarrier();
        for (var k = 0u; k < tile; k++) {
            sum += tile_a[local.y * tile + k] * tile_b[k * tile + local.x];
        }
        workgroupBarrier();
    }
    if id.y < sizes.rows && id.x < sizes.columns {
        c[id.y * sizes.columns + id.x] = sum;
    }
}
