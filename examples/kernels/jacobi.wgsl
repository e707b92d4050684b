// One Jacobi step for a tridiagonal system with 2 on the diagonal and -1 beside it.
@group(0) @binding(0) var<storage, read> right_side: array<f32>;
@group(0) @binding(1) var<storage, read> guess: array<f32>;
@group(0) @binding(2) var<storage, read_write> better: array<f32>;

@compute @workgroup_size(64)
fn jacobi(@builtin(global_invocation_id) id: vec3<u32>) {
    let n = arrayLength(&guess);
    let i = i32(id.x);
    if id.x >= n {
        return;
    }
    // Outside the array a load gives zero, which is the boundary value.
    better[i] = 0.5 * (right_side[i] + guess[i - 1] + guess[i + 1]);
}
