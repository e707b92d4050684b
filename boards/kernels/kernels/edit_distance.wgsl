// How many letters have to be changed, added or left out between words of 32 letters, four to a number.
@group(0) @binding(0) var<storage, read> left: array<u32>;
@group(0) @binding(1) var<storage, read> right: array<u32>;
@group(0) @binding(2) var<storage, read_write> distances: array<u32>;

@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let pair = id.x;
    if (pair >= arrayLength(&distances)) {
        return;
    }
    var row: array<u32, 33>;
    for (var i = 0u; i < 33u; i++) {
        row[i] = i;
    }
    var letters: array<u32, 8>;
    for (var i = 0u; i < 8u; i++) {
        letters[i] = right[pair * 8u + i];
    }
    for (var y = 0u; y < 32u; y++) {
        let letter = (left[pair * 8u + y / 4u] >> (8u * (y % 4u))) & 3u;
        var diagonal = row[0];
        row[0] = y + 1u;
        for (var x = 0u; x < 32u; x++) {
            let other = (letters[x / 4u] >> (8u * (x % 4u))) & 3u;
            let above = row[x + 1u];
            row[x + 1u] = min(min(above, row[x]) + 1u, diagonal + select(1u, 0u, letter == other));
            diagonal = above;
        }
    }
    distances[pair] = row[32];
}
