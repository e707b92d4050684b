// Each invocation sorts 32 numbers in a heap of its own.
@group(0) @binding(0) var<storage, read_write> numbers: array<f32>;

const LENGTH = 32;

fn sift_down(heap: ptr<function, array<f32, LENGTH>>, start: i32, end: i32) {
    var root = start;
    loop {
        var child = 2 * root + 1;
        if (child >= end) {
            break;
        }
        if (child + 1 < end && (*heap)[child] < (*heap)[child + 1]) {
            child++;
        }
        if ((*heap)[root] >= (*heap)[child]) {
            return;
        }
        let held = (*heap)[root];
        (*heap)[root] = (*heap)[child];
        (*heap)[child] = held;
        root = child;
    }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let base = id.x * u32(LENGTH);
    if (base >= arrayLength(&numbers)) {
        return;
    }
    var heap: array<f32, LENGTH>;
    for (var i = 0; i < LENGTH; i++) {
        heap[i] = fract(numbers[base + u32(i)] * 7.31);
    }
    for (var start = LENGTH / 2 - 1; start >= 0; start--) {
        sift_down(&heap, start, LENGTH);
    }
    for (var end = LENGTH - 1; end > 0; end--) {
        let held = heap[end];
        heap[end] = heap[0];
        heap[0] = held;
        sift_down(&heap, 0, end);
    }
    for (var i = 0; i < LENGTH; i++) {
        numbers[base + u32(i)] = heap[i];
    }
}
