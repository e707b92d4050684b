// A uniform whose members leave gaps, and points whose vectors have room for a fourth component.
struct Camera {
    eye: vec3<f32>,
    zoom: f32,
    view: mat4x4<f32>,
    turn: mat3x3<f32>,
    offset: vec2<f32>,
    up: vec3<f32>,
}

@group(0) @binding(0) var<uniform> camera: Camera;
@group(0) @binding(1) var<storage, read> points: array<vec3<f32>>;
@group(0) @binding(2) var<storage, read_write> seen: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> turned: array<vec3<f32>>;
@group(1) @binding(0) var<uniform> weights: array<vec4<f32>, 3>;
@group(1) @binding(1) var<uniform> bias: vec3<f32>;

@compute @workgroup_size(32)
fn project(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&points) { return; }
    let point = (points[id.x] - camera.eye) * camera.zoom;
    seen[id.x] = camera.view * vec4<f32>(point, 1.0) + weights[id.x % 3u] + vec4<f32>(camera.offset, 0.0, 0.0);
    turned[id.x] = camera.turn * point + camera.up + bias;
}
