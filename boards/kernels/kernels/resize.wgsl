// An image of 3/4 of the size made larger, between pixels as the distances say.
@group(0) @binding(0) var<storage, read> input: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> output: array<vec4f>;

override N: u32 = 1024u;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let small = N / 4u * 3u;
    let place = max((vec2f(id.xy) + 0.5) * 0.75 - 0.5, vec2f(0.0));
    let low = min(vec2u(place), vec2u(small - 1u));
    let high = min(low + 1u, vec2u(small - 1u));
    let part = place - vec2f(low);
    let top = mix(input[low.y * small + low.x], input[low.y * small + high.x], part.x);
    let bottom = mix(input[high.y * small + low.x], input[high.y * small + high.x], part.x);
    output[id.y * N + id.x] = mix(top, bottom, part.y);
}
