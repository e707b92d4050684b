//! `V14xx`: the CPU backend.

codes! {
    UNKNOWN_PATH = "V1401", Error,
        "The environment variable VYRE_CPU names no way to run kernels.",
        "Set VYRE_CPU to one of the words that the message lists, or unset it.";
    ABSENT_PATH = "V1402", Error,
        "The backend was asked for an instruction set that this processor does not have.",
        "Take `CpuPath::best()`, or unset VYRE_CPU, for the fastest path of this processor.";
    THREADS = "V1403", Error,
        "The environment variable VYRE_THREADS is not a number of threads.",
        "Set VYRE_THREADS to a number from 1 on, or unset it to use the processors that the process may use.";
}
