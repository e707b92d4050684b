//! `V13xx`: the engine.

codes! {
    FELL_BACK = "V1302", Warning,
        "A backend could not do the work, and another one did it.",
        "Mend what the message says, or name a backend to get its error instead.";
    NO_DISK_CACHE = "V1303", Warning,
        "The pipeline cache can't be used, so programs are compiled again in every process.",
        "Make the folder your own and private (mode 0700), or set XDG_CACHE_HOME to one that is.";
    FLUSH = "V1304", Error,
        "What was compiled could not be made safe on disk.",
        "Free space on the disk that holds the cache, or point XDG_CACHE_HOME elsewhere.";
    UNKNOWN_BUFFER = "V1305", Error,
        "A name is not that of a buffer of the program which can be used so.",
        "Use one of the names that the message lists.";
    NOT_RUN = "V1306", Error,
        "A result was asked for before anything ran.",
        "Call `run`, or `dispatch` and `wait`, first.";
    NOT_SET = "V1307", Error,
        "A dispatch was asked for before all inputs had contents.",
        "Call `set` for every read, uniform and read_write buffer first.";
    NOT_TUNED = "V1308", Error,
        "A program's launches can't be compared.",
        "Run it once to see why it fails.";
    CANCELLED = "V1309", Error,
        "A launch was cancelled, and what it would have written is lost.",
        "Write the array anew, all of it, or launch again.";
    LOST = "V1310", Error (Device),
        "The value of an array is lost with the device that held it.",
        "Write the array anew, all of it.";
    SHAPE = "V1311", Error,
        "Sizes or shapes don't fit.",
        "Use as many elements as the message says.";
    BOUND_TWICE = "V1312", Error,
        "A buffer is bound twice in one launch.",
        "Bind each buffer once.";
    READ_ONLY = "V1313", Error,
        "What a kernel writes was bound to be read only.",
        "Bind it with `&mut`.";
    WRONG_ELEMENT = "V1314", Error,
        "The elements of an array are not those of the buffer that it is bound to.",
        "Use an array of the type that the kernel declares.";
    FORKED = "V1315", Error,
        "An engine was used in a forked process.",
        "Open an engine in the child process, or start it with spawn instead of fork.";
    FOREIGN_TENSOR = "V1320", Error,
        "A tensor of another library can't be taken as an array.",
        "Make it contiguous, on the host or on a CUDA device, before it is given.";
    NOT_CANCELLABLE = "V1321", Error,
        "A replay was given a timeout, but its graph can't be ended while it runs.",
        "Call `cancellable` on the recorder before it is finished.";
}
