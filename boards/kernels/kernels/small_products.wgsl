// Many products of 16 x 16 matrices, one to a workgroup.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;

var<workgroup> left: array<array<f32, 16>, 16>;
var<workgroup> right: array<array<f32, 16>, 16>;

@compute @workgroup_size(16, 16)
fn main(@builtin(local_invocation_id) local: vec3u, @builtin(workgroup_id) group: vec3u) {
    let at = group.x * 256u + local.y * 16u + local.x;
    left[local.y][local.x] = a[at];
    right[local.y][local.x] = b[at];
    workgroupBarrier();
    var sum = 0.0;
    for (var k = 0u; k < 16u; k++) {
        sum += left[local.y][k] * right[k][local.x];
    }
    c[at] = sum;
}
