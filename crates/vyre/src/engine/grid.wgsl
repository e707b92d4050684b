// How many workgroups a launch has whose size stands in an array: `wanted` workgroups, or invocations in workgroups of a size.
// Where an axis is not wanted, it has the most that it may have.
struct Sizes { workgroup: vec4<u32>, most: vec4<u32> }

@group(0) @binding(0) var<storage, read> wanted: array<u32>;
@group(0) @binding(1) var<uniform> sizes: Sizes;
@group(0) @binding(2) var<storage, read_write> grid: array<u32, 3>;

@compute @workgroup_size(3) fn vyre_grid(@builtin(local_invocation_index) axis: u32) {
    var groups = sizes.most[axis];
    if axis < arrayLength(&wanted) {
        let size = max(sizes.workgroup[axis], 1u);
        groups = min(groups, wanted[axis] / size + select(0u, 1u, wanted[axis] % size != 0u));
    }
    grid[axis] = groups;
}
