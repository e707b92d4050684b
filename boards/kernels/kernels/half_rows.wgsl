enable f16;
// Rows of 1024 halves times a vector, one workgroup for each row.
@group(0) @binding(0) var<storage, read> matrix: array<vec4<f16>>;
@group(0) @binding(1) var<storage, read> vector: array<vec4<f16>, 256>;
@group(0) @binding(2) var<storage, read_write> products: array<f32>;

var<workgroup> parts: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    var sum = 0.0;
    for (var i = lid.x; i < 256u; i += 64u) {
        sum += dot(vec4f(matrix[group.x * 256u + i]), vec4f(vector[i]));
    }
    parts[lid.x] = sum;
    workgroupBarrier();
    for (var step = 32u; step > 0u; step /= 2u) {
        if (lid.x < step) {
            parts[lid.x] += parts[lid.x + step];
        }
        workgroupBarrier();
    }
    if (lid.x == 0u) {
        products[group.x] = parts[0];
    }
}
