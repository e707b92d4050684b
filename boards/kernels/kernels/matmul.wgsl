@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;

override N: u32 = 1024u;
var<workgroup> at: array<array<f32, 128>, 8>;
var<workgroup> bt: array<array<f32, 128>, 8>;

@compute @workgroup_size(16, 16)
fn main(@builtin(local_invocation_id) lid: vec3u, @builtin(workgroup_id) group: vec3u) {
    let t = lid.y * 16u + lid.x;
    let row = group.y * 128u;
    let column = group.x * 128u;
    var acc: array<array<f32, 8>, 8>;
    for (var k = 0u; k < N; k += 8u) {
        for (var s = 0u; s < 4u; s++) {
            let e = t + s * 256u;
            at[e % 8u][e / 8u] = a[(row + e / 8u) * N + k + e % 8u];
            bt[e / 128u][e % 128u] = b[(k + e / 128u) * N + column + e % 128u];
        }
        workgroupBarrier();
        for (var kk = 0u; kk < 8u; kk++) {
            var x: array<f32, 8>;
            var y: array<f32, 8>;
            for (var i = 0u; i < 8u; i++) {
                x[i] = at[kk][lid.y * 8u + i];
                y[i] = bt[kk][lid.x * 8u + i];
            }
            for (var i = 0u; i < 8u; i++) {
                for (var j = 0u; j < 8u; j++) {
                    acc[i][j] += x[i] * y[j];
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 8u; i++) {
        for (var j = 0u; j < 8u; j++) {
            c[(row + lid.y * 8u + i) * N + column + lid.x * 8u + j] = acc[i][j];
        }
    }
}
