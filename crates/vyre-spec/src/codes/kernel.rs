//! `V05xx`: a program can't be lowered.

codes! {
    TYPE = "V0501", Error,
        "A value has a type that can only be described, not computed with.",
        "Use scalars, vectors, structs and arrays of them.";
    TOO_DEEP = "V0502", Error,
        "Blocks nest too deeply once functions are inlined.",
        "Split the kernel, or call fewer functions from inside deeply nested blocks.";
    TOO_LARGE = "V0503", Error,
        "The program is too large once functions are inlined and arrays are taken apart.",
        "Call large functions from fewer places, and index large arrays instead of copying them.";
    BUDGET = "V0504", Error,
        "The evaluation of a kernel took more steps than allowed.",
        "Raise the budget, or check that every loop ends.";
}
