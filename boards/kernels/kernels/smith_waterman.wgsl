// Each invocation aligns one query of 32 letters with one target of 64.
@group(0) @binding(0) var<storage, read> queries: array<u32>;
@group(0) @binding(1) var<storage, read> targets: array<u32>;
@group(0) @binding(2) var<storage, read_write> scores: array<i32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&scores)) {
        return;
    }
    var row: array<i32, 33>;
    var query: array<u32, 32>;
    for (var i = 0u; i < 32u; i++) {
        query[i] = (queries[id.x * 2u + i / 16u] >> (2u * (i % 16u))) & 3u;
    }
    var best = 0;
    for (var t = 0u; t < 64u; t++) {
        let letter = (targets[id.x * 4u + t / 16u] >> (2u * (t % 16u))) & 3u;
        var diagonal = 0;
        for (var i = 0u; i < 32u; i++) {
            let above = row[i + 1u];
            let matched = diagonal + select(-3, 5, query[i] == letter);
            let score = max(max(matched, 0), max(above, row[i]) - 4);
            diagonal = above;
            row[i + 1u] = score;
            best = max(best, score);
        }
    }
    scores[id.x] = best;
}
