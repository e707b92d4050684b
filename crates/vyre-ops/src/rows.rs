//! What is done to each row by itself: softmax and norms. A workgroup takes a row and keeps it in registers where they have room for it;
//! longer ones stay in the cache while it goes over them again.
//!
//! **Order.** As for reductions, with as many columns as the workgroup has invocations: a power of two from 32 to 512, a sixteenth of the row's
//! length.

use std::fmt::Write;

use vyre::expression::{Fused, Term};
use vyre::{Buffer, DataType, Error};

use crate::fold::{Fold, Kind};
use crate::launch::{
    GROUP, MOST, Traits, as_a_whole, count, extents, grid, is_float, kernel_of_forms, magnitude, misfit, misfit_with,
    mistyped, room,
};
use crate::tuning::Axis;

/// Reductions of a row, each of which may use those before it, and what is written for each element. `VALUE` is the element, `LAST` what the
/// last reduction made of it, `COUNT` the length, `EXP` the [exponential](crate::exponential), and reductions go by their names.
pub(crate) struct Rows<'a> {
    pub(crate) name: &'a str,
    /// Name, kind, what is put together, and what becomes of it (`#`).
    pub(crate) folds: &'a [(&'a str, Kind, &'a str, &'a str)],
    pub(crate) write: &'a str,
}

pub(crate) const SOFTMAX: Rows<'_> = Rows {
    name: "softmax",
    folds: &[("most", Kind::Most, "VALUE", "#"), ("scale", Kind::Sum, "EXP(VALUE - most)", "1.0TY / #")],
    write: "LAST * scale",
};

pub(crate) const LOG_SOFTMAX: Rows<'_> = Rows {
    name: "log_softmax",
    folds: &[("most", Kind::Most, "VALUE", "#"), ("sum", Kind::Sum, "EXP(VALUE - most)", "log(#)")],
    write: "(VALUE - most) - sum",
};

pub(crate) const LAYER_NORM: Rows<'_> = Rows {
    name: "layer_norm",
    folds: &[
        ("mean", Kind::Sum, "VALUE", "# / COUNT"),
        ("scale", Kind::Sum, "(VALUE - mean) * (VALUE - mean)", "1.0TY / sqrt(# / COUNT + EPSILON)"),
    ],
    write: "(VALUE - mean) * scale",
};

pub(crate) const RMS_NORM: Rows<'_> = Rows {
    name: "rms_norm",
    folds: &[("scale", Kind::Sum, "VALUE * VALUE", "1.0TY / sqrt(# / COUNT + EPSILON)")],
    write: "VALUE * scale",
};

/// Elements of a long row that an invocation fetches at once, the default first.
const AT_ONCE: [usize; 3] = [4, 2, 8];

/// What may be tuned.
pub(crate) const SPACE: &[Axis] = &[
    Axis {
        name: "rows of up to 16384",
        on: "GPUs; softmax everywhere",
        values: &["kept", "read again, 4 at once", "read again, 8 at once"],
    },
    Axis {
        name: "rows of up to 16384",
        on: "processors",
        values: &["read again, 4 at once", "kept", "read again, 8 at once"],
    },
    Axis { name: "longer rows", on: "all", values: &["4 at once", "2 at once", "8 at once"] },
];

/// Elements of a row that an invocation keeps.
const MOST_KEPT: usize = 32;
/// So many elements are worth a kernel of their own for their size.
const FIXED: usize = 1 << 22;

impl Rows<'_> {
    /// Along the last axis.
    pub(crate) fn run(&self, term: &Term, epsilon: f64) -> Result<Buffer, Error> {
        let along = || term.shape().and_then(|shape| shape.extents().last().copied()).unwrap_or(1);
        // How long rows are changes little about what an element takes, unless they are very short or too few for all threads.
        let op = || match along() {
            along @ 32..=0xffff if count(&[term]) / along >= 32 => format!("{} of rows", self.name),
            along => format!("{} of 2^{}", self.name, magnitude(along)),
        };
        as_a_whole(op, &[term], count(&[term]) / 4, || self.run_here(term, epsilon))
    }

    fn run_here(&self, term: &Term, epsilon: f64) -> Result<Buffer, Error> {
        let ty = term.data_type().clone();
        if !is_float(&ty) || ty == DataType::F16 {
            return Err(mistyped(format!("{} is of f32 and f64, not of {ty}", self.name)));
        }
        let extents = extents(term)?;
        let along = *extents
            .last()
            .ok_or_else(|| misfit_with("a single number has no rows", "Give an array with one axis at least."))?;
        let fused = Fused::new(&[term])?;
        let engine = fused.engine().clone();
        let elements = fused.elements();
        let mut out = room(&engine, &ty, elements);
        if elements == 0 {
            return Ok(out);
        }
        if elements > MOST {
            return Err(misfit(format!("{elements} elements are more than are taken at once, which is {MOST}")));
        }
        let rows = elements / along;
        let lanes = (along / 16).next_power_of_two().clamp(32, 512);
        let kept = Some(along.div_ceil(lanes)).filter(|&kept| kept <= MOST_KEPT);
        let whole = kept.is_some_and(|kept| kept * lanes == along);
        let traits = Traits::of(&engine);
        let fixed = Some(elements).filter(|_| traits.is_gpu && elements >= FIXED);
        let form = Form { lanes, kept, whole, at_once: AT_ONCE[0], subgroups: traits.subgroups_on_gpu(), fixed };
        let key = format!("{} {form:?} {} {}", self.name, fixed.map_or(0, |_| along), fused.key());
        let kernel = kernel_of_forms(&engine, &key, || {
            let again = |at_once: usize| Form { kept: None, whole: false, at_once, ..form };
            // Processors have few registers and near caches, and keep only what is dear to compute again.
            let keeps = traits.is_gpu || self.write.contains("LAST");
            let forms = match kept {
                Some(_) if !keeps => {
                    vec![("read again, 4 at once", again(4)), ("kept", form), ("read again, 8 at once", again(8))]
                }
                Some(_) => {
                    vec![("kept", form), ("read again, 4 at once", again(4)), ("read again, 8 at once", again(8))]
                }
                None => vec![("4 at once", form), ("2 at once", again(AT_ONCE[1])), ("8 at once", again(AT_ONCE[2]))],
            };
            forms.into_iter().map(|(name, form)| (name.to_owned(), self.source(&fused, &ty, along, form))).collect()
        })?;
        let words = |value: f64| match ty {
            DataType::F64 => [value.to_bits() as u32, (value.to_bits() >> 32) as u32],
            _ => [(value as f32).to_bits(), 0],
        };
        let (count, epsilon) = (words(along as f64), words(epsilon));
        let sizes = [along as u32, rows as u32, count[0], count[1], epsilon[0], epsilon[1]];
        let call = fused.bind(kernel.call(), 0..elements).value("sizes", &sizes).bind("out", &mut out);
        call.grid(grid(rows)).overwrites().launch()?;
        Ok(out)
    }

    fn source(&self, fused: &Fused, ty: &DataType, along: usize, form: Form) -> String {
        let Form { lanes, kept, fixed, .. } = form;
        let at = fused.bindings();
        let mut text = fused.declarations(0, fixed);
        let (exp, function) = crate::exponential::exponential(ty);
        let word = |at: usize| match ty {
            DataType::F64 => format!("bitcast<f64>(cast<u64>(sizes[{at}]) | (cast<u64>(sizes[{}]) << 32))", at + 1),
            _ => format!("bitcast<f32>(sizes[{at}])"),
        };
        let mut memory: String =
            form.tiles().iter().map(|tile| format!("workgroup {tile}: {ty}[{lanes}] @0;\n")).collect();
        if kept.is_some() && fixed.is_none() {
            let _ = writeln!(memory, "workgroup places: u32[{lanes}] @0;");
        }
        let _ = write!(
            text,
            "read sizes: u32 @{at};\noutput out: {ty}{} @{};\n{memory}workgroup_size [{lanes}, 1, 1];\n{function}\
             entry {} {{\n{GROUP}let l = local_index;\nlet n = {};\nlet count = {};\nlet epsilon = {};\n{}if group < {} {{\n\
             let start = group * n;\n",
            fixed.map_or_else(String::new, |elements| format!("[{elements}]")),
            at + 1,
            self.name,
            fixed.map_or_else(|| "sizes[0]".to_owned(), |_| along.to_string()),
            word(2),
            word(4),
            fused.uniform_lines(),
            fixed.map_or_else(|| "sizes[1]".to_owned(), |elements| (elements / along).to_string()),
        );
        if let Some(kept) = kept {
            text.push_str("let place = start + l;\nlet left = n - min(n, l);\n");
            if fixed.is_none() {
                text.push_str("places[l] = place;\n");
            }
            for k in 0..kept {
                let (lines, values) = fused.lines(&format!("at{k}"), &format!("_{k}"));
                let _ = writeln!(text, "let at{k} = place + {};\n{lines}let own{k} = {};", k * lanes, values[0]);
            }
        }
        // What is done with each element: at once where it was kept, else going over the row again. It is told the element's number, name,
        // the condition that it is there, and its place.
        let over = |text: &mut String, each: &dyn Fn(usize, &str, &str, &str) -> String| match kept {
            Some(kept) => {
                for k in 0..kept {
                    let (inside, place) = (format!("{} < left", k * lanes), format!("place_again + {}", k * lanes));
                    let _ = writeln!(text, "{}", each(k, &format!("own{k}"), &inside, &place));
                }
            }
            None => {
                let _ = writeln!(text, "for r in 0..n step {} {{", lanes * form.at_once);
                for k in 0..form.at_once {
                    let _ = writeln!(text, "let a{k} = r + {} + l;\nlet at{k} = start + a{k};", k * lanes);
                    let (lines, values) = fused.lines(&format!("at{k}"), &format!("_{k}"));
                    text.push_str(&lines);
                    let _ = writeln!(text, "{}", each(k, &values[0], &format!("a{k} < n"), &format!("at{k}")));
                }
                text.push_str("}\n");
            }
        };
        let suffix = if *ty == DataType::F64 { "f64" } else { "" };
        for (at, (name, kind, value, finish)) in self.folds.iter().enumerate() {
            let fold = Fold { kind: *kind, ty: ty.clone() };
            let neutral = fold.neutral();
            let _ = writeln!(text, "var {name}_own: {ty} = {neutral};");
            let own = format!("{name}_own");
            over(&mut text, &|k, element, inside, _| {
                let value = value.replace("VALUE", element).replace("EXP", exp);
                if form.whole {
                    return format!(
                        "let {name}{k} = {value};\n{own} = {};",
                        fold.combined(&own, &format!("{name}{k}"))
                    );
                }
                format!(
                    "let {name}{k} = {value};\nlet {name}_in{k} = select({inside}, {name}{k}, {neutral});\n{own} = {};",
                    fold.combined(&own, &format!("{name}_in{k}"))
                )
            });
            let tile = form.tiles()[at % form.tiles().len()];
            let _ = writeln!(text, "{tile}[l] = {own};\nbarrier;");
            let result = fold.halves(&mut text, tile, lanes, form.subgroups);
            let finish = finish.replace('#', &result).replace("COUNT", "count").replace("EPSILON", "epsilon");
            let _ = writeln!(text, "let {name} = {};", finish.replace("TY", suffix));
            if form.tiles().len() == 1 {
                text.push_str("barrier;\n");
            }
        }
        if kept.is_some() {
            // Read again, the place costs less than the registers that would keep what follows from it all the while. Where sizes are
            // known, nothing but the place itself is needed.
            let place = if fixed.is_none() { "places[l]" } else { "place" };
            let _ = writeln!(text, "let place_again = {place};");
        }
        over(&mut text, &|k, element, inside, place| {
            let last = match (kept, self.folds.last()) {
                (Some(_), Some((name, ..))) => format!("{name}{k}"),
                (_, Some((_, _, value, _))) => value.replace("VALUE", element).replace("EXP", exp),
                (_, None) => element.to_owned(),
            };
            let written = self.write.replace("LAST", &format!("last{k}")).replace("VALUE", element);
            match form.whole {
                true => format!("let last{k} = {last};\nout[{place}] = {written};"),
                false => format!("let last{k} = {last};\nif {inside} {{\nout[{place}] = {written};\n}}"),
            }
        });
        text.push_str("}\n}\n");
        text
    }
}

/// How the kernel is written.
#[derive(Clone, Copy, Debug)]
struct Form {
    lanes: usize,
    /// Elements that each invocation keeps, where a row fits.
    kept: Option<usize>,
    /// Every invocation has as many as the others.
    whole: bool,
    /// Elements that are fetched at once where they are not kept.
    at_once: usize,
    /// What the invocations found is put together within subgroups.
    subgroups: bool,
    /// The elements of all rows, where the kernel is for this size alone: nothing has to be tested then, and places are a sum with a constant.
    fixed: Option<usize>,
}

impl Form {
    /// Places for what the invocations found. With two, in turns, nobody waits until the others have read them: whoever writes to one
    /// has waited at the other since.
    fn tiles(self) -> &'static [&'static str] {
        if self.subgroups { &["tile", "other_tile"] } else { &["tile"] }
    }
}
