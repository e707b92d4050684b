//! `V14xx`: the CPU backend.

codes! {
    UNKNOWN_PATH = "V1401", Error,
        "The environment variable VYRE_CPU names no way to run kernels.",
        "Set VYRE_CPU to one of the words that the message lists, or unset it.";
    ABSENT_PATH = "V1402", Error,
        "The environment variable VYRE_CPU asks for an instruction set that this processor does not have.",
        "Unset VYRE_CPU to take the fastest path of this processor.";
}
