//! `V17xx`: files and arguments given to the command.

codes! {
    CANT_READ = "V1701", Error,
        "A file can't be read.",
        "Check its name and its permissions.";
    CANT_WRITE = "V1702", Error,
        "A result can't be written.",
        "Check that the folder exists, may be written to, and that the disk has room.";
    BAD_FILE = "V1703", Error,
        "A file does not hold what its ending says.",
        "Write it again, or name a file of another kind: .npy, .csv, .png or raw .bin.";
    BAD_GENERATOR = "V1704", Error,
        "An input can't be made as described.",
        "Write for example iota:1000, random:f32:1e6:seed=1, zeros:64x64, ones:8 or 1,2,3.";
    BAD_ARGUMENT = "V1705", Error,
        "An argument can't be understood.",
        "Look at `vyre help` for its form.";
    UNKNOWN_NAME = "V1706", Error,
        "A name is not one that the kernel declares.",
        "Use one of the names that the message lists.";
    MISSING_INPUT = "V1707", Error,
        "A buffer that the kernel reads was given no contents.",
        "Give it with `--in NAME=SOURCE`.";
    WRONG_TYPE = "V1708", Error,
        "An input's elements are not of the type that the kernel declares.",
        "Convert them, for example in NumPy with `.astype`, or change the kernel.";
    WRONG_LENGTH = "V1709", Error,
        "An input has not as many elements as the kernel declares.",
        "Give exactly as many elements as the declaration says.";
    UNKNOWN_BACKEND = "V1710", Error,
        "There is no backend of this name.",
        "Use `auto`, or one of the names that `vyre devices` lists.";
    UNKNOWN_CODE = "V1711", Error,
        "There is no diagnostic with this code, and no kernel of this name.",
        "Codes are V and four digits; the catalogue lists them all.";
    DIFFERENCE = "V1712", Error,
        "A backend's results differ from those of the reference interpreter.",
        "Run it with another `--backend`, and report the kernel and its inputs: the reference decides what is right.";
    NOT_BUILT_IN = "V1713", Error,
        "This build of the command leaves out what was asked for.",
        "Build it with the feature that the message names.";
    NO_ROOM = "V1714", Error,
        "A run needs more memory than there is.",
        "Run it with smaller buffers, or in parts.";
    CHECK_TOO_LONG = "V1715", Error,
        "The reference interpreter did not end within the time that a check may take.",
        "Check it on a smaller input, or give more time with `--timeout`.";
    WORKGROUP_MATTERS = "V1716", Error,
        "The kernel's results depend on the size of its workgroups, and another one was asked for.",
        "Leave `--workgroup` out, or give `--force` if that is what you want.";
    SHAPE_CONFLICT = "V1717", Error,
        "A value of the kernel is named for a shape, and is not what the shapes of its buffers say.",
        "Leave the value out, so that it is taken from the shape, or give `--force` if it means something else.";
    BAD_PIPELINE = "V1718", Error,
        "A pipeline file can't be understood.",
        "Correct the line; the page on pipelines lists what may stand in one.";
    PASSES_DISAGREE = "V1719", Error,
        "Two passes of a pipeline use one buffer in ways that don't fit together.",
        "Give them buffers of their own with `bind`, or make the declarations the same.";
}
