// Edit distance of pairs of words of up to 16 letters, one pair an invocation, with one row of the table kept.
struct Word {
    length: u32,
    letters: array<u32, 16>,
}

struct Pair {
    a: Word,
    b: Word,
}

@group(0) @binding(0) var<storage, read> pairs: array<Pair>;
@group(0) @binding(1) var<storage, read_write> distances: array<u32>;

@compute @workgroup_size(16)
fn levenshtein(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&pairs) {
        return;
    }
    let pair = &pairs[id.x];
    let columns = (*pair).b.length;
    var row: array<u32, 17>;
    for (var j = 0u; j <= columns; j++) {
        row[j] = j;
    }
    for (var i = 1u; i <= (*pair).a.length; i++) {
        var diagonal = row[0];
        row[0] = i;
        for (var j = 1u; j <= columns; j++) {
            let cost = select(1u, 0u, (*pair).a.letters[i - 1u] == (*pair).b.letters[j - 1u]);
            let next = min(min(row[j] + 1u, row[j - 1u] + 1u), diagonal + cost);
            diagonal = row[j];
            row[j] = next;
        }
    }
    distances[id.x] = row[columns];
}
