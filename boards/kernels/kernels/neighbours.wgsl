// The distances of the eight nearest of 1,024 points, kept in order by insertion.
@group(0) @binding(0) var<storage, read> points: array<vec2f>;
@group(0) @binding(1) var<storage, read> places: array<vec2f, 1024>;
@group(0) @binding(2) var<storage, read_write> nearest: array<f32>;

var<workgroup> tile: array<vec2f, 256>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) local: vec3u) {
    var best: array<f32, 8>;
    for (var i = 0; i < 8; i++) {
        best[i] = 1e30;
    }
    let own = points[id.x];
    for (var first = 0u; first < 1024u; first += 256u) {
        tile[local.x] = places[first + local.x];
        workgroupBarrier();
        for (var i = 0u; i < 256u; i++) {
            let way = tile[i] - own;
            var d = dot(way, way);
            if (d < best[7]) {
                for (var j = 0; j < 8; j++) {
                    let kept = min(d, best[j]);
                    d = max(d, best[j]);
                    best[j] = kept;
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 8u; i++) {
        nearest[id.x * 8u + i] = sqrt(best[i]);
    }
}
