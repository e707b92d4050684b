// Finds all places of a pattern in a text of one character a word; the result is a flag for each place.
struct Pattern {
    length: u32,
    letters: array<u32>,
}

@group(0) @binding(0) var<storage, read> pattern: Pattern;
@group(0) @binding(1) var<storage, read> text: array<u32>;
@group(0) @binding(2) var<storage, read_write> found: array<u32>;

@compute @workgroup_size(64)
fn string_search(@builtin(global_invocation_id) id: vec3<u32>) {
    let start = id.x;
    if start >= arrayLength(&text) {
        return;
    }
    let length = min(pattern.length, arrayLength(&pattern.letters));
    var same = start + length <= arrayLength(&text);
    var i = 0u;
    while same && i < length {
        same = text[start + i] == pattern.letters[i];
        i++;
    }
    found[start] = u32(same);
}
