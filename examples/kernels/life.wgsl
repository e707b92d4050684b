// Conway's game of life on a torus, one cell an invocation.
struct World {
    width: i32,
    height: i32,
}

@group(0) @binding(0) var<uniform> world: World;
@group(0) @binding(1) var<storage, read> cells: array<u32>;
@group(0) @binding(2) var<storage, read_write> next: array<u32>;

fn alive(x: i32, y: i32) -> u32 {
    let wrapped_x = (x + world.width) % world.width;
    let wrapped_y = (y + world.height) % world.height;
    return cells[wrapped_y * world.width + wrapped_x];
}

@compute @workgroup_size(8, 8)
fn life(@builtin(global_invocation_id) id: vec3<u32>) {
    let x = i32(id.x);
    let y = i32(id.y);
    if x >= world.width || y >= world.height {
        return;
    }
    var neighbours = 0u;
    for (var dy = -1; dy <= 1; dy++) {
        for (var dx = -1; dx <= 1; dx++) {
            if dx == 0 && dy == 0 {
                continue;
            }
            neighbours += alive(x + dx, y + dy);
        }
    }
    var state = 0u;
    switch neighbours {
        case 2u: {
            state = alive(x, y);
        }
        case 3u: {
            state = 1u;
        }
        default: {}
    }
    next[y * world.width + x] = state;
}
