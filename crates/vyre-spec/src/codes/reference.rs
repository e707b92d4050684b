//! `V06xx`: the reference interpreter stopped.

codes! {
    BUDGET = "V0601", Error,
        "The program ran longer than the instruction budget of the reference interpreter.",
        "Check that its loops end, run fewer invocations, or raise the budget.";
    MEMORY = "V0602", Error,
        "The program needs more memory than the reference interpreter may use.",
        "Use smaller buffers, arrays or workgroups, or raise the memory limit.";
    TYPE = "V0603", Error,
        "The reference interpreter can't compute with a type of the program.",
        "Use scalars, vectors, structs and arrays; the other types only describe data.";
    SUBGROUP_SIZE = "V0604", Error,
        "The subgroup size is not usable.",
        "Use a size from 1 to 128.";
    DIVERGED = "V0605", Error,
        "Invocations wait at different barriers or subgroup operations, so none can go on.",
        "Move the barrier or subgroup operation to where all invocations come or none.";
    INCONSISTENT = "V0606", Error,
        "The program contradicts itself in a way that validation should have found.",
        "Validate the program, and report the contradiction as a fault of the validator.";
}
