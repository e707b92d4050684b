// Six neighbours in a volume, in cubes.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
const side = 64u;

@compute @workgroup_size(4, 4, 4)
fn volume(@builtin(global_invocation_id) id: vec3<u32>) {
    let height = arrayLength(&a) / (side * side);
    if id.x >= side || id.y >= side || id.z >= height {
        return;
    }
    let at = (id.z * side + id.y) * side + id.x;
    var sum = a[at] + a[max(at, 1u) - 1u] + a[min(at + 1u, arrayLength(&a) - 1u)];
    sum += a[max(at, side) - side] + a[min(at + side, arrayLength(&a) - 1u)];
    sum += a[max(at, side * side) - side * side] + a[min(at + side * side, arrayLength(&a) - 1u)];
    out[at] = sum / 7.0;
}
