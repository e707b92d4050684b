//! `V07xx`: a backend refused or failed.

codes! {
    FAILED = "V0701", Error (Device),
        "A backend failed.",
        "Read the message; run on another backend, or report it to the backend's author.";
    INVALID_PROGRAM = "V0702", Error,
        "The program is not valid, so no backend runs it.",
        "Correct what the first problem names; `Program::validate` lists them all.";
    NOT_RESIDENT = "V0703", Error (Program),
        "The backend has no device-resident path.",
        "Use `dispatch`, or a backend whose capabilities say `resident`.";
    UNSUPPORTED_FEATURE = "V0704", Error (Program),
        "The device lacks something that the program needs.",
        "Run on a device that has it, or write the program without it.";
    LIMIT = "V0705", Error (Busy),
        "The launch is over a limit of the device.",
        "Use smaller buffers, workgroups or grids, or another device.";
    TIMEOUT = "V0706", Error,
        "The dispatch ran longer than its timeout.",
        "Raise `timeout`, or give the dispatch less work.";
    OUT_OF_MEMORY = "V0707", Error (Busy),
        "The device has not enough memory.",
        "Free buffers, use smaller ones, or use a device with more memory.";
    FOREIGN_HANDLE = "V0708", Error (Device),
        "A pipeline or buffer belongs to another backend.",
        "Pass only pipelines and buffers that this backend made.";
    BAD_RANGE = "V0709", Error (Program),
        "A range lies outside its buffer.",
        "Keep offset plus length within the buffer's bytes.";
    OUTPUT_LIMIT = "V0710", Error,
        "The results are larger than `max_output_bytes` allows.",
        "Raise `max_output_bytes`, or ask for fewer elements.";
    BAD_ARTIFACT = "V0711", Error (Program),
        "A stored pipeline can't be loaded by this backend.",
        "Compile the program again; the stored form is then replaced.";
    BINDINGS = "V0712", Error (Program),
        "The buffers bound to a launch are not those of the program.",
        "Bind one buffer for every read, uniform, read_write and output buffer, in binding order.";
    DEVICE_LOST = "V0713", Error (Device),
        "The device is gone.",
        "Open the backend again; work that was under way is lost.";
    STOPPED = "V0714", Error,
        "The launch was told to end before it had done its work.",
        "Launch it again; what it would have written is worthless.";
    UNKNOWN_TICKET = "V0715", Error (Device),
        "A ticket is not one of work that was submitted here.",
        "Ask the backend that gave the ticket.";
    RECORDING = "V0716", Error (Program),
        "A step does not fit the recording.",
        "Replace a step by one of the same kind, and a launch by one of the same pipeline; record anew for anything else.";
    PROGRAM_LIMIT = "V0717", Error (Program),
        "The program is over a limit of the device, however it is launched.",
        "Use fewer buffers or less workgroup memory, or another device.";
}
