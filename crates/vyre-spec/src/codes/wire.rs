//! `V03xx`: wire bytes can't be decoded.

codes! {
    WIRE_HEADER = "V0301", Error,
        "The bytes are not a program in wire form.",
        "Pass bytes that `wire::encode` made.";
    WIRE_VERSION = "V0302", Error,
        "The wire form has a version that can't be read here.",
        "Encode the program again with this version of vyre.";
    WIRE_LENGTH = "V0303", Error,
        "The bytes are cut off, or more follow than the header says.",
        "Pass all bytes of one program and nothing else; the file or transfer may be damaged.";
    WIRE_LIMIT = "V0304", Error,
        "The program is larger or nests deeper than the wire form allows.",
        "Split the program, or name inner values with `let` to make it flatter.";
    WIRE_INVALID = "V0305", Error,
        "The bytes hold something that no program has.",
        "Encode the program again; the bytes are damaged or were not made by `wire::encode`.";
}
