//! `V16xx`: the CUDA backend.

codes! {
    UNSUPPORTED = "V1601", Error (Program),
        "The CUDA device is too old for this backend.",
        "Use another backend, or a device of compute capability 7.0 or newer.";
    MALFORMED = "V1602", Error (Program),
        "A kernel reached the emitter in a form that it can't have.",
        "Report this with the program; running on another backend may help meanwhile.";
    NO_DRIVER = "V1603", Error (Device),
        "The CUDA driver is absent or can't be used.",
        "Install NVIDIA's driver (no CUDA toolkit is needed), or use another backend.";
    CALL_FAILED = "V1604", Error (Device),
        "A call of the CUDA driver failed.",
        "Read the driver's answer; other programs on the device or an old driver are common causes.";
    FAULT = "V1605", Error (Device),
        "A kernel faulted, and all that this process had on the device is lost.",
        "Start the process anew; drivers give it no new context after a fault. Report the program.";
    COMPILE_FAILED = "V1606", Error (Program),
        "The CUDA driver did not compile a kernel.",
        "Update the driver; if that does not help, report this with the program.";
}
