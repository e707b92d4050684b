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
}
