//! `V04xx`: WGSL or SPIR-V can't be imported, or a program can't be exported.

codes! {
    WGSL_PARSE = "V0401", Error,
        "The WGSL text can't be parsed or its names and types don't fit together.",
        "Correct the source at the marked place.";
    WGSL_INVALID = "V0402", Error,
        "The module breaks a rule of the shading language.",
        "Correct the source at the marked place.";
    WGSL_UNSUPPORTED = "V0403", Error,
        "The kernel uses a feature that vyre has no meaning for.",
        "Use buffers, workgroup memory and the arithmetic of compute shaders instead.";
    WGSL_ENTRY = "V0404", Error,
        "There is no compute entry point of that name.",
        "Name one of the module's `@compute` functions.";
    WGSL_MANY_ENTRIES = "V0405", Error,
        "The module has several compute entry points and none was named.",
        "Name the entry point to import.";
    WGSL_TOO_LARGE = "V0406", Error,
        "The source is larger or more deeply nested than the importer accepts.",
        "Split the kernel, or shorten the marked expression with `let`.";
    WGSL_FRONT_END = "V0407", Error,
        "The front end stopped with an internal error.",
        "Simplify the kernel around the part that was changed last, and report the source as a bug.";
    SPIRV_PARSE = "V0408", Error,
        "The bytes are not a SPIR-V module that can be read.",
        "Pass a little-endian SPIR-V binary for Vulkan compute.";
    WGSL_OVERRIDE = "V0409", Error,
        "An override constant can't become a specialization constant.",
        "Give it one of the types bool, i32, u32, f16 or f32 and a default value.";
    EXPORT_UNSUPPORTED = "V0410", Error,
        "WGSL has no way to say a part of the program.",
        "Use the types and buffer lengths that WGSL has, or keep the program in the text or wire form.";
}
