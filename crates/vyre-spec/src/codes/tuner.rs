//! `V10xx`: the tuner and its file.

codes! {
    MODE = "V1001", Warning,
        "`VYRE_AUTOTUNER` holds a word that names no mode, so the default mode is used.",
        "Set it to `on`, `natural`, `ng`, `off` or `default`, or unset it.";
    FILE_UNREADABLE = "V1002", Error,
        "The tuner's file is there but can't be read.",
        "Make it a plain file that you may read, or remove it to start anew.";
    FILE_TOO_LARGE = "V1003", Error,
        "The tuner's file is larger than 4 MiB.",
        "Remove it to start anew; no real table of decisions is that large.";
    FILE_INVALID = "V1004", Error,
        "The tuner's file is not the TOML that the tuner writes.",
        "Repair the line, or remove the file to start anew.";
    FILE_ENTRY = "V1005", Error,
        "An entry of the tuner's file can't be used.",
        "Give it three integers from 1 to 4294967295, or remove the entry.";
    FILE_UNWRITABLE = "V1006", Error,
        "The tuner's file can't be written.",
        "Make its folder writable, or point `XDG_CACHE_HOME` at one that is.";
    DECISION_ENTRY = "V1007", Error,
        "A stored tuning decision can't be used.",
        "Remove the entry; it is measured again when it is needed.";
}
