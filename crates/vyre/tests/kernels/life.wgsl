// One generation of a cellular automaton on a torus. Bit n of a rule is set where n neighbours do it.
struct Rule {
    birth: u32,
    survive: u32,
}

override width: u32 = 8;
override height: u32 = 8;

@group(0) @binding(0) var<storage, read> now: array<u32>;
@group(0) @binding(1) var<storage, read_write> next: array<u32>;
@group(0) @binding(2) var<uniform> rule: Rule;

@compute @workgroup_size(64)
fn step(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= width * height { return; }
    let x = id.x % width;
    let y = id.x / width;
    var neighbours = 0u;
    for (var dy = 0u; dy < 3u; dy++) {
        for (var dx = 0u; dx < 3u; dx++) {
            if dx != 1u || dy != 1u {
                neighbours += now[(y + height + dy - 1u) % height * width + (x + width + dx - 1u) % width];
            }
        }
    }
    let which = select(rule.birth, rule.survive, now[id.x] == 1u);
    next[id.x] = (which >> neighbours) & 1u;
}
