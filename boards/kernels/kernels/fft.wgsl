@group(0) @binding(0) var<storage, read> input: array<vec2f>;
@group(0) @binding(1) var<storage, read_write> output: array<vec2f>;

var<workgroup> data: array<vec2f, 1024>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_id) lid: vec3u, @builtin(workgroup_id) group: vec3u) {
    let start = group.x * 1024u;
    for (var i = lid.x; i < 1024u; i += 256u) {
        data[reverseBits(i) >> 22u] = input[start + i];
    }
    workgroupBarrier();
    for (var half = 1u; half < 1024u; half <<= 1u) {
        for (var t = lid.x; t < 512u; t += 256u) {
            let k = t & (half - 1u);
            let i = 2u * t - k;
            let angle = -3.14159265 * f32(k) / f32(half);
            let w = vec2f(cos(angle), sin(angle));
            let a = data[i];
            let b = data[i + half];
            let m = vec2f(w.x * b.x - w.y * b.y, w.x * b.y + w.y * b.x);
            data[i] = a + m;
            data[i + half] = a - m;
        }
        workgroupBarrier();
    }
    for (var i = lid.x; i < 1024u; i += 256u) {
        output[start + i] = data[i];
    }
}
