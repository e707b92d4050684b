// A product of matrices whose sizes come in a uniform, with tiles of 16 x 16 and tests at the edges.
struct Sizes {
    m: u32,
    n: u32,
    k: u32,
    unused: u32,
}

@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

var<workgroup> tileA: array<array<f32, 16>, 16>;
var<workgroup> tileB: array<array<f32, 16>, 16>;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) local: vec3u) {
    let row = id.y;
    let column = id.x;
    var sum = 0.0;
    let tiles = (sizes.k + 15u) / 16u;
    for (var t = 0u; t < tiles; t++) {
        let ka = t * 16u + local.x;
        let kb = t * 16u + local.y;
        tileA[local.y][local.x] = select(0.0, a[row * sizes.k + ka], row < sizes.m && ka < sizes.k);
        tileB[local.y][local.x] = select(0.0, b[kb * sizes.n + column], kb < sizes.k && column < sizes.n);
        workgroupBarrier();
        for (var i = 0u; i < 16u; i++) {
            sum += tileA[local.y][i] * tileB[i][local.x];
        }
        workgroupBarrier();
    }
    if (row < sizes.m && column < sizes.n) {
        c[row * sizes.n + column] = sum;
    }
}
