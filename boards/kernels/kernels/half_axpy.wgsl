enable f16;

@group(0) @binding(0) var<storage, read> x: array<vec2<f16>>;
@group(0) @binding(1) var<storage, read> y: array<vec2<f16>>;
@group(0) @binding(2) var<storage, read_write> z: array<vec2<f16>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x < arrayLength(&x)) {
        z[id.x] = x[id.x] * 1.5h + y[id.x];
    }
}
