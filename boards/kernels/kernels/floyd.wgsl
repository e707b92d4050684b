// A step of Floyd and Warshall: all shortest paths that may go through one more node.
struct Step {
    size: u32,
    through: u32,
    a: u32,
    b: u32,
}
@group(0) @binding(0) var<uniform> step: Step;
@group(0) @binding(1) var<storage, read> before: array<f32>;
@group(0) @binding(2) var<storage, read_write> after: array<f32>;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let i = id.y;
    let j = id.x;
    if (i >= step.size || j >= step.size) {
        return;
    }
    let direct = before[i * step.size + j];
    let around = before[i * step.size + step.through] + before[step.through * step.size + j];
    after[i * step.size + j] = select(direct, around, around < direct);
}
