@group(0) @binding(0) var<storage, read> input: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> output: array<vec4f>;

fn encode(x: f32) -> f32 {
    return select(1.055 * pow(x, 0.41666667) - 0.055, 12.92 * x, x <= 0.0031308);
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&input)) {
        return;
    }
    let c = input[id.x];
    output[id.x] = vec4f(encode(c.x), encode(c.y), encode(c.z), c.w);
}
