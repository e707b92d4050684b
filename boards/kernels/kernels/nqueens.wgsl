// Solutions of the 13 queens that begin with four given columns, by backtracking with a stack of each invocation.
@group(0) @binding(0) var<storage, read_write> solutions: array<u32>;

const SIZE: i32 = 13;
const MASK: u32 = (1u << 13u) - 1u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let index = id.x;
    if (index >= arrayLength(&solutions)) { return; }
    var columns = 0u;
    var left = 0u;
    var right = 0u;
    for (var row = 0u; row < 4u; row++) {
        let bit = 1u << ((index >> (4u * row)) & 15u);
        if (bit > MASK || ((columns | left | right) & bit) != 0u) {
            solutions[index] = 0u;
            return;
        }
        columns |= bit;
        left = (left | bit) << 1u;
        right = (right | bit) >> 1u;
    }
    var free_stack: array<u32, 16>;
    var column_stack: array<u32, 16>;
    var left_stack: array<u32, 16>;
    var right_stack: array<u32, 16>;
    var depth = 4;
    var count = 0u;
    column_stack[4] = columns;
    left_stack[4] = left;
    right_stack[4] = right;
    free_stack[4] = MASK & ~(columns | left | right);
    while (depth >= 4) {
        let open = free_stack[depth];
        if (open == 0u) {
            depth--;
            continue;
        }
        let bit = open & (~open + 1u);
        free_stack[depth] = open ^ bit;
        if (depth == SIZE - 1) {
            count++;
            continue;
        }
        let c = column_stack[depth] | bit;
        let l = (left_stack[depth] | bit) << 1u;
        let r = (right_stack[depth] | bit) >> 1u;
        depth++;
        column_stack[depth] = c;
        left_stack[depth] = l;
        right_stack[depth] = r;
        free_stack[depth] = MASK & ~(c | l | r);
    }
    solutions[index] = count;
}
