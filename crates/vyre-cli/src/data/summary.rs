//! What a result looks like in a few lines, or as JSON.

use std::fmt::Write;

use serde_json::{Map, json};
use vyre::DataType;

use super::number::Number;
use super::value::Value;

/// How many numbers, or structs, are shown at each end.
const SHOWN: usize = 4;
/// How many numbers JSON has in full.
const MOST_JSON: usize = 1024;

/// What the numbers of one column are like.
#[derive(Default)]
struct Column {
    low: Option<f64>,
    high: Option<f64>,
    sum: f64,
    numbers: u64,
    nans: u64,
}

impl Column {
    fn of(value: &Value, first: usize, step: usize) -> Column {
        let mut column = Column::default();
        for number in (first..value.len()).step_by(step.max(1)).filter_map(|at| value.number(at)) {
            let number = number.real();
            if number.is_nan() {
                column.nans += 1;
                continue;
            }
            column.low = Some(column.low.map_or(number, |low| low.min(number)));
            column.high = Some(column.high.map_or(number, |high| high.max(number)));
            column.sum += number;
            column.numbers += 1;
        }
        column
    }

    fn text(&self, is_float: bool) -> String {
        let mut parts = Vec::new();
        if let (Some(low), Some(high)) = (self.low, self.high) {
            parts.push(format!("min {low}, max {high}, mean {}", self.sum / self.numbers as f64));
        }
        if self.nans > 0 || is_float {
            parts.push(format!("{} NaN", self.nans));
        }
        parts.join(", ")
    }

    fn json(&self) -> serde_json::Value {
        let mean = (self.numbers > 0).then(|| self.sum / self.numbers as f64);
        // What is infinite is no number of JSON.
        json!({ "min": self.low, "max": self.high, "mean": mean, "nan": self.nans })
    }
}

fn is_float(ty: &DataType) -> bool {
    matches!(ty, DataType::F16 | DataType::BF16 | DataType::F32 | DataType::F64)
}

/// Shape, type, first and last values, and for numbers minimum, maximum, mean and the count of NaNs; for structs by member.
pub(crate) fn summary(value: &Value) -> String {
    let shape: Vec<String> = value.shape.iter().map(usize::to_string).collect();
    let mut out = format!("{} [{}]", value.ty, shape.join(" x "));
    if value.len() == 0 {
        return out + ", empty";
    }
    let columns = match value.layout.as_ref().filter(|layout| layout.is_struct) {
        Some(layout) => layout.fields.len(),
        None => 1,
    };
    let item = |at: usize| match value.layout.as_ref().filter(|layout| layout.is_struct) {
        Some(layout) => {
            let fields = layout.fields.iter().enumerate();
            let members = fields.map(|(field, of)| format!("{}: {}", of.name, value.show(at * columns + field)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        None => value.show(at),
    };
    let count = value.len() / columns;
    let items = |range: std::ops::Range<usize>| range.map(item).collect::<Vec<_>>().join(", ");
    if count <= 2 * SHOWN {
        _ = write!(out, "  {}", items(0..count));
    } else {
        _ = write!(out, "  {}, …, {}", items(0..SHOWN), items(count - SHOWN..count));
    }
    let Some(layout) = &value.layout else { return out };
    if !layout.is_struct {
        let of = Column::of(value, 0, 1).text(layout.fields.iter().any(|field| is_float(&field.ty)));
        if !of.is_empty() {
            _ = write!(out, "\n    {of}");
        }
    } else if count > 1 {
        for (at, field) in layout.fields.iter().enumerate() {
            _ = write!(out, "\n    {}: {}", field.name, Column::of(value, at, columns).text(is_float(&field.ty)));
        }
    }
    out
}

/// The same as numbers; all of them where they are few, else those at both ends.
pub(crate) fn json(value: &Value) -> serde_json::Value {
    let mut out = json!({ "type": value.ty, "shape": value.shape });
    let number = |at: usize| match value.number(at) {
        Some(Number::Whole(whole)) => match (u64::try_from(whole), i64::try_from(whole)) {
            (Ok(whole), _) => json!(whole),
            (_, Ok(whole)) => json!(whole),
            _ => json!(whole as f64),
        },
        // What is not finite is null.
        Some(Number::Real(real)) => json!(real),
        None => json!(value.bytes.get(at)),
    };
    let list = |first: usize, step: usize, range: std::ops::Range<usize>| {
        range.map(|at| number(first + at * step)).collect::<Vec<_>>()
    };
    let column = |first: usize, step: usize| {
        let count = (value.len() - first).div_ceil(step.max(1));
        let mut of = Column::of(value, first, step).json();
        if value.len() <= MOST_JSON {
            of["values"] = json!(list(first, step, 0..count));
        } else {
            let shown = SHOWN.min(count);
            of["first"] = json!(list(first, step, 0..shown));
            of["last"] = json!(list(first, step, count - shown..count));
        }
        of
    };
    match value.layout.as_ref().filter(|layout| layout.is_struct) {
        Some(layout) => {
            let fields = layout.fields.iter().enumerate();
            let members: Map<_, _> =
                fields.map(|(at, field)| (field.name.clone(), column(at, layout.fields.len()))).collect();
            out["members"] = members.into();
        }
        None if value.len() > 0 => {
            if let (Some(out), serde_json::Value::Object(of)) = (out.as_object_mut(), column(0, 1)) {
                out.extend(of);
            }
        }
        None => out["values"] = json!([]),
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_shows_both_ends_and_counts_nans() {
        let values = [1.0f32, 2.0, f32::NAN, 4.0, 5.0, 6.0, 7.0, 8.0, 9.5];
        let array = Value::plain(DataType::F32, vec![9], values.map(f32::to_le_bytes).concat());
        assert_eq!(summary(&array), "f32 [9]  1, 2, NaN, 4, …, 6, 7, 8, 9.5\n    min 1, max 9.5, mean 5.3125, 1 NaN");
        let big = Value::plain(DataType::U64, vec![1], u64::MAX.to_le_bytes().to_vec());
        assert!(summary(&big).starts_with("u64 [1]  18446744073709551615"));
        assert_eq!(summary(&Value::plain(DataType::F32, vec![0], vec![])), "f32 [0], empty");
    }

    #[test]
    fn json_has_numbers() {
        let array = Value::plain(DataType::U64, vec![2], [1, u64::MAX].map(u64::to_le_bytes).concat());
        let expected = json!({ "type": "u64", "shape": [2], "values": [1, u64::MAX], "min": 1.0, "nan": 0,
            "max": u64::MAX as f64, "mean": (1.0 + u64::MAX as f64) / 2.0 });
        assert_eq!(json(&array), expected);
        let many = json(&Value::plain(DataType::U32, vec![2000], vec![0; 8000]));
        assert_eq!((&many["first"], &many["values"]), (&json!([0, 0, 0, 0]), &json!(null)));
    }
}
