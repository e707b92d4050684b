//! `V15xx`: the wgpu backend.

codes! {
    NO_ADAPTER = "V1501", Error (Device),
        "There is no adapter that wgpu can use.",
        "Install a driver for Vulkan, Metal or DX12 (on Debian `apt-get install mesa-vulkan-drivers` gives one in software), or use another backend.";
    MALFORMED = "V1502", Error (Program),
        "A kernel reached the emitter in a form that it can't have.",
        "Report this with the program; running on another backend may help meanwhile.";
    CALL_FAILED = "V1503", Error (Device),
        "wgpu or the driver below it refused a call.",
        "Read the answer; an old driver or another program that fills the device's memory are common causes.";
    COMPILE_FAILED = "V1504", Error (Program),
        "The driver did not compile a kernel.",
        "Update the driver; if that does not help, report this with the program.";
    LOOP_LIMIT = "V1505", Error (Program),
        "The launch makes more rounds of loops than the driver is sure to make.",
        "Run it on another backend or driver: Mesa's llvmpipe ends loops after 65,535 rounds.";
    ARRAY_LIMIT = "V1506", Error (Program),
        "The private arrays of a kernel are larger than what the driver compiles in reasonable time, or at all.",
        "Run it on another backend, such as `cpu`; or use a smaller array, or workgroup memory or a buffer in its place.";
}
