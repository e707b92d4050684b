// Copies the elements of a strided view, one after another. Elements are whole words; an axis is an extent and a signed stride.
struct View { words: u32, rank: u32, offset: u32, unused: u32, axes: array<vec4<u32>, 8> }

@group(0) @binding(0) var<storage, read> from_words: array<u32>;
@group(0) @binding(1) var<uniform> view: View;
@group(0) @binding(2) var<storage, read_write> to_words: array<u32>;

@compute @workgroup_size(64) fn vyre_gather(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&to_words) {
        var rest = id.x / view.words;
        var at = i32(view.offset);
        for (var k = view.rank; k > 0u; k -= 1u) {
            let axis = view.axes[k - 1u];
            at += i32(rest % axis.x) * bitcast<i32>(axis.y);
            rest /= axis.x;
        }
        to_words[id.x] = from_words[u32(at) * view.words + id.x % view.words];
    }
}
