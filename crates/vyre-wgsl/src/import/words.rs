//! naga's messages in words that mean something to who wrote the kernel: types as WGSL writes them, no numbers of its tables.

/// The message of an invalid module without what only naga knows.
pub(super) fn plain(message: &str) -> String {
    // Nobody reads on, and what follows looks at brackets again and again.
    let end = (0..=LONGEST.min(message.len())).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
    let mut text = replace_types(&message[..end]);
    for (from, to) in PHRASES {
        text = text.replace(from, to);
    }
    for (name, sign) in OPERATORS {
        text = text.replace(&format!("peration {name} can't"), &format!("peration `{sign}` can't"));
    }
    // The place is shown, so that only a function's name says more.
    if let Some((_, rest)) = text.split_once(" at Compute is invalid: ").filter(|_| text.starts_with("Entry point ")) {
        text = rest.to_owned();
    }
    if let Some((name, rest)) = text.strip_prefix("Function '").and_then(|rest| rest.split_once("' is invalid: ")) {
        text = format!("in `{name}`: {rest}");
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => text,
    }
}

/// The message of a text that can't be parsed, with what its mark says where that says more.
pub(super) fn parsed(message: &str, label: &str) -> String {
    let mut message = known(message);
    let label = known(label);
    if !label.is_empty() && label != "see msg" && !message.contains(&label) {
        message = format!("{message}: {label}");
    }
    message
}

/// What naga suggests: sentences, and the types that it lists one by one.
pub(super) fn suggested<'a>(notes: impl Iterator<Item = &'a str>) -> String {
    let (mut sentences, mut types) = (Vec::new(), Vec::new());
    for note in notes {
        match note.trim().strip_prefix("allowed type: ") {
            Some(ty) if ty.contains("{Abstract") => {}
            Some(ty) => types.push(ty.to_owned()),
            None => sentences.push(known(note)),
        }
    }
    format!("{} {}", sentences.join(" "), types.join(", "))
}

/// What helps where naga suggests nothing.
pub(super) fn cure(message: &str) -> Option<&'static str> {
    let cures = [
        ("is a reserved keyword", "Choose another name: WGSL keeps this word for itself."),
        ("no definition in scope for identifier", "Define it, or use the name of something that is defined here."),
    ];
    cures.into_iter().find(|(part, _)| message.contains(part)).map(|(_, cure)| cure)
}

fn known(text: &str) -> String {
    text.replace("{AbstractFloat}", "number with a fraction").replace("{AbstractInt}", "whole number")
}

const LONGEST: usize = 4000;

const OPERATORS: [(&str, &str); 18] = [
    ("Add", "+"),
    ("Subtract", "-"),
    ("Multiply", "*"),
    ("Divide", "/"),
    ("Modulo", "%"),
    ("Equal", "=="),
    ("NotEqual", "!="),
    ("Less", "<"),
    ("LessEqual", "<="),
    ("Greater", ">"),
    ("GreaterEqual", ">="),
    ("And", "&"),
    ("ExclusiveOr", "^"),
    ("InclusiveOr", "|"),
    ("LogicalAnd", "&&"),
    ("LogicalOr", "||"),
    ("ShiftLeft", "<<"),
    ("ShiftRight", ">>"),
];

/// After the numbers of tables are gone.
const PHRASES: [(&str, &str); 11] = [
    ("Expression is invalid: ", ""),
    ("Call to is invalid: ", "the call is wrong: "),
    (
        "The `return` expression Some() does not match the declared return type Some()",
        "what is returned has not the type that the function declares",
    ),
    (
        "The `return` expression None does not match the declared return type Some()",
        "nothing is returned, and the function declares a type",
    ),
    (
        "The `return` expression Some() does not match the declared return type None",
        "something is returned, and the function declares no type",
    ),
    (
        "The pointer doesn't relate to a valid destination for a store",
        "this can't be written to: it is declared to be read only",
    ),
    ("value doesn't match the type", "has not the type that the function declares"),
    ("doesn't match the variable type", "has not the type of what it is stored in"),
    ("Some()", "what is there"),
    ("Argument 0", "the first argument"),
    ("Global variable '", "the variable '"),
];

fn replace_types(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(first) = rest.chars().next() {
        let at_word = !text.ends_with(|c: char| c.is_alphanumeric());
        if let Some((name, length)) = ty(rest).filter(|_| at_word) {
            text += &name;
            rest = &rest[length..];
        } else if let Some(length) = index(rest) {
            // With the blank before it, so that what follows stands where it stood.
            if text.ends_with(' ') {
                text.pop();
            }
            rest = &rest[length..];
        } else if let Some((name, length)) = of_type(rest) {
            text += &name;
            rest = &rest[length..];
        } else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    text
}

/// `[12]`, a number of a table.
fn index(text: &str) -> Option<usize> {
    let digits = text.strip_prefix('[')?;
    let end = digits.find(']')?;
    (end > 0 && digits[..end].bytes().all(|byte| byte.is_ascii_digit())).then_some(end + 2)
}

/// `(of type X)`.
fn of_type(text: &str) -> Option<(String, usize)> {
    const BEFORE: &str = "(of type ";
    let (name, length) = ty(text.strip_prefix(BEFORE)?)?;
    let length = BEFORE.len() + length;
    text[length..].starts_with(')').then_some((name, length + 1))
}

/// A type at the beginning of a text: as WGSL writes it, and how long naga's own way is.
fn ty(text: &str) -> Option<(String, usize)> {
    let (word, length) = inside(text)?;
    let inner = &text[word.len()..length];
    let field = |name: &str| {
        let from = inner.find(&format!("{name}: "))? + name.len() + 2;
        let end = inner[from..].find([',', ' ', '}', ')'])?;
        Some(&inner[from..from + end])
    };
    let size = |name: &str| match field(name)? {
        "Bi" => Some(2),
        "Tri" => Some(3),
        "Quad" => Some(4),
        _ => None,
    };
    let scalar = || {
        let bits = field("width")?.parse::<u32>().ok()?.checked_mul(8)?;
        Some(match field("kind")? {
            "Float" => format!("f{bits}"),
            "Sint" => format!("i{bits}"),
            "Uint" => format!("u{bits}"),
            "Bool" => "bool".to_owned(),
            "AbstractFloat" => "number with a fraction".to_owned(),
            "AbstractInt" => "whole number".to_owned(),
            _ => return None,
        })
    };
    let name = match word {
        "Scalar" => scalar()?,
        "Atomic" => format!("atomic<{}>", scalar()?),
        "Vector" => format!("vec{}<{}>", size("size")?, scalar()?),
        "Matrix" => format!("mat{}x{}<{}>", size("columns")?, size("rows")?, scalar()?),
        "Pointer" | "ValuePointer" => "pointer".to_owned(),
        "Array" => "array".to_owned(),
        "Struct" => "struct".to_owned(),
        "Image" => "texture".to_owned(),
        _ => return None,
    };
    Some((name, length))
}

/// A word with something in brackets behind it, and where that ends.
fn inside(text: &str) -> Option<(&str, usize)> {
    let end = text.find(|c: char| !c.is_ascii_alphabetic())?;
    let rest = &text[end..];
    if !(rest.starts_with('(') || rest.starts_with(" {")) {
        return None;
    }
    let mut open = 0usize;
    for (at, c) in rest.char_indices() {
        match c {
            '(' | '{' | '[' => open += 1,
            ')' | '}' | ']' => open = open.saturating_sub(1),
            _ => {}
        }
        if open == 0 && at > 0 {
            return Some((&text[..end], end + at + c.len_utf8()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_as_in_wgsl() {
        for (naga, ours) in [
            (
                "Entry point main at Compute is invalid: Expression [7] is invalid: Operation Add can't work with [5] (of type \
                 Scalar(Scalar { kind: Float, width: 4 })) and [6] (of type Vector { size: Tri, scalar: Scalar { kind: Uint, width: 4 } })",
                "operation `+` can't work with f32 and vec3<u32>",
            ),
            (
                "Function [0] 'f' is invalid: The `return` expression Some([0]) does not match the declared return type Some([0])",
                "in `f`: what is returned has not the type that the function declares",
            ),
            (
                "Call to [0] is invalid: Requires 1 arguments, but 0 are provided",
                "the call is wrong: Requires 1 arguments, but 0 are provided",
            ),
            ("Pointer { base: [3], space: Storage { access: StorageAccess(LOAD) } } is odd", "pointer is odd"),
            ("a[12] = b", "a = b"),
            ("Scalar(", "scalar("),
            ("", ""),
        ] {
            assert_eq!(plain(naga), ours);
        }
        let notes =
            ["`sqrt` accepts:", "allowed type: {AbstractFloat}", "allowed type: f32", "allowed type: vec2<f32>"];
        assert_eq!(suggested(notes.into_iter()), "`sqrt` accepts: f32, vec2<f32>");
        assert_eq!(parsed("expected `;`, found \"}\"", "expected `;`"), "expected `;`, found \"}\"");
        assert_eq!(
            parsed("Constructor expects 3 components, found 2", "see msg"),
            "Constructor expects 3 components, found 2"
        );
    }
}
