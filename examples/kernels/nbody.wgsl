// One step of gravity between all bodies, loaded through workgroup memory.
struct Body {
    position: vec3<f32>,
    mass: f32,
    velocity: vec3<f32>,
}

struct Step {
    seconds: f32,
    softening: f32,
}

@group(0) @binding(0) var<uniform> step: Step;
@group(0) @binding(1) var<storage, read> bodies: array<Body>;
@group(0) @binding(2) var<storage, read_write> moved: array<Body>;

var<workgroup> near: array<vec4<f32>, 32>;

@compute @workgroup_size(32)
fn nbody(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let count = arrayLength(&bodies);
    var own = bodies[id.x];
    var force = vec3<f32>();
    for (var first = 0u; first < count; first += 32u) {
        let other = first + lane;
        near[lane] = select(vec4<f32>(), vec4<f32>(bodies[other].position, bodies[other].mass), other < count);
        workgroupBarrier();
        for (var i = 0; i < 32; i++) {
            let to = near[i].xyz - own.position;
            let distance_squared = dot(to, to) + step.softening;
            let inverse = 1.0 / sqrt(distance_squared);
            force += to * (near[i].w * inverse * inverse * inverse);
        }
        workgroupBarrier();
    }
    if id.x < count {
        own.velocity += force * step.seconds;
        own.position += own.velocity * step.seconds;
        moved[id.x] = own;
    }
}
