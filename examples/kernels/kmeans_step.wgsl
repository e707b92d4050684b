// Assigns points to the nearest of up to eight centres and adds up fixed-point sums for the new centres.
struct Sum {
    x: atomic<i32>,
    y: atomic<i32>,
    count: atomic<u32>,
}

@group(0) @binding(0) var<storage, read> points: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> centres: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> nearest: array<u32>;
@group(0) @binding(3) var<storage, read_write> sums: array<Sum, 8>;

@compute @workgroup_size(64)
fn kmeans_step(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&points) {
        return;
    }
    let point = points[id.x];
    var best = 0u;
    var best_distance = 3.0e38;
    for (var c = 0u; c < arrayLength(&centres); c++) {
        let d = distance(point, centres[c]);
        if d < best_distance {
            best = c;
            best_distance = d;
        }
    }
    nearest[id.x] = best;
    let fixed = vec2<i32>(round(point * 256.0));
    atomicAdd(&sums[best].x, fixed.x);
    atomicAdd(&sums[best].y, fixed.y);
    atomicAdd(&sums[best].count, 1u);
}
