//! Bodies that attract each other.
//!
//! **Order.** A chain of `fma` over the bodies in their order. The inverse root is that of three of Newton's steps from the bits.

#[cfg(target_arch = "x86_64")]
mod host;

use std::fmt::Write;

use vyre::expression::Term;
use vyre::variant::Variant;
use vyre::{DataType, Error};

use crate::launch::{GROUP, MOST, engine, extents, grid, kernel_of_forms_or, misfit, mistyped, room};
use crate::output::Output;
use crate::tuning::Axis;

const LANES: usize = 128;
/// Bodies that an invocation looks at together, the default first.
const TOGETHER: [usize; 4] = [8, 4, 2, 16];

/// The first of Newton's steps to the inverse root begins with half of the bits taken from these.
const ROOT_BITS: u32 = 0x5f37_59df;
/// Where the square of a distance is not above this, the inverse root is no number to go on with.
const NEAREST: f32 = f32::MIN_POSITIVE;
/// So many bodies pull at a few within milliseconds.
const MANY: usize = 1 << 20;

/// What may be tuned.
pub(crate) const SPACE: &[Axis] = &[Axis { name: "bodies at once", on: "all", values: &["8", "4", "2", "16"] }];

/// Accelerations `[n, 3]` of bodies `[n, 4]`, which have a place and a mass: the sum of `m·d / (d² + ε²)^1.5` over all others.
pub(crate) fn accelerations(bodies: &Term, epsilon: f64) -> Result<Output, Error> {
    let ty = bodies.data_type().clone();
    if ty != DataType::F32 {
        return Err(mistyped(format!("bodies are of f32, not of {ty}")));
    }
    let [count, 4] = extents(bodies)?[..] else {
        return Err(misfit(format!("bodies have places and masses, [n, 4], not {:?}", extents(bodies)?)));
    };
    if count * 4 > MOST {
        return Err(misfit(format!("{count} bodies are more than are taken at once, which is {}", MOST / 4)));
    }
    let engine = engine(bodies)?;
    let mut out = room(&engine, &ty, count * 3);
    if count > 0 {
        let is_soon_done = count <= MANY;
        let forms = || TOGETHER.iter().map(|together| (together.to_string(), source(*together))).collect();
        let function = || is_soon_done.then(function).flatten();
        let kernel = kernel_of_forms_or(&engine, &format!("bodies {is_soon_done}"), forms, function)?;
        let sizes = [count as u32, ((epsilon * epsilon) as f32).to_bits()];
        let bodies = bodies.evaluate()?;
        let call = kernel.bind("bodies", &bodies).value("sizes", &sizes).bind("out", &mut out);
        call.grid(grid(count.div_ceil(LANES))).overwrites().launch()?;
    }
    Ok(Output { buffer: out, ty, shape: vec![count, 3] })
}

/// What processors run instead.
fn function() -> Option<Variant> {
    #[cfg(target_arch = "x86_64")]
    return host::side_by_side();
    #[cfg(not(target_arch = "x86_64"))]
    None
}

fn source(together: usize) -> String {
    let mut text = format!(
        "read bodies: vec<f32, 4> @0;\nread sizes: u32 @1;\noutput out: f32 @2;\nworkgroup others: vec<f32, 4>[{LANES}] @0;\n\
         workgroup_size [{LANES}, 1, 1];\nentry accelerations {{\n{GROUP}let l = local_index;\nlet count = sizes[0];\nlet soft = bitcast<f32>(sizes[1]);\n\
         let own = group * {LANES} + l;\nlet body = bodies[own];\nvar x: f32 = 0.0;\nvar y: f32 = 0.0;\nvar z: f32 = 0.0;\n\
         for first in 0..count step {LANES} {{\nothers[l] = bodies[first + l];\nbarrier;\nfor several in 0..{} {{\nlet j = several * {together};\n",
        LANES / together
    );
    for u in 0..together {
        // Behind the last there is nothing, which has no mass. What is at the same place does not attract.
        let _ = write!(
            text,
            "let o{u} = others[j + {u}];\nlet dx{u} = o{u}.x - body.x;\nlet dy{u} = o{u}.y - body.y;\nlet dz{u} = o{u}.z - body.z;\n\
             let far{u} = fma(dz{u}, dz{u}, fma(dy{u}, dy{u}, fma(dx{u}, dx{u}, soft)));\nlet half{u} = far{u} * -0.5;\n\
             let r{u}_0 = bitcast<f32>({ROOT_BITS} - (bitcast<u32>(far{u}) >> 1));\n"
        );
        for step in 0..3 {
            let _ = writeln!(
                text,
                "let t{u}_{step} = half{u} * r{u}_{step};\nlet r{u}_{} = r{u}_{step} * fma(t{u}_{step}, r{u}_{step}, 1.5);",
                step + 1
            );
        }
        let _ = write!(
            text,
            "let pull{u} = o{u}.w * r{u}_3 * (r{u}_3 * r{u}_3);\nlet by{u} = select(far{u} > f32#{:08x}, pull{u}, 0.0);\n\
             x = fma(dx{u}, by{u}, x);\ny = fma(dy{u}, by{u}, y);\nz = fma(dz{u}, by{u}, z);\n",
            NEAREST.to_bits()
        );
    }
    text.push_str(
        "}\nbarrier;\n}\nif own < count {\nout[own * 3] = x;\nout[own * 3 + 1] = y;\nout[own * 3 + 2] = z;\n}\n}\n",
    );
    text
}
