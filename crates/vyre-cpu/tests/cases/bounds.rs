//! Accesses in loops whose bounds are tested once for a block, and workgroup memory that is written again before it is read: every path
//! gives what the reference gives, inside the buffers, at their ends and beyond.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
use vyre_wgsl::{ImportOptions, import};

/// Where a loop reads, by its counter and the invocation's place.
fn places() -> Vec<(&'static str, DataType, Expr)> {
    let (x, y) = (|| Expr::global_id(0), || Expr::global_id(1));
    let (k, signed) = (|| Expr::var("k"), |expr: Expr| expr.cast(DataType::I32));
    let unsigned = |expr: Expr| expr.cast(DataType::U32);
    let clamped = Expr::max(Expr::min(k() + signed(y()) * 7i32, 11i32), 0i32);
    vec![
        ("along a row", DataType::U32, y() * 64u32 + k()),
        ("side by side", DataType::U32, x() + k() * 16u32),
        ("backwards", DataType::U32, Expr::u32(40) - k() + x()),
        ("backwards, row by row", DataType::U32, (Expr::u32(20) - k() - 1u32) * 8u32 + x()),
        ("backwards beyond the first", DataType::U32, (Expr::u32(9) - k() - 2u32) * 16u32 + x()),
        ("a quarter", DataType::U32, (k() * 96u32 + x() * 4u32) / 4u32 + y()),
        ("before a quarter", DataType::U32, (k() * 96u32 + x() * 4u32) / 4u32 - 3u32),
        ("a part of what wraps around", DataType::U32, (k() * 0x4000_0100u32 + x() * 16u32) / 16u32 - 7u32),
        ("wrapping around", DataType::U32, k() * 0x4000_0001u32 + x()),
        ("far away", DataType::U32, k() * 0x1000_0000u32 + y()),
        ("within a few", DataType::U32, (k() & 7u32) * 3u32 + x() % 5u32),
        ("at most", DataType::U32, Expr::min(k() * 9u32 + x(), 33u32)),
        ("with a sign", DataType::I32, unsigned(signed(x()) + k())),
        ("clamped", DataType::I32, unsigned(clamped * 8i32 + signed(x()))),
        ("with a sign, scaled", DataType::I32, unsigned(k() * 16i32 + signed(y()))),
    ]
}

fn number(ty: &DataType, value: i32) -> Expr {
    if *ty == DataType::I32 { Expr::i32(value) } else { Expr::u32(value as u32) }
}

/// Buffers that end before, at and after the last round, in rows of workgroups, whole workgroups and workgroups of several rows.
#[test]
fn rounds_that_go_beyond_a_buffer() {
    for (what, ty, place) in places() {
        for size in [[16, 1, 1], [64, 1, 1], [16, 4, 1], [8, 2, 2]] {
            for length in [40u32, 128, 129, 640] {
                for (from, to) in [(0, 4), (-3, 5), (1, 19)] {
                    if from < 0 && ty == DataType::U32 {
                        continue;
                    }
                    let sum = Expr::var("sum") * 31u32 + Expr::load("a", place.clone());
                    let store = Node::store("out", place.clone() + 3u32, Expr::u32(7));
                    // The end is known when it runs only.
                    let end = (Expr::load("n", 0u32)).cast(ty.clone()) + number(&ty, to);
                    let round = vec![Node::assign("sum", sum), store];
                    let global = (Expr::global_id(2) * 8u32 + Expr::global_id(1)) * 128u32 + Expr::global_id(0);
                    let program = Program::wrapped(
                        vec![
                            BufferDecl::read("a", 0, DataType::U32),
                            BufferDecl::read("n", 1, DataType::U32),
                            BufferDecl::output("out", 2, DataType::U32).with_count(length),
                            BufferDecl::output("sums", 3, DataType::U32).with_count(2048),
                        ],
                        size,
                        vec![
                            Node::var("sum", DataType::U32, Expr::u32(1)),
                            Node::for_range("k", number(&ty, from), end, round),
                            Node::store("sums", global, Expr::var("sum")),
                        ],
                    );
                    let inputs = vec![words(length), 0u32.to_le_bytes().to_vec()];
                    let case = Case { grid: Some([2, 2, 1]), ..Case::new(program, inputs) };
                    agree(&format!("{what}, {size:?}, {length} long, {from} to {to}"), &case);
                }
            }
        }
    }
}

/// Loops whose ends depend on the row, which is one for a block, or several.
#[test]
fn rounds_that_depend_on_the_row() {
    for size in [[32, 1, 1], [32, 4, 1], [16, 8, 1], [16, 2, 2]] {
        let row = || Expr::global_id(1) + Expr::global_id(2) * 3u32;
        let sum = Expr::var("sum") * 5u32 + Expr::load("a", Expr::var("k") * 32u32 + Expr::global_id(0));
        let program = Program::wrapped(
            vec![
                BufferDecl::read("a", 0, DataType::U32),
                BufferDecl::output("out", 1, DataType::U32).with_count(64 * 24),
            ],
            size,
            vec![
                Node::var("sum", DataType::U32, Expr::u32(1)),
                Node::for_range("k", row() / 3u32, row() * 2u32, vec![Node::assign("sum", sum)]),
                Node::store("out", row() * 64u32 + Expr::global_id(0), Expr::var("sum")),
            ],
        );
        let case = Case { grid: Some([64 / size[0], 8 / size[1], 1]), ..Case::new(program, vec![words(500)]) };
        agree(&format!("{size:?}"), &case);
    }
}

/// Sums of all that comes before, of many vectors that wait for each other, and exchanges with partners.
#[test]
fn trees_of_many_vectors() {
    for size in [64u32, 256, 512, 1024] {
        for kind in 0..3 {
            let (id, step) = (|| Expr::local_id(0), || Expr::var("step"));
            let partner = match kind {
                0 => id() - step(),
                1 => id() ^ step(),
                _ => (id() + step()) % size,
            };
            let mut round = vec![Node::var("other", DataType::U32, Expr::u32(0))];
            let take = Node::assign("other", Expr::load("tile", partner));
            round.push(if kind == 0 { Node::if_then(id().ge(step()), vec![take]) } else { take });
            round.extend([
                Node::barrier(),
                Node::store("tile", id(), Expr::load("tile", id()) * 3u32 + Expr::var("other")),
                Node::barrier(),
                Node::assign("step", step() * 2u32),
            ]);
            round.insert(0, Node::If { cond: step().lt(size), then: vec![], otherwise: vec![Node::Break] });
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, DataType::U32),
                    BufferDecl::output("out", 1, DataType::U32).with_count(3 * size),
                    BufferDecl::workgroup("tile", 0, DataType::U32).with_count(size),
                ],
                [size, 1, 1],
                vec![
                    Node::store("tile", id(), Expr::load("a", Expr::global_id(0))),
                    Node::barrier(),
                    Node::var("step", DataType::U32, Expr::u32(1)),
                    Node::Loop { body: round, continuing: vec![], break_if: None },
                    Node::store("out", Expr::global_id(0), Expr::load("tile", id())),
                ],
            );
            let case = Case { grid: Some([3, 1, 1]), ..Case::new(program, vec![words(3 * size - 5)]) };
            agree(&format!("{size} of kind {kind}"), &case);
        }
    }
}

/// A kernel whose work stands in an `if`, of few steps and of many, with limits before, at and after the ends of blocks and buffers.
#[test]
fn work_behind_a_limit() {
    for (length, limit) in [(1u32, 1u32), (127, 127), (128, 128), (129, 129), (1000, 1000), (1000, 640), (640, 1000)] {
        for steps in [1, 40] {
            let x = || Expr::global_id(0);
            let value = (0..steps).fold(Expr::load("a", x()), |value, step| value * 3u32 + Expr::u32(step));
            let work = Node::if_then(x().lt(Expr::load("n", 0u32)), vec![Node::store("out", x(), value)]);
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, DataType::U32),
                    BufferDecl::uniform("n", 1, DataType::U32),
                    BufferDecl::output("out", 2, DataType::U32).with_count(length),
                ],
                [64, 1, 1],
                vec![work],
            );
            let inputs = vec![words(length), limit.to_le_bytes().to_vec()];
            let case = Case { grid: Some([limit.div_ceil(64) + 1, 1, 1]), ..Case::new(program, inputs) };
            agree(&format!("{steps} steps, {limit} of {length}"), &case);
        }
    }
}

/// Neighbours before an index, in rounds over planes: where something is taken away that is more, it wraps, and nothing is there. And
/// limits that a kernel looks at for single loads between barriers.
#[test]
fn neighbours_before_and_limits_between_barriers() {
    for (nx, ny, nz, length) in [(64, 8, 5, 64 * 8 * 5), (61, 7, 4, 61 * 7 * 4), (64, 8, 5, 900), (1, 8, 6, 48)] {
        for (gate, back) in
            [("x == 0u || y == 0u || x + 1u >= d.x || y + 1u >= d.y", "d.x"), ("x >= d.x", "2u * d.x"), ("false", "7u")]
        {
            for first in ["0u", "1u", "d.w"] {
                let text = format!(
                    "@group(0) @binding(0) var<uniform> d: vec4u;
                    @group(0) @binding(1) var<storage, read> u: array<u32>;
                    @group(0) @binding(2) var<storage, read_write> v: array<u32, 4096>;
                    @compute @workgroup_size(32, 4, 1)
                    fn main(@builtin(global_invocation_id) id: vec3u) {{
                        let x = id.x;
                        let y = id.y;
                        if ({gate}) {{ return; }}
                        let plane = d.x * d.y;
                        let at = y * d.x + x;
                        for (var z = {first}; z < d.z - 1u; z++) {{
                            let p = z * plane + at;
                            v[p] = u[p - 1u] + 3u * u[p + 1u] + 5u * u[p - {back}] + 7u * u[p + d.x] + u[p - plane];
                        }}
                    }}"
                );
                let program = vyre_wgsl::import(&text, &vyre_wgsl::ImportOptions::default()).expect("a kernel");
                let sizes = [nx, ny, nz, 2u32].iter().flat_map(|size| size.to_le_bytes()).collect();
                let case = Case { grid: Some([2, 2, 1]), ..Case::new(program, vec![sizes, words(length)]) };
                agree(&format!("{nx} x {ny} x {nz} in {length} from {first}, back {back} unless {gate}"), &case);
            }
        }
    }
    let text = "@group(0) @binding(0) var<storage, read> input: array<u32>;
        @group(0) @binding(1) var<storage, read_write> partial: array<u32, 8>;
        @group(0) @binding(2) var<storage, read_write> found: array<atomic<u32>, 4>;
        var<workgroup> s: array<u32, 128>;
        @compute @workgroup_size(128)
        fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u) {
            let t = lid.x;
            let i = group.x * 256u + t;
            let n = arrayLength(&input);
            var mine = 0u;
            if (i < n) { mine = input[i]; }
            if (i + 128u < n) { mine += input[i + 128u]; }
            s[t] = mine;
            if (mine % 3u == 1u) { atomicAdd(&found[0], 1u); }
            if (mine % 5u == 1u) { atomicSub(&found[1], n); }
            if (mine % 7u < 9u) { atomicAdd(&found[2], 4294967295u); }
            workgroupBarrier();
            for (var d = 64u; d > 0u; d >>= 1u) {
                if (t < d) { s[t] += s[t + d]; }
                workgroupBarrier();
            }
            if (t == 0u) { partial[group.x] = s[0]; }
        }";
    let program = vyre_wgsl::import(text, &vyre_wgsl::ImportOptions::default()).expect("a kernel");
    for length in [1, 100, 128, 129, 512, 700, 1023, 1024] {
        let case = Case { grid: Some([4, 1, 1]), ..Case::new(program.clone(), vec![words(length), vec![0; 16]]) };
        agree(&format!("{length} words"), &case);
    }
}

/// A workgroup goes over a row between two places that are loaded: of no word, of less than each has one, of a few rounds, from and to
/// behind the end of the buffers, and from where places wrap.
#[test]
fn rows_that_a_workgroup_goes_over() {
    let rows = [
        [0, 0],
        [5, 4],
        [0, 1],
        [3, 66],
        [3, 67],
        [3, 68],
        [100, 431],
        [440, 500],
        [499, 700],
        [900, 1100],
        [u32::MAX - 3, 100],
        [u32::MAX - 100, 7],
        [0x7fff_ff00, 0x8000_0010],
        [0x8000_0000, 0x8000_0081],
        [0, 500],
    ];
    let bounds: Vec<u8> = rows.iter().flatten().flat_map(|bound| bound.to_le_bytes()).collect();
    for size in [8u32, 16, 64, 128] {
        for (what, head) in [
            ("counted", format!("for (var j = start + t; j < end; j += {size}u)")),
            ("places to the left", format!("for (var j = t + start; end > j; j = j + {size}u)")),
            ("steps that are no power of two", format!("for (var j = start + t; j < end; j += {}u)", size + 3)),
            ("one after the other", "for (var j = start + t * 2u; j < end; j += 5u)".to_owned()),
        ] {
            let text = format!(
                "@group(0) @binding(0) var<storage, read> bounds: array<u32>;
                @group(0) @binding(1) var<storage, read> places: array<u32>;
                @group(0) @binding(2) var<storage, read> values: array<u32>;
                @group(0) @binding(3) var<storage, read> x: array<u32>;
                @group(0) @binding(4) var<storage, read_write> y: array<u32, {words}>;
                var<workgroup> sums: array<u32, {size}>;
                @compute @workgroup_size({size})
                fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u) {{
                    let t = lid.x;
                    let start = bounds[2u * group.x];
                    let end = bounds[2u * group.x + 1u];
                    var sum = 1u;
                    {head} {{
                        sum = sum * 3u + values[j] * x[places[j] & 127u] + j;
                    }}
                    sums[t] = sum;
                    workgroupBarrier();
                    y[group.x * {size}u + t] = sum + 5u * sums[{size}u - 1u - t];
                }}",
                words = size * rows.len() as u32,
            );
            let program = vyre_wgsl::import(&text, &vyre_wgsl::ImportOptions::default()).expect("a kernel");
            let inputs = vec![bounds.clone(), words(500), words(480), words(100)];
            let case = Case { grid: Some([rows.len() as u32, 1, 1]), ..Case::new(program, inputs) };
            agree(&format!("{what} by {size}"), &case);
        }
    }
}

/// A grid goes over a buffer that may end before the number that it counts to, which may be in a buffer, too.
#[test]
fn strides_of_the_grid_that_go_beyond_a_buffer() {
    for (words_of_each, ty, add) in [
        (1, "u32", "sum = sum * 3u + v;"),
        (2, "vec2u", "sum = sum * 3u + (v.x ^ v.y * 5u);"),
        (4, "vec4u", "sum = sum * 3u + (v.x ^ v.y * 5u) + (v.z ^ v.w * 7u);"),
    ] {
        for (count, size) in [(700u32, 256u32), (1000, 256), (1000, 64), (1024, 256), (1030, 128), (0, 64)] {
            for limit in ["1000u", "limits[0]"] {
                for first in ["i < $limit", "$limit > i", "!(i >= $limit)"] {
                    let text = format!(
                        "@group(0) @binding(0) var<storage, read> input: array<{ty}>;
                         @group(0) @binding(1) var<storage, read> limits: array<u32>;
                         @group(0) @binding(2) var<storage, read_write> result: array<u32, {all}>;
                         var<workgroup> sums: array<u32, {size}>;
                         @compute @workgroup_size({size})
                         fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) at: u32) {{
                             let stride = groups.x * {size}u;
                             var sum = 1u;
                             for (var i = group.x * {size}u + at; {first}; i += stride) {{
                                 let v = input[i];
                                 {add}
                             }}
                             sums[at] = sum;
                             workgroupBarrier();
                             for (var half = {size}u / 2u; half > 0u; half >>= 1u) {{
                                 if (at < half) {{ sums[at] += sums[at + half] * 3u; }}
                                 workgroupBarrier();
                             }}
                             result[group.x * {size}u + at] = sum + sums[0] + limits[0];
                         }}",
                        all = 2 * size,
                        first = first.replace("$limit", limit),
                    );
                    let program = vyre_wgsl::import(&text, &vyre_wgsl::ImportOptions::default()).expect("a kernel");
                    let inputs = vec![words(words_of_each * count.max(1)), 1000u32.to_le_bytes().to_vec()];
                    let case = Case { grid: Some([2, 1, 1]), ..Case::new(program, inputs) };
                    agree(&format!("{ty}, {count} to {limit}, {first}, {size}"), &case);
                }
            }
        }
    }
}

/// A tile with a border whose words beyond the edges of the grid are zeros: workgroups inside of them, at them and beyond.
#[test]
fn borders_by_the_place_of_the_workgroup() {
    for (columns, rows) in [(16, 4), (32, 2), (8, 8)] {
        for width in [64u32, 100, 256] {
            let text = format!(
                "@group(0) @binding(0) var<storage, read> data: array<f32>;
                 @group(0) @binding(1) var<storage, read_write> sums: array<f32, 4096>;
                 var<workgroup> tile: array<array<f32, 96>, {rows}>;
                 @compute @workgroup_size({columns}, {rows})
                 fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u) {{
                     let first = group.x * 64u;
                     let row = (group.y * {rows}u + lid.y) * {width}u;
                     for (var i = 0u; i < 96u / {columns}u; i++) {{
                         let x = first + i * {columns}u + lid.x;
                         var value = 0.0;
                         if (x >= 16u && x < {width}u + 16u) {{ value = data[row + x - 16u]; }}
                         tile[lid.y][i * {columns}u + lid.x] = value;
                     }}
                     workgroupBarrier();
                     let own = ((group.y * 4u + group.x) * {rows}u + lid.y) * 64u;
                     for (var i = 0u; i < 64u / {columns}u; i++) {{
                         var sum = 0.0;
                         for (var j = 0u; j < 9u; j++) {{ sum += tile[lid.y][i * {columns}u + lid.x + j + 12u]; }}
                         sums[own + i * {columns}u + lid.x] = sum;
                     }}
                 }}"
            );
            let program = import(&text, &ImportOptions::default()).expect("a kernel");
            for words_there in [300u32, 2048] {
                let data: Vec<u8> = (0..words_there).flat_map(|i| (i as f32 * 0.25).to_le_bytes()).collect();
                let case = Case { grid: Some([4, 2, 1]), ..Case::new(program.clone(), vec![data]) };
                agree(&format!("{columns} x {rows}, {width} wide, {words_there} words"), &case);
            }
        }
    }
}
