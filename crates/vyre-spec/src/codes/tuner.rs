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
    NOT_PROVEN = "V1008", Warning,
        "A launch that was written by hand is not used, because the kernel's results may depend on it.",
        "Take the entry out, or set the workgroup size in the kernel or at the launch.";
    SCHEMA = "V1009", Error,
        "A file of decisions was written by a newer vyre.",
        "Use that vyre, or remove the file to start anew.";
    LOCK_UNUSABLE = "V1011", Error,
        "The lock file of decisions can't be used.",
        "Write it anew with `vyre decisions freeze -o vyre.lock`, or unset `VYRE_DECISIONS`.";
    LOCK_MISSING = "V1012", Warning,
        "The lock file says nothing about a launch, so the kernel's own is used.",
        "Tune it and write the lock file anew with `vyre decisions freeze`.";
    LOCK_OLD = "V1015", Warning,
        "A launch of the lock file was measured with another build of driver or compiler; it is used as it is.",
        "Nothing needs to be done; to measure again, unset `VYRE_DECISIONS`, tune, and freeze anew.";
    MEASURED_AGAIN = "V1016", Note,
        "A kernel's runs took longer or shorter than when its launch was decided, so the launch was measured again, or what was decided before holds again.",
        "Nothing needs to be done: what is used is what was fastest in times like these, and a launch that was decided before such times comes back after them. `vyre decisions pin` keeps a launch whatever happens.";
    VARIANT_REJECTED = "V1019", Warning,
        "A foreign variant failed or gave other results than the program, so it is not used.",
        "Correct the variant, or give it a tolerance where its results may be a little off.";
    LOCKED = "V1013", Error,
        "Nothing is measured or changed while a lock file is in use.",
        "Unset `VYRE_DECISIONS` to measure and decide again.";
    UNKNOWN_DECISION = "V1014", Error,
        "There is no decision of this name.",
        "`vyre decisions list` shows them all; the beginning of a key is enough where it is the only one.";
    TOO_NOISY = "V1010", Warning,
        "The machine is too noisy to tell launches apart, so nothing was decided.",
        "Stop other work on the device and tune again, or give it more time with `--budget`.";
}
