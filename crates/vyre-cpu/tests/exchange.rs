//! Invocations that find a partner by turning bits of their own place around, as in a sorting network.

mod support;

use support::{agree, words};
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
