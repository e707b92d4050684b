// A picture of packed bytes over another, by its alpha.
@group(0) @binding(0) var<storage, read> over: array<u32>;
@group(0) @binding(1) var<storage, read> under: array<u32>;
@group(0) @binding(2) var<storage, read_write> blended: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&blended)) {
        return;
    }
    let a = unpack4x8unorm(over[id.x]);
    let b = unpack4x8unorm(under[id.x]);
    blended[id.x] = pack4x8unorm(mix(b, vec4f(a.rgb, 1.0), a.a));
}
