//! `V01xx`: the program itself is not valid.

codes! {
    LAUNCH_UNKNOWN_LENGTH = "V0190", Error,
        "A buffer's length is neither declared nor known from what is bound.",
        "Declare it with `with_count`, or give its length in the dispatch configuration.";
    LAUNCH_INPUT_COUNT = "V0191", Error,
        "The number of inputs is not the number of read, uniform and read_write buffers.",
        "Pass the bytes of every read, uniform and read_write buffer, in binding order.";
    LAUNCH_INPUT_SIZE = "V0192", Error,
        "An input's size does not fit its buffer's declaration.",
        "Pass exactly the declared number of elements, or whole elements where the length is open.";
    LAUNCH_DOMAIN = "V0193", Error,
        "The launch domain can't be computed or is too large.",
        "Set `grid_override`, or declare a domain that fits in 2^32-1 workgroups per axis.";
    LAUNCH_WORKGROUP = "V0194", Error,
        "The workgroup size is not usable.",
        "Use a size of at least 1 per axis and at most 1024 invocations.";
    SPEC_UNKNOWN = "V0195", Error,
        "A specialization value names no constant of the program.",
        "Use one of the names that the program declares.";
    SPEC_TYPE = "V0196", Error,
        "A specialization value has not the type of its constant.",
        "Give a value of the declared type.";
}
