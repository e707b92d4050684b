//! `V12xx`: which backends are here.

codes! {
    DUPLICATE = "V1201", Error,
        "Two backends have the same name.",
        "Register each backend once, and give your own a name that no other has.";
    UNKNOWN = "V1202", Error,
        "No backend of that name is registered.",
        "Use one of the registered names, or register the backend first.";
    NONE_PRESENT = "V1203", Error (Device),
        "No backend works on this machine.",
        "Register the CPU backend, which works everywhere, or correct what the reasons name.";
    PROBE_FAILED = "V1204", Error (Device),
        "The probe of a backend panicked or gave another backend.",
        "Report it to the backend's author; the other backends are not affected.";
}
