// Transforms vertices by a model matrix and normals by the transposed inverse that the host has computed.
struct Transform {
    model: mat4x4<f32>,
    normal: mat3x3<f32>,
}

struct Vertex {
    position: vec3<f32>,
    normal: vec3<f32>,
}

@group(0) @binding(0) var<uniform> transform: Transform;
@group(0) @binding(1) var<storage, read_write> vertices: array<Vertex>;

@compute @workgroup_size(32)
fn matrix_transform(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&vertices) {
        return;
    }
    let vertex = vertices[id.x];
    vertices[id.x].position = (transform.model * vec4<f32>(vertex.position, 1.0)).xyz;
    vertices[id.x].normal = transpose(transform.normal) * vertex.normal;
}
