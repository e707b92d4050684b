// A filter of 5 x 5 from a uniform, with the picture's tile and its border in workgroup memory.
@group(0) @binding(0) var<uniform> weights: array<vec4f, 7>;
@group(0) @binding(1) var<storage, read> picture: array<f32>;
@group(0) @binding(2) var<storage, read_write> filtered: array<f32>;

override N: u32 = 1024u;
var<workgroup> tile: array<f32, 400>;

@compute @workgroup_size(16, 16)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u, @builtin(local_invocation_index) index: u32) {
    let corner = vec2i(group.xy * 16u) - 2;
    for (var i = index; i < 400u; i += 256u) {
        let at = clamp(corner + vec2i(i32(i % 20u), i32(i / 20u)), vec2i(0), vec2i(i32(N) - 1));
        tile[i] = picture[u32(at.y) * N + u32(at.x)];
    }
    workgroupBarrier();
    let id = group.xy * 16u + lid.xy;
    if (id.x >= N || id.y >= N) {
        return;
    }
    var sum = 0.0;
    for (var y = 0u; y < 5u; y++) {
        for (var x = 0u; x < 5u; x++) {
            let k = y * 5u + x;
            sum += weights[k / 4u][k % 4u] * tile[(lid.y + y) * 20u + lid.x + x];
        }
    }
    filtered[id.y * N + id.x] = sum;
}
