// Packs colours into words and halves into words, and back.
struct Packed {
    colour: u32,
    halves: u32,
}

@group(0) @binding(0) var<storage, read> colours: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> packed: array<Packed>;
@group(0) @binding(2) var<storage, read_write> unpacked: array<vec4<f32>>;

@compute @workgroup_size(64)
fn pack_unpack(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&colours) {
        return;
    }
    let colour = colours[id.x];
    let words = Packed(pack4x8unorm(colour), pack2x16float(colour.xy * 100.0));
    packed[id.x] = words;
    unpacked[id.x] = vec4<f32>(unpack4x8unorm(words.colour).zw, unpack2x16float(words.halves));
}
