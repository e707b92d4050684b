//! The builder makes the program that one would write as text.

use vyre_foundation::ir::{AtomicOp, DataType, Expr, Operand, ProgramBuilder};
use vyre_foundation::text;

#[test]
fn a_reduction_reads_as_text() {
    let mut builder = ProgramBuilder::new("sum", [64, 1, 1]);
    let size = builder.constant("SIZE", 64u32);
    builder.workgroup_size(0, &size);
    let lanes = builder.array(DataType::F32, 4);
    let (pair, [low, high]) =
        builder.structure("Pair", [("low", DataType::F32), ("high", DataType::vector(DataType::F32, 3))]);
    let input = builder.read("input", pair.ty());
    let total = builder.read_write("total", DataType::U32);
    builder.set_count(&total, 1u32);
    let tile = builder.workgroup("tile", DataType::F32, &size);
    builder.domain([input.len(), Expr::u32(1), Expr::u32(1)]);
    let clamp = builder.procedure("mark", [("at", DataType::U32)], |body, [at]| {
        body.atomic_store(total.at(&at), 7u32);
    });
    builder.body(|body| {
        let i = body.bind("i", Expr::global_id(0));
        let local = body.bind("i", Expr::local_id(0));
        let sums = body.var_zero("sums", lanes.ty());
        body.assign(&sums.index(1u32), input.at(&i).field(high).index(2u32) + 1.0f32);
        body.store(tile.at(&local), input.at(&i).field(low) * &sums.index(0u32) - 2.0f32);
        body.barrier();
        let stride = body.var("stride", DataType::U32, &size / 2u32);
        body.repeat_until(|body| {
            body.if_then(local.lt(&stride), |body| {
                body.store(tile.at(&local), tile.at(&local) + tile.at(&local + &stride));
            });
            body.barrier();
            body.assign(&stride, &stride >> 1u32);
            stride.eq(0u32)
        });
        body.switch(&local, |switch| {
            switch.case([0u32], |body| {
                body.atomic(AtomicOp::Add, total.at(0u32), tile.at(0u32).cast(DataType::U32));
            });
            switch.case([1u32, 2u32], |body| body.run(&clamp, [local.expr()]));
            switch.default(|body| body.break_out());
        });
    });
    let program = builder.build();
    assert!(program.validate().is_ok(), "{:#?}", program.validate());
    let expected = r#"override SIZE = 64;
type 0 = array<f32, 4> stride 4;
type 1 = struct Pair size 32 align 16 {
    low: f32 at 0,
    high: vec<f32, 3> at 16,
};
read input: Pair @0;
read_write total: u32[1] @1;
workgroup tile: f32[SIZE] @0;
workgroup_size [64, 1, 1];
workgroup_exprs [SIZE, _, _];
domain [len(input), 1, 1];

fn mark(at: u32) {
    atomic.store(total[at], 7);
}

entry sum {
    let i = global_id.x;
    let i_1 = local_id.x;
    var sums: type<0>;
    sums[1] = input[i].high[2] + 1.0;
    tile[i_1] = input[i].low * sums[0] - 2.0;
    barrier;
    var stride: u32 = SIZE / 2;
    loop {
        if i_1 < stride {
            tile[i_1] = tile[i_1] + tile[i_1 + stride];
        }
        barrier;
        stride = stride >> 1;
    } until stride == 0;
    switch i_1 {
        case 0 {
            let old = atomic.add(total[0], cast<u32>(tile[0]));
        }
        case 1, 2 {
            call mark(i_1);
        }
        default {
            break;
        }
    }
}
"#;
    assert_eq!(text::print(&program), expected);
}
