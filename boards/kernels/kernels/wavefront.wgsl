// Smith-Waterman of one pair for each workgroup, along the anti-diagonals.
@group(0) @binding(0) var<storage, read> queries: array<u32>;
@group(0) @binding(1) var<storage, read> targets: array<u32>;
@group(0) @binding(2) var<storage, read_write> scores: array<i32>;

const LENGTH = 64u;
var<workgroup> before: array<i32, 65>;
var<workgroup> last: array<i32, 65>;
var<workgroup> next: array<i32, 65>;
var<workgroup> best: atomic<i32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    let i = lid.x;
    let letter = queries[group.x * LENGTH + i];
    before[i + 1u] = 0;
    last[i + 1u] = 0;
    if (i == 0u) {
        before[0] = 0;
        last[0] = 0;
        next[0] = 0;
        atomicStore(&best, 0);
    }
    workgroupBarrier();
    for (var diagonal = 0u; diagonal < 2u * LENGTH - 1u; diagonal++) {
        var score = 0;
        if (diagonal >= i && diagonal - i < LENGTH) {
            let same = letter == targets[group.x * LENGTH + diagonal - i];
            let matched = before[i] + select(-1, 2, same);
            score = max(0, max(matched, max(last[i], last[i + 1u]) - 1));
            if (score > 0) {
                atomicMax(&best, score);
            }
        }
        next[i + 1u] = score;
        workgroupBarrier();
        before[i + 1u] = last[i + 1u];
        last[i + 1u] = next[i + 1u];
        workgroupBarrier();
    }
    if (i == 0u) {
        scores[group.x] = atomicLoad(&best);
    }
}
