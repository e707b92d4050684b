// Areas and normals of triangles whose corners are points of three words each, one after the other.
@group(0) @binding(0) var<storage, read> corners: array<f32>;
@group(0) @binding(1) var<storage, read_write> normals: array<f32>;
@group(0) @binding(2) var<storage, read_write> areas: array<f32>;

fn corner(at: u32) -> vec3f {
    return vec3f(corners[3u * at], corners[3u * at + 1u], corners[3u * at + 2u]);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let n = arrayLength(&areas);
    if (id.x >= n) {
        return;
    }
    // A strip: each triangle has two corners with the next one in common.
    let a = corner(id.x);
    let b = corner(id.x + 1u);
    let c = corner(id.x + 2u);
    let across = cross(b - a, c - a);
    let size = length(across);
    areas[id.x] = 0.5 * size;
    let normal = across / max(size, 1e-20);
    normals[3u * id.x] = normal.x;
    normals[3u * id.x + 1u] = normal.y;
    normals[3u * id.x + 2u] = normal.z;
}
