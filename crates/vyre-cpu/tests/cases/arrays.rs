//! Private arrays of vectors: every word of an element is found where it was stored, at places that all invocations share or that differ, as a
//! whole or one component alone.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

/// Each invocation has an array of 40 `element`s made of its words, does `body` with it, and gives all of it.
fn with_array(what: &str, element: &str, body: &str) {
    let width: u32 = element[3..4].parse().expect("the width of a vector");
    let own = ["x", "y", "z", "w"].map(|component| format!("item.{component}"));
    let kind = if element.ends_with('f') { "f32" } else { "u32" };
    let give = |word: &str| if kind == "f32" { format!("bitcast<u32>({word})") } else { word.to_owned() };
    let makes: Vec<String> = (0..width).map(|c| format!("{kind}((data[place] >> (k + {c}u)) & 1023u)")).collect();
    let gives: Vec<String> = own[..width as usize].iter().map(|word| give(word)).collect();
    for size in [64, 40] {
        let text = format!(
            "@group(0) @binding(0) var<storage, read> data: array<u32>;
             @group(0) @binding(1) var<storage, read_write> results: array<u32, 150>;
             @compute @workgroup_size({size})
             fn main(@builtin(global_invocation_id) id: vec3u, @builtin(workgroup_id) group: vec3u) {{
                 let place = id.x;
                 if (place >= 150u) {{ return; }}
                 var list: array<{element}, 40>;
                 for (var k = 0u; k < 40u; k++) {{ list[k] = {element}({makes}); }}
                 let rounds = 1u + data[group.x] % 40u;
                 let far = data[place] % 40u;
                 {body}
                 var all = 0u;
                 for (var k = 0u; k < 40u; k++) {{
                     let item = list[k];
                     all = all * 31u + ({gives});
                 }}
                 results[place] = all;
             }}",
            makes = makes.join(", "),
            gives = gives.join(" ^ "),
        );
        let program = import(&text, &ImportOptions::default()).expect("a kernel");
        let case = Case { grid: Some([150_u32.div_ceil(size), 1, 1]), ..Case::new(program, vec![words(150)]) };
        agree(&format!("{what} of {element}, workgroups of {size}"), &case);
    }
}

#[test]
fn vectors_of_arrays_are_found_again() {
    for element in ["vec2f", "vec3f", "vec4f", "vec2u", "vec3u", "vec4u"] {
        with_array("shared places", element, "for (var k = 1u; k < rounds; k++) { list[k] = list[k] + list[k - 1u]; }");
        with_array(
            "places that differ",
            element,
            "for (var k = 0u; k < rounds; k++) { list[(far + k) % 40u] += list[k]; }",
        );
        with_array(
            "places behind the end",
            element,
            "for (var k = 0u; k < rounds; k++) { list[far + k] = list[2u * k]; }",
        );
        with_array(
            "one component",
            element,
            "for (var k = 0u; k < rounds; k++) { list[k].y = list[far].x; list[far][k % 2u] = list[k][(far + k) % 2u]; }",
        );
        with_array(
            "loops that are left one by one",
            element,
            "for (var k = 0u; k < rounds; k++) { if (k > far) { break; } list[k] = list[far - k]; list[far] += list[k]; }",
        );
    }
}
