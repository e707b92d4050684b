// Many systems of 64 equations, each solved by one invocation (Thomas). Equation k of system i is at k * count + i.
@group(0) @binding(0) var<storage, read> lower: array<f32>;
@group(0) @binding(1) var<storage, read> upper: array<f32>;
@group(0) @binding(2) var<storage, read> right: array<f32>;
@group(0) @binding(3) var<storage, read_write> scratch: array<f32>;
@group(0) @binding(4) var<storage, read_write> solution: array<f32>;

const EQUATIONS = 64u;
override N: u32 = 4096u;

@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let i = id.x;
    if (i >= N) {
        return;
    }
    var c = upper[i] / 4.0;
    var d = right[i] / 4.0;
    scratch[i] = c;
    solution[i] = d;
    for (var k = 1u; k < EQUATIONS; k++) {
        let at = k * N + i;
        let a = lower[at];
        let m = 1.0 / (4.0 - a * c);
        c = upper[at] * m;
        d = (right[at] - a * d) * m;
        scratch[at] = c;
        solution[at] = d;
    }
    for (var k = EQUATIONS - 1u; k > 0u; k--) {
        let at = (k - 1u) * N + i;
        d = solution[at] - scratch[at] * d;
        solution[at] = d;
    }
}
