//! Invocations that find a partner by turning bits of their own place around, as in a sorting network, or in the rounds of a tree in
//! workgroup memory, where places are known for each of them and words stay in registers.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

const COUNT: u32 = 1500;

fn pass(body: &str, k: u32, j: u32) -> Case {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> sizes: array<u32>;
         @group(0) @binding(1) var<storage, read_write> values: array<u32, {COUNT}>;
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) own: vec3u) {{
             let i = own.x;
             let k = sizes[0];
             let j = sizes[1];
             if (i >= sizes[2]) {{
                 return;
             }}
             {body}
         }}"
    );
    let program = import(&text, &ImportOptions::default()).expect("a kernel");
    let sizes = [k, j, COUNT - 7].into_iter().flat_map(u32::to_le_bytes).collect();
    Case { grid: Some([COUNT.div_ceil(64), 1, 1]), ..Case::new(program, vec![sizes, words(COUNT)]) }
}

/// One who has a partner behind changes words with it; nobody else touches those.
#[test]
fn partners_exchange_words() {
    let exchange = |partner: &str| {
        format!(
            "let other = {partner};
             if (other > i && other < {COUNT}u) {{
                 let a = values[i];
                 let b = values[other];
                 if (((i & k) == 0u) == (a > b)) {{
                     values[i] = b;
                     values[other] = a;
                 }}
             }}"
        )
    };
    for j in [0, 1, 2, 8, 16, 48, 64, 128, 129, 192, 256, 512, 1024, 0x8000_0000, u32::MAX] {
        for k in [2, 64, 1024] {
            agree(&format!("{j}, {k}"), &pass(&exchange("i ^ j"), k, j));
            agree(&format!("{j}, {k} from the left"), &pass(&exchange("u32(i32(j) ^ i32(i))"), k, j));
        }
    }
}

/// Places beside one's own, as few words are read by many.
#[test]
fn places_are_turned_around() {
    let body = "var sum = values[i];
         for (var t = 0u; t < 3u; t++) {
             sum = sum * 3u + values[1100u + ((((i + 5u) ^ j) + t) & 255u)] + values[1100u + (((i + t) ^ (j * 2u)) % 300u)];
         }
         if (i < 1000u) {
             values[i] = sum ^ values[1100u + min((i * 2u) ^ j, 250u)];
         }";
    for j in [0, 1, 4, 16, 32, 64, 128, 160, 512, 0x4000_0000] {
        agree(&format!("{j}"), &pass(body, 1, j));
    }
}

/// A kernel whose workgroups have so many words of memory `s`, and what invocation `t` makes of its word `own` and of them.
fn group(size: u32, memory: u32, body: &str) -> Case {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> values: array<u32>;
         @group(0) @binding(1) var<storage, read_write> result: array<u32, {out}>;
         var<workgroup> s: array<u32, {memory}>;
         @compute @workgroup_size({size})
         fn main(@builtin(global_invocation_id) all: vec3u, @builtin(local_invocation_index) t: u32) {{
             let own = values[all.x];
             {body}
         }}",
        out = 3 * size,
    );
    let program = import(&text, &ImportOptions::default()).expect("a kernel");
    // The last workgroup reads behind the end.
    Case { grid: Some([3, 1, 1]), ..Case::new(program, vec![words(3 * size - 5)]) }
}

/// How the words of a tree are looked at when it is done: one of them, each by its invocation, in another order, or wherever the data says.
const LOOKS: [&str; 5] = [
    "if (t == 0u) { result[all.x] = s[0]; }",
    "result[all.x] = s[t];",
    "result[all.x] = s[(t * 3u + 1u) % SIZE];",
    "result[all.x] = s[own % SIZE] ^ s[SIZE - 1u];",
    "if (t % 3u == 1u) { s[t - 1u] = own; } workgroupBarrier(); result[all.x] = s[t] + s[SIZE - 1u - t];",
];

/// Rounds in which the invocations that take part are further and further apart.
#[test]
fn trees_of_invocations_that_are_apart() {
    for size in [8, 16, 24, 64, 100, 256] {
        for (number, look) in LOOKS.into_iter().enumerate() {
            let body = format!(
                "s[t] = own;
                 workgroupBarrier();
                 for (var d = 1u; d < SIZE; d *= 2u) {{
                     if (t % (2u * d) == 0u && t + d < SIZE) {{
                         s[t] = s[t] * 5u - s[t + d];
                     }}
                     workgroupBarrier();
                 }}
                 {look}"
            );
            agree(&format!("{size}, {number}"), &group(size, size, &body.replace("SIZE", &format!("{size}u"))));
        }
    }
}

/// Up and down a tree, with and without words between that nobody has.
#[test]
fn sums_of_all_before() {
    for (size, place) in [(8, "n"), (16, "n"), (32, "n"), (64, "n + n / 16u"), (128, "n"), (128, "n + n / 32u")] {
        for (number, look) in LOOKS.into_iter().enumerate() {
            let at = |n: &str| format!("s[{}]", place.replace('n', n));
            let body = format!(
                "{even} = own;
                 {odd} = own * 7u;
                 var far = 1u;
                 for (var d = {size}u; d > 0u; d >>= 1u) {{
                     workgroupBarrier();
                     if (t < d) {{
                         let i = far * (2u * t + 1u) - 1u;
                         let j = far * (2u * t + 2u) - 1u;
                         {j} += {i};
                     }}
                     far *= 2u;
                 }}
                 if (t == 0u) {{
                     {last} = 0u;
                 }}
                 for (var d = 1u; d < {all}u; d *= 2u) {{
                     far >>= 1u;
                     workgroupBarrier();
                     if (t < d) {{
                         let i = far * (2u * t + 1u) - 1u;
                         let j = far * (2u * t + 2u) - 1u;
                         let held = {i};
                         {i} = {j};
                         {j} += held;
                     }}
                 }}
                 workgroupBarrier();
                 let mine = {odd} * 3u + {even};
                 workgroupBarrier();
                 s[t] = s[t] ^ mine;
                 workgroupBarrier();
                 {look}",
                even = at("(2u * t)"),
                odd = at("(2u * t + 1u)"),
                i = at("i"),
                j = at("j"),
                last = at(&format!("{}u", 2 * size - 1)),
                all = 2 * size,
            );
            let body = body.replace("SIZE", &format!("{size}u"));
            agree(&format!("{size}, {place}, {number}"), &group(size, 3 * size, &body));
        }
    }
}

/// What an invocation stored before is what it loads, though places of its loads and stores are the same for some and not for others.
#[test]
fn words_that_an_invocation_changed_before() {
    let body = "s[t] = own;
         workgroupBarrier();
         if (t % 4u == 1u) {
             let i = t - t / 8u % 2u;
             let a = s[t];
             s[i] = a * 3u;
             s[t + 1u] = s[t] + s[t - 1u];
             s[t] = s[t + 1u] ^ a;
         }
         workgroupBarrier();
         result[all.x] = s[t];";
    for size in [16, 64, 72] {
        agree(&format!("{size}"), &group(size, size, body));
    }
}

/// Structures of which each word is scanned with two buffers that take turns.
#[test]
fn structures_that_are_scanned() {
    let text = |size: u32, look: &str| {
        format!(
            "struct Item {{ value: u32, flag: u32, rest: u32 }}
             @group(0) @binding(0) var<storage, read> values: array<u32>;
             @group(0) @binding(1) var<storage, read_write> result: array<u32, {result}>;
             var<workgroup> items: array<array<Item, {size}>, 2>;
             @compute @workgroup_size({size})
             fn main(@builtin(global_invocation_id) all: vec3u, @builtin(local_invocation_index) t: u32) {{
                 var side = 0u;
                 items[0][t] = Item(values[all.x], u32(values[all.x] % 5u == 0u), t);
                 workgroupBarrier();
                 for (var d = 1u; d < {size}u; d <<= 1u) {{
                     var item = items[side][t];
                     if (t >= d) {{
                         let left = items[side][t - d];
                         if (item.flag == 0u) {{
                             item.value += left.value * 3u;
                         }}
                         item.flag |= left.flag;
                         item.rest ^= left.rest;
                     }}
                     items[1u - side][t] = item;
                     side = 1u - side;
                     workgroupBarrier();
                 }}
                 {look}
             }}",
            result = 3 * size,
        )
    };
    for look in [
        "result[all.x] = items[side][t].value ^ items[side][t].rest;",
        "let item = items[side][values[all.x] % 96u]; result[all.x] = item.value + item.flag + items[1u - side][t].rest;",
    ] {
        // Those of 256 are far more vectors than registers.
        for size in [96, 256] {
            let program = import(&text(size, look), &ImportOptions::default()).expect("a kernel");
            let case = Case { grid: Some([3, 1, 1]), ..Case::new(program, vec![words(3 * size - 5)]) };
            agree(&format!("{look} by {size}"), &case);
        }
    }
}

/// Each invocation goes over a row of its own in workgroup memory, and changes it.
#[test]
fn rows_of_workgroup_memory() {
    let bodies = [
        // Only the word that is then changed is read.
        "for (var j = 0u; j < LONG; j++) { let c = t * WIDE + j; let held = s[c]; s[c] = sum; sum = sum * 3u + held; }",
        "for (var j = 0u; j < LONG; j++) { s[t * WIDE + j] += own; sum ^= own << j; }",
        // Another one, too.
        "for (var j = 0u; j + 1u < LONG; j++) { let c = t * WIDE + j; s[c] = s[c] * 3u + s[c + 1u]; sum += s[c]; }",
        "for (var j = 1u; j < LONG; j++) { let c = t * WIDE + j; s[c] += s[c - 1u]; sum += s[c]; }",
        // Nobody changes what is read, or only then.
        "for (var j = 0u; j < LONG; j++) { sum = sum * 3u + s[t * WIDE + j]; }",
        "for (var j = 0u; j < LONG; j++) { sum = sum * 3u + s[t * WIDE + j]; workgroupBarrier(); s[j * SIZE + t] = sum; workgroupBarrier(); }",
        // Some go on for longer, and some don't begin.
        "for (var j = own % 3u; j < own % (LONG + 1u); j++) { s[t * WIDE + j] += own; sum ^= s[t * WIDE + j]; }",
        "if (own % 4u != 1u) { for (var j = 0u; j < LONG; j++) { s[t * WIDE + j] += own; sum ^= own << j; } }",
    ];
    for (size, wide, long) in [(32, 4, 4), (64, 7, 7), (64, 8, 8), (256, 16, 16), (128, 17, 16), (40, 20, 18)] {
        for (number, body) in bodies.into_iter().enumerate() {
            let body = format!(
                "for (var j = 0u; j < WIDE; j++) {{
                     s[j * SIZE + t] = own ^ j;
                 }}
                 workgroupBarrier();
                 var sum = own;
                 {body}
                 workgroupBarrier();
                 for (var j = 0u; j < WIDE; j++) {{
                     sum = sum * 5u + s[j * SIZE + t];
                 }}
                 result[all.x] = sum;"
            );
            let body = body.replace("SIZE", &format!("{size}u"));
            let body = body.replace("WIDE", &format!("{wide}u")).replace("LONG", &format!("{long}u"));
            agree(&format!("{size}, {wide}, {long}, {number}"), &group(size, size * wide, &body));
        }
    }
}
