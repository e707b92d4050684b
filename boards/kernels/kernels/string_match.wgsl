// How often a pattern of eight letters begins in the 256 letters of each invocation; letters are words.
@group(0) @binding(0) var<storage, read> letters: array<u32>;
@group(0) @binding(1) var<storage, read> pattern: array<u32, 8>;
@group(0) @binding(2) var<storage, read_write> found: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let n = arrayLength(&letters);
    if (id.x + 8u > n) {
        return;
    }
    var matched = 1u;
    for (var k = 0u; k < 8u; k++) {
        if (letters[id.x + k] != pattern[k]) {
            matched = 0u;
            break;
        }
    }
    found[id.x] = matched;
}
