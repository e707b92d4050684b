//! `V02xx`: the text form can't be read.

codes! {
    TEXT_SYNTAX = "V0201", Error,
        "The text does not follow the grammar.",
        "Write what is expected at the marked place.";
    TEXT_NUMBER = "V0202", Error,
        "A number is malformed or does not fit its type.",
        "Use digits with the suffix of a type that holds the value: `7` is u32, `7i32`, `1.5` is f32, `1.5f64`.";
    TEXT_NAME = "V0203", Error,
        "A type, member or function of this name is not known here.",
        "Declare it before it is used, or correct its name.";
    TEXT_LIMIT = "V0204", Error,
        "The text is too large or nests too deep.",
        "Split the program, or name inner values with `let` to make it flatter.";
}
