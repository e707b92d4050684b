// One step of the heat equation on a grid with fixed borders.
struct Grid {
    width: u32,
    height: u32,
    rate: f32,
}

@group(0) @binding(0) var<uniform> grid: Grid;
@group(0) @binding(1) var<storage, read> before: array<f32>;
@group(0) @binding(2) var<storage, read_write> after: array<f32>;

fn at(x: u32, y: u32) -> f32 {
    return before[y * grid.width + x];
}

@compute @workgroup_size(8, 8)
fn stencil_heat(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= grid.width || id.y >= grid.height {
        return;
    }
    let here = at(id.x, id.y);
    var next = here;
    let inside = id.x > 0u && id.y > 0u && id.x + 1u < grid.width && id.y + 1u < grid.height;
    if inside {
        let around = at(id.x - 1u, id.y) + at(id.x + 1u, id.y) + at(id.x, id.y - 1u) + at(id.x, id.y + 1u);
        next = here + grid.rate * (around - 4.0 * here);
    }
    after[id.y * grid.width + id.x] = next;
}
