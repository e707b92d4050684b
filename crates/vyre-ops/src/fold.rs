//! How elements are put together: neutral element and combination, as text.

use std::fmt::Write;

use vyre::DataType;
use vyre::expression::literal_text;
use vyre::ir::Literal;

use crate::launch::is_float;

/// What elements are put together to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Sum,
    Product,
    Min,
    Max,
    /// The largest of floats that are looked at again, where NaN will be noticed; it may be lost here.
    Most,
    /// Bitwise or of 0 and 1.
    Any,
    /// Bitwise and of 0 and 1.
    All,
    ArgMin,
    ArgMax,
}

impl Kind {
    /// It keeps the index beside the value.
    pub(crate) fn has_index(self) -> bool {
        matches!(self, Kind::ArgMin | Kind::ArgMax)
    }

    fn finds_least(self) -> bool {
        matches!(self, Kind::Min | Kind::ArgMin)
    }
}

/// A kind for elements of a type.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) kind: Kind,
    pub(crate) ty: DataType,
}

impl Fold {
    /// What changes nothing when it is put to something. For sums of floats that is −0.
    pub(crate) fn neutral(&self) -> String {
        let ty = &self.ty;
        let float = |value: f64| match ty {
            DataType::F64 => Literal::F64(value),
            DataType::F16 => Literal::F16(half::f16::from_f64(value)),
            _ => Literal::F32(value as f32),
        };
        let whole = |value: i64| match ty {
            DataType::I32 => Literal::I32(value as i32),
            DataType::U64 => Literal::U64(value as u64),
            DataType::I64 => Literal::I64(value),
            _ => Literal::U32(value as u32),
        };
        literal_text(&match (self.kind, is_float(ty)) {
            (Kind::Sum, true) => float(-0.0),
            (Kind::Sum | Kind::Any, _) => whole(0),
            (Kind::Product, true) => float(1.0),
            (Kind::Product | Kind::All, _) => whole(1),
            (Kind::Min | Kind::ArgMin, true) => float(f64::INFINITY),
            (Kind::Max | Kind::Most | Kind::ArgMax, true) => float(f64::NEG_INFINITY),
            (kind, false) => match (ty, kind.finds_least()) {
                (DataType::I32, true) => Literal::I32(i32::MAX),
                (DataType::I32, false) => Literal::I32(i32::MIN),
                (DataType::I64, true) => Literal::I64(i64::MAX),
                (DataType::I64, false) => Literal::I64(i64::MIN),
                (DataType::U64, true) => Literal::U64(u64::MAX),
                (DataType::U64, false) => Literal::U64(0),
                (_, true) => Literal::U32(u32::MAX),
                (_, false) => Literal::U32(0),
            },
        })
    }

    /// The neutral value of everything that is kept.
    pub(crate) fn neutrals(&self) -> Vec<String> {
        let mut all = vec![self.neutral()];
        if self.kind.has_index() {
            all.push(u32::MAX.to_string());
        }
        all
    }

    /// The types of everything that is kept.
    pub(crate) fn types(&self) -> Vec<DataType> {
        let mut all = vec![self.ty.clone()];
        if self.kind.has_index() {
            all.push(DataType::U32);
        }
        all
    }

    /// As [`Fold::put`], where `more` comes later in the order of the indices than everything in `places`: of equal ones those stay, and what
    /// is neutral is never taken.
    pub(crate) fn put_later(&self, text: &mut String, places: &[String], more: &[String]) {
        if !self.kind.has_index() {
            return self.put(text, places, more);
        }
        let (a, b) = (&places[0], &more[0]);
        let least = self.kind.finds_least();
        let take = match is_float(&self.ty) {
            // Also true where one of both is NaN.
            true => format!("({a} == {a}) & !({b} {} {a})", if least { ">=" } else { "<=" }),
            false => format!("{b} {} {a}", if least { "<" } else { ">" }),
        };
        Fold::replace(text, &take, places, more);
    }

    fn replace(text: &mut String, take: &str, places: &[String], more: &[String]) {
        let ([a, i], [b, j]) = ([&places[0], &places[1]], [&more[0], &more[1]]);
        let _ =
            writeln!(text, "{{ let take = {take};\n{a} = select(take, {b}, {a});\n{i} = select(take, {j}, {i}); }}");
    }

    /// Puts `more` to `places`, which can be written. NaN wins against every number; of equal ones the first index wins.
    pub(crate) fn put(&self, text: &mut String, places: &[String], more: &[String]) {
        let (a, b) = (&places[0], &more[0]);
        let order = if self.kind.finds_least() { "<" } else { ">" };
        if self.kind.has_index() {
            let (i, j) = (&places[1], &more[1]);
            let take = match is_float(&self.ty) {
                true => format!(
                    "({b} {order} {a}) | ({b} != {b}) & ({a} == {a}) | (({b} == {a}) | ({b} != {b}) & ({a} != {a})) & ({j} < {i})"
                ),
                false => format!("({b} {order} {a}) | ({b} == {a}) & ({j} < {i})"),
            };
            return Fold::replace(text, &take, places, more);
        }
        let _ = writeln!(text, "{a} = {};", self.combined(a, b));
    }

    /// Two values put together, for kinds without an index.
    pub(crate) fn combined(&self, a: &str, b: &str) -> String {
        match self.kind {
            Kind::Sum => format!("{a} + {b}"),
            Kind::Product => format!("{a} * {b}"),
            Kind::Any => format!("{a} | {b}"),
            Kind::All => format!("{a} & {b}"),
            Kind::Most => format!("max({a}, {b})"),
            kind if is_float(&self.ty) => {
                let order = if kind.finds_least() { "<" } else { ">" };
                format!("select(({b} {order} {a}) | ({b} != {b}), {b}, {a})")
            }
            kind => format!("{}({a}, {b})", if kind.finds_least() { "min" } else { "max" }),
        }
    }

    /// Makes of the values in `runs`, one for each of so many invocations, those up to each within its group, by doubling distances; `lane`
    /// counts within a group of `size`. They go back and forth between two halves of `runs`, and this gives where the half begins that has
    /// them in the end.
    pub(crate) fn doubled(&self, text: &mut String, lane: &str, size: usize, lanes: usize) -> usize {
        let (mut from, mut to, mut distance) = (0, lanes, 1);
        while distance < size {
            let both = self.combined(&format!("runs[l + {from} - {distance}]"), &format!("runs[l + {from}]"));
            let _ = writeln!(
                text,
                "if {lane} >= {distance} {{\nruns[l + {to}] = {both};\n}} else {{\nruns[l + {to}] = runs[l + {from}];\n}}\nbarrier;"
            );
            std::mem::swap(&mut from, &mut to);
            distance *= 2;
        }
        from
    }

    /// Puts the values of a tile, one for each of so many invocations, together by halves, and gives what the result is called, which all
    /// invocations know. For kinds without an index.
    ///
    /// With subgroups of 32 each of them does all of it by itself, so that there is nothing to wait for; else the tile is changed.
    pub(crate) fn halves(&self, text: &mut String, tile: &str, lanes: usize, subgroups: bool) -> String {
        const SUBGROUP: usize = 32;
        if !subgroups || lanes < SUBGROUP {
            let mut half = lanes / 2;
            while half > 0 {
                let combined = self.combined(&format!("{tile}[l]"), &format!("{tile}[l + {half}]"));
                let _ = writeln!(text, "if l < {half} {{\n{tile}[l] = {combined};\n}}\nbarrier;");
                half /= 2;
            }
            return format!("{tile}[0]");
        }
        let name = format!("half_of_{}", text.len());
        let _ = writeln!(text, "let {name}_lane = l % {SUBGROUP};");
        let mut half = lanes / SUBGROUP;
        for part in 0..half {
            let at = part * SUBGROUP;
            let _ = writeln!(text, "var {name}_part{part}: {} = {tile}[{name}_lane + {at}];", self.ty);
        }
        while half > 1 {
            half /= 2;
            for part in 0..half {
                let (own, other) = (format!("{name}_part{part}"), format!("{name}_part{}", part + half));
                let _ = writeln!(text, "{own} = {};", self.combined(&own, &other));
            }
        }
        let _ = writeln!(text, "var {name}: {} = {name}_part0;", self.ty);
        for half in [16, 8, 4, 2, 1] {
            let other = format!("{name}_{half}");
            let combined = self.combined(&name, &other);
            let _ = writeln!(text, "let {other} = subgroup.shuffle_down({name}, {half});\n{name} = {combined};");
        }
        let _ = writeln!(text, "let {name}_all = subgroup.shuffle({name}, 0);");
        format!("{name}_all")
    }
}
