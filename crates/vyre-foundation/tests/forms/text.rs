use vyre_foundation::ir::{BufferDecl, DataType, Expr, Literal, Node, Program, SpecConstant};
use vyre_foundation::{text, wire};

use crate::random::{Random, cases};

#[test]
fn random_programs_come_back() {
    for seed in 0..cases(3000) {
        let program = Random(seed).program();
        let printed = text::print(&program);
        match text::parse(&printed) {
            Ok(back) => assert!(back == program, "seed {seed}:\n{printed}\n{program:?}\n{back:?}"),
            Err(problems) => panic!("seed {seed}: {}\n{printed}", problems[0]),
        }
    }
}

const SAXPY: &str = r#"override SCALE = 2.0;
override "two words" = -3i32;
type 0 = struct Pair size 8 align 4 {
    a: f32 at 0,
    b: u32 at 4,
};
type 1 = array<f32, 4> stride 4;
read input: Pair @0;
output out: f32[64] @1:1;
workgroup tile: f32[cast<u32>("two words") * 2] @0;
workgroup_size [64, 1, 1];
domain [len(input), 1, 1];

fn twice(x: f32) -> f32 {
    return x * SCALE;
}

entry saxpy {
    let i = global_id.x;
    var sums: type<1>;
    var pair: Pair = input[i];
    sums[1] = -(1.5) + pair.a;
    pair.b = 1 << 3 & 7;
    if i < len(input) {
        let y = call twice(input[i].a);
        out[i] = y + cast<f32>(input[i].b);
    } else if i == 7 {
        let old = atomic.add(tile[i], 1, compare: 2);
        barrier;
    }
    for k in 0..10 step 2 {
        switch k {
            case 1, 2 {
                continue;
            }
            default {}
        }
    }
    loop {
        let v = vec<f32, 2>(1.0, f32#7fc00001);
        sums[0] = min(v.x, (v + v)[1]);
    } continuing {
        sums[2] = v.yx.x;
    } until select(true, 1 >> 2 > 3, false);
    out[0] = subgroup.shuffle(sums[0], 3);
    let d = subgroup.matrix_bf16(vec<u32, 4>(1), vec<u32, 2>(), vec<f32, 4>());
}
"#;

#[test]
fn text_reads_and_prints_the_same() {
    let program = text::parse(SAXPY).unwrap_or_else(|problems| panic!("{}", problems[0]));
    let printed = text::print(&program);
    assert_eq!(printed, SAXPY.replace("v.yx.x", "(v.yx).x"));
    assert_eq!(program.name(), "saxpy");
    assert_eq!(program.functions().len(), 1);
}

#[test]
fn names_mean_the_nearest() {
    let load = Expr::load("x", 0u32);
    let program = Program::wrapped(
        vec![BufferDecl::read("x", 0, DataType::U32)],
        [1, 1, 1],
        vec![
            Node::let_bind("a", Expr::var("x") + Expr::constant("x")),
            Node::let_bind("x", load.clone()),
            Node::let_bind("b", Expr::var("x") + Expr::constant("x") + load),
        ],
    )
    .with_constants(vec![SpecConstant { name: "x".into(), default: Literal::U32(1) }]);
    let printed = text::print(&program);
    assert!(printed.contains("let a = %x + x;"), "{printed}");
    assert!(printed.contains("let b = x + $x + @x[0];"), "{printed}");
    assert!(text::parse(&printed).expect("parses") == program);
}

#[test]
fn problems_show_their_lines() {
    let source = "workgroup_size [1, 1, 1];\nentry main {\n    let x = 1 +;\n    let y = 300000000000;\n    y = frob(1);\n    if (x { }\n    var z: nothing = 1;\n}\n";
    let problems = text::parse(source).expect_err("broken");
    let found: Vec<_> = problems
        .iter()
        .map(|problem| {
            let source = problem.source.as_ref().expect("a place");
            (problem.code.id, source.line, source.column)
        })
        .collect();
    assert_eq!(
        found,
        [("V0201", 3, 16), ("V0202", 4, 13), ("V0203", 5, 9), ("V0201", 6, 11), ("V0203", 7, 12)],
        "{problems:#?}"
    );
    assert!(problems[0].to_string().contains("let x = 1 +;"));
    for (source, code) in [
        ("", "V0201"),
        ("entry main {}", "V0201"),
        ("workgroup_size [1, 1, 1];", "V0201"),
        ("workgroup_size [1, 1, 1]; entry main {} entry main {}", "V0201"),
        ("workgroup_size [1, 1, 1]; entry main {} read a: f32 @0;", "V0201"),
        ("workgroup_size [1, 1, 1]; entry let {}", "V0201"),
        ("workgroup_size [1, 1, 1]; entry \"main {}", "V0201"),
        ("workgroup_size [1, 1, 4294967296]; entry main {}", "V0202"),
        ("workgroup_size [1, 1, 1]; entry main { let x = f32#7fc0; }", "V0202"),
        ("workgroup_size [1, 1, 1]; entry main { let x = 1 < 2 < 3; }", "V0201"),
        ("workgroup_size [1, 1, 1]; entry main { let x = 1 § 2; }", "V0201"),
        ("workgroup_size [1, 1, 1]; entry main { { { let x = 1; }", "V0201"),
    ] {
        assert_eq!(text::parse(source).expect_err(source)[0].code.id, code, "{source}");
    }
}

#[test]
fn depth_and_size_are_bounded() {
    for open in ["(", "-", "!", "min(", "vec<", "x["] {
        let source = format!("workgroup_size [1, 1, 1]; entry main {{ let x = {}", open.repeat(200_000));
        let problems = text::parse(&source).expect_err(open);
        assert!(problems.len() <= 20, "{open}");
    }
    for open in ["{", "if true {", "loop {", "if true {} else ", "for i in 0..1 {"] {
        let source = format!("workgroup_size [1, 1, 1]; entry main {{ {}", open.repeat(100_000));
        assert!(text::parse(&source).is_err(), "{open}");
    }
    let types = format!("read a: {}", "csr<".repeat(100_000));
    assert!(text::parse(&types).is_err());
    // A chain of operators is no nesting of text; validation refuses its depth.
    let chain = format!("workgroup_size [1, 1, 1]; entry main {{ let x = 1{}; }}", " + 1".repeat(100_000));
    let program = text::parse(&chain).expect("reads");
    assert_eq!(program.validate().expect_err("too deep")[0].code.id, "V0101");
    assert!(text::print(&program).len() > 400_000);
    let large = " ".repeat(text::MAX_BYTES + 1);
    assert_eq!(text::parse(&large).expect_err("too large")[0].code.id, "V0204");
    let many = format!("workgroup_size [1, 1, 1]; entry main {{ {} }}", "barrier;".repeat(1_200_000));
    assert_eq!(text::parse(&many).expect_err("too many")[0].code.id, "V0204");
    let megabyte = format!("workgroup_size [1, 1, 1]; entry main {{ {} }}", "out[0] = a[1] + 2;\n".repeat(60_000));
    assert!(text::parse(&megabyte).is_ok());
}

#[test]
fn what_the_wire_form_carries_the_text_form_does_too() {
    // The deepest mixture that decodes.
    let mut expr = Expr::f32(-1.0);
    for i in 0..200 {
        expr = match i % 5 {
            0 => -expr,
            1 => Expr::f32(2.0) - expr,
            2 => expr.min(1.0f32).lane(0),
            3 => Expr::load("a", expr),
            _ => Expr::f32(1.0).lt(expr),
        };
    }
    let mut nodes = vec![Node::let_bind("x", expr)];
    for i in 0..200 {
        nodes = match i % 3 {
            0 => vec![Node::Block(nodes)],
            1 => vec![Node::if_else(true, vec![], nodes)],
            _ => vec![Node::forever(nodes)],
        };
    }
    let program = Program::wrapped(vec![], [1, 1, 1], nodes);
    assert!(wire::decode(&wire::encode(&program)).expect("decodes") == program);
    assert!(text::parse(&text::print(&program)).expect("parses") == program);
}

#[test]
fn broken_text_never_panics() {
    let mut accepted = 0;
    for seed in 0..cases(5000) {
        let mut random = Random(seed ^ 0xBEEF);
        let mut source = if random.flip() { SAXPY.to_owned() } else { text::print(&Random(seed % 40).program()) };
        for _ in 0..=random.below(3) {
            let mut at = random.below(source.len() + 1);
            while !source.is_char_boundary(at) {
                at -= 1;
            }
            let marks =
                ["{", "}", "(", ")", ";", "\"", "\\", "0x", "1e", "@", "%", "#", "ü", "\0", "let", "<", ">", "..", "-"];
            match random.below(3) {
                0 => source.insert_str(at, random.pick(&marks)),
                1 => source.truncate(at),
                _ => {
                    let rest: String = source[at..].chars().skip(1 + random.below(4)).collect();
                    source.truncate(at);
                    source.push_str(&rest);
                }
            }
        }
        if let Ok(program) = text::parse(&source) {
            assert!(text::parse(&text::print(&program)).expect("prints what parses") == program, "seed {seed}");
            accepted += 1;
        }
    }
    assert!(accepted > 0);
}

#[test]
fn the_documented_example_is_valid() {
    let source: String = include_str!("../../src/text/mod.rs")
        .lines()
        .skip_while(|line| !line.contains("```text"))
        .skip(1)
        .take_while(|line| !line.contains("```"))
        .map(|line| format!("{}\n", line.trim_start_matches("//!")))
        .collect();
    let program = text::parse(&source).unwrap_or_else(|problems| panic!("{}", problems[0]));
    assert!(program.validate().is_ok(), "{:#?}", program.validate());
}
