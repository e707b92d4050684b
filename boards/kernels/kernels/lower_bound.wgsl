// For each number how many of a sorted table are less, by halving.
@group(0) @binding(0) var<storage, read> table: array<u32>;
@group(0) @binding(1) var<storage, read> queries: array<u32>;
@group(0) @binding(2) var<storage, read_write> places: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&queries)) {
        return;
    }
    let wanted = queries[id.x];
    var low = 0u;
    var high = arrayLength(&table);
    while (low < high) {
        let middle = (low + high) / 2u;
        if (table[middle] < wanted) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    places[id.x] = low;
}
