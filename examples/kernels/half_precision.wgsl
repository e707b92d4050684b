// Scales and clamps half-precision values four at a time.
enable f16;

@group(0) @binding(0) var<storage, read> values: array<vec4<f16>>;
@group(0) @binding(1) var<storage, read_write> scaled: array<vec4<f16>>;

override factor: f16 = 1.5h;

@compute @workgroup_size(64)
fn half_precision(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&scaled) {
        scaled[id.x] = clamp(values[id.x] * factor, vec4<f16>(-8.0h), vec4<f16>(8.0h));
    }
}
