// Softmax of each row of up to 64 columns, one workgroup a row.
@group(0) @binding(0) var<uniform> columns: u32;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> probabilities: array<f32>;

var<workgroup> shared_values: array<f32, 64>;

@compute @workgroup_size(64)
fn softmax(@builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let inside = lane < columns;
    let at = row.x * columns + lane;
    let own = select(-3.0e38, logits[at], inside);
    shared_values[lane] = own;
    for (var half = 32u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lane < half {
            shared_values[lane] = max(shared_values[lane], shared_values[lane + half]);
        }
    }
    let largest = workgroupUniformLoad(&shared_values[0]);
    let power = select(0.0, exp(own - largest), inside);
    shared_values[lane] = power;
    for (var half = 32u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lane < half {
            shared_values[lane] += shared_values[lane + half];
        }
    }
    let total = workgroupUniformLoad(&shared_values[0]);
    if inside {
        probabilities[at] = power / total;
    }
}
