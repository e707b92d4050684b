//! `V11xx`: routing and its file.

codes! {
    FILE_UNREADABLE = "V1101", Error,
        "The routing table's file is there but can't be read.",
        "Make it a plain file that you may read, or remove it to start anew.";
    FILE_TOO_LARGE = "V1102", Error,
        "The routing table's file is larger than 4 MiB.",
        "Remove it to start anew; no real table of routes is that large.";
    FILE_INVALID = "V1103", Error,
        "The routing table's file is not the TOML that the router writes.",
        "Repair the line, or remove the file to start anew.";
    FILE_ENTRY = "V1104", Error,
        "An entry of the routing table's file can't be used.",
        "Remove the entry; it is measured again when it is needed.";
    FILE_UNWRITABLE = "V1105", Error,
        "The routing table's file can't be written.",
        "Make its folder writable, or point `XDG_CONFIG_HOME` at one that is.";
    NO_BACKENDS = "V1106", Error,
        "An op was to be certified on no backend at all.",
        "Pass every backend that is present.";
    ALL_REJECTED = "V1107", Error,
        "No backend could run an op.",
        "Read the reason of each backend and repair the one that should work.";
    NO_ROUTE = "V1108", Error,
        "Every backend has failed for an op.",
        "Read the reason of each backend, repair one, and restart.";
    FALLBACK = "V1109", Warning,
        "A backend failed at run time and the work goes on elsewhere.",
        "Read the reason; results are right, but may come slower.";
}
