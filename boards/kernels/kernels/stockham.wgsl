// One pass of an FFT by four points, from one buffer to another.
struct Pass {
    n: u32,
    p: u32,
    unused: vec2u,
}

@group(0) @binding(0) var<uniform> pass_: Pass;
@group(0) @binding(1) var<storage, read> before: array<vec2f>;
@group(0) @binding(2) var<storage, read_write> after: array<vec2f>;

fn times(a: vec2f, b: vec2f) -> vec2f {
    return vec2f(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let quarter = pass_.n / 4u;
    let i = id.x;
    if (i >= quarter) {
        return;
    }
    let k = i & (pass_.p - 1u);
    let j = ((i - k) << 2u) + k;
    let angle = -1.5707963 * f32(k) / f32(pass_.p);
    var u: array<vec2f, 4>;
    for (var q = 0u; q < 4u; q++) {
        let turn = f32(q) * angle;
        u[q] = times(before[i + q * quarter], vec2f(cos(turn), sin(turn)));
    }
    let a = u[0] + u[2];
    let b = u[0] - u[2];
    let c = u[1] + u[3];
    let d = vec2f(u[1].y - u[3].y, u[3].x - u[1].x);
    after[j] = a + c;
    after[j + pass_.p] = b + d;
    after[j + 2u * pass_.p] = a - c;
    after[j + 3u * pass_.p] = b - d;
}
