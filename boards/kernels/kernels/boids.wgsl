// A flock: every particle looks at all others. The rules' numbers come in a uniform, as they do where people change them while it runs.
struct Particle {
    pos: vec2f,
    vel: vec2f,
}
struct Params {
    deltaT: f32,
    rule1Distance: f32,
    rule2Distance: f32,
    rule3Distance: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> particlesA: array<Particle>;
@group(0) @binding(2) var<storage, read_write> particlesB: array<Particle>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let index = id.x;
    if (index >= arrayLength(&particlesA)) {
        return;
    }
    var vPos = particlesA[index].pos;
    var vVel = particlesA[index].vel;
    var cMass = vec2f(0.0);
    var cVel = vec2f(0.0);
    var colVel = vec2f(0.0);
    var cMassCount = 0u;
    var cVelCount = 0u;
    for (var i = 0u; i < arrayLength(&particlesA); i++) {
        if (i == index) {
            continue;
        }
        let pos = particlesA[i].pos;
        let vel = particlesA[i].vel;
        if (distance(pos, vPos) < params.rule1Distance) {
            cMass += pos;
            cMassCount++;
        }
        if (distance(pos, vPos) < params.rule2Distance) {
            colVel -= pos - vPos;
        }
        if (distance(pos, vPos) < params.rule3Distance) {
            cVel += vel;
            cVelCount++;
        }
    }
    if (cMassCount > 0u) {
        cMass = cMass / vec2f(f32(cMassCount)) - vPos;
    }
    if (cVelCount > 0u) {
        cVel = cVel / f32(cVelCount);
    }
    vVel += cMass * 0.02 + colVel * 0.05 + cVel * 0.005;
    vVel = normalize(vVel) * clamp(length(vVel), 0.0, 0.1);
    vPos = vPos + vVel * params.deltaT;
    if (vPos.x < -1.0) {
        vPos.x = 1.0;
    }
    if (vPos.x > 1.0) {
        vPos.x = -1.0;
    }
    if (vPos.y < -1.0) {
        vPos.y = 1.0;
    }
    if (vPos.y > 1.0) {
        vPos.y = -1.0;
    }
    particlesB[index].pos = vPos;
    particlesB[index].vel = vVel;
}
