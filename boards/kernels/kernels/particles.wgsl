// Particles that fall and bounce in a box.
struct Particle {
    position: vec3f,
    mass: f32,
    velocity: vec3f,
    age: f32,
}

@group(0) @binding(0) var<storage, read> before: array<Particle>;
@group(0) @binding(1) var<storage, read_write> after: array<Particle>;

const STEP = 0.01;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&before)) {
        return;
    }
    var p = before[id.x];
    p.velocity += vec3f(0.0, -9.81, 0.0) * STEP - p.velocity * (0.1 * STEP / (0.5 + p.mass));
    p.position += p.velocity * STEP;
    for (var axis = 0; axis < 3; axis++) {
        if (p.position[axis] < 0.0) {
            p.position[axis] = -p.position[axis];
            p.velocity[axis] *= -0.8;
        } else if (p.position[axis] > 1.0) {
            p.position[axis] = 2.0 - p.position[axis];
            p.velocity[axis] *= -0.8;
        }
    }
    p.age += STEP;
    after[id.x] = p;
}
