// Particles share out their charge to the four corners of their cell, in fixed point.
struct Particle {
    position: vec2f,
    velocity: vec2f,
}
@group(0) @binding(0) var<storage, read> particles: array<Particle>;
@group(0) @binding(1) var<storage, read_write> charge: array<atomic<i32>, 65536>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&particles)) {
        return;
    }
    let p = particles[id.x].position * 254.0;
    let cell = vec2u(floor(p));
    let f = fract(p);
    let at = cell.y * 256u + cell.x;
    atomicAdd(&charge[at], i32((1.0 - f.x) * (1.0 - f.y) * 1024.0));
    atomicAdd(&charge[at + 1u], i32(f.x * (1.0 - f.y) * 1024.0));
    atomicAdd(&charge[at + 256u], i32((1.0 - f.x) * f.y * 1024.0));
    atomicAdd(&charge[at + 257u], i32(f.x * f.y * 1024.0));
}
