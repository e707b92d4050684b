//! `V01xx`: the program itself is not valid.

codes! {
    IR_LIMIT = "V0101", Error,
        "The program is larger or nests deeper than the limits allow.",
        "Split the program, or name inner values with `let` to make it flatter.";
    IR_NAME = "V0102", Error,
        "A name is empty or too long.",
        "Use a name of 1 to 256 bytes.";
    IR_DUPLICATE = "V0103", Error,
        "Two things that must be told apart have the same name, binding or value.",
        "Rename or renumber one of them.";
    IR_UNKNOWN = "V0104", Error,
        "A name is used that is not declared here.",
        "Declare it before it is used, in this statement list or in one around it.";
    IR_TYPE = "V0105", Error,
        "A value has not the type that is needed here.",
        "Convert it with a cast, or use an operation for its type.";
    IR_UNSUPPORTED_TYPE = "V0106", Error,
        "Values of this type can't be computed with or stored this way.",
        "Use a scalar, a vector of 2 to 4 scalars, or a struct or array of these.";
    IR_LAYOUT = "V0107", Error,
        "The layout of a type definition is not possible.",
        "Give members ascending, aligned offsets, a size that holds them all, and arrays a stride of at least their element.";
    IR_ARGUMENTS = "V0108", Error,
        "The number of operands is not the one that is needed.",
        "Give exactly the operands that the operation or function takes.";
    IR_ACCESS = "V0109", Error,
        "A buffer is used in a way that its kind does not allow.",
        "Load from read, read_write, uniform and workgroup buffers; store to read_write, output and workgroup buffers.";
    IR_ASSIGN = "V0110", Error,
        "Something that never changes is assigned to.",
        "Declare it as a variable instead of a `let`, parameter, counter or result.";
    IR_PATH = "V0111", Error,
        "There is no such part.",
        "Use a member that the struct has, an index for arrays and vectors, and lanes that the vector has.";
    IR_JUMP = "V0112", Error,
        "A break, continue or return stands where it can't.",
        "Use break in loops and switches, continue in loops, and none of them in a continuing block.";
    IR_RETURN = "V0113", Error,
        "What is returned does not fit the function, or a way to its end returns nothing.",
        "Return a value of the declared type on every way, and none where no result is declared.";
    IR_RECURSION = "V0114", Error,
        "A function calls itself, directly or through others.",
        "Rewrite the recursion as a loop; devices have no call stack.";
    IR_UNIFORMITY = "V0115", Error,
        "A barrier is not reached by all invocations of the workgroup together, or a subgroup operation not by all of the subgroup.",
        "Move it out of the branch, or make the branch depend only on values that are the same for the whole workgroup; for a subgroup operation for the whole subgroup, such as `subgroup_id`.";
    IR_WORKGROUP = "V0116", Error,
        "The workgroup size or its memory is not usable.",
        "Use 1 to 1024 invocations and at most 1 MiB of workgroup memory; GPUs have 16 to 227 KiB.";
    IR_CONSTANT = "V0117", Error,
        "A size is not a u32 expression of literals and specialization constants.",
        "Use u32 literals, specialization constants, casts to u32 and the operators + - * / % << >>.";
    IR_COUNT = "V0118", Error,
        "The number of elements is not usable here.",
        "Fix the count of uniform and workgroup buffers and of arrays, at least 1; leave it open only in storage buffers.";
    IR_ATOMIC = "V0119", Error,
        "An atomic operation has not the operands or the place that it needs.",
        "Use a u32, i32, u64 or i64 of a read_write, output or workgroup buffer; give `compare` to compare_exchange only.";
    IR_STEP = "V0120", Error,
        "The step of a counted loop is not usable.",
        "Use a step of at least 1.";
    IR_SWITCH = "V0121", Error,
        "An arm of a switch can't be reached, or two arms claim the same value.",
        "Give each arm values of its own, of the selector's type; mark at most one as default.";
    IR_BUILTIN = "V0122", Error,
        "A built-in value has no such axis.",
        "Use axis 0, 1 or 2.";
    LAUNCH_UNKNOWN_LENGTH = "V0190", Error,
        "A buffer's length is neither declared nor known from what is bound.",
        "Give its length: `--shape NAME=SIZE` for the command, `DispatchConfig::output_elements` in Rust; or declare it.";
    LAUNCH_INPUT_COUNT = "V0191", Error,
        "The number of inputs is not the number of read, uniform and read_write buffers.",
        "Pass the bytes of every read, uniform and read_write buffer, in binding order.";
    LAUNCH_INPUT_SIZE = "V0192", Error,
        "An input's size does not fit its buffer's declaration.",
        "Pass exactly the declared number of elements, or whole elements where the length is open.";
    LAUNCH_DOMAIN = "V0193", Error,
        "The launch domain can't be computed or is too large.",
        "Say how many workgroups run (`--grid` for the command, `grid_override` in Rust), or declare a domain of at most 2^32-1 workgroups per axis.";
    LAUNCH_WORKGROUP = "V0194", Error,
        "The workgroup size is not usable.",
        "Use a size of at least 1 per axis and at most 1024 invocations.";
    SPEC_UNKNOWN = "V0195", Error,
        "A specialization value names no constant of the program.",
        "Use one of the names that the program declares.";
    SPEC_TYPE = "V0196", Error,
        "A specialization value has not the type of its constant.",
        "Give a value of the declared type.";
    LAUNCH_MATRIX = "V0197", Error,
        "A matrix operation runs in a workgroup that is not made of whole subgroups of 32 invocations.",
        "Use a workgroup whose number of invocations is a multiple of 32, on a device with subgroups of 32.";
    NOT_MERGED = "V0189", Error,
        "Several invocations are to be done by one, and the kernel does not allow it.",
        "Leave the knob out: `vyre tune` finds those that a kernel allows.";
    LAUNCH_ASSUMED = "V0188", Warning,
        "The length of a result was taken from an input, and the kernel may write beyond it; what it writes there is dropped.",
        "Say how long it is with `--shape`; in Rust with `output_elements`, or launch on an array of that length.";
    LAUNCH_ASK = "V0198", Error,
        "How many invocations to launch does not follow from the kernel.",
        "Say how many with `--domain XxYxZ` (invocations) or `--grid XxYxZ` (workgroups); in Rust `domain_override` or `grid_override`; or declare `vyre_domain` in the kernel.";
    LAUNCH_PARTIAL = "V0199", Warning,
        "The launch reaches only a part of a buffer.",
        "Give the domain that is meant with `--domain`, or a buffer of the size that is used.";
}
