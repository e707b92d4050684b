// One step of a lattice Boltzmann flow on a torus: nine populations of each cell arrive and relax.
@group(0) @binding(0) var<storage, read> before: array<f32>;
@group(0) @binding(1) var<storage, read_write> after: array<f32>;

override N: u32 = 1024u;
const DX = array<i32, 9>(0, 1, 0, -1, 0, 1, -1, -1, 1);
const DY = array<i32, 9>(0, 0, 1, 0, -1, 1, 1, -1, -1);
const WEIGHT = array<f32, 9>(0.4444444, 0.1111111, 0.1111111, 0.1111111, 0.1111111, 0.0277778, 0.0277778, 0.0277778, 0.0277778);

@compute @workgroup_size(32, 8)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= N || id.y >= N) {
        return;
    }
    let n = i32(N);
    let x = i32(id.x);
    let y = i32(id.y);
    var f: array<f32, 9>;
    var density = 0.0;
    var flow = vec2f(0.0);
    for (var k = 0; k < 9; k++) {
        let from_x = (x - DX[k] + n) % n;
        let from_y = (y - DY[k] + n) % n;
        f[k] = before[(k * n + from_y) * n + from_x];
        density += f[k];
        flow += vec2f(f32(DX[k]), f32(DY[k])) * f[k];
    }
    flow /= density;
    let energy = 1.5 * dot(flow, flow);
    for (var k = 0; k < 9; k++) {
        let along = 3.0 * (f32(DX[k]) * flow.x + f32(DY[k]) * flow.y);
        let rest = WEIGHT[k] * density * (1.0 + along + 0.5 * along * along - energy);
        after[(k * n + y) * n + x] = f[k] + 0.6 * (rest - f[k]);
    }
}
