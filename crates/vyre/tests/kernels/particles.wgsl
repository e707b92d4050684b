// Structs in arrays, a struct in a struct, atomics, half precision beside an open array, and two kernels in one file.
enable f16;

struct Body {
    position: vec3<f32>,
    mass: f32,
    velocity: vec3<f32>,
}

struct Particle {
    alive: u32,
    body: Body,
    tags: array<u32, 3>,
    half_life: f16,
}

struct Log {
    length: atomic<u32>,
    entries: array<u32>,
}

override dt: f32 = 0.5;
override bounce: bool = false;
override floor_at: i32 = -3;
override drag: f16 = 0.25h;

@group(0) @binding(0) var<storage, read_write> particles: array<Particle>;
@group(0) @binding(1) var<storage, read_write> deaths: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> log: Log;
@group(0) @binding(3) var<storage, read> type_of: array<i32>;
@group(0) @binding(4) var<storage, read_write> masses: array<f16>;

@compute @workgroup_size(64)
fn move_all(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&particles) { return; }
    var body = particles[id.x].body;
    body.position += body.velocity * dt * (1.0 - f32(drag));
    if body.position.y < f32(floor_at) {
        if bounce {
            body.velocity.y = -body.velocity.y;
        } else {
            particles[id.x].alive = 0u;
            atomicAdd(&deaths[0], 1u);
        }
    }
    particles[id.x].body = body;
    particles[id.x].tags[id.x % 3u] += u32(type_of[id.x]);
    particles[id.x].half_life *= 0.5h;
}

@compute @workgroup_size(64)
fn weigh(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&particles) { return; }
    masses[id.x] = f16(particles[id.x].body.mass);
    if particles[id.x].alive == 0u {
        log.entries[atomicAdd(&log.length, 1u)] = id.x;
    }
}
