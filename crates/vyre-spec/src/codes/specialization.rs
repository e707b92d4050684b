//! `V09xx`: specialization values.

codes! {
    UNKNOWN_CONSTANT = "V0901", Error,
        "A specialization value names no constant of the program.",
        "Use one of the names that the program declares.";
    WRONG_TYPE = "V0902", Error,
        "A specialization value can't be held exactly by the type of its constant.",
        "Give a value of the declared type.";
}
